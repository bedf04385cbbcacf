//! The arguments of the verbs that observe a run: its name, the interval, the output.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use verbline_operate::{CaptureAsk, FilterAsk, SocketChoice, TraceAsk};

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
    #[arg(long, value_name = "DURATION", value_parser = period, allow_hyphen_values = true)]
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
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = period, allow_hyphen_values = true)]
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

/// Options of `capture`.
#[derive(Args, Debug)]
pub(super) struct CaptureOptions {
    /// The run: its name, its process, or the path of its socket; may be left out if there is one
    pub(super) name: Option<String>,
    /// Capture at this place; may be repeated; without it at every port: port.NAME, stage.NAME or
    /// stage.NAME.OUTPUT (what it sends), ring.NAME or injector.NAME (what is taken from it)
    #[arg(long, value_name = "PLACE")]
    at: Vec<String>,
    /// The same as --at port.PORT
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<String>,
    /// The file, which must not be there yet; `-` for standard output
    #[arg(long, short, value_name = "FILE")]
    pub(super) write: PathBuf,
    /// Write over a file that is there
    #[arg(long)]
    pub(super) force: bool,
    /// Keep only this many bytes of each packet
    #[arg(long, short, value_name = "BYTES", default_value_t = CaptureAsk::SNAP_BYTES)]
    snap: usize,
    /// End after this number of packets
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
    /// End after this time: seconds, or e.g. 500ms, 10s, 1h
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(super) length: Option<Duration>,
    /// Keep only packets with these bytes at this offset, e.g. 4=0800
    #[arg(long, value_name = "OFFSET=HEX", value_parser = filter)]
    filter: Option<FilterAsk>,
    /// Write packets of ports as they are too, without frames around them, as link type USER0
    #[arg(long)]
    raw: bool,
    /// Begin another file, FILE with a number, when one has this size: bytes, or e.g. 64MiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) file_size: Option<u64>,
    /// Keep only this many files, the latest
    #[arg(long, value_name = "N", requires = "file_size", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) files: Option<u64>,
    /// Packets of an lcore that may wait to be written; what comes while as many wait is lost
    #[arg(long, value_name = "PACKETS")]
    depth: Option<usize>,
}

impl CaptureOptions {
    pub(super) fn ask(&self) -> CaptureAsk {
        CaptureAsk {
            at: self.at.iter().cloned().chain(self.ports.iter().map(|port| format!("port.{port}"))).collect(),
            snap_bytes: Some(self.snap),
            depth_packets: self.depth,
            raw: self.raw,
            filter: self.filter.clone(),
        }
    }
}

/// `OFFSET=HEX`.
fn filter(text: &str) -> Result<FilterAsk, String> {
    let parts = text.split_once('=').and_then(|(offset, hex)| Some((offset.parse().ok()?, hex)));
    match parts {
        Some((offset, hex)) => Ok(FilterAsk { offset, hex: hex.to_owned() }),
        None => Err("write an offset and bytes, e.g. 4=0800".to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "write bytes, or e.g. 512KiB or 64MiB".to_owned())
}

/// The number of packets that ends a trace by default, and its longest time.
const PACKETS: u64 = 1000;
const LENGTH: Duration = Duration::from_secs(10);
/// The number of slowest packets shown.
const SLOWEST: u16 = 3;
/// The length of a trace that is written to a file.
const CHROME_LENGTH: Duration = Duration::from_secs(1);

/// Options of `trace`.
#[derive(Args, Debug)]
pub(super) struct TraceOptions {
    /// The run: its name, its process, or the path of its socket; may be left out if there is one
    pub(super) name: Option<String>,
    /// Only packets that come by this place: stage.NAME, port.NAME, ring.NAME or injector.NAME
    #[arg(long, value_name = "PLACE")]
    pub(super) at: Option<String>,
    /// End after this number of packets [default: 1000, unless --for or --chrome is given]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    packets: Option<u64>,
    /// End after this time: seconds, or e.g. 500ms, 10s [default: 10s; with --chrome 1s]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    length: Option<Duration>,
    /// Only packets that take longer, with what they waited before: e.g. 200us, 5ms
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(super) above: Option<Duration>,
    /// Only packets with these bytes at this offset, as they come, or leave a stage, e.g. 4=0800
    #[arg(long, value_name = "OFFSET=HEX", value_parser = filter)]
    filter: Option<FilterAsk>,
    /// Trace until Ctrl-C, and show only what came in the last time, e.g. 1m
    #[arg(
        long, value_name = "DURATION",
        value_parser = duration, allow_hyphen_values = true, conflicts_with_all = ["packets", "chrome"]
    )]
    pub(super) last: Option<Duration>,
    /// Show what was found so far again and again, e.g. every 10s
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, requires = "last")]
    pub(super) every: Option<Duration>,
    /// Record one millisecond in N, and one as an lcore comes late to look for work: costs as much
    /// less [default: record everything]
    #[arg(long, value_name = "N")]
    one_in: Option<NonZeroU32>,
    /// Show this many of the slowest packets and of the longest turns [default: 3; with --kept all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1000))]
    slowest: Option<u16>,
    /// Trace nothing: show at once what the run has kept of its last minute, by its plan's [trace]
    #[arg(long, conflicts_with_all = ["at", "packets", "length", "above", "filter", "last", "one_in", "chrome"])]
    pub(super) kept: bool,
    /// Print one JSON document, which has each of the first thousand packets too
    #[arg(long)]
    pub(super) json: bool,
    /// Write what Perfetto and Chrome open: lcores as tracks, turns, stages, sleeps, packets
    #[arg(long, value_name = "FILE")]
    pub(super) chrome: Option<PathBuf>,
    /// Write over a file that is there
    #[arg(long, requires = "chrome")]
    pub(super) force: bool,
}

impl TraceOptions {
    pub(super) fn ask(&self) -> TraceAsk {
        TraceAsk { filter: self.filter.clone(), one_in: self.one_in }
    }

    /// The number of slowest packets to show.
    pub(super) fn slowest(&self) -> usize {
        match (self.slowest, self.kept) {
            (Some(slowest), _) => slowest.into(),
            (None, true) => usize::MAX,
            (None, false) => SLOWEST.into(),
        }
    }

    /// The number of packets that ends the trace.
    pub(super) fn packets(&self) -> Option<u64> {
        let is_open = self.length.is_none() && self.chrome.is_none() && self.last.is_none();
        self.packets.or(is_open.then_some(PACKETS))
    }

    /// The longest time of the trace; `None`: until a signal.
    pub(super) fn length(&self) -> Option<Duration> {
        let short = if self.chrome.is_some() { CHROME_LENGTH } else { LENGTH };
        self.length.or((self.last.is_none()).then_some(short))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_filters_are_read_or_said_to_be_none() {
        assert_eq!(["1", "2KiB", "3 MiB", "1GiB"].map(|text| size(text).unwrap()), [1, 2048, 3 << 20, 1 << 30]);
        for text in ["", "0", "-1", "1.5MiB", "1TiB", "99999999999GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(filter("4=0800").unwrap(), FilterAsk { offset: 4, hex: "0800".into() });
        assert!(filter("0800").is_err() && filter("x=08").is_err());
    }
}
