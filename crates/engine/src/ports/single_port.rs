//! A port: one queue pair, the packets that wait to be sent through it, and the packets that refill
//! its receive queue.
//!
//! A port with an address may be given another queue pair after its connection was lost
//! ([`reconnect`]). Until then the port drops its stages' packets and counts them (`port_down`): a
//! peer that comes back does not want old messages first.
//!
//! Guarantees: when the send queue is full, packets stay in the port's bounded pending batch, and
//! packets that do not fit there are dropped and counted (`tx_full`); receives are reposted in
//! batches; every packet that a completion returns is handed on or counted.

pub(crate) mod changing;
mod health;
mod operations;
pub(crate) mod reconnect;

#[cfg(test)]
mod model;

use verbline_mem::PoolCache;
use verbline_verbs::{Completion, PostStop, QpError, Stale, WrKind};

use crate::capture::tap::CapturePath;
use crate::connection::alternate::Alternate;
use crate::connection::cm_mailbox::Reconnecting;
use crate::connection::port_qp::{PortQp, SendDone};
use crate::control::change::Changing;
use crate::control::run_control::LcoreInbox;
use crate::ports::context::LcoreContext;
use crate::ports::posting::{self, STARVED_RETRY_NS};
use crate::ports::rx_half::{Delivery, Receiving};
use crate::ports::sink::Sink;
use crate::ports::tx_half::Sending;
use crate::stats::clock::Tick;
use crate::stats::counter::Shared;
use crate::stats::counters::{LcoreStats, PortStats};
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

/// A port of an lcore.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// Its place among the ports of the plan.
    pub(crate) index: u16,
    pub(crate) qp: PortQp,
    pub(crate) receiving: Option<Receiving>,
    pub(crate) sending: Option<Sending>,
    pub(crate) stats: Shared<PortStats>,
    pub(crate) health: Health,
    /// Where to report that the port is down; `None` before the lcore has begun.
    pub(crate) inbox: Option<LcoreInbox>,
    /// `None`: the port has no address.
    pub(crate) reconnect: Option<Reconnecting>,
    /// The change for which its send queue is being drained.
    pub(crate) changing: Option<Changing>,
    /// Its send queue is drained, and holds packets until the port is resumed.
    pub(crate) is_paused: bool,
    /// An alternate path to its peer.
    pub(crate) alternate: Option<Box<Alternate>>,
}

/// Which halves of a queue pair work. An error on an RC queue pair, or in any receive, takes both
/// out of service (state ERR); an error in a send of UC or UD only the sending half (state SQE;
/// InfiniBand Architecture Specification, 10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Health {
    Up,
    SendsDown,
    Down,
}

impl Port {
    /// Handles a completion: hands on a received packet, or frees the packets that were sent.
    #[inline]
    pub(crate) fn complete<const TAP: bool>(&mut self, completion: &Completion, ctx: &mut LcoreContext) {
        match completion.kind() {
            WrKind::Recv => self.received::<TAP>(completion, ctx),
            WrKind::Send => self.sent(completion, ctx),
            WrKind::Op => self.operated(completion, ctx),
            WrKind::SrqRecv => self.stats.stale.add(1),
        }
    }

    /// Handles the first completion, which is of this port, and the consecutive receives of this
    /// port behind it. Returns the number handled, at least one.
    #[inline]
    pub(crate) fn complete_run(&mut self, completions: &[Completion], ctx: &mut LcoreContext) -> usize {
        let first = &completions[0];
        let count = if first.kind() == WrKind::Recv { self.received_run(completions, ctx) } else { 0 };
        if count == 0 {
            self.complete::<false>(first, ctx);
        }
        count.max(1)
    }

    /// Sends pending packets and refills the receive queue. Returns true if it moved something.
    // Always inlined into its callers, the two kinds of `Lcore::work`.
    #[inline(always)]
    pub(crate) fn work<const TAP: bool>(&mut self, ctx: &mut LcoreContext) -> bool {
        let flushed = match &self.sending {
            Some(sending) if !sending.is_plain => self.flush_unusual(ctx),
            Some(sending) => !ctx.sinks[sending.sink].batch.is_empty() && self.flush::<TAP>(ctx),
            None => false,
        };
        let Some(receiving) = &self.receiving else { return flushed };
        let due = match receiving.retry_ns {
            Some(retry_ns) => retry_ns <= ctx.time.now_ns(),
            None => receiving.missing >= receiving.worth_wr,
        };
        let cache = receiving.cache;
        (due && self.refill(&ctx.caches[cache], &ctx.stats, ctx.time.last_ns())) | flushed
    }

