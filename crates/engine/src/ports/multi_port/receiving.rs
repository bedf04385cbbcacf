//! The receive half of a port with many connections: one shared queue, or a queue per connection.

use std::collections::VecDeque;

use verbline_mem::{Batch, ConnectionId, Packet, PoolCache};
use verbline_verbs::{Completion, PostStop, SharedReceiveQueue, Status};

use super::{MultiPort, Slot, State, slot_of};
use crate::capture::tap::CapturePath;
use crate::ports::context::LcoreContext;
use crate::ports::posting::{self, STARVED_RETRY_NS};
use crate::ports::rx_half::{Delivery, Filled, Receiving};
use crate::ports::sink::Sink;
use crate::stats::counters::LcoreStats;
use crate::stats::drop_reason::DropReason;

/// The receive half of a port with many connections.
#[derive(Debug)]
pub(crate) struct ManyReceiving {
    /// `None`: each connection has a queue of its own.
    pub(crate) srq: Option<SharedReceiveQueue>,
    /// The shared queue, or the common settings of the connections' own queues. Packets in `early`
    /// are not counted as missing: each holds a receive until the stages have it.
    pub(super) queue: Receiving,
    /// Packets of connections that the stages do not know of yet, in order.
    pub(super) early: Batch,
    /// The packets of `early` that stay, while others are taken.
    pub(super) later: Batch,
    /// The connection that the stages were told of last, while `early` holds packets of it.
    pub(super) opening: Option<ConnectionId>,
    /// The most packets of it that go to the stages in one turn.
    pub(super) burst: usize,
    /// Received packets that the stages are not to have yet, or at all.
    sorted: Batch,
    /// Slots of open connections whose own queues need receives, first come, first served.
    hungry: VecDeque<u16>,
    /// The receives posted to connections' own queues.
    posted: usize,
    /// A warning has told that the device refuses receives, which it may do for good.
    is_refusal_told: bool,
}

impl ManyReceiving {
    /// `queue`: the shared one, or each connection's own.
    pub(crate) fn new(
        srq: Option<SharedReceiveQueue>,
        mut queue: Receiving,
        burst: usize,
        connections: usize,
    ) -> ManyReceiving {
        if srq.is_none() {
            queue.missing = 0;
        }
        ManyReceiving {
            early: Batch::with_capacity(queue.missing),
            later: Batch::with_capacity(queue.missing),
            hungry: VecDeque::with_capacity(if srq.is_some() { 0 } else { connections }),
            srq,
            queue,
            sorted: Batch::with_capacity(burst),
            opening: None,
            burst,
            posted: 0,
            is_refusal_told: false,
        }
    }

    /// Returns the index of the pool's cache among the lcore's.
    pub(crate) fn cache(&self) -> usize {
        self.queue.cache
    }

    pub(super) fn is_settled(&self) -> bool {
        self.queue.is_settled() && self.hungry.is_empty()
    }

    /// Posts the missing receives.
    fn fill(&mut self, cache: &PoolCache, slots: &mut [Slot]) -> Filled {
        let mut filled = match &mut self.srq {
            Some(srq) => self.queue.fill(cache, |batch| srq.post_recv(batch)),
            None => Filled::default(),
        };
        let mut left = self.hungry.len();
        while left > 0
            && let Some(first) = self.hungry.front()
        {
            let slot = &mut slots[usize::from(*first)];
            let Some(qp) = &mut slot.qp else { break };
            let step = posting::refill(cache, &mut self.queue.refill, slot.missing, |batch| qp.post_recv(batch));
            slot.missing -= step.posted;
            self.posted += step.posted;
            filled.note(step);
            if step.is_starved {
                break;
            }
            if slot.missing == 0 {
                slot.is_hungry = false;
                self.hungry.pop_front();
            } else if step.stop.is_some() {
                // The device refuses a part: this queue is asked again later, behind the others.
                self.hungry.rotate_left(1);
            } else {
                continue;
            }
            left -= 1;
        }
        filled
    }

