//! The fast path of small messages.
//!
//! A message of up to 96 bytes to a connected queue pair is written into the receiver's completion
//! queue: into its ring, or into the receiver's mailbox when it is posted alone and the peer is
//! known to have polled all before it. Lines of other cores that this reads or writes, per message:
//! its one or two slots (the claim's line stays with one sender, and the mailbox needs no claim),
//! and one line of capacities in 16 messages. It takes no lock and never waits for the receiver.
//! Each small message carries the count of messages of the other direction that its sender has
//! polled.

use crate::copy::{copy_8, copy_32, copy_small};
use crate::data_path::completion::{self, HALF_PAYLOAD_BYTES, Header, SmallHeader};
use crate::data_path::errors::Errors;
use crate::data_path::execute;
use crate::data_path::poster::Poster;
use crate::key_table::RegionKey;
use crate::objects::cq::Cq;
use crate::objects::qp::Qp;
use crate::queues::wr::SendWr;
use rdma_sys::*;
use std::mem::MaybeUninit;
use verbline_sync::ring::{Claim, FIRST_PAYLOAD_BYTES, PAYLOAD_BYTES_MAX, Slot};

/// The most small messages of one claim.
const RUN: usize = 32;

/// A checked small message: its bytes are inline, or granted by its key while the guard is held.
#[derive(Clone, Copy)]
struct Small<'a> {
    from: *const u8,
    len: usize,
    wr: SendWr<'a>,
}

/// Posts as many small messages from `wr` on as it can, and returns the rest; `None` if it can't
/// take even the first. The queue pair is connected, and its fast path open.
#[inline(always)]
pub(crate) fn post<'a>(poster: Poster<'_>, wr: SendWr<'a>, errors: &mut Errors) -> Option<Option<SendWr<'a>>> {
    let peer = poster.established_peer()?;
    if peer.srq().is_some() || poster.cap.max_send_sge == 0 {
        return None;
    }
    // Receives known to be posted: the receiver's line is read again once these are used up.
    let known = peer.rq.known();
    let (room, position) = poster.sq.room(poster.cap.max_send_wr);
    let most = room.min(known.end - known.start);
    if most == 0 {
        return None;
    }
    if wr.next.is_null() {
        post_single(poster, peer, known.start, position, wr, errors)
    } else {
        post_list(poster, peer, known.start, most.min(RUN as u64) as usize, wr, errors)
    }
}

/// Checks work requests. It holds copies of the queue pair's properties, since for all the compiler
/// knows every store in between could change them.
struct Source {
    inline_bytes: usize,
    key: RegionKey,
}

impl Source {
    #[inline(always)]
    fn new(qp: &Qp) -> Source {
        Source { inline_bytes: qp.cap.max_inline_data as usize, key: RegionKey::new(qp.pd, 0) }
    }

    /// The work request as a small message, if it is one and all its checks pass. A message without
    /// bytes is none: it would look like no payload.
    #[inline(always)]
    fn small<'a>(&mut self, wr: SendWr<'a>, is_run: bool) -> Option<Small<'a>> {
        if wr.opcode != ibv_wr_opcode::IBV_WR_SEND && wr.opcode != ibv_wr_opcode::IBV_WR_SEND_WITH_IMM {
            return None;
        }
        let sge = wr.only_sge()?;
        let len = sge.length as usize;
        if len.wrapping_sub(1) >= PAYLOAD_BYTES_MAX {
            return None;
        }
        if wr.is_inline() {
            let from = sge.addr as *const u8;
            return (len <= self.inline_bytes).then_some(Small { from, len, wr });
        }
        let from = if is_run {
            self.key.check_in_run(sge.lkey, sge.addr, len as u64)
        } else {
            self.key.check(sge.lkey, sge.addr, len as u64)
        };
        Some(Small { from: from.ok()?, len, wr })
    }
}

/// Posts the only message of the list, into receive `index`: there is no run to collect, so
/// everything stays in registers. Measured against a list of one: 12 cycles of 50.
#[inline(always)]
fn post_single<'a>(
    poster: Poster<'_>,
    peer: &Qp,
    index: u64,
    position: u64,
    wr: SendWr<'a>,
    errors: &mut Errors,
) -> Option<Option<SendWr<'a>>> {
    let message = Source::new(&poster).small(wr, false)?;
    if (peer.rq.capacity(index) as usize) < message.len {
        return None;
    }
    let (polled, cq, two) = (poster.rq.polled(), peer.recv_cq(), message.slots() == 2);
    if poster.sq.all_polled(index)
        && let Some(mailbox) = peer.mailbox()
    {
        message.write(mailbox.first(), || mailbox.second(), peer.qpn, index, polled);
        mailbox.publish(index, peer.tag(), two);
    } else {
        let claim = cq.ring.claim(message.slots()).ok()?;
        // SAFETY: the slots that the message needs were claimed, and are published once they are
        // written.
        unsafe {
            message.write_claimed(&claim, claim.first, peer.qpn, index, polled);
            claim.publish(claim.first, peer.tag(), two);
        }
    }
    completion::notify(cq, wr.is_solicited());
    peer.rq.consume(index + 1);
    poster.sq.advance(position + 1);
    if execute::is_signaled(&poster, wr) {
        execute::complete(&poster, wr, position, message.len as u64, errors);
    }
    Some(None)
}

