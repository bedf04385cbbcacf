//! The send queue: posting, and the fast path of small messages.
//!
//! What it guarantees: work requests are carried out by the posting thread, in order, before `ibv_post_send(3)` returns,
//! unless one has to wait (`stall`); then it and those behind it are kept in order. `bad_wr` is the first that was
//! refused, and it and what follows it have no effect. A slot is free again once the completion of its work request,
//! or of a later one, was polled.
//!
//! A message of up to 88 bytes to a connected queue pair is written into the receiver's completion queue. What that
//! reads and writes of other cores, per message: its one or two slots of the ring (the claim's line stays with one
//! sender), and one line of capacities in 16 messages. No lock is taken, nothing of the receiver's is waited for.

use crate::completion::{self, HEADER_WORDS, Header};
use crate::copy::copy_small;
use crate::cq::Cq;
use crate::errors::Errors;
use crate::execute::{self, Outcome};
use crate::protocol::guard::Guard;
use crate::protocol::lock::SpinLock;
use crate::protocol::ring::{Claim, FIRST_PAYLOAD_BYTES, PAYLOAD_BYTES_MAX};
use crate::qp::Qp;
use crate::rq::Consumed;
use crate::stall::{self, Pending};
use crate::{fabric, key_table};
use crossbeam_utils::CachePadded;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// In `gate`: the state isn't RTS.
const NOT_RTS: u32 = 1;
/// In `gate`: work requests are pending.
const STALLED: u32 = 2;
/// Small messages that are claimed for at a time.
const RUN: usize = 16;

/// See the [module](self).
#[repr(C)]
pub(crate) struct Sq {
    /// The posting thread is inside.
    pub(crate) guard: Guard,
    /// 0: the fast path is open. Otherwise see the flags.
    gate: AtomicU32,
    /// The connected queue pair's number, and what its `Inbound::accept` must be.
    destination: AtomicU32,
    expect: AtomicU32,
    counts: UnsafeCell<Counts>,
    /// How often, and how long, to try: `IBV_QP_TIMEOUT`, `RETRY_CNT`, `RNR_RETRY`, `MAX_QP_RD_ATOMIC`.
    pub(crate) timeout: AtomicU32,
    pub(crate) retry_cnt: AtomicU32,
    pub(crate) rnr_retry: AtomicU32,
    pub(crate) max_rd_atomic: AtomicU32,
    /// Positions below are free. Written by the thread that polls the send CQ.
    freed: CachePadded<AtomicU64>,
    pub(crate) pending: CachePadded<SpinLock<Pending>>,
}

/// The posting thread's own.
#[derive(Debug, Default)]
struct Counts {
    posted: u64,
    /// A copy of `freed`.
    freed: u64,
}

/// A small message, checked.
#[derive(Clone, Copy)]
struct Small {
    from: *const u8,
    len: usize,
    wr: *const ibv_send_wr,
}

impl Small {
    #[inline(always)]
    fn slots(&self) -> u64 {
        1 + u64::from(self.len > FIRST_PAYLOAD_BYTES)
    }
}

impl Sq {
    pub(crate) fn new(cap: &ibv_qp_cap) -> Sq {
        Sq {
            guard: Guard::new(),
            gate: AtomicU32::new(NOT_RTS),
            destination: AtomicU32::new(0),
            expect: AtomicU32::new(0),
            counts: UnsafeCell::default(),
            timeout: AtomicU32::new(0),
            retry_cnt: AtomicU32::new(0),
            rnr_retry: AtomicU32::new(0),
            max_rd_atomic: AtomicU32::new(0),
            freed: CachePadded::new(AtomicU64::new(0)),
            pending: CachePadded::new(SpinLock::new(Pending::new(cap))),
        }
    }

    /// The poller's: positions below `position` are free.
    #[inline(always)]
    pub(crate) fn free_up_to(&self, position: u64) {
        // Release pairs with the Acquire in `reserve`. One thread at a time polls, so it only grows.
        self.freed.store(position, Ordering::Release);
    }

