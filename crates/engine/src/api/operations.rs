//! A stage's calls for operations, and for sends with options, through its outputs.

use verbline_mem::Packet;

use crate::api::outputs::{OutId, Output, Outputs};
use crate::operations::declined::{Accepted, DeclineReason, Declined};
use crate::operations::operation::Operation;
use crate::operations::queue::OperationQueue;
use crate::operations::send_with::SendWith;

impl Outputs<'_> {
    /// [`Outputs::send`] with options, to a port whose plan says `send_options`. The stage's kind
    /// declares such sends ([`StageSpec::sends`](crate::StageSpec::sends)), so that `check` refuses
    /// a plan whose port lacks the key.
    #[inline]
    pub fn send_with(&mut self, out: OutId, mut packet: Packet, options: SendWith) -> bool {
        options.ask(&mut packet);
        self.send(out, packet)
    }

    /// Hands an operation to the port of the output. It is posted at the end of the turn, after
    /// this lcore's earlier sends to the port and before its later ones.
    ///
    /// # Errors
    /// The operation comes back with the reason, and is counted.
    #[inline]
    pub fn operate(&mut self, out: OutId, operation: Operation) -> Result<(), Declined> {
        let [()] = self.operate_all(out, [operation]).map(|()| [()]).map_err(|declined| {
            let [operation] = declined.operation;
            Declined { operation, reason: declined.reason }
        })?;
        Ok(())
    }

    /// Hands several operations to the port: all of them, in this order, or none. So a WRITE and
    /// the SEND that announces it go together.
    ///
    /// # Errors
    /// All operations come back with the reason, and are counted.
    pub fn operate_all<const N: usize>(
        &mut self,
        out: OutId,
        operations: [Operation; N],
    ) -> Result<(), Declined<[Operation; N]>> {
        let stage = self.stats;
        let Some((queue, sends)) = self.operation_queue(out) else {
            return Err(Declined { operation: operations, reason: DeclineReason::NoPort });
        };
        queue.accept(stage, sends, operations)
    }

    /// Hands up to `n` operations to the port, as many as it has room for, in the order of `next`,
    /// which is called with 0, 1, 2, …, once per operation with room. Cheaper than single calls:
    /// common checks are done once.
    ///
    /// Stops at an operation that is declined for another reason than room; that one comes back,
    /// and is counted.
    #[inline]
    pub fn operate_each(&mut self, out: OutId, n: usize, mut next: impl FnMut(usize) -> Operation) -> Accepted {
        let stage = self.stats;
        match self.operation_queue(out) {
            Some((queue, sends)) => queue.accept_each(stage, sends, n, next),
            None if n == 0 => Accepted { count: 0, declined: None },
            None => {
                let declined = Declined { operation: next(0), reason: DeclineReason::NoPort };
                Accepted { count: 0, declined: Some(declined) }
            }
        }
    }

    /// The number of operations that the output takes now; 0 if it leads to no port with
    /// operations.
    pub fn operations_room(&mut self, out: OutId) -> usize {
        self.operation_queue(out).map_or(0, |(queue, _)| queue.room())
    }

    /// The number of signature keys of each queue pair of the output's port: the plan's
    /// `signature_keys`, or 0 if the device has no signature offload.
    pub fn signature_keys(&mut self, out: OutId) -> usize {
        self.operation_queue(out).map_or(0, |(queue, _)| queue.keys.into())
    }

    /// The operation queue of the output's port, and the number of packets that wait to be sent
    /// there.
    #[inline]
    fn operation_queue(&mut self, out: OutId) -> Option<(&mut OperationQueue, usize)> {
        let Some(Output::Sink(index)) = self.links.get(usize::from(out.0)) else { return None };
        self.lcore.operations_at(usize::from(*index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use crate::stats::counter::shared;
    use crate::stats::counters::StageStats;

    #[test]
    fn an_output_that_leads_to_no_port_asks_for_one_operation_at_most_and_declines_it() {
        let (rig, stats) = (Rig::new(1), shared::<StageStats>());
        let mut state = rig.lcore_state(Vec::new(), 0);
        let mut out = Outputs { links: &[], stats: &stats, lcore: &mut state, cache: 0, timers: None, sent: 0 };
        for n in [0, 1, 3] {
            let mut asked = 0;
            let accepted = out.operate_each(OutId(0), n, |_| {
                asked += 1;
                Operation::invalidate(9)
            });
            let declined = accepted.declined.map(|declined| declined.reason);
            let expected = (n > 0).then_some(DeclineReason::NoPort);
            assert_eq!((accepted.count, declined, asked), (0, expected, n.min(1)));
        }
    }
}
