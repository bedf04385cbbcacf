//! A completion channel: the file descriptor on which armed CQs announce completions.
//!
//! The descriptor becomes readable; [`CompletionChannel::take_events`] then reads every event
//! without blocking and acknowledges them, in one call per CQ, before it returns. No event is ever
//! left unacknowledged, so that destroying a CQ never waits for one. Waiting takes an
//! [`ArmedCq`](super::ArmedCq): it is impossible to sleep on a CQ that was not armed.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::{ibv_comp_channel, ibv_cq};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::context::{Context, ContextInner, set_nonblocking};
use crate::device::provider::verb;
use crate::errno::{Errno, VerbError};

/// Why a channel could not be created or read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChannelError {
    /// The device or the kernel refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The descriptor could not be waited on.
    #[error("waiting on the completion channel of {device}: {errno}")]
    Wait {
        /// The device.
        device: String,
        /// The errno of poll(2).
        errno: Errno,
    },
}

/// A completion channel. Its CQs keep it open.
#[derive(Debug)]
pub struct CompletionChannel {
    pub(crate) inner: Arc<ChannelInner>,
}

impl Context {
    /// Creates a channel on which CQs deliver their events.
    pub fn create_comp_channel(&self) -> Result<CompletionChannel, ChannelError> {
        // SAFETY: the context is open.
        let raw = unsafe { verb!(self.provider(), ibv_create_comp_channel(self.inner.as_ptr())) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbError::last("ibv_create_comp_channel", || self.name()))?;
        let inner = Arc::new(ChannelInner { context: self.inner.clone(), raw });
        set_nonblocking(inner.fd()).map_err(|errno| VerbError::new("fcntl(O_NONBLOCK)", self.name(), errno))?;
        Ok(CompletionChannel { inner })
    }
}

impl CompletionChannel {
    /// Whether the descriptor became readable before `left` ran out or a signal came.
    pub(super) fn block(&self, left: Option<Duration>) -> Result<bool, ChannelError> {
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [PollFd::from_borrowed_fd(self.inner.fd(), PollFlags::IN)];
        match poll(&mut fds, left.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(ChannelError::Wait {
                device: self.inner.context.name.clone(),
                errno: Errno::new(errno.raw_os_error()),
            }),
        }
    }

    pub(super) fn drain(&mut self) -> Result<u32, ChannelError> {
        let mut unacknowledged =
            Acknowledge { provider_of: &self.inner, cqs: [(ptr::null_mut(), 0); CQS_A_CALL], len: 0 };
        let mut events = 0;
        loop {
            match self.inner.next_event() {
                Ok(Some(cq)) => {
                    unacknowledged.count(cq);
                    events += 1;
                }
                Ok(None) => return Ok(events),
                Err(errno) => {
                    return Err(VerbError::new("ibv_get_cq_event", &self.inner.context.name, errno).into());
                }
            }
        }
    }
}

impl AsFd for CompletionChannel {
    /// Readable when an armed CQ has an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd()
    }
}

/// CQs whose events one round of acknowledgements counts together; more CQs take another round.
const CQS_A_CALL: usize = 16;

/// The events read so far, acknowledged with one call per CQ because each call takes a mutex of the
/// CQ. Dropping acknowledges them, so that an early error leaves nothing behind.
struct Acknowledge<'a> {
    provider_of: &'a ChannelInner,
    cqs: [(*mut ibv_cq, u32); CQS_A_CALL],
    len: usize,
}

impl Acknowledge<'_> {
    fn count(&mut self, cq: *mut ibv_cq) {
        if let Some((_, events)) = self.cqs[..self.len].iter_mut().find(|(known, _)| *known == cq) {
            *events += 1;
            return;
        }
        if self.len == CQS_A_CALL {
            self.flush();
        }
        self.cqs[self.len] = (cq, 1);
        self.len += 1;
    }

    fn flush(&mut self) {
        for (cq, events) in &self.cqs[..self.len] {
            // SAFETY: ibv_destroy_cq waits until the events read for a CQ are acknowledged, so that
            // each of these CQs is alive; it is not touched after.
            unsafe { verb!(self.provider_of.context.provider, ibv_ack_cq_events(*cq, *events)) };
        }
        self.len = 0;
    }
}

impl Drop for Acknowledge<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

#[derive(Debug)]
pub(crate) struct ChannelInner {
    pub(crate) context: Arc<ContextInner>,
    raw: NonNull<ibv_comp_channel>,
}

// SAFETY: the verbs on a channel may be called from any thread.
unsafe impl Send for ChannelInner {}
// SAFETY: as above; events are read by the one CompletionChannel only.
unsafe impl Sync for ChannelInner {}

impl ChannelInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_comp_channel {
        self.raw.as_ptr()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open, and the descriptor belongs to it until it is destroyed,
        // which `self` outlives.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).fd) }
    }

    /// The CQ of the next event, to be acknowledged; `None` when there is no event now.
    fn next_event(&self) -> Result<Option<*mut ibv_cq>, Errno> {
        let (mut cq, mut cq_context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is open; both pointers may be written by the call. The descriptor is
        // non-blocking.
        let ret =
            unsafe { verb!(self.context.provider, ibv_get_cq_event(self.as_ptr(), &raw mut cq, &raw mut cq_context)) };
        match Errno::of_return(ret) {
            None => Ok(Some(cq)),
            Some(errno) if errno.raw() == libc::EAGAIN || errno.raw() == libc::EINTR => Ok(None),
            Some(errno) => Err(errno),
        }
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        // SAFETY: every CQ of the channel holds the Arc of this one, so that none is left;
        // destroyed once.
        let ret = unsafe { verb!(self.context.provider, ibv_destroy_comp_channel(self.as_ptr())) };
        if let Some(errno) = self.context.undestroyed(ret) {
            tracing::warn!(device = %self.context.name, %errno, "the completion channel would not go");
        }
    }
}
