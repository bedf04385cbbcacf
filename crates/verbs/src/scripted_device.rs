//! A device for tests that follows a script: it takes a given number of work requests and refuses
//! the next, and completes the ones it has when and how it is told to.
//!
//! Its control verbs are soft0's. Posting and polling go through its own functions in
//! `ibv_context.ops`, so that everything above the provider's table is the real code. It guarantees
//! two things. It never touches the memory of a work request, so that no completion does any harm,
//! whenever it comes and whatever it reports. And it has no thread and no clock, so that the same
//! steps always give the same run.

mod bind;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::{
    ibv_context, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_srq, ibv_wc, ibv_wc_opcode,
};
use verbline_softnic::fault;
use verbline_softnic::qp_table::State;

use crate::cq::completion::Status;
use crate::device::context::Context;
use crate::device::provider::Provider;
use crate::device::{Device, DeviceError};
use crate::qp::QueuePair;

/// One scripted device.
pub struct Script {
    /// The address of its context, the key in [`SCRIPTS`].
    context: usize,
    device: Arc<Mutex<Scripted>>,
}

/// A work request that the device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The work request's number.
    pub wr_id: u64,
    /// Whether a success gives a completion (always for receives).
    pub signaled: bool,
    /// Whether preceding READs and atomics finish first.
    pub fenced: bool,
    /// The total length of its scatter/gather elements.
    pub len_bytes: u32,
}

/// A call of ibv_post_send(3), ibv_post_recv(3) or ibv_post_srq_recv(3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// The QP's number; 0 for a shared receive queue.
    pub qpn: u32,
    /// Whether the work requests were sends.
    pub sends: bool,
    /// The work requests taken.
    pub taken: Vec<Posted>,
    /// Whether the rest of the list was refused.
    pub refused: bool,
}

/// The work requests that the device holds, with the operations on them.
#[derive(Debug)]
pub struct Queues {
    pairs: BTreeMap<u32, Pair>,
    /// Work requests posted to shared receive queues.
    shared: BTreeMap<usize, VecDeque<Posted>>,
    ready: VecDeque<Ready>,
    polled: Option<Ready>,
    posts: Vec<Post>,
    takes: usize,
    refusal: i32,
    names_refused: bool,
}

#[derive(Debug)]
struct Pair {
    send_cq: usize,
    recv_cq: usize,
    /// The shared receive queue it receives from; 0 for its own queue.
    srq: usize,
    sends: VecDeque<Posted>,
    recvs: VecDeque<Posted>,
}

/// A completion not polled yet.
#[derive(Clone, Copy, Debug)]
struct Ready {
    cq: usize,
    qpn: u32,
    wr_id: u64,
    status: u32,
    opcode: u32,
    len_bytes: u32,
}

type Hook = Box<dyn FnMut(&mut Queues) + Send>;

struct Scripted {
    queues: Queues,
    on_poll: Option<Hook>,
}

/// The device behind each context.
static SCRIPTS: Mutex<BTreeMap<usize, Arc<Mutex<Scripted>>>> = Mutex::new(BTreeMap::new());

