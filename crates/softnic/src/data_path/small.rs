//! The fast path of small messages.
//!
//! A message of up to 96 bytes to a connected queue pair is written into the receiver's completion queue: into its ring, or
//! into the receiver's mailbox when it is posted alone and the peer is known to have polled all before it. What that reads
//! and writes of other cores, per message: its one or two slots (the claim's line stays with one sender, and the mailbox
//! needs no claim), and one line of capacities in 16 messages. No lock is taken, nothing of the receiver's is waited for.
//! Each small message says how many of the other direction's its sender has polled.

use crate::copy::{copy_8, copy_32, copy_small};
use crate::data_path::completion::{self, HALF_PAYLOAD_BYTES, Header, SmallHeader};
use crate::data_path::errors::Errors;
use crate::data_path::execute;
use crate::data_path::rq::Consumed;
use crate::data_path::sq::{Counts, established_peer, room};
use crate::objects::cq::Cq;
use crate::objects::key_table::RegionKey;
use crate::objects::qp::Qp;
use rdma_sys::*;
use std::mem::MaybeUninit;
use verbline_sync::ring::{Claim, FIRST_PAYLOAD_BYTES, PAYLOAD_BYTES_MAX, Slot};

/// Small messages that are claimed for at a time.
const RUN: usize = 32;

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

/// Posts as many small messages from the front of the list as it can; false if the first isn't one that it can.
///
/// # Safety
/// The list is readable; the caller is the posting thread, inside its guard; `qp` is connected and its fast path open.
#[inline(always)]
pub(crate) unsafe fn post(qp: &Qp, next: &mut *const ibv_send_wr, errors: &mut Errors) -> bool {
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
    key: RegionKey,
}

impl Source {
    #[inline(always)]
    fn new(qp: &Qp) -> Source {
        Source {
            inline_bytes: qp.cap.max_inline_data as usize,
            has_sge: qp.cap.max_send_sge > 0,
            key: RegionKey::new(qp.pd, 0),
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
/// As [`post`]; a receive is posted, and there is room.
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
        unsafe { message.write(mailbox.first(), || mailbox.second(), peer.qpn, index, polled) };
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
/// As [`post`]; `most` receives are posted, there is room for as many, and it is [`RUN`] at most.
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
    /// Writes the message into the slots of a claim from `at` on; `index` is its receive's.
    ///
    /// # Safety
    /// The slots are claimed and unpublished; its bytes are readable.
    #[inline(always)]
    unsafe fn write_claimed(&self, claim: &Claim<'_>, at: u64, qpn: u32, index: u64, acked: u64) {
        let second = || {
            claim.mark_second(at);
            claim.slot(at + 1)
        };
        // SAFETY: the caller's.
        unsafe { self.write(claim.slot(at), second, qpn, index, acked) };
    }

    /// Writes the payload, then the header in front of it. The second slot first, then all of the first in one go: the receiver polls
    /// both lines all the time, and each return to a line may have to fetch it back.
    ///
    /// # Safety
    /// The slots are its sender's, unpublished; its bytes are readable.
    #[inline(always)]
    unsafe fn write<'a>(&self, first: &Slot, second: impl FnOnce() -> &'a Slot, qpn: u32, index: u64, acked: u64) {
        // SAFETY: the caller's.
        let wr = unsafe { &*self.wr };
        let imm = if wr.opcode == ibv_wr_opcode::IBV_WR_SEND_WITH_IMM {
            // SAFETY: a number, whichever it is.
            Some(unsafe { wr.imm_data_invalidated_rkey_union.imm_data })
        } else {
            None
        };
        // SAFETY: the caller's.
        unsafe { self.write_payload(first, second) };
        SmallHeader::new(acked, qpn, index, imm, self.len).write(first);
    }

    /// See [`completion::payload_of`]. What goes into the second slot begins at its body.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    #[inline(always)]
    unsafe fn write_payload<'a>(&self, first: &Slot, second: impl FnOnce() -> &'a Slot) {
        let [word, half] = first.body_mut(completion::payload_of);
        let (from, len) = (self.from, self.len);
        // SAFETY: the caller's: 8 and 32 bytes in the first slot, 56 in the second.
        unsafe {
            if len > FIRST_PAYLOAD_BYTES {
                let rest = second().body_mut(|body| body.cast::<u8>());
                copy_small(rest, from.add(FIRST_PAYLOAD_BYTES), len - FIRST_PAYLOAD_BYTES);
                copy_32(half, from);
                copy_8(word, from.add(HALF_PAYLOAD_BYTES));
            } else if len > HALF_PAYLOAD_BYTES {
                copy_32(half, from);
                copy_8(word, from.add(len - 8));
            } else {
                copy_small(half, from, len);
            }
        }
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
