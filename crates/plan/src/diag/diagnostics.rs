//! Diagnostics: the faults of a plan, their places, and remedies.
//!
//! A load reports every fault it can find in one go, sorted by position. Each diagnostic has a
//! stable code, a place in the file or a `--set` flag, the text there, and help; it prints for
//! people ([`Diagnostic::render`]) and serializes for programs.
//!
//! A file that is no plan has a fault in every line. Only the first [`FAULTS_MAX`] are kept, the
//! others are counted, and quotations of the file are cut: neither the work nor the text grows with
//! the product of file and faults.

use std::collections::HashSet;
use std::fmt;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::diag::excerpt::excerpt;
use crate::diag::source::{Location, Sources, Span};

/// The most diagnostics of each severity that are kept.
pub(crate) const FAULTS_MAX: usize = 100;

/// The most related places of a fault; more would make it no clearer.
const RELATED_MAX: usize = 12;

/// How bad a diagnostic is.
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

/// One fault of a plan. `Debug` equals `Display`: programs print it when they unwrap a fault, or
/// return it from `main`.
#[derive(Clone)]
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
            message: excerpt(message.into()),
            span: span.into(),
            label: String::new(),
            related: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
        }))
    }

    /// Sets the text beneath the marked place.
    pub(crate) fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.0.label = excerpt(label.into());
        self
    }

    /// Adds a second place that matters, and why.
    pub(crate) fn related(&mut self, span: Span, label: impl Into<String>) -> &mut Self {
        if self.0.related.len() < RELATED_MAX {
            self.0.related.push((span, excerpt(label.into())));
        }
        self
    }

    /// Adds a reason why it is wrong.
    pub(crate) fn note(&mut self, note: impl Into<String>) -> &mut Self {
        self.0.notes.push(excerpt(note.into()));
        self
    }

    /// Adds a remedy.
    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.0.help.push(excerpt(help.into()));
        self
    }

    pub(crate) fn fault(&self) -> &Fault {
        &self.0
    }

    pub(crate) fn span(&self) -> Option<Span> {
        self.0.span
    }

    /// The stable name of this sort of fault, e.g. `unknown-key`.
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.0.severity
    }

    /// The fault, in one line.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The place of the fault.
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

    /// Remedies, one entry a suggestion.
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

impl fmt::Debug for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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

/// All diagnostics of one load, sorted by position: the first hundred errors and warnings, and the
/// number of further ones. Serializes as a list. `Debug` equals `Display`, as for [`Diagnostic`].
#[derive(Clone, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    /// The numbers of errors and warnings that are not in the list.
    more: [usize; 2],
}

impl Diagnostics {
    pub(crate) fn new(mut list: Vec<Diagnostic>, more: [usize; 2]) -> Self {
        list.sort_by_key(|one| (one.span(), one.severity(), one.code()));
        Diagnostics { list, more }
    }

    /// The errors and warnings in the list, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.list.iter()
    }

    /// The errors, which refuse the plan.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter().filter(|one| one.severity() == Severity::Error)
    }

    /// The warnings, which the plan runs with.
    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter().filter(|one| one.severity() == Severity::Warning)
    }

    /// The length of the list.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The number of diagnostics beyond the list.
    pub fn more(&self) -> usize {
        self.more.iter().sum()
    }

    /// Renders each diagnostic with its line, then the number of further ones.
    pub fn render(&self, colour: bool) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut text = String::new();
        for one in &self.list {
            text += &one.render(colour);
            text += "\n\n";
        }
        let count = |shown: usize, more: usize, what: &str| match (shown, more) {
            (1, 0) => format!("1 {what}"),
            (_, 0) => format!("{shown} {what}s"),
            _ => format!("{shown} {what}s, and {more} more that are not shown"),
        };
        let (errors, warnings) = (self.errors().count(), self.warnings().count());
        let [more_errors, more_warnings] = self.more;
        text += &match (errors, warnings) {
            (_, 0) => count(errors, more_errors, "error"),
            (0, _) => count(warnings, more_warnings, "warning"),
            _ => format!("{}, {}", count(errors, more_errors, "error"), count(warnings, more_warnings, "warning")),
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

impl fmt::Debug for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() { f.write_str("no diagnostics") } else { fmt::Display::fmt(self, f) }
    }
}

impl std::error::Error for Diagnostics {}

impl From<Diagnostic> for Diagnostics {
    fn from(one: Diagnostic) -> Self {
        Diagnostics { list: vec![one], more: [0; 2] }
    }
}

/// Keeps the list sorted by position and free of duplicates, with the first hundred of each
/// severity.
impl Extend<Diagnostic> for Diagnostics {
    fn extend<T: IntoIterator<Item = Diagnostic>>(&mut self, more: T) {
        let (mut list, mut left_out) = (std::mem::take(&mut self.list), self.more);
        let key = |one: &Diagnostic| (one.location(), one.code(), one.message().to_owned());
        let mut known: HashSet<_> = list.iter().map(key).collect();
        let mut kept = [0; 2];
        list.iter().for_each(|one| kept[one.severity() as usize] += 1);
        for one in more {
            let severity = one.severity() as usize;
            if !known.insert(key(&one)) {
                continue;
            }
            if kept[severity] == FAULTS_MAX {
                left_out[severity] += 1;
                continue;
            }
            kept[severity] += 1;
            list.push(one);
        }
        *self = Diagnostics::new(list, left_out);
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
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
        self.list.serialize(serializer)
    }
}
