//! Work requests of any kind in one list, waiting to be posted in order.
//!
//! A [`WorkList`] is a bounded queue of fixed capacity, for RC or for UC.
//! [`crate::QueuePair::post_works`] posts from its front, sends and one-sided operations in the
//! order of their pushes, as linked lists. The memory of an operation is a packet or a
//! scatter/gather list, which moves in, or a part of a region that the QP keeps for its life
//! ([`crate::QueuePair::keep_memory`]): a number and two offsets, without a reference count, since
//! the QP keeps the region.

use verbline_mem::Packet;

use crate::wr::connected::{Connected, OnRc};
use crate::wr::local::Local;
use crate::wr::operation::{Operation, WorkOptions};
use crate::wr::post::SendOptions;
use crate::wr::sg_list::SgList;

/// A waiting work request.
#[derive(Debug)]
pub enum Work<T: Connected = OnRc> {
    /// A packet to send like [`crate::QueuePair::post_send`]: inline if it fits.
    Send(Packet),
    /// A packet to send with options.
    SendWith {
        /// The packet.
        packet: Packet,
        /// Its options.
        options: SendOptions<T>,
    },
    /// An operation, whose memory comes back with its completion.
    Operation {
        /// The operation, with its memory.
        operation: Operation<T>,
        /// Its options.
        options: WorkOptions<T>,
    },
}

impl<T: Connected> Work<T> {
    /// An operation without options.
    pub fn plain(operation: Operation<T>) -> Work<T> {
        Work::Operation { operation, options: WorkOptions::default() }
    }

    /// Whether UC carries it: no READ, atomic or fence, and no use of a signature key.
    #[inline]
    pub fn is_on_uc(&self) -> bool {
        match self {
            Work::Send(_) => true,
            Work::SendWith { options, .. } => !options.fence.into(),
            Work::Operation { operation, options } => operation.is_on_uc() && !options.fence.into(),
        }
    }

    /// The packet of a send; `None` for an operation.
    #[inline]
    fn sends(&self) -> Option<&Packet> {
        match self {
            Work::Send(packet) | Work::SendWith { packet, .. } => Some(packet),
            Work::Operation { .. } => None,
        }
    }

    /// Whether a completion is requested.
    #[inline]
    pub(crate) fn is_signaled(&self) -> bool {
        match self {
            Work::Send(_) => false,
            Work::SendWith { options, .. } => options.signaled,
            Work::Operation { options, .. } => options.signaled,
        }
    }

    /// The scatter/gather list of an operation, if any.
    #[inline]
    pub(crate) fn list(&self) -> Option<&SgList> {
        match self {
            Work::Operation { operation, .. } => operation.list(),
            Work::Send(_) | Work::SendWith { .. } => None,
        }
    }

    /// Whether it is a transfer of a part of a region, or of nothing.
    fn is_without_packet(&self) -> bool {
        let Work::Operation { operation: Operation::Transfer { local, .. }, .. } = self else { return false };
        matches!(local, Local::Part(_) | Local::Empty)
    }
}

/// Work requests that wait to be posted, in order. The list never grows.
#[derive(Debug)]
pub struct WorkList<T: Connected = OnRc> {
    /// The work requests from `head` to `tail` wait; the other places are empty, or hold leftovers
    /// without a packet. Twice the capacity, so that moving the list back to the front is needed at
    /// most once in `capacity` pushes.
    places: Box<[Option<Work<T>>]>,
    head: usize,
    tail: usize,
    capacity: usize,
    /// The number of sends among them.
    sends: usize,
    /// The bytes of the sends.
    send_bytes: u64,
}

impl<T: Connected> WorkList<T> {
    /// Allocates space for `capacity` work requests; it never grows.
    pub fn with_capacity(capacity: usize) -> WorkList<T> {
        let places = std::iter::repeat_with(|| None).take(2 * capacity).collect();
        WorkList { places, head: 0, tail: 0, capacity, sends: 0, send_bytes: 0 }
    }

