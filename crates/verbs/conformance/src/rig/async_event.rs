//! Asynchronous events.

use super::context::Context;
use super::cq::Cq;
use super::errno::Refused;
use super::patience::{self, DEADLINE, QUIET, SOON};
use super::qp::Qp;
use super::srq::Srq;
use super::target::verb;
use crate::check::{Failure, Outcome};
use rdma_sys::{ibv_async_event, ibv_event_type as raw_kind};
use std::fmt;
use std::mem::{MaybeUninit, offset_of};
use std::time::{Duration, Instant};

/// `enum ibv_event_type`, as a number: a device may raise one that this program does not name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AsyncKind(u32);

impl AsyncKind {
    pub(crate) const CQ_ERR: AsyncKind = AsyncKind(raw_kind::IBV_EVENT_CQ_ERR as u32);
    pub(crate) const QP_FATAL: AsyncKind = AsyncKind(raw_kind::IBV_EVENT_QP_FATAL as u32);
    pub(crate) const QP_REQ_ERR: AsyncKind = AsyncKind(raw_kind::IBV_EVENT_QP_REQ_ERR as u32);
    pub(crate) const QP_ACCESS_ERR: AsyncKind = AsyncKind(raw_kind::IBV_EVENT_QP_ACCESS_ERR as u32);
    pub(crate) const COMM_EST: AsyncKind = AsyncKind(raw_kind::IBV_EVENT_COMM_EST as u32);
    pub(crate) const SQ_DRAINED: AsyncKind = AsyncKind(raw_kind::IBV_EVENT_SQ_DRAINED as u32);
    pub(crate) const PATH_MIG: AsyncKind = AsyncKind(raw_kind::IBV_EVENT_PATH_MIG as u32);
    pub(crate) const SRQ_LIMIT_REACHED: AsyncKind = AsyncKind(raw_kind::IBV_EVENT_SRQ_LIMIT_REACHED as u32);
    pub(crate) const QP_LAST_WQE_REACHED: AsyncKind = AsyncKind(raw_kind::IBV_EVENT_QP_LAST_WQE_REACHED as u32);
}

impl fmt::Debug for AsyncKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            AsyncKind::CQ_ERR => f.write_str("CQ_ERR"),
            AsyncKind::QP_FATAL => f.write_str("QP_FATAL"),
            AsyncKind::QP_REQ_ERR => f.write_str("QP_REQ_ERR"),
            AsyncKind::QP_ACCESS_ERR => f.write_str("QP_ACCESS_ERR"),
            AsyncKind::COMM_EST => f.write_str("COMM_EST"),
            AsyncKind::SQ_DRAINED => f.write_str("SQ_DRAINED"),
            AsyncKind::PATH_MIG => f.write_str("PATH_MIG"),
            AsyncKind::SRQ_LIMIT_REACHED => f.write_str("SRQ_LIMIT_REACHED"),
            AsyncKind::QP_LAST_WQE_REACHED => f.write_str("QP_LAST_WQE_REACHED"),
            AsyncKind(other) => write!(f, "event {other}"),
        }
    }
}

/// The object of an event.
#[derive(Clone, Copy)]
pub(crate) enum Element<'a> {
    Cq(&'a Cq),
    Qp(&'a Qp),
    Srq(&'a Srq),
}

impl Element<'_> {
    fn address(self) -> usize {
        match self {
            Element::Cq(cq) => cq.raw() as usize,
            Element::Qp(qp) => qp.raw() as usize,
            Element::Srq(srq) => srq.raw() as usize,
        }
    }
}

/// A received event: acknowledged when dropped.
pub(crate) struct AsyncEvent<'a> {
    context: &'a Context,
    raw: MaybeUninit<ibv_async_event>,
}

impl AsyncEvent<'_> {
    pub(crate) fn kind(&self) -> AsyncKind {
        // As a number: an unknown value in a Rust enum would be undefined behaviour.
        // SAFETY: zeroed before the call that filled it; the field is 32 bits.
        AsyncKind(unsafe { self.raw.as_ptr().byte_add(offset_of!(ibv_async_event, event_type)).cast::<u32>().read() })
    }

    /// Whether it is about `element`.
    pub(crate) fn is_about(&self, element: Element<'_>) -> bool {
        // SAFETY: zeroed before the call that filled it; the union is first, and any member's bytes
        // are an address or a port number, compared and never dereferenced.
        let address = unsafe { self.raw.as_ptr().cast::<usize>().read() };
        address == element.address()
    }
}

impl Drop for AsyncEvent<'_> {
    fn drop(&mut self) {
        // SAFETY: from ibv_get_async_event of the same provider, acknowledged once; its object is
        // not destroyed before that, by ibv_get_async_event(3).
        unsafe { verb!(self.context.provider, ibv_ack_async_event(self.raw.as_mut_ptr())) };
    }
}

impl Context {
    /// One `ibv_get_async_event(3)` without blocking.
    pub(crate) fn try_async_event(&self) -> Outcome<Option<AsyncEvent<'_>>> {
        let mut raw = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the context is open and its descriptor non-blocking; `raw` may be written.
        let value = unsafe { verb!(self.provider, ibv_get_async_event(self.raw, raw.as_mut_ptr())) };
        match Refused::check("ibv_get_async_event", value) {
            Ok(()) => Ok(Some(AsyncEvent { context: self, raw })),
            Err(refused) if refused.errno == libc::EAGAIN => Ok(None),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Waits for an event of this kind about this element, skipping others; it is acknowledged when
    /// dropped.
    pub(crate) fn wait_async(&self, kind: AsyncKind, element: Element<'_>) -> Outcome<AsyncEvent<'_>> {
        self.wait_async_for(kind, element, DEADLINE)
    }

    /// Like [`Context::wait_async`], with less patience, for rows where a device is known never to
    /// raise it.
    pub(crate) fn wait_async_soon(&self, kind: AsyncKind, element: Element<'_>) -> Outcome<AsyncEvent<'_>> {
        self.wait_async_for(kind, element, SOON)
    }

    fn wait_async_for(&self, kind: AsyncKind, element: Element<'_>, limit: Duration) -> Outcome<AsyncEvent<'_>> {
        let end = Instant::now() + limit;
        let mut others = Vec::new();
        loop {
            if let Some(event) = self.try_async_event()? {
                if event.kind() == kind {
                    let about = event.is_about(element);
                    return if about { Ok(event) } else { Err(Failure::new(format!("{kind:?} of another object"))) };
                }
                others.push(event.kind());
                continue;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !patience::readable(self.async_fd, left) {
                return Err(Failure::new(format!("expected {kind:?}, got only {others:?}")));
            }
        }
    }

    /// Checks that no event of this kind is raised.
    pub(crate) fn no_async(&self, kind: AsyncKind) -> Outcome {
        let end = Instant::now() + QUIET;
        loop {
            while let Some(event) = self.try_async_event()? {
                if event.kind() == kind {
                    return Err(Failure::new(format!("expected no {kind:?}, got one")));
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !patience::readable(self.async_fd, left.max(Duration::from_millis(1))) {
                return Ok(());
            }
        }
    }

    /// Waits until an event is pending, and leaves it there.
    pub(crate) fn async_becomes_readable(&self) -> bool {
        patience::readable(self.async_fd, DEADLINE)
    }

    /// Whether the descriptor of asynchronous events is readable now.
    pub(crate) fn has_async(&self) -> bool {
        patience::readable(self.async_fd, Duration::ZERO)
    }
}
