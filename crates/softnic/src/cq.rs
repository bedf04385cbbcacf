//! Completion queues: polling, arming, and their life.
//!
//! What it guarantees: completions come out whole and in the order in which they were added. A small message lies in
//! the ring until it is polled; polling copies it into the posted buffer, whose key is checked once more. What belongs
//! to a queue pair that was reset or destroyed meanwhile isn't given out. After an overrun the rest can be polled, then
//! polling gives -1. `cqe` completions always fit; more may.
//!
//! One thread at a time polls, arms or resizes a queue. Any number of threads add to it.

use crate::acknowledged::Fields;
use crate::async_event::HandedOut;
use crate::channel::Channel;
use crate::completion::{self, HEADER_WORDS, Header};
use crate::context::Context;
use crate::copy::copy_small;
use crate::errors::Errors;
use crate::protocol::guard::Guard;
use crate::protocol::ring::{self, Consumer, CqRing, Entry, FIRST_PAYLOAD_BYTES};
use crate::qp::Qp;
use crate::stall::{self, StalledQps};
use crate::{device, errno, fabric, key_table, scatter};
use crossbeam_utils::CachePadded;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

/// `ibv_cq` first (in `ibv_cq_ex`'s shape), so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Cq {
    raw: UnsafeCell<ibv_cq_ex>,
    channel: *const Channel,
    pub(crate) ring: CqRing,
    polling: CachePadded<Polling>,
    /// Send queues of this CQ that have something pending.
    pub(crate) stalled: StalledQps,
    pub(crate) comp_handed_out: HandedOut,
    pub(crate) async_handed_out: HandedOut,
    users: AtomicU32,
}

/// The polling thread's own.
#[repr(C)]
struct Polling {
    consumer: UnsafeCell<Consumer>,
    guard: Guard,
}

// SAFETY: `raw` is shared as libibverbs shares it (fields under its own mutex); `polling` is used by one thread at a
// time, by contract; the rest is made for sharing.
unsafe impl Sync for Cq {}

const _: () = assert!(size_of::<ibv_cq_ex>() == 288);

impl Cq {
    /// # Safety
    /// `cq` is one that [`create`] gave and [`destroy`] has not taken back.
    #[inline(always)]
    pub(crate) unsafe fn from_raw<'a>(cq: *mut ibv_cq) -> &'a Cq {
        // SAFETY: `raw` is first in a `Cq`.
        unsafe { &*cq.cast::<Cq>() }
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.get().cast()
    }

    pub(crate) fn context(&self) -> &Context {
        // SAFETY: written at creation only; the context outlives its objects.
        unsafe { Context::from_raw((*self.raw.get()).context) }
    }

    pub(crate) fn user_context(&self) -> *mut c_void {
        // SAFETY: written at creation only.
        unsafe { (*self.raw.get()).cq_context }
    }

    pub(crate) fn async_acks(&self) -> Fields {
        let raw = self.raw.get();
        // SAFETY: addresses of fields of a live object.
        unsafe { Fields::new(&raw mut (*raw).mutex, &raw mut (*raw).cond, &raw mut (*raw).async_events_completed) }
    }

    pub(crate) fn comp_acks(&self) -> Fields {
        let raw = self.raw.get();
        // SAFETY: addresses of fields of a live object.
        unsafe { Fields::new(&raw mut (*raw).mutex, &raw mut (*raw).cond, &raw mut (*raw).comp_events_completed) }
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

    /// Its request for a notification was taken: here it is.
    #[cold]
    pub(crate) fn notify(&self) {
        // SAFETY: the channel outlives the queue, which is counted as its user.
        if let Some(channel) = unsafe { self.channel.as_ref() } {
            channel.push(self);
        }
    }
}

/// `ibv_poll_cq(3)`.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: by the verb's contract, which is also that one thread at a time polls.
    let this = unsafe { Cq::from_raw(cq) };
    if this.stalled.any() {
        stall::retry_all(this, &this.polling.guard);
    }
    // SAFETY: one thread at a time.
    let consumer = unsafe { &mut *this.polling.consumer.get() };
    let Some(first) = consumer.next(&this.ring) else {
        return if this.ring.is_overrun() { -1 } else { 0 };
    };
    let mut errors = Errors::new();
    // SAFETY: by the verb's contract `wc` has room for `entries`.
    let polled = unsafe { take(this, consumer, first, entries, wc, &mut errors) };
    consumer.publish_head(&this.ring);
    errors.finish();
    polled
}

