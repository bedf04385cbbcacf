//! Validates operations, and lines them up for posting.

use crossbeam_utils::CachePadded;
use verbline_mem::ConnectionId;
use verbline_verbs::rdma::{self, KeptKey, Local, Part, Word, Work};

use super::{Named, OperationQueue, UnderWay, Waiting};
use crate::operations::declined::{Accepted, DeclineReason, Declined};
use crate::operations::lanes::Held;
use crate::operations::operation::Operation;
use crate::stats::counters::StageStats;

impl OperationQueue {
    /// Takes all of the operations, or none. `sends`: the number of packets that wait in the sink.
    #[inline]
    pub(crate) fn accept<const N: usize>(
        &mut self,
        stage: &CachePadded<StageStats>,
        sends: usize,
        operations: [Operation; N],
    ) -> Result<(), Declined<[Operation; N]>> {
        let admitted = self.user(stage).and_then(|user| self.admit(&operations, self.room()).map(|()| user));
        let user = match admitted {
            Ok(user) => user,
            Err(reason) => return Err(self.decline(operations, reason)),
        };
        for operation in operations {
            self.enter(operation, user, sends);
        }
        self.entered(user, N);
        Ok(())
    }

    /// Takes up to `n` operations, one after the other; calls `next` only while there is room.
    #[inline]
    pub(crate) fn accept_each(
        &mut self,
        stage: &CachePadded<StageStats>,
        sends: usize,
        n: usize,
        mut next: impl FnMut(usize) -> Operation,
    ) -> Accepted {
        /// The operations taken so far. They are counted even if `next` panics, which the stage may
        /// catch.
        struct Taken<'a> {
            queue: &'a mut OperationQueue,
            user: usize,
            count: usize,
        }
        impl Drop for Taken<'_> {
            #[inline]
            fn drop(&mut self) {
                if self.count > 0 {
                    self.queue.entered(self.user, self.count);
                }
            }
        }
        let n = n.min(self.room());
        let user = match self.user(stage) {
            Ok(user) => user,
            Err(_) if n == 0 => return Accepted { count: 0, declined: None },
            Err(reason) => return Accepted { count: 0, declined: Some(self.decline_one(next(0), reason)) },
        };
        let mut taken = Taken { queue: self, user, count: 0 };
        while taken.count < n {
            let operation = next(taken.count);
            // There is room for one; the counts follow when all are in.
            if let Err(reason) = taken.queue.admit(std::slice::from_ref(&operation), 1) {
                return Accepted { count: taken.count, declined: Some(taken.queue.decline_one(operation, reason)) };
            }
            taken.queue.enter(operation, user, sends);
            taken.count += 1;
        }
        Accepted { count: taken.count, declined: None }
    }

    /// The stage's number among the port's users, if the port is up.
    #[inline]
    fn user(&self, stage: &CachePadded<StageStats>) -> Result<usize, DeclineReason> {
        let user = self.users.iter().position(|user| std::ptr::eq(&raw const **user.stats, &raw const **stage));
        let user = user.ok_or(DeclineReason::NoPort)?;
        if self.is_down { Err(DeclineReason::PortDown) } else { Ok(user) }
    }

    #[cold]
    fn decline_one(&self, operation: Operation, reason: DeclineReason) -> Declined {
        let Declined { operation: [operation], reason } = self.decline([operation], reason);
        Declined { operation, reason }
    }

    #[cold]
    fn decline<const N: usize>(&self, operations: [Operation; N], reason: DeclineReason) -> Declined<[Operation; N]> {
        self.stats.declined.add(N as u64);
        if reason == DeclineReason::NoConnection {
            self.stats.no_connection.add(N as u64);
        }
        Declined { operation: operations, reason }
    }

    #[inline]
    fn enter(&mut self, operation: Operation, user: usize, sends: usize) {
        let what = UnderWay::of(&operation, user);
        let Operation { work: operation, options, .. } = operation;
        let work = Work::Operation { operation, options };
        if self.has_many {
            self.lanes[what.lane()].accepted += 1;
        }
        // There is a place: the room was checked.
        if let Ok(held) = self.accepted.hold(what) {
            self.line_up(work, held, what.connection, sends);
        }
    }

    #[inline]
    fn entered(&mut self, user: usize, count: usize) {
        let by = &mut self.users[user];
        by.under_way += count;
        by.stats.operations.add(count as u64);
        self.under_way += count;
        self.is_fresh = true;
        self.gauge();
    }

    /// Lists an operation for posting, at once if nothing given before it has to go first;
    /// otherwise it waits.
    #[inline]
    fn line_up(&mut self, work: Work, held: Held, connection: Option<ConnectionId>, sends: usize) {
        if sends == 0 && !self.has_many && self.waiting.is_empty() && self.works.room() > 0 {
            return self.list(work, Some(held));
        }
        let behind = self.sends_taken + sends as u64;
        self.waiting.push_back(Waiting { work, behind, connection, held });
    }

    /// Whether the port takes these operations together, with `room` for them.
    #[inline]
    fn admit(&self, operations: &[Operation], room: usize) -> Result<(), DeclineReason> {
        let mut full = room < operations.len();
        for operation in operations {
            let lane = self.lane(operation.connection).ok_or(DeclineReason::NoConnection)?;
            if self.has_many {
                let same = operations.iter().filter(|other| other.connection == operation.connection).count();
                full |= self.lanes[lane].accepted + same > self.lane_depth;
            }
        }
        if full {
            return Err(DeclineReason::Full);
        }
        if self.is_uc && !operations.iter().all(Operation::is_on_uc) {
            return Err(DeclineReason::NotCarried);
        }
        operations.iter().try_for_each(|operation| self.find_named(operation))
    }

    /// Looks for the regions, the window and the key that the operation names: the queue pair must
    /// keep each.
    #[inline]
    fn find_named(&self, operation: &Operation) -> Result<(), DeclineReason> {
        match &operation.work {
            rdma::Operation::Transfer { local, .. } => self.find_local(local),
            rdma::Operation::Atomic { into: Word::Part(part), .. } => self.find_region(*part),
            rdma::Operation::Atomic { into: Word::Packet(_), .. } | rdma::Operation::LocalInvalidate { .. } => Ok(()),
            rdma::Operation::Respond { key, local, .. } => self.find_key(*key).and_then(|()| self.find_local(local)),
            rdma::Operation::Bind { window, part, .. } if window.0 < self.windows => self.find_region(*part),
            rdma::Operation::Bind { .. } => Err(DeclineReason::NoWindow),
            rdma::Operation::Sign { key, part, .. } => self.find_key(*key).and_then(|()| self.find_region(*part)),
        }
    }

    #[inline]
    fn find_local(&self, local: &Local) -> Result<(), DeclineReason> {
        match local {
            Local::Part(part) => self.find_region(*part),
            Local::Key(part, _) => self.find_key(part.key),
            // The queue pair checks each entry of a list.
            Local::Empty | Local::Packet(_) | Local::List(_) => Ok(()),
        }
    }

    #[inline]
    fn find_key(&self, key: KeptKey) -> Result<(), DeclineReason> {
        if key.0 < self.keys { Ok(()) } else { Err(DeclineReason::NoKey) }
    }

    #[inline]
    fn find_region(&self, part: Part) -> Result<(), DeclineReason> {
        let is_kept = self.regions.get(usize::from(part.region.0)) == Some(&true);
        if is_kept { Ok(()) } else { Err(DeclineReason::ForeignRegion) }
    }
}

impl UnderWay {
    #[inline]
    fn of(operation: &Operation, user: usize) -> UnderWay {
        let named = match operation.work {
            rdma::Operation::Bind { window, .. } => Named::Window(window),
            rdma::Operation::Respond { key, .. } => Named::Key(key),
            _ => Named::Nothing,
        };
        let (len_bytes, packets) = operation.memory();
        UnderWay {
            tag: operation.tag,
            user: user as u16,
            kind: operation.kind(),
            // A list has at most a device work request's number of entries.
            packets: packets as u16,
            bytes: u32::try_from(len_bytes).unwrap_or(u32::MAX),
            named,
            connection: operation.connection,
        }
    }
}