    /// Logs, once, that the device refuses receives that it has room for.
    fn tell_refusal(&mut self, port: &str, refused: Option<PostStop>) {
        if let Some(stop) = refused
            && !std::mem::replace(&mut self.is_refusal_told, true)
        {
            tracing::error!(
                %port, %stop,
                "cannot post receives, which is tried again every millisecond; peers wait as long, or lose what they \
                 send: if `rx_starved` of the port goes on rising, see the kernel's log of the device, and start again"
            );
        }
    }
}

impl MultiPort {
    /// Handles the shared queue's completions at the front. Returns the number handled, at least
    /// one.
    pub(super) fn received_run(&mut self, completions: &[Completion], ctx: &mut LcoreContext) -> usize {
        let Some(receiving) = &mut self.receiving else {
            self.stats.stale.add(1);
            return 1;
        };
        let (Some(srq), Delivery::Sink(sink), false) = (&mut receiving.srq, receiving.queue.next, ctx.tap.is_some())
        else {
            self.received_one(&completions[0], ctx);
            return 1;
        };
        let batch = &mut ctx.sinks[usize::from(sink)].batch;
        let before = batch.len();
        let count = srq.recv_run(completions, batch);
        if count == 0 {
            self.received_one(&completions[0], ctx);
            return 1;
        }
        let (mut all_told, mut of) = (true, completions.iter());
        let each = |packet: &mut Packet| {
            let slot = of.next().and_then(|completion| self.by_qpn.slot(completion.qp_num())).map(|at| &self.slots[at]);
            packet.set_connection(slot.and_then(|slot| slot.connection));
            all_told &= slot.is_some_and(|slot| slot.is_told);
        };
        receiving.queue.stamp_run(&mut batch.as_mut_slice()[before..], self.index, &ctx.time, &self.stats, each);
        if !all_told {
            self.sort_out(usize::from(sink), before, completions, ctx);
        }
        count
    }

    /// As of a port with one queue pair.
    pub(crate) fn close_input(&mut self) {
        if let Some(receiving) = &mut self.receiving {
            receiving.queue.next = Delivery::Drop(DropReason::Stopped);
        }
    }

    /// Takes packets back out of a sink that the stages are not to have yet, or at all.
    #[cold]
    fn sort_out(&mut self, sink: usize, before: usize, completions: &[Completion], ctx: &mut LcoreContext) {
        let Some(receiving) = &mut self.receiving else { return };
        let batch = &mut ctx.sinks[sink].batch;
        let mut sorted = std::mem::replace(&mut receiving.sorted, Batch::with_capacity(0));
        while batch.len() > before {
            sorted.push_iter(batch.pop());
        }
        for completion in completions {
            let Some(mut packet) = sorted.pop() else { break };
            if packet.connection().is_none() {
                packet.set_connection(self.look_again(completion.qp_num(), &mut ctx.sinks));
            }
            self.hand_on(packet, ctx);
        }
        if let Some(receiving) = &mut self.receiving {
            receiving.sorted = sorted;
        }
    }

    /// Looks up the connection of a queue pair unknown to the lcore. The cm thread announced it
    /// before the peer could send, but the lcore may not have read its messages since.
    #[cold]
    pub(super) fn look_again(&mut self, qpn: u32, sinks: &mut [Sink]) -> Option<ConnectionId> {
        while self.by_qpn.slot(qpn).is_none() && self.take_messages(false, sinks) {}
        self.slots[self.by_qpn.slot(qpn)?].connection
    }

