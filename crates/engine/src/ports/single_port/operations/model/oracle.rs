//! The expected results of a port that carries out operations, from its input and its device's
//! doings.

use std::collections::VecDeque;

use verbline_verbs::Status;

use super::Shape;
use verbline_plan::OperationKind;

use crate::operations::declined::DeclineReason;

/// An operation that a stage gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Given {
    pub(super) tag: u64,
    pub(super) user: usize,
    pub(super) kind: OperationKind,
    pub(super) bytes: usize,
    pub(super) has_packet: bool,
    pub(super) fenced: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outcome {
    Completed,
    Status(Status),
    PortDown,
    Refused,
}

/// A number of bytes that only the device knows.
pub(super) const UNKNOWN: usize = usize::MAX;

/// An operation that a stage gets back.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Taken {
    pub(super) tag: u64,
    pub(super) kind: OperationKind,
    pub(super) bytes: usize,
    /// The length of its packet.
    pub(super) len: Option<usize>,
    pub(super) outcome: Outcome,
}

/// A waiting or posted send or operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    Send(usize),
    Operation(Given),
}

impl Item {
    fn bytes(self) -> usize {
        match self {
            Item::Send(bytes) => bytes,
            Item::Operation(given) => given.bytes,
        }
    }

    /// Returns the bytes that a work request lists.
    fn listed_bytes(self) -> usize {
        match self {
            // A bind moves no bytes.
            Item::Operation(given) if given.kind == OperationKind::Bind => 0,
            Item::Operation(given) if given.kind == OperationKind::Sign => UNKNOWN,
            other => other.bytes(),
        }
    }

    fn is(self, kind: OperationKind) -> bool {
        matches!(self, Item::Operation(given) if given.kind == kind)
    }

    fn is_fenced(self) -> bool {
        matches!(self, Item::Operation(given) if given.fenced)
    }

    fn is_send(self) -> bool {
        matches!(self, Item::Send(_))
    }
}

pub(super) struct Oracle {
    pub(super) shape: Shape,
    pub(super) up: bool,
    /// A device that takes no more is full; otherwise it has failed.
    pub(super) errno_is_full: bool,
    /// Stages have been told that the port is down.
    told_down: bool,
    /// Items on the way to the queue pair, ahead of those that wait.
    listed: VecDeque<Item>,
    waiting: VecDeque<Item>,
    /// Items that the queue pair has, and that no polled completion covers.
    pub(super) posted: VecDeque<Item>,
    /// The lengths of the items posted in the last turn, and whether each was fenced.
    pub(super) posted_now: Vec<(usize, bool)>,
    /// Items ended in the device since its last completion; and completions not polled yet: the
    /// number of items each covers, and the status of the last of them.
    quietly_ended: usize,
    coming: VecDeque<(usize, Status)>,
    done: [Vec<Taken>; 2],
    pub(super) under_way: [usize; 2],
    pub(super) declined: u64,
    /// Drops: full, down, failed.
    pub(super) drops: [u64; 3],
    /// Packets, bytes, and calls in which the device took something.
    pub(super) sent: [u64; 3],
    /// Packets that wait to be sent as of the last turn, and packets that are out.
    pub(super) gauges: [u64; 2],
    /// By kind: posted, completed, failed, bytes.
    pub(super) kinds: [[u64; 4]; OperationKind::ALL.len()],
}

impl Oracle {
    pub(in crate::ports) fn new(shape: Shape) -> Oracle {
        Oracle {
            shape,
            up: true,
            errno_is_full: true,
            told_down: false,
            listed: VecDeque::new(),
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
            posted_now: Vec::new(),
            quietly_ended: 0,
            coming: VecDeque::new(),
            done: [Vec::new(), Vec::new()],
            under_way: [0; 2],
            declined: 0,
            drops: [0; 3],
            sent: [0; 3],
            gauges: [0; 2],
            kinds: [[0; 4]; OperationKind::ALL.len()],
        }
    }