    /// The number of waiting work requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.tail - self.head
    }

    /// Whether none are waiting.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tail == self.head
    }

    /// How many more fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity - self.len()
    }

    /// The number of waiting sends.
    #[inline]
    pub fn sends(&self) -> usize {
        self.sends
    }

    /// The bytes of the waiting sends.
    #[inline]
    pub fn send_bytes(&self) -> u64 {
        self.send_bytes
    }

    /// Appends a work request; it comes back if the list is full.
    #[inline]
    pub fn push(&mut self, work: Work<T>) -> Result<(), Work<T>> {
        if self.room() == 0 {
            return Err(work);
        }
        if self.tail == self.places.len() {
            self.move_to_front();
        }
        if let Some(packet) = work.sends() {
            self.sends += 1;
            self.send_bytes += packet.len() as u64;
        }
        // Forgotten rather than dropped: leftovers need no drop.
        let before = self.places[self.tail].replace(work);
        debug_assert!(before.as_ref().is_none_or(Work::is_without_packet));
        std::mem::forget(before);
        self.tail += 1;
        Ok(())
    }

    /// Takes the work request at the front, e.g. one that cannot be posted.
    #[inline]
    pub fn pop(&mut self) -> Option<Work<T>> {
        if self.is_empty() { None } else { self.take_front() }
    }

    /// Like [`WorkList::pop`], but only for a list that is not empty: leftovers of posted work
    /// requests may lie behind the last.
    #[inline]
    pub(crate) fn take_front(&mut self) -> Option<Work<T>> {
        debug_assert!(!self.is_empty());
        let work = self.places.get_mut(self.head)?.take()?;
        self.head += 1;
        if let Some(packet) = work.sends() {
            self.sends -= 1;
            self.send_bytes -= packet.len() as u64;
        }
        if self.is_empty() {
            (self.head, self.tail) = (0, 0);
        }
        Some(work)
    }

    /// Removes `count` operations without packets from the front.
    #[inline]
    pub(crate) fn forget(&mut self, count: usize) {
        let end = self.tail.min(self.head + count);
        debug_assert!(self.places[self.head..end].iter().flatten().all(Work::is_without_packet));
        self.head = end;
        if self.is_empty() {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// The waiting work requests, from the front; all are `Some`.
    #[inline]
    pub(crate) fn waiting(&self) -> &[Option<Work<T>>] {
        &self.places[self.head..self.tail]
    }

    #[cold]
    fn move_to_front(&mut self) {
        self.places[..self.tail].rotate_left(self.head);
        (self.head, self.tail) = (0, self.tail - self.head);
    }
}

/// The result of a listed work request's completion.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorksDone {
    /// The number of work requests that it completes.
    pub count: usize,
    /// Whether the completed work request itself is an operation; else it is a send.
    pub of_operation: bool,
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::memory::peer::Remote;
    use crate::memory::span::Span;
    use crate::wr::kept::KeptRegion;
    use crate::wr::local::Part;

    fn invalidate(rkey: u32) -> Work {
        Work::plain(Operation::LocalInvalidate { rkey })
    }

    fn rkey(work: &Work) -> u32 {
        match work {
            Work::Operation { operation: Operation::LocalInvalidate { rkey }, .. } => *rkey,
            other => panic!("not put in: {other:?}"),
        }
    }

    fn write(offset: u32) -> Work {
        let part = Part { region: KeptRegion(0), span: Span::from(offset..offset + 8) };
        Work::plain(Operation::write(part.into(), Remote { addr: 0, rkey: 0 }))
    }

    #[test]
    fn what_was_posted_does_not_come_out_again() {
        let mut list = WorkList::with_capacity(2);
        for round in 0..3 {
            assert!(list.push(write(round)).is_ok() && list.push(write(8 + round)).is_ok());
            // Like `SendQueue::keep_transfers`, which removes both at once.
            list.forget(2);
            assert!(list.pop().is_none());
            assert_eq!((list.len(), list.room(), list.waiting().len()), (0, 2, 0));
        }
    }

    proptest! {
        /// Compares the list with a `VecDeque`.
        #[test]
        fn a_list_is_a_bounded_queue(steps in prop::collection::vec(any::<bool>(), 0..200)) {
            let (mut list, mut oracle) = (WorkList::with_capacity(5), VecDeque::new());
            for (number, comes) in (0..).zip(steps) {
                if comes {
                    prop_assert_eq!(list.push(invalidate(number)).is_ok(), oracle.len() < 5);
                    if oracle.len() < 5 {
                        oracle.push_back(number);
                    }
                } else {
                    prop_assert_eq!(list.pop().as_ref().map(rkey), oracle.pop_front());
                }
                let waiting: Vec<_> = list.waiting().iter().flatten().map(rkey).collect();
                prop_assert_eq!(waiting, Vec::from(oracle.clone()));
                prop_assert_eq!((list.len(), list.room()), (oracle.len(), 5 - oracle.len()));
            }
        }
    }
}
