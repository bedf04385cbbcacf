//! An lcore whose turns a test takes: [`crate::testing`] uses it to call one stage.
//!
//! Guarantees: stages are called by the same code as in a run. Their packets stay in the sinks at
//! the end of a turn, since neither ports nor rings take part in it.

use std::io;

use super::Lcore;
use crate::api::stage::PortChange;
use crate::lcore::node::Node;
use crate::ports::state::LcoreState;

impl Lcore {
    /// From now on, leaves the stages' packets in the sinks.
    pub(crate) fn keep_sends(&mut self) {
        self.works = |lcore, arrived| arrived | lcore.run_nodes::<false>();
    }

    /// Takes one turn, as after a sleep with any cause. Returns true if it found work.
    pub(crate) fn take_turn(&mut self) -> io::Result<bool> {
        self.hear()?;
        for node in &mut self.nodes {
            node.wake();
            self.polling = self.polling.min(node.polling());
        }
        let is_busy = self.run_turn();
        let LcoreState { ctx, many, .. } = &mut self.state;
        many.iter_mut().for_each(|port| port.close_asked(&mut ctx.sinks));
        // Nobody posts the stage's operations: clear the flag, so that they do not keep it busy in
        // every turn.
        ctx.sinks.iter_mut().filter_map(|sink| sink.operations()).for_each(|(queue, _)| queue.is_fresh = false);
        Ok(is_busy)
    }

    /// Takes completions and notices, and tells the stages of them.
    pub(crate) fn hear(&mut self) -> io::Result<()> {
        self.take_completions();
        if self.control.word() != self.seen { self.read_notices().map(drop) } else { Ok(()) }
    }

    /// Tells the stages what happened to a port, by its place in the plan.
    pub(crate) fn tell(&mut self, port: u16, change: PortChange) {
        let sending = self.ports.iter().find(|known| known.index == port).and_then(|port| port.sending.as_ref());
        let queue = sending.and_then(|sending| self.state.ctx.sinks[sending.sink].operations());
        if let Some((queue, _)) = queue.filter(|_| matches!(change, PortChange::Down | PortChange::Up)) {
            queue.is_down = change == PortChange::Down;
        }
        self.tell_of_port(port, change);
    }

    /// Tells the remaining stages that the run is stopping.
    pub(crate) fn tell_of_stop(&mut self) {
        self.stop_nodes(true);
    }

    /// Returns the stages, and the state that they share.
    pub(crate) fn parts(&mut self) -> (&[Node], &mut LcoreState) {
        (&self.nodes, &mut self.state)
    }
}
