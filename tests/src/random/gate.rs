//! The acceptor of a random plan's doors. It knows of each accepted connection whether it is over.
//!
//! Its tag names the places at which the connection may be: the one that it chose, or those that
//! the plan's `placement` may choose. The visitor is told the tag with the answer and marks its
//! packets with it, so that a desk sees whether both ends were told the same.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use serde::Deserialize;
use verbline::engine::{Acceptor, Answer, ConnectionRequest, ConnectionsReport, Report};
use verbline::prelude::*;

use super::marks::{doors, is_hello};

/// One answer in this many names a place that is not there.
const NOWHERE_ONE_IN: u32 = 16;

/// A gate's tag of a connection: its number, and a bit for each place at which it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tag {
    number: u32,
    places: u32,
}

impl Tag {
    pub(super) fn of(tag: u64) -> Tag {
        Tag { number: (tag >> 32) as u32, places: tag as u32 }
    }

    fn value(self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.places)
    }

    /// The tag in an answer's private data, which may be followed by zeros. `None`: it has none.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Tag> {
        let (tag, rest) = bytes.split_first_chunk()?;
        let tag = u64::from_le_bytes(*tag);
        (tag > 0 && rest.iter().all(|byte| *byte == 0)).then(|| Tag::of(tag))
    }

    pub(super) fn allows(self, place: usize) -> bool {
        self.number > 0 && self.places >> place & 1 == 1
    }

    /// The mark on its packets.
    pub(super) fn mark(self) -> u8 {
        self.number as u8
    }
}

/// The counts of a run's gate.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<Mutex<Log>>);

#[derive(Debug, Default)]
struct Log {
    /// Its decisions, and among them the rejections and those without a place.
    asked: u64,
    rejected: u64,
    nowhere: u64,
    /// Tags of accepted connections that are not over.
    inside: BTreeSet<u64>,
    faults: Vec<String>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Differences between the report and the gate's counts.
    pub(super) fn faults(&self, report: &Report) -> Vec<String> {
        let log = self.lock();
        let mut faults = log.faults.clone();
        let all: Vec<ConnectionsReport> =
            doors().filter_map(|(door, _)| report.port(&door)?.connections.clone()).collect();
        let Some(listens) = all.first().filter(|_| log.asked > 0) else { return faults };
        let full: u64 = all.iter().map(|told| told.rejected_full).sum();
        let came: u64 = all.iter().map(|told| told.opened + told.unanswered).sum();
        let wrong = [
            ("rejected_acceptor", listens.rejected_acceptor, log.rejected + log.nowhere),
            ("requests, asked or full at once", listens.requests.max(log.asked), listens.requests),
            ("not asked, and full", listens.requests.saturating_sub(log.asked).min(full), listens.requests - log.asked),
        ];
        let wrong = wrong.into_iter().filter(|(_, left, right)| left != right);
        faults.extend(wrong.map(|(what, left, right)| format!("gate: {what}: {left} and {right}")));
        let let_in = log.asked - log.rejected - log.nowhere;
        if came > let_in || let_in > came + full {
            faults.push(format!("gate: {let_in} were let in, {came} have come, {full} found no place"));
        }
        let open: u64 = all.iter().map(|told| told.open).sum();
        if (log.inside.len() as u64) < open {
            faults.push(format!("gate: {} are inside, and {open} connections are open", log.inside.len()));
        }
        faults
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    seed: u64,
    most: usize,
    reject_percent: u8,
    says_place: bool,
    in_turn: bool,
    is_steady: bool,
}

struct Keeper {
    params: Params,
    rng: Rng,
    gate: Gate,
    number: u32,
    /// The place whose turn it is.
    turn: usize,
}

pub(super) fn register(registry: &mut Registry, gate: &Gate) {
    let gate = gate.clone();
    registry.acceptor("gate", move |context| {
        let params: Params = context.params()?;
        let rng = Rng::with_seed(params.seed);
        Ok(Box::new(Keeper { params, rng, gate: gate.clone(), number: 0, turn: 0 }))
    });
}

impl Keeper {
    /// The places at which the plan may put a connection.
    fn placed(&mut self, request: &ConnectionRequest<'_>) -> u32 {
        let places = request.places;
        // Other connections end meanwhile, on other threads.
        if !self.params.is_steady {
            return u32::MAX;
        }
        let has_room = |place: &usize| places[*place].connections < places[*place].connections_max;
        let open = (0..places.len()).filter(has_room);
        if self.params.in_turn {
            let mut turns = (self.turn..self.turn + places.len()).map(|turn| turn % places.len()).filter(has_room);
            return turns.next().map_or(0, |place| {
                self.turn = place + 1;
                1 << place
            });
        }
        let fewest = open.clone().map(|place| places[place].connections).min();
        open.filter(|place| Some(places[*place].connections) == fewest).fold(0, |all, place| all | 1 << place)
    }

    /// The fault of a request.
    fn fault(&self, request: &ConnectionRequest<'_>, inside: usize) -> Option<String> {
        let names = request.places.iter().map(|place| place.port.to_owned());
        if !names.eq(doors().map(|(door, _)| door).take(request.places.len())) {
            return Some(format!("its places are {:?}", request.places));
        }
        if request.places.iter().any(|place| place.connections > place.connections_max) {
            return Some(format!("a place has more than it may have: {:?}", request.places));
        }
        if request.places.iter().all(|place| place.connections == place.connections_max) {
            return Some(format!("all places are taken, and it is asked: {:?}", request.places));
        }
        if !is_hello(request.private_data) {
            return Some(format!("a visitor said {:?}", request.private_data));
        }
        if self.params.is_steady && request.connections() != inside {
            return Some(format!("{inside} are inside, and the places say {:?}", request.places));
        }
        None
    }
}

impl Acceptor for Keeper {
    fn decide(&mut self, request: &ConnectionRequest<'_>) -> Answer {
        let gate = self.gate.clone();
        let mut log = gate.lock();
        log.asked += 1;
        let fault = self.fault(request, log.inside.len());
        log.faults.extend(fault);
        if log.inside.len() >= self.params.most || self.rng.u8(..100) < self.params.reject_percent {
            log.rejected += 1;
            return Answer::reject();
        }
        let wish = self.params.says_place.then(|| match self.rng.u32(..NOWHERE_ONE_IN) {
            0 => usize::MAX,
            _ => self.rng.usize(..request.places.len()),
        });
        let places = wish.map_or_else(|| self.placed(request), |place| 1_u32.checked_shl(place as u32).unwrap_or(0));
        log.nowhere += u64::from(wish == Some(usize::MAX));
        self.number += 1;
        let tag = Tag { number: self.number, places }.value();
        log.inside.insert(tag);
        let answer = Answer::accept().tag(tag).private_data(&tag.to_le_bytes());
        let answer = answer.expect("there is room for a tag");
        wish.map_or(answer.clone(), |place| answer.place(place))
    }

    fn ended(&mut self, tag: u64) {
        let mut log = self.gate.lock();
        if !log.inside.remove(&tag) {
            log.faults.push(format!("a connection that it never let in, or that was over, has ended: {tag:#x}"));
        }
    }
}
