//! Diagnostics: what is wrong, where, and what to do about it.
//!
//! A load reports every fault it can find in one go, sorted by position. Each diagnostic has a stable code, a place in the
//! file or a `--set` flag, the text there, and help; it prints for people ([`Diagnostic::render`]) and serializes for programs.

use std::fmt;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::source::{Location, Sources, Span};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The plan can't run.
    Error,
    /// The plan runs, but probably not as meant.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One fault of a plan.
#[derive(Debug, Clone)]
pub struct Diagnostic(Box<Fault>);

#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) sources: Sources,
    pub(crate) severity: Severity,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// `None` if the file could not be read at all.
    pub(crate) span: Option<Span>,
    pub(crate) label: String,
    pub(crate) related: Vec<(Span, String)>,
    pub(crate) notes: Vec<String>,
    pub(crate) help: Vec<String>,
}

impl Diagnostic {
    pub(crate) fn new(
        sources: &Sources,
        severity: Severity,
        code: &'static str,
        span: impl Into<Option<Span>>,
        message: impl Into<String>,
    ) -> Self {
        Diagnostic(Box::new(Fault {
            sources: sources.clone(),
            severity,
            code,
            message: message.into(),
            span: span.into(),
            label: String::new(),
            related: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
        }))
    }

    /// Written beneath the marked text.
    pub(crate) fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.0.label = label.into();
        self
    }

    /// A second place that matters, and why.
    pub(crate) fn related(&mut self, span: Span, label: impl Into<String>) -> &mut Self {
        self.0.related.push((span, label.into()));
        self
    }

    /// Why it is wrong.
    pub(crate) fn note(&mut self, note: impl Into<String>) -> &mut Self {
        self.0.notes.push(note.into());
        self
    }

    /// What to do.
    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.0.help.push(help.into());
        self
    }

    pub(crate) fn fault(&self) -> &Fault {
        &self.0
    }

    pub(crate) fn span(&self) -> Option<Span> {
        self.0.span
    }

    /// A stable name for this sort of fault, e.g. `unknown-key`.
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.0.severity
    }

    /// What is wrong, in one line.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where it is.
    pub fn location(&self) -> Location {
        match self.0.span {
            Some(span) => self.0.sources.locate(span),
            None => Location {
                file: self.0.sources.source(Span { source: 0, start: 0, end: 0 }).name.clone(),
                line: 0,
                column: 0,
            },
        }
    }

    /// What to do about it: one entry a suggestion.
    pub fn help_texts(&self) -> &[String] {
        &self.0.help
    }
}

/// `error[code] file:line:column: message`.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}] {}: {}", self.severity().as_str(), self.code(), self.location(), self.message())
    }
}

impl std::error::Error for Diagnostic {}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let location = self.location();
        let related: Vec<_> =
            self.0.related.iter().map(|(span, label)| (self.0.sources.locate(*span), label)).collect();
        let related: Vec<_> = related.iter().map(|(at, label)| Related { at, label }).collect();
        let mut out = serializer.serialize_struct("Diagnostic", 10)?;
        out.serialize_field("severity", self.severity().as_str())?;
        out.serialize_field("code", self.code())?;
        out.serialize_field("message", self.message())?;
        out.serialize_field("file", &location.file)?;
        out.serialize_field("line", &location.line)?;
        out.serialize_field("column", &location.column)?;
        out.serialize_field("label", &self.0.label)?;
        out.serialize_field("related", &related)?;
        out.serialize_field("notes", &self.0.notes)?;
        out.serialize_field("help", &self.0.help)?;
        out.end()
    }
}

struct Related<'a> {
    at: &'a Location,
    label: &'a str,
}

impl Serialize for Related<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Related", 4)?;
        out.serialize_field("file", &self.at.file)?;
        out.serialize_field("line", &self.at.line)?;
        out.serialize_field("column", &self.at.column)?;
        out.serialize_field("label", self.label)?;
        out.end()
    }
}

/// Everything that one load found, sorted by position. Serializes as a list.
#[derive(Debug, Clone, Default)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    pub(crate) fn new(mut list: Vec<Diagnostic>) -> Self {
        list.sort_by_key(|one| (one.span(), one.severity(), one.code()));
        Diagnostics(list)
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// The errors.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter().filter(|one| one.severity() == Severity::Error)
    }

    /// The warnings.
    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter().filter(|one| one.severity() == Severity::Warning)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each one with its line shown, then a count.
    pub fn render(&self, colour: bool) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut text = String::new();
        for one in &self.0 {
            text += &one.render(colour);
            text += "\n\n";
        }
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let (errors, warnings) = (self.errors().count(), self.warnings().count());
        text += &match (errors, warnings) {
            (_, 0) => count(errors, "error"),
            (0, _) => count(warnings, "warning"),
            _ => format!("{}, {}", count(errors, "error"), count(warnings, "warning")),
        };
        text.push('\n');
        text
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

impl From<Diagnostic> for Diagnostics {
    fn from(one: Diagnostic) -> Self {
        Diagnostics(vec![one])
    }
}

/// Keeps them sorted by position, and each one once.
impl Extend<Diagnostic> for Diagnostics {
    fn extend<T: IntoIterator<Item = Diagnostic>>(&mut self, more: T) {
        let mut list = std::mem::take(&mut self.0);
        for one in more {
            let same = |other: &Diagnostic| {
                (other.location(), other.code(), other.message()) == (one.location(), one.code(), one.message())
            };
            if !list.iter().any(same) {
                list.push(one);
            }
        }
        *self = Diagnostics::new(list);
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Serialize for Diagnostics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Errors that say nothing about how many packets there can be where. Behind any other, sums would mislead.
const KEEPS_SUMS: [&str; 9] = [
    "wrong-app",
    "cpu-twice",
    "cpu-not-allowed",
    "peer-mismatch",
    "ud-only-key",
    "conflicting-keys",
    "device-mismatch",
    "two-devices",
    "bad-name",
];

/// Where the checks put what they find.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) sources: Sources,
    list: Vec<Diagnostic>,
}

impl Sink {
    pub(crate) fn new(sources: Sources) -> Self {
        Sink { sources, list: Vec::new() }
    }

    pub(crate) fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Severity::Error, code, span, message.into())
    }

    pub(crate) fn warn(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Severity::Warning, code, span, message.into())
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.list.iter().any(|one| one.severity() == Severity::Error)
    }

    /// Whether the errors so far leave the flow of packets and the numbers in it as the file means them.
    pub(crate) fn sums_are_sound(&self) -> bool {
        let errors = self.list.iter().filter(|one| one.severity() == Severity::Error);
        errors.into_iter().all(|one| KEEPS_SUMS.contains(&one.code()))
    }

    /// The places of all errors so far.
    pub(crate) fn error_spans(&self) -> Vec<Span> {
        let errors = self.list.iter().filter(|one| one.severity() == Severity::Error);
        errors.flat_map(|one| one.span().into_iter().chain(one.fault().related.iter().map(|(span, _)| *span))).collect()
    }

    pub(crate) fn finish(self) -> Diagnostics {
        Diagnostics::new(self.list)
    }

    fn push(&mut self, severity: Severity, code: &'static str, span: Span, message: String) -> &mut Diagnostic {
        self.list.push(Diagnostic::new(&self.sources, severity, code, span, message));
        self.list.last_mut().expect("pushed just now")
    }
}
