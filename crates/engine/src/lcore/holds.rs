//! Rings that hold their producers back: while packets wait for room in one, the stages that lead
//! to it are neither called nor polled.
//!
//! The plan has proved that the batch before the ring takes all that they send in one turn, that no
//! port feeds them, and that the wait ends. So nothing is dropped on the way to the ring.

use crate::lcore::node::Node;
use crate::ports::sink::Sink;

/// One lane that holds back.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Index of the sink that gathers for it.
    pub(crate) sink: usize,
    /// Indices of the nodes that lead to it.
    pub(crate) nodes: Box<[usize]>,
    /// Whether packets waited when it was last looked at.
    pub(crate) waits: bool,
}

impl Hold {
    pub(crate) fn new(sink: usize, nodes: Box<[usize]>) -> Hold {
        Hold { sink, nodes, waits: false }
    }
}

/// Holds nodes, and lets go of them, by whether packets wait now. True if it let go of one.
#[inline(never)]
pub(crate) fn update(holds: &mut [Hold], sinks: &[Sink], nodes: &mut [Node]) -> bool {
    let mut let_go = false;
    for hold in holds {
        let waits = !sinks[hold.sink].batch.is_empty();
        if waits == std::mem::replace(&mut hold.waits, waits) {
            continue;
        }
        for node in &hold.nodes {
            let_go |= nodes[*node].hold(waits);
        }
    }
    let_go
}
