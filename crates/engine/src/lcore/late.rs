//! What happened to ports while rings held back the stages that are to know of it. A ring that
//! holds back has no room for what they would send.
//!
//! Guarantees: a stage hears of each port's changes in their order, once it may run; nothing is
//! allocated, since what is undone meanwhile, and happens once more, is told once.

use crate::api::stage::{PortChange, PortEvent};
use crate::lcore::node::Node;

/// Of one node and port: its queue pair's last two changes, and its link's.
const EACH: usize = 4;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct LateEvents(Vec<(usize, PortEvent)>);

impl LateEvents {
    /// With room for all that these nodes may be told late.
    pub(crate) fn new(nodes: &[Node]) -> LateEvents {
        LateEvents(Vec::with_capacity(nodes.iter().map(|node| node.told_ports() * EACH).sum()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The node at this place is to be told later.
    pub(crate) fn put_off(&mut self, node: usize, event: PortEvent) {
        let is_alike = |late: &(usize, PortEvent)| {
            late.0 == node && late.1.port == event.port && is_link(late.1) == is_link(event)
        };
        let last = self.0.iter().rposition(is_alike);
        match last {
            Some(last) if self.0[last].1 == event => {}
            // The third would be what the first was: both stand for what came between.
            Some(last) if self.0[..last].iter().any(is_alike) => _ = self.0.remove(last),
            _ => self.0.push((node, event)),
        }
    }

    /// The next event of a node that may run, and the node's place.
    pub(crate) fn next(&mut self, nodes: &[Node]) -> Option<(usize, PortEvent)> {
        let next = self.0.iter().position(|(node, _)| !nodes[*node].is_held())?;
        Some(self.0.remove(next))
    }
}

/// Whether the event is the link's.
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
            // Another port and another node have their own.
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
