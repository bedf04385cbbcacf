//! Polls rings that differ in priority, or take turns.

use crate::lcore::poll_loop::Lcore;
use crate::lcore::rings::take_turns;
use crate::lcore::steps;

impl Lcore {
    /// Polls the lanes of rings that differ in priority, or take turns.
    #[inline(never)]
    pub(super) fn poll_in_order<const WATCHED: bool>(&mut self) -> bool {
        let (mut arrived, mut at) = (false, 0);
        // Of the last consumer that had something: the start and the number of its less urgent
        // lanes.
        let (mut lower_from, mut lower) = (usize::MAX, 0);
        // The end of the lanes that this turn has reordered.
        let mut turned_to = 0;
        while let Some(ring) = self.rings_in.get_mut(at) {
            // Skip the less urgent lanes, and a lane that made room for its equals and has had its
            // burst.
            let passed = if at == lower_from { lower } else { usize::from(at + 1 == turned_to) };
            if passed > 0 {
                at += passed;
                continue;
            }
            let popped = ring.poll(&mut self.state.ctx.sinks);
            if popped > 0 {
                if WATCHED {
                    steps::popped(&mut self.trace, ring, popped, &mut self.state.ctx);
                }
                arrived = true;
                // In a timed turn, one of some sixteen under load, the less urgent lanes get a
                // burst too, and another lane comes first.
                if self.state.ctx.time.wake() {
                    ring.gauge(popped);
                    let peers = ring.order.peers;
                    if peers > 0 && at >= turned_to {
                        turned_to = at + 1 + peers;
                        take_turns(&mut self.rings_in[at..turned_to]);
                        continue;
                    }
                } else {
                    (lower_from, lower) = (at + 1 + ring.order.peers, ring.order.lower);
                }
            }
            at += 1;
        }
        arrived
    }
}