    /// Whether the port has nothing to do in the next turn unless something arrives or is sent.
    pub(crate) fn is_settled(&self, sinks: &[Sink]) -> bool {
        self.sending.as_ref().is_none_or(|sending| sending.is_settled(sinks))
            && self.receiving.as_ref().is_none_or(Receiving::is_settled)
    }

    /// Returns when the port needs a turn even if nothing arrives.
    pub(crate) fn retry_ns(&self) -> Option<Tick> {
        self.receiving.as_ref().and_then(|receiving| receiving.retry_ns)
    }

    /// Signals the last send of every batch from now on, and puts a marker behind the sends that no
    /// signaled one covers. Called in every turn of a drain.
    pub(crate) fn drain(&mut self) {
        let Some(sending) = &mut self.sending else { return };
        sending.signal_ends = true;
        let by_packet = !sending.operates;
        if by_packet && !self.is_released() {
            self.qp.cover_sends(&self.name);
            self.stats.tx_outstanding.set(self.qp.sends_outstanding() as u64);
        }
    }

    /// Drops received messages from now on: other processes may go on sending.
    pub(crate) fn close_input(&mut self) {
        if let Some(receiving) = &mut self.receiving {
            receiving.next = Delivery::Drop(DropReason::Stopped);
        }
    }

    /// Whether a send is out whose completion will come. The release of a queue pair waits for its
    /// own. A queue pair that has failed flushes its sends, each with a completion. Sends that a
    /// change or a pause holds in the queue are not on the wire, and count as if one were to come.
    pub(crate) fn awaits_completion(&self) -> bool {
        let by_packet = self.sending.as_ref().filter(|sending| !sending.operates);
        let every_wr = by_packet.map_or(1, |sending| sending.signal_every_wr as usize);
        let is_held = self.is_paused || self.changing.is_some();
        let each_completes = by_packet.is_none() || is_held || self.health != Health::Up;
        !self.is_released() && self.qp.awaits_completion(every_wr, each_completes)
    }

    /// Whether the queue pair is being released, or is: the port may be given another.
    pub(super) fn is_released(&self) -> bool {
        self.health == Health::Down && self.reconnect.is_some()
    }

    /// Fills the receive queue, as far as the pool has packets. Returns true if it posted
    /// something.
    pub(crate) fn refill(&mut self, cache: &PoolCache, lcore: &LcoreStats, now_ns: Tick) -> bool {
        let Some(receiving) = self.receiving.as_mut().filter(|_| self.health < Health::Down) else { return false };
        let filled = receiving.fill(cache, |batch| self.qp.post_recv(batch));
        receiving.retry_ns = None;
        if filled.is_starved {
            self.stats.rx_starved.add(1);
            receiving.retry_ns = Some(now_ns + STARVED_RETRY_NS);
        }
        lcore.taken.add(filled.taken as u64);
        self.stats.rx_posted.add(filled.posted as u64);
        self.stats.rx_outstanding.set((receiving.depth_wr - receiving.missing + receiving.refill.len()) as u64);
        // A queue pair that was offered less than a burst is asked again.
        if let Some(stop) = filled.refused.filter(|_| !filled.is_starved) {
            tracing::error!(port = %self.name, %stop, "cannot post receives");
            self.go_down(Health::Down, DownReason::REFUSED);
        }
        filled.posted > 0
    }

    /// Hands on the packets of the first completions, as far as they are this port's next receives,
    /// succeeded, and fit their sink. Returns how many.
    #[inline]
    fn received_run(&mut self, completions: &[Completion], ctx: &mut LcoreContext) -> usize {
        let Some(receiving) = &mut self.receiving else { return 0 };
        let Delivery::Sink(sink) = receiving.next else { return 0 };
        let batch = &mut ctx.sinks[usize::from(sink)].batch;
        let before = batch.len();
        let count = self.qp.recv_run(completions, batch);
        receiving.stamp_run(&mut batch.as_mut_slice()[before..], self.index, &ctx.time, &self.stats, |_| {});
        count
    }

    #[inline]
    fn received<const TAP: bool>(&mut self, completion: &Completion, ctx: &mut LcoreContext) {
        let Some(receiving) = &mut self.receiving else { return self.stats.stale.add(1) };
        let Ok(mut packet) = self.qp.recv_done(completion) else { return self.stats.stale.add(1) };
        receiving.missing += 1;
        if !completion.is_ok() {
            return self.failed(completion.status(), DropReason::RecvError, Health::Down);
        }
        receiving.stamp(&mut packet, self.index, &ctx.time, &self.stats);
        if let Delivery::OneByOne(_) = receiving.next {
            receiving.note(&mut packet, completion);
            if let Some(datagrams) = self.sending.as_mut().and_then(|sending| sending.datagrams.as_mut()) {
                datagrams.know(&mut packet, completion, &mut self.qp);
            }
        }
        if TAP && let Some(tap) = &mut ctx.tap {
            tap.received(self.index, &packet, Some(CapturePath::of(&self.qp)), completion);
        }
        receiving.next.hand_on(packet, ctx, &self.stats);
    }