/// A test that panics while it holds the lock leaves figures that nobody goes on with.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Script {
    /// Opens a device. When the `Script` is dropped, it refuses everything with `ENODEV`.
    ///
    /// # Errors
    /// Those of opening soft0.
    pub fn open() -> Result<(Context, Script), DeviceError> {
        let context = Device::find(Provider::Soft, "soft0")?.open()?;
        let queues = Queues {
            pairs: BTreeMap::new(),
            shared: BTreeMap::new(),
            ready: VecDeque::new(),
            polled: None,
            posts: Vec::new(),
            takes: usize::MAX,
            refusal: libc::ENOMEM,
            names_refused: true,
        };
        let device = Arc::new(Mutex::new(Scripted { queues, on_poll: None }));
        let raw: *mut ibv_context = context.inner.as_ptr();
        lock(&SCRIPTS).insert(raw.addr(), Arc::clone(&device));
        // SAFETY: the context was just opened, and nobody else has it yet.
        let ops = unsafe { &mut (*raw).ops };
        ops.post_send = Some(post_send);
        ops.bind_mw = Some(bind::bind_mw);
        ops.post_recv = Some(post_recv);
        ops.post_srq_recv = Some(post_srq_recv);
        ops.poll_cq = Some(poll_cq);
        Ok((context, Script { context: raw.addr(), device }))
    }

    /// Locks the queues. Posting or polling on this thread before the guard goes deadlocks.
    pub fn queues(&self) -> impl std::ops::DerefMut<Target = Queues> + '_ {
        struct Guard<'a>(MutexGuard<'a, Scripted>);
        impl std::ops::Deref for Guard<'_> {
            type Target = Queues;
            fn deref(&self) -> &Queues {
                &self.0.queues
            }
        }
        impl std::ops::DerefMut for Guard<'_> {
            fn deref_mut(&mut self) -> &mut Queues {
                &mut self.0.queues
            }
        }
        Guard(lock(&self.device))
    }

    /// Calls `hook` at the beginning of every poll from now on, to change the queues while a thread
    /// only polls. The hook must not panic, which would end the process.
    pub fn on_poll(&self, hook: impl FnMut(&mut Queues) + Send + 'static) {
        lock(&self.device).on_poll = Some(Box::new(hook));
    }
}

impl Queues {
    /// Takes the next `count` work requests and refuses later ones with this `errno`; `ENOMEM`
    /// means that the queue is full.
    pub fn take_only(&mut self, count: usize, errno: i32) {
        (self.takes, self.refusal) = (count, errno);
    }

    /// Whether refusals name the refused work request (`bad_wr`), which is the usual case. If not,
    /// the caller can't know which were taken.
    pub fn name_refused(&mut self, names: bool) {
        self.names_refused = names;
    }

    /// How many more work requests it takes.
    pub fn takes(&self) -> usize {
        self.takes
    }

    /// Takes everything from now on.
    pub fn take_all(&mut self) {
        self.takes = usize::MAX;
    }

    /// The calls since the last call of `posts`.
    pub fn posts(&mut self) -> Vec<Post> {
        std::mem::take(&mut self.posts)
    }

    /// Sends that the device holds, oldest first.
    pub fn sends(&self, qpn: u32) -> Vec<Posted> {
        self.pairs.get(&qpn).map_or(Vec::new(), |pair| pair.sends.iter().copied().collect())
    }

    /// Receives that the device holds, oldest first.
    pub fn recvs(&self, qpn: u32) -> Vec<Posted> {
        self.pairs.get(&qpn).map_or(Vec::new(), |pair| pair.recvs.iter().copied().collect())
    }

    /// Announces the QP before anything is posted to it; it may receive from a shared queue.
    pub fn know(&mut self, qp: &QueuePair) {
        // SAFETY: the QP is live until drop.
        unsafe { self.pair(qp.raw.as_ptr()) };
    }

    /// # Safety
    /// The QP is live.
    unsafe fn pair(&mut self, qp: *mut ibv_qp) -> &mut Pair {
        // SAFETY: the QP is live, and these fields of it do not change.
        let (qpn, send_cq, recv_cq, srq) = unsafe { ((*qp).qp_num, (*qp).send_cq, (*qp).recv_cq, (*qp).srq) };
        let (send_cq, recv_cq, srq) = (send_cq.addr(), recv_cq.addr(), srq.addr());
        let new = || Pair { send_cq, recv_cq, srq, sends: VecDeque::new(), recvs: VecDeque::new() };
        self.pairs.entry(qpn).or_insert_with(new)
    }

    /// Receives a message of `len_bytes` (on UD with the GRH's 40). False: no receive is posted.
    pub fn receive(&mut self, qpn: u32, len_bytes: u32) -> bool {
        self.end_recv(qpn, Status::SUCCESS, len_bytes)
    }

    /// Fails the oldest receive. False if there is none.
    pub fn fail_recv(&mut self, qpn: u32, status: Status) -> bool {
        self.end_recv(qpn, status, 0)
    }