/// Posts small messages from `wr` on into receives from `index` on, with one claim: at most `most`,
/// which is at most [`RUN`].
#[inline(never)]
fn post_list<'a>(
    poster: Poster<'_>,
    peer: &Qp,
    index: u64,
    most: usize,
    wr: SendWr<'a>,
    errors: &mut Errors,
) -> Option<Option<SendWr<'a>>> {
    let mut source = Source::new(&poster);
    let mut run = [const { MaybeUninit::<Small<'a>>::uninit() }; RUN];
    // The flags of all, and of all but the last.
    let (mut at, mut slots, mut flags, mut earlier) = (index, 0, 0, 0);
    let (capacities, mut next) = (peer.rq.capacities(), Some(wr));
    for slot in &mut run[..most] {
        let Some(wr) = next else { break };
        let Some(message) = source.small(wr, true) else { break };
        if (capacities.of(at) as usize) < message.len {
            break;
        }
        slot.write(message);
        slots += message.slots();
        at += 1;
        (flags, earlier, next) = (flags | wr.send_flags, flags, wr.next());
    }
    let count = (at - index) as usize;
    if count == 0 {
        return None;
    }
    let cq = peer.recv_cq();
    let claim = cq.ring.claim(slots).ok()?;
    // SAFETY: the loop above has written the first `count` elements.
    let run = unsafe { std::slice::from_raw_parts(run.as_ptr().cast::<Small<'a>>(), count) };
    let (polled, tag, qpn, mut at) = (poster.rq.polled(), peer.tag(), peer.qpn, claim.first);
    for (index, message) in (index..).zip(run) {
        // One branch for each, so that all code in it knows the slots: 8 instructions less.
        let two = message.slots() == 2;
        // SAFETY: the slots of all messages were claimed; each is published once, when it is
        // written.
        unsafe {
            if two {
                message.write_claimed(&claim, at, qpn, index, polled);
                claim.publish(at, tag, true);
            } else {
                message.write_claimed(&claim, at, qpn, index, polled);
                claim.publish(at, tag, false);
            }
        }
        at += 1 + u64::from(two);
    }
    completion::notify(cq, flags & ibv_send_flags::IBV_SEND_SOLICITED.0 != 0);
    peer.rq.consume(index + count as u64);
    let position = poster.sq.posted();
    poster.sq.advance(position + count as u64);
    let is_signaled = |flags: u32| poster.sig_all || flags & ibv_send_flags::IBV_SEND_SIGNALED.0 != 0;
    if is_signaled(flags) {
        // Mostly the last, if any: the others need not be looked at then.
        let first = if is_signaled(earlier) { 0 } else { count - 1 };
        complete_run(&poster, &run[first..], position + first as u64, errors);
    }
    Some(next)
}

impl Small<'_> {
    #[inline(always)]
    fn slots(&self) -> u32 {
        1 + u32::from(self.len > FIRST_PAYLOAD_BYTES)
    }

    /// Writes the message into the unpublished slots of a claim from `at` on; `index` is its
    /// receive's.
    ///
    /// # Safety
    /// The slots from `at` on are claimed, unpublished, and as many as [`slots`](Self::slots).
    #[inline(always)]
    unsafe fn write_claimed(&self, claim: &Claim<'_>, at: u64, qpn: u32, index: u64, acked: u64) {
        let second = || {
            // SAFETY: the contract: a message of two slots has claimed the second as well.
            unsafe { claim.mark_second(at) };
            claim.slot(at + 1)
        };
        self.write(claim.slot(at), second, qpn, index, acked);
    }

    /// Writes the payload, then the header in front of it, into unpublished slots of its sender's:
    /// claimed, or of the mailbox whose last message was taken. The second slot comes first, then
    /// all of the first in one go: the receiver polls both lines all the time, and each return to a
    /// line may have to fetch it back.
    #[inline(always)]
    fn write<'s>(&self, first: &Slot, second: impl FnOnce() -> &'s Slot, qpn: u32, index: u64, acked: u64) {
        self.write_payload(first, second);
        let has_imm = self.wr.opcode == ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
        let imm = if has_imm { Some(self.wr.imm_or_rkey()) } else { None };
        SmallHeader::new(acked, qpn, index, imm, self.len).write(first);
    }

    /// See [`completion::payload_of`]. The second slot's part begins at its body.
    #[inline(always)]
    fn write_payload<'s>(&self, first: &Slot, second: impl FnOnce() -> &'s Slot) {
        let [word, half] = first.body_mut(completion::payload_of);
        let (from, len) = (self.from, self.len);
        // SAFETY: the message was checked (`Source::small`); the slots are this sender's, with 8
        // and 32 bytes in the first and 56 in the second.
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

/// Adds the send completions of a run whose first is at `position`: one claim for all that are
/// signaled.
#[inline(always)]
fn complete_run(qp: &Qp, run: &[Small<'_>], position: u64, errors: &mut Errors) {
    let signaled = run.iter().filter(|small| execute::is_signaled(qp, small.wr)).count();
    if signaled == 0 {
        return;
    }
    let cq: &Cq = qp.send_cq();
    let Ok(claim) = completion::claim(cq, signaled as u32) else {
        return errors.fail_fatally(qp);
    };
    let signaled = run.iter().enumerate().filter(|(_, small)| execute::is_signaled(qp, small.wr));
    for (at, (offset, small)) in (claim.first..).zip(signaled) {
        let header = Header {
            word: small.wr.wr_id,
            qpn: qp.qpn,
            byte_len: small.len as u32,
            opcode: ibv_wc_opcode::IBV_WC_SEND,
            ..Header::default()
        };
        let slot = claim.slot(at);
        header.write(slot);
        completion::write_extra(slot, [position + offset as u64 + 1, 0]);
        // SAFETY: a slot was claimed for each signaled message, and this one was written.
        unsafe { claim.publish(at, qp.tag(), false) };
    }
    completion::notify(cq, false);
}