/// # Safety
/// The caller is the polling thread; `wc` has room for `entries` completions.
#[inline(always)]
unsafe fn take(
    this: &Cq,
    consumer: &mut Consumer,
    first: Entry,
    entries: c_int,
    wc: *mut ibv_wc,
    errors: &mut Errors,
) -> c_int {
    let _inside = this.polling.guard.enter();
    let mut entry = first;
    let mut polled = 0;
    while polled < entries {
        // SAFETY: `polled` < `entries`.
        let given = unsafe { decode(&entry, wc.add(polled as usize), errors) };
        polled += c_int::from(given);
        consumer.advance(entry.slots());
        if polled == entries {
            break;
        }
        match consumer.next(&this.ring) {
            Some(next) => entry = next,
            None => break,
        }
    }
    polled
}

/// Turns a completion into `wc`. False if its queue pair is gone, or was reset since.
///
/// # Safety
/// `wc` is writable; a guard is entered.
#[inline(always)]
unsafe fn decode(entry: &Entry, wc: *mut ibv_wc, errors: &mut Errors) -> bool {
    let header = Header::read(entry.first());
    let Some(qp) = fabric::lookup(header.qpn) else { return false };
    // Relaxed: changed only while nobody is inside a guard.
    if qp.inbound.tag.load(Ordering::Relaxed) != entry.tag {
        return false;
    }
    if header.opcode < completion::RECV {
        let [freed, _] = completion::read_extra(entry.first());
        qp.sq.free_up_to(freed);
        // SAFETY: the caller's.
        unsafe { write_wc(wc, &header, header.word, header.status, 0, 0) };
        return true;
    }
    // SAFETY: a guard is entered, the completion isn't given back yet.
    unsafe { decode_receive(entry, &header, qp, wc, errors) };
    true
}

/// # Safety
/// As [`decode`].
#[inline(always)]
unsafe fn decode_receive(entry: &Entry, header: &Header, qp: &Qp, wc: *mut ibv_wc, errors: &mut Errors) {
    if header.payload > 0 {
        let mut status = header.status;
        // SAFETY: the index came from that queue's sender, and its slot is free only after we say so below. A payload
        // in the ring is that of a connected queue pair without a shared queue.
        let wqe = unsafe { qp.rq.wqes.wqe(header.word) };
        // SAFETY: as above, and the payload is in the entry's slots.
        if unsafe { place(entry, header.payload as usize, qp.pd, &wqe) }.is_err() {
            status = ibv_wc_status::IBV_WC_LOC_PROT_ERR;
            errors.fail(qp);
        }
        // SAFETY: as above, and the caller's.
        unsafe { write_wc(wc, header, wqe.wr_id(), status, 0, 0) };
        return qp.rq.free_up_to(header.word + 1);
    }
    // SAFETY: as above.
    let wr_id = unsafe { qp.receives().wqe(header.word).wr_id() };
    let (mut source, mut slid) = (0, 0);
    if qp.is_datagram() {
        let [from, _] = completion::read_extra(entry.first());
        (source, slid) = (from as u32, (from >> 32) as u16);
    }
    qp.receive_polled(header.word);
    // SAFETY: the caller's.
    unsafe { write_wc(wc, header, wr_id, header.status, source, slid) };
}

/// Copies a payload out of the ring into the receive's buffers.
///
/// # Safety
/// A guard is entered; `wqe` is the receive that the completion is of, whose capacity was checked.
#[inline(always)]
unsafe fn place(entry: &Entry, len: usize, pd: u32, wqe: &scatter::Wqe) -> Result<(), key_table::Denied> {
    let first = entry.first().body(|body| body.cast::<u8>().wrapping_add(8 * HEADER_WORDS));
    let second = entry.second().body(|body| body.cast::<u8>());
    let in_first = len.min(FIRST_PAYLOAD_BYTES);
    // SAFETY: the caller's.
    let sge = unsafe { wqe.sge(0) };
    if scatter::sge_bytes(&sge) >= len as u64 {
        let to = key_table::check_local(pd, sge.lkey, sge.addr, len as u64, key_table::LOCAL_WRITE)?;
        // SAFETY: the key grants `len` bytes there; the slots hold them, split where the first one ends.
        unsafe {
            copy_small(to, first, in_first);
            if len > in_first {
                copy_small(to.add(in_first), second, len - in_first);
            }
        }
        return Ok(());
    }
    let mut gathered = [0u8; ring::PAYLOAD_BYTES_MAX];
    // SAFETY: as above, into a local.
    unsafe {
        copy_small(gathered.as_mut_ptr(), first, in_first);
        if len > in_first {
            copy_small(gathered.as_mut_ptr().add(in_first), second, len - in_first);
        }
        scatter::from_bytes(pd, wqe, gathered.as_ptr(), len)
    }
}