    /// The fast path is closed: the state is no longer RTS.
    pub(crate) fn close(&self) {
        // AcqRel: pairs with the Acquire in `is_open`.
        self.gate.fetch_or(NOT_RTS, Ordering::AcqRel);
    }

    /// The state is RTS.
    pub(crate) fn open(&self) {
        // AcqRel: what the move to RTS wrote is before.
        self.gate.fetch_and(!NOT_RTS, Ordering::AcqRel);
    }

    /// Work requests are pending, or no longer. Under the lock of `pending`.
    pub(crate) fn set_stalled(&self, stalled: bool) {
        // AcqRel: what was done for pending work requests is before the fast path opens; pairs with `is_open`.
        if stalled {
            self.gate.fetch_or(STALLED, Ordering::AcqRel);
        } else {
            self.gate.fetch_and(!STALLED, Ordering::AcqRel);
        }
    }

    /// Whether work requests are pending.
    pub(crate) fn is_stalled(&self) -> bool {
        // Acquire pairs with `set_stalled`.
        self.gate.load(Ordering::Acquire) & STALLED != 0
    }

    /// Whether the fast path is open.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        // Acquire pairs with `set_stalled` and `open`.
        self.gate.load(Ordering::Acquire) == 0
    }

    /// Whether a move to SQD waits for a work request that was begun before.
    pub(crate) fn is_draining(&self) -> bool {
        self.pending.lock().draining
    }

    /// Connects: to `destination`, whose `Inbound::accept` is `expect` when it is connected to us.
    pub(crate) fn connect(&self, destination: u32, expect: u32) {
        // Relaxed: the state that follows orders it.
        self.destination.store(destination, Ordering::Relaxed);
        self.expect.store(expect, Ordering::Relaxed);
    }

    /// The number of the connected queue pair.
    #[inline(always)]
    pub(crate) fn destination(&self) -> u32 {
        // Relaxed: changed only while nobody is inside a guard.
        self.destination.load(Ordering::Relaxed)
    }

    /// What the peer's `Inbound::accept` must be.
    #[inline(always)]
    pub(crate) fn expect(&self) -> u32 {
        // Relaxed: as above.
        self.expect.load(Ordering::Relaxed)
    }

    /// Control path, nobody inside a guard: as new.
    pub(crate) fn reset(&self) {
        self.connect(0, 0);
        // SAFETY: nobody posts while the control path resets.
        unsafe { *self.counts.get() = Counts::default() };
        // Relaxed: ordered by the quiescence before.
        self.freed.store(0, Ordering::Relaxed);
        self.pending.lock().clear();
        self.set_stalled(false);
    }
}

/// `ibv_post_send(3)`.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: by the verb's contract, which is also that one thread at a time posts.
    let this = unsafe { Qp::from_raw(qp) };
    let mut errors = Errors::new();
    let mut next: *const ibv_send_wr = wr;
    let code = {
        let _inside = this.sq.guard.enter();
        // SAFETY: as above: the list is readable.
        unsafe { post_all(this, &mut next, &mut errors) }
    };
    errors.finish();
    if code != 0 {
        // SAFETY: as above.
        unsafe { *bad_wr = next.cast_mut() };
    }
    code
}

/// Posts the list. On an error `next` is the work request that was refused.
///
/// # Safety
/// The list is readable; the caller is the posting thread, inside its guard.
#[inline(always)]
unsafe fn post_all(qp: &Qp, next: &mut *const ibv_send_wr, errors: &mut Errors) -> c_int {
    while !next.is_null() {
        if !qp.sq.is_open() {
            // SAFETY: the caller's.
            let code = unsafe { stall::post(qp, next, errors) };
            if code != 0 {
                return code;
            }
            continue;
        }
        // SAFETY: the caller's.
        if !qp.is_datagram() && unsafe { post_small(qp, next, errors) } {
            continue;
        }
        // SAFETY: the caller's.
        let code = unsafe { post_one(qp, *next, errors) };
        if code != 0 {
            return code;
        }
        // SAFETY: the caller's.
        *next = unsafe { (**next).next };
    }
    0
}

