//! The texts that a plan is read from, and places in them.
//!
//! Source 0 is the plan file; each `--set KEY=VALUE` is a source of its own, so that an error in one points at the flag.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A place in one of the texts that a plan was read from. [`Plan::locate`](crate::Plan::locate) gives it in lines and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub(crate) source: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn new(source: u32, range: Range<usize>) -> Self {
        // Texts longer than u32 are refused in `Sources::new`.
        Span { source, start: range.start as u32, end: range.end.max(range.start) as u32 }
    }
}

/// A [`Span`]'s start, for people.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// The file as it was named, or `--set KEY=VALUE`.
    pub file: String,
    /// From 1; 0 for a `--set` flag or a file that could not be read.
    pub line: usize,
    /// In characters, from 1; 0 where `line` is.
    pub column: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}:{}", self.file, self.column),
        }
    }
}

impl Location {
    /// `file:line`, as sums cite it.
    pub fn short(&self) -> String {
        match self.line {
            0 => self.file.clone(),
            line => format!("{}:{line}", self.file),
        }
    }
}

/// The largest text that is read as a plan: far beyond any real one, and well inside [`Span`]'s 32 bits.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) is_flag: bool,
    line_starts: Vec<usize>,
}

/// All texts of one load, shared by the plan and every diagnostic about it.
#[derive(Debug, Clone)]
pub(crate) struct Sources(Arc<Vec<Source>>);

impl Sources {
    pub(crate) fn new(file: &str, text: &str, flags: &[String]) -> Self {
        assert!(text.len() <= TEXT_BYTES_MAX, "the loader refuses longer texts before they get here");
        let mut all = vec![Source::new(file, text, false)];
        all.extend(flags.iter().map(|flag| Source::new(&format!("--set {flag}"), flag, true)));
        Sources(Arc::new(all))
    }

    pub(crate) fn source(&self, span: Span) -> &Source {
        &self.0[span.source as usize]
    }

    pub(crate) fn text(&self, index: u32) -> &str {
        &self.0[index as usize].text
    }

    pub(crate) fn locate(&self, span: Span) -> Location {
        let source = self.source(span);
        if source.is_flag {
            return Location { file: source.name.clone(), line: 0, column: 0 };
        }
        let start = source.clamp(span.start as usize);
        let line = source.line_starts.partition_point(|&line_start| line_start <= start);
        let column = 1 + source.text[source.line_starts[line - 1]..start].chars().count();
        Location { file: source.name.clone(), line, column }
    }

    /// `span`, cut to what a renderer can show: inside the text, on character boundaries.
    pub(crate) fn range(&self, span: Span) -> Range<usize> {
        let source = self.source(span);
        let start = source.clamp(span.start as usize);
        start..source.clamp(span.end as usize).max(start)
    }
}

impl Source {
    fn new(name: &str, text: &str, is_flag: bool) -> Self {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Source { name: name.to_owned(), text: text.to_owned(), is_flag, line_starts }
    }

    fn clamp(&self, at: usize) -> usize {
        self.text.floor_char_boundary(at.min(self.text.len()))
    }
}
