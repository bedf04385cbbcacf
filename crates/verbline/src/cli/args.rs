//! The declarations of the arguments, with the text of `--help`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use super::args_operate::{
    CaptureOptions, LogOptions, PsOptions, SocketOptions, StatsOptions, TopOptions, TraceOptions,
};
use super::times::duration;

const EXIT_CODES: &str = "\
Exit codes:
  0    the command did what it should
  1    the run failed or could not start, or something could not be written
  2    the plan or the command line is wrong
  130  a second Ctrl-C or SIGTERM aborted a run";

/// The whole command line of the app of this name. `keys` can explain the given `tables`.
pub(super) fn command(name: &'static str, about: &'static str, tables: Vec<&'static str>) -> clap::Command {
    let run = format!(
        "Ctrl-C, SIGTERM and SIGHUP end a run: it drains, reports and exits with 0; a\n\
         second Ctrl-C or SIGTERM aborts. SIGUSR1 has the plan read again, for what\n\
         ports and the app take of it meanwhile. What has not ended ten seconds behind\n\
         the drain is named, and the command exits with 1.\n\nExamples:\n  \
         {name} run plan.toml --for 3s\n  \
         {name} run plan.toml --set lcore.main.cpu=2 --json > report.json\n\n{EXIT_CODES}"
    );
    let check = format!(
        "The faults of the file are reported in one go, a hundred of them, each with its\n\
         line and column. Once there is none, each stage is made as for a run and judges\n\
         what only it can: its params, a file that it reads. No device is opened.\n\n{EXIT_CODES}"
    );
    let graph = format!(
        "A plan that can't run is drawn too, with what is wrong in red; the faults go to\n\
         standard error.\n\nExamples:\n  \
         {name} graph plan.toml | dot -Tsvg > plan.svg\n  \
         {name} graph plan.toml --format mermaid\n\n{EXIT_CODES}"
    );
    let stats = format!(
        "Reads the counters of a run without stopping or slowing it.\n\nExamples:\n  \
         {name} stats --every 1s\n  \
         {name} stats tick-to-trade --every 5s --deltas --json >> day.jsonl\n\n{EXIT_CODES}"
    );
    let log = format!(
        "The run goes on. What it logs, it logs where it did before: its standard\n\
         error, or the journal. `trace` and `debug` of all parts cost lcores time.\n\nExamples:\n  \
         {name} log\n  \
         {name} log kv --set warn,verbline_engine::connection=debug\n\n{EXIT_CODES}"
    );
    let capture = format!(
        "A message is one frame, made up from its queue pair: Ethernet, IP, UDP to port\n\
         4791, BTH. One-sided operations are not captured. The run waits for nobody: what\n\
         comes faster than it can be written is lost to the capture, and counted.\n\nExamples:\n  \
         {name} capture -w run.pcapng --for 10s\n  \
         {name} capture --port out -w - --for 1s | tshark -r -\n\n{EXIT_CODES}"
    );
    let trace = format!(
        "Follows each packet from where it comes into the graph to where it ends, counts\n\
         the ways, and says what the lcores did while the slowest packets waited. The run\n\
         waits for nobody: turns that come faster than they can be taken are lost to the\n\
         trace, and counted.\n\nExamples:\n  \
         {name} trace --at stage.book\n  \
         {name} trace --above 2ms --for 1m\n  \
         {name} trace --last 1m --one-in 32\n  \
         {name} trace --kept\n  \
         {name} trace --chrome trace.json\n\n{EXIT_CODES}"
    );
    Arguments::command()
        .name(name)
        .bin_name(name)
        .about(about)
        .mut_subcommand("run", |command| command.after_help(run))
        .mut_subcommand("check", |command| command.after_help(check))
        .mut_subcommand("graph", |command| command.after_help(graph))
        .mut_subcommand("keys", |command| {
            let names = PossibleValuesParser::new(tables);
            command.after_help(EXIT_CODES).mut_arg("table", |table| table.value_parser(names))
        })
        .mut_subcommand("devices", |command| command.after_help(EXIT_CODES))
        .mut_subcommand("ps", |command| command.after_help(EXIT_CODES))
        .mut_subcommand("stats", |command| command.after_help(stats))
        .mut_subcommand("top", |command| command.after_help(EXIT_CODES))
        .mut_subcommand("log", |command| command.after_help(log))
        .mut_subcommand("capture", |command| command.after_help(capture))
        .mut_subcommand("trace", |command| command.after_help(trace))
}

