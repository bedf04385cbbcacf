//! The end of an lcore: drains until nothing is in flight, then releases everything it holds.

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use verbline_verbs::{Completion, WrKind};

use crate::control::run_control::Phase;
use crate::lcore::completing::complete_runs;
use crate::lcore::node::Node;
use crate::lcore::poll_loop::Lcore;
use crate::operations::queue::OperationQueue;
use crate::ports::multi_port::MultiPort;
use crate::ports::single_port::Port;
use crate::ports::sink::{Sink, SinkStats};
use crate::ports::state::LcoreState;
use crate::stats::calling::Call;
use crate::stats::clock::Tick;
use crate::stats::drop_reason::DropReason;

/// The time that an lcore has for what came after all was quiet, or is left when its drain is over
/// and no message comes any more. Other lcores end meanwhile.
const LATE_WITHIN_NS: u64 = 500_000_000;

impl Lcore {
    /// Releases everything, on this thread: counts pending packets as dropped, drops the stages one
    /// by one, takes back the packets that the device held from the queue pairs, and empties the
    /// caches. Calls `failed` with the name and the panic message of each stage that panicked as it
    /// was dropped.
    pub(crate) fn tear_down(self, mut failed: impl FnMut(&str, String)) {
        let Lcore { state: LcoreState { mut ctx, many, .. }, nodes, ports, rings_in, rings_out, wakes, .. } = self;
        // Before the operation queues give up what they list.
        ports.iter().for_each(|port| port.count_stopped(&ctx.sinks));
        many.iter().for_each(|port| port.count_stopped(&ctx.sinks));
        drop_stopped(&mut ctx.sinks);
        for sink in &mut ctx.sinks {
            if let SinkStats::Operations(queue) = &mut sink.stats {
                let abandoned = queue.abandon();
                queue.drops().add(DropReason::Stopped, abandoned as u64);
            }
        }
        // Packets that a stage that panicked had not taken yet.
        nodes.iter().for_each(Node::count_stopped);
        for (index, node) in nodes.into_iter().enumerate() {
            // Dropping a stage may take long; the time of this drop begins here.
            ctx.time.restart();
            ctx.stats.calling.set(Call::Drop.of(index));
            let name = node.name.clone();
            node.let_go().into_iter().for_each(|said| failed(&name, said));
        }
        ctx.stats.calling.clear();
        drop((rings_in, rings_out));
        drop((ports, many));
        drop(wakes);
        drop(ctx);
    }

