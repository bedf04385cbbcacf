//! A completion queue: its owner polls it in batches, and arms it before sleeping on it.
//!
//! A CQ is polled through `&mut self`, so by one thread at a time. Its QPs keep the device's queue
//! alive after this handle is dropped.

pub(crate) mod channel;
pub(crate) mod completion;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rdma_sys::{ibv_cq, ibv_wc};

use crate::cq::channel::{ChannelError, ChannelInner, CompletionChannel};
use crate::cq::completion::Completions;
use crate::device::context::{Context, ContextInner};
use crate::device::provider::verb;
use crate::errno::VerbError;

/// Why a CQ could not be created, resized or armed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CqError {
    /// The device or the kernel refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// No device takes this depth.
    #[error(
        "a CQ of {depth_wc} completions: the depth must be 1 to {max}; see DeviceAttr::max_cqe for the device's limit"
    )]
    Depth {
        /// The requested depth.
        depth_wc: u32,
        /// The largest depth.
        max: u32,
    },
    /// Arming needs a channel to deliver the event to.
    #[error("CQ {id} has no completion channel to sleep on; pass one to create_cq, or ask by request_notify")]
    NoChannel {
        /// The CQ.
        id: u64,
    },
    /// The channel belongs to another device.
    #[error("the completion channel is of {channel}, the CQ of {cq}; both must come from one context")]
    ForeignChannel {
        /// The channel's device.
        channel: String,
        /// The CQ's device.
        cq: String,
    },
}

/// The completions that make an armed CQ deliver its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next completion of any kind.
    Next,
    /// The next completion that the sender marked as solicited, or that failed.
    Solicited,
}

type PollCq = unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32;

unsafe extern "C" fn no_poll_cq(_: *mut ibv_cq, _: i32, _: *mut ibv_wc) -> i32 {
    -1
}

/// Completions of any number of queue pairs, polled by one thread. Its queue pairs keep it alive
/// after this handle is dropped.
#[derive(Debug)]
pub struct CompletionQueue {
    /// The pointer in `inner` and the poll verb, looked up once.
    raw: NonNull<ibv_cq>,
    poll: PollCq,
    pub(crate) inner: Arc<CqInner>,
    poll_errors: u64,
}

impl CompletionChannel {
    /// Ends the armed state: reads and acknowledges all pending events without blocking. Returns
    /// their number.
    ///
    /// For callers that block in an epoll of their own on the channel (it is an `AsFd`). Call it
    /// even if the channel was not what woke them.
    pub fn take_events(&mut self, armed: ArmedCq) -> Result<u32, ChannelError> {
        armed.disarm();
        self.drain()
    }

    /// Blocks until an armed CQ has an event or the timeout expires, then takes the events. 0 means
    /// that the timeout expired.
    ///
    /// Poll every armed CQ between arming and this call: a completion that came before the arm
    /// makes no event.
    pub fn wait(&mut self, armed: ArmedCq, timeout: Option<Duration>) -> Result<u32, ChannelError> {
        armed.disarm();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let ready = self.block(left)?;
            let events = self.drain()?;
            // A signal, or an event that another thread took: look at the clock again.
            if events > 0 || (!ready && left.is_some_and(|left| left.is_zero())) {
                return Ok(events);
            }
        }
    }
}

impl Context {
    /// Creates a CQ of at least `depth_wc` completions. Only a CQ with a channel can be armed.
    pub fn create_cq(&self, depth_wc: u32, channel: Option<&CompletionChannel>) -> Result<CompletionQueue, CqError> {
        self.create_cq_on_vector(depth_wc, channel, 0)
    }

