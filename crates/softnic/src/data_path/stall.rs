//! Send work requests that have to wait: for a receive, for a peer, for the queue pair to leave SQD.
//!
//! What it guarantees: they are kept in order, with their inline data, in memory that was set aside at creation, and are
//! carried out by whoever notices first that they can be: the receiver when it posts, the sender when it posts or polls,
//! the control path when a peer comes up. So nobody needs to poll for them, and a sender's completion never depends on
//! the receiver's polling. One that waits too long (`rnr_retry` times the receiver's `min_rnr_timer`, or `retry_cnt` + 1
//! times the local ACK time-out) fails as hardware would have it; `timer` sees to that while everybody sleeps.

use crate::copy;
use crate::data_path::errors::Errors;
use crate::data_path::execute::{self, Outcome, Why};
use crate::data_path::scatter::sge_bytes;
use crate::data_path::{sq, timer};
use crate::events::async_event::Kind;
use crate::objects::cq::Cq;
use crate::objects::qp::Qp;
use crate::objects::qp_table::State;
use crate::objects::{fabric, mw};
use rdma_sys::*;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};
use verbline_sync::credit::{Attention, WAITING};
use verbline_sync::guard::Guard;
use verbline_sync::lock::{Held, SpinLock};

/// The pending work requests of one send queue: positions `head` to `tail`.
#[derive(Debug)]
pub(crate) struct Pending {
    head: u64,
    tail: u64,
    /// What the first one waits for, and until when.
    why: Option<Why>,
    deadline_ns: u64,
    /// `timer` knows of a deadline.
    is_armed: bool,
    /// In SQD: the first one was begun before, and is finished.
    pub(crate) draining: bool,
    /// Raise `IBV_EVENT_SQ_DRAINED` when it is.
    pub(crate) notify_drained: bool,
    wrs: Box<[MaybeUninit<ibv_send_wr>]>,
    sges: Box<[MaybeUninit<ibv_sge>]>,
    inline: Box<[MaybeUninit<u8>]>,
}

// SAFETY: the pointers in it lead into its own boxes, or to the user's objects that are alive while posted.
unsafe impl Send for Pending {}

/// Never.
const FOR_EVER: u64 = u64::MAX;
/// `IBV_QP_RNR_RETRY` that stands for "for ever".
const RNR_FOR_EVER: u32 = 7;

