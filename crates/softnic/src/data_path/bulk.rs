//! The fast path of SENDs that are too long for `small`: what those of a list have in common is looked at once a run.
//!
//! What it guarantees: the same as `message`, which sees whatever is special: more than one piece on either side, a shared receive
//! queue, keys to invalidate, anything that isn't granted or has no room. It checks the same before a byte is touched.
//!
//! What a long message costs beside its copy is waiting: for the receive's work request, whose line the receiver's core has, and
//! in a locked instruction for the stores of the copy before it. So the work requests of a run are read before the first copy, and
//! completions are claimed for several messages at a time; after their copies, so that the claims of others never wait for a copy.

use crate::copy::copy;
use crate::data_path::completion::{self, Header};
use crate::data_path::errors::Errors;
use crate::data_path::execute;
use crate::data_path::message;
use crate::data_path::sq::{established_peer, room};
use crate::objects::device::MESSAGE_BYTES_MAX;
use crate::objects::key_table::{self, RegionKey};
use crate::objects::qp::Qp;
use rdma_sys::*;
use std::mem::MaybeUninit;
use verbline_sync::ring::PAYLOAD_BYTES_MAX;

/// Messages that are checked before the first is copied.
const RUN: usize = 32;
/// Bytes after which what was copied is published. Lists of 32 times 4 KiB: 31, 36, 39 and 39 GB/s with 4, 16, 32 and 128 KiB.
const PUBLISH_BYTES: usize = 32 << 10;

/// A message, checked.
#[derive(Clone, Copy)]
struct Long {
    from: *const u8,
    to: *mut u8,
    bytes: usize,
    wr: *const ibv_send_wr,
}

/// Posts as many long messages from the front of the list as it can; false if the first isn't one that it can.
///
/// # Safety
/// As [`crate::data_path::small::post`].
#[inline(never)]
pub(crate) unsafe fn post(qp: &Qp, next: &mut *const ibv_send_wr, errors: &mut Errors) -> bool {
    let Some(peer) = established_peer(qp) else { return false };
    if peer.srq().is_some() || qp.cap.max_send_sge == 0 {
        return false;
    }
    // SAFETY: the peer accepts messages from us only, and we are the one thread that carries out ours.
    let consumed = unsafe { peer.rq.consumed() };
    // SAFETY: the caller is the posting thread.
    let counts = unsafe { &mut *qp.sq.counts.get() };
    if consumed.head == consumed.credit {
        consumed.credit = peer.rq.posted.read();
    }
    let most = room(qp, counts, 0).min(consumed.credit - consumed.head).min(RUN as u64) as usize;
    let mut memory = [const { MaybeUninit::<Long>::uninit() }; RUN];
    // SAFETY: the caller's; so many receives are posted, and not consumed.
    let run = unsafe { check(qp, peer, consumed.head, *next, &mut memory[..most]) };
    let mut rest = run;
    while !rest.is_empty() {
        // SAFETY: both ranges were granted by their keys inside this guard, or the one is inline.
        let count = unsafe { copy_some(rest) };
        let (done, later) = rest.split_at(count);
        if !publish(peer, consumed.head, done) {
            break;
        }
        let position = counts.posted;
        consumed.head += count as u64;
        counts.posted += count as u64;
        rest = later;
        // SAFETY: readable.
        unsafe {
            *next = (*done[count - 1].wr).next;
            for (position, long) in (position..).zip(done) {
                execute::complete(qp, long.wr, position, long.bytes as u64, errors);
            }
        }
        if !qp.sq.is_open() {
            // Its completion was lost.
            break;
        }
    }
    rest.len() < run.len()
}