/// Posts one work request of any kind.
///
/// # Safety
/// As [`post_all`].
unsafe fn post_one(qp: &Qp, wr: *const ibv_send_wr, errors: &mut Errors) -> c_int {
    // SAFETY: the caller's.
    let bytes = match unsafe { execute::validate(qp, wr) } {
        Ok(bytes) => bytes,
        Err(code) => return code,
    };
    // SAFETY: the caller is the posting thread.
    let Some(position) = (unsafe { reserve(qp) }) else { return libc::ENOMEM };
    // SAFETY: the caller's, and the fast path is open: we are the only one to carry out this queue's work requests.
    match unsafe { execute::execute(qp, wr, bytes, errors) } {
        // SAFETY: the caller's.
        Outcome::Done(bytes) => unsafe { execute::complete(qp, wr, position, bytes, errors) },
        // SAFETY: the caller's.
        Outcome::Wait(_) => unsafe { stall::begin(qp, wr, position, errors) },
        // SAFETY: the caller's.
        Outcome::Failed(status) => unsafe { execute::fail(qp, wr, position, status, errors) },
    }
    0
}

/// Takes a position, if there is one.
///
/// # Safety
/// The caller is the posting thread.
pub(crate) unsafe fn reserve(qp: &Qp) -> Option<u64> {
    // SAFETY: the caller's.
    let counts = unsafe { &mut *qp.sq.counts.get() };
    (room(qp, counts, 0) > 0).then(|| {
        counts.posted += 1;
        counts.posted - 1
    })
}

/// Free positions, beside `taken`.
#[inline(always)]
fn room(qp: &Qp, counts: &mut Counts, taken: u64) -> u64 {
    let depth = u64::from(qp.cap.max_send_wr);
    if counts.posted + taken - counts.freed >= depth {
        // Acquire pairs with the Release in `free_up_to`.
        counts.freed = qp.sq.freed.load(Ordering::Acquire);
    }
    depth - (counts.posted + taken - counts.freed)
}

/// The queue pair that `qp` is connected to, if it accepts our messages and nothing is special about that.
#[inline(always)]
fn established_peer<'a>(qp: &'a Qp) -> Option<&'a Qp> {
    let peer = fabric::lookup::<'a>(qp.sq.destination())?;
    // Acquire pairs with the Release in `modify`: the peer is ready before it accepts.
    (peer.inbound.accept.load(Ordering::Acquire) == qp.sq.expect()).then_some(peer)
}

/// Posts as many small messages from the front of the list as it can; false if the first isn't one that it can.
///
/// # Safety
/// As [`post_all`]; `qp` is connected and its fast path open.
#[inline(always)]
unsafe fn post_small(qp: &Qp, next: &mut *const ibv_send_wr, errors: &mut Errors) -> bool {
    let Some(peer) = established_peer(qp) else { return false };
    if peer.srq().is_some() {
        return false;
    }
    // SAFETY: the peer accepts messages from us only, and we are the one thread that carries out ours.
    let consumed = unsafe { peer.rq.consumed() };
    // SAFETY: the caller is the posting thread.
    let counts = unsafe { &mut *qp.sq.counts.get() };
    // SAFETY: the caller's.
    let (first, wr) = unsafe { (checked(qp, *next), (**next).next) };
    let Some(first) = first else { return false };
    if !has_credit(peer, consumed, 0, first.len) || room(qp, counts, 0) == 0 {
        return false;
    }
    // SAFETY: the caller's, for both.
    unsafe {
        if wr.is_null() {
            post_single(qp, peer, consumed, counts, first, next, errors)
        } else {
            post_run(qp, peer, consumed, counts, first, next, errors)
        }
    }
}

