//! What is handed to the queue pair next, as a list of its transport: a list of UC can't have what
//! UC does not carry.

use verbline_mem::Packet;
use verbline_verbs::rdma::{Connected, OnUc, Transfer, Work, WorkList};
use verbline_verbs::{PostStop, QueuePair, SendOutcome, Transport};

use crate::operations::operation::{Memory, Operation, Verb};

#[derive(Debug)]
pub(crate) enum Works {
    Rc(WorkList),
    Uc(WorkList<OnUc>),
}

/// What was taken out of a list.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A packet to be sent.
    Send(Packet),
    /// An operation, with its packet.
    Operation(Option<Packet>),
}

/// Does the same with either list.
macro_rules! either {
    ($works:expr, $list:ident => $does:expr) => {
        match $works {
            Works::Rc($list) => $does,
            Works::Uc($list) => $does,
        }
    };
}

impl Works {
    /// Room for `capacity` work requests, for queue pairs of this transport.
    pub(crate) fn with_capacity(transport: Transport, capacity: usize) -> Works {
        match transport {
            Transport::Uc => Works::Uc(WorkList::with_capacity(capacity)),
            _ => Works::Rc(WorkList::with_capacity(capacity)),
        }
    }

    /// Whether the transport carries all of these.
    #[inline]
    pub(crate) fn carry(&self, operations: &[Operation]) -> bool {
        matches!(self, Works::Rc(_)) || operations.iter().all(is_on_uc)
    }

    /// Puts one behind the others; false if there is no room, or the transport does not carry it.
    // That it does not come back saves a copy of it.
    #[must_use]
    #[inline]
    pub(crate) fn push(&mut self, work: Work) -> bool {
        match self {
            Works::Rc(list) => list.push(work).is_ok(),
            Works::Uc(list) => work.on_uc().is_ok_and(|work| list.push(work).is_ok()),
        }
    }

    /// Takes the one at the front.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Taken> {
        either!(self, list => list.pop().map(Taken::of))
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        either!(self, list => list.len())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        either!(self, list => list.is_empty())
    }

    /// How many more there is room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        either!(self, list => list.room())
    }

    /// How many of them are sends.
    #[inline]
    pub(crate) fn sends(&self) -> usize {
        either!(self, list => list.sends())
    }

    /// The bytes of the sends.
    #[inline]
    pub(crate) fn send_bytes(&self) -> u64 {
        either!(self, list => list.send_bytes())
    }

    /// Posts from the front, as far as the queue pair takes it.
    #[inline]
    pub(crate) fn post(&mut self, qp: &mut QueuePair) -> SendOutcome {
        let posted = match self {
            Works::Rc(list) => qp.rc().map(|mut qp| qp.post_works(list)),
            Works::Uc(list) => qp.uc().map(|mut qp| qp.post_works(list)),
        };
        posted.unwrap_or_else(|_| {
            let stop = Some(PostStop::NotOn(qp.transport(), "this list of work requests"));
            SendOutcome { stop, ..SendOutcome::default() }
        })
    }
}

impl Taken {
    #[inline]
    fn of<T: Connected>(work: Work<T>) -> Taken {
        match work {
            Work::Send(packet) => Taken::Send(packet),
            Work::Operation { operation, .. } => Taken::Operation(operation.into_packet()),
        }
    }
}

/// Whether [`Work::on_uc`] will find that UC carries it.
fn is_on_uc(operation: &Operation) -> bool {
    let is_carried = match &operation.verb {
        Verb::Transfer { transfer, memory } => {
            !matches!(transfer, Transfer::Read { .. }) && !matches!(memory, Memory::Blocks(_))
        }
        Verb::Invalidate { .. } | Verb::Bind { .. } => true,
        Verb::Atomic { .. } | Verb::Respond { .. } | Verb::Sign { .. } => false,
    };
    is_carried && !operation.fence
}
