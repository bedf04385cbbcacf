//! Asynchronous events of a device (ibv_get_async_event(3)).
//!
//! Each event is read without blocking, converted to a value of our own, and acknowledged before it
//! is handed on: destroying a QP, CQ or SRQ never waits for a forgotten event. The event's type is
//! read as an integer.
//!
//! The removal of a device shows in one of two ways. A driver that can part with its users raises
//! [`AsyncEventKind::DeviceFatal`]. From then on the kernel holds none of the device's objects, and
//! every verb fails with EIO, including destruction; objects dropped after the event count as
//! destroyed. A driver that cannot (rdma_rxe) waits, without notice, until its users have closed
//! the device; [`AsyncEvents::is_being_removed`] detects that.

use std::ffi::{CStr, OsStr};
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use rdma_sys::ibv_async_event;

use crate::device::context::Context;
use crate::device::context::ContextInner;
use crate::device::provider::{Provider, verb};
use crate::errno::{Errno, VerbError};

/// The asynchronous events of a device.
#[derive(Clone, Debug)]
pub struct AsyncEvents {
    context: Arc<ContextInner>,
    /// The kernel's entry of the device for its users (infiniband_verbs in sysfs), if it existed at
    /// first.
    listed: Option<PathBuf>,
}

impl Context {
    /// The device's asynchronous events: a descriptor to wait on and a non-blocking read.
    pub fn async_events(&self) -> AsyncEvents {
        let context = self.inner.clone();
        let listed = listed_at(&context).filter(|path| path.exists());
        AsyncEvents { context, listed }
    }
}

impl AsyncEvents {
    /// Whether the kernel has begun to remove the device and waits for us. Existing objects go on
    /// working, but the device cannot be opened again, and the removal (`rdma link del`, or the end
    /// of the network device) finishes once all objects of the context are dropped. Reads sysfs;
    /// always false on the software RNIC, and without sysfs.
    pub fn is_being_removed(&self) -> bool {
        self.listed.as_ref().is_some_and(|path| !path.exists())
    }

    /// Whether [`AsyncEvents::is_being_removed`] can ever be true.
    pub fn shows_removal(&self) -> bool {
        self.listed.is_some()
    }

    /// The next pending event, if any.
    pub fn try_next(&self) -> Result<Option<AsyncEvent>, VerbError> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the context is open; `event` may be written by the call. The descriptor is
        // non-blocking.
        let ret =
            unsafe { verb!(self.context.provider, ibv_get_async_event(self.context.as_ptr(), event.as_mut_ptr())) };
        match Errno::of_return(ret) {
            None => {}
            Some(errno) if errno.raw() == libc::EAGAIN || errno.raw() == libc::EINTR => return Ok(None),
            // The kernel has closed its end of the queue, as it does once the device is gone. If
            // the event for that was lost for want of memory, this one replaces it.
            Some(errno) if errno.raw() == libc::EIO && !self.context.is_gone() => {
                self.context.set_gone();
                return Ok(Some(AsyncEvent { kind: AsyncEventKind::DeviceFatal, source: AsyncEventSource::Device }));
            }
            Some(errno) => return Err(VerbError::new("ibv_get_async_event", &self.context.name, errno)),
        }
        // SAFETY: the call succeeded, so `event` is one that this context delivered and that is not
        // acknowledged.
        let value = unsafe { AsyncEvent::read(event.as_ptr()) };
        // SAFETY: as above; acknowledged once.
        unsafe { verb!(self.context.provider, ibv_ack_async_event(event.as_mut_ptr())) };
        if value.kind == AsyncEventKind::DeviceFatal {
            self.context.set_gone();
        }
        Ok(Some(value))
    }
}

/// The device's folder in sysfs that removal deletes first, before it waits for users.
fn listed_at(context: &ContextInner) -> Option<PathBuf> {
    if context.provider != Provider::Kernel {
        return None;
    }
    // SAFETY: the context is open and keeps its device; `dev_path` is a NUL-terminated string in it
    // that is not written after the device was listed (libibverbs/verbs.h).
    let path = unsafe { CStr::from_ptr((&raw const (*(*context.as_ptr()).device).dev_path).cast()) };
    Some(PathBuf::from(OsStr::from_bytes(path.to_bytes()))).filter(|path| path.is_absolute())
}

impl AsFd for AsyncEvents {
    /// Readable when an event is pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.context.async_fd()
    }
}

/// One asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The kind of event.
    pub kind: AsyncEventKind,
    /// The object concerned.
    pub source: AsyncEventSource,
}

/// The object of an event.
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
    /// The device as a whole, or an object that this crate does not create.
    Device,
}