    /// Hands on a packet: to the stages if they know its connection, to `early` if they do not yet,
    /// or away if the connection is unknown.
    fn hand_on(&mut self, packet: Packet, ctx: &mut LcoreContext) {
        let Some(receiving) = &mut self.receiving else { return };
        // The connection may have gone since the packet was found: another packet of the same poll
        // made the lcore read the cm thread's messages.
        let slot = packet.connection().and_then(|connection| slot_of(&self.slots, connection));
        match slot {
            None => self.stats.drops.add(DropReason::NoConnection, 1),
            Some(slot) if !slot.is_told => match receiving.early.push(packet) {
                Ok(()) => receiving.queue.missing -= 1,
                // `early` has room for every receive of the shared queue; connections' own queues
                // have none before the stages know of the connection.
                Err(_) => self.stats.drops.add(DropReason::NoConnection, 1),
            },
            Some(_) => receiving.queue.next.hand_on(packet, ctx, &self.stats),
        }
    }

    /// Handles the completion of a shared receive that is no ordinary message, or does not fit.
    #[cold]
    fn received_one(&mut self, completion: &Completion, ctx: &mut LcoreContext) {
        let srq = self.receiving.as_mut().and_then(|receiving| receiving.srq.as_mut());
        let Some(Ok(packet)) = srq.map(|srq| srq.recv_done(completion)) else { return self.stats.stale.add(1) };
        if let Some(receiving) = &mut self.receiving {
            receiving.queue.missing += 1;
        }
        self.received_alone(packet, completion, ctx);
    }

    /// Handles a receive of a connection's own queue.
    pub(super) fn received_own(&mut self, completion: &Completion, ctx: &mut LcoreContext) {
        let Some(at) = self.by_qpn.slot(completion.qp_num()) else { return self.stats.stale.add(1) };
        let slot = &mut self.slots[at];
        let (Some(qp), Some(receiving)) = (&mut slot.qp, &mut self.receiving) else { return self.stats.stale.add(1) };
        let Ok(packet) = qp.recv_done(completion) else { return self.stats.stale.add(1) };
        slot.missing += 1;
        receiving.posted -= 1;
        if slot.state == State::Open && slot.missing >= receiving.queue.worth_wr && !slot.is_hungry {
            slot.is_hungry = true;
            receiving.hungry.push_back(at as u16);
        }
        self.received_alone(packet, completion, ctx);
        self.release_if_drained(at, &mut ctx.sinks);
    }

    fn received_alone(&mut self, mut packet: Packet, completion: &Completion, ctx: &mut LcoreContext) {
        let at = self.by_qpn.slot(completion.qp_num());
        if !completion.is_ok() {
            drop(packet);
            return self.receive_failed(at, completion.qp_num(), completion.status(), &mut ctx.sinks);
        }
        if let Some(receiving) = &self.receiving {
            receiving.queue.stamp(&mut packet, self.index, &ctx.time, &self.stats);
            if let Delivery::OneByOne(_) = receiving.queue.next {
                receiving.queue.note(&mut packet, completion);
            }
        }
        let known = at.and_then(|at| self.slots[at].connection);
        packet.set_connection(known.or_else(|| self.look_again(completion.qp_num(), &mut ctx.sinks)));
        if let Some(tap) = &mut ctx.tap {
            let qp = at.and_then(|at| self.slots[at].qp.as_ref());
            tap.received(self.index, &packet, qp.map(|qp| CapturePath::of(qp)), completion);
        }
        self.hand_on(packet, ctx);
    }

    /// Handles a failed receive. A flushed one is an empty buffer, and no message.
    #[cold]
    fn receive_failed(&mut self, at: Option<usize>, qpn: u32, status: Status, sinks: &mut [Sink]) {
        let is_closing = at.is_some_and(|at| self.slots[at].state == State::Closing);
        if !(is_closing && status == Status::WR_FLUSH_ERR) {
            self.stats.count_status(status);
        }
        if status != Status::WR_FLUSH_ERR {
            self.stats.drops.add(DropReason::RecvError, 1);
        }
        // The cm thread may have announced it, and the lcore not have read that yet.
        if let Some(at) = at.or_else(|| self.look_again(qpn, sinks).map(ConnectionId::slot)) {
            self.fail(at, status.name(), sinks);
        }
    }

