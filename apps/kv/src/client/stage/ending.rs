//! How operations end: with a reply, with a READ, or with nobody to answer.

use verbline::prelude::*;

use super::{Client, Pending};
use crate::client::oracle::Verdict;
use crate::client::work::Task;
use crate::protocol::{Location, Reply, Status};
use crate::results::{GET, PUT};

impl Client {
    /// A reply has come.
    pub(super) fn answered(&mut self, reply: &Reply<'_>, out: &mut Outputs<'_>) {
        let Some(pending) = self.in_flight.get_mut(reply.id) else {
            return self.count(|counts| counts.unasked += 1);
        };
        match pending.task {
            Task::Get { key } => {
                let value = (reply.status == Status::Ok).then_some(reply.value);
                let verdict = self.oracle.judge(key, pending.floor, value);
                self.got(reply.id, GET, Some(verdict).filter(|_| value.is_some() || verdict != Verdict::Good), out);
            }
            Task::Put { key, generation } => {
                let done = reply.status == Status::Ok;
                self.oracle.end_put(key, done);
                self.count(|counts| counts.refused += u64::from(!done));
                // The first of each key fills the table.
                self.end(reply.id, (generation > 1).then_some(PUT), out);
            }
            Task::Locate { shard } => {
                self.tables[shard] = Location::from_bytes(reply.value);
                self.end(reply.id, None, out);
            }
            // Its reply is its completion.
            Task::Read { .. } => self.count(|counts| counts.unasked += 1),
        }
    }

    /// A GET has ended: with this verdict, or without a value where none need be.
    pub(super) fn got(&mut self, id: u64, way: usize, verdict: Option<Verdict>, out: &mut Outputs<'_>) {
        self.count(|counts| match verdict {
            None => counts.missed += 1,
            Some(Verdict::Good) => counts.verified += 1,
            Some(Verdict::Earlier) => counts.earlier += 1,
            Some(Verdict::Stale) => counts.stale += 1,
            Some(Verdict::Corrupt) => counts.corrupt += 1,
        });
        self.end(id, Some(way), out);
    }

    /// Takes an operation off, and times it if that counts.
    pub(super) fn end(&mut self, id: u64, way: Option<usize>, out: &mut Outputs<'_>) {
        let Some(pending) = self.in_flight.take(id) else { return };
        pending.timer.map(|timer| out.cancel_timer(timer));
        self.free(&pending);
        self.operations.add(1);
        if let (Some(measured), Some(way), true) = (self.measured.as_mut(), way, self.work.is_loaded()) {
            measured.latencies.record(way, pending.began_ns, out.now_ns());
        }
    }

    /// Nobody will answer.
    pub(super) fn give_up(&mut self, pending: &Pending) {
        match pending.task {
            Task::Put { key, .. } => self.oracle.give_up_put(key),
            // Asked again once all others are.
            Task::Locate { .. } => self.asked = 0,
            Task::Get { .. } | Task::Read { .. } => {}
        }
        self.free(pending);
    }

    /// It has not begun after all.
    pub(super) fn give_back(&mut self, pending: &Pending) {
        match pending.task {
            Task::Put { key, generation } => self.work.give_back_put(&mut self.oracle, key, generation),
            Task::Locate { .. } => self.asked -= 1,
            Task::Get { .. } | Task::Read { .. } => {}
        }
        self.free(pending);
    }

    pub(super) fn free(&mut self, pending: &Pending) {
        self.peers.end(pending.peer);
        if let Task::Read { .. } = pending.task {
            self.reading -= 1;
        }
    }
}