    fn end_recv(&mut self, qpn: u32, status: Status, len_bytes: u32) -> bool {
        let Some(pair) = self.pairs.get_mut(&qpn) else { return false };
        let recvs = match pair.srq {
            0 => &mut pair.recvs,
            srq => self.shared.entry(srq).or_default(),
        };
        let Some(Posted { wr_id, .. }) = recvs.pop_front() else { return false };
        let (cq, status, opcode) = (pair.recv_cq, status.raw(), ibv_wc_opcode::IBV_WC_RECV);
        self.ready.push_back(Ready { cq, qpn, wr_id, status, opcode, len_bytes });
        true
    }

    /// Ends the oldest send with this status. Returns it, if there is one; its completion comes if
    /// it failed or was signaled.
    pub fn end_send(&mut self, qpn: u32, status: Status) -> Option<Posted> {
        let pair = self.pairs.get_mut(&qpn)?;
        let posted = pair.sends.pop_front()?;
        if posted.signaled || !status.is_success() {
            let (cq, status, opcode) = (pair.send_cq, status.raw(), ibv_wc_opcode::IBV_WC_SEND);
            self.ready.push_back(Ready { cq, qpn, wr_id: posted.wr_id, status, opcode, len_bytes: 0 });
        }
        Some(posted)
    }

    /// Flushes the QP's work requests, as a device does when the QP is in ERR; those in a shared
    /// queue stay there. Returns the sends.
    pub fn flush(&mut self, qpn: u32) -> Vec<Posted> {
        let sends = std::iter::from_fn(|| self.end_send(qpn, Status::WR_FLUSH_ERR)).collect();
        let has_own = self.pairs.get(&qpn).is_some_and(|pair| pair.srq == 0);
        while has_own && self.fail_recv(qpn, Status::WR_FLUSH_ERR) {}
        sends
    }

    /// QPs in ERR that still have work requests.
    pub fn in_error(&self) -> Vec<u32> {
        let in_error = |qpn: &u32| fault::state_of(*qpn) == Some(State::Err);
        self.pairs.keys().copied().filter(in_error).collect()
    }

    /// Delivers the last polled completion once more. False if none was polled.
    pub fn repeat(&mut self) -> bool {
        self.ready.extend(self.polled);
        self.polled.is_some()
    }

    /// Drops the state of QPs that are gone.
    fn forget(&mut self) {
        let gone = |qpn: u32| fault::state_of(qpn).is_none();
        self.pairs.retain(|qpn, _| !gone(*qpn));
        self.ready.retain(|ready| !gone(ready.qpn));
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("queues", &lock(&self.device).queues).finish_non_exhaustive()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let mut scripts = lock(&SCRIPTS);
        // Another device may be behind a context at the same address by now.
        if scripts.get(&self.context).is_some_and(|device| Arc::ptr_eq(device, &self.device)) {
            scripts.remove(&self.context);
        }
    }
}

/// The device of this context, if its script still exists.
fn behind(context: *mut ibv_context) -> Option<Arc<Mutex<Scripted>>> {
    lock(&SCRIPTS).get(&context.addr()).cloned()
}

/// # Safety
/// The contract of ibv_post_send(3): a live QP, a list that ends, and a place for `bad_wr`.
unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> i32 {
    // SAFETY: by the contract above; the parts are the work request's own.
    unsafe {
        take((*qp).context, Queue::Sends(qp), wr, bad, |wr| (wr.next, wr.wr_id, wr.send_flags, wr.sg_list, wr.num_sge))
    }
}

/// # Safety
/// The contract of ibv_post_recv(3).
unsafe extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> i32 {
    // SAFETY: by the contract of ibv_post_recv(3), the QP is live and the list valid.
    unsafe { take((*qp).context, Queue::Recvs(qp), wr, bad, |wr| (wr.next, wr.wr_id, TOLD, wr.sg_list, wr.num_sge)) }
}

