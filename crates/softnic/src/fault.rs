//! Injects faults that a real device shows now and then, for tests of a program's recovery.
//!
//! Guarantees: each fault shows the events, states and answers of a real device, and frees no
//! object that a program holds. Safe to call at any time, by any thread that is inside no other
//! call of this crate.

use std::sync::atomic::Ordering;

use crate::data_path::completion;
use crate::data_path::errors::Errors;
use crate::data_path::flush;
use crate::objects::context;
use crate::objects::device::DEVICES;
use crate::objects::fabric;
use crate::objects::guards;
use crate::objects::qp_table::State;
use crate::queues::accept_from;

/// Removes the device, and at once puts in another of the same name.
///
/// Every context of it gets `IBV_EVENT_DEVICE_FATAL`. None of their objects works any more: queue
/// pairs are in ERR, and work requests posted to them complete no more. The remaining objects can
/// only be destroyed; every other control verb returns `EIO`. Destroying succeeds, as it does with
/// libibverbs where RDMAV_ALLOW_DISASSOC_DESTROY is set (ibv_open_device(3)). Opening the device
/// after this call opens the new one. Returns the number of contexts that lost their device.
pub fn remove_device(name: &str) -> usize {
    context::remove(name, || {
        let control = fabric::control();
        let mut errors = Errors::new();
        control.for_each(|qp| {
            if qp.context().is_removed() {
                errors.fail(qp);
            }
        });
        // A thread that was in the middle of a send has left after this. Nothing is flushed: the
        // device that would do it is gone.
        guards::quiesce(guards::Taken::Device);
        drop(errors);
    })
}

/// Breaks a queue pair: `IBV_EVENT_QP_FATAL`, and it is in ERR with everything flushed. Returns
/// false if no queue pair has that number.
pub fn break_queue_pair(qpn: u32) -> bool {
    let control = fabric::control();
    let Some(qp) = fabric::lookup(control.pinned(), qpn) else { return false };
    let mut errors = Errors::new();
    errors.fail_fatally(qp);
    flush::finish_under(errors, &control);
    true
}

/// Overruns the completion queue of a queue pair's receives: `IBV_EVENT_CQ_ERR`, and the queue
/// can't be polled any more once its remaining completions were taken. Returns false if no queue
/// pair has that number.
pub fn overrun_completions(qpn: u32) -> bool {
    // The lock keeps the queue pair alive, and that its completion queue.
    let control = fabric::control();
    let Some(qp) = fabric::lookup(control.pinned(), qpn) else { return false };
    completion::overrun(qp.recv_cq());
    true
}

/// Breaks the path by which a connection sends, like a pulled cable: its messages arrive nowhere
/// until it migrates to an alternate path or is given another one. Returns false if no connection
/// has that number.
pub fn lose_path(qpn: u32) -> bool {
    // The lock keeps the queue pair alive.
    let control = fabric::control();
    let Some(qp) = fabric::lookup(control.pinned(), qpn).filter(|qp| !qp.is_datagram()) else { return false };
    qp.sq.reroute(accept_from(qpn, DEVICES));
    true
}

/// The state of the queue pair of that number, `None` if there is none: for a caller that stands in
/// for the device's data path, and flushes as the device would.
pub fn state_of(qpn: u32) -> Option<State> {
    // The lock keeps the queue pair alive.
    let control = fabric::control();
    fabric::lookup(control.pinned(), qpn).map(|qp| qp.state())
}

/// Gives a datagram queue pair another Q_Key, as if its two ends had been configured differently:
/// datagrams with the old key are lost, and neither end is told. Returns false if no datagram queue
/// pair has that number.
pub fn change_qkey(qpn: u32, qkey: u32) -> bool {
    // The lock keeps the queue pair alive.
    let control = fabric::control();
    let Some(qp) = fabric::lookup(control.pinned(), qpn).filter(|qp| qp.is_datagram()) else { return false };
    // Relaxed: a lone number, as where the control path sets it.
    qp.inbound.qkey.store(qkey, Ordering::Relaxed);
    true
}