/// Checks work requests from `wr` on, and the receives from `index` on that they will consume, until one is special.
///
/// # Safety
/// The list is readable; a guard is entered; as many receives as `memory` is long are posted, and the caller's to consume.
#[inline(always)]
unsafe fn check<'a>(
    qp: &Qp,
    peer: &Qp,
    index: u64,
    mut wr: *const ibv_send_wr,
    memory: &'a mut [MaybeUninit<Long>],
) -> &'a [Long] {
    let mut local = RegionKey::new(qp.pd, 0);
    let mut remote = RegionKey::new(peer.pd, key_table::LOCAL_WRITE);
    let inline_bytes = qp.cap.max_inline_data as usize;
    let mut count = 0;
    while count < memory.len() && !wr.is_null() {
        // SAFETY: the caller's, for all.
        let long = unsafe {
            let at = index + count as u64;
            let Some((from, bytes)) = source(&*wr, inline_bytes, &mut local) else { break };
            // A capacity of 0 means "look closer".
            if (peer.rq.capacity(at) as usize) < bytes {
                break;
            }
            let wqe = peer.rq.wqes.wqe(at);
            if wqe.sges() != 1 {
                break;
            }
            let sge = wqe.sge(0);
            let Ok(to) = remote.check(sge.lkey, sge.addr, bytes as u64) else { break };
            Long { from, to, bytes, wr }
        };
        memory[count].write(long);
        count += 1;
        // SAFETY: the caller's.
        wr = unsafe { (*wr).next };
    }
    // SAFETY: the first `count` are written.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), count) }
}

/// The bytes of a work request, if it is a SEND of one piece, too long for `small`, and everything about it is in order.
///
/// # Safety
/// Its list is readable; a guard is entered, and was since `local` was made.
#[inline(always)]
unsafe fn source(wr: &ibv_send_wr, inline_bytes: usize, local: &mut RegionKey) -> Option<(*const u8, usize)> {
    if wr.opcode != ibv_wr_opcode::IBV_WR_SEND && wr.opcode != ibv_wr_opcode::IBV_WR_SEND_WITH_IMM || wr.num_sge != 1 {
        return None;
    }
    // SAFETY: the caller's; there is one.
    let sge = unsafe { &*wr.sg_list };
    let bytes = sge.length as usize;
    if bytes <= PAYLOAD_BYTES_MAX || bytes as u64 > MESSAGE_BYTES_MAX {
        return None;
    }
    if wr.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0 {
        return (bytes <= inline_bytes).then_some((sge.addr as *const u8, bytes));
    }
    Some((local.check(sge.lkey, sge.addr, bytes as u64).ok()?, bytes))
}

/// Copies the first messages of a run, [`PUBLISH_BYTES`] or somewhat more. Gives how many.
///
/// # Safety
/// Their ranges are readable and writable; there is one.
#[inline(always)]
unsafe fn copy_some(run: &[Long]) -> usize {
    let (mut count, mut bytes) = (0, 0);
    while count < run.len() && bytes < PUBLISH_BYTES {
        let Long { from, to, bytes: len, .. } = run[count];
        // SAFETY: the caller's.
        unsafe { copy(to, from, len) };
        (count, bytes) = (count + 1, bytes + len);
    }
    count
}

/// Completes the receives of messages that were copied, from `index` on. False, and none is, if there is no room.
#[inline(always)]
fn publish(peer: &Qp, index: u64, run: &[Long]) -> bool {
    let cq = peer.recv_cq();
    let Ok(claim) = cq.ring.claim(run.len() as u64) else { return false };
    let (qpn, tag) = (peer.qpn, peer.tag());
    let mut solicited = 0;
    for (offset, long) in run.iter().enumerate() {
        // SAFETY: readable, by the contract of `post`.
        let wr = unsafe { &*long.wr };
        let (imm, flags) = message::extra(wr);
        let header = Header {
            word: index + offset as u64,
            qpn,
            status: completion::SUCCESS,
            byte_len: long.bytes as u32,
            imm,
            opcode: completion::RECV,
            flags,
        };
        let at = claim.first + offset as u64;
        header.write(claim.slot(at));
        claim.publish(at, tag, false);
        solicited |= wr.send_flags & ibv_send_flags::IBV_SEND_SOLICITED.0;
    }
    completion::notify(cq, solicited != 0);
    true
}