/// # Safety
/// The contract of ibv_post_srq_recv(3).
unsafe extern "C" fn post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> i32 {
    // SAFETY: by the contract of ibv_post_srq_recv(3), the SRQ is live and the list valid.
    unsafe { take((*srq).context, Queue::Shared(srq), wr, bad, |wr| (wr.next, wr.wr_id, TOLD, wr.sg_list, wr.num_sge)) }
}

/// The queue that work requests are posted to.
#[derive(Clone, Copy)]
enum Queue {
    Sends(*mut ibv_qp),
    Recvs(*mut ibv_qp),
    Shared(*mut ibv_srq),
}

const TOLD: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;
const FENCE: u32 = ibv_send_flags::IBV_SEND_FENCE.0;
/// Next pointer, number, flags, scatter/gather list and its length.
type Parts<W> = (*mut W, u64, u32, *mut ibv_sge, i32);

/// # Safety
/// The contract of [`post_send`], for a live queue of this context; `parts` reads the fields of the
/// work request.
unsafe fn take<W>(
    context: *mut ibv_context,
    queue: Queue,
    mut wr: *mut W,
    bad: *mut *mut W,
    parts: impl Fn(&W) -> Parts<W>,
) -> i32 {
    let Some(device) = behind(context) else {
        // SAFETY: by the contract above, `bad` is a place for the refused work request.
        unsafe { *bad = wr };
        return libc::ENODEV;
    };
    let queues = &mut lock(&device).queues;
    let mut taken = Vec::new();
    while !wr.is_null() && taken.len() < queues.takes {
        // SAFETY: the list is valid.
        let (next, wr_id, flags, sges, count) = parts(unsafe { &*wr });
        // SAFETY: `count` parts are there.
        let len = |at| unsafe { (*sges.add(at as usize)).length };
        let (signaled, fenced) = (flags & TOLD != 0, flags & FENCE != 0);
        taken.push(Posted { wr_id, signaled, fenced, len_bytes: (0..count).map(len).sum() });
        wr = next;
    }
    if queues.takes != usize::MAX {
        queues.takes -= taken.len();
    }
    // SAFETY: by the contract above, the QP is live.
    let (qpn, sends, place) = unsafe {
        match queue {
            Queue::Sends(qp) => ((*qp).qp_num, true, &mut queues.pair(qp).sends),
            Queue::Recvs(qp) => ((*qp).qp_num, false, &mut queues.pair(qp).recvs),
            Queue::Shared(srq) => (0, false, queues.shared.entry(srq.addr()).or_default()),
        }
    };
    place.extend(&taken);
    let refused = !wr.is_null();
    queues.posts.push(Post { qpn, sends, taken, refused });
    if !refused {
        return 0;
    }
    if queues.names_refused {
        // SAFETY: by the contract above, `bad` is a place for the refused work request.
        unsafe { *bad = wr };
    }
    queues.refusal
}

/// # Safety
/// The contract of ibv_poll_cq(3): a live CQ, and space for `room` completions.
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, room: i32, wc: *mut ibv_wc) -> i32 {
    // SAFETY: the CQ is live.
    let Some(device) = behind(unsafe { (*cq).context }) else { return -1 };
    let Scripted { queues, on_poll } = &mut *lock(&device);
    if let Some(hook) = on_poll {
        hook(queues);
    }
    queues.forget();
    let mut found = 0;
    let mut others = VecDeque::new();
    while let Some(ready) = queues.ready.pop_front() {
        if ready.cq != cq.addr() || found >= room {
            others.push_back(ready);
            continue;
        }
        // SAFETY: integers only, for which all zeros is a value.
        let mut entry: ibv_wc = unsafe { std::mem::zeroed() };
        (entry.wr_id, entry.status, entry.opcode) = (ready.wr_id, ready.status, ready.opcode);
        (entry.byte_len, entry.qp_num) = (ready.len_bytes, ready.qpn);
        // SAFETY: there is room for one more, as was just seen.
        unsafe { wc.add(found as usize).write(entry) };
        queues.polled = Some(ready);
        found += 1;
    }
    queues.ready = others;
    found
}
