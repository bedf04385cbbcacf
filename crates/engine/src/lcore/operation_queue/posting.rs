//! What waits, on its way to a queue pair and back: listed with the packets that are sent, posted,
//! and done.

use verbline_mem::{Batch, ConnectionId, Packet};
use verbline_verbs::rdma::{KeptWindow, Local, Remote, Work};
use verbline_verbs::{Completion, PostStop, QueuePair, SendOutcome, Stale};

use super::{OperationQueue, UnderWay, Waiting};
use crate::api::operations::{Done, OperationError};
use crate::stats::drop_reason::DropReason;

/// Whose a completion of listed work requests was.
#[derive(Debug)]
pub(crate) struct ListDone {
    /// How many sends are done by it.
    pub(crate) sends: usize,
    /// It is of an operation; else of a send.
    pub(crate) of_operation: bool,
}

/// What was moved on its way to a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) sends: usize,
    /// Packets for which there was no room.
    pub(crate) dropped: usize,
}

/// The key that a window has got.
pub(crate) type KeyOf<'a> = &'a dyn Fn(KeptWindow) -> Option<Remote>;

impl OperationQueue {
    /// Whether something waits to be posted, packets in the sink aside.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.works.is_empty()
    }

    /// How many packets wait, those in the sink aside.
    pub(crate) fn sends_waiting(&self) -> usize {
        self.gathered.iter().filter(|what| what.is_none()).count()
    }

    /// Their bytes.
    fn bytes_to_send(&self) -> u64 {
        let bytes = |work: &Work| match work {
            Work::Send(packet) => packet.len() as u64,
            Work::Operation { .. } => 0,
        };
        self.works.iter().map(bytes).sum()
    }

    /// Moves what is to be posted next into [`OperationQueue::works`], sends and operations in the
    /// order in which they were given: as far as the queue pair has room, and at most so many
    /// sends. Gives how many of these.
    pub(crate) fn gather(&mut self, batch: &mut Batch, room: usize, sends: usize) -> usize {
        let mut taken = 0;
        self.is_fresh = false;
        while self.works.len() < room && self.works.room() > 0 {
            let is_send = !self.operation_is_next();
            if is_send && taken == sends {
                break;
            }
            let Some((work, what)) = self.take_next(batch) else { break };
            taken += usize::from(is_send);
            self.list(work, what);
        }
        taken
    }

    /// The same for the stretch of what comes next that goes over one connection. Sends beyond so
    /// many are dropped.
    pub(crate) fn gather_over(
        &mut self,
        batch: &mut Batch,
        connection: Option<ConnectionId>,
        sends: usize,
    ) -> Gathered {
        let mut gathered = Gathered::default();
        while self.works.room() > 0 && self.next_over(batch) == Some(connection) {
            match self.take_next(batch) {
                Some((Work::Send(packet), _)) if gathered.sends == sends => {
                    drop(packet);
                    gathered.dropped += 1;
                }
                Some((work, what)) => {
                    gathered.sends += usize::from(what.is_none());
                    self.list(work, what);
                }
                None => break,
            }
        }
        gathered
    }

    /// Over which connection the next goes, if that is known; `None` if nothing waits.
    pub(crate) fn next_over(&self, batch: &Batch) -> Option<Option<ConnectionId>> {
        match self.waiting.front().filter(|_| self.operation_is_next()) {
            Some(first) => Some(first.what.connection),
            None => batch.as_slice().first().map(Packet::connection),
        }
    }

    /// Whether an operation was given before the packets that wait.
    #[inline]
    fn operation_is_next(&self) -> bool {
        self.waiting.front().is_some_and(|first| first.behind <= self.sends_taken)
    }

    #[inline]
    fn take_next(&mut self, batch: &mut Batch) -> Option<(Work, Option<UnderWay>)> {
        if self.operation_is_next() {
            let Waiting { work, what, .. } = self.waiting.pop_front()?;
            return Some((work, Some(what)));
        }
        let packet = batch.take_first()?;
        self.sends_taken += 1;
        Some((Work::Send(packet), None))
    }

    /// Puts one behind the others that are posted next; the caller has seen that there is room.
    #[inline]
    fn list(&mut self, work: Work, what: Option<UnderWay>) {
        if self.works.push(work).is_ok() {
            self.gathered.push_back(what);
        }
    }

    /// Posts the list to a lane's queue pair, as far as that takes it, and counts what is sent.
    pub(crate) fn post(&mut self, lane: usize, qp: &mut QueuePair) -> SendOutcome {
        let (sends, bytes) = (self.sends_waiting(), self.bytes_to_send());
        let outcome = qp.post_works(&mut self.works);
        self.note_posted(lane, outcome.posted);
        if outcome.posted > 0 {
            self.port.tx_posts.add(1);
            self.port.tx_packets.add((sends - self.sends_waiting()) as u64);
            self.port.tx_bytes.add(bytes - self.bytes_to_send());
        }
        outcome
    }

    /// The first `count` of the list were posted to a lane's queue pair.
    fn note_posted(&mut self, lane: usize, count: usize) {
        for what in self.gathered.drain(..count).flatten() {
            self.stats.kinds[what.kind as usize].posted.add(1);
            let kept = self.posted.push(lane, what);
            debug_assert!(kept.is_ok(), "it has room for all that is accepted");
        }
    }

    /// The first of the list can't be posted. True if it was a packet to be sent, which is dropped.
    pub(crate) fn refuse_first(&mut self, error: OperationError) -> bool {
        let what = self.gathered.pop_front().flatten();
        let packet = self.works.pop().and_then(packet_of);
        match what {
            Some(what) => self.finish(what, Err(error), packet, &|_| None),
            None => drop(packet),
        }
        what.is_none()
    }

    /// The sink was emptied by somebody else.
    pub(crate) fn sends_dropped(&mut self, packets: usize) {
        self.sends_taken += packets as u64;
    }

    /// Takes the completion of listed work requests of a lane's queue pair: the operations that are
    /// done by it go to their stages, the packets of sends to `freed`, or to their pools.
    pub(crate) fn completed(
        &mut self,
        lane: usize,
        qp: &mut QueuePair,
        completion: &Completion,
        freed: &mut Batch,
    ) -> Result<ListDone, Stale> {
        // The last operation is kept back until it is known whether the completion is its own.
        let (mut last, mut operations) = (None, 0);
        let done = qp.works_done(completion, freed, |local| {
            if let Some(before) = last.replace(local) {
                self.complete(lane, Ok(()), Local::into_packet(before), &|_| None);
            }
            operations += 1;
        })?;
        if let Some(local) = last {
            let failed = !completion.is_ok() && done.of_operation;
            let result = if failed { Err(OperationError::Status(completion.status())) } else { Ok(()) };
            self.complete(lane, result, local.into_packet(), &|window| qp.window_remote(window));
        }
        Ok(ListDone { sends: done.count - operations, of_operation: done.of_operation })
    }

    /// The oldest operation that was posted to a lane's queue pair is done, with this memory.
    #[inline]
    fn complete(&mut self, lane: usize, result: Result<(), OperationError>, packet: Option<Packet>, key: KeyOf<'_>) {
        let Some(what) = self.posted.pop(lane) else { return };
        self.finish(what, result, packet, key);
    }

    fn finish(&mut self, what: UnderWay, result: Result<(), OperationError>, packet: Option<Packet>, key: KeyOf<'_>) {
        let UnderWay { tag, user, kind, bytes, window, connection, .. } = what;
        self.lanes[what.lane()].accepted -= 1;
        let counts = &self.stats.kinds[kind as usize];
        match result {
            Ok(()) => {
                counts.completed.add(1);
                counts.bytes.add(bytes.into());
            }
            Err(_) => counts.failed.add(1),
        }
        let key = window.filter(|_| result.is_ok()).and_then(key);
        let user = &mut self.users[usize::from(user)];
        user.done.push_back(Done { tag, kind, result, bytes, packet, key, connection });
    }

    /// What is on its way to a queue pair comes back with this, and its packets to be sent are
    /// dropped. Gives how many these are.
    pub(crate) fn refuse_listed(&mut self, error: OperationError) -> usize {
        let mut dropped = 0;
        while !self.works.is_empty() {
            dropped += usize::from(self.refuse_first(error));
        }
        dropped
    }

    /// Nothing more is posted: what waits comes back, and its packets to be sent are dropped. Gives
    /// how many these are.
    pub(crate) fn fail_waiting(&mut self) -> usize {
        self.is_fresh = false;
        let dropped = self.refuse_listed(OperationError::PortDown);
        while let Some(Waiting { work, what, .. }) = self.waiting.pop_front() {
            self.finish(what, Err(OperationError::PortDown), packet_of(work), &|_| None);
        }
        dropped
    }

    /// A lane's queue pair is gone, with what was posted to it.
    pub(crate) fn lose_posted(&mut self, lane: usize) {
        while let Some(what) = self.posted.pop(lane) {
            self.finish(what, Err(OperationError::Lost), None, &|_| None);
        }
    }

    /// The run ends: what is under way is nobody's any more. Gives how many packets were.
    pub(crate) fn abandon(&mut self) -> usize {
        // Those of posted ones are still in the queue pair, and go back with it.
        let mut packets = self.fail_waiting() + self.posted.iter().filter(|what| what.has_packet).count();
        (0..self.posted.lanes()).for_each(|lane| self.lose_posted(lane));
        for user in &mut self.users {
            packets += user.done.drain(..).filter(|done| done.packet.is_some()).count();
            user.under_way = 0;
        }
        self.gauge();
        packets
    }
}

/// Why a packet is dropped that its queue pair refuses for this.
pub(crate) fn refusal(stop: PostStop) -> DropReason {
    match stop {
        PostStop::TooLong { .. } => DropReason::TooLong,
        _ => DropReason::SendError,
    }
}

fn packet_of(work: Work) -> Option<Packet> {
    match work {
        Work::Send(packet) => Some(packet),
        Work::Operation { local, .. } => local.into_packet(),
    }
}
