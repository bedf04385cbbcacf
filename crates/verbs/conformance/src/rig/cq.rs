//! Completion queues.

use super::channel::Channel;
use super::context::Context;
use super::errno::Refused;
use super::patience::{DEADLINE, Deadline, QUIET};
use super::target::verb;
use super::wc::Wc;
use crate::check::{Failure, Outcome};
use rdma_sys::{ibv_cq, ibv_wc};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The argument of `ibv_req_notify_cq(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    Next,
    Solicited,
    /// Any number other than 0 and 1.
    Other(i32),
}

impl Notify {
    fn number(self) -> i32 {
        match self {
            Notify::Next => 0,
            Notify::Solicited => 1,
            Notify::Other(number) => number,
        }
    }
}

/// A completion queue. Clones share it; the last one acknowledges the remaining events and destroys
/// it.
#[derive(Clone)]
pub(crate) struct Cq(Rc<CqInner>);

struct CqInner {
    context: Rc<Context>,
    channel: Option<Channel>,
    raw: Cell<*mut ibv_cq>,
    /// Events received and not yet acknowledged.
    unacknowledged: Cell<u32>,
}

impl Cq {
    pub(super) fn context(&self) -> &Context {
        &self.0.context
    }

    pub(super) fn create(context: &Rc<Context>, depth: u32, channel: Option<&Channel>) -> Result<Cq, Refused> {
        Cq::create_with(context, depth as i32, channel, 0, 0)
    }

    /// With all arguments of `ibv_create_cq(3)`; `cookie` is the `cq_context` that events hand
    /// back.
    pub(crate) fn create_with(
        context: &Rc<Context>,
        depth: i32,
        channel: Option<&Channel>,
        cookie: usize,
        vector: i32,
    ) -> Result<Cq, Refused> {
        let raw_channel = channel.map_or(ptr::null_mut(), Channel::raw);
        // SAFETY: the context is open and the channel, if any, live; the cookie is never followed.
        let raw = unsafe {
            verb!(
                context.provider,
                ibv_create_cq(context.raw, depth, ptr::without_provenance_mut::<c_void>(cookie), raw_channel, vector)
            )
        };
        if raw.is_null() {
            return Err(Refused::last("ibv_create_cq"));
        }
        let cq = Cq(Rc::new(CqInner {
            context: context.clone(),
            channel: channel.cloned(),
            raw: Cell::new(raw),
            unacknowledged: Cell::new(0),
        }));
        Ok(cq)
    }

    /// The reported depth, in completions.
    pub(crate) fn depth(&self) -> u32 {
        // SAFETY: `self` keeps the CQ alive.
        unsafe { (*self.raw()).cqe as u32 }
    }

    /// One `ibv_poll_cq(3)`: at most `max` completions.
    pub(crate) fn poll(&self, max: usize) -> Outcome<Vec<Wc>> {
        // SAFETY: integers only.
        let mut raw: Vec<ibv_wc> = (0..max).map(|_| unsafe { std::mem::zeroed() }).collect();
        // SAFETY: live; room for `max` completions.
        let count = unsafe { rdma_sys::ibv_poll_cq(self.raw(), max as c_int, raw.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| Failure::new(format!("ibv_poll_cq answered {count}")))?;
        if count > max {
            return Err(Failure::new(format!("ibv_poll_cq answered {count} when asked for at most {max}")));
        }
        Ok(raw[..count].iter().map(Wc::from_raw).collect())
    }

    /// Polls until there are `count` completions.
    pub(crate) fn wait(&self, count: usize) -> Outcome<Vec<Wc>> {
        self.wait_for(count, DEADLINE)
    }

    /// Like [`Cq::wait`], with a limit, for rows where a device is known never to complete.
    pub(crate) fn wait_for(&self, count: usize, limit: Duration) -> Outcome<Vec<Wc>> {
        let mut deadline = Deadline::within("completions", limit);
        let mut got = Vec::with_capacity(count);
        while got.len() < count {
            let more = self.poll(count - got.len())?;
            if more.is_empty() {
                deadline.pause(|| format!("{} of {count}: {got:?}", got.len()))?;
            }
            got.extend(more);
        }
        Ok(got)
    }

    /// Polls until there is one completion.
    pub(crate) fn wait_one(&self) -> Outcome<Wc> {
        Ok(self.wait(1)?[0])
    }

    /// Polls until there is one completion, which must be a success.
    pub(crate) fn wait_ok(&self) -> Outcome<Wc> {
        let [wc] = self.wait_all_ok()?;
        Ok(wc)
    }

    /// Polls until there are `N` completions, which must all be successes.
    pub(crate) fn wait_all_ok<const N: usize>(&self) -> Outcome<[Wc; N]> {
        let all = self.wait(N)?;
        match all.iter().find(|wc| !wc.ok()) {
            Some(bad) => Err(Failure::new(format!("expected {N} successful completions, got {bad:?}"))),
            None => Ok(all.try_into().expect("as many as asked")),
        }
    }

    /// Checks that nothing (further) completes.
    pub(crate) fn quiet(&self) -> Outcome {
        let end = Instant::now() + QUIET;
        loop {
            if let Some(wc) = self.poll(1)?.first() {
                return Err(Failure::new(format!("expected no completion, got {wc:?}")));
            }
            if Instant::now() > end {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn arm(&self, notify: Notify) -> Result<(), Refused> {
        // SAFETY: `self` keeps the CQ alive.
        let value = unsafe { rdma_sys::ibv_req_notify_cq(self.raw(), notify.number()) };
        Refused::check("ibv_req_notify_cq", value)
    }

    pub(crate) fn resize(&self, depth: u32) -> Result<(), Refused> {
        // SAFETY: `self` keeps the CQ alive.
        let value = unsafe { verb!(self.0.context.provider, ibv_resize_cq(self.raw(), depth as c_int)) };
        Refused::check("ibv_resize_cq", value)
    }

    /// Acknowledges `count` events received from the channel.
    pub(crate) fn ack(&self, count: u32) {
        let left = self.0.unacknowledged.get().checked_sub(count);
        self.0.unacknowledged.set(left.expect("a row acknowledges only what it got"));
        // SAFETY: live; no more are acknowledged than were got, by the line above.
        unsafe { verb!(self.0.context.provider, ibv_ack_cq_events(self.raw(), count)) };
    }

    /// Destroys the queue now, if the device permits.
    pub(crate) fn try_destroy(&self) -> Result<(), Refused> {
        self.0.destroy()
    }

    /// Destroys the queue on another thread while `meanwhile` runs on this one, which is to
    /// acknowledge; then waits for it.
    pub(crate) fn destroy_while(&self, meanwhile: impl FnOnce(&Destroying) -> Outcome) -> Outcome {
        struct Raw(*mut ibv_cq);
        // SAFETY: ibv_destroy_cq may be called on any thread. This one only acknowledges until it
        // returned.
        unsafe impl Send for Raw {}
        let (raw, provider) = (Raw(self.raw()), self.0.context.provider);
        let (done, finished) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let raw = raw;
            // SAFETY: live when the thread started, and nobody else destroys it: see below.
            let value = unsafe { verb!(provider, ibv_destroy_cq(raw.0)) };
            // A row that gave up does not wait any more.
            let _ = done.send(value);
        });
        let during = meanwhile(&Destroying(&finished));
        let value = finished.recv_timeout(DEADLINE);
        // From here on it is gone, or lost to a thread that hangs in destroying it.
        self.0.raw.set(ptr::null_mut());
        let value = value.map_err(|_| Failure::new("ibv_destroy_cq did not return after the acknowledgement"))?;
        thread.join().map_err(|_| Failure::new("the destroying thread panicked"))?;
        during?;
        Ok(Refused::check("ibv_destroy_cq", value)?)
    }

    pub(super) fn count_event(&self) {
        self.0.unacknowledged.set(self.0.unacknowledged.get() + 1);
    }

    pub(super) fn raw(&self) -> *mut ibv_cq {
        let raw = self.0.raw.get();
        assert!(!raw.is_null(), "the row uses a completion queue that it destroyed");
        raw
    }

    pub(super) fn raw_or_null(&self) -> *mut ibv_cq {
        self.0.raw.get()
    }
}

/// A completion queue that another thread is destroying.
pub(crate) struct Destroying<'a>(&'a std::sync::mpsc::Receiver<c_int>);

impl Destroying<'_> {
    /// Checks that the destruction is not done, and does not finish for a while.
    pub(crate) fn hangs(&self) -> Outcome {
        match self.0.recv_timeout(QUIET) {
            Err(_) => Ok(()),
            Ok(value) => Err(Failure::new(format!("expected ibv_destroy_cq to wait, it answered {value}"))),
        }
    }
}

impl CqInner {
    fn destroy(&self) -> Result<(), Refused> {
        // SAFETY: live, or the cell would be null. Queue pairs keep it, and are the device's
        // possible reason for refusing.
        let value = unsafe { verb!(self.context.provider, ibv_destroy_cq(self.raw.get())) };
        Refused::check("ibv_destroy_cq", value)?;
        self.raw.set(ptr::null_mut());
        Ok(())
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if self.raw.get().is_null() {
            return;
        }
        let left = self.unacknowledged.get();
        if left > 0 {
            // SAFETY: live; exactly the events received and not yet acknowledged.
            unsafe { verb!(self.context.provider, ibv_ack_cq_events(self.raw.get(), left)) };
        }
        self.destroy().unwrap_or_else(|refused| self.context.complain(refused));
        // The channel outlives its queues: the field order drops it after this.
        let _ = &self.channel;
    }
}
