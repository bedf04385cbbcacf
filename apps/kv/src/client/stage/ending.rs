//! The ends of operations: by a reply, by a READ, or without an answer.

use verbline::cli::Latencies;
use verbline::prelude::*;

use super::{Client, Pending};
use crate::client::oracle::Verdict;
use crate::client::work::Task;
use crate::protocol::{Location, Reply, Status};
use crate::results::{GET, PUT, READ, Ways};

impl Client {
    /// Handles a reply.
    pub(super) fn answered(&mut self, reply: &Reply<'_>, out: &mut Outputs<'_>) {
        let Some(pending) = self.in_flight.get_mut(reply.id) else {
            return self.count(|counts| counts.unasked += 1);
        };
        match pending.task {
            Task::Get { key } => {
                let value = (reply.status == Status::Ok).then_some(reply.value);
                let verdict = self.oracle.judge(key, pending.floor, value);
                // READs have looked into both of its buckets, and the server finds it.
                let is_elsewhere = pending.bucket > 1 && value.is_some();
                self.count(|counts| counts.elsewhere += u64::from(is_elsewhere));
                self.got(reply.id, Some(verdict).filter(|_| value.is_some() || verdict != Verdict::Good), out);
            }
            Task::Put { key, .. } => {
                let done = reply.status == Status::Ok;
                self.oracle.end_put(key, done);
                self.count(|counts| match reply.status {
                    Status::Ok => {}
                    Status::TooLong => counts.too_long += 1,
                    _ => counts.refused += 1,
                });
                self.end(reply.id, out);
            }
            Task::Locate { shard } => {
                self.tables[shard] = Location::from_bytes(reply.value);
                self.lookups[shard].is_answered |= self.tables[shard].is_some();
                self.end(reply.id, out);
            }
            // A READ is answered by its completion only.
            Task::Read { .. } => self.count(|counts| counts.unasked += 1),
        }
    }

    /// Ends a GET: with a verdict, or with `None` for an allowed absence.
    pub(super) fn got(&mut self, id: u64, verdict: Option<Verdict>, out: &mut Outputs<'_>) {
        if matches!(verdict, Some(Verdict::Stale | Verdict::Corrupt)) {
            self.wrong_values.add(1);
        }
        self.count(|counts| match verdict {
            None => counts.missed += 1,
            Some(Verdict::Good) => counts.verified += 1,
            Some(Verdict::Earlier) => counts.earlier += 1,
            Some(Verdict::Stale) => counts.stale += 1,
            Some(Verdict::Foreign) => counts.foreign += 1,
            Some(Verdict::Corrupt) => counts.corrupt += 1,
        });
        self.end(id, out);
    }

    /// Removes an operation, and records its latency if it is measured.
    pub(super) fn end(&mut self, id: u64, out: &mut Outputs<'_>) {
        let Some(pending) = self.in_flight.take(id) else { return };
        pending.timer.map(|timer| out.cancel_timer(timer));
        self.free(&pending);
        self.operations.add(1);
        self.measure(&pending, Latencies::record, out.now_ns());
    }

    /// Records an operation that ends now by `record`, if it is measured.
    pub(super) fn measure(&mut self, pending: &Pending, record: fn(&mut Ways, usize, Tick, Tick), now_ns: Tick) {
        let way = match pending.task {
            Task::Get { .. } => GET,
            Task::Read { .. } => READ,
            // The first PUT of each key fills the table.
            Task::Put { generation, .. } if generation > 1 => PUT,
            Task::Put { .. } | Task::Locate { .. } => return,
        };
        if let Some(measured) = self.measured.as_mut().filter(|_| self.work.is_loaded()) {
            record(&mut measured.latencies, way, pending.began_ns, now_ns);
        }
    }

    /// Gives up an operation without an answer.
    pub(super) fn give_up(&mut self, pending: &Pending) {
        match pending.task {
            Task::Put { key, .. } => self.oracle.give_up_put(key),
            // Requested again after all others.
            Task::Locate { .. } => self.asked = 0,
            Task::Get { .. } | Task::Read { .. } => {}
        }
        self.free(pending);
    }

    /// Takes back an operation that could not begin.
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
