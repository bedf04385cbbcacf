//! What a trace has found, with the names of places and lcores.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::journey::{Between, Part};
use super::tally::{Kept, KeptTurn, Tally, Times};
use super::timeline::Doing;
use crate::protocol::TraceHead;

/// What a trace has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// From the first event to the last.
    pub elapsed_ns: u64,
    /// Recorded was one millisecond in this many, and one as an lcore was late; `None`: everything.
    pub one_in: Option<NonZeroU32>,
    /// Events that came.
    pub events: u64,
    /// By lcore: turns that were lost, since more was recorded than could be taken.
    pub lost_turns: BTreeMap<String, u64>,
    /// Packets that are wanted and came to their ends.
    pub packets: u64,
    /// Packets that were seen from somewhere in the middle on, and are counted nowhere else.
    pub partial: u64,
    /// Packets that were still under way as the trace ended, and are counted nowhere else.
    pub under_way: u64,
    /// The ways that packets took, the most frequent first.
    pub paths: Vec<PathSummary>,
    /// The time of the packets by what they did, the most first.
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
    /// Its places, in order; none: of all ways beyond those that are told apart.
    pub path: Vec<String>,
    /// How it ended: `posted`, `dropped`, `ends there` or `not seen again`.
    pub ended: Cow<'static, str>,
    /// How many packets took it.
    pub packets: u64,
    /// How long they took, with what they waited before, at most.
    pub mean_ns: u64,
    /// The same of the slowest.
    pub max_ns: u64,
}

/// What packets did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepSummary {
    /// What: `stage.NAME`, `ring.NAME`, `to NAME` for the wait within an lcore for a place, or
    /// `before` for what they waited at most for their lcore to look.
    pub step: String,
    /// How many did.
    pub packets: u64,
    /// How long that took.
    pub mean_ns: u64,
    /// The same of the slowest.
    pub max_ns: u64,
    /// Its share of the time of all packets.
    pub share: f64,
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacketSummary {
    /// When it came, by the run's clock.
    pub at_ns: u64,
    /// From its first step to its last.
    pub took_ns: u64,
    /// What it had waited before, at most, for its lcore to look.
    pub waited_ns: u64,
    /// Its way.
    pub path: Vec<String>,
    /// How that ended.
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
    /// From when, since the packet came; negative before.
    pub from_ns: i64,
    /// How long it took.
    pub took_ns: u64,
    /// What else the lcore did meanwhile, the longest first.
    pub meanwhile: Vec<Meanwhile>,
}

/// What an lcore did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meanwhile {
    /// `stage.NAME`, `asleep` or `stolen`.
    pub did: String,
    /// For how long.
    pub ns: u64,
}

/// A turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnSummary {
    /// Of which lcore.
    pub lcore: String,
    /// When it began, by the run's clock.
    pub at_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// What was done in it, the longest first.
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
