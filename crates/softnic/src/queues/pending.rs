//! The outcome of carrying out a work request, and send work requests that have to wait: for a
//! receive, for a peer, for the queue pair to leave SQD.
//!
//! Guarantees: they are kept in order, with their inline data, in memory reserved at creation.
//! `data_path::progress` carries them out.

use crate::copy;
use crate::queues::timer;
use crate::queues::wr::{self, SendWr, sge_bytes};
use rdma_sys::*;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use verbline_sync::lock::SpinLock;

/// The outcome of a work request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WrOutcome {
    /// Carried out; the number of bytes.
    Done(u64),
    /// Carried out; the number of bytes. The queue stops behind it.
    Stopped(u64),
    /// It has configured a key.
    Configured,
    /// It can't be carried out yet.
    Wait(Why),
    /// It failed, with an `ibv_wc_status`.
    Failed(u32),
}

/// The condition that a work request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A posted receive; the receiver's `min_rnr_timer`.
    NoReceive(u32),
    /// A peer that accepts our messages.
    NoPeer,
}

/// The pending work requests of one send queue: positions `head` to `tail`.
#[derive(Debug)]
pub(crate) struct Pending {
    head: u64,
    tail: u64,
    /// The condition that the first one waits for, and its deadline.
    pub(crate) why: Option<Why>,
    pub(crate) deadline_ns: u64,
    /// Whether `timer` has a deadline of this queue.
    pub(crate) is_armed: bool,
    /// In SQD: the first one was begun before, and is to be finished.
    pub(crate) draining: bool,
    /// Whether to raise `IBV_EVENT_SQ_DRAINED` when it is.
    pub(crate) notify_drained: bool,
    wrs: Box<[MaybeUninit<ibv_send_wr>]>,
    sges: Box<[MaybeUninit<ibv_sge>]>,
    inline: Box<[MaybeUninit<u8>]>,
}

// SAFETY: its pointers lead into its own boxes, or to the user's objects, which are alive while
// posted.
unsafe impl Send for Pending {}

/// Never.
pub(crate) const FOR_EVER: u64 = u64::MAX;
impl Pending {
    /// `inline_bytes`: room for the inline data of one work request.
    pub(crate) fn new(cap: &ibv_qp_cap, inline_bytes: usize) -> Pending {
        let depth = (cap.max_send_wr as usize).next_power_of_two();
        Pending {
            head: 0,
            tail: 0,
            why: None,
            deadline_ns: FOR_EVER,
            is_armed: false,
            draining: false,
            notify_drained: false,
            wrs: Box::new_uninit_slice(depth),
            sges: Box::new_uninit_slice(depth * cap.max_send_sge.max(1) as usize),
            inline: Box::new_uninit_slice(depth * inline_bytes),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Drops all work requests. Control path.
    pub(crate) fn clear(&mut self) {
        (self.head, self.tail) = (0, 0);
        (self.why, self.deadline_ns) = (None, FOR_EVER);
        (self.draining, self.notify_drained) = (false, false);
    }

    /// Keeps a copy of a work request that passed validation; its `position` was reserved behind
    /// the pending ones.
    pub(crate) fn keep(&mut self, wr: SendWr<'_>, position: u64) {
        if self.is_empty() {
            (self.head, self.tail) = (position, position);
        }
        debug_assert_eq!(self.tail, position);
        let slot = position as usize & (self.wrs.len() - 1);
        let sges_a_wr = self.sges.len() / self.wrs.len();
        let inline_a_wr = self.inline.len() / self.wrs.len();
        let sges = &mut self.sges[slot * sges_a_wr..][..sges_a_wr];
        let inline = &mut self.inline[slot * inline_a_wr..][..inline_a_wr];
        let count = if wr.is_inline() {
            let mut len = 0;
            for sge in wr.sges() {
                let part = &mut inline[len..][..sge.length as usize];
                // SAFETY: inline data can be read, by the contract of `SendWr`; `part` has that
                // length.
                unsafe { copy::copy(part.as_mut_ptr().cast(), sge.addr as *const u8, part.len()) };
                len += part.len();
            }
            if len > 0 {
                sges[0].write(ibv_sge { addr: inline.as_ptr() as u64, length: len as u32, lkey: 0 });
            }
            usize::from(len > 0)
        } else {
            let list = wr.sges();
            sges.iter_mut().zip(list).for_each(|(to, from)| _ = to.write(*from));
            list.len()
        };
        self.wrs[slot].write(wr.copied(sges.as_mut_ptr().cast(), count as i32));
        self.tail = position + 1;
    }

    /// Keeps a copy of one without elements, of a carried queue pair: the carrier carries out the
    /// others without this.
    pub(crate) fn keep_alone(&mut self, wr: SendWr<'_>, position: u64) {
        let slot = position as usize & (self.wrs.len() - 1);
        self.wrs[slot].write(wr.copied(std::ptr::null_mut(), 0));
    }

    /// The work request kept alone at that position.
    ///
    /// # Safety
    /// `keep_alone` was called with that position, and that work request has not completed. During
    /// `'a` this value is alive and nothing else is kept at its place, which is free only once it
    /// has completed.
    pub(crate) unsafe fn kept_alone<'a>(&self, position: u64) -> Option<SendWr<'a>> {
        let slot = position as usize & (self.wrs.len() - 1);
        // SAFETY: `keep_alone` wrote it, without a list; by ibv_post_send(3) its objects are alive
        // until it has completed.
        unsafe { SendWr::list(self.wrs[slot].as_ptr()) }
    }

    /// The first work request, its position, and the bytes of its list.
    pub(crate) fn first(&self) -> Option<(SendWr<'_>, u64, u64)> {
        // SAFETY: this value is borrowed, so it doesn't change.
        unsafe { self.first_for() }
    }

    /// Like [`first`](Self::first), to be carried out while others add pending ones.
    ///
    /// # Safety
    /// During `'a` this value is alive, and nobody advances, clears or cancels.
    pub(crate) unsafe fn first_for<'a>(&self) -> Option<(SendWr<'a>, u64, u64)> {
        if self.is_empty() {
            return None;
        }
        let slot = self.head as usize & (self.wrs.len() - 1);
        // SAFETY: `keep` wrote it, its list and its inline data into boxes of this value, and
        // writes there again only after `advance` or `clear`, which the contract excludes during
        // `'a`. By ibv_post_send(3) its objects are alive until it has completed, which is later.
        let wr = unsafe { SendWr::list(self.wrs[slot].as_ptr()) }?;
        Some((wr, self.head, wr.sges().iter().map(sge_bytes).sum()))
    }

    /// Makes the work requests of that `wr_id` do nothing but complete. Returns the number of newly
    /// cancelled ones.
    pub(crate) fn cancel(&mut self, wr_id: u64) -> u32 {
        let mask = self.wrs.len() - 1;
        let mut count = 0;
        for position in self.head..self.tail {
            // SAFETY: `keep` wrote it, and nobody else reads it: this value is borrowed.
            let copy = unsafe { self.wrs[position as usize & mask].assume_init_mut() };
            if copy.wr_id == wr_id && !wr::is_cancelled(copy) {
                count += 1;
                wr::cancel(copy);
            }
        }
        count
    }

    /// Removes the deadline from `timer`.
    pub(crate) fn disarm(&mut self, qpn: u32) {
        if std::mem::take(&mut self.is_armed) {
            timer::disarm(qpn);
        }
    }

    /// Drops the first work request.
    pub(crate) fn advance(&mut self) {
        self.head += 1;
        (self.why, self.deadline_ns) = (None, FOR_EVER);
    }
}

/// The queue pairs of one CQ that need progress from its polls: those of a send CQ with pending
/// work requests, and carried ones.
#[derive(Debug, Default)]
pub(crate) struct StalledQps {
    /// The number of them: the lower half counts those with pending work requests, the upper half
    /// carried ones.
    counts: AtomicU64,
    list: SpinLock<Attended>,
}

#[derive(Debug, Default)]
struct Attended {
    /// The numbers of the queue pairs with pending work requests.
    stalled: Vec<u32>,
    /// The number of carried queue pairs.
    carried: u32,
}

impl Attended {
    fn counts(&self) -> u64 {
        u64::from(self.stalled.len() as u32) | u64::from(self.carried) << 32
    }
}

impl StalledQps {
    /// Whether there are any.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        // Relaxed: a hint; a poll that misses it is followed by another, or by the timer.
        self.counts.load(Ordering::Relaxed) != 0
    }