/// Posts the only message of the list: nothing to collect, so everything stays in registers. Measured against a run of
/// one: 12 cycles of 50.
///
/// # Safety
/// As [`post_small`]; `message` was checked.
#[inline(always)]
unsafe fn post_single(
    qp: &Qp,
    peer: &Qp,
    consumed: &mut Consumed,
    counts: &mut Counts,
    message: Small,
    next: &mut *const ibv_send_wr,
    errors: &mut Errors,
) -> bool {
    let slots = message.slots();
    let cq = peer.recv_cq();
    let Ok(claim) = cq.ring.claim(slots) else { return false };
    // SAFETY: the caller's: its bytes were checked or are inline; the receive is posted; the slots are claimed.
    let wr = unsafe {
        write(peer, peer.tag(), &claim, claim.first, &message, consumed.head);
        &*message.wr
    };
    completion::notify(cq, wr.send_flags & ibv_send_flags::IBV_SEND_SOLICITED.0 != 0);
    consumed.head += 1;
    counts.posted += 1;
    if execute::is_signaled(qp, wr) {
        // SAFETY: readable.
        unsafe { execute::complete(qp, wr, counts.posted - 1, message.len as u64, errors) };
    }
    *next = std::ptr::null();
    true
}

/// Posts a run of messages with one claim.
///
/// # Safety
/// As [`post_small`]; `first` was checked, and is that of `next`.
#[inline(never)]
unsafe fn post_run(
    qp: &Qp,
    peer: &Qp,
    consumed: &mut Consumed,
    counts: &mut Counts,
    first: Small,
    next: &mut *const ibv_send_wr,
    errors: &mut Errors,
) -> bool {
    let mut run = [const { MaybeUninit::<Small>::uninit() }; RUN];
    let (mut count, mut slots) = (0, 0);
    let mut message = first;
    loop {
        run[count].write(message);
        slots += message.slots();
        count += 1;
        // SAFETY: the caller's.
        let wr = unsafe { (*message.wr).next };
        *next = wr;
        if count == RUN || wr.is_null() {
            break;
        }
        // SAFETY: the caller's.
        let Some(another) = (unsafe { checked(qp, wr) }) else { break };
        if !has_credit(peer, consumed, count as u64, another.len) || room(qp, counts, count as u64) == 0 {
            break;
        }
        message = another;
    }
    let Ok(claim) = peer.recv_cq().ring.claim(slots) else {
        *next = first.wr;
        return false;
    };
    // SAFETY: the first `count` are written.
    let run = unsafe { std::slice::from_raw_parts(run.as_ptr().cast::<Small>(), count) };
    // SAFETY: the work requests are readable, their buffers were checked or are inline.
    unsafe {
        deliver(peer, &claim, run, consumed.head);
        consumed.head += count as u64;
        complete_run(qp, run, counts.posted, errors);
    }
    counts.posted += count as u64;
    true
}

/// The work request as a small message, if it is one and everything about it is in order.
///
/// # Safety
/// `wr` is readable; a guard is entered.
#[inline(always)]
unsafe fn checked(qp: &Qp, wr: *const ibv_send_wr) -> Option<Small> {
    // SAFETY: the caller's.
    let request = unsafe { &*wr };
    if request.opcode != ibv_wr_opcode::IBV_WR_SEND && request.opcode != ibv_wr_opcode::IBV_WR_SEND_WITH_IMM {
        return None;
    }
    if request.num_sge == 0 {
        return Some(Small { from: std::ptr::null(), len: 0, wr });
    }
    if request.num_sge != 1 || qp.cap.max_send_sge == 0 {
        return None;
    }
    // SAFETY: the caller's; there is one.
    let sge = unsafe { &*request.sg_list };
    let len = sge.length as usize;
    if len == 0 || len > PAYLOAD_BYTES_MAX {
        return None;
    }
    if request.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0 {
        let from = sge.addr as *const u8;
        return (sge.length <= qp.cap.max_inline_data).then_some(Small { from, len, wr });
    }
    let from = key_table::check_local(qp.pd, sge.lkey, sge.addr, len as u64, 0).ok()?;
    Some(Small { from, len, wr })
}

/// Whether the receive that is `ahead` of the next one is posted and takes `len` bytes.
#[inline(always)]
fn has_credit(peer: &Qp, consumed: &mut Consumed, ahead: u64, len: usize) -> bool {
    let index = consumed.head + ahead;
    if index == consumed.credit {
        consumed.credit = peer.rq.posted.read();
        if index == consumed.credit {
            return false;
        }
    }
    peer.rq.capacity(index) as usize >= len
}

