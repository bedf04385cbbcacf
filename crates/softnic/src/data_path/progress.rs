//! Carries out send work requests that have to wait: for a receive, for a peer, for the queue pair
//! to leave SQD.
//!
//! Guarantees: they are carried out in order, by the first thread that notices that they can be:
//! the receiver when it posts, the sender when it posts or polls, the control path when a peer
//! comes up. So nobody needs to poll for them, and a sender's completion never depends on the
//! receiver's polling. A work request that waits too long (`rnr_retry` times the receiver's
//! `min_rnr_timer`, or `retry_cnt` + 1 times the local ACK time-out) fails as in hardware; `timer`
//! ensures that while all other threads sleep.

use crate::data_path::carrier;
use crate::data_path::errors::Errors;
use crate::data_path::execute;
use crate::data_path::flush;
use crate::data_path::migration;
use crate::data_path::poster::{Poster, Refused};
use crate::data_path::signature::cancel;
use crate::data_path::signature::configure;
use crate::events::async_event::Kind;
use crate::objects::cq::Cq;
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::State;
use crate::queues::pending::{FOR_EVER, Pending};
use crate::queues::pending::{Why, WrOutcome};
use crate::queues::timer;
use crate::queues::wr::SendWr;
use rdma_sys::{ibv_wc_status, ibv_wr_opcode};
use std::sync::atomic::Ordering;
use verbline_sync::credit::{Attention, WAITING};
use verbline_sync::lock::Held;
use verbline_sync::turn::Taken;

/// The `IBV_QP_RNR_RETRY` that means "for ever".
const RNR_FOR_EVER: u32 = 7;

/// Posts from `wr` on while the fast path is closed. Returns the rest: not the end, if it is open
/// again.
#[cold]
pub(crate) fn post<'a>(
    poster: Poster<'_>,
    wr: SendWr<'a>,
    errors: &mut Errors,
) -> Result<Option<SendWr<'a>>, Refused<'a>> {
    if matches!(poster.state(), State::Reset | State::Init | State::Rtr) {
        return Err((libc::EINVAL, wr));
    }
    if let Some(carrier) = carrier::of_qp(&poster) {
        return carrier.post(poster, wr, errors).map(|()| None);
    }
    progress(&poster, poster.pinned, errors);
    let posted = post_while_closed(poster, wr);
    if !matches!(posted, Ok(Some(_))) {
        progress(&poster, poster.pinned, errors);
    }
    posted
}

fn post_while_closed<'a>(poster: Poster<'_>, wr: SendWr<'a>) -> Result<Option<SendWr<'a>>, Refused<'a>> {
    let qp: &Qp = &poster;
    let mut next = Some(wr);
    while let Some(wr) = next {
        execute::validate(qp, wr).map_err(|code| (code, wr))?;
        let mut pending = qp.sq.pending.lock();
        if qp.sq.is_open() {
            return Ok(next);
        }
        let position = qp.sq.reserve(qp.cap.max_send_wr).ok_or((libc::ENOMEM, wr))?;
        keep(qp, &mut pending, wr, position);
        next = wr.next();
    }
    Ok(None)
}

/// Keeps a work request that was just reserved and has to wait: it is the first to be pending.
#[cold]
pub(crate) fn begin(poster: Poster<'_>, wr: SendWr<'_>, position: u64, errors: &mut Errors) {
    keep(&poster, &mut poster.sq.pending.lock(), wr, position);
    progress(&poster, poster.pinned, errors);
}

fn keep(qp: &Qp, pending: &mut Pending, wr: SendWr<'_>, position: u64) {
    pending.keep(wr, position);
    if !qp.sq.is_stalled() {
        qp.sq.set_stalled(true);
        qp.send_cq().stalled.add(qp.qpn);
    }
}

/// Carries out the work requests that can be, or leaves them to the thread that is at it: nobody
/// waits for another's transfer. The caller holds no lock but the control lock.
pub(crate) fn progress(qp: &Qp, pinned: Pinned<'_>, errors: &mut Errors) {
    let mut taken = qp.sq.turn.take();
    while let Some(turn) = taken {
        while run(qp, pinned, &turn, errors) {
            // Outside the lock: a thread that posts a receive now may be waiting for it.
            Attention::settle();
        }
        taken = turn.give_up();
    }
}

