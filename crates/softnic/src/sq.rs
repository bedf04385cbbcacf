//! The send queue: posting, and the fast path of small messages.
//!
//! What it guarantees: work requests are carried out by the posting thread, in order, before `ibv_post_send(3)` returns,
//! unless one has to wait (`stall`); then it and those behind it are kept in order. `bad_wr` is the first that was
//! refused, and it and what follows it have no effect. A slot is free again once the completion of its work request,
//! or of a later one, was polled.
//!
//! A message of up to 88 bytes to a connected queue pair is written into the receiver's completion queue: into its ring, or
//! into the receiver's mailbox when it is posted alone and the peer is known to have polled all before it. What that reads
//! and writes of other cores, per message: its one or two slots (the claim's line stays with one sender, and the mailbox
//! needs no claim), and one line of capacities in 16 messages. No lock is taken, nothing of the receiver's is waited for.
//! Each small message says how many of the other direction's its sender has polled.

use crate::completion::{self, HEADER_WORDS, Header, SmallHeader};
use crate::copy::{copy_32, copy_small};
use crate::cq::Cq;
use crate::errors::Errors;
use crate::execute::{self, Outcome};
use crate::fabric;
use crate::key_table::LocalKey;
use crate::protocol::guard::Guard;
use crate::protocol::lock::SpinLock;
use crate::protocol::mailbox::Mailbox;
use crate::protocol::ring::{Claim, FIRST_PAYLOAD_BYTES, PAYLOAD_BYTES_MAX, Slot};
use crate::qp::Qp;
use crate::rq::Consumed;
use crate::stall::{self, Pending};
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
const RUN: usize = 32;

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
    polled: CachePadded<Polled>,
    pub(crate) pending: CachePadded<SpinLock<Pending>>,
}

/// What the pollers tell the posting thread.
#[derive(Debug)]
#[repr(C)]
struct Polled {
    /// Positions below are free. Written by the thread that polls the send CQ.
    freed: AtomicU64,
    /// How many of our messages the peer has polled, as its last small message said; [`Sq::UNKNOWN`] before the first.
    /// Written by the thread that polls the receive CQ.
    acked: AtomicU64,
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
    /// As an acknowledged count: nothing is known.
    pub(crate) const UNKNOWN: u64 = u64::MAX;

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
            polled: CachePadded::new(Polled { freed: AtomicU64::new(0), acked: AtomicU64::new(Sq::UNKNOWN) }),
            pending: CachePadded::new(SpinLock::new(Pending::new(cap))),
        }
    }

    /// The poller's: positions below `position` are free.
    #[inline(always)]
    pub(crate) fn free_up_to(&self, position: u64) {
        // Release pairs with the Acquire in `reserve`. One thread at a time polls, so it only grows.
        self.polled.freed.store(position, Ordering::Release);
    }

    /// The poller's: the peer has polled so many of our messages.
    #[inline(always)]
    pub(crate) fn acknowledge(&self, messages: u64) {
        // Release pairs with the Acquire in `mailbox_of`: what the peer read is read.
        self.polled.acked.store(messages, Ordering::Release);
    }

    /// The peer's mailbox, if it has one and has polled all `sent` messages that were sent to it.
    ///
    /// What is known is of this connection, since a queue pair forgets it when it is reset; and an index of the peer's
    /// stands for one message only, whatever became of the peer meanwhile (`Rq::reset`).
    #[inline(always)]
    fn mailbox_of<'a>(&self, peer: &'a Qp, sent: u64) -> Option<&'a Mailbox> {
        // Acquire pairs with the Release in `acknowledge`: the mailbox may be written over.
        if self.polled.acked.load(Ordering::Acquire) == sent { peer.mailbox() } else { None }
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
        self.polled.freed.store(0, Ordering::Relaxed);
        self.polled.acked.store(Sq::UNKNOWN, Ordering::Relaxed);
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
        counts.freed = qp.sq.polled.freed.load(Ordering::Acquire);
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
    if consumed.head == consumed.credit {
        consumed.credit = peer.rq.posted.read();
    }
    // What is known to be there: more is looked for when that is used up.
    let most = room(qp, counts, 0).min(consumed.credit - consumed.head);
    if most == 0 {
        return false;
    }
    // SAFETY: the caller's, for both.
    unsafe {
        if (**next).next.is_null() {
            post_single(qp, peer, consumed, counts, next, errors)
        } else {
            post_list(qp, peer, consumed, counts, next, most.min(RUN as u64) as usize, errors)
        }
    }
}

