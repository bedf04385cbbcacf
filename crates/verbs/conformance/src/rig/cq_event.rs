//! Completion events, of a channel and of its completion queues.

use super::channel::Channel;
use super::cq::Cq;
use super::errno::Refused;
use super::patience::{self, DEADLINE, Deadline, SOON};
use super::target::{Provider, verb};
use super::thread;
use crate::check::{Failure, Outcome};
use rdma_sys::{ibv_comp_channel, ibv_cq};
use std::ffi::c_void;
use std::ptr;

/// One completion event: the CQ's address, and the cookie that it was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqEvent {
    cq: *mut ibv_cq,
    pub(crate) cookie: usize,
}

impl CqEvent {
    /// Whether the event is of `cq`.
    pub(crate) fn is(&self, cq: &Cq) -> bool {
        self.cq == cq.raw_or_null()
    }
}

impl Channel {
    /// One `ibv_get_cq_event(3)` without blocking, for one of `cqs`; `None` if there is no event.
    pub(crate) fn try_event(&self, cqs: &[&Cq]) -> Outcome<Option<CqEvent>> {
        match get(self.context().provider, self.raw()) {
            Err(refused) if refused.errno == libc::EAGAIN => Ok(None),
            Err(refused) => Err(refused.into()),
            Ok(event) => {
                let owner = cqs.iter().find(|cq| event.is(cq));
                owner.ok_or_else(|| Failure::new("an event of an unknown CQ"))?.count_event();
                Ok(Some(event))
            }
        }
    }

    fn is_of(&self, cq: &Cq) -> Outcome {
        let is_here = self.context().uses(cq.context());
        if is_here { Ok(()) } else { Err(Failure::Lacks("of two devices only the far one has the channel".to_owned())) }
    }

    /// Waits for an event, which must be of `cq`; leaves it unacknowledged.
    pub(crate) fn wait(&self, cq: &Cq) -> Outcome<CqEvent> {
        self.is_of(cq)?;
        if !patience::readable(self.fd(), DEADLINE) {
            return Err(Failure::new("expected a completion event, got none"));
        }
        self.try_event(&[cq])?.ok_or_else(|| Failure::new("the channel is readable, but ibv_get_cq_event has no event"))
    }

    /// Waits for an event of `cq` and acknowledges it.
    pub(crate) fn wait_ack(&self, cq: &Cq) -> Outcome<CqEvent> {
        let event = self.wait(cq)?;
        cq.ack(1);
        Ok(event)
    }

    /// Like [`Channel::wait_ack`], with less patience, for rows where a device is known to raise no
    /// event although the completion is there.
    pub(crate) fn wait_soon(&self, cq: &Cq) -> Outcome {
        self.is_of(cq)?;
        if !patience::readable(self.fd(), SOON) {
            return Err(Failure::new("expected a completion event, got none"));
        }
        self.wait_ack(cq).map(drop)
    }

    /// Blocks in `ibv_get_cq_event(3)` on another thread, and runs `meanwhile` on this one once it
    /// does; returns the event.
    pub(crate) fn block_while(&self, cq: &Cq, meanwhile: impl FnOnce() -> Outcome) -> Outcome<CqEvent> {
        struct Raw(*mut ibv_comp_channel);
        // SAFETY: ibv_get_cq_event may be called on any thread.
        unsafe impl Send for Raw {}
        struct Got(Result<CqEvent, Refused>);
        // SAFETY: an address to compare with, and numbers.
        unsafe impl Send for Got {}
        patience::set_nonblocking(self.fd(), false).map_err(|error| Failure::new(error.to_string()))?;
        let (raw, provider) = (Raw(self.raw()), self.context().provider);
        let (done, finished) = std::sync::mpsc::channel();
        let (begin, begun) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let raw = raw;
            let _ = begin.send(thread::own_id());
            // A row that gave up does not wait any more.
            let _ = done.send(Got(get(provider, raw.0)));
        });
        let waiter = begun.recv().map_err(|_| Failure::new("the thread that waits died"))?;
        let mut deadline = Deadline::new("the thread blocks in ibv_get_cq_event");
        while !thread::sleeps(waiter) {
            deadline.pause(|| "it runs, or has returned without an event".to_owned())?;
        }
        meanwhile()?;
        let got = finished.recv_timeout(DEADLINE);
        patience::set_nonblocking(self.fd(), true).map_err(|error| Failure::new(error.to_string()))?;
        let got = got.map_err(|_| Failure::new("ibv_get_cq_event did not return")).inspect_err(|_| {
            // The thread still blocks in the call, so the channel must not be freed.
            std::mem::forget(self.clone());
        })?;
        let event = got.0?;
        if event.is(cq) {
            cq.count_event();
        }
        Ok(event)
    }
}

/// `ibv_get_cq_event(3)`, blocking or not, depending on the descriptor.
fn get(provider: Provider, raw: *mut ibv_comp_channel) -> Result<CqEvent, Refused> {
    let mut cq: *mut ibv_cq = ptr::null_mut();
    let mut cookie: *mut c_void = ptr::null_mut();
    // SAFETY: the channel is live; both may be written.
    let value = unsafe { verb!(provider, ibv_get_cq_event(raw, &raw mut cq, &raw mut cookie)) };
    Refused::check("ibv_get_cq_event", value)?;
    Ok(CqEvent { cq, cookie: cookie.addr() })
}
