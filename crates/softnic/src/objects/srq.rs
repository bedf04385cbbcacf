//! Shared receive queues: receives that several queue pairs consume.
//!
//! Guarantees: each posted receive goes to one message. Its entry is freed when its completion is
//! polled, or when the queue pair of the completion is reset or destroyed: then it is completed
//! anew, as flushed, so that its `wr_id` comes back by a poll in any case. One lock protects all of
//! it, since any number of senders consume and any number of threads post; a section is some dozen
//! instructions. A sender without a receive is entered as waiting in the section in which it found
//! none, so a post can't miss it. Waiting senders take turns to be first, so that one with much to
//! send doesn't take all shared receives. When fewer than `srq_limit` receives are left, one
//! `IBV_EVENT_SRQ_LIMIT_REACHED` is raised and the limit is disarmed.

use crate::events::acknowledged::{Fields, HandedOut};
use crate::events::async_event::{Kind, Subject};
use crate::key_table::{self, RegionKey};
use crate::objects::context::Context;
use crate::objects::device;
use crate::objects::guards::{Taken, quiesce};
use crate::objects::pd::Pd;
use crate::objects::srq_entries::Entries;
use crate::objects::{Object, Users};
use crate::queues::due::Due;
use crate::queues::wqe::Wqe;
use crate::queues::wr::RecvWr;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_int;
use verbline_sync::lock::SpinLock;

/// `ibv_srq` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Srq {
    raw: UnsafeCell<ibv_srq>,
    pd: u32,
    max_sge: u32,
    pub(crate) wqes: Entries,
    queue: SpinLock<Queue>,
    async_handed_out: HandedOut,
    pub(crate) due: Due,
    /// The queue pairs that use it.
    pub(crate) users: Users,
}

// SAFETY: `raw` is shared as libibverbs shares it; the queue is under its lock.
unsafe impl Sync for Srq {}

/// The lists have room for all entries.
#[derive(Debug)]
struct Queue {
    max_wr: u32,
    posted: VecDeque<u32>,
    free: Vec<u32>,
    /// For each entry with an unpolled completion, the queue pair that it was taken for; 0 for
    /// none.
    taken_for: Vec<u32>,
    limit: u32,
    /// Numbers of queue pairs with a message pending.
    waiting: Vec<u32>,
}

// SAFETY: `raw` is the first field of a `repr(C)` struct.
unsafe impl Object for Srq {
    type Raw = ibv_srq;
}

impl Subject for Srq {
    fn handed_out(&self) -> &HandedOut {
        &self.async_handed_out
    }

    fn acks(&self) -> Fields<'_> {
        // SAFETY: fields of this object.
        unsafe { Fields::srq(self.raw.get()) }
    }
}

impl Srq {
    /// The protection domain's number.
    pub(crate) fn pd(&self) -> u32 {
        self.pd
    }

    pub(crate) fn context(&self) -> &Context {
        // SAFETY: written at creation only; the context outlives its objects: `context::retire`
        // refuses while there are any.
        unsafe { Context::from_raw((*self.raw.get()).context) }
    }

    /// Takes a receive for a message to queue pair `qpn`.
    pub(crate) fn take(&self, qpn: u32) -> Option<u64> {
        self.take_if(qpn, |_| true)
    }

    /// Like [`take`](Self::take), if the next receive satisfies `is_fit`.
    pub(crate) fn take_if(&self, qpn: u32, is_fit: impl FnOnce(Wqe<'_>) -> bool) -> Option<u64> {
        let mut queue = self.queue.lock();
        let index = queue.posted.pop_front_if(|index| is_fit(self.wqes.wqe(u64::from(*index))))?;
        queue.taken_for[index as usize] = qpn;
        let reached = queue.limit > 0 && queue.posted.len() < queue.limit as usize;
        if reached {
            queue.limit = 0;
        }
        drop(queue);
        if reached {
            self.context().events.raise(self, Kind::SrqLimitReached);
        }
        Some(u64::from(index))
    }

    /// Frees the entry of receive `index`, whose completion was polled.
    pub(crate) fn free(&self, index: u64) {
        self.due.done(|| 1);
        let mut queue = self.queue.lock();
        queue.taken_for[index as usize] = 0;
        queue.free.push(index as u32);
    }

    /// Frees the entries taken for queue pair `qpn` and not polled; returns their `wr_id`s.
    pub(crate) fn reclaim(&self, qpn: u32) -> Vec<u64> {
        let mut queue = self.queue.lock();
        let Queue { taken_for, free, .. } = &mut *queue;
        let mut left = Vec::new();
        for (index, owner) in taken_for.iter_mut().enumerate().filter(|(_, owner)| **owner == qpn) {
            left.push(self.wqes.wqe(index as u64).wr_id());
            *owner = 0;
            free.push(index as u32);
            self.due.done(|| 1);
        }
        left
    }

    /// Enters sender `qpn`, which found no receive, as waiting. Returns false if there is one by
    /// now.
    pub(crate) fn wait(&self, qpn: u32) -> bool {
        let mut queue = self.queue.lock();
        if !queue.posted.is_empty() {
            return false;
        }
        if !queue.waiting.contains(&qpn) {
            queue.waiting.push(qpn);
        }
        true
    }

    /// Moves the sender that was started first behind the others, if it still waits.
    pub(crate) fn pass_turn(&self, first: u32) {
        let waiting = &mut self.queue.lock().waiting;
        if waiting.first() == Some(&first) {
            waiting.rotate_left(1);
        }
    }

    /// Posts the list. Returns the waiting senders, and the reason for stopping before the end, at
    /// `next`.
    pub(crate) fn post(&self, next: &mut Option<RecvWr<'_>>) -> (c_int, Vec<u32>) {
        let mut queue = self.queue.lock();
        let queue = &mut *queue;
        let mut key = RegionKey::new(self.pd, key_table::LOCAL_WRITE);
        let mut code = 0;
        while let Some(wr) = *next {
            if u32::try_from(wr.num_sge).map_or(true, |count| count > self.max_sge) {
                code = libc::EINVAL;
                break;
            }
            let Some(index) = queue.free.pop() else {
                code = libc::ENOMEM;
                break;
            };
            self.wqes.ring(u64::from(index)).write(u64::from(index), wr, &mut key);
            queue.posted.push_back(index);
            self.due.posted(|| 1);
            *next = wr.next();
        }
        (code, if queue.posted.is_empty() { Vec::new() } else { std::mem::take(&mut queue.waiting) })
    }
}

impl Queue {
    fn new(max_wr: u32) -> Queue {
        Queue {
            max_wr,
            posted: VecDeque::with_capacity(max_wr as usize),
            free: (0..max_wr).rev().collect(),
            taken_for: vec![0; max_wr as usize],
            limit: 0,
            waiting: Vec::new(),
        }
    }

