//! Lists waiting operations together with packets to be sent, posts the list, and completes it.

use verbline_mem::{Batch, ConnectionId, Packet};
use verbline_plan::OperationKind;
use verbline_verbs::rdma::{KeptWindow, Remote, Work, WorkMemory};
use verbline_verbs::{Completion, PostStop, QueuePair, SendOutcome, Stale};

use super::sends::{memory_of, reason_of, refusal};
use super::{Named, OperationQueue, UnderWay, Waiting};
use crate::operations::lanes::Held;
use crate::operations::operation::{Done, OperationError};
use crate::stats::drop_reason::DropReason;
use crate::stats::operations::OperationStats;

/// The effect of a completion of listed work requests.
#[derive(Debug)]
pub(crate) struct ListDone {
    /// The number of sends that it completes.
    pub(crate) sends: usize,
    /// It belongs to an operation; otherwise to a send.
    pub(crate) of_operation: bool,
}

/// The outcome of posting a list.
#[derive(Debug, Default)]
pub(crate) struct Posted {
    /// A work request was posted or given back.
    pub(crate) is_moved: bool,
    /// The number of packets to be sent that were dropped.
    pub(crate) dropped: usize,
    /// The reason why the queue pair takes nothing any more: it is at fault, not an operation.
    pub(crate) lost: Option<PostStop>,
}

/// Returns the key of a bound window.
pub(crate) type KeyOf<'a> = &'a dyn Fn(KeptWindow) -> Option<Remote>;