/// Writes the messages into the peer's completion queue.
///
/// # Safety
/// `claim` has the slots that they need; their bytes are readable; receives from `index` on are posted.
#[inline(always)]
unsafe fn deliver(peer: &Qp, claim: &Claim, run: &[Small], mut index: u64) {
    let tag = peer.tag();
    let mut position = claim.first;
    let mut flags = 0;
    for message in run {
        // SAFETY: the caller's.
        unsafe {
            write(peer, tag, claim, position, message, index);
            flags |= (*message.wr).send_flags;
        }
        position += message.slots();
        index += 1;
    }
    completion::notify(peer.recv_cq(), flags & ibv_send_flags::IBV_SEND_SOLICITED.0 != 0);
}

/// Writes one message at `position` and publishes it.
///
/// # Safety
/// Its slots are claimed, its bytes readable, receive `index` posted.
#[inline(always)]
unsafe fn write(peer: &Qp, tag: u32, claim: &Claim, position: u64, message: &Small, index: u64) {
    // SAFETY: the caller's.
    let wr = unsafe { &*message.wr };
    let two_slots = message.len > FIRST_PAYLOAD_BYTES;
    let with_imm = wr.opcode == ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
    let header = Header {
        word: index,
        qpn: peer.qpn,
        status: completion::SUCCESS,
        byte_len: message.len as u32,
        // SAFETY: a number, whichever it is.
        imm: if with_imm { unsafe { wr.imm_data_invalidated_rkey_union.imm_data } } else { 0 },
        opcode: completion::RECV,
        flags: if with_imm { ibv_wc_flags::IBV_WC_WITH_IMM.0 } else { 0 },
        payload: message.len as u32,
    };
    let slot = claim.slot(position);
    // The second slot first, then all of the first in one go: the receiver polls both lines all the time, and each
    // return to a line may have to fetch it back.
    // SAFETY: claimed and unpublished; 32 bytes behind the header, 56 in the second slot.
    unsafe {
        if two_slots {
            let rest = message.len - FIRST_PAYLOAD_BYTES;
            let from = message.from.add(FIRST_PAYLOAD_BYTES);
            claim.slot(position + 1).body_mut(|body| copy_small(body.cast(), from, rest));
            claim.mark_second(position);
            slot.body_mut(|body| {
                copy_small(body.cast::<u64>().add(HEADER_WORDS).cast(), message.from, FIRST_PAYLOAD_BYTES)
            });
        } else {
            slot.body_mut(|body| copy_small(body.cast::<u64>().add(HEADER_WORDS).cast(), message.from, message.len));
        }
    }
    header.write(slot);
    claim.publish(position, tag, two_slots);
}

/// Adds the send completions of a run whose first is at `position`: one claim for all that are signaled.
///
/// # Safety
/// The work requests are readable.
#[inline(always)]
unsafe fn complete_run(qp: &Qp, run: &[Small], position: u64, errors: &mut Errors) {
    // SAFETY: the caller's.
    let is_signaled = |small: &Small| execute::is_signaled(qp, unsafe { &*small.wr });
    let signaled = run.iter().filter(|small| is_signaled(small)).count();
    if signaled == 0 {
        return;
    }
    let cq: &Cq = qp.send_cq();
    let Ok(claim) = completion::claim(cq, signaled as u64) else {
        return errors.fail_fatally(qp);
    };
    let signaled = run.iter().enumerate().filter(|(_, small)| is_signaled(small));
    for (at, (offset, small)) in (claim.first..).zip(signaled) {
        let header = Header {
            // SAFETY: the caller's.
            word: unsafe { (*small.wr).wr_id },
            qpn: qp.qpn,
            byte_len: small.len as u32,
            opcode: ibv_wc_opcode::IBV_WC_SEND,
            ..Header::default()
        };
        let slot = claim.slot(at);
        header.write(slot);
        completion::write_extra(slot, [position + offset as u64 + 1, 0]);
        claim.publish(at, qp.tag(), false);
    }
    completion::notify(cq, false);
}
