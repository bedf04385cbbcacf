//! Shared receive queues: receives that several queue pairs consume.
//!
//! What it guarantees: each posted receive goes to one message, and its entry comes back when its completion is polled, or when
//! the queue pair whose completion it is is reset or destroyed: then it is completed anew, as flushed, so that its `wr_id` comes
//! back by a poll in any case. All of it is under one lock, since any number of senders
//! consume at a time and any number of threads post; a section is some dozen instructions. A sender without a receive
//! is entered as waiting in the section in which it found none, so a post can't miss it. When fewer than `srq_limit`
//! receives are left, one `IBV_EVENT_SRQ_LIMIT_REACHED` is raised and the limit is disarmed.

use crate::data_path::completion::{self, Header};
use crate::data_path::scatter::WqeRing;
use crate::data_path::stall;
use crate::errno;
use crate::events::acknowledged::Fields;
use crate::events::async_event::{HandedOut, Kind};
use crate::objects::context::Context;
use crate::objects::key_table::{self, RegionKey};
use crate::objects::pd::Pd;
use crate::objects::qp::Qp;
use crate::objects::{device, fabric};
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use verbline_sync::lock::SpinLock;

/// `ibv_srq` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Srq {
    raw: UnsafeCell<ibv_srq>,
    pd: u32,
    max_wr: u32,
    max_sge: u32,
    pub(crate) wqes: WqeRing,
    queue: SpinLock<Queue>,
    pub(crate) async_handed_out: HandedOut,
    users: AtomicU32,
}

// SAFETY: `raw` is shared as libibverbs shares it; the queue is under its lock.
unsafe impl Sync for Srq {}

/// The lists have room for all entries from the start.
#[derive(Debug)]
struct Queue {
    posted: VecDeque<u32>,
    free: Vec<u32>,
    /// Which queue pair each entry was taken for whose completion isn't polled yet; 0 for none.
    taken_for: Box<[u32]>,
    limit: u32,
    /// Numbers of queue pairs with a message pending.
    waiting: Vec<u32>,
}

impl Srq {
    /// # Safety
    /// `srq` is alive.
    pub(crate) unsafe fn from_raw<'a>(srq: *mut ibv_srq) -> &'a Srq {
        // SAFETY: `raw` is first in an `Srq`.
        unsafe { &*srq.cast::<Srq>() }
    }

    /// The protection domain's number.
    pub(crate) fn pd(&self) -> u32 {
        self.pd
    }

    pub(crate) fn context(&self) -> &Context {
        // SAFETY: written at creation only; the context outlives its objects.
        unsafe { Context::from_raw((*self.raw.get()).context) }
    }

    pub(crate) fn acks(&self) -> Fields {
        let raw = self.raw.get();
        // SAFETY: addresses of fields of a live object.
        unsafe { Fields::new(&raw mut (*raw).mutex, &raw mut (*raw).cond, &raw mut (*raw).events_completed) }
    }

    /// A queue pair uses it from now on, or no more.
    pub(crate) fn count_user(&self, more: bool) {
        // Relaxed: a count; `destroy` comes after, by contract.
        if more {
            self.users.fetch_add(1, Ordering::Relaxed)
        } else {
            self.users.fetch_sub(1, Ordering::Relaxed)
        };
    }

    /// Takes a receive for a message to queue pair `qpn`.
    pub(crate) fn take(&self, qpn: u32) -> Option<u64> {
        let mut queue = self.queue.lock();
        let index = queue.posted.pop_front()?;
        queue.taken_for[index as usize] = qpn;
        let reached = queue.limit > 0 && queue.posted.len() < queue.limit as usize;
        if reached {
            queue.limit = 0;
        }
        drop(queue);
        if reached {
            self.context().events.raise_srq(self, Kind::SrqLimitReached);
        }
        Some(u64::from(index))
    }

    /// The completion of receive `index` was polled: its entry is free.
    pub(crate) fn free(&self, index: u64) {
        let mut queue = self.queue.lock();
        queue.taken_for[index as usize] = 0;
        queue.free.push(index as u32);
    }

    /// Completions of `qp` that nobody has polled won't be polled any more: what they are of is free, and completed anew as
    /// [`completion::LEFT`] under `tag`, which was the queue pair's. Control path; no data path is at work for it.
    pub(crate) fn give_back(&self, qp: &Qp, tag: u32) {
        let left = self.reclaim(qp.qpn);
        for word in left {
            let status = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
            let header = Header { word, qpn: qp.qpn, status, opcode: completion::LEFT, ..Header::default() };
            // An overrun loses it: the queue's event said so.
            let _ = completion::push(qp.recv_cq(), tag, &header, [0, 0], true);
        }
    }

    /// Frees what was taken for queue pair `qpn` and isn't polled; gives the `wr_id`s.
    fn reclaim(&self, qpn: u32) -> Vec<u64> {
        let mut queue = self.queue.lock();
        let Queue { taken_for, free, .. } = &mut *queue;
        let mut left = Vec::new();
        for (index, owner) in taken_for.iter_mut().enumerate().filter(|(_, owner)| **owner == qpn) {
            // SAFETY: taken, and its queue pair's senders are gone; nobody posts into it before it is in the list.
            left.push(unsafe { self.wqes.wqe(index as u64).wr_id() });
            *owner = 0;
            free.push(index as u32);
        }
        left
    }