/// # Safety
/// `wc` is writable.
#[inline(always)]
unsafe fn write_wc(wc: *mut ibv_wc, header: &Header, wr_id: u64, status: u32, src_qp: u32, slid: u16) {
    // SAFETY: the caller's.
    unsafe {
        wc.write(ibv_wc {
            wr_id,
            status,
            opcode: header.opcode,
            vendor_err: 0,
            byte_len: header.byte_len,
            imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t { imm_data: header.imm },
            qp_num: header.qpn,
            src_qp,
            wc_flags: header.flags,
            pkey_index: 0,
            slid,
            sl: 0,
            dlid_path_bits: 0,
        });
    }
}

/// `ibv_req_notify_cq(3)`.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: by the verb's contract, which is also that the thread that polls also arms.
    let this = unsafe { Cq::from_raw(cq) };
    // SAFETY: as above.
    let consumer = unsafe { &mut *this.polling.consumer.get() };
    consumer.arm(&this.ring, if solicited_only == 0 { ring::NEXT } else { ring::SOLICITED });
    0
}

/// `ibv_create_cq(3)`.
///
/// # Safety
/// `context` is open; `channel` is null or alive.
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let Some(slots) = slots_for(cqe) else { return errno::null(libc::EINVAL) };
    if comp_vector != 0 {
        return errno::null(libc::EINVAL);
    }
    let (ring, consumer) = CqRing::new(slots);
    // SAFETY: integers, pointers and optional functions, for all of which zero is a value.
    let mut raw: ibv_cq_ex = unsafe { std::mem::zeroed() };
    (raw.context, raw.channel, raw.cq_context, raw.cqe) = (context, channel, cq_context, (slots / 2) as c_int);
    let cq = Box::leak(Box::new(Cq {
        raw: UnsafeCell::new(raw),
        channel: channel.cast_const().cast(),
        ring,
        polling: CachePadded::new(Polling { consumer: UnsafeCell::new(consumer), guard: Guard::new() }),
        stalled: StalledQps::default(),
        comp_handed_out: HandedOut::default(),
        async_handed_out: HandedOut::default(),
        users: AtomicU32::new(0),
    }));
    // SAFETY: its fields, which nobody else uses yet. Mutex and condition are shared by both counters.
    unsafe { cq.comp_acks().init() };
    if !channel.is_null() {
        // SAFETY: the caller's.
        unsafe { Channel::from_raw(channel) }.count_user(true);
    }
    cq.context().adopt();
    fabric::register(&[&cq.polling.guard]);
    cq.as_ptr()
}

/// Slots so that `cqe` completions of two slots each fit. `None` if nobody can want that many.
fn slots_for(cqe: c_int) -> Option<usize> {
    let cqe = u32::try_from(cqe).ok().filter(|cqe| (1..=device::CQE_MAX).contains(cqe))?;
    Some((cqe as usize * 2).next_power_of_two().max(8))
}

/// `ibv_resize_cq(3)`. It grows, or stays; `EINVAL` for a size that can't be.
///
/// # Safety
/// `cq` is alive, and polled by nobody else meanwhile.
pub(crate) unsafe fn resize(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { Cq::from_raw(cq) };
    let Some(slots) = slots_for(cqe) else { return libc::EINVAL };
    // SAFETY: the caller's: we are the polling thread.
    let consumer = unsafe { &mut *this.polling.consumer.get() };
    consumer.grow(&this.ring, slots);
    // SAFETY: read by the user only, after this returns.
    unsafe { (*this.raw.get()).cqe = (this.ring.capacity() / 2) as c_int };
    0
}

/// `ibv_destroy_cq(3)`. `EBUSY` while a queue pair uses it. Waits until its events are acknowledged.
///
/// # Safety
/// `cq` is alive, and isn't used after success.
pub(crate) unsafe fn destroy(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { Cq::from_raw(cq) };
    // Relaxed: see `count_user`.
    if this.users.load(Ordering::Relaxed) != 0 {
        return libc::EBUSY;
    }
    // Queue pairs that used it are gone; whoever is still inside a guard with it leaves here.
    fabric::quiesce();
    // SAFETY: the channel outlives the queue, which is counted as its user.
    if let Some(channel) = unsafe { this.channel.as_ref() } {
        let handed_out = channel.forget(this);
        // SAFETY: initialised at creation.
        unsafe { this.comp_acks().wait(handed_out) };
        channel.count_user(false);
    }
    this.context().events.forget_cq(this);
    fabric::unregister(&[&this.polling.guard]);
    this.context().release();
    // SAFETY: the box that `create` leaked.
    drop(unsafe { Box::from_raw(cq.cast::<Cq>()) });
    0
}
