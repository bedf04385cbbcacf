//! The arguments of `trace`.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use verbline_operate::{FilterAsk, TraceAsk};

use super::args_capture::filter;
use super::times::duration;

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
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    length: Option<Duration>,
    /// Only packets that take longer, with what they waited before: e.g. 200us, 5ms
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) above: Option<Duration>,
    /// Only packets with these bytes at this offset, as they come, or leave a stage, e.g. 4=0800
    #[arg(long, value_name = "OFFSET=HEX", value_parser = filter)]
    filter: Option<FilterAsk>,
    /// Trace until Ctrl-C, and show only what came in the last time, e.g. 1m
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with_all = ["packets", "chrome"])]
    pub(super) last: Option<Duration>,
    /// Show what was found so far again and again, e.g. every 10s
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "last")]
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
