//! Validates operations, converts them to work requests, and lines them up to be posted.

use crossbeam_utils::CachePadded;
use verbline_mem::ConnectionId;
use verbline_verbs::rdma::{self, KeptKey, KeptRegion, KeyPart, Local, OnRc, Part, Work, WorkOptions};

use super::{Named, OperationQueue, UnderWay, Waiting, access};
use crate::operations::lanes::Held;
use crate::operations::operation::{Accepted, DeclineReason, Declined, Memory, Operation, Verb, Word};
use crate::operations::region::Range;
use crate::operations::signature::SignatureKey;
use crate::stats::counters::StageStats;

impl OperationQueue {
    /// Takes all of the operations, or none. `sends`: packets that wait in the sink.
    #[inline]
    pub(crate) fn accept<const N: usize>(
        &mut self,
        stage: &CachePadded<StageStats>,
        sends: usize,
        operations: [Operation; N],
    ) -> Result<(), Declined<[Operation; N]>> {
        let user = self.user(stage);
        let reason = match user {
            None => Some(DeclineReason::NoPort),
            Some(_) if self.is_down => Some(DeclineReason::PortDown),
            Some(_) => self.declines(&operations),
        };
        let (Some(user), None) = (user, reason) else {
            return Err(self.decline(operations, reason.unwrap_or(DeclineReason::NoPort)));
        };
        for operation in operations {
            self.enter(operation, user, sends);
        }
        self.entered(user, N);
        Ok(())
    }