impl OperationQueue {
    /// Whether work requests wait to be posted, apart from packets in the sink.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.works.is_empty()
    }

    /// The number of packets that wait here, apart from those in the sink.
    #[inline]
    pub(crate) fn sends_waiting(&self) -> usize {
        self.works.sends()
    }

    /// Moves the next sends and operations into [`OperationQueue::works`], in the order in which
    /// they were given: at most `room` in all, and at most `sends` sends. On a port with many
    /// connections it takes the run of work requests of one connection, and drops sends beyond its
    /// bound; on a port with one queue pair they wait. Returns the number of sends.
    pub(crate) fn gather(
        &mut self,
        batch: &mut Batch,
        connection: Option<ConnectionId>,
        [room, sends]: [usize; 2],
    ) -> usize {
        let (mut taken, mut dropped) = (0, 0);
        self.is_fresh = false;
        while self.works.len() < room && self.works.room() > 0 {
            if self.has_many && self.next_over(batch) != Some(connection) {
                break;
            }
            let is_over = taken == sends && !self.operation_is_next();
            if is_over && !self.has_many {
                break;
            }
            match self.take_next(batch) {
                Some((Work::Send(packet) | Work::SendWith { packet, .. }, _)) if is_over => {
                    self.refuse_send(packet, DropReason::TxFull);
                    dropped += 1;
                }
                Some((work, held)) => {
                    taken += usize::from(held.is_none());
                    self.list(work, held);
                }
                None => break,
            }
        }
        self.port.drops.add(DropReason::TxFull, dropped);
        taken
    }

    /// The connection of the next work request, if that is known; `None` if nothing waits.
    pub(crate) fn next_over(&self, batch: &Batch) -> Option<Option<ConnectionId>> {
        match self.waiting.front().filter(|_| self.operation_is_next()) {
            Some(first) => Some(first.connection),
            None => batch.as_slice().first().map(Packet::connection),
        }
    }

    /// Whether an operation was given before the waiting packets.
    #[inline]
    fn operation_is_next(&self) -> bool {
        self.waiting.front().is_some_and(|first| first.behind <= self.sends_taken)
    }

    #[inline]
    fn take_next(&mut self, batch: &mut Batch) -> Option<(Work, Option<Held>)> {
        if self.operation_is_next() {
            let Waiting { work, held, .. } = self.waiting.pop_front()?;
            return Some((work, Some(held)));
        }
        let packet = batch.take_first()?;
        self.sends_taken += 1;
        Some((self.send_of(packet), None))
    }

    /// Appends a work request to the list; the caller has checked the room.
    #[inline]
    pub(super) fn list(&mut self, work: Work, held: Option<Held>) {
        let is_listed = self.works.push(work).is_ok();
        debug_assert!(is_listed, "there is room");
        if let Some(held) = held.filter(|_| is_listed) {
            self.accepted.list(held);
        }
    }

    /// Posts the list to a lane's queue pair. A refused work request comes back to its stage, or is
    /// dropped and counted. So is the rest once the device takes nothing: the completion of
    /// requests that it took from the list may never be known. On a port with one queue pair that
    /// rest waits, and so do requests that find no room.
    pub(crate) fn post(&mut self, lane: usize, qp: &mut QueuePair) -> Posted {
        let mut posted = Posted::default();
        while !self.works.is_empty() && posted.lost.is_none() {
            let outcome = self.post_once(lane, qp);
            posted.is_moved |= outcome.posted > 0;
            match outcome.stop {
                None => {}
                Some(PostStop::Full) if !self.has_many => break,
                Some(stop @ (PostStop::Device(_) | PostStop::NotReady(_))) => {
                    posted.lost = Some(stop);
                    if self.has_many {
                        self.refuse_rest(stop, &mut posted);
                    }
                }
                Some(stop) => {
                    posted.is_moved = true;
                    if self.refuse_first(OperationError::refused(stop)) {
                        posted.dropped += 1;
                        self.port.drops.add(refusal(stop), 1);
                    }
                }
            }
        }
        posted
    }

    #[cold]
    fn refuse_rest(&mut self, stop: PostStop, posted: &mut Posted) {
        let dropped = self.refuse_listed(OperationError::refused(stop));
        self.port.drops.add(refusal(stop), dropped as u64);
        posted.dropped += dropped;
    }

    /// Posts the list to a lane's queue pair, as far as there is room, and counts the sends.
    fn post_once(&mut self, lane: usize, qp: &mut QueuePair) -> SendOutcome {
        let (sends, bytes) = (self.works.sends(), self.works.send_bytes());
        let outcome = qp.post_works(&mut self.works);
        if outcome.posted > 0 {
            let sent = sends - self.works.sends();
            let (mut kind, mut run) = (OperationKind::Write, 0);
            let count = |kind: OperationKind, run| self.stats.kinds[kind as usize].posted.add(run);
            self.accepted.post(lane, outcome.posted - sent, |what| {
                if kind != what.kind {
                    count(std::mem::replace(&mut kind, what.kind), std::mem::take(&mut run));
                }
                run += 1;
            });
            count(kind, run);
            self.port.tx_posts.add(1);
            self.port.tx_packets.add(sent as u64);
            self.port.tx_bytes.add(bytes - self.works.send_bytes());
        }
        outcome
    }

    /// Refuses the first of the list, which can't be posted. True if it was a packet to be sent,
    /// which is dropped.
    fn refuse_first(&mut self, error: OperationError) -> bool {
        match self.works.pop() {
            Some(Work::Operation { operation, .. }) => {
                if let Some(what) = self.accepted.pop_listed() {
                    self.finish(what, Err(error), operation.into_memory(), &|_| None);
                }
                false
            }
            Some(Work::Send(packet) | Work::SendWith { packet, .. }) => {
                self.refuse_send(packet, reason_of(error));
                true
            }
            None => false,
        }
    }

    /// Takes the completion of listed work requests of a lane's queue pair: its done operations go
    /// to their stages, the packets of sends to `freed`, or to their pools.
    pub(crate) fn completed(
        &mut self,
        lane: usize,
        qp: &mut QueuePair,
        completion: &Completion,
        freed: &mut Batch,
    ) -> Result<ListDone, Stale> {
        // The completion's own operation waits until the queue pair can be asked.
        let (mut own, mut operations, mut run) = (None, 0, Run::of(OperationKind::Write));
        let done = qp.works_done(completion, freed, |count, memory, is_own| {
            operations += count as usize;
            match is_own {
                true => own = Some(memory),
                false => self.carried_out(lane, count, memory, &mut run),
            }
        })?;
        run.count(&self.stats);
        if let Some(memory) = own
            && let Some(what) = self.accepted.pop(lane)
        {
            let result = if completion.is_ok() { Ok(()) } else { Err(OperationError::Status(completion.status())) };
            self.finish(what, result, memory, &|window| qp.window_remote(window));
        }
        Ok(ListDone { sends: done.count - operations, of_operation: done.of_operation })
    }

    /// The oldest operations of a lane are done, with others of the same completion: each run of
    /// one kind is counted at once. `memory`: that of a single operation.
    #[inline]
    fn carried_out(&mut self, lane: usize, count: u32, memory: Option<WorkMemory>, run: &mut Run) {
        match memory {
            // Apart, so that operations without memory ask for none.
            None => self.take_carried_out(lane, count, run, || None),
            mut memory => self.take_carried_out(lane, count, run, || memory.take()),
        }
    }

    #[inline(always)]
    fn take_carried_out(
        &mut self,
        lane: usize,
        count: u32,
        run: &mut Run,
        mut memory: impl FnMut() -> Option<WorkMemory>,
    ) {
        let taken = self.accepted.take_posted(lane, count as usize, |what| {
            if run.kind != what.kind {
                std::mem::replace(run, Run::of(what.kind)).count(&self.stats);
            }
            // A response that waited for blocks may have been cancelled.
            let bad = if let Named::Bad(bad) = what.named { Some(bad) } else { None };
            run.add(what.bytes, bad.is_none());
            let UnderWay { tag, user, kind, bytes, connection, .. } = what;
            let result = bad.map_or(Ok(()), |bad| Err(OperationError::BadBlock(bad)));
            let done = Done { tag, kind, result, bytes, memory: memory(), key: None, connection };
            self.users[usize::from(user)].done.push(done);
        });
        if self.has_many {
            self.lanes[lane].accepted -= taken;
        }
    }

    #[inline]
    pub(super) fn finish(
        &mut self,
        what: UnderWay,
        result: Result<(), OperationError>,
        memory: Option<WorkMemory>,
        key: KeyOf<'_>,
    ) {
        let UnderWay { tag, user, kind, bytes, named, connection, .. } = what;
        if self.has_many {
            self.lanes[what.lane()].accepted -= 1;
        }
        let (result, key) = match named {
            Named::Nothing | Named::Key(_) => (result, None),
            Named::Window(window) => (result, if result.is_ok() { key(window) } else { None }),
            Named::Bad(bad) => (Err(OperationError::BadBlock(bad)), None),
        };
        let mut run = Run::of(kind);
        run.add(bytes, result.is_ok());
        run.count(&self.stats);
        self.users[usize::from(user)].done.push(Done { tag, kind, result, bytes, memory, key, connection });
    }

    /// Refuses the listed work requests: operations come back with this error, and packets to be
    /// sent are dropped. Returns the number of dropped packets.
    pub(crate) fn refuse_listed(&mut self, error: OperationError) -> usize {
        let mut dropped = 0;
        while !self.works.is_empty() {
            dropped += usize::from(self.refuse_first(error));
        }
        dropped
    }

    /// Refuses all waiting work requests: operations come back, and packets to be sent are dropped.
    /// Returns the number of dropped packets.
    pub(crate) fn fail_waiting(&mut self) -> usize {
        self.is_fresh = false;
        let dropped = self.refuse_listed(OperationError::PortDown);
        while let Some(Waiting { work, held, .. }) = self.waiting.pop_front() {
            let Some(what) = self.accepted.take(held) else { continue };
            self.finish(what, Err(OperationError::PortDown), memory_of(work), &|_| None);
        }
        dropped
    }

    /// A lane's queue pair is gone, with all work requests posted to it.
    pub(crate) fn lose_posted(&mut self, lane: usize) {
        while let Some(what) = self.accepted.pop(lane) {
            self.finish(what, Err(OperationError::Lost), None, &|_| None);
        }
    }

    /// The run ends: operations under way have no owner any more. Returns the number of their
    /// packets.
    pub(crate) fn abandon(&mut self) -> usize {
        // The packets of posted operations are still in the queue pair, and go back with it.
        let mut packets = self.fail_waiting() + self.accepted.sum(|what| usize::from(what.packets));
        (0..self.lanes.len()).for_each(|lane| self.lose_posted(lane));
        for user in &mut self.users {
            packets += user.done.drain(..).map(|done| done.packets()).sum::<usize>();
            user.under_way = 0;
        }
        self.under_way = 0;
        self.gauge();
        packets
    }
}

/// Consecutive operations of one kind that have ended, to be counted at once.
struct Run {
    kind: OperationKind,
    completed: u64,
    failed: u64,
    bytes: u64,
}

impl Run {
    fn of(kind: OperationKind) -> Run {
        Run { kind, completed: 0, failed: 0, bytes: 0 }
    }

    #[inline]
    fn add(&mut self, bytes: u32, is_ok: bool) {
        if is_ok {
            self.completed += 1;
            self.bytes += u64::from(bytes);
        } else {
            self.failed += 1;
        }
    }

    #[inline]
    fn count(self, stats: &OperationStats) {
        let counts = &stats.kinds[self.kind as usize];
        counts.completed.add(self.completed);
        counts.failed.add(self.failed);
        counts.bytes.add(self.bytes);
    }
}
