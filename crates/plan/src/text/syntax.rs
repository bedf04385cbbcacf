//! Reports faults of the text itself: TOML errors, and names that are given twice.

use std::collections::HashMap;
use std::ops::Range;

use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::text::tree::SyntaxError;

/// Reports the parser's complaints about the plan file.
pub(crate) fn report(text: &str, errors: Vec<SyntaxError>, sink: &mut Sink) {
    let mut names = None;
    // After a duplicate table the parser complains about each of its keys as well.
    let mut twice: Range<usize> = 0..0;
    for error in errors {
        if twice.contains(&error.range.start) || sink.only_counts_error() {
            continue;
        }
        if !error.message.contains("duplicate key") {
            sink.error("syntax", Span::new(0, error.range), format!("not TOML: {}", error.message));
            continue;
        }
        let line = line_at(text, error.range.start);
        if is_header(&text[line.clone()]) {
            twice = line.start..next_header(text, line.end);
        }
        duplicate(text, error.range, line, names.get_or_insert_with(|| Names::new(text)), sink);
    }
}

fn duplicate(text: &str, range: Range<usize>, line: Range<usize>, names: &Names<'_>, sink: &mut Sink) {
    let name = text.get(range.clone()).unwrap_or_default();
    let message = match is_header(&text[line.clone()]) {
        true => format!("the table {} is here twice", text[line.clone()].trim()),
        false => format!("the key `{name}` is here twice"),
    };
    let one = sink.error("duplicate-name", Span::new(0, range), message);
    if let Some(first) = names.first(name, &text[line.clone()], line.start) {
        one.related(Span::new(0, first), "first here");
    }
    one.help("remove one, or give it another name");
}

/// The first place of each header, and of each key below one.
struct Names<'a> {
    headers: HashMap<&'a str, Range<usize>>,
    /// Keyed by the header's position, 0 above all headers.
    keys: HashMap<(usize, &'a str), Range<usize>>,
    header_starts: Vec<usize>,
}

impl<'a> Names<'a> {
    fn new(text: &'a str) -> Self {
        let mut names = Names { headers: HashMap::new(), keys: HashMap::new(), header_starts: vec![0] };
        let (mut start, mut header) = (0, 0);
        for line in text.split_inclusive('\n') {
            let trimmed = line.trim();
            let at = start + (line.len() - line.trim_start().len());
            if is_header(trimmed) {
                header = start;
                names.header_starts.push(header);
                names.headers.entry(trimmed).or_insert(at..at + trimmed.len());
            } else if let Some((key, _)) = trimmed.split_once('=') {
                let key = key.trim_end();
                names.keys.entry((header, key)).or_insert(at..at + key.len());
            }
            start += line.len();
        }
        names
    }

    /// The first header equal to `line`, or the first key of this name below the same header;
    /// before `line` only.
    fn first(&self, name: &str, line: &str, line_start: usize) -> Option<Range<usize>> {
        let found = match is_header(line) {
            true => self.headers.get(line.trim()),
            false => {
                let behind = self.header_starts.partition_point(|start| *start <= line_start);
                self.keys.get(&(self.header_starts[behind - 1], name))
            }
        };
        found.filter(|first| first.start < line_start).cloned()
    }
}

fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[')
}

fn line_at(text: &str, at: usize) -> Range<usize> {
    let at = text.floor_char_boundary(at.min(text.len()));
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    start..text[at..].find('\n').map_or(text.len(), |newline| at + newline)
}

/// The start of the first header line at or after `from`, or the end.
fn next_header(text: &str, from: usize) -> usize {
    text[from..].find("\n[").map_or(text.len(), |newline| from + newline + 1)
}
