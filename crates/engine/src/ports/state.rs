//! [`LcoreState`]: what a stage reaches of its lcore, which is the context that it shares with the
//! ports, and the ports with many connections.

use verbline_mem::ConnectionId;
use verbline_verbs::Completion;

use crate::control::failing::Failing;
use crate::operations::queue::OperationQueue;
use crate::ports::context::LcoreContext;
use crate::ports::multi_port::MultiPort;

/// See the top of this file.
pub(crate) struct LcoreState {
    pub(crate) ctx: LcoreContext,
    /// Their tags follow those of the other ports.
    pub(crate) many: Vec<MultiPort>,
    pub(crate) failing: Failing,
}

impl LcoreState {
    /// The operations of the port that this sink gathers for, and how many packets wait there.
    #[inline]
    pub(crate) fn operations_at(&mut self, sink: usize) -> Option<(&mut OperationQueue, usize)> {
        let (queue, batch) = self.ctx.sinks[sink].operations()?;
        Some((queue, batch.len()))
    }

    /// Hands completions that belong to none of the ports with one queue pair to where they belong.
    /// Returns how many it took, at least one.
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

    /// The port with many connections of which this is one.
    pub(crate) fn port_of(&self, connection: ConnectionId) -> Option<&MultiPort> {
        self.many.iter().find(|port| port.index == connection.port())
    }

    /// The same, to change something of it.
    pub(crate) fn port_of_mut(&mut self, connection: ConnectionId) -> Option<&mut MultiPort> {
        self.many.iter_mut().find(|port| port.index == connection.port())
    }
}
