//! The results of a trace, with the names of places and lcores.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::journey::{Between, Part};
use super::tally::{Kept, KeptTurn, Tally, Times};
use super::timeline::Doing;
use crate::protocol::TraceHead;

/// The results of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The time from the first event to the last.
    pub elapsed_ns: u64,
    /// One millisecond in this many was recorded, and one whenever an lcore was late; `None` for
    /// everything.
    pub one_in: Option<NonZeroU32>,
    /// The number of events received.
    pub events: u64,
    /// By lcore: turns lost because more was recorded than could be taken.
    pub lost_turns: BTreeMap<String, u64>,
    /// The number of wanted packets whose ways have ended.
    pub packets: u64,
    /// Packets first seen in the middle of their ways; they are counted nowhere else.
    pub partial: u64,
    /// Packets in flight at the end of the trace; they are counted nowhere else.
    pub under_way: u64,
    /// The ways that packets took, the most frequent first.
    pub paths: Vec<PathSummary>,
    /// The time of the packets by step, the longest first.
    pub steps: Vec<StepSummary>,
    /// The slowest packets, the slowest first.
    pub slowest: Vec<PacketSummary>,
    /// The longest turns, the longest first.
    pub turns: Vec<TurnSummary>,
    /// The first packets.
    pub first: Vec<PacketSummary>,
}

/// A way that packets took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathSummary {
    /// Its places, in order; empty for all ways beyond those counted apart.
    pub path: Vec<String>,
    /// Its end: `posted`, `dropped`, `ends there` or `not seen again`.
    pub ended: Cow<'static, str>,
    /// The number of packets that took it.
    pub packets: u64,
    /// Their mean time, with the most that they may have waited before.
    pub mean_ns: u64,
    /// The same for the slowest packet.
    pub max_ns: u64,
}

/// A step of packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepSummary {
    /// The step: `stage.NAME`, `ring.NAME`, `to NAME` for the wait within an lcore for a place, or
    /// `before` for the most that they may have waited for their lcore to look.
    pub step: String,
    /// The number of packets with it.
    pub packets: u64,
    /// The mean time that it took.
    pub mean_ns: u64,
    /// The same for the slowest packet.
    pub max_ns: u64,
    /// Its share of the time of all packets.
    pub share: f64,
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacketSummary {
    /// The time of its arrival, by the run's clock.
    pub at_ns: u64,
    /// The time from its first step to its last.
    pub took_ns: u64,
    /// The most that it may have waited before, for its lcore to look.
    pub waited_ns: u64,
    /// Its way.
    pub path: Vec<String>,
    /// The end of its way.
    pub ended: Cow<'static, str>,
    /// Further packets that came with it, went the same way, and took no longer.
    pub alike: u64,
    /// The parts of its time, in order.
    pub steps: Vec<PacketStep>,
}

/// A part of a packet's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacketStep {
    /// Like [`StepSummary::step`].
    pub step: String,
    /// The lcore that it was on, or that it waited for.
    pub lcore: String,
    /// The beginning, since the packet's arrival; negative before.
    pub from_ns: i64,
    /// Its length.
    pub took_ns: u64,
    /// Other activities of the lcore meanwhile, the longest first.
    pub meanwhile: Vec<Meanwhile>,
}

/// An activity of an lcore.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meanwhile {
    /// `stage.NAME`, `asleep` or `stolen`.
    pub did: String,
    /// Its time.
    pub ns: u64,
}

/// A turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnSummary {
    /// The name of its lcore.
    pub lcore: String,
    /// The time of its beginning, by the run's clock.
    pub at_ns: u64,
    /// Its length.
    pub took_ns: u64,
    /// The activities in it, the longest first.
    pub did: Vec<Meanwhile>,
}

struct Names<'a>(&'a TraceHead);

