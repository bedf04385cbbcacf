//! Port events for stages that rings hold back. Such a ring has no room for the packets that a
//! stage would send in answer.
//!
//! Guarantees: a stage hears of each port's changes in their order, once it may run. Nothing is
//! allocated: a change that is undone meanwhile, and happens again, is told once.

use crate::api::stage::{PortChange, PortEvent};
use crate::lcore::node::Node;

/// Events per node and port: the last two changes of its queue pair, and two of its link.
const EACH: usize = 4;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct LateEvents(Vec<(usize, PortEvent)>);

impl LateEvents {
    /// Makes room for all events that these nodes may be told late.
    pub(crate) fn new(nodes: &[Node]) -> LateEvents {
        LateEvents(Vec::with_capacity(nodes.iter().map(|node| node.told_ports() * EACH).sum()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts off an event for the node at this place.
    pub(crate) fn put_off(&mut self, node: usize, event: PortEvent) {
        let is_alike = |late: &(usize, PortEvent)| {
            late.0 == node && late.1.port == event.port && is_link(late.1) == is_link(event)
        };
        let last = self.0.iter().rposition(is_alike);
        match last {
            Some(last) if self.0[last].1 == event => {}
            // The third change would equal the first: both stand for the changes in between.
            Some(last) if self.0[..last].iter().any(is_alike) => _ = self.0.remove(last),
            _ => self.0.push((node, event)),
        }
    }

    /// Takes the next event of a node that may run, with the node's place.
    pub(crate) fn next(&mut self, nodes: &[Node]) -> Option<(usize, PortEvent)> {
        let next = self.0.iter().position(|(node, _)| !nodes[*node].is_held())?;
        Some(self.0.remove(next))
    }
}

/// Whether the event is about the link.
fn is_link(event: PortEvent) -> bool {
    matches!(event.change, PortChange::LinkUp | PortChange::LinkDown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_off_stays_in_order_and_is_no_more_than_two_changes_of_a_kind() {
        use PortChange::{Down, LinkDown, LinkUp, Up};
        let left = |changes: &[PortChange]| {
            let mut late = LateEvents::new(&[]);
            // Another port and another node have their own events.
            for (node, port) in [(0, 0), (0, 1), (1, 0)] {
                changes.iter().for_each(|change| late.put_off(node, PortEvent { port, change: *change }));
            }
            let of = |at: (usize, u16)| {
                let late = late.0.iter().filter(|late| (late.0, late.1.port) == at);
                late.map(|late| late.1.change).collect::<Vec<_>>()
            };
            assert!(of((0, 0)) == of((0, 1)) && of((0, 0)) == of((1, 0)));
            of((0, 0))
        };
        assert_eq!(left(&[Down]), [Down]);
        assert_eq!(left(&[Down, Up]), [Down, Up]);
        assert_eq!(left(&[Down, Up, Down]), [Down]);
        assert_eq!(left(&[Down, Up, Down, Up]), [Down, Up]);
        assert_eq!(left(&[Up, Down, Up, Down, Down]), [Up, Down]);
        assert_eq!(left(&[LinkDown, Down, LinkUp, Up]), [LinkDown, Down, LinkUp, Up]);
        assert_eq!(left(&[LinkDown, Down, LinkUp, LinkDown, Up]), [LinkDown, Down, Up]);
    }
}