/// Checks work requests: what they need of their queue pair, copied, since what is stored meanwhile could be any of it as
/// far as the compiler knows.
struct Source {
    inline_bytes: usize,
    has_sge: bool,
    key: LocalKey,
}

impl Source {
    #[inline(always)]
    fn new(qp: &Qp) -> Source {
        Source {
            inline_bytes: qp.cap.max_inline_data as usize,
            has_sge: qp.cap.max_send_sge > 0,
            key: LocalKey::new(qp.pd, 0),
        }
    }

    /// The work request as a small message, if it is one and everything about it is in order. A message without bytes is
    /// none: it would look like no payload.
    ///
    /// # Safety
    /// `wr` is readable; a guard is entered, and was since `new`.
    #[inline(always)]
    unsafe fn small(&mut self, wr: *const ibv_send_wr) -> Option<Small> {
        // SAFETY: the caller's.
        let request = unsafe { &*wr };
        if request.opcode != ibv_wr_opcode::IBV_WR_SEND && request.opcode != ibv_wr_opcode::IBV_WR_SEND_WITH_IMM {
            return None;
        }
        if request.num_sge != 1 || !self.has_sge {
            return None;
        }
        // SAFETY: the caller's; there is one.
        let sge = unsafe { &*request.sg_list };
        let len = sge.length as usize;
        if len.wrapping_sub(1) >= PAYLOAD_BYTES_MAX {
            return None;
        }
        if request.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0 {
            let from = sge.addr as *const u8;
            return (len <= self.inline_bytes).then_some(Small { from, len, wr });
        }
        let from = self.key.check(sge.lkey, sge.addr, len as u64).ok()?;
        Some(Small { from, len, wr })
    }
}

/// Posts the only message of the list: nothing to collect, so everything stays in registers. Measured against a list of
/// one: 12 cycles of 50.
///
/// # Safety
/// As [`post_small`]; a receive is posted, and there is room.
#[inline(always)]
unsafe fn post_single(
    qp: &Qp,
    peer: &Qp,
    consumed: &mut Consumed,
    counts: &mut Counts,
    next: &mut *const ibv_send_wr,
    errors: &mut Errors,
) -> bool {
    let index = consumed.head;
    // SAFETY: the caller's.
    let Some(message) = (unsafe { Source::new(qp).small(*next) }) else { return false };
    if (peer.rq.capacity(index) as usize) < message.len {
        return false;
    }
    let (polled, cq, two) = (qp.rq.polled(), peer.recv_cq(), message.slots() == 2);
    if let Some(mailbox) = qp.sq.mailbox_of(peer, index) {
        // SAFETY: its bytes were checked or are inline; the mailbox's last message was taken.
        unsafe {
            message.write_rest(mailbox.second());
            message.write(mailbox.first(), peer.qpn, index, polled);
        }
        mailbox.publish(index, peer.tag(), two);
    } else {
        let Ok(claim) = cq.ring.claim(message.slots()) else { return false };
        // SAFETY: as above; the slots are claimed.
        unsafe { message.write_claimed(&claim, claim.first, peer.qpn, index, polled) };
        claim.publish(claim.first, peer.tag(), two);
    }
    // SAFETY: the caller's.
    let wr = unsafe { &*message.wr };
    completion::notify(cq, wr.send_flags & ibv_send_flags::IBV_SEND_SOLICITED.0 != 0);
    consumed.head = index + 1;
    counts.posted += 1;
    if execute::is_signaled(qp, wr) {
        // SAFETY: readable.
        unsafe { execute::complete(qp, wr, counts.posted - 1, message.len as u64, errors) };
    }
    *next = std::ptr::null();
    true
}