    #[inline]
    fn sent(&mut self, completion: &Completion, ctx: &mut LcoreContext) {
        let Some(sending) = &mut self.sending else { return self.stats.stale.add(1) };
        if !sending.is_plain {
            return self.sent_unusual(completion, ctx);
        }
        let done = self.qp.sent(completion, &mut sending.freed);
        self.send_ended(done, completion);
    }

    /// Records the completion of a send.
    #[inline]
    pub(super) fn send_ended(&mut self, done: Result<SendDone, Stale>, completion: &Completion) {
        self.stats.tx_outstanding.set(self.qp.sends_outstanding() as u64);
        match done {
            Ok(SendDone::Sent | SendDone::Marker) => {}
            Ok(SendDone::EndMarkerFailed) if self.health == Health::Up => {
                self.failed_with(completion.status(), self.left_by_failed_send());
            }
            Ok(SendDone::EndMarkerFailed) => {}
            Ok(SendDone::Failed) => {
                let left = self.left_by_failed_send();
                self.failed(completion.status(), DropReason::SendError, left);
            }
            Err(_) => self.stats.stale.add(1),
        }
    }

    /// Posts the pending packets, at least one, as one list where it fits. Returns true if any was
    /// posted or dropped.
    #[inline]
    fn flush<const TAP: bool>(&mut self, ctx: &mut LcoreContext) -> bool {
        let Some(sending) = &self.sending else { return false };
        let pending = &mut ctx.sinks[sending.sink].batch;
        if self.health != Health::Up {
            self.stats.drops.add(DropReason::PortDown, pending.len() as u64);
            self.stats.tx_pending.set(0);
            pending.clear();
            return true;
        }
        if TAP && let Some(tap) = &mut ctx.tap {
            tap.offer(self.index, pending.as_slice(), &self.qp);
        }
        let sent = posting::send(&mut self.qp, pending, sending.signal_ends, &self.stats);
        if TAP && let Some(tap) = &mut ctx.tap {
            tap.posted(self.index, sent.posted);
        }
        let is_moved = match sent.stop {
            None => true,
            Some(PostStop::Full) => sent.posted > 0,
            Some(stop) => {
                posting::refuse(pending, stop, &self.name, &self.stats);
                true
            }
        };
        self.stats.tx_pending.set(pending.len() as u64);
        self.stats.tx_outstanding.set(self.qp.sends_outstanding() as u64);
        is_moved
    }
}

/// The alternate path (automatic path migration). The device migrates by itself when ACKs don't
/// come; both ends of a connection have to be armed for it. The lcore hears of it by an event
/// (IBV_EVENT_PATH_MIG), and arms the failed path as the new alternate where it reads notices: a
/// system call on a kernel device, which only the queue pair's owner may make.
impl Port {
    /// Gives its connected queue pair the plan's alternate path, if there is one.
    pub(crate) fn arm_alternate(&mut self) -> Result<(), QpError> {
        self.alternate.as_mut().map_or(Ok(()), |alternate| alternate.arm(&mut self.qp))
    }

    /// Like [`Port::arm_alternate`], for a reconnected queue pair: it goes on without one if need
    /// be.
    #[cold]
    pub(in crate::ports) fn arm_again(&mut self) {
        if let Err(error) = self.arm_alternate() {
            tracing::warn!(port = %self.name, %error, "the port has no alternate path");
        }
    }

    /// Records that the path of its queue pair was changed.
    pub(in crate::ports) fn path_changed(&mut self) -> Result<(), QpError> {
        self.alternate.as_mut().map_or(Ok(()), |alternate| alternate.note(&mut self.qp))
    }

    /// The device has gone over to the alternate path, or could not.
    #[cold]
    pub(crate) fn path_migrated(&mut self, is_done: bool) {
        let Some(alternate) = self.alternate.as_mut().filter(|_| is_done) else { return };
        match alternate.swap(&mut self.qp) {
            Ok(()) => tracing::info!(port = %self.name, "the path that failed is the alternate one from now on"),
            Err(error) => tracing::warn!(port = %self.name, %error, "the port has no alternate path any more"),
        }
    }
}