    /// Takes over the contents of an old queue, which has fewer entries; the additional ones are
    /// free. Allocates nothing.
    fn take_over(&mut self, old: &mut Queue) {
        self.posted.append(&mut old.posted);
        self.free.retain(|index| *index >= old.max_wr);
        self.free.append(&mut old.free);
        self.taken_for[..old.taken_for.len()].copy_from_slice(&old.taken_for);
        self.limit = old.limit;
        std::mem::swap(&mut self.waiting, &mut old.waiting);
    }
}

/// `ibv_create_srq(3)`. Sets `attr` to the granted values.
pub(crate) fn create(domain: &Pd, init: &mut ibv_srq_init_attr) -> Result<*mut ibv_srq, c_int> {
    let (max_wr, max_sge) = (init.attr.max_wr, init.attr.max_sge);
    if max_wr == 0 || max_wr > device::QP_WR_MAX || max_sge > device::SGE_MAX {
        return Err(libc::EINVAL);
    }
    // SAFETY: integers and pointers, for which zero is a value.
    let mut raw: ibv_srq = unsafe { std::mem::zeroed() };
    (raw.context, raw.srq_context, raw.pd) = (domain.context().as_ptr(), init.srq_context, domain.as_ptr());
    let srq = Srq {
        raw: UnsafeCell::new(raw),
        pd: domain.id,
        max_sge,
        wqes: Entries::new(max_wr, max_sge),
        queue: SpinLock::new(Queue::new(max_wr)),
        async_handed_out: HandedOut::default(),
        due: Due::default(),
        users: Users::default(),
    }
    .into_raw();
    // SAFETY: made just above.
    unsafe { Srq::from_raw(srq) }.acks().init();
    domain.adopt();
    init.attr.srq_limit = 0;
    Ok(srq)
}

/// `ibv_modify_srq(3)`: arms the limit, or makes room for more receives. With a smaller size a
/// queue keeps its own, like a completion queue.
pub(crate) fn modify(srq: &Srq, attr: &ibv_srq_attr, mask: c_int) -> Result<(), c_int> {
    let asks = |what: ibv_srq_attr_mask| mask as u32 & what.0 != 0;
    let (resizes, arms) = (asks(ibv_srq_attr_mask::IBV_SRQ_MAX_WR), asks(ibv_srq_attr_mask::IBV_SRQ_LIMIT));
    let known = ibv_srq_attr_mask::IBV_SRQ_MAX_WR.0 | ibv_srq_attr_mask::IBV_SRQ_LIMIT.0;
    let max_wr = if resizes { attr.max_wr } else { srq.queue.lock().max_wr };
    let is_possible = (1..=device::QP_WR_MAX).contains(&max_wr) && (!arms || attr.srq_limit <= max_wr);
    if mask as u32 & !known != 0 || !is_possible {
        return Err(libc::EINVAL);
    }
    if resizes {
        grow(srq, max_wr);
    }
    if arms {
        srq.queue.lock().limit = attr.srq_limit;
    }
    Ok(())
}

/// Allocates and frees only outside the lock: senders may spin for it.
fn grow(srq: &Srq, max_wr: u32) {
    srq.wqes.grow(max_wr);
    let mut new = Queue::new(max_wr);
    let mut queue = srq.queue.lock();
    if queue.max_wr < max_wr {
        new.take_over(&mut queue);
        std::mem::swap(&mut *queue, &mut new);
    }
    drop(queue);
    // The old lists go with it.
    drop(new);
}

/// `ibv_query_srq(3)`.
pub(crate) fn query(srq: &Srq) -> ibv_srq_attr {
    let queue = srq.queue.lock();
    ibv_srq_attr { max_wr: queue.max_wr, max_sge: srq.max_sge, srq_limit: queue.limit }
}

/// `ibv_destroy_srq(3)`, up to freeing it. `EBUSY` while a queue pair uses it. Waits until its
/// events are acknowledged.
pub(crate) fn retire(srq: &Srq) -> Result<(), c_int> {
    srq.users.gone()?;
    quiesce(Taken::Other);
    srq.context().events.forget(srq);
    srq.due.clear();
    // SAFETY: the domain counts the queue and outlives it: `pd::retire` refuses while it has
    // queues.
    unsafe { Pd::from_raw((*srq.raw.get()).pd) }.release();
    Ok(())
}
