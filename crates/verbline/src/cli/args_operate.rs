//! The arguments of the verbs that observe a run: its name, the interval, the output.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use verbline_operate::SocketChoice;

use super::times::duration;

/// Where `run` listens for the verbs below.
#[derive(Args, Debug)]
pub(super) struct SocketOptions {
    /// Listen for `stats` and `top` here, and not where `ps` finds it
    #[arg(long, value_name = "PATH", conflicts_with = "no_socket")]
    socket: Option<PathBuf>,
    /// Don't listen: `ps`, `stats` and `top` won't see this run
    #[arg(long)]
    no_socket: bool,
}

impl SocketOptions {
    pub(super) fn choice(&self) -> SocketChoice {
        match (&self.socket, self.no_socket) {
            (Some(path), _) => SocketChoice::At(path.clone()),
            (None, true) => SocketChoice::None,
            (None, false) => SocketChoice::Folder,
        }
    }
}

/// Options of `ps`.
#[derive(Args, Debug)]
pub(super) struct PsOptions {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of `stats`.
#[derive(Args, Debug)]
pub(super) struct StatsOptions {
    /// The run: its name, its process, or the path of its socket; may be left out if there is one
    pub(super) name: Option<String>,
    /// Print again and again, each time for the time since the last; without it once, for the time
    /// since the start
    #[arg(long, value_name = "DURATION", value_parser = period)]
    pub(super) every: Option<Duration>,
    /// End after this number of times
    #[arg(long, value_name = "N", requires = "every", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
    /// Print what was counted in each time, and not how much that is a second
    #[arg(long, requires = "every")]
    pub(super) deltas: bool,
    /// Print one JSON object a line: the report, or with --deltas the difference of two
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of `log`.
#[derive(Args, Debug)]
pub(super) struct LogOptions {
    /// The run: its name, its process, or the path of its socket; may be left out if there is one
    pub(super) name: Option<String>,
    /// What it logs from now on: a level, or levels by part, e.g. debug or
    /// warn,verbline_engine=debug
    #[arg(long, value_name = "FILTER")]
    pub(super) set: Option<String>,
    /// What a person writes who leaves `--set` out, to be told of it
    #[arg(hide = true, value_name = "FILTER", value_parser = filter_alone)]
    _filter: Option<Infallible>,
}

fn filter_alone(filter: &str) -> Result<Infallible, String> {
    Err(format!("a run's filter is changed by --set: --set {filter}"))
}

/// Options of `top`.
#[derive(Args, Debug)]
pub(super) struct TopOptions {
    /// The run: its name, its process, or the path of its socket; may be left out if there is one
    pub(super) name: Option<String>,
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = period)]
    pub(super) every: Duration,
}

/// A run answers fifty times a second at most.
const SHORTEST: Duration = Duration::from_millis(20);

fn period(text: &str) -> Result<Duration, String> {
    let period = duration(text).map_err(|error| format!("{error}; write seconds, or e.g. 500ms or 10s"))?;
    match period < SHORTEST {
        true => Err(format!("a run answers every {SHORTEST:?} at most")),
        false => Ok(period),
    }
}