/// The whole command line.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 80, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a plan, show a live line, and report at the end
    Run(RunOptions),
    /// Check a plan without running it
    Check(CheckOptions),
    /// Draw a plan: lcores as clusters, packets as arrows
    Graph(GraphOptions),
    /// Explain the keys of a plan: types, units, defaults, bounds
    Keys(KeysOptions),
    /// List the RDMA devices that a plan can name, kernel and software
    Devices(DevicesOptions),
    /// List what runs: every run of this user that listens, whatever its app
    Ps(PsOptions),
    /// Show what a run does: lcores, stages, ports, rings, pools, drops
    Stats(StatsOptions),
    /// Watch a run on the whole screen, with its last minutes
    Top(TopOptions),
    /// Show or change how much a run logs
    Log(LogOptions),
    /// Write what passes a run's ports to a file for tshark and Wireshark
    Capture(CaptureOptions),
    /// Show which ways packets take, how long each step does, and why some are slow
    Trace(TraceOptions),
}

/// A plan, and what changes in it.
#[derive(Args, Debug)]
pub(super) struct PlanOptions {
    /// The plan's TOML file, or `-` for standard input
    pub(super) plan: PathBuf,
    /// Override a key of the plan, e.g. lcore.main.cpu=3; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) sets: Vec<String>,
}

/// Options of `run`.
#[derive(Args, Debug)]
pub(super) struct RunOptions {
    #[command(flatten)]
    pub(super) plan: PlanOptions,
    /// How long to run, once connected: seconds, or e.g. 500ms, 10s, 1h, or `forever`; a run ends
    /// earlier when all its sources are done
    #[arg(
        long = "for", value_name = "DURATION", default_value = FOREVER,
        value_parser = length, allow_hyphen_values = true
    )]
    pub(super) length: Length,
    /// Print one JSON report to standard output, and nothing else there
    #[arg(long)]
    pub(super) json: bool,
    /// Show nothing while it runs
    #[arg(long, short)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) socket: SocketOptions,
}

/// Options of `check`.
#[derive(Args, Debug)]
pub(super) struct CheckOptions {
    #[command(flatten)]
    pub(super) plan: PlanOptions,
    /// Print every sum that the plan is held against, with the lines that its terms come from
    #[arg(long)]
    pub(super) explain: bool,
    /// Print one JSON document to standard output
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

/// Options of `keys`.
#[derive(Args, Debug)]
pub(super) struct KeysOptions {
    /// Only the keys of this sort of table, this section of the app's, or the params of this kind
    pub(super) table: Option<String>,
    /// Print a JSON schema of this app's plans, for editors
    #[arg(long, conflicts_with = "table")]
    pub(super) schema: bool,
}

/// Options of `devices`.
#[derive(Args, Debug)]
pub(super) struct DevicesOptions {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The longest that a run lasts; `None`: until it is told to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Length(pub(super) Option<Duration>);

const FOREVER: &str = "forever";

const ADVICE: &str = "write seconds, or e.g. 500ms, 10s or 1h, or `forever`";

fn length(text: &str) -> Result<Length, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        FOREVER | "inf" | "infinite" | "infinity" => Ok(Length(None)),
        text => match duration(text) {
            Ok(none) if none.is_zero() => {
                Err(format!("a run of no time does nothing, and `check` is what proves a plan; {ADVICE}"))
            }
            Ok(length) => Ok(Length(Some(length))),
            Err(error) => Err(format!("{error}; {ADVICE}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declaration_is_sound() {
        command("app", "what it is", vec!["port"]).debug_assert();
    }

    /// Regression: it was taken for an option, and the advice was to write `-- -1`.
    #[test]
    fn a_time_below_zero_is_a_wrong_time() {
        let verbs = ["run p --for -1s", "stats --every -1s", "top --every -1s", "capture -w f --for -1s"];
        let trace = ["trace --for -1s", "trace --above -1s", "trace --last -1s", "trace --last 1s --every -1s"];
        for words in verbs.into_iter().chain(trace) {
            let words = ["app"].into_iter().chain(words.split(' '));
            let refused = command("app", "what it is", vec!["port"]).try_get_matches_from(words).expect_err("a time");
            let said = refused.to_string();
            assert!(said.contains("invalid value '-1s' for"), "{said}");
        }
    }

    #[test]
    fn a_time_is_seconds_or_has_a_unit_or_has_no_end() {
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1m 500ms"), Ok(Duration::from_millis(60_500)));
        assert_eq!(length("1H"), Ok(Length(Some(Duration::from_secs(3600)))));
        for endless in ["forever", "inf", "Infinity", " infinite "] {
            assert_eq!(length(endless), Ok(Length(None)), "{endless}");
        }
        for wrong in ["0", "0s", "-1", "nan", "-inf", "1e300", "ten", "", "10 parsecs"] {
            let message = length(wrong).expect_err(wrong);
            assert!(message.contains("500ms, 10s or 1h"), "{wrong}: {message}");
        }
    }
}
