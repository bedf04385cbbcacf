//! The arguments, declared. What a person reads with `--help` is written here.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 80, arg_required_else_help = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a plan, show a live line, and report at the end
    #[command(after_help = "Ctrl-C drains, reports and exits; a second one aborts.\n\nExamples:\n  \
                            run config/pingpong.toml --for 3s\n  \
                            run config/tick-to-trade.toml --set feed.ticks_per_second=1000 --json")]
    Run(RunOptions),
    /// Check a plan without running it; exit code 2 if it has faults
    #[command(after_help = "Every fault of the file is reported in one go, with its line and column.")]
    Check(CheckOptions),
    /// Draw a plan: lcores as clusters, packets as arrows
    #[command(after_help = "Examples:\n  graph config/pingpong.toml | dot -Tsvg > pingpong.svg\n  \
                            graph config/pingpong.toml --format mermaid")]
    Graph(GraphOptions),
    /// List the RDMA devices that a plan can name, kernel and software
    Devices(DevicesOptions),
}

/// A plan, and what changes in it.
#[derive(Args, Debug)]
pub(super) struct PlanOptions {
    /// The plan's TOML file
    pub(super) plan: PathBuf,
    /// Override a key of the plan, e.g. --set lcore.trader.cpu=3; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) sets: Vec<String>,
}

/// Options of `run`.
#[derive(Args, Debug)]
pub(super) struct RunOptions {
    #[command(flatten)]
    pub(super) plan: PlanOptions,
    /// How long to run, e.g. 500ms, 10s, 1h; a run ends earlier when all its sources are done
    #[arg(long = "for", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(super) duration: Duration,
    /// Print one JSON report to standard output, and nothing else there
    #[arg(long)]
    pub(super) json: bool,
    /// No live line
    #[arg(long, short)]
    pub(super) quiet: bool,
}

/// Options of `check`.
#[derive(Args, Debug)]
pub(super) struct CheckOptions {
    #[command(flatten)]
    pub(super) plan: PlanOptions,
    /// Print every sum that was proved, with the lines that its terms come from
    #[arg(long)]
    pub(super) explain: bool,
    /// Print the diagnostics as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of `graph`.
#[derive(Args, Debug)]
pub(super) struct GraphOptions {
    #[command(flatten)]
    pub(super) plan: PlanOptions,
    /// The language of the drawing
    #[arg(long, value_enum, default_value_t = Format::Dot)]
    pub(super) format: Format,
}

/// A language for drawings.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Format {
    /// Graphviz
    Dot,
    /// Mermaid, as GitHub and GitLab draw it
    Mermaid,
}

/// Options of `devices`.
#[derive(Args, Debug)]
pub(super) struct DevicesOptions {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| format!("{error}; write e.g. 500ms, 10s or 1h"))?;
    if duration.is_zero() { Err("a run needs more than no time".to_owned()) } else { Ok(duration) }
}
