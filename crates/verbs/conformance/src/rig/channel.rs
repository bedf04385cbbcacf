//! Completion channels.

use super::context::Context;
use super::errno::Refused;
use super::patience::{self, DEADLINE, QUIET};
use super::target::verb;
use crate::check::{Failure, Outcome};
use rdma_sys::ibv_comp_channel;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::ptr;
use std::rc::Rc;

/// A completion channel. Clones share it; the last one destroys it.
#[derive(Clone)]
pub(crate) struct Channel(Rc<ChannelInner>);

struct ChannelInner {
    context: Rc<Context>,
    raw: Cell<*mut ibv_comp_channel>,
    /// Whether its descriptor was blocking before this program changed it.
    came_blocking: bool,
}

impl Channel {
    pub(super) fn create(context: &Rc<Context>) -> Result<Channel, Refused> {
        // SAFETY: the context is open.
        let raw = unsafe { verb!(context.provider, ibv_create_comp_channel(context.raw)) };
        if raw.is_null() {
            return Err(Refused::last("ibv_create_comp_channel"));
        }
        // SAFETY: the channel was just created; F_GETFL takes no pointer.
        let flags = unsafe { libc::fcntl((*raw).fd, libc::F_GETFL) };
        let came_blocking = flags & libc::O_NONBLOCK == 0;
        let channel = Channel(Rc::new(ChannelInner { context: context.clone(), raw: Cell::new(raw), came_blocking }));
        patience::set_nonblocking(channel.fd(), true).map_err(|_| Refused::last("fcntl"))?;
        Ok(channel)
    }

    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: `self` keeps the channel alive.
        unsafe { (*self.raw()).fd }
    }

    /// Whether the device created it blocking.
    pub(crate) fn came_blocking(&self) -> bool {
        self.0.came_blocking
    }

    /// Whether the descriptor is readable now.
    pub(crate) fn is_readable(&self) -> bool {
        patience::readable(self.fd(), std::time::Duration::ZERO)
    }

    /// Waits until an event is pending, and leaves it there.
    pub(crate) fn becomes_readable(&self) -> bool {
        patience::readable(self.fd(), DEADLINE)
    }

    /// Checks that no (further) event is raised.
    pub(crate) fn quiet(&self) -> Outcome {
        if patience::readable(self.fd(), QUIET) {
            return Err(Failure::new("expected no completion event, got one"));
        }
        Ok(())
    }

    /// Destroys the channel now, if the device permits.
    pub(crate) fn try_destroy(&self) -> Result<(), Refused> {
        self.0.destroy()
    }

    pub(super) fn context(&self) -> &Context {
        &self.0.context
    }

    pub(super) fn raw(&self) -> *mut ibv_comp_channel {
        let raw = self.0.raw.get();
        assert!(!raw.is_null(), "the row uses a channel that it destroyed");
        raw
    }
}

impl ChannelInner {
    fn destroy(&self) -> Result<(), Refused> {
        // SAFETY: live, or the cell would be null. Completion queues keep it, and are the device's
        // possible reason for refusing.
        let value = unsafe { verb!(self.context.provider, ibv_destroy_comp_channel(self.raw.get())) };
        Refused::check("ibv_destroy_comp_channel", value)?;
        self.raw.set(ptr::null_mut());
        Ok(())
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        if !self.raw.get().is_null() {
            self.destroy().unwrap_or_else(|refused| self.context.complain(refused));
        }
    }
}