/// Posts small messages from the front of the list, `most` at most, with one claim. False if there is none.
///
/// # Safety
/// As [`post_small`]; `most` receives are posted, there is room for as many, and it is [`RUN`] at most.
#[inline(never)]
unsafe fn post_list(
    qp: &Qp,
    peer: &Qp,
    consumed: &mut Consumed,
    counts: &mut Counts,
    next: &mut *const ibv_send_wr,
    most: usize,
    errors: &mut Errors,
) -> bool {
    let index = consumed.head;
    let mut source = Source::new(qp);
    let mut run = [const { MaybeUninit::<Small>::uninit() }; RUN];
    let (mut count, mut slots, mut flags) = (0, 0, 0);
    let mut wr = *next;
    while count < most && !wr.is_null() {
        // SAFETY: the caller's.
        let Some(message) = (unsafe { source.small(wr) }) else { break };
        if (peer.rq.capacity(index + count as u64) as usize) < message.len {
            break;
        }
        run[count].write(message);
        slots += message.slots();
        count += 1;
        // SAFETY: the caller's.
        unsafe { (flags, wr) = (flags | (*wr).send_flags, (*wr).next) };
    }
    if count == 0 {
        return false;
    }
    let cq = peer.recv_cq();
    let Ok(claim) = cq.ring.claim(slots) else { return false };
    *next = wr;
    // SAFETY: the first `count` are written.
    let run = unsafe { std::slice::from_raw_parts(run.as_ptr().cast::<Small>(), count) };
    let (polled, tag, qpn, mut at) = (qp.rq.polled(), peer.tag(), peer.qpn, claim.first);
    for (index, message) in (index..).zip(run) {
        // SAFETY: its bytes were checked or are inline; its receive is posted; its slots are claimed.
        unsafe { message.write_claimed(&claim, at, qpn, index, polled) };
        claim.publish(at, tag, message.slots() == 2);
        at += message.slots();
    }
    completion::notify(cq, flags & ibv_send_flags::IBV_SEND_SOLICITED.0 != 0);
    consumed.head = index + count as u64;
    if qp.sig_all || flags & ibv_send_flags::IBV_SEND_SIGNALED.0 != 0 {
        // SAFETY: the work requests are readable.
        unsafe { complete_run(qp, run, counts.posted, errors) };
    }
    counts.posted += count as u64;
    true
}

impl Small {
    /// Writes the message into the slots of a claim from `at` on; `index` is its receive's. The second slot first, then all of
    /// the first in one go: the receiver polls both lines all the time, and each return to a line may have to fetch it back.
    ///
    /// # Safety
    /// The slots are claimed and unpublished; its bytes are readable.
    #[inline(always)]
    unsafe fn write_claimed(&self, claim: &Claim, at: u64, qpn: u32, index: u64, acked: u64) {
        // SAFETY: the caller's.
        unsafe {
            if self.slots() == 2 {
                self.write_rest(claim.slot(at + 1));
                claim.mark_second(at);
            }
            self.write(claim.slot(at), qpn, index, acked);
        }
    }

    /// Writes the bytes that the first slot has no room for.
    ///
    /// # Safety
    /// The slot is its sender's, unpublished; its bytes are readable.
    #[inline(always)]
    unsafe fn write_rest(&self, second: &Slot) {
        if self.len > FIRST_PAYLOAD_BYTES {
            let rest = self.len - FIRST_PAYLOAD_BYTES;
            // SAFETY: the caller's; 56 bytes in the slot.
            second.body_mut(|body| unsafe { copy_small(body.cast(), self.from.add(FIRST_PAYLOAD_BYTES), rest) });
        }
    }

    /// Writes the header and what follows it.
    ///
    /// # Safety
    /// As [`write_rest`](Self::write_rest).
    #[inline(always)]
    unsafe fn write(&self, first: &Slot, qpn: u32, index: u64, acked: u64) {
        // SAFETY: the caller's.
        let wr = unsafe { &*self.wr };
        let (mut imm, mut flags) = (0, 0);
        if wr.opcode == ibv_wr_opcode::IBV_WR_SEND_WITH_IMM {
            // SAFETY: a number, whichever it is.
            imm = unsafe { wr.imm_data_invalidated_rkey_union.imm_data };
            flags = ibv_wc_flags::IBV_WC_WITH_IMM.0;
        }
        first.body_mut(|body| {
            let to = body.cast::<u64>().wrapping_add(HEADER_WORDS).cast::<u8>();
            // SAFETY: the caller's; 32 bytes behind the header.
            unsafe {
                if self.len >= FIRST_PAYLOAD_BYTES {
                    copy_32(to, self.from);
                } else {
                    copy_small(to, self.from, self.len);
                }
            }
        });
        SmallHeader::new(acked, qpn, index, imm, flags, self.len).write(first);
    }
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