    /// Whether some have pending work requests.
    pub(crate) fn any_pending(&self) -> bool {
        // Relaxed: see `any`.
        self.counts.load(Ordering::Relaxed) as u32 != 0
    }

    /// Whether some are carried.
    pub(crate) fn any_carried(&self) -> bool {
        // Relaxed: see `any`.
        self.counts.load(Ordering::Relaxed) >> 32 != 0
    }

    pub(crate) fn add(&self, qpn: u32) {
        let mut list = self.list.lock();
        if !list.stalled.contains(&qpn) {
            list.stalled.push(qpn);
        }
        // Relaxed: see `any`.
        self.counts.store(list.counts(), Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, qpn: u32) {
        let mut list = self.list.lock();
        list.stalled.retain(|entry| *entry != qpn);
        // Relaxed: see `any`.
        self.counts.store(list.counts(), Ordering::Relaxed);
    }

    /// Counts one more carried queue pair, or one less.
    pub(crate) fn count_carried(&self, more: bool) {
        let mut list = self.list.lock();
        list.carried = if more { list.carried + 1 } else { list.carried.saturating_sub(1) };
        // Relaxed: see `any`.
        self.counts.store(list.counts(), Ordering::Relaxed);
    }

    /// Fills `out` with some of them; with others the next time.
    pub(crate) fn some(&self, out: &mut [u32]) -> usize {
        let stalled = &mut self.list.lock().stalled;
        let count = stalled.len().min(out.len());
        out[..count].copy_from_slice(&stalled[..count]);
        stalled.rotate_left(count);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The successor of a waiting work request waits from the beginning.
    #[test]
    fn a_deadline_is_not_inherited() {
        let cap = ibv_qp_cap { max_send_wr: 4, max_recv_wr: 0, max_send_sge: 1, max_recv_sge: 0, max_inline_data: 0 };
        let mut pending = Pending::new(&cap, 0);
        // SAFETY: numbers, pointers and unions of them, for which zero is a value.
        let wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        for position in 0..2 {
            // SAFETY: a SEND without a list.
            pending.keep(unsafe { SendWr::list(&raw const wr) }.expect("a work request"), position);
        }
        (pending.why, pending.deadline_ns) = (Some(Why::NoPeer), 5);
        pending.advance();
        assert_eq!((pending.is_empty(), pending.why, pending.deadline_ns), (false, None, FOR_EVER));
        (pending.why, pending.deadline_ns, pending.draining) = (Some(Why::NoPeer), 5, true);
        pending.clear();
        assert_eq!((pending.is_empty(), pending.why, pending.deadline_ns), (true, None, FOR_EVER));
        assert!(!pending.draining);
    }
}