    /// Queues an open connection with a queue of its own for receives.
    pub(super) fn feed(&mut self, at: usize) {
        let Some(receiving) = self.receiving.as_mut().filter(|receiving| receiving.srq.is_none()) else { return };
        let slot = &mut self.slots[at];
        slot.missing = receiving.queue.depth_wr;
        if !std::mem::replace(&mut slot.is_hungry, true) {
            receiving.hungry.push_back(at as u16);
        }
    }

    /// Gives a connection that is over no more receives.
    pub(super) fn starve(&mut self, at: usize) {
        let Some(receiving) = self.receiving.as_mut().filter(|_| self.slots[at].is_hungry) else { return };
        self.slots[at].is_hungry = false;
        receiving.hungry.retain(|hungry| usize::from(*hungry) != at);
    }

    /// Forgets receives of a connection's own queue that never completed, and go with its queue
    /// pair.
    pub(super) fn forget_receives(&mut self, count: usize) {
        let Some(receiving) = self.receiving.as_mut().filter(|receiving| receiving.srq.is_none()) else { return };
        receiving.posted -= count;
        self.gauge_receives();
    }

    pub(super) fn refill_if_due(&mut self, ctx: &mut LcoreContext) -> bool {
        let Some(receiving) = &self.receiving else { return false };
        match receiving.queue.retry_ns {
            Some(retry_ns) if retry_ns > ctx.time.now_ns() => false,
            None if receiving.is_settled() => false,
            _ => self.refill(ctx),
        }
    }

    /// Fills the receive queues, as far as the pool has packets. Returns true if it posted
    /// something.
    fn refill(&mut self, ctx: &LcoreContext) -> bool {
        let Some(cache) = self.receiving.as_ref().map(ManyReceiving::cache) else { return false };
        let posted = self.fill_first(&ctx.caches[cache], &ctx.stats);
        let Some(receiving) = &mut self.receiving else { return false };
        let starved = receiving.queue.missing >= receiving.queue.worth_wr || !receiving.hungry.is_empty();
        receiving.queue.retry_ns = starved.then(|| ctx.time.last_ns() + STARVED_RETRY_NS);
        self.stats.rx_starved.add(starved.into());
        posted > 0
    }

    /// Like [`MultiPort::refill`], before the lcore is on its thread: its turns post the receives
    /// that are still missing then. Returns the number posted.
    pub(crate) fn fill_first(&mut self, cache: &PoolCache, lcore: &LcoreStats) -> usize {
        let Some(receiving) = &mut self.receiving else { return 0 };
        let filled = receiving.fill(cache, &mut self.slots);
        receiving.tell_refusal(&self.name, filled.refused);
        self.stats.rx_posted.add(filled.posted as u64);
        lcore.taken.add(filled.taken as u64);
        self.gauge_receives();
        filled.posted
    }

    /// Returns the number of packets that wait for their connection to open.
    pub(crate) fn early_waiting(&self) -> usize {
        self.receiving.as_ref().map_or(0, |receiving| receiving.early.len())
    }

    /// Counts the packets that wait for their connection to open, as the run ends, and the posted
    /// sends whose completion was to come and did not.
    pub(crate) fn count_stopped(&self, sinks: &[Sink]) {
        self.stats.drops.add(DropReason::Stopped, (self.early_waiting() + self.unanswered(sinks)) as u64);
    }

    fn gauge_receives(&self) {
        let Some(receiving) = &self.receiving else { return };
        let shared = receiving.srq.as_ref().map_or(0, SharedReceiveQueue::recvs_outstanding);
        let held = shared + receiving.posted + receiving.queue.refill.len() + receiving.early.len();
        self.stats.rx_outstanding.set(held as u64);
    }
}
