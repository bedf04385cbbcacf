//! Faults to order: what happens to a real device now and then, for tests of how a program gets
//! over it.
//!
//! What it guarantees: each fault shows in the same events, states and answers as on a real device,
//! and nothing that a program holds is freed by it. Safe to call at any time, by any thread that is
//! inside no other call of this crate.

use std::sync::atomic::Ordering;

use crate::data_path::completion;
use crate::data_path::errors::Errors;
use crate::data_path::flush;
use crate::objects::context;
use crate::objects::device::DEVICES;
use crate::objects::fabric;
use crate::objects::guards;
use crate::objects::qp_table::State;
use crate::queues::inbound_filter::accept_from;

/// Pulls the device out, and at once puts in another of the same name.
///
/// Every context of it gets `IBV_EVENT_DEVICE_FATAL`. No object of theirs works any more: queue
/// pairs are in ERR, and what was posted to them completes no more; what isn't destroyed yet can
/// only be destroyed, every other control verb gives `EIO`. Destroying succeeds, as it does with
/// libibverbs where RDMAV_ALLOW_DISASSOC_DESTROY is set (ibv_open_device(3)). Who opens the device
/// after this call has the new one. Gives how many contexts lost theirs.
pub fn remove_device(name: &str) -> usize {
    context::remove(name, || {
        let control = fabric::control();
        let mut errors = Errors::new();
        control.for_each(|qp| {
            if qp.context().is_removed() {
                errors.fail(qp);
            }
        });
        // A thread that was in the middle of a send has left after this. Nothing is flushed: nobody
        // is there to do it.
        guards::quiesce(guards::Taken::Device);
        drop(errors);
    })
}

/// Breaks a queue pair: `IBV_EVENT_QP_FATAL`, and it is in ERR with everything flushed. False if
/// there is no queue pair of that number.
pub fn break_queue_pair(qpn: u32) -> bool {
    let control = fabric::control();
    let Some(qp) = fabric::lookup(control.pinned(), qpn) else { return false };
    let mut errors = Errors::new();
    errors.fail_fatally(qp);
    flush::finish_under(errors, &control);
    true
}

/// Has the completion queue of a queue pair's receives overrun: `IBV_EVENT_CQ_ERR`, and it can't be
/// polled any more once what it holds was taken. False if there is no queue pair of that number.
pub fn overrun_completions(qpn: u32) -> bool {
    // The lock keeps the queue pair, which keeps its completion queue.
    let control = fabric::control();
    let Some(qp) = fabric::lookup(control.pinned(), qpn) else { return false };
    completion::overrun(qp.recv_cq());
    true
}

/// Breaks the path by which a connection sends, as a cable that is pulled does: its messages arrive
/// nowhere, until it migrates to an alternate path or is given another one. False if no connection
/// has that number.
pub fn lose_path(qpn: u32) -> bool {
    // The lock keeps the queue pair.
    let control = fabric::control();
    let Some(qp) = fabric::lookup(control.pinned(), qpn).filter(|qp| !qp.is_datagram()) else { return false };
    qp.sq.reroute(accept_from(qpn, DEVICES));
    true
}

/// The state of the queue pair of that number, `None` if there is none: for who stands in for the
/// device's data path, and flushes as the device would.
pub fn state_of(qpn: u32) -> Option<State> {
    // The lock keeps the queue pair.
    let control = fabric::control();
    fabric::lookup(control.pinned(), qpn).map(|qp| qp.state())
}

/// Gives a datagram queue pair another Q_Key, as where two ends were told different ones: what
/// comes with the old one is lost, and neither end hears of it. False if no datagram queue pair has
/// that number.
pub fn change_qkey(qpn: u32, qkey: u32) -> bool {
    // The lock keeps the queue pair.
    let control = fabric::control();
    let Some(qp) = fabric::lookup(control.pinned(), qpn).filter(|qp| qp.is_datagram()) else { return false };
    // Relaxed: a number that stands for itself, as where the control path sets it.
    qp.inbound.qkey.store(qkey, Ordering::Relaxed);
    true
}
