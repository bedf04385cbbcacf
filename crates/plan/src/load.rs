//! Loading a plan: a file or a text, overrides, and every check in its order.

use std::path::Path;

use crate::catalog::Catalog;
use crate::check::Checked;
use crate::diag::diagnostics::Diagnostics;
use crate::diag::sink::Sink;
use crate::diag::source::{Sources, TEXT_BYTES_MAX};
use crate::draw::graph::Drawing;
use crate::machine::Machine;
use crate::machine::note::Note;
use crate::plan::Plan;
use crate::plan::build::Said;
use crate::read::{declared, raw};
use crate::sums::descriptors::OpensBeside;
use crate::sums::sum::{self, Sum};
use crate::sums::{self, Proved};
use crate::text::tree::{self, Table, Value};
use crate::text::{file, set, syntax};

/// Reads plans against an application's catalog and a machine.
#[derive(Debug, Clone)]
pub struct Loader {
    catalog: Catalog,
    machine: Machine,
    flags: Vec<String>,
    opens: Vec<OpensBeside>,
}

/// Everything known about a plan, valid or not.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// The plan, if there is no error.
    pub plan: Option<Plan>,
    /// Errors and warnings, sorted by position.
    pub diagnostics: Diagnostics,
    /// Shortcomings of the machine that the plan runs with. Empty if the sums could not be
    /// computed.
    pub notes: Vec<Note>,
    /// The sums that could be computed, failed ones included.
    pub sums: Vec<Sum>,
    /// The graph, with the faulty parts marked.
    pub drawing: Drawing,
}

impl Inspection {
    /// The inspection of a text that could not be read as a plan.
    fn refused(diagnostics: Diagnostics, name: &str) -> Inspection {
        let (notes, sums) = (Vec::new(), Vec::new());
        Inspection { plan: None, diagnostics, notes, sums, drawing: Drawing::empty(name) }
    }

    /// The sums that were proved, a line for each term, as `check --explain` prints them.
    pub fn explain(&self) -> String {
        sum::explain(&self.sums)
    }
}

impl Loader {
    /// Reads plans for an application with this catalog on this machine.
    pub fn new(catalog: Catalog, machine: Machine) -> Self {
        Loader { catalog, machine, flags: Vec::new(), opens: Vec::new() }
    }

    /// Adds `KEY=VALUE` overrides, applied in order before anything is checked. KEY is dotted;
    /// VALUE is TOML, or else a string.
    pub fn sets(mut self, flags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Counts descriptors that the process opens beside the run, in the sum of file descriptors.
    pub fn opens(mut self, beside: impl IntoIterator<Item = OpensBeside>) -> Self {
        self.opens.extend(beside);
        self
    }

    /// Loads the plan in a file, or returns all its faults.
    pub fn load_path(&self, path: impl AsRef<Path>) -> Result<Plan, Diagnostics> {
        into_result(self.inspect_path(path)?)
    }

    /// Loads the plan in a text; diagnostics call it `name`.
    pub fn load_str(&self, name: &str, text: &str) -> Result<Plan, Diagnostics> {
        into_result(self.inspect_str(name, text))
    }

    /// Inspects the plan in a file. Fails only if the file can't be read at all.
    ///
    /// `-` is standard input. Otherwise only regular files are read. Both are read up to the
    /// greatest length of a plan.
    pub fn inspect_path(&self, path: impl AsRef<Path>) -> Result<Inspection, Diagnostics> {
        let path = path.as_ref();
        let text = file::read(path)?;
        Ok(self.inspect_str(&file::name_of(path), &text))
    }

    /// Inspects the plan in a text; diagnostics call it `name`.
    pub fn inspect_str(&self, name: &str, text: &str) -> Inspection {
        if text.len() > TEXT_BYTES_MAX {
            return Inspection::refused(file::too_long(name, text.len() as u64).into(), name);
        }
        let sources = Sources::new(name, text, &self.flags);
        let mut sink = Sink::new(sources.clone());
        let root = self.parse(&sources, &mut sink);
        // The file is no TOML at all: nobody would read further faults.
        if sink.is_hopeless() {
            return Inspection::refused(sink.finish(), name);
        }
        let raw = raw::read(&root, &self.catalog, &mut sink);
        sink.tables_are_read();
        let checked = Checked::new(raw, &self.catalog, &self.machine, &mut sink);
        let proved = sums::prove(&checked, &self.catalog, &self.machine, &self.opens, &mut sink);
        let Proved { sums, completions, descriptors, operates, notes } = proved;
        // Behind the sums, which such faults leave as they are.
        declared::check(&checked.raw, &self.catalog, &mut sink);
        let drawing = Drawing::new(&checked, &sink);
        let is_valid = !sink.has_errors();
        let diagnostics = sink.finish();
        let mut plan = is_valid
            .then(|| {
                let (sums, notes) = (sums.clone(), notes.clone());
                let (drawing, warnings) = (drawing.clone(), diagnostics.clone());
                let machine = self.machine.clone();
                let said = Said { sums, completions, descriptors, operates, drawing, warnings, notes, machine };
                checked.build(&self.catalog, &sources, said)
            })
            .flatten();
        if let Some(plan) = &mut plan {
            plan.notes.extend(plan.nodes(&[]).far(plan));
        }
        let notes = plan.as_ref().map_or(notes, |plan| plan.notes.clone());
        assert_eq!(plan.is_some(), is_valid, "a plan without errors has all its parts");
        Inspection { plan, diagnostics, notes, sums, drawing }
    }

    fn parse(&self, sources: &Sources, sink: &mut Sink) -> Table {
        let (mut root, errors) = tree::parse_document(sources.text(0), 0);
        syntax::report(sources.text(0), errors, sink);
        set::apply(&mut root, &self.flags, sink);
        root
    }
}

/// Returns the app that the plan in a file names, whether or not the rest of the file is a plan.
///
/// The limits are the same as for [`Loader::inspect_path`]. Faults are not reported here: the
/// loader of that app finds them all.
pub fn app_of(path: impl AsRef<Path>) -> Option<String> {
    let text = file::read(path.as_ref()).ok()?;
    let (root, _) = tree::parse_document(&text, 0);
    match &root.find("app")?.node.value {
        Value::Str(app) => Some(app.clone()),
        _ => None,
    }
}

fn into_result(inspection: Inspection) -> Result<Plan, Diagnostics> {
    inspection.plan.ok_or(inspection.diagnostics)
}
