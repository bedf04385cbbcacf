//! What is wrong with the text itself: faults of TOML, and names that are given twice.

use std::ops::Range;

use crate::diag::Sink;
use crate::source::Span;
use crate::tree::SyntaxError;

/// Reports the parser's complaints about the plan file.
pub(crate) fn report(text: &str, errors: Vec<SyntaxError>, sink: &mut Sink) {
    // Where a table is given twice the parser goes on to complain about each of its keys.
    let mut twice: Range<usize> = 0..0;
    for error in errors {
        if !error.message.contains("duplicate key") {
            sink.error("syntax", Span::new(0, error.range), format!("not TOML: {}", error.message));
            continue;
        }
        if twice.contains(&error.range.start) {
            continue;
        }
        let line = line_at(text, error.range.start);
        if is_header(&text[line.clone()]) {
            twice = line.start..next_header(text, line.end);
        }
        duplicate(text, error.range, line, sink);
    }
}

fn duplicate(text: &str, range: Range<usize>, line: Range<usize>, sink: &mut Sink) {
    let name = text.get(range.clone()).unwrap_or_default();
    let first = earlier(text, name, &line);
    let message = match is_header(&text[line.clone()]) {
        true => format!("the table {} is here twice", text[line].trim()),
        false => format!("the key `{name}` is here twice"),
    };
    let one = sink.error("duplicate-name", Span::new(0, range), message);
    if let Some(first) = first {
        one.related(Span::new(0, first), "first here");
    }
    one.help("remove one, or give it another name");
}

/// The earlier of two equal headers, or the earlier of two equal keys of one table.
fn earlier(text: &str, name: &str, line: &Range<usize>) -> Option<Range<usize>> {
    let own = text[line.clone()].trim();
    let mut found = None;
    let mut start = 0;
    for other in text[..line.start].split_inclusive('\n') {
        let trimmed = other.trim();
        let is_same = match is_header(own) {
            true => trimmed == own,
            false => trimmed.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('=')),
        };
        if is_same {
            let at = start + other.find(trimmed)?;
            found = Some(if is_header(own) { at..at + trimmed.len() } else { at..at + name.len() });
        } else if is_header(trimmed) && !is_header(own) {
            found = None;
        }
        start += other.len();
    }
    found
}

fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[')
}

fn line_at(text: &str, at: usize) -> Range<usize> {
    let at = text.floor_char_boundary(at.min(text.len()));
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    start..text[at..].find('\n').map_or(text.len(), |newline| at + newline)
}

/// The start of the first header line from `from` on, or the end.
fn next_header(text: &str, from: usize) -> usize {
    text[from..].find("\n[").map_or(text.len(), |newline| from + newline + 1)
}
