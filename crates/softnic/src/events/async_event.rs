//! Asynchronous events of objects, which no work completion can report.
//!
//! Guarantees: events come in order through `ibv_get_async_event(3)`. An object isn't destroyed
//! before its handed-out events are acknowledged, and no event of a destroyed object is handed out.

use crate::events::acknowledged::{Fields, HandedOut};
use crate::events::event_queue::EventQueue;
use rdma_sys::*;
use std::ffi::{c_int, c_uint, c_void};

/// Values of `enum ibv_event_type` that this device raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    CqErr = 0,
    QpFatal = 1,
    QpReqErr = 2,
    QpAccessErr = 3,
    CommEst = 4,
    SqDrained = 5,
    PathMig = 6,
    PathMigErr = 7,
    DeviceFatal = 8,
    SrqLimitReached = 15,
    QpLastWqeReached = 16,
}

/// An object that can have events.
pub(crate) trait Subject {
    fn handed_out(&self) -> &HandedOut;
    fn acks(&self) -> Fields<'_>;
}

/// `object` and `handed_out` are null for an event of the device.
#[derive(Clone, Copy, Debug)]
struct Event {
    object: *const c_void,
    handed_out: *const HandedOut,
    kind: Kind,
}

// SAFETY: `object` is handed to the user, and here only compared; `handed_out` is dereferenced
// under the queue's lock, under which `forget` takes an object's events out before the object goes.
unsafe impl Send for Event {}

/// A context's events.
#[derive(Debug)]
pub(crate) struct AsyncEvents(EventQueue<Event>);

impl AsyncEvents {
    pub(crate) fn new() -> Result<Self, c_int> {
        EventQueue::new().map(AsyncEvents)
    }

    pub(crate) fn fd(&self) -> c_int {
        self.0.fd()
    }

    /// Raises an event of an object. The event carries the program's pointer to the object.
    pub(crate) fn raise<T: Subject>(&self, subject: &T, kind: Kind) {
        self.0.push(Event { object: std::ptr::from_ref(subject).cast(), handed_out: subject.handed_out(), kind });
    }

    pub(crate) fn raise_device(&self, kind: Kind) {
        self.0.push(Event { object: std::ptr::null(), handed_out: std::ptr::null(), kind });
    }

    /// Before the object is destroyed: drops its events and waits for acknowledgements. The caller
    /// raises no more.
    pub(crate) fn forget<T: Subject>(&self, subject: &T) {
        let object = std::ptr::from_ref(subject).cast::<c_void>();
        let handed_out = self.0.retain(|event| event.object != object, || subject.handed_out().value());
        subject.acks().wait(handed_out);
    }

    /// `ibv_get_async_event(3)`; or an `errno`.
    pub(crate) fn next(&self) -> Result<(ibv_async_event_element_t, c_uint), c_int> {
        let event = self.0.next(|event| {
            // SAFETY: `forget` takes an object's events out before the object goes, under the lock
            // that is held here.
            if let Some(handed_out) = unsafe { event.handed_out.as_ref() } {
                handed_out.count();
            }
            event
        })?;
        // All pointers of the union are in one place, so this one is the pointer of the object's
        // type.
        Ok((ibv_async_event_element_t { cq: event.object.cast_mut().cast() }, event.kind as c_uint))
    }
}

/// `ibv_ack_async_event(3)`.
///
/// # Safety
/// `element` and `kind` came from [`AsyncEvents::next`], and the object still exists.
pub(crate) unsafe fn acknowledge(element: ibv_async_event_element_t, kind: c_uint) {
    const CQ_ERR: c_uint = Kind::CqErr as c_uint;
    const SRQ_LIMIT: c_uint = Kind::SrqLimitReached as c_uint;
    const QP_KINDS: [Kind; 8] = [
        Kind::QpFatal,
        Kind::QpReqErr,
        Kind::QpAccessErr,
        Kind::CommEst,
        Kind::SqDrained,
        Kind::PathMig,
        Kind::PathMigErr,
        Kind::QpLastWqeReached,
    ];
    // SAFETY: `raise` gets the object and its kind together, so the kind selects the pointer; the
    // object waits for this call (`forget`).
    let fields = unsafe {
        match kind {
            CQ_ERR => Fields::cq(element.cq),
            SRQ_LIMIT => Fields::srq(element.srq),
            kind if QP_KINDS.iter().any(|known| *known as c_uint == kind) => Fields::qp(element.qp),
            _ => return,
        }
    };
    fields.acknowledge(1);
}
