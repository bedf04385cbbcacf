//! [`LcoreState`]: a stage's view of its lcore, i.e. the context that it shares with the ports, and
//! the ports with many connections.

use verbline_mem::ConnectionId;
use verbline_verbs::Completion;

use crate::control::run_control::Failing;
use crate::operations::queue::OperationQueue;
use crate::ports::context::LcoreContext;
use crate::ports::multi_port::MultiPort;

/// See the top of this file.
pub(crate) struct LcoreState {
    pub(crate) ctx: LcoreContext,
    /// The ports with many connections. Their tags follow those of the other ports.
    pub(crate) many: Vec<MultiPort>,
    pub(crate) failing: Failing,
}

impl LcoreState {
    /// Returns the operations of the port that this sink gathers for, and the number of packets
    /// there.
    #[inline]
    pub(crate) fn operations_at(&mut self, sink: usize) -> Option<(&mut OperationQueue, usize)> {
        let (queue, batch) = self.ctx.sinks[sink].operations()?;
        Some((queue, batch.len()))
    }

    /// Hands completions of no port with one queue pair to their owners. Returns the number taken,
    /// at least one.
    #[inline(never)]
    pub(crate) fn complete_many(&mut self, completions: &[Completion], fixed_ports: usize) -> usize {
        let place = usize::from(completions[0].tag()).checked_sub(fixed_ports);
        match place.and_then(|place| self.many.get_mut(place)) {
            Some(port) => port.complete_run(completions, &mut self.ctx),
            None => {
                self.ctx.stats.strays.add(1);
                1
            }
        }
    }

    /// Returns the port with many connections that this connection belongs to.
    pub(crate) fn port_of(&self, connection: ConnectionId) -> Option<&MultiPort> {
        self.many.iter().find(|port| port.index == connection.port())
    }

    /// Like [`LcoreState::port_of`], mutable.
    pub(crate) fn port_of_mut(&mut self, connection: ConnectionId) -> Option<&mut MultiPort> {
        self.many.iter_mut().find(|port| port.index == connection.port())
    }
}