    pub(in crate::ports) fn room(&self) -> usize {
        self.shape.ops_wr - self.under_way.iter().sum::<usize>()
    }

    pub(in crate::ports) fn is_settled(&self) -> bool {
        self.listed.is_empty() && self.waiting.is_empty()
    }

    pub(in crate::ports) fn send(&mut self, bytes: usize) {
        let waiting = self.waiting.iter().filter(|item| item.is_send()).count();
        if waiting == self.shape.room {
            self.drops[0] += 1;
        } else {
            self.waiting.push_back(Item::Send(bytes));
        }
    }

    /// Returns how many operations are taken, and why the next one was not, if it was asked for.
    pub(in crate::ports) fn give_each(&mut self, given: &[Given]) -> (usize, Option<DeclineReason>) {
        let asked = given.len().min(self.room());
        if asked > 0 && self.is_known_down() {
            self.declined += 1;
            return (0, Some(DeclineReason::PortDown));
        }
        given[..asked].iter().for_each(|given| self.enter(*given));
        (asked, None)
    }

    pub(in crate::ports) fn give_together(&mut self, given: &[Given]) -> Option<DeclineReason> {
        let why = match (self.is_known_down(), given.len() > self.room()) {
            (true, _) => DeclineReason::PortDown,
            (false, true) => DeclineReason::Full,
            (false, false) => {
                given.iter().for_each(|given| self.enter(*given));
                return None;
            }
        };
        self.declined += given.len() as u64;
        Some(why)
    }

    /// Whether a stage's operations are declined; a device's refusal is known in the next turn.
    fn is_known_down(&self) -> bool {
        !self.up && self.told_down
    }

    fn enter(&mut self, given: Given) {
        self.under_way[given.user] += 1;
        match self.waiting.is_empty() {
            true => self.listed.push_back(Item::Operation(given)),
            false => self.waiting.push_back(Item::Operation(given)),
        }
    }

    pub(in crate::ports) fn take(&mut self, user: usize) -> Vec<Taken> {
        let taken = std::mem::take(&mut self.done[user]);
        self.under_way[user] -= taken.len();
        taken
    }

    /// The device has ended its oldest item.
    pub(in crate::ports) fn ended(&mut self, signaled: bool, status: Status) {
        self.quietly_ended += 1;
        if signaled || !status.is_success() {
            self.coming.push_back((std::mem::take(&mut self.quietly_ended), status));
        }
    }

    /// This many completions were polled.
    pub(in crate::ports) fn hear(&mut self, found: usize) {
        for (covered, status) in self.coming.drain(..found).collect::<Vec<_>>() {
            for at in 0..covered {
                // The items before the last one were carried out.
                let status = if at + 1 == covered { status } else { Status::SUCCESS };
                let item = self.posted.pop_front().expect("posted");
                let outcome = if status.is_success() { Outcome::Completed } else { Outcome::Status(status) };
                match item {
                    Item::Operation(given) => self.finish(given, outcome),
                    Item::Send(_) if !status.is_success() => self.drops[2] += 1,
                    Item::Send(_) => {}
                }
                if !status.is_success() {
                    (self.up, self.told_down) = (false, true);
                }
            }
            self.gauges[1] = self.sends_out();
        }
    }

    /// Returns the number of sends that are posted, or about to be.
    fn sends_out(&self) -> u64 {
        self.posted.iter().chain(&self.listed).filter(|item| item.is_send()).count() as u64
    }

    fn finish(&mut self, given: Given, outcome: Outcome) {
        let Given { tag, user, kind, bytes, has_packet, .. } = given;
        let counts = &mut self.kinds[kind as usize];
        match outcome {
            Outcome::Completed => {
                counts[1] += 1;
                counts[3] += bytes as u64;
            }
            Outcome::Status(_) | Outcome::PortDown | Outcome::Refused => counts[2] += 1,
        }
        self.done[user].push(Taken { tag, kind, bytes, len: has_packet.then_some(bytes), outcome });
    }

