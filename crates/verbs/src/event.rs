//! Asynchronous events: what the device says without being asked (ibv_get_async_event(3)).
//!
//! Each is read without blocking, turned into a value of our own, and acknowledged before it is handed on: destroying a QP,
//! CQ or SRQ never waits for an event that someone forgot. The event's type is read as an integer.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rdma_sys::ibv_async_event;

use crate::context::ContextInner;
use crate::errno::{Errno, VerbError};
use crate::provider::verb;

/// The asynchronous events of a device.
#[derive(Clone, Debug)]
pub struct AsyncEvents {
    context: Arc<ContextInner>,
}

impl AsyncEvents {
    pub(crate) fn new(context: Arc<ContextInner>) -> AsyncEvents {
        AsyncEvents { context }
    }

    /// The next event, if there is one.
    pub fn try_next(&self) -> Result<Option<AsyncEvent>, VerbError> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the context is open; `event` may be written by the call. The descriptor is non-blocking.
        let ret =
            unsafe { verb!(self.context.provider, ibv_get_async_event(self.context.as_ptr(), event.as_mut_ptr())) };
        match Errno::of_return(ret) {
            None => {}
            Some(errno) if errno.raw() == libc::EAGAIN || errno.raw() == libc::EINTR => return Ok(None),
            Some(errno) => return Err(VerbError::new("ibv_get_async_event", &self.context.name, errno)),
        }
        // SAFETY: the call succeeded, so `event` is one that this context delivered and that is not acknowledged.
        let value = unsafe { AsyncEvent::read(event.as_ptr()) };
        // SAFETY: as above; acknowledged once.
        unsafe { verb!(self.context.provider, ibv_ack_async_event(event.as_mut_ptr())) };
        Ok(Some(value))
    }
}

impl AsFd for AsyncEvents {
    /// Readable when there is an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.context.async_fd()
    }
}

/// One asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: AsyncEventKind,
    /// To what.
    pub source: AsyncEventSource,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEventSource {
    /// A QP, by its number.
    Qp(u32),
    /// A CQ, by [`crate::CompletionQueue::id`].
    Cq(u64),
    /// An SRQ, by [`crate::SharedReceiveQueue::id`].
    Srq(u64),
    /// A port.
    Port(u8),
    /// The device as a whole, or something that this crate does not make.
    Device,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        /// What happened (`enum ibv_event_type`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum AsyncEventKind {
            $($(#[$doc])* $name,)*
            /// A value that verbs.h does not name.
            Unknown(u32),
        }

        impl AsyncEventKind {
            fn from_raw(raw: u32) -> AsyncEventKind {
                match raw {
                    $($value => AsyncEventKind::$name,)*
                    other => AsyncEventKind::Unknown(other),
                }
            }
        }
    };
}

kinds! {
    /// The CQ overran: completions are lost.
    CqErr = 0;
    /// The QP failed and went to ERR.
    QpFatal = 1;
    /// An invalid request came in; the QP went to ERR.
    QpReqErr = 2;
    /// A request came in that the access flags forbid; the QP went to ERR.
    QpAccessErr = 3;
    /// A message came in while the QP was in RTR: the peer is in RTS.
    CommEst = 4;
    /// The SQ is drained, after SQD.
    SqDrained = 5;
    /// The connection moved to the alternate path.
    PathMig = 6;
    /// It could not.
    PathMigErr = 7;
    /// The device failed.
    DeviceFatal = 8;
    /// The port's link is up.
    PortActive = 9;
    /// The port's link is down.
    PortErr = 10;
    /// The port's LID changed.
    LidChange = 11;
    /// The P_Key table changed.
    PkeyChange = 12;
    /// The subnet manager changed.
    SmChange = 13;
    /// The SRQ failed.
    SrqErr = 14;
    /// The SRQ fell below its limit.
    SrqLimitReached = 15;
    /// A QP in ERR has taken its last receive from its SRQ.
    QpLastWqeReached = 16;
    /// The subnet manager asks clients to register again.
    ClientReregister = 17;
    /// The GID table changed.
    GidChange = 18;
    /// A work queue failed.
    WqFatal = 19;
}

impl AsyncEvent {
    /// # Safety
    /// `event` was filled by ibv_get_async_event and is not acknowledged yet: what it points to is alive.
    unsafe fn read(event: *const ibv_async_event) -> AsyncEvent {
        // SAFETY: the type is a 32-bit enum in C; read as an integer, any value is valid. The union is 8 bytes, zeroed before.
        let (raw, element) = unsafe { ((&raw const (*event).event_type).cast::<u32>().read(), &(*event).element) };
        let kind = AsyncEventKind::from_raw(raw);
        // SAFETY: ibv_get_async_event(3) says which member each type fills; the objects are alive until acknowledged.
        let source = unsafe {
            match raw {
                0 => AsyncEventSource::Cq((*element.cq).cq_context.addr() as u64),
                1..=7 | 16 => AsyncEventSource::Qp((*element.qp).qp_num),
                14 | 15 => AsyncEventSource::Srq((*element.srq).srq_context.addr() as u64),
                9..=13 | 17 | 18 => AsyncEventSource::Port(u8::try_from(element.port_num).unwrap_or(0)),
                _ => AsyncEventSource::Device,
            }
        };
        AsyncEvent { kind, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_type_is_kept_as_its_number() {
        assert_eq!(AsyncEventKind::from_raw(19), AsyncEventKind::WqFatal);
        assert_eq!(AsyncEventKind::from_raw(4711), AsyncEventKind::Unknown(4711));
    }
}
