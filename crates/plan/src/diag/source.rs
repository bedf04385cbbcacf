//! The texts that a plan is read from, and places in them.
//!
//! Source 0 is the plan file. Each `--set KEY=VALUE` is a source of its own, so that an error in
//! one points at the flag.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::diag::excerpt::excerpt;

/// A place in one of a plan's sources. [`Plan::locate`](crate::Plan::locate) gives it in lines and
/// columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub(crate) source: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn new(source: u32, range: Range<usize>) -> Self {
        // `Sources::new` refuses texts longer than u32.
        Span { source, start: range.start as u32, end: range.end.max(range.start) as u32 }
    }
}

/// The start of a [`Span`], for people.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// The file's name as given, or `--set KEY=VALUE`.
    pub file: String,
    /// From 1; 0 for a `--set` flag or a file that could not be read.
    pub line: usize,
    /// In characters, from 1; 0 if `line` is 0.
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

/// The greatest length of a plan: far beyond any real one, and well inside [`Span`]'s 32 bits. It
/// also bounds the parser's memory for a text with a fault in every byte.
pub(crate) const TEXT_BYTES_MAX: usize = 2 << 20;

/// A block of the character count, which makes columns of a very long line cheap.
const BLOCK_BYTES: usize = 1024;

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) is_flag: bool,
    line_starts: Vec<usize>,
    /// The characters before each block of [`BLOCK_BYTES`].
    chars_before: Vec<usize>,
}

/// All texts of one load, shared by the plan and every diagnostic about it.
#[derive(Debug, Clone)]
pub(crate) struct Sources(Arc<Vec<Source>>);

impl Sources {
    pub(crate) fn new(file: &str, text: &str, flags: &[String]) -> Self {
        assert!(text.len() <= TEXT_BYTES_MAX, "the loader refuses longer texts before they get here");
        let mut all = vec![Source::new(file, text, false)];
        all.extend(flags.iter().map(|flag| Source::new(&excerpt(format!("--set {flag}")), flag, true)));
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
        let line = source.line_at(start);
        let column = 1 + source.chars_before(start) - source.chars_before(source.line_starts[line - 1]);
        Location { file: source.name.clone(), line, column }
    }

    /// Cuts `span` to a range that a renderer accepts: inside the text, on character boundaries.
    pub(crate) fn range(&self, span: Span) -> Range<usize> {
        let source = self.source(span);
        let start = source.clamp(span.start as usize);
        start..source.clamp(span.end as usize).max(start)
    }
}

impl Source {
    fn new(name: &str, text: &str, is_flag: bool) -> Self {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut chars_before = vec![0];
        for block in text.as_bytes().chunks(BLOCK_BYTES) {
            chars_before.push(chars_before[chars_before.len() - 1] + chars_begun(block));
        }
        Source { name: name.to_owned(), text: text.to_owned(), is_flag, line_starts, chars_before }
    }

    /// The line of the byte at `at`, from 1.
    pub(crate) fn line_at(&self, at: usize) -> usize {
        self.line_starts.partition_point(|&line_start| line_start <= at)
    }

    /// The bytes of a line, without its line break; `line` counts from 1.
    pub(crate) fn line_range(&self, line: usize) -> Range<usize> {
        let start = self.line_starts[line - 1];
        let end = self.line_starts.get(line).map_or(self.text.len(), |next| next - 1);
        start..end
    }

    /// The number of characters before `at`, which is on a boundary.
    fn chars_before(&self, at: usize) -> usize {
        let block = at / BLOCK_BYTES;
        self.chars_before[block] + chars_begun(&self.text.as_bytes()[block * BLOCK_BYTES..at])
    }

    fn clamp(&self, at: usize) -> usize {
        self.text.floor_char_boundary(at.min(self.text.len()))
    }
}

/// The number of characters whose first byte is among `bytes`: all bytes but UTF-8's continuation
/// bytes.
fn chars_begun(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}