    /// Like [`Context::create_cq`], with its events on the given completion vector. A vector not
    /// below [`Context::completion_vectors`] is refused with EINVAL.
    pub fn create_cq_on_vector(
        &self,
        depth_wc: u32,
        channel: Option<&CompletionChannel>,
        vector: u32,
    ) -> Result<CompletionQueue, CqError> {
        let depth = check_depth(depth_wc)?;
        if let Some(channel) = channel.filter(|channel| !Arc::ptr_eq(&channel.inner.context, &self.inner)) {
            let (channel, cq) = (channel.inner.context.name.clone(), self.name().to_owned());
            return Err(CqError::ForeignChannel { channel, cq });
        }
        let raw_channel = channel.map_or(std::ptr::null_mut(), |channel| channel.inner.as_ptr());
        // Relaxed: only uniqueness matters; the counter publishes nothing.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        // The context pointer is a number that names the CQ in asynchronous events; it is never
        // dereferenced.
        let cq_context = std::ptr::without_provenance_mut(id as usize);
        let vector = i32::try_from(vector).unwrap_or(i32::MAX);
        // SAFETY: context and channel are open and of one device; the new CQ holds both.
        let raw = unsafe {
            verb!(self.provider(), ibv_create_cq(self.inner.as_ptr(), depth, cq_context, raw_channel, vector))
        };
        let raw = NonNull::new(raw).ok_or_else(|| create_error(self, depth, vector))?;
        let channel = channel.map(|channel| channel.inner.clone());
        let inner = CqInner { id, raw, channel, context: self.inner.clone() };
        // SAFETY: the CQ was just created; its context is open, and the table of functions filled.
        let poll = unsafe { (*(*raw.as_ptr()).context).ops.poll_cq }.unwrap_or(no_poll_cq);
        Ok(CompletionQueue { raw, poll, inner: Arc::new(inner), poll_errors: 0 })
    }
}

// SAFETY: the address is that of `inner`, which is Send; polling and arming take `&mut self`.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above; by `&self` it is read only.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A second handle to the same queue, for creating QPs on it. It must be neither polled nor
    /// armed: only the owner may, on one thread at a time.
    pub(crate) fn unpolled(&self) -> CompletionQueue {
        CompletionQueue { raw: self.raw, poll: no_poll_cq, inner: self.inner.clone(), poll_errors: 0 }
    }

    /// Takes the waiting completions, oldest first, at most `completions.capacity()`; returns how
    /// many. The previous contents of `completions` are dropped.
    ///
    /// When the device refuses (an overrun CQ), nothing is found and
    /// [`CompletionQueue::poll_errors`] grows.
    #[inline]
    pub fn poll(&mut self, completions: &mut Completions) -> usize {
        let (wc, capacity) = completions.as_raw();
        // SAFETY: the CQ is alive and `&mut self` makes this its only poller; `wc` has room for
        // `capacity` entries.
        let found = unsafe { (self.poll)(self.raw.as_ptr(), capacity, wc) };
        let found = if found as u32 <= capacity as u32 { found as usize } else { self.poll_failed(found, capacity) };
        // SAFETY: no more than there is room for, as just seen.
        unsafe { completions.set_len(found) };
        found
    }

    /// Polls that the device refused. Such a CQ cannot be repaired: see
    /// [`crate::event::AsyncEventKind::CqErr`].
    pub fn poll_errors(&self) -> u64 {
        self.poll_errors
    }

    /// Requests an event on the channel for the next completion from now on.
    ///
    /// Poll once more before sleeping: completions that came before this call make no event. The
    /// returned value is the right to sleep, taken by [`CompletionChannel::wait`] or
    /// [`CompletionChannel::take_events`]; if the poll found work, give it up with
    /// [`ArmedCq::disarm`]. An event may come all the same, and the next `take_events` takes it.
    ///
    /// Refused without a channel: there is nothing to sleep on.
    pub fn arm(&mut self, notify: Notify) -> Result<ArmedCq, CqError> {
        if self.inner.channel.is_none() {
            return Err(CqError::NoChannel { id: self.inner.id });
        }
        self.request_notify(notify)?;
        Ok(ArmedCq { cqs: 1 })
    }

    /// Requests an event for the next completion from now on (ibv_req_notify_cq), without the right
    /// to sleep. Every CQ accepts the request; one without a channel delivers no event.
    pub fn request_notify(&mut self, notify: Notify) -> Result<(), CqError> {
        // SAFETY: the CQ is alive; `&mut self` keeps arming and polling to one thread.
        let ret = unsafe { rdma_sys::ibv_req_notify_cq(self.inner.as_ptr(), (notify == Notify::Solicited).into()) };
        VerbError::check("ibv_req_notify_cq", ret, || self.inner.describe())?;
        Ok(())
    }

    /// The CQ's capacity in completions: at least the requested depth.
    pub fn depth_wc(&self) -> u32 {
        // SAFETY: the CQ is alive; the field changes only in `resize`, which takes `&mut self`.
        u32::try_from(unsafe { (*self.inner.as_ptr()).cqe }).unwrap_or(0)
    }

    /// Changes the depth to at least `depth_wc`, keeping the queued completions (ibv_resize_cq(3));
    /// [`CompletionQueue::depth_wc`] returns the new depth. If more completions are queued than
    /// `depth_wc`, a device refuses with EINVAL and nothing changes, or keeps its depth, like the
    /// software RNIC. An earlier arm stays in force.
    pub fn resize(&mut self, depth_wc: u32) -> Result<(), CqError> {
        let depth = check_depth(depth_wc)?;
        // SAFETY: the CQ is alive; `&mut self` keeps polls away meanwhile.
        let ret = unsafe { verb!(self.inner.context.provider, ibv_resize_cq(self.inner.as_ptr(), depth)) };
        let resized =
            VerbError::check("ibv_resize_cq", ret, || format!("{} to {depth} completions", self.inner.describe()));
        resized.map_err(|error| match error.errno.raw() {
            libc::EINVAL => error.advise(
                "the depth may be below the completions that are in the CQ, which polling makes fewer, or above \
                 DeviceAttr::max_cqe",
            ),
            _ => error,
        })?;
        Ok(())
    }

    /// Names this CQ in asynchronous events; never reused.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Handles a poll result below 0, an error, or above the capacity, which no device returns.
    #[cold]
    fn poll_failed(&mut self, found: i32, capacity: i32) -> usize {
        if found > capacity {
            return capacity as usize;
        }
        self.poll_errors += 1;
        if self.poll_errors == 1 {
            let device = &self.inner.context.name;
            tracing::error!(cq = self.inner.id, %device, "the device refuses to poll this CQ");
        }
        0
    }
}