impl Pending {
    pub(crate) fn new(cap: &ibv_qp_cap) -> Pending {
        let depth = (cap.max_send_wr as usize).next_power_of_two();
        Pending {
            head: 0,
            tail: 0,
            why: None,
            deadline_ns: FOR_EVER,
            is_armed: false,
            draining: false,
            notify_drained: false,
            wrs: Box::new_uninit_slice(depth),
            sges: Box::new_uninit_slice(depth * cap.max_send_sge.max(1) as usize),
            inline: Box::new_uninit_slice(depth * cap.max_inline_data as usize),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Forgets everything. Control path.
    pub(crate) fn clear(&mut self) {
        (self.head, self.tail) = (0, 0);
        (self.why, self.deadline_ns) = (None, FOR_EVER);
        (self.draining, self.notify_drained) = (false, false);
    }

    /// Keeps a copy of a work request.
    ///
    /// # Safety
    /// `wr` is readable and passed validation; `position` was reserved after those that are pending.
    unsafe fn keep(&mut self, wr: *const ibv_send_wr, position: u64) {
        if self.is_empty() {
            (self.head, self.tail) = (position, position);
        }
        debug_assert_eq!(self.tail, position);
        let slot = position as usize & (self.wrs.len() - 1);
        let sges_a_wr = self.sges.len() / self.wrs.len();
        let inline_a_wr = self.inline.len() / self.wrs.len();
        let sges = &mut self.sges[slot * sges_a_wr..][..sges_a_wr];
        let inline = &mut self.inline[slot * inline_a_wr..][..inline_a_wr];
        // SAFETY: the caller's; a bitwise copy of plain data.
        let mut kept = unsafe { std::ptr::read(wr) };
        kept.next = std::ptr::null_mut();
        // SAFETY: the caller's; it is being posted.
        unsafe { mw::keep_handle(&mut kept) };
        let count = kept.num_sge as usize;
        if kept.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0 {
            let mut len = 0;
            for index in 0..count {
                // SAFETY: the caller's; validation made sure that all of it fits.
                let sge = unsafe { *kept.sg_list.add(index) };
                let part = &mut inline[len..][..sge.length as usize];
                // SAFETY: the caller's: inline data is readable; `part` has that length.
                unsafe { copy::copy(part.as_mut_ptr().cast(), sge.addr as *const u8, part.len()) };
                len += part.len();
            }
            kept.num_sge = c_int::from(len > 0);
            if len > 0 {
                sges[0].write(ibv_sge { addr: inline.as_ptr() as u64, length: len as u32, lkey: 0 });
            }
        } else {
            for (index, to) in sges.iter_mut().enumerate().take(count) {
                // SAFETY: the caller's.
                to.write(unsafe { *kept.sg_list.add(index) });
            }
        }
        kept.sg_list = sges.as_mut_ptr().cast();
        self.wrs[slot].write(kept);
        self.tail = position + 1;
    }

    /// The first, and the bytes of its list.
    fn first(&self) -> (*const ibv_send_wr, u64) {
        debug_assert!(!self.is_empty());
        let slot = self.head as usize & (self.wrs.len() - 1);
        let wr = self.wrs[slot].as_ptr();
        // SAFETY: written by `keep`, as is its list.
        let bytes = unsafe { (0..(*wr).num_sge as usize).map(|index| sge_bytes(&*(*wr).sg_list.add(index))).sum() };
        (wr, bytes)
    }

    /// Nothing waits until the deadline that `timer` knows of.
    fn disarm(&mut self, qp: &Qp) {
        if std::mem::take(&mut self.is_armed) {
            timer::disarm(qp.qpn);
        }
    }

    /// The first is done with.
    fn advance(&mut self) {
        self.head += 1;
        (self.why, self.deadline_ns) = (None, FOR_EVER);
    }
}

/// Posts from the list while the fast path is closed. 0 with `next` not at the end: it is open again.
///
/// # Safety
/// The list is readable; the caller is the posting thread, inside its guard.
#[cold]
pub(crate) unsafe fn post(qp: &Qp, next: &mut *const ibv_send_wr, errors: &mut Errors) -> c_int {
    if matches!(qp.state(), State::Reset | State::Init | State::Rtr) {
        return libc::EINVAL;
    }
    progress(qp, errors);
    let mut code = 0;
    while !next.is_null() {
        // SAFETY: the caller's.
        if let Err(refused) = unsafe { execute::validate(qp, *next) } {
            code = refused;
            break;
        }
        let mut pending = qp.sq.pending.lock();
        if qp.sq.is_open() {
            return 0;
        }
        // SAFETY: the caller is the posting thread.
        let Some(position) = (unsafe { sq::reserve(qp) }) else {
            code = libc::ENOMEM;
            break;
        };
        if matches!(qp.state(), State::Err | State::Sqe) {
            flush_pending(qp, &mut pending, errors);
            // SAFETY: the caller's.
            unsafe { execute::flush(qp, *next, position, errors) };
        } else {
            // SAFETY: validated and reserved.
            unsafe { keep(qp, &mut pending, *next, position) };
        }
        // SAFETY: the caller's.
        *next = unsafe { (**next).next };
    }
    progress(qp, errors);
    code
}

/// A work request that was just reserved has to wait: it is the first to be pending.
///
/// # Safety
/// `wr` is readable and passed validation; the caller is the posting thread, inside its guard.
#[cold]
pub(crate) unsafe fn begin(qp: &Qp, wr: *const ibv_send_wr, position: u64, errors: &mut Errors) {
    {
        let mut pending = qp.sq.pending.lock();
        // SAFETY: the caller's.
        unsafe { keep(qp, &mut pending, wr, position) };
    }
    progress(qp, errors);
}

/// # Safety
/// As [`Pending::keep`].
unsafe fn keep(qp: &Qp, pending: &mut Pending, wr: *const ibv_send_wr, position: u64) {
    // SAFETY: the caller's.
    unsafe { pending.keep(wr, position) };
    if !qp.sq.is_stalled() {
        qp.sq.set_stalled(true);
        qp.send_cq().stalled.add(qp);
    }
}

/// Carries out what can be. The caller is inside a guard, and holds no lock.
pub(crate) fn progress(qp: &Qp, errors: &mut Errors) {
    loop {
        let mut pending = qp.sq.pending.lock();
        let look_again = run(qp, &mut pending, errors);
        drop(pending);
        if !look_again {
            return;
        }
        // Outside the lock: whoever posts a receive now may be waiting for it.
        Attention::settle();
    }
}

/// True if a flag was raised for the receiver: then look again after it has settled.
fn run(qp: &Qp, pending: &mut Held<'_, Pending>, errors: &mut Errors) -> bool {
    while !pending.is_empty() {
        match qp.state() {
            State::Rts => {}
            State::Sqd if pending.draining => {}
            State::Err | State::Sqe => flush_pending(qp, pending, errors),
            _ => return false,
        }
        if pending.is_empty() {
            break;
        }
        let (wr, bytes) = pending.first();
        // SAFETY: kept by `keep`; its list too. The lock makes us the only one to carry out this queue's: the fast
        // path is closed while anything is pending.
        match unsafe { execute::execute(qp, wr, bytes, errors) } {
            Outcome::Done(bytes) => {
                // SAFETY: as above.
                unsafe { execute::complete(qp, wr, pending.head, bytes, errors) };
                pending.advance();
                drained(qp, pending);
            }
            Outcome::Failed(status) => fail(qp, pending, status, errors),
            Outcome::Wait(why) => {
                if pending.why != Some(why) {
                    pending.why = Some(why);
                    pending.deadline_ns = deadline_ns(qp, why);
                    pending.is_armed |= timer::arm(pending.deadline_ns, qp.qpn);
                }
                if timer::now_ns() < pending.deadline_ns {
                    return wait(qp, why);
                }
                let status = match why {
                    Why::NoReceive(_) => ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR,
                    Why::NoPeer => ibv_wc_status::IBV_WC_RETRY_EXC_ERR,
                };
                fail(qp, pending, status, errors);
            }
        }
    }
    unstall(qp, pending);
    false
}

/// The first fails; those behind it are flushed.
fn fail(qp: &Qp, pending: &mut Held<'_, Pending>, status: u32, errors: &mut Errors) {
    let (wr, _) = pending.first();
    // SAFETY: kept by `keep`.
    unsafe { execute::fail(qp, wr, pending.head, status, errors) };
    pending.advance();
    flush_pending(qp, pending, errors);
}

fn flush_pending(qp: &Qp, pending: &mut Held<'_, Pending>, errors: &mut Errors) {
    while !pending.is_empty() {
        let (wr, _) = pending.first();
        // SAFETY: kept by `keep`.
        unsafe { execute::flush(qp, wr, pending.head, errors) };
        pending.advance();
    }
    pending.draining = false;
}

/// In SQD, what was begun is finished now.
fn drained(qp: &Qp, pending: &mut Held<'_, Pending>) {
    if std::mem::take(&mut pending.draining) && std::mem::take(&mut pending.notify_drained) {
        qp.context().events.raise_qp(qp, Kind::SqDrained);
    }
}

/// Makes sure that the receiver's next post starts us. True if that is news to it.
fn wait(qp: &Qp, why: Why) -> bool {
    let Why::NoReceive(_) = why else { return false };
    let Some(peer) = fabric::lookup(qp.sq.destination()) else { return false };
    match peer.srq() {
        None => peer.inbound.attention.raise(WAITING),
        // Entered in the section in which it is seen to be empty; if it isn't, look again.
        Some(srq) => !srq.wait(qp.qpn),
    }
}

/// Nothing is pending any more. Also where nothing was: a flag that a reset left behind is lowered.
fn unstall(qp: &Qp, pending: &mut Pending) {
    pending.disarm(qp);
    if let Some(peer) = fabric::lookup(qp.sq.destination())
        && !qp.is_datagram()
        && peer.sq.destination() == qp.qpn
        && peer.inbound.attention.read() & WAITING != 0
    {
        peer.inbound.attention.lower(WAITING);
    }
    if !qp.sq.is_stalled() {
        return;
    }
    qp.send_cq().stalled.remove(qp);
    qp.sq.set_stalled(false);
}

/// When to give up on `why`.
fn deadline_ns(qp: &Qp, why: Why) -> u64 {
    // Relaxed, all: changed by the control path only.
    let span_ns = match why {
        Why::NoReceive(timer) => rnr_span_ns(qp.sq.rnr_retry.load(Ordering::Relaxed), timer),
        Why::NoPeer => ack_span_ns(qp.sq.retry_cnt.load(Ordering::Relaxed), qp.sq.timeout.load(Ordering::Relaxed)),
    };
    span_ns.map_or(FOR_EVER, |span_ns| timer::now_ns().saturating_add(span_ns))
}

/// How long a receive is waited for: `min_rnr_timer` a retry. `None` is for ever.
fn rnr_span_ns(rnr_retry: u32, min_rnr_timer: u32) -> Option<u64> {
    (rnr_retry != RNR_FOR_EVER).then(|| u64::from(rnr_retry) * timer::rnr_ns(min_rnr_timer))
}

/// How long an acknowledgement is waited for: `timeout` for the first try and for each retry. `None` is for ever.
fn ack_span_ns(retry_cnt: u32, timeout: u32) -> Option<u64> {
    (timeout != 0).then(|| (u64::from(retry_cnt) + 1) * timer::ack_timeout_ns(timeout))
}

/// The control path, in ERR: flushes what is pending.
pub(crate) fn flush(qp: &Qp, errors: &mut Errors) {
    let mut pending = qp.sq.pending.lock();
    flush_pending(qp, &mut pending, errors);
    unstall(qp, &mut pending);
}

/// The control path, of a queue pair that is reset or destroyed: nobody looks for what is pending any more.
pub(crate) fn forget(qp: &Qp) {
    qp.send_cq().stalled.remove(qp);
    qp.sq.pending.lock().disarm(qp);
}

/// Carries out what can be of queue pairs that are known by their numbers. The caller is in no guard, and has no lock.
#[cold]
pub(crate) fn progress_numbers(qpns: &[u32]) {
    let mut control = fabric::control();
    progress_under(&mut control, qpns);
}

/// As [`progress_numbers`], under the control lock.
pub(crate) fn progress_under(control: &mut fabric::Control, qpns: &[u32]) {
    let mut errors = Errors::new();
    {
        let _inside = control.guard().enter();
        for qp in qpns.iter().filter_map(|qpn| fabric::lookup(*qpn)) {
            progress(qp, &mut errors);
        }
    }
    errors.finish_under(control);
}

/// The poller: tries what is pending in its send queues.
#[cold]
pub(crate) fn retry_all(cq: &Cq, guard: &Guard) {
    let mut errors = Errors::new();
    {
        let _inside = guard.enter();
        let mut some = [std::ptr::null(); 64];
        let count = cq.stalled.some(&mut some);
        for qp in &some[..count] {
            // SAFETY: a queue pair leaves the list before it goes, and not while we are inside.
            progress(unsafe { &**qp }, &mut errors);
        }
    }
    errors.finish();
}

/// The queue pairs of one send CQ that have something pending.
#[derive(Debug, Default)]
pub(crate) struct StalledQps {
    count: AtomicU32,
    list: SpinLock<Vec<Entry>>,
}

#[derive(Debug, PartialEq)]
struct Entry(*const Qp);
// SAFETY: followed inside a guard only; see `retry_all`.
unsafe impl Send for Entry {}

impl StalledQps {
    /// Whether there are any.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        // Relaxed: a hint; a poll that misses it is followed by another, or by the timer.
        self.count.load(Ordering::Relaxed) != 0
    }

    fn add(&self, qp: &Qp) {
        let mut list = self.list.lock();
        if !list.contains(&Entry(qp)) {
            list.push(Entry(qp));
        }
        // Relaxed: see `any`.
        self.count.store(list.len() as u32, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, qp: &Qp) {
        let mut list = self.list.lock();
        list.retain(|entry| *entry != Entry(qp));
        // Relaxed: see `any`.
        self.count.store(list.len() as u32, Ordering::Relaxed);
    }

    /// Some of them, others the next time.
    fn some(&self, out: &mut [*const Qp]) -> usize {
        let mut list = self.list.lock();
        let count = list.len().min(out.len());
        for (to, from) in out.iter_mut().zip(&list[..count]) {
            *to = from.0;
        }
        list.rotate_left(count);
        count
    }
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

    /// Who comes after one that waited waits from the beginning.
    #[test]
    fn a_deadline_is_not_inherited() {
        let cap = ibv_qp_cap { max_send_wr: 4, max_recv_wr: 0, max_send_sge: 1, max_recv_sge: 0, max_inline_data: 0 };
        let mut pending = Pending::new(&cap);
        // SAFETY: numbers, pointers and unions of them, for which zero is a value.
        let wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        for position in 0..2 {
            // SAFETY: a SEND without a list; the positions follow each other.
            unsafe { pending.keep(&raw const wr, position) };
        }
        (pending.why, pending.deadline_ns) = (Some(Why::NoPeer), 5);
        pending.advance();
        assert_eq!((pending.is_empty(), pending.why, pending.deadline_ns), (false, None, FOR_EVER));
        (pending.why, pending.deadline_ns, pending.draining) = (Some(Why::NoPeer), 5, true);
        pending.clear();
        assert_eq!((pending.is_empty(), pending.why, pending.deadline_ns), (true, None, FOR_EVER));
        assert!(!pending.draining);
    }
}
