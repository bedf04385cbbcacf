//! A diagnostic as text, drawn by annotate-snippets, at most [`WIDTH`] columns wide.

use std::borrow::Cow;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::diag::diagnostics::{Diagnostic, Severity};
use crate::diag::excerpt::masked;
use crate::diag::source::{Source, Span};

/// Columns.
const WIDTH: usize = 80;

/// The prefix of a `--set` flag when shown.
const FLAG: &str = "--set ";

/// Stands for the part left out of a line that is too long.
const CUT: &str = "…";

/// Marks farther apart are shown in excerpts of their own, and longer lines in part.
const EXCERPT_BYTES_MAX: usize = 8 << 10;

/// Longer values are marked on their first line only.
const MARK_BYTES_MAX: usize = 1 << 10;

/// The narrowest that indented text is wrapped to.
const WIDTH_MIN: usize = 30;

impl Diagnostic {
    /// Renders the diagnostic with its line, at most 80 columns wide; coloured for a terminal if
    /// `colour`.
    pub fn render(&self, colour: bool) -> String {
        render(self, colour)
    }
}

fn render(one: &Diagnostic, colour: bool) -> String {
    let fault = one.fault();
    let level = match fault.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let line =
        one.location().line.max(fault.related.iter().map(|(at, _)| fault.sources.locate(*at).line).max().unwrap_or(0));
    let margin = line.max(1).to_string().len();
    let title_indent = format!("{}[{}]: ", fault.severity.as_str(), fault.code).len();
    let mut group = Group::with_title(level.primary_title(wrap(&fault.message, title_indent)).id(fault.code));

    match fault.span {
        Some(span) => {
            for excerpt in excerpts(one, span) {
                group = match excerpt {
                    Excerpt::Lines(snippet) => group.element(snippet),
                    Excerpt::Part(origin, text) => group.element(origin).element(Level::NOTE.message(text)),
                };
            }
        }
        None => group = group.element(Origin::path(one.location().file)),
    }
    for note in &fault.notes {
        group = group.element(Level::NOTE.message(wrap(note, margin + " = note: ".len())));
    }
    for help in &fault.help {
        group = group.element(Level::HELP.message(wrap(help, margin + " = help: ".len())));
    }
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    renderer.decor_style(DecorStyle::Ascii).term_width(WIDTH).render(&[group])
}

/// An excerpt of a source.
enum Excerpt<'a> {
    /// Lines, with the marked places in them; or a flag.
    Lines(Snippet<'a, Annotation<'a>>),
    /// The position of a place on a line that is too long to be drawn, and the text around it.
    Part(Origin<'a>, String),
}

/// A place to mark.
struct Mark<'a> {
    source: u32,
    range: Range<usize>,
    kind: AnnotationKind,
    label: Option<Cow<'a, str>>,
}

/// The excerpts that a diagnostic refers to, first the one with its own place. The renderer
/// examines every byte of its input, so it gets the relevant lines in place of the file.
fn excerpts(one: &Diagnostic, span: Span) -> Vec<Excerpt<'_>> {
    let fault = one.fault();
    let label = Some(wrap(&fault.label, WIDTH / 2)).filter(|label| !label.is_empty());
    let mut marks = vec![Mark::new(one, span, AnnotationKind::Primary, label.map(Cow::Owned))];
    for (span, label) in &fault.related {
        marks.push(Mark::new(one, *span, AnnotationKind::Context, Some(Cow::Borrowed(label.as_str()))));
    }
    let mut excerpts = Vec::new();
    while let Some(first) = marks.first() {
        let (index, part) = (first.source, part_around(one.source(first.source), &marks));
        let (here, elsewhere) = marks.into_iter().partition(|mark| mark.source == index && mark.is_within(&part));
        excerpts.push(cut(one, index, part, here));
        marks = elsewhere;
    }
    excerpts
}

impl<'a> Mark<'a> {
    fn new(one: &Diagnostic, span: Span, kind: AnnotationKind, label: Option<Cow<'a, str>>) -> Self {
        let source = one.source(span.source);
        let mut range = one.fault().sources.range(span);
        // Only the first line of a long value is marked.
        if range.len() > MARK_BYTES_MAX {
            let line = source.line_range(source.line_at(range.start));
            range.end = line.end.max(range.start).min(source.text.floor_char_boundary(range.start + MARK_BYTES_MAX));
        }
        Mark { source: span.source, range, kind, label }
    }

