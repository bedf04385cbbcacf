//! The fast path of SENDs that are too long for `fast_send_inline`: checks the common properties of
//! a list's messages once per run.
//!
//! Guarantees: the same as `message`, with the same checks before a byte is touched. It leaves all
//! special cases to that: more than one piece on either side, a shared receive queue, keys to
//! invalidate, long copies, anything that isn't granted or has no room.
//!
//! Beside its copy, a long message costs waiting: for the receive's work request, whose line is in
//! the receiver's core, and in a locked instruction for the stores of the copy before it. So the
//! work requests of a run are read before the first copy, and completions are claimed for several
//! messages at a time. The claim follows their copies, so that the claims of others never wait for
//! a copy.

use crate::copy::copy;
use crate::data_path::arrival;
use crate::data_path::completion::{self, Header};
use crate::data_path::errors::Errors;
use crate::data_path::execute;
use crate::data_path::poster::Poster;
use crate::data_path::sge_list::LONG_BYTES;
use crate::key_table::{self, RegionKey};
use crate::objects::qp::Qp;
use crate::queues::wr::SendWr;
use rdma_sys::*;
use std::mem::MaybeUninit;
use verbline_sync::ring::PAYLOAD_BYTES_MAX;

/// Messages that are checked before the first is copied.
const RUN: usize = 32;
/// Bytes after which the copied messages are published. Lists of 32 times 4 KiB: 31, 36, 39 and 39
/// GB/s with 4, 16, 32 and 128 KiB.
const PUBLISH_BYTES: usize = 32 << 10;

/// A checked message. Its source is inline, or granted by its key while the guard is held; its
/// target is granted by the receive's key.
#[derive(Clone, Copy)]
struct Long<'a> {
    from: *const u8,
    to: *mut u8,
    bytes: usize,
    wr: SendWr<'a>,
}

/// Posts as many long messages from `wr` on as it can, and returns the rest; `None` if it can't
/// take even the first. Otherwise like [`crate::data_path::fast_send_inline::post`].
#[inline(never)]
pub(crate) fn post<'a>(poster: Poster<'_>, wr: SendWr<'a>, errors: &mut Errors) -> Option<Option<SendWr<'a>>> {
    let peer = poster.established_peer()?;
    if peer.srq().is_some() || poster.cap.max_send_sge == 0 {
        return None;
    }
    let known = peer.rq.known();
    let (room, mut position) = poster.sq.room(poster.cap.max_send_wr);
    let mut index = known.start;
    let most = room.min(known.end - index).min(RUN as u64) as usize;
    let mut memory = [const { MaybeUninit::<Long<'a>>::uninit() }; RUN];
    let mut left = check(poster, peer, index, wr, &mut memory[..most]);
    let mut rest = None;
    while !left.is_empty() {
        let count = copy_some(left);
        let (done, later) = left.split_at(count);
        if !publish(peer, index, done) {
            break;
        }
        index += count as u64;
        peer.rq.consume(index);
        poster.sq.advance(position + count as u64);
        left = later;
        rest = Some(done[count - 1].wr.next());
        for long in done {
            execute::complete(&poster, long.wr, position, long.bytes as u64, errors);
            position += 1;
        }
        if !poster.sq.is_open() {
            // Its completion was lost.
            break;
        }
    }
    rest
}

/// Checks work requests from `wr` on, and the receives from `index` on that they will consume, up
/// to a special case. At least `memory.len()` receives are posted.
#[inline(always)]
fn check<'m, 'a>(
    poster: Poster<'_>,
    peer: &Qp,
    index: u64,
    wr: SendWr<'a>,
    memory: &'m mut [MaybeUninit<Long<'a>>],
) -> &'m [Long<'a>] {
    let mut local = RegionKey::new(poster.pd, 0);
    let mut remote = RegionKey::new(peer.pd, key_table::LOCAL_WRITE);
    let inline_bytes = poster.cap.max_inline_data as usize;
    let (mut count, mut next) = (0, Some(wr));
    while count < memory.len()
        && let Some(wr) = next
    {
        let at = index + count as u64;
        let Some((from, bytes)) = source(wr, inline_bytes, &mut local) else { break };
        // A capacity of 0 means "look closer".
        if (peer.rq.capacity(at) as usize) < bytes {
            break;
        }
        let wqe = peer.rq.wqes.wqe(at);
        if wqe.count() != 1 {
            break;
        }
        let sge = wqe.first();
        let Ok(to) = remote.check(sge.lkey(), sge.addr(), bytes as u64) else { break };
        memory[count].write(Long { from, to, bytes, wr });
        count += 1;
        next = wr.next();
    }
    // SAFETY: the loop above has written the first `count` elements.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), count) }
}

/// The bytes of a work request, if it is a SEND of one piece, too long for `fast_send_inline`, and
/// all its checks pass.
#[inline(always)]
fn source(wr: SendWr<'_>, inline_bytes: usize, local: &mut RegionKey) -> Option<(*const u8, usize)> {
    if wr.opcode != ibv_wr_opcode::IBV_WR_SEND && wr.opcode != ibv_wr_opcode::IBV_WR_SEND_WITH_IMM {
        return None;
    }
    let sge = wr.only_sge()?;
    let bytes = sge.length as usize;
    if bytes <= PAYLOAD_BYTES_MAX || bytes as u64 >= LONG_BYTES {
        return None;
    }
    if wr.is_inline() {
        return (bytes <= inline_bytes).then_some((sge.addr as *const u8, bytes));
    }
    Some((local.check(sge.lkey, sge.addr, bytes as u64).ok()?, bytes))
}

/// Copies the first messages of a run, [`PUBLISH_BYTES`] or somewhat more. Returns their number.
#[inline(always)]
fn copy_some(run: &[Long<'_>]) -> usize {
    let (mut count, mut bytes) = (0, 0);
    while count < run.len() && bytes < PUBLISH_BYTES {
        let Long { from, to, bytes: len, .. } = run[count];
        // SAFETY: both ranges were granted by their keys inside the guard that `post` was called
        // in, or the source is inline.
        unsafe { copy(to, from, len) };
        (count, bytes) = (count + 1, bytes + len);
    }
    count
}

/// Completes the receives of copied messages, from `index` on. Without room for all it completes
/// none and returns false.
#[inline(always)]
fn publish(peer: &Qp, index: u64, run: &[Long<'_>]) -> bool {
    let cq = peer.recv_cq();
    let Ok(claim) = cq.ring.claim(run.len() as u32) else { return false };
    let (qpn, tag) = (peer.qpn, peer.tag());
    let mut solicited = false;
    for (offset, long) in run.iter().enumerate() {
        let (imm, flags) = arrival::extra(long.wr);
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
        // SAFETY: a slot was claimed for each of the run, and this one was written.
        unsafe { claim.publish(at, tag, false) };
        solicited |= long.wr.is_solicited();
    }
    completion::notify(cq, solicited);
    true
}