impl Names<'_> {
    fn place(&self, place: u16) -> String {
        self.0.places.get(usize::from(place)).map_or_else(|| format!("place {place}"), |place| place.name.clone())
    }

    fn lcore(&self, lcore: usize) -> String {
        self.0.lcores.get(lcore).cloned().unwrap_or_default()
    }

    fn path(&self, path: &[u16]) -> Vec<String> {
        path.iter().map(|place| self.place(*place)).collect()
    }

    fn step(&self, between: Between) -> String {
        match between {
            Between::Before => "before".to_owned(),
            Between::InStage(place) | Between::InRing(place) => self.place(place),
            Between::For(place) => format!("to {}", self.place(place)),
        }
    }

    fn doing(&self, doing: Doing) -> String {
        match doing {
            Doing::Turn => "turn".to_owned(),
            Doing::Process { place, .. } | Doing::Poll { place } => self.place(place),
            Doing::Asleep { .. } => "asleep".to_owned(),
            Doing::Stolen => "stolen".to_owned(),
        }
    }

    fn did(&self, did: &[(Doing, u64)]) -> Vec<Meanwhile> {
        did.iter().map(|(doing, ns)| Meanwhile { did: self.doing(*doing), ns: *ns }).collect()
    }

    fn packet(&self, kept: &Kept) -> PacketSummary {
        let journey = &kept.journey;
        let step = |(part, did): &(Part, Vec<(Doing, u64)>)| PacketStep {
            step: self.step(part.between),
            lcore: self.lcore(part.lcore.into()),
            from_ns: part.from_ns as i64 - journey.from_ns() as i64,
            took_ns: part.to_ns.saturating_sub(part.from_ns),
            meanwhile: self.did(did),
        };
        PacketSummary {
            at_ns: journey.from_ns(),
            took_ns: journey.took_ns(),
            waited_ns: journey.waited_ns,
            path: self.path(&journey.path()),
            ended: journey.ending.word().into(),
            alike: kept.alike,
            steps: kept.parts.iter().map(step).collect(),
        }
    }

    fn turn(&self, turn: &KeptTurn) -> TurnSummary {
        TurnSummary {
            lcore: self.lcore(turn.lcore),
            at_ns: turn.slice.from_ns,
            took_ns: turn.slice.took_ns(),
            did: self.did(&turn.did),
        }
    }
}

fn path_of(path: Vec<String>, ended: &'static str, times: &Times) -> PathSummary {
    let (mean_ns, max_ns) = (mean(times), times.max_ns);
    PathSummary { path, ended: ended.into(), packets: times.packets, mean_ns, max_ns }
}

fn mean(times: &Times) -> u64 {
    times.sum_ns.checked_div(times.packets).unwrap_or(0)
}

pub(super) fn of(head: &TraceHead, tally: &Tally, elapsed_ns: u64) -> Summary {
    let names = Names(head);
    let mut paths: Vec<PathSummary> =
        tally.paths.iter().map(|((path, ending), times)| path_of(names.path(path), ending.word(), times)).collect();
    paths.sort_by(|one, other| other.packets.cmp(&one.packets).then_with(|| one.path.cmp(&other.path)));
    if tally.other_paths.packets > 0 {
        paths.push(path_of(Vec::new(), "", &tally.other_paths));
    }
    let whole_ns: u64 = tally.parts.values().map(|times| times.sum_ns).sum();
    let step = |(between, times): (&Between, &Times)| StepSummary {
        step: names.step(*between),
        packets: times.packets,
        mean_ns: mean(times),
        max_ns: times.max_ns,
        share: if whole_ns == 0 { 0.0 } else { times.sum_ns as f64 / whole_ns as f64 },
    };
    let mut steps: Vec<StepSummary> = tally.parts.iter().map(step).collect();
    steps.sort_by(|one, other| other.share.total_cmp(&one.share).then_with(|| one.step.cmp(&other.step)));
    let lost = |(lcore, name)| (name, tally.lost.get(&lcore).copied().unwrap_or(0));
    Summary {
        elapsed_ns,
        one_in: head.one_in,
        events: tally.events,
        lost_turns: head.lcores.iter().cloned().enumerate().map(lost).collect(),
        packets: tally.packets,
        partial: tally.partial,
        under_way: tally.under_way,
        paths,
        steps,
        slowest: tally.slowest.iter().map(|kept| names.packet(kept)).collect(),
        turns: tally.turns.iter().map(|turn| names.turn(turn)).collect(),
        first: tally.first.iter().map(|kept| names.packet(kept)).collect(),
    }
}