    /// The port posts all it can to a device that takes `takes`. Returns whether it had work.
    pub(in crate::ports) fn work(&mut self, mut takes: usize) -> bool {
        self.posted_now.clear();
        if self.is_settled() {
            self.told_down |= !self.up;
            return false;
        }
        if !self.up {
            return self.give_back();
        }
        let (mut busy, mut refused) = (false, false);
        while !refused {
            self.list();
            if self.listed.is_empty() {
                break;
            }
            let room = self.queue_room();
            let early = self.signed_too_early();
            let count = self.listed.len().min(room).min(takes).min(early.unwrap_or(usize::MAX));
            for item in self.listed.drain(..count).collect::<Vec<_>>() {
                self.post(item);
            }
            self.sent[2] += u64::from(count > 0);
            busy |= count > 0;
            takes -= count;
            if self.listed.is_empty() {
                continue;
            }
            if early == Some(count) && self.queue_room() > 0 {
                let Some(Item::Operation(given)) = self.listed.pop_front() else { panic!("it signs") };
                self.finish(given, Outcome::Refused);
                busy = true;
                continue;
            }
            // The device refused the next item, or there is no place for it.
            refused = true;
            if self.queue_room() > 0 && takes == 0 && !self.errno_is_full {
                (self.up, self.told_down, busy) = (false, false, true);
            }
        }
        let waiting = self.listed.iter().chain(&self.waiting).filter(|item| item.is_send()).count();
        self.gauges = [waiting as u64, self.sends_out()];
        busy
    }

    /// Returns the first item of the list that signs while a response waits for the key's blocks.
    fn signed_too_early(&self) -> Option<usize> {
        let answered = |at: usize| {
            let before = self.posted.iter().chain(self.listed.iter().take(at));
            before.filter(|item| item.is(OperationKind::Respond)).count() > 0
        };
        (0..self.listed.len()).find(|at| self.listed[*at].is(OperationKind::Sign) && answered(*at))
    }

    fn queue_room(&self) -> usize {
        self.shape.tx_wr + self.shape.ops_wr - self.posted.len()
    }

    /// Lists as many items as the queue pair has room for; sends stop at their own bound.
    fn list(&mut self) {
        while self.listed.len() < self.queue_room() {
            let Some(next) = self.waiting.front() else { break };
            if next.is_send() && self.sends_out() as usize >= self.shape.tx_wr {
                break;
            }
            self.listed.extend(self.waiting.pop_front());
        }
    }

    fn post(&mut self, item: Item) {
        self.posted_now.push((item.listed_bytes(), item.is_fenced()));
        self.posted.push_back(item);
        match item {
            Item::Send(bytes) => {
                self.sent[0] += 1;
                self.sent[1] += bytes as u64;
            }
            Item::Operation(given) => self.kinds[given.kind as usize][0] += 1,
        }
    }

    /// The port is down: gives back all that waits.
    fn give_back(&mut self) -> bool {
        self.told_down = true;
        for item in std::mem::take(&mut self.listed).into_iter().chain(std::mem::take(&mut self.waiting)) {
            match item {
                Item::Operation(given) => self.finish(given, Outcome::PortDown),
                Item::Send(_) => self.drops[1] += 1,
            }
        }
        self.gauges = [0, self.sends_out()];
        true
    }

    /// Returns the number of packets that belong to nobody when the run ends, apart from the
    /// sink's.
    pub(in crate::ports) fn abandoned_packets(&self) -> usize {
        let waiting = self.waiting.iter().filter(|item| !item.is_send());
        let held = self.posted.iter().filter(|item| !item.is_send()).chain(&self.listed).chain(waiting);
        let packets =
            held.filter(|item| matches!(item, Item::Send(_) | Item::Operation(Given { has_packet: true, .. })));
        packets.count() + self.done.iter().flatten().filter(|done| done.len.is_some()).count()
    }
}
