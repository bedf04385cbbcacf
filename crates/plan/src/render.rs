//! A diagnostic as text, drawn by annotate-snippets, at most [`WIDTH`] columns wide.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::diag::{Diagnostic, Severity};
use crate::source::Span;

/// Columns.
const WIDTH: usize = 80;

/// How a `--set` flag is shown.
const FLAG: &str = "--set ";

/// The narrowest that indented text is wrapped to.
const WIDTH_MIN: usize = 30;

impl Diagnostic {
    /// With the line shown, at most 80 columns wide; coloured for a terminal if `colour`.
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
            for source in by_source(span, &fault.related) {
                group = group.element(snippet(one, source));
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

/// The sources that a diagnostic touches, its own first.
fn by_source(span: Span, related: &[(Span, String)]) -> Vec<u32> {
    let mut sources = vec![span.source];
    for (at, _) in related {
        if !sources.contains(&at.source) {
            sources.push(at.source);
        }
    }
    sources
}

fn snippet(one: &Diagnostic, source: u32) -> Snippet<'_, annotate_snippets::Annotation<'_>> {
    let fault = one.fault();
    let text = fault.sources.source(Span { source, start: 0, end: 0 });
    let range = |span: Span| {
        let range = fault.sources.range(span);
        let shift = if text.is_flag { FLAG.len() } else { 0 };
        range.start + shift..range.end + shift
    };
    // A flag has no lines: it is shown as it was typed.
    let mut snippet = match text.is_flag {
        true => Snippet::source(format!("{FLAG}{}", text.text)).line_numbering(false),
        false => Snippet::source(text.text.as_str()).path(text.name.as_str()),
    };
    if let Some(span) = fault.span.filter(|span| span.source == source) {
        let label = Some(wrap(&fault.label, WIDTH / 2)).filter(|label| !label.is_empty());
        snippet = snippet.annotation(AnnotationKind::Primary.span(range(span)).label(label));
    }
    for (span, label) in fault.related.iter().filter(|(span, _)| span.source == source) {
        snippet = snippet.annotation(AnnotationKind::Context.span(range(*span)).label(label.as_str()));
    }
    snippet
}

/// Breaks `text` at spaces so that it fits [`WIDTH`] when written `indent` columns in; its own line breaks stay.
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
