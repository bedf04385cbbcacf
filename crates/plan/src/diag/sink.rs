//! Collects the diagnostics of the checks.

use std::fmt;

use crate::diag::diagnostics::{Diagnostic, Diagnostics, FAULTS_MAX, Severity};
use crate::diag::source::{Sources, Span};

/// Errors that leave all numbers of packets as they are. After any other error, sums would mislead.
const KEEPS_SUMS: [&str; 10] = [
    "wrong-app",
    "cpu-twice",
    "cpu-not-allowed",
    "too-few-cpus",
    "peer-mismatch",
    "ud-only-key",
    "conflicting-keys",
    "device-mismatch",
    "two-devices",
    "bad-name",
];

/// Collects the diagnostics of the checks.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) sources: Sources,
    list: Vec<Diagnostic>,
    /// Errors and warnings so far.
    found: [usize; 2],
    /// The last diagnostic that is not kept: its caller still adds labels to it.
    unkept: Option<Diagnostic>,
    /// The tables, sorted by position, and whether each could be read as meant.
    tables: Vec<TableRead>,
    /// Whether any table could not be.
    is_half_read: bool,
}

/// A table of the file, or of a flag.
#[derive(Debug)]
struct TableRead {
    /// The path in the file's notation, e.g. `port.orders`.
    path: String,
    head: Span,
    is_half: bool,
}

/// Errors that report something missing, each with the sorts of tables that could have declared it;
/// without sorts it is the table at the error itself.
const OF_ABSENCE: [(&str, &[&str]); 5] = [
    ("missing-key", &[]),
    ("unwired-output", &[]),
    ("unreachable-stage", &["port.", "ring.", "injector.", "spread.", "stage."]),
    ("unused-ring", &["port.", "spread.", "stage."]),
    ("unused-spread", &["stage."]),
];

impl Sink {
    pub(crate) fn new(sources: Sources) -> Self {
        Sink { sources, list: Vec::new(), found: [0; 2], unkept: None, tables: Vec::new(), is_half_read: false }
    }

    pub(crate) fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Severity::Error, code, span, message.into())
    }

    pub(crate) fn warn(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Severity::Warning, code, span, message.into())
    }

    /// Warns of a key that does nothing, as `why`.
    pub(crate) fn no_effect(&mut self, key: &str, span: Span, why: impl fmt::Display) -> &mut Diagnostic {
        self.warn("no-effect", span, format!("`{key}` has no effect: {why}"))
    }

    /// Records that a table has been read; `faults_before`: the number of errors before.
    pub(crate) fn table_is_read(&mut self, path: &str, head: Span, faults_before: usize) {
        let is_half = self.errors() > faults_before;
        self.tables.push(TableRead { path: path.to_owned(), head, is_half });
    }

    /// Records that all tables have been read. If one has a fault, apparently missing or unused
    /// things may have been declared in it. From then on nothing is concluded from absence, and no
    /// warning foretells the run of a plan that is known in part only.
    pub(crate) fn tables_are_read(&mut self) {
        self.is_half_read = self.has_errors();
        self.tables.sort_by_key(|table| table.head);
    }

    /// Whether a place is in a table that could not be read as meant: after its header, or in a
    /// flag that sets one of its keys.
    fn is_of_half_read(&self, span: Span) -> bool {
        let source = self.sources.source(span);
        if source.is_flag {
            let sets = |path: &str| {
                source.text.strip_prefix(path).is_some_and(|rest| rest.trim_start().starts_with(['.', '=']))
            };
            return self.tables.iter().any(|table| table.is_half && sets(&table.path));
        }
        let behind = self.tables.partition_point(|table| table.head <= span);
        behind.checked_sub(1).is_some_and(|table| self.tables[table].is_half)
    }

    /// Whether an error may be no more than the consequence of a table that could not be read.
    fn is_of_absence(&self, code: &str, span: Span) -> bool {
        let Some((_, sorts)) = OF_ABSENCE.iter().find(|(absent, _)| *absent == code) else { return false };
        let is_one = |table: &&TableRead| sorts.iter().any(|sort| table.path.starts_with(sort));
        let of_sorts = || self.tables.iter().filter(is_one).any(|table| table.is_half);
        if sorts.is_empty() { self.is_of_half_read(span) } else { of_sorts() }
    }

    /// Whether one more error would only be counted. If so it is counted here, and the caller need
    /// not word it.
    pub(crate) fn only_counts_error(&mut self) -> bool {
        let is_full = self.found[Severity::Error as usize] >= FAULTS_MAX;
        self.found[Severity::Error as usize] += usize::from(is_full);
        is_full
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// The number of errors so far.
    pub(crate) fn errors(&self) -> usize {
        self.found[Severity::Error as usize]
    }

    /// Whether there are more errors than a person reads: the file is no plan.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.found[Severity::Error as usize] > FAULTS_MAX
    }

    /// Whether the flow of packets and its numbers are as the file means them, in spite of the
    /// errors so far.
    pub(crate) fn sums_are_sound(&self) -> bool {
        let mut errors = self.list.iter().filter(|one| one.severity() == Severity::Error);
        !self.is_hopeless() && errors.all(|one| KEEPS_SUMS.contains(&one.code()))
    }

    /// The places of all kept errors.
    pub(crate) fn error_spans(&self) -> Vec<Span> {
        let errors = self.list.iter().filter(|one| one.severity() == Severity::Error);
        errors.flat_map(|one| one.span().into_iter().chain(one.fault().related.iter().map(|(span, _)| *span))).collect()
    }

    /// Takes over the diagnostics of another sink. They are no consequences of those found here.
    pub(crate) fn absorb(&mut self, other: Sink) {
        for (own, more) in self.found.iter_mut().zip(other.found) {
            *own += more;
        }
        let kept = |list: &[Diagnostic], severity| list.iter().filter(|one| one.severity() == severity).count();
        for one in other.list {
            if kept(&self.list, one.severity()) < FAULTS_MAX {
                self.list.push(one);
            }
        }
    }

    pub(crate) fn finish(self) -> Diagnostics {
        Diagnostics::new(self.list, self.found.map(|found| found.saturating_sub(FAULTS_MAX)))
    }

    fn push(&mut self, severity: Severity, code: &'static str, span: Span, message: String) -> &mut Diagnostic {
        let one = Diagnostic::new(&self.sources, severity, code, span, message);
        let follows = match severity {
            Severity::Warning => self.is_half_read,
            Severity::Error => self.is_half_read && self.is_of_absence(code, span),
        };
        if follows {
            return self.unkept.insert(one);
        }
        let found = &mut self.found[severity as usize];
        *found += 1;
        if *found > FAULTS_MAX {
            return self.unkept.insert(one);
        }
        self.list.push(one);
        self.list.last_mut().expect("pushed just now")
    }
}