    fn is_within(&self, part: &Range<usize>) -> bool {
        part.start <= self.range.start && self.range.end <= part.end
    }

    /// The whole lines of the marked place.
    fn lines(&self, source: &Source) -> Range<usize> {
        let (first, last) = (source.line_at(self.range.start), source.line_at(self.range.end));
        source.line_range(first).start..source.line_range(last).end
    }
}

/// The lines of the first mark and of near marks in the same source; on a line that is too long,
/// the text around the mark.
fn part_around(source: &Source, marks: &[Mark<'_>]) -> Range<usize> {
    let first = &marks[0];
    let mut part = first.lines(source);
    if part.len() > EXCERPT_BYTES_MAX {
        let start = part.start.max(first.range.start.saturating_sub(WIDTH));
        let end = part.end.min(first.range.end + WIDTH);
        return source.text.floor_char_boundary(start)..source.text.floor_char_boundary(end).max(first.range.end);
    }
    for mark in marks.iter().filter(|mark| mark.source == first.source) {
        let lines = mark.lines(source);
        let both = part.start.min(lines.start)..part.end.max(lines.end);
        if both.len() <= EXCERPT_BYTES_MAX {
            part = both;
        }
    }
    part
}

fn cut<'a>(one: &'a Diagnostic, index: u32, part: Range<usize>, marks: Vec<Mark<'a>>) -> Excerpt<'a> {
    let source = one.source(index);
    let line = source.line_at(part.start);
    let is_cut = source.line_range(line).start != part.start || part.len() > EXCERPT_BYTES_MAX;
    let text = masked(&source.text[part.clone()]);
    if let Some(mark) = marks.first().filter(|_| is_cut && !source.is_flag) {
        let at = one.fault().sources.locate(Span::new(index, mark.range.clone()));
        let origin = Origin::path(source.name.as_str()).line(at.line).char_column(at.column);
        return Excerpt::Part(origin, format!("on that line: {CUT}{}{CUT}", text.trim()));
    }
    // A flag has no lines: it is shown as typed.
    let (mut snippet, shift) = match (source.is_flag, is_cut) {
        (true, false) => (Snippet::source(format!("{FLAG}{text}")).line_numbering(false), FLAG.len()),
        (true, true) => (Snippet::source(format!("{CUT}{text}")).line_numbering(false), CUT.len()),
        (false, _) => (Snippet::source(text).line_start(line).path(source.name.as_str()), 0),
    };
    for mark in marks {
        let range = mark.range.start - part.start + shift..mark.range.end - part.start + shift;
        snippet = snippet.annotation(mark.kind.span(range).label(mark.label));
    }
    Excerpt::Lines(snippet)
}

impl Diagnostic {
    fn source(&self, index: u32) -> &Source {
        self.fault().sources.source(Span { source: index, start: 0, end: 0 })
    }
}

/// Breaks `text` at spaces so that it fits [`WIDTH`] when indented by `indent` columns; keeps its
/// line breaks.
fn wrap(text: &str, indent: usize) -> String {
    let width = WIDTH.saturating_sub(indent).max(WIDTH_MIN);
    let lines: Vec<String> = text.lines().map(|line| wrap_line(line, width)).collect();
    lines.join("\n")
}

fn wrap_line(line: &str, width: usize) -> String {
    // Leading space is a table's alignment: such lines are left alone.
    if line.starts_with(' ') {
        return line.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for word in line.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            out.push('\n');
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_at_spaces_and_keeps_tables() {
        let text = "one two three four five six seven eight\n   12  aligned columns that are far wider than the width";
        let wrapped = wrap(text, 50);
        assert_eq!(
            wrapped,
            "one two three four five six\nseven eight\n   12  aligned columns that are far wider than the width"
        );
    }

    #[test]
    fn a_word_longer_than_the_width_stays_whole() {
        let word = "x".repeat(100);
        assert_eq!(wrap(&word, 0), word);
    }
}