/// Returns true if a flag was raised for the receiver: then look again after it has settled.
fn run(qp: &Qp, pinned: Pinned<'_>, _: &Taken<'_>, errors: &mut Errors) -> bool {
    loop {
        let mut pending = qp.sq.pending.lock();
        match qp.state() {
            State::Rts => {}
            State::Sqd if pending.draining => {}
            State::Err | State::Sqe => flush::pending(qp, &mut pending, errors),
            _ if pending.is_empty() => {}
            _ => return false,
        }
        // SAFETY: only the holder of the turn advances, and that is us; or a thread that has
        // stopped the queue pair and waited until all have left the guard that we are in
        // (`flush::everything`, `reset`, and `cancel` behind a move to SQD). The queue pair lives
        // while we are in it.
        let Some((wr, position, bytes)) = (unsafe { pending.first_for() }) else {
            flush::unstall(qp, pinned, &mut pending);
            return false;
        };
        drop(pending);
        // Only the holder of the turn carries out this queue's work requests: the fast path is
        // closed while anything is pending. Others add pending ones meanwhile.
        let outcome = outcome(qp, pinned, wr, bytes, errors);
        let mut pending = qp.sq.pending.lock();
        match outcome {
            WrOutcome::Done(bytes) => {
                execute::complete(qp, wr, position, bytes, errors);
                pending.advance();
                drained(qp, &mut pending);
            }
            WrOutcome::Stopped(bytes) => {
                execute::complete(qp, wr, position, bytes, errors);
                pending.advance();
                cancel::stop(qp, &mut pending);
            }
            WrOutcome::Configured => {
                configure::complete(qp, wr, position, errors);
                pending.advance();
                drained(qp, &mut pending);
            }
            WrOutcome::Failed(status) => fail(qp, &mut pending, status, errors),
            WrOutcome::Wait(why) => {
                if let Some(look_again) = wait_for(qp, pinned, &mut pending, why) {
                    return look_again;
                }
                if why == Why::NoPeer && migration::migrate(qp, pinned) {
                    // The other path has the whole time-out again.
                    pending.why = None;
                    continue;
                }
                let status = match why {
                    Why::NoReceive(_) => ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR,
                    Why::NoPeer => ibv_wc_status::IBV_WC_RETRY_EXC_ERR,
                };
                fail(qp, &mut pending, status, errors);
            }
        }
    }
}

/// Makes the first wait. Returns whether to look again, or `None` if it has waited too long.
fn wait_for(qp: &Qp, pinned: Pinned<'_>, pending: &mut Pending, why: Why) -> Option<bool> {
    if pending.why != Some(why) {
        pending.why = Some(why);
        if let (Why::NoReceive(_), Some(peer)) = (why, fabric::lookup(pinned, qp.sq.destination())) {
            peer.count_out_of_buffer();
        }
        pending.deadline_ns = deadline_ns(qp, why);
        pending.is_armed |= timer::arm(pending.deadline_ns, qp.qpn, progress_numbers);
    }
    (timer::now_ns() < pending.deadline_ns).then(|| wait(qp, pinned, why))
}

/// Carries out a work request; a cancelled one does nothing.
fn outcome(qp: &Qp, pinned: Pinned<'_>, wr: SendWr<'_>, bytes: u64, errors: &mut Errors) -> WrOutcome {
    match (wr.is_cancelled(), wr.opcode) {
        (false, _) => execute::execute(qp, pinned, wr, bytes, errors),
        (true, ibv_wr_opcode::IBV_WR_DRIVER1) => WrOutcome::Configured,
        (true, _) => WrOutcome::Done(0),
    }
}

/// Fails the first work request, and flushes those behind it.
fn fail(qp: &Qp, pending: &mut Held<'_, Pending>, status: u32, errors: &mut Errors) {
    if let Some((wr, position, _)) = pending.first() {
        execute::fail(qp, wr, position, status, errors);
        pending.advance();
    }
    flush::pending(qp, pending, errors);
}

/// Ends the drain of SQD: all begun work requests are finished.
pub(crate) fn drained(qp: &Qp, pending: &mut Held<'_, Pending>) {
    if std::mem::take(&mut pending.draining) && std::mem::take(&mut pending.notify_drained) {
        qp.context().events.raise(qp, Kind::SqDrained);
    }
}