impl fmt::Display for AsyncEventSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AsyncEventSource::Qp(qpn) => write!(f, "QP {qpn:#x}"),
            AsyncEventSource::Cq(id) => write!(f, "CQ {id}"),
            AsyncEventSource::Srq(id) => write!(f, "SRQ {id}"),
            AsyncEventSource::Port(port) => write!(f, "port {port}"),
            AsyncEventSource::Device => f.write_str("device"),
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $c_name:literal;)*) => {
        /// The kind of event (`enum ibv_event_type`). Displayed by its name in verbs.h, e.g.
        /// `IBV_EVENT_PORT_ERR`.
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

            /// The name in verbs.h.
            pub fn name(self) -> &'static str {
                match self {
                    $(AsyncEventKind::$name => concat!("IBV_EVENT_", $c_name),)*
                    AsyncEventKind::Unknown(_) => "an event that verbs.h does not name",
                }
            }
        }
    };
}

impl fmt::Display for AsyncEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AsyncEventKind::Unknown(raw) => write!(f, "event type {raw}"),
            known => f.write_str(known.name()),
        }
    }
}

kinds! {
    /// The CQ overran: completions are lost.
    CqErr = 0, "CQ_ERR";
    /// The QP failed and went to ERR.
    QpFatal = 1, "QP_FATAL";
    /// An invalid request came in; the QP went to ERR.
    QpReqErr = 2, "QP_REQ_ERR";
    /// A request came in that the access flags forbid; the QP went to ERR.
    QpAccessErr = 3, "QP_ACCESS_ERR";
    /// A message came in while the QP was in RTR: the peer is in RTS.
    CommEst = 4, "COMM_EST";
    /// The SQ is drained, after SQD.
    SqDrained = 5, "SQ_DRAINED";
    /// The connection moved to the alternate path.
    PathMig = 6, "PATH_MIG";
    /// The connection could not move to the alternate path.
    PathMigErr = 7, "PATH_MIG_ERR";
    /// The device failed.
    DeviceFatal = 8, "DEVICE_FATAL";
    /// The port's link is up.
    PortActive = 9, "PORT_ACTIVE";
    /// The port's link is down.
    PortErr = 10, "PORT_ERR";
    /// The port's LID changed.
    LidChange = 11, "LID_CHANGE";
    /// The P_Key table changed.
    PkeyChange = 12, "PKEY_CHANGE";
    /// The subnet manager changed.
    SmChange = 13, "SM_CHANGE";
    /// The SRQ failed.
    SrqErr = 14, "SRQ_ERR";
    /// The SRQ fell below its limit.
    SrqLimitReached = 15, "SRQ_LIMIT_REACHED";
    /// A QP in ERR has taken its last receive from its SRQ.
    QpLastWqeReached = 16, "QP_LAST_WQE_REACHED";
    /// The subnet manager asks clients to register again.
    ClientReregister = 17, "CLIENT_REREGISTER";
    /// The GID table changed.
    GidChange = 18, "GID_CHANGE";
    /// A work queue failed.
    WqFatal = 19, "WQ_FATAL";
}

impl AsyncEvent {
    /// # Safety
    /// `event` was filled by ibv_get_async_event and is not acknowledged yet: its object is alive.
    unsafe fn read(event: *const ibv_async_event) -> AsyncEvent {
        // SAFETY: the type is a 32-bit enum in C; read as an integer, any value is valid. The union
        // is 8 bytes, zeroed before.
        let (raw, element) = unsafe { ((&raw const (*event).event_type).cast::<u32>().read(), &(*event).element) };
        let kind = AsyncEventKind::from_raw(raw);
        // SAFETY: ibv_get_async_event(3) says which member each type fills; the objects are alive
        // until acknowledged.
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
        assert_eq!(AsyncEventKind::Unknown(4711).to_string(), "event type 4711");
    }

    #[test]
    fn events_have_the_names_of_the_header() {
        // ibv_event_type_str(3) returns sentences, so the reference is the header itself: rdma-sys'
        // constants.
        use rdma_sys::ibv_event_type as header;
        for (raw, name) in [
            (header::IBV_EVENT_CQ_ERR as u32, "IBV_EVENT_CQ_ERR"),
            (header::IBV_EVENT_QP_ACCESS_ERR as u32, "IBV_EVENT_QP_ACCESS_ERR"),
            (header::IBV_EVENT_SQ_DRAINED as u32, "IBV_EVENT_SQ_DRAINED"),
            (header::IBV_EVENT_DEVICE_FATAL as u32, "IBV_EVENT_DEVICE_FATAL"),
            (header::IBV_EVENT_PORT_ACTIVE as u32, "IBV_EVENT_PORT_ACTIVE"),
            (header::IBV_EVENT_PORT_ERR as u32, "IBV_EVENT_PORT_ERR"),
            (header::IBV_EVENT_SRQ_LIMIT_REACHED as u32, "IBV_EVENT_SRQ_LIMIT_REACHED"),
            (header::IBV_EVENT_QP_LAST_WQE_REACHED as u32, "IBV_EVENT_QP_LAST_WQE_REACHED"),
            (header::IBV_EVENT_WQ_FATAL as u32, "IBV_EVENT_WQ_FATAL"),
        ] {
            assert_eq!(AsyncEventKind::from_raw(raw).to_string(), name);
        }
    }
}
