//! The trait through which the data path reaches queue pairs of other processes. Its implementation
//! (`wire`) is in a layer above the data path.
//!
//! Guarantees: a queue pair is carried from the move to RTR until it is reset or destroyed, and its
//! fast paths are closed as long: `Sq::is_carried`.

use crate::data_path::errors::Errors;
use crate::data_path::poster::{Poster, Refused};
use crate::objects::cq::Cq;
use crate::objects::device::{DEVICES, Device};
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::queues::wr::SendWr;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Carries a device's packets to other processes.
pub(crate) trait Carrier: Sync {
    /// INIT to RTR: returns false if the queue pair's path doesn't lead to another process. Before
    /// anything is taken in for the queue pair, it is marked as not established
    /// (`arrival::establish`).
    fn connect(&self, qp: &Qp) -> bool;

    /// RTR to RTS.
    fn start(&self, qp: &Qp);

    /// The queue pair's attributes were changed.
    fn change(&self, qp: &Qp);

    /// RTS to SQD: begun work requests are finished, the rest is held. Returns whether all are
    /// finished; if not, the carrier reports it later (`progress::drained`).
    fn hold(&self, qp: &Qp) -> bool;

    /// SQD or SQE to RTS.
    fn send_again(&self, qp: &Qp);

    /// To ERR: flushes the work requests posted to the queue pair, and takes in nothing more.
    fn fail(&self, qp: &Qp);

    /// To RESET, or destroyed.
    fn remove(&self, qp: &Qp);

    /// Posts the list.
    fn post<'a>(&self, poster: Poster<'_>, list: SendWr<'a>, errors: &mut Errors) -> Result<(), Refused<'a>>;

    /// Sends a datagram of UD to another process, if its path may lead there: at once, or with
    /// later ones at [`send_datagrams`](Self::send_datagrams).
    fn add_datagram(&self, datagram: &Outgoing<'_>);

    /// Sends the datagrams added since.
    fn send_datagrams(&self);

    /// Counts one more member of a group, whose messages from other processes are to come in;
    /// returns an `errno` if they can't.
    fn join(&self, gid: &[u8; 16]) -> Result<(), c_int>;

    /// Counts one member less.
    fn leave(&self, gid: &[u8; 16]);

    /// The owner of a completion queue polls.
    fn poll(&self, pinned: Pinned<'_>, errors: &mut Errors);

    /// The owner of a completion queue has armed it, and may sleep after one more poll.
    fn owner_armed(&self);
}

/// A datagram of UD on its way to other processes.
pub(crate) struct Outgoing<'a> {
    /// The sender's number.
    pub(crate) from: u32,
    /// The receiver's number, or that of all members of a group.
    pub(crate) to: u32,
    pub(crate) qkey: u32,
    /// Host order.
    pub(crate) immediate: Option<u32>,
    pub(crate) solicited: bool,
    /// The destination, and which of the device's own GIDs is the source.
    pub(crate) gid: [u8; 16],
    pub(crate) source_gid: [u8; 16],
    pub(crate) traffic_class: u8,
    pub(crate) payload: &'a [u8],
}

static CARRIERS: [OnceLock<&'static dyn Carrier>; DEVICES] = [const { OnceLock::new() }; DEVICES];

/// Gives the device its carrier; only the first call counts.
pub(crate) fn register(device: &Device, carrier: &'static dyn Carrier) {
    let _ = CARRIERS[device.index].set(carrier);
}

/// The device's carrier, if it has one.
fn of(device: &Device) -> Option<&'static dyn Carrier> {
    CARRIERS[device.index].get().copied()
}

/// The queue pair's carrier, if it is carried.
pub(crate) fn of_qp(qp: &Qp) -> Option<&'static dyn Carrier> {
    if qp.sq.is_carried() { of(qp.device()) } else { None }
}

/// INIT to RTR: whether the queue pair's peer is in another process.
pub(crate) fn connect(qp: &Qp) -> bool {
    let is_carried = of(qp.device()).is_some_and(|carrier| carrier.connect(qp));
    if is_carried {
        count(qp, true);
    }
    is_carried
}

/// The carrier for a UD queue pair's sends, if its device has one.
pub(crate) fn of_datagrams(qp: &Qp) -> Option<&'static dyn Carrier> {
    of(qp.device())
}

/// A UD queue pair, INIT to RTR: pollers of its queues look for datagrams from other processes.
pub(crate) fn hear(qp: &Qp) {
    if of(qp.device()).is_some() {
        // Relaxed: changed under the control lock.
        qp.hears_carrier.store(true, Ordering::Relaxed);
        count_queues(qp, true);
    }
}

/// To RESET, or destroyed.
pub(crate) fn disconnect(qp: &Qp) {
    // Relaxed: as in `hear`.
    if qp.hears_carrier.swap(false, Ordering::Relaxed) {
        count_queues(qp, false);
    }
    if let Some(carrier) = of_qp(qp) {
        carrier.remove(qp);
        count(qp, false);
    }
}

fn count(qp: &Qp, is_carried: bool) {
    qp.sq.set_carried(is_carried);
    count_queues(qp, is_carried);
}

fn count_queues(qp: &Qp, is_carried: bool) {
    qp.send_cq().stalled.count_carried(is_carried);
    qp.recv_cq().stalled.count_carried(is_carried);
}

/// Called when the owner of a completion queue polls and something needs attention.
pub(crate) fn poll(cq: &Cq, pinned: Pinned<'_>, errors: &mut Errors) {
    if let Some(carrier) = of_cq(cq) {
        carrier.poll(pinned, errors);
    }
}

/// Called when the owner of a completion queue has armed it.
pub(crate) fn owner_armed(cq: &Cq) {
    if cq.stalled.any()
        && let Some(carrier) = of_cq(cq)
    {
        carrier.owner_armed();
    }
}

/// The carrier of the completion queue's queue pairs, if some are carried.
fn of_cq(cq: &Cq) -> Option<&'static dyn Carrier> {
    if cq.stalled.any_carried() { of(cq.context().device) } else { None }
}