    /// Sender `qpn` found no receive. False if there is one by now.
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
}

/// `ibv_post_srq_recv(3)`. Any thread may call it.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the verb's contract.
    let this = unsafe { Srq::from_raw(srq) };
    let mut next = wr;
    // SAFETY: by the verb's contract the list is readable.
    let (code, waiting) = unsafe { post_all(this, &mut next) };
    if !waiting.is_empty() {
        stall::progress_numbers(&waiting);
    }
    if code != 0 {
        // SAFETY: by the verb's contract.
        unsafe { *bad_wr = next };
    }
    code
}

/// Posts the list; gives the senders that wait.
///
/// # Safety
/// The list is readable.
unsafe fn post_all(srq: &Srq, next: &mut *mut ibv_recv_wr) -> (c_int, Vec<u32>) {
    let mut queue = srq.queue.lock();
    let queue = &mut *queue;
    let mut key = RegionKey::new(srq.pd, key_table::LOCAL_WRITE);
    let mut code = 0;
    while !next.is_null() {
        // SAFETY: the caller's.
        let wr = unsafe { &**next };
        if u32::try_from(wr.num_sge).map_or(true, |count| count > srq.max_sge) {
            code = libc::EINVAL;
            break;
        }
        let Some(index) = queue.free.pop() else {
            code = libc::ENOMEM;
            break;
        };
        // SAFETY: a free entry, ours since it was taken from the list; the list of elements was checked.
        unsafe { srq.wqes.wqe(u64::from(index)).write(wr, &mut key) };
        queue.posted.push_back(index);
        *next = wr.next;
    }
    (code, if queue.posted.is_empty() { Vec::new() } else { std::mem::take(&mut queue.waiting) })
}

/// `ibv_create_srq(3)`. `init.attr` is set to what was granted.
///
/// # Safety
/// `pd` is allocated, `init` is readable and writable.
pub(crate) unsafe fn create(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the caller's.
    let (domain, init) = unsafe { (Pd::from_raw(pd), &mut *init) };
    let (max_wr, max_sge) = (init.attr.max_wr, init.attr.max_sge);
    if max_wr == 0 || max_wr > device::QP_WR_MAX || max_sge > device::SGE_MAX {
        return errno::null(libc::EINVAL);
    }
    // SAFETY: integers and pointers, for which zero is a value.
    let mut raw: ibv_srq = unsafe { std::mem::zeroed() };
    (raw.context, raw.srq_context, raw.pd) = (domain.context().as_ptr(), init.srq_context, pd);
    let queue = Queue {
        posted: VecDeque::with_capacity(max_wr as usize),
        free: (0..max_wr).rev().collect(),
        taken_for: vec![0; max_wr as usize].into(),
        limit: 0,
        waiting: Vec::new(),
    };
    let srq = Box::leak(Box::new(Srq {
        raw: UnsafeCell::new(raw),
        pd: domain.id,
        max_wr,
        max_sge,
        wqes: WqeRing::new(max_wr.next_power_of_two() as usize, max_sge),
        queue: SpinLock::new(queue),
        async_handed_out: HandedOut::default(),
        users: AtomicU32::new(0),
    }));
    // SAFETY: its fields, which nobody else uses yet.
    unsafe { srq.acks().init() };
    domain.adopt();
    init.attr.srq_limit = 0;
    srq.raw.get()
}

/// `ibv_modify_srq(3)`: arms the limit. Resizing isn't offered (`IBV_DEVICE_SRQ_RESIZE`).
///
/// # Safety
/// `srq` is alive, `attr` is readable.
pub(crate) unsafe fn modify(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    // SAFETY: the caller's.
    let (this, attr) = unsafe { (Srq::from_raw(srq), &*attr) };
    if mask as u32 & !ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 != 0 || attr.srq_limit > this.max_wr {
        return libc::EINVAL;
    }
    if mask as u32 & ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 != 0 {
        this.queue.lock().limit = attr.srq_limit;
    }
    0
}

/// `ibv_query_srq(3)`.
///
/// # Safety
/// `srq` is alive, `attr` is writable.
pub(crate) unsafe fn query(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let this = Srq::from_raw(srq);
        let srq_limit = this.queue.lock().limit;
        attr.write(ibv_srq_attr { max_wr: this.max_wr, max_sge: this.max_sge, srq_limit });
    }
    0
}

/// `ibv_destroy_srq(3)`. `EBUSY` while a queue pair uses it. Waits until its events are acknowledged.
///
/// # Safety
/// `srq` is alive, and isn't used after success.
pub(crate) unsafe fn destroy(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { Srq::from_raw(srq) };
    // Relaxed: see `count_user`.
    if this.users.load(Ordering::Relaxed) != 0 {
        return libc::EBUSY;
    }
    fabric::quiesce();
    this.context().events.forget_srq(this);
    // SAFETY: the caller's: the domain outlives the queue, which refers to it; the box is `create`'s.
    unsafe {
        Pd::from_raw((*srq).pd).release();
        drop(Box::from_raw(srq.cast::<Srq>()));
    }
    0
}