    /// Stops the sources and runs on until nothing is in flight on any lcore, which control
    /// decides. After the drain budget is spent, control no longer waits for this lcore; if the run
    /// has failed, it ends.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        let until_ns = self.state.ctx.time.clock().now_ns().saturating_add(self.drain.budget_ns);
        let mut is_stopped = self.stop_nodes(false);
        self.drain_ports();
        let control = Arc::clone(&self.control);
        let pulse = &control.pulses[self.index];
        // Packets that this lcore sent before it read of the drain, or as its stages stopped, count
        // as activity of the drain. Otherwise the run could be found quiet while they are under
        // way.
        pulse.beat(true);
        // The lcore may read of the end first; then its stages are told nothing more.
        let (mut is_told, mut was_busy) = (Phase::of(self.seen) == Phase::Ending, false);
        while !is_told && self.state.ctx.time.last_ns() < until_ns {
            let has_notices = self.control.word() != self.seen && self.read_notices()?;
            // Also before the first turn: a run that fails passes through the drain quickly.
            is_told = Phase::of(self.seen) == Phase::Ending;
            if is_told {
                break;
            }
            is_stopped = is_stopped || self.stop_nodes(false);
            was_busy = self.run_turn();
            self.drain_ports();
            // A notice may have made the lcore take turns.
            pulse.beat(has_notices || was_busy || self.is_awaiting());
        }
        if !is_stopped {
            self.stop_nodes(true);
        }
        // If the budget is spent, a last turn takes the packets still on their way, however small
        // the budget was.
        if !is_told {
            was_busy = self.run_turn();
        }
        let late_until_ns = self.state.ctx.time.clock().now_ns().saturating_add(LATE_WITHIN_NS);
        let is_undelivered = (was_busy || self.is_awaiting()) && !self.finishes_without_others(late_until_ns);
        if is_undelivered {
            control.update(|progress| progress.undelivered += 1);
        }
        let mut is_left = is_told && self.is_left_late(until_ns.min(late_until_ns));
        // Other lcores may have longer, and send to this one's ports and rings until all end
        // together.
        let goes_on = !is_told;
        let has_failed = !is_told && control.with(|progress| !progress.failures.is_empty());
        while !is_told && !has_failed {
            self.run_turn();
            self.drain_ports();
            pulse.beat(false);
            if self.control.word() != self.seen {
                self.read_notices()?;
                is_told = Phase::of(self.seen) == Phase::Ending;
            }
        }
        is_left |= goes_on && !is_undelivered && self.has_undelivered();
        let came_late = self.has_come_late();
        is_left |= came_late && !self.drain.hears_others;
        if is_left {
            control.update(|progress| progress.left_late += 1);
        }
        Ok(())
    }

    /// Finishes what came after the owner had found all quiet (a timer was due, or a peer of
    /// another process sent something), unless the run has failed. Returns true if some of it is
    /// left.
    fn is_left_late(&mut self, until_ns: Tick) -> bool {
        if !self.is_awaiting() || self.control.with(|progress| !progress.failures.is_empty()) {
            return self.has_undelivered();
        }
        !self.finishes_by(until_ns)
    }

    /// Drops messages from now on if other processes may go on sending them, as the clients of a
    /// server do, and finishes the rest. Returns false if that can't be, or if some of it is left.
    fn finishes_without_others(&mut self, until_ns: Tick) -> bool {
        let awaits_packets = self.nodes.iter().any(Node::awaits_packets);
        if !self.drain.hears_others || awaits_packets || self.control.with(|progress| !progress.failures.is_empty()) {
            return false;
        }
        self.ports.iter_mut().for_each(Port::close_input);
        self.state.many.iter_mut().for_each(MultiPort::close_input);
        self.finishes_by(until_ns)
    }

    /// Takes a turn at least, and more until nothing has to be waited for, or until this tick.
    fn finishes_by(&mut self, until_ns: Tick) -> bool {
        loop {
            self.run_turn();
            self.drain_ports();
            if !self.is_awaiting() || self.state.ctx.time.last_ns() >= until_ns {
                return !self.is_awaiting();
            }
        }
    }

    /// Takes the messages that came after the last turn, and counts them as dropped: no stage is
    /// called any more. Returns true if there are any. Completions of operations stay what they
    /// were: not back at their stage.
    fn has_come_late(&mut self) -> bool {
        let (mut left, mut any) = (self.wakes.depth_wc(), false);
        while left > 0 {
            let found = self.wakes.poll(&mut self.completions);
            if found == 0 {
                break;
            }
            let is_message = |one: &&Completion| one.kind() == WrKind::Recv && one.is_ok();
            for message in self.completions.iter().filter(is_message) {
                complete_runs::<false>(std::slice::from_ref(message), &mut self.ports, &mut self.state);
                // One at a time: the input of a stage has room for a turn's.
                any |= drop_stopped(&mut self.state.ctx.sinks) > 0;
            }
            self.completions.clear();
            left = left.saturating_sub(found);
        }
        any || self.state.many.iter().any(|port| port.early_waiting() > 0)
    }

    fn drain_ports(&mut self) {
        self.ports.iter_mut().for_each(Port::drain);
        self.state.many.iter_mut().for_each(MultiPort::drain);
    }

    /// Tells the stages that the run is stopping. A stage that a ring holds back is told once it
    /// may run again, or now if `held_too`: its packets find room like the rest. Returns true if
    /// all are told.
    pub(super) fn stop_nodes(&mut self, held_too: bool) -> bool {
        loop {
            self.tell_late();
            let mut are_all = true;
            for (index, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| node.is_to_stop()) {
                if node.is_held() && !held_too {
                    are_all = false;
                    continue;
                }
                self.state.ctx.stats.calling.set(Call::Stop.of(index));
                node.stop(&mut self.state);
                self.polling = self.polling.min(node.polling());
            }
            self.state.ctx.stats.calling.clear();
            self.settled = false;
            // A ring that holds back has room for the packets of one turn; the next turn follows.
            let let_go = !self.holds.is_empty() && {
                self.publish::<true>();
                self.hold_back()
            };
            if are_all || !let_go {
                return are_all;
            }
        }
    }

    /// Whether something has to be waited for: what [`Lcore::has_undelivered`] says, or packets
    /// that a stage expects.
    fn is_awaiting(&self) -> bool {
        self.has_undelivered() || self.nodes.iter().any(Node::awaits_packets)
    }

    /// Whether something is under way: what [`Lcore::has_waiting`] says, or the completion
    /// of a send.
    fn has_undelivered(&self) -> bool {
        self.has_waiting() || self.awaits_completion()
    }

    /// Whether a packet waits to be sent, for its peer's address handle, or for its connection to
    /// open; or an operation is not back at its stage.
    fn has_waiting(&self) -> bool {
        let operates = |sink: &Sink| sink.queue().is_some_and(OperationQueue::has_under_way);
        self.state.ctx.sinks.iter().any(|sink| !sink.batch.is_empty() || operates(sink))
            || self.ports.iter().any(|port| port.datagrams_waiting() > 0)
            || self.state.many.iter().any(|port| port.early_waiting() > 0)
    }

    /// Whether the completion of a send or of an operation is still to come.
    pub(super) fn awaits_completion(&self) -> bool {
        self.ports.iter().any(Port::awaits_completion) || self.state.many.iter().any(MultiPort::awaits_completion)
    }
}

/// Drops the packets that wait in sinks, and counts them. Returns their number.
fn drop_stopped(sinks: &mut [Sink]) -> usize {
    let drop_of = |sink: &mut Sink| {
        let packets = sink.batch.len();
        sink.stats.drops().add(DropReason::Stopped, packets as u64);
        sink.batch.clear();
        packets
    };
    sinks.iter_mut().map(drop_of).sum()
}
