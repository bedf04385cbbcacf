//! `check` and `graph`: a plan without a run.

use std::io;
use std::process::ExitCode;

use verbline_engine::{Registry, Runtime};
use verbline_operate::{MetricsSettings, SocketChoice, TraceSettings, opens_beside};
use verbline_plan::{Diagnostics, Drawing, Inspection, Loader, Machine, Note, Plan};

use super::args::{CheckOptions, Format, GraphOptions, PlanOptions};
use super::output::{advise, document, is_coloured, message, result};
use super::{App, explain};

/// The exit code for a wrong plan or command line.
pub(super) const EXIT_PLAN: u8 = 2;

/// The app's registry, filled.
pub(super) fn registry(app: &dyn App) -> Registry {
    let mut registry = Registry::new(app.name());
    app.register(&mut registry);
    MetricsSettings::register(&mut registry);
    TraceSettings::register(&mut registry);
    registry
}

/// Loads the plan against the app's registrations and this machine, for a run that listens at
/// `socket`.
pub(super) fn load(registry: &Registry, options: &PlanOptions, socket: &SocketChoice) -> Result<Plan, Diagnostics> {
    loader(registry, options, socket).load_path(&options.plan)
}

fn loader(registry: &Registry, options: &PlanOptions, socket: &SocketChoice) -> Loader {
    let loader = Loader::new(registry.catalog(), Machine::detect()).sets(options.sets.iter().cloned());
    loader.opens(opens_beside(socket))
}

/// Prints diagnostics to standard error, as text.
pub(super) fn show(diagnostics: &Diagnostics) {
    if !diagnostics.is_empty() {
        message(&diagnostics.render(is_coloured(&io::stderr())));
    }
}

/// Prints the machine's shortcomings to standard error.
pub(super) fn show_notes(notes: &[Note]) {
    for note in notes {
        advise(&format!("note[{}]: ", note.lack.code()), &note.message, &note.remedy);
    }
}

/// `check`: shows every fault at once; exit code 2 if there is any.
pub(super) fn check(app: &dyn App, options: &CheckOptions) -> ExitCode {
    let registry = registry(app);
    let inspected = loader(&registry, &options.plan, &SocketChoice::default()).inspect_path(&options.plan.plan);
    let (mut plan, mut diagnostics, notes, sums) = match inspected {
        Ok(Inspection { plan, diagnostics, notes, sums, .. }) => (plan, diagnostics, notes, sums),
        Err(unreadable) => (None, unreadable, Vec::new(), Vec::new()),
    };
    // The stages' own checks need a plan without faults so far.
    let faults = plan.as_ref().map_or_else(Vec::new, |plan| {
        let of_operate = [MetricsSettings::of(plan).err(), TraceSettings::of(plan).err()];
        let of_operate = of_operate.into_iter().flatten().map(Diagnostics::from);
        Runtime::check(plan, &registry).err().into_iter().chain(of_operate).collect()
    });
    if !faults.is_empty() {
        faults.into_iter().for_each(|faults| diagnostics.extend(faults));
        plan = None;
    }
    let code = if plan.is_some() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PLAN) };
    if options.json {
        let (valid, more) = (plan.is_some(), diagnostics.more());
        let mut whole = serde_json::json!({ "valid": valid, "diagnostics": diagnostics, "more": more, "notes": notes });
        if options.explain {
            whole["sums"] = explain::json(&sums);
            whole["nodes"] = plan.as_ref().map_or_else(|| serde_json::json!([]), explain::nodes_json);
        }
        return document(&whole, code, None);
    }
    show(&diagnostics);
    let mut text = String::new();
    if let Some(plan) = &plan {
        show_notes(&notes);
        text = format!("{}: valid; {}\n", options.plan.plan.display(), summary(plan));
    }
    if options.explain {
        let gap = if text.is_empty() { "" } else { "\n" };
        let nodes = plan.as_ref().map(explain::nodes_text).unwrap_or_default();
        text = format!("{text}{gap}{}{nodes}", explain::text(&sums, is_coloured(&io::stdout())));
    }
    result(&text, code, None)
}

/// `graph`: draws the plan, with its faults in red.
pub(super) fn graph(app: &dyn App, options: &GraphOptions) -> ExitCode {
    match loader(&registry(app), &options.plan, &SocketChoice::default()).inspect_path(&options.plan.plan) {
        Ok(Inspection { plan, diagnostics, drawing, .. }) => {
            show(&diagnostics);
            let code = if plan.is_some() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PLAN) };
            result(&draw(&drawing, options.format), code, None)
        }
        Err(unreadable) => {
            show(&unreadable);
            ExitCode::from(EXIT_PLAN)
        }
    }
}

fn draw(drawing: &Drawing, format: Format) -> String {
    match format {
        Format::Dot => drawing.to_dot(),
        Format::Mermaid => drawing.to_mermaid(),
    }
}

fn summary(plan: &Plan) -> String {
    let counts = [
        (plan.lcores().len(), "lcore"),
        (plan.stages().len(), "stage"),
        (plan.ports().len(), "port"),
        (plan.rings().len(), "ring"),
    ];
    let words: Vec<String> = counts.into_iter().filter(|(count, _)| *count > 0).map(plural).collect();
    words.join(", ")
}

fn plural((count, noun): (usize, &str)) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