    /// Takes up to `n` operations, one after the other; as many are asked for as there is room for.
    #[inline]
    pub(crate) fn accept_each(
        &mut self,
        stage: &CachePadded<StageStats>,
        sends: usize,
        n: usize,
        mut next: impl FnMut(usize) -> Operation,
    ) -> Accepted {
        /// What was taken so far. It is counted also if `next` panics, which the stage may catch.
        struct Taken<'a> {
            queue: &'a mut OperationQueue,
            user: Option<usize>,
            count: usize,
        }
        impl Drop for Taken<'_> {
            #[inline]
            fn drop(&mut self) {
                if let Some(user) = self.user.filter(|_| self.count > 0) {
                    self.queue.under_way -= self.count;
                    self.queue.entered(user, self.count);
                }
            }
        }
        let (user, n) = (self.user(stage), n.min(self.room()));
        let (mut taken, mut declined) = (Taken { queue: self, user, count: 0 }, None);
        while taken.count < n {
            let operation = next(taken.count);
            let queue = &mut *taken.queue;
            let reason = match user {
                None => Some(DeclineReason::NoPort),
                Some(_) if queue.is_down => Some(DeclineReason::PortDown),
                Some(_) => queue.declines(std::slice::from_ref(&operation)),
            };
            let (Some(user), None) = (user, reason) else {
                let Declined { operation: [operation], reason } =
                    queue.decline([operation], reason.unwrap_or(DeclineReason::NoPort));
                declined = Some(Declined { operation, reason });
                break;
            };
            queue.enter(operation, user, sends);
            // Counted at once: `declines` asks for the room.
            queue.under_way += 1;
            taken.count += 1;
        }
        Accepted { count: taken.count, declined }
    }

    /// The stage's number among those that lead here.
    #[inline]
    fn user(&self, stage: &CachePadded<StageStats>) -> Option<usize> {
        self.users.iter().position(|user| std::ptr::eq(&raw const **user.stats, &raw const **stage))
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
        let what = self.what(&operation, user as u16);
        let work = self.work(operation).expect("`declines` has seen that the queue pair has what it names");
        self.lanes[what.lane()].accepted += 1;
        // There is a place, since there was room.
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

    /// Puts an operation where it is posted from: at once where nothing that was given before it
    /// has to go first.
    #[inline]
    fn line_up(&mut self, work: Work, held: Held, connection: Option<ConnectionId>, sends: usize) {
        if sends == 0 && !self.has_many && self.waiting.is_empty() && self.works.room() > 0 {
            return self.list(work, Some(held));
        }
        let behind = self.sends_taken + sends as u64;
        self.waiting.push_back(Waiting { work, behind, connection, held });
    }

    /// Why the port does not take these together, if it does not.
    #[inline]
    fn declines(&self, operations: &[Operation]) -> Option<DeclineReason> {
        let mut full = self.room() < operations.len();
        for operation in operations {
            let Some(lane) = self.lane(operation.connection) else { return Some(DeclineReason::NoConnection) };
            if self.has_many {
                let same = operations.iter().filter(|other| other.connection == operation.connection).count();
                full |= self.lanes[lane].accepted + same > self.lane_depth;
            }
        }
        if full {
            return Some(DeclineReason::Full);
        }
        if !self.works.carry(operations) {
            return Some(DeclineReason::NotCarried);
        }
        (!operations.iter().all(|operation| self.knows(operation))).then_some(DeclineReason::ForeignRegion)
    }

    /// Whether the queue pair has what the operation names.
    #[inline]
    fn knows(&self, operation: &Operation) -> bool {
        match &operation.verb {
            Verb::Transfer { memory, .. } => self.knows_memory(memory),
            Verb::Atomic { into: Word::Range(range), .. } => self.region(range).is_some(),
            Verb::Atomic { into: Word::Packet(_), .. } | Verb::Invalidate { .. } => true,
            Verb::Respond { key, memory, .. } => self.knows_key(*key) && self.knows_memory(memory),
            Verb::Bind { window, part, .. } => {
                usize::from(window.0) < self.windows.len() && self.region(part).is_some()
            }
            Verb::Sign { key, part, .. } => self.knows_key(*key) && self.region(part).is_some(),
        }
    }

    fn knows_key(&self, key: SignatureKey) -> bool {
        usize::from(key.0) < self.keys.len()
    }

    #[inline]
    fn knows_memory(&self, memory: &Memory) -> bool {
        match memory {
            Memory::Range(range) => self.region(range).is_some(),
            Memory::Blocks(blocks) => self.knows_key(blocks.key),
            Memory::Empty | Memory::Packet(_) => true,
        }
    }

    /// What the queue pair calls the region of the range.
    #[inline]
    fn region(&self, range: &Range) -> Option<KeptRegion> {
        self.regions.get(usize::from(range.region)).copied().flatten()
    }

    #[inline]
    fn what(&self, operation: &Operation, user: u16) -> UnderWay {
        let named = match operation.verb {
            Verb::Bind { window, .. } => Named::Window(self.windows[usize::from(window.0)]),
            Verb::Respond { key, .. } => Named::Key(self.keys[usize::from(key.0)]),
            Verb::Transfer { .. } | Verb::Atomic { .. } | Verb::Invalidate { .. } | Verb::Sign { .. } => Named::Nothing,
        };
        UnderWay {
            tag: operation.tag,
            user,
            kind: operation.kind(),
            has_packet: operation.has_packet(),
            bytes: u32::try_from(operation.len_bytes()).unwrap_or(u32::MAX),
            named,
            connection: operation.connection,
        }
    }

    /// The operation in the words of verbs; `None` if it names what the queue pair has not.
    #[inline]
    fn work(&self, operation: Operation) -> Option<Work> {
        let Operation { verb, fence, solicited, signaled, .. } = operation;
        let operation = match verb {
            Verb::Transfer { transfer, memory } => rdma::Operation::Transfer { transfer, local: self.local(memory)? },
            Verb::Atomic { atomic, into } => {
                let into = match into {
                    Word::Packet(packet) => rdma::Word::Packet(packet),
                    Word::Range(range) => rdma::Word::Part(self.part(&range)?),
                };
                rdma::Operation::Atomic { atomic, into, on: OnRc }
            }
            Verb::Respond { key, invalidate, memory } => {
                rdma::Operation::Respond { key: self.key(key)?, invalidate, local: self.local(memory)?, on: OnRc }
            }
            Verb::Invalidate { rkey } => rdma::Operation::LocalInvalidate { rkey },
            Verb::Bind { window, part, rights } => {
                let window = *self.windows.get(usize::from(window.0))?;
                rdma::Operation::Bind { window, part: self.part(&part)?, access: access(rights) }
            }
            Verb::Sign { key, part, blocks } => {
                rdma::Operation::Sign { key: self.key(key)?, part: self.part(&part)?, blocks, on: OnRc }
            }
        };
        Some(Work::Operation { operation, options: WorkOptions { fence, solicited, signaled } })
    }

    #[inline]
    fn local(&self, memory: Memory) -> Option<Local> {
        Some(match memory {
            Memory::Empty => Local::Empty,
            Memory::Packet(packet) => Local::Packet(packet),
            Memory::Range(range) => Local::Part(self.part(&range)?),
            Memory::Blocks(blocks) => {
                Local::Key(KeyPart { key: self.key(blocks.key)?, offset: 0, len: blocks.data_bytes }, OnRc)
            }
        })
    }

    #[inline]
    fn part(&self, range: &Range) -> Option<Part> {
        Some(Part { region: self.region(range)?, span: range.span })
    }

    fn key(&self, key: SignatureKey) -> Option<KeptKey> {
        self.keys.get(usize::from(key.0)).copied()
    }
}