fn create_error(context: &Context, depth: i32, vector: i32) -> VerbError {
    let object = || format!("{depth} completions, vector {vector}, {}", context.name());
    let error = VerbError::last("ibv_create_cq", object);
    let vectors = context.completion_vectors();
    match error.errno.raw() {
        libc::EINVAL if vector.unsigned_abs() >= vectors => {
            error.advise(format!("a vector is below Context::completion_vectors, which is {vectors}"))
        }
        libc::EINVAL => error.advise("the depth may be above DeviceAttr::max_cqe"),
        _ => error,
    }
}

fn check_depth(depth_wc: u32) -> Result<i32, CqError> {
    let max = i32::MAX.unsigned_abs();
    match i32::try_from(depth_wc) {
        Ok(depth) if depth > 0 => Ok(depth),
        _ => Err(CqError::Depth { depth_wc, max }),
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The right to sleep: one or more CQs are armed. Blocking uses it up; so does giving it up.
#[must_use = "an armed CQ is either slept on (CompletionChannel::wait, take_events) or disarmed"]
#[derive(Debug)]
pub struct ArmedCq {
    cqs: u32,
}

impl ArmedCq {
    /// Combines both, for a channel with several CQs.
    pub fn and(self, other: ArmedCq) -> ArmedCq {
        ArmedCq { cqs: self.cqs + other.cqs }
    }

    /// How many CQs were armed together. Each must be polled once more before the wait.
    pub fn cqs(&self) -> u32 {
        self.cqs
    }

    /// Gives up the right to sleep, because there is work. The device stays armed: verbs have no
    /// call to disarm it.
    pub fn disarm(self) {}
}

/// The device's queue. Destroyed when the handle and every QP of it are gone.
#[derive(Debug)]
pub(crate) struct CqInner {
    pub(crate) id: u64,
    raw: NonNull<ibv_cq>,
    channel: Option<Arc<ChannelInner>>,
    pub(crate) context: Arc<ContextInner>,
}

// SAFETY: polling and arming go through the one CompletionQueue's `&mut self`; what is shared here
// is the address, for creating and destroying QPs.
unsafe impl Send for CqInner {}
// SAFETY: through `&CqInner` threads share no more than the address of the CQ.
unsafe impl Sync for CqInner {}

impl CqInner {
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    fn describe(&self) -> String {
        format!("CQ {} on {}", self.id, self.context.name)
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        // SAFETY: every QP of the CQ holds the Arc of this one, so that none is left; destroyed
        // once. Events that were read are acknowledged before `take_events` returns, so that this
        // does not wait for ever.
        let ret = unsafe { verb!(self.context.provider, ibv_destroy_cq(self.as_ptr())) };
        if let Some(errno) = self.context.undestroyed(ret) {
            tracing::warn!(cq = self.id, device = %self.context.name, %errno, "the CQ would not go");
        }
    }
}