/// Makes sure that the receiver's next post starts us. Returns true if the receiver had not been
/// told before, or if a shared queue isn't empty: then look again.
fn wait(qp: &Qp, pinned: Pinned<'_>, why: Why) -> bool {
    let Why::NoReceive(_) = why else { return false };
    let Some(peer) = fabric::lookup(pinned, qp.sq.destination()) else { return false };
    match peer.srq() {
        None => peer.inbound.attention.raise(WAITING),
        // Entered in the section that sees it empty; if it isn't empty, look again.
        Some(srq) => !srq.wait(qp.qpn),
    }
}

/// The deadline of waiting for `why`.
fn deadline_ns(qp: &Qp, why: Why) -> u64 {
    // Relaxed, all: changed by the control path only.
    let span_ns = match why {
        Why::NoReceive(timer) => rnr_span_ns(qp.sq.rnr_retry.load(Ordering::Relaxed), timer),
        Why::NoPeer => ack_span_ns(qp.sq.retry_cnt.load(Ordering::Relaxed), qp.sq.timeout.load(Ordering::Relaxed)),
    };
    span_ns.map_or(FOR_EVER, |span_ns| timer::now_ns().saturating_add(span_ns))
}

/// The most time to wait for a receive: `min_rnr_timer` per retry. `None` is for ever.
fn rnr_span_ns(rnr_retry: u32, min_rnr_timer: u32) -> Option<u64> {
    (rnr_retry != RNR_FOR_EVER).then(|| u64::from(rnr_retry) * timer::rnr_ns(min_rnr_timer))
}

/// The most time to wait for an acknowledgement: `timeout` for the first try and for each retry.
/// `None` is for ever.
fn ack_span_ns(retry_cnt: u32, timeout: u32) -> Option<u64> {
    (timeout != 0).then(|| (u64::from(retry_cnt) + 1) * timer::ack_timeout_ns(timeout))
}

/// Control path, for a queue pair that is reset or destroyed: nobody looks for its pending work
/// requests any more.
pub(crate) fn forget(qp: &Qp) {
    qp.send_cq().stalled.remove(qp.qpn);
    qp.sq.pending.lock().disarm(qp.qpn);
}

/// Makes progress with queue pairs known by their numbers. The caller is in no guard, and has no
/// lock.
#[cold]
pub(crate) fn progress_numbers(qpns: &[u32]) {
    let mut control = fabric::control();
    progress_under(&mut control, qpns);
}

/// Like [`progress_numbers`], under the control lock.
pub(crate) fn progress_under(control: &mut fabric::Control, qpns: &[u32]) {
    let mut errors = Errors::new();
    {
        let inside = control.guard().enter();
        progress_all(qpns, Pinned::inside(&inside), &mut errors);
    }
    flush::finish_under(errors, control);
}

fn progress_all(qpns: &[u32], pinned: Pinned<'_>, errors: &mut Errors) {
    for qp in qpns.iter().filter_map(|qpn| fabric::lookup(pinned, *qpn)) {
        progress(qp, pinned, errors);
    }
}

/// For the poller: takes a turn for the carrier, if queue pairs are carried, and tries the pending
/// work requests of its send queues.
#[cold]
pub(crate) fn retry_all(cq: &Cq) {
    let mut errors = Errors::new();
    {
        let inside = cq.polling.guard.enter();
        carrier::poll(cq, Pinned::inside(&inside), &mut errors);
        if cq.stalled.any_pending() {
            progress_some(cq, Pinned::inside(&inside), &mut errors);
        }
    }
    flush::finish(errors);
}

/// Out of line: a poll without pending work requests doesn't pay for the array.
#[inline(never)]
fn progress_some(cq: &Cq, pinned: Pinned<'_>, errors: &mut Errors) {
    let mut some = [0; 64];
    let count = cq.stalled.some(&mut some);
    progress_all(&some[..count], pinned, errors);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_waited_for_so_many_times_and_no_longer() {
        assert_eq!([0, 1, 3, 6].map(|times| rnr_span_ns(times, 1)), [0, 10_000, 30_000, 60_000].map(Some));
        assert_eq!(
            [rnr_span_ns(1, 0), rnr_span_ns(2, 31), rnr_span_ns(7, 1)],
            [Some(655_360_000), Some(983_040_000), None]
        );
        assert_eq!([0, 1, 7].map(|retries| ack_span_ns(retries, 1)), [8_192, 16_384, 65_536].map(Some));
        assert_eq!([ack_span_ns(7, 31), ack_span_ns(7, 0)], [Some(70_368_744_177_664), None]);
    }
}
