//! `check` and `graph`: a plan without a run.

use std::io::IsTerminal;
use std::process::ExitCode;

use verbline_engine::Registry;
use verbline_plan::{Diagnostics, Loader, Machine, Plan};

use super::App;
use super::args::{CheckOptions, Format, GraphOptions, PlanOptions};

/// A plan, or a command line, that is wrong.
pub(super) const EXIT_PLAN: u8 = 2;

/// The app's registry, filled.
pub(super) fn registry(app: &dyn App) -> Registry {
    let mut registry = Registry::new(app.name());
    app.register(&mut registry);
    registry
}

/// Loads the plan against what the app has registered and what this machine has.
pub(super) fn load(registry: &Registry, options: &PlanOptions) -> Result<Plan, Diagnostics> {
    Loader::new(registry.catalog(), Machine::detect()).sets(options.sets.iter().cloned()).load_path(&options.plan)
}

/// Prints diagnostics to standard error as a person reads them.
pub(super) fn show(diagnostics: &Diagnostics) {
    if !diagnostics.is_empty() {
        eprintln!("{}", diagnostics.render(std::io::stderr().is_terminal()));
    }
}

/// `check`: every fault in one go, exit code 2 if there is any.
pub(super) fn check(app: &dyn App, options: &CheckOptions) -> ExitCode {
    let loaded = load(&registry(app), &options.plan);
    let (plan, diagnostics) = match &loaded {
        Ok(plan) => (Some(plan), plan.warnings()),
        Err(diagnostics) => (None, diagnostics),
    };
    if options.json {
        let whole = serde_json::json!({ "valid": plan.is_some(), "diagnostics": diagnostics });
        println!("{whole:#}");
    } else {
        show(diagnostics);
        if let Some(plan) = plan {
            println!("{}: {}", options.plan.plan.display(), summary(plan));
        }
    }
    match plan {
        Some(plan) => {
            if options.explain && !options.json {
                println!("\n{}", plan.explain());
            }
            ExitCode::SUCCESS
        }
        None => ExitCode::from(EXIT_PLAN),
    }
}

fn summary(plan: &Plan) -> String {
    format!(
        "a valid plan: {} on {}, {} and {}",
        plural(plan.stages().len(), "stage"),
        plural(plan.lcores().len(), "lcore"),
        plural(plan.ports().len(), "port"),
        plural(plan.rings().len(), "ring"),
    )
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `graph`: the plan as a drawing.
pub(super) fn graph(app: &dyn App, options: &GraphOptions) -> ExitCode {
    match load(&registry(app), &options.plan) {
        Ok(plan) => {
            let drawing = match options.format {
                Format::Dot => plan.to_dot(),
                Format::Mermaid => plan.to_mermaid(),
            };
            print!("{drawing}");
            ExitCode::SUCCESS
        }
        Err(diagnostics) => {
            show(&diagnostics);
            ExitCode::from(EXIT_PLAN)
        }
    }
}
