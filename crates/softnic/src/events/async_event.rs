//! Asynchronous events: what happened to an object that no work completion can tell.
//!
//! What it guarantees: events come in order through `ibv_get_async_event(3)`; an object isn't destroyed before all of
//! its events that were handed out are acknowledged, and no event of a destroyed object is handed out.

use crate::errno;
use crate::events::acknowledged::Fields;
use crate::events::event_queue::EventQueue;
use crate::objects::context::Context;
use crate::objects::cq::Cq;
use crate::objects::qp::Qp;
use crate::objects::srq::Srq;
use rdma_sys::*;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU32, Ordering};

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
    DeviceFatal = 8,
    SrqLimitReached = 15,
    QpLastWqeReached = 16,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Cq(*const Cq),
    Qp(*const Qp),
    Srq(*const Srq),
    Device,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    element: Element,
    kind: Kind,
}

// SAFETY: the pointers are handed to the user; here they are only compared, and purged before the object goes.
unsafe impl Send for Event {}

/// A context's events.
#[derive(Debug)]
pub(crate) struct AsyncEvents(EventQueue<Event>);

/// How many of an object's events were handed out. Changed under the queue's lock.
#[derive(Debug, Default)]
pub(crate) struct HandedOut(AtomicU32);

impl HandedOut {
    pub(crate) fn count(&self) {
        // Relaxed, here and below: under the queue's lock.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl AsyncEvents {
    pub(crate) fn new() -> Result<Self, c_int> {
        EventQueue::new().map(AsyncEvents)
    }

    pub(crate) fn fd(&self) -> c_int {
        self.0.fd()
    }

    pub(crate) fn raise_cq(&self, cq: &Cq, kind: Kind) {
        self.0.push(Event { element: Element::Cq(cq), kind });
    }

    pub(crate) fn raise_qp(&self, qp: &Qp, kind: Kind) {
        self.0.push(Event { element: Element::Qp(qp), kind });
    }

    pub(crate) fn raise_srq(&self, srq: &Srq, kind: Kind) {
        self.0.push(Event { element: Element::Srq(srq), kind });
    }

    pub(crate) fn raise_device(&self, kind: Kind) {
        self.0.push(Event { element: Element::Device, kind });
    }

    /// Before `cq` is destroyed: drops its events and waits for acknowledgements. Nothing raises more.
    pub(crate) fn forget_cq(&self, cq: &Cq) {
        let handed_out = self.purge(Element::Cq(cq), &cq.async_handed_out);
        // SAFETY: `cq` is alive and initialised.
        unsafe { cq.async_acks().wait(handed_out) };
    }

    /// As `forget_cq`.
    pub(crate) fn forget_qp(&self, qp: &Qp) {
        let handed_out = self.purge(Element::Qp(qp), &qp.async_handed_out);
        // SAFETY: `qp` is alive and initialised.
        unsafe { qp.acks().wait(handed_out) };
    }

    /// As `forget_cq`.
    pub(crate) fn forget_srq(&self, srq: &Srq) {
        let handed_out = self.purge(Element::Srq(srq), &srq.async_handed_out);
        // SAFETY: `srq` is alive and initialised.
        unsafe { srq.acks().wait(handed_out) };
    }

    fn purge(&self, element: Element, handed_out: &HandedOut) -> u32 {
        self.0.retain(|event| event.element != element, || handed_out.value())
    }
}

/// `ibv_get_async_event(3)`.
///
/// # Safety
/// `context` is open, `out` is writable.
pub(crate) unsafe fn next(context: *mut ibv_context, out: *mut ibv_async_event) -> c_int {
    // SAFETY: the caller's.
    let context = unsafe { Context::from_raw(context) };
    let taken = context.events.0.next(|event| {
        // SAFETY: objects purge their events before they go, under the lock that we are called under.
        unsafe {
            match event.element {
                Element::Cq(cq) => (*cq).async_handed_out.count(),
                Element::Qp(qp) => (*qp).async_handed_out.count(),
                Element::Srq(srq) => (*srq).async_handed_out.count(),
                Element::Device => {}
            }
        }
        event
    });
    let event = match taken {
        Ok(event) => event,
        Err(code) => return errno::minus_one(code),
    };
    let element = match event.element {
        Element::Cq(cq) => ibv_async_event_element_t { cq: cq.cast_mut().cast() },
        Element::Qp(qp) => ibv_async_event_element_t { qp: qp.cast_mut().cast() },
        Element::Srq(srq) => ibv_async_event_element_t { srq: srq.cast_mut().cast() },
        // All of the union, so that no field of it is left as it was.
        Element::Device => ibv_async_event_element_t { cq: std::ptr::null_mut() },
    };
    // SAFETY: the caller's. The type is written as the integer that it is in C.
    unsafe {
        (&raw mut (*out).element).write(element);
        (&raw mut (*out).event_type).cast::<c_uint>().write(event.kind as c_uint);
    }
    0
}

/// `ibv_ack_async_event(3)`.
///
/// # Safety
/// `event` came from [`next`], and its object still exists.
pub(crate) unsafe fn acknowledge(event: *mut ibv_async_event) {
    // SAFETY: the caller's. The kind is read as an integer: any value is one.
    let (kind, element) =
        unsafe { ((&raw const (*event).event_type).cast::<c_uint>().read(), &raw const (*event).element) };
    const CQ_ERR: c_uint = Kind::CqErr as c_uint;
    const SRQ_LIMIT: c_uint = Kind::SrqLimitReached as c_uint;
    const QP_KINDS: [Kind; 6] =
        [Kind::QpFatal, Kind::QpReqErr, Kind::QpAccessErr, Kind::CommEst, Kind::SqDrained, Kind::QpLastWqeReached];
    // SAFETY: the kind says which pointer it is; the caller's for the object's life; initialised at creation.
    unsafe {
        let fields: Fields = match kind {
            CQ_ERR => (*(*element).cq.cast::<Cq>()).async_acks(),
            SRQ_LIMIT => (*(*element).srq.cast::<Srq>()).acks(),
            kind if QP_KINDS.iter().any(|known| *known as c_uint == kind) => (*(*element).qp.cast::<Qp>()).acks(),
            _ => return,
        };
        fields.acknowledge(1);
    }
}
