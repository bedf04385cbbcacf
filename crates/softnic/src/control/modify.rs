//! `ibv_modify_qp(3)`: transitions between states, by the table, and their effects.
//!
//! Guarantees: a refused modification changes nothing. A successful one is complete when it
//! returns: after a move to RESET or ERR no thread works for the queue pair any more, and (ERR)
//! everything posted was flushed. An error on a data path at the same time wins: then the move is
//! made from the error state, or refused.

use crate::data_path::carrier;
use crate::data_path::flush;
use crate::data_path::migration;
use crate::data_path::progress;
use crate::data_path::psn;
use crate::key_table;
use crate::objects::device::{self, Device, RD_ATOMIC_MAX};
use crate::objects::fabric;
use crate::objects::guards;
use crate::objects::guards::Taken;
use crate::objects::qp::{Attributes, Qp};
use crate::objects::qp_table::{self, AttrMask, State};
use crate::queues::{ACCEPT_DATAGRAMS, AWAITS_FIRST, NOT_ESTABLISHED, SENDS_FIRST, accept_from};
use rdma_sys::*;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use verbline_sync::credit::{FLUSHING, WAITING};

/// `ibv_modify_qp(3)`. `EINVAL` for an invalid transition, mask or value. A mask of 0 is accepted
/// in every state.
///
/// With `IBV_QP_CUR_STATE` the table is asked for the transition from the state that the caller
/// assumes, as mlx5_ib and rdma_rxe do. The queue pair itself moves from its actual state, and that
/// transition must exist, too: a card's firmware refuses the rest as well.
pub(crate) fn modify(this: &Qp, attr: &ibv_qp_attr, mask: c_int) -> Result<(), c_int> {
    let mask = AttrMask(mask as u32);
    if mask.is_empty() {
        return Ok(());
    }
    let mut control = fabric::control();
    loop {
        let from = this.state();
        let named = |bit, raw| if mask.contains(bit) { State::from_raw(raw) } else { Some(from) };
        let (Some(to), Some(assumed)) =
            (named(AttrMask::STATE, attr.qp_state), named(AttrMask::CUR_STATE, attr.cur_qp_state))
        else {
            return Err(libc::EINVAL);
        };
        let goal = if mask.contains(AttrMask::STATE) { to } else { assumed };
        let refused = qp_table::check(this.transport, assumed, goal, mask).is_err()
            || (from != to && qp_table::transition(from, to).is_none())
            || !is_valid(this, attr, mask)
            || (mask.contains(AttrMask::AV) && is_unreachable(this, &attr.ah_attr, &control));
        if refused {
            return Err(libc::EINVAL);
        }
        // A data path may have moved it to an error state since: then look again.
        if this.leave_for(from, to) {
            let asks_for = |state| mask.contains(AttrMask::PATH_MIG_STATE) && attr.path_mig_state == state;
            // Does nothing for a connection that is not armed.
            if asks_for(ibv_mig_state::IBV_MIG_MIGRATED) {
                migration::migrate(this, control.pinned());
            }
            if (from, to) == (State::Rts, State::Sqd) {
                // Each move to SQD must request the event anew.
                this.attributes().0.en_sqd_async_notify = 0;
            }
            store(this, attr, mask);
            if asks_for(ibv_mig_state::IBV_MIG_REARM) {
                migration::arm(this, control.pinned());
            }
            if let Some(carrier) = carrier::of_qp(this) {
                carrier.change(this);
            }
            enter(this, from, to, &mut control);
            this.show(to);
            return Ok(());
        }
    }
}

/// Whether the values of the masked attributes are valid.
fn is_valid(qp: &Qp, attr: &ibv_qp_attr, mask: AttrMask) -> bool {
    let device = qp.device();
    let ok = |bit: AttrMask, holds: bool| !mask.contains(bit) || holds;
    let rights = key_table::LOCAL_WRITE
        | key_table::REMOTE_WRITE
        | key_table::REMOTE_READ
        | key_table::REMOTE_ATOMIC
        | key_table::MW_BIND;
    ok(AttrMask::PORT, attr.port_num == device::PORT)
        && ok(AttrMask::PKEY_INDEX, attr.pkey_index == 0)
        && ok(AttrMask::ACCESS_FLAGS, attr.qp_access_flags & !rights == 0)
        && ok(AttrMask::PATH_MTU, (ibv_mtu::IBV_MTU_256..=ibv_mtu::IBV_MTU_4096).contains(&attr.path_mtu))
        && ok(AttrMask::AV, is_valid_path(device, &attr.ah_attr))
        && ok(AttrMask::DEST_QPN, attr.dest_qp_num <= fabric::QPN_MASK)
        && ok(AttrMask::RQ_PSN, attr.rq_psn <= fabric::QPN_MASK)
        && ok(AttrMask::SQ_PSN, attr.sq_psn <= fabric::QPN_MASK)
        && ok(AttrMask::TIMEOUT, attr.timeout < 32)
        && ok(AttrMask::RETRY_CNT, attr.retry_cnt < 8)
        && ok(AttrMask::RNR_RETRY, attr.rnr_retry < 8)
        && ok(AttrMask::MIN_RNR_TIMER, attr.min_rnr_timer < 32)
        && ok(AttrMask::MAX_QP_RD_ATOMIC, attr.max_rd_atomic <= RD_ATOMIC_MAX)
        && ok(AttrMask::MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic <= RD_ATOMIC_MAX)
        && ok(AttrMask::ALT_PATH, is_valid_alternate(device, attr))
        && ok(AttrMask::PATH_MIG_STATE, is_valid_migration(qp, attr, mask))
}

fn is_valid_alternate(device: &Device, attr: &ibv_qp_attr) -> bool {
    device.migrates_paths()
        && attr.alt_port_num == device::PORT
        && attr.alt_pkey_index == 0
        && attr.alt_timeout < 32
        && is_valid_path(device, &attr.alt_ah_attr)
}

/// Only the device moves it to ARMED, from REARM; REARM needs an alternate path.
fn is_valid_migration(qp: &Qp, attr: &ibv_qp_attr, mask: AttrMask) -> bool {
    match attr.path_mig_state {
        ibv_mig_state::IBV_MIG_MIGRATED => true,
        ibv_mig_state::IBV_MIG_REARM => {
            qp.device().migrates_paths()
                && (mask.contains(AttrMask::ALT_PATH) || migration::has_alternate(&qp.attributes().0))
        }
        _ => false,
    }
}

fn is_valid_path(device: &Device, path: &ibv_ah_attr) -> bool {
    path.port_num == device::PORT && (path.is_global == 0 || device.gid(usize::from(path.grh.sgid_index)).is_some())
}

/// Whether the path begins at the device's address, but the queue pair is older than that: nothing
/// would come back.
fn is_unreachable(qp: &Qp, path: &ibv_ah_attr, control: &fabric::Control) -> bool {
    let is_by_address = path.is_global != 0 && usize::from(path.grh.sgid_index) == device::ADDRESS_GID;
    is_by_address && !control.is_of_slice(qp.device().index, qp.qpn)
}

/// Stores the masked attributes, for queries and for the data path.
fn store(qp: &Qp, attr: &ibv_qp_attr, mask: AttrMask) {
    let mut attributes = qp.attributes();
    let known = &mut attributes.0;
    macro_rules! keep {
        ($($bit:ident: $($field:ident),*;)*) => {
            $(if mask.contains(AttrMask::$bit) { $(known.$field = attr.$field;)* })*
        };
    }
    keep! {
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: ah_attr;
        ALT_PATH: alt_ah_attr, alt_port_num, alt_pkey_index, alt_timeout;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        SQ_PSN: sq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        MIN_RNR_TIMER: min_rnr_timer;
        DEST_QPN: dest_qp_num;
        PATH_MIG_STATE: path_mig_state;
        RATE_LIMIT: rate_limit;
    }
    // Relaxed, all: numbers that stand alone; the state or `accept` that follows orders them for
    // the first use.
    qp.inbound.access.store(known.qp_access_flags, Ordering::Relaxed);
    qp.inbound.qkey.store(known.qkey, Ordering::Relaxed);
    qp.inbound.min_rnr_timer.store(u32::from(known.min_rnr_timer), Ordering::Relaxed);
    qp.inbound.max_dest_rd_atomic.store(u32::from(known.max_dest_rd_atomic), Ordering::Relaxed);
    qp.sq.timeout.store(u32::from(known.timeout), Ordering::Relaxed);
    qp.sq.retry_cnt.store(u32::from(known.retry_cnt), Ordering::Relaxed);
    qp.sq.rnr_retry.store(u32::from(known.rnr_retry), Ordering::Relaxed);
    qp.sq.max_rd_atomic.store(u32::from(known.max_rd_atomic), Ordering::Relaxed);
    qp.inbound.rq_psn.store(known.rq_psn, Ordering::Relaxed);
    qp.sq.psn.store(known.sq_psn, Ordering::Relaxed);
}

/// Carries out the transition's effects; the state is `to` already.
fn enter(qp: &Qp, from: State, to: State, control: &mut fabric::Control) {
    match (from, to) {
        // The carrier lets messages in.
        (State::Init, State::Rtr) if carrier::connect(qp) => {}
        (_, State::Reset) => reset(qp),
        (_, State::Err) => flush::everything(qp, control.pinned()),
        (State::Init, State::Rtr) => receive(qp, control),
        (State::Rtr, State::Rts) => {
            // AcqRel: the connection needs no event any more; pairs with the sender's.
            qp.inbound.accept.fetch_and(!NOT_ESTABLISHED, Ordering::AcqRel);
            if let Some(carrier) = carrier::of_qp(qp) {
                carrier.start(qp);
            }
            qp.sq.open();
        }
        (State::Sqd | State::Sqe, State::Rts) => {
            {
                let mut pending = qp.sq.pending.lock();
                pending.draining = false;
                // Under the lock: a work request that stops the queue closes it under the lock as
                // well.
                if qp.state() == State::Rts {
                    qp.sq.open();
                }
            }
            if let Some(carrier) = carrier::of_qp(qp) {
                carrier.send_again(qp);
            }
            progress::progress_under(control, &[qp.qpn]);
        }
        (State::Rts, State::Sqd) => {
            drain(qp);
            // A caller that assumed SQD may have given another path.
            reroute(qp);
        }
        (State::Sqd, State::Sqd) => reroute(qp),
        _ => {}
    }
}

/// Into RTR: lets messages in, and starts a peer that waits for that.
fn receive(qp: &Qp, control: &mut fabric::Control) {
    let destination = qp.attributes().0.dest_qp_num;
    let accept = if qp.is_datagram() {
        carrier::hear(qp);
        ACCEPT_DATAGRAMS
    } else {
        qp.sq.connect(destination, path(qp) | psn::where_compared(qp.transport, SENDS_FIRST));
        let first = NOT_ESTABLISHED | psn::where_compared(qp.transport, AWAITS_FIRST);
        accept_from(destination, qp.device().index) | first
    };
    // Release pairs with the Acquire of senders: everything above is before.
    qp.inbound.accept.store(accept, Ordering::Release);
    if !qp.is_datagram() {
        // A sender that doesn't find us keeps its work request before it looks for the last time
        // (`progress::begin`): either that look sees `accept`, or we see the work request.
        verbline_ring::fence::heavy();
        progress::progress_under(control, &[qp.sq.destination()]);
    }
}

/// Switches to another path to the peer.
fn reroute(qp: &Qp) {
    if !qp.is_datagram() {
        qp.sq.reroute(path(qp));
    }
}

/// The value that the peer's `Inbound::accept` has if the path leads to it.
fn path(qp: &Qp) -> u32 {
    migration::expected_by(qp, &qp.attributes().0.ah_attr)
}

/// RTS to SQD: begun work requests are finished, the rest is held.
fn drain(qp: &Qp) {
    qp.sq.close();
    guards::quiesce(Taken::Qp(qp.qpn));
    let notify = qp.attributes().0.en_sqd_async_notify != 0;
    let carrier = carrier::of_qp(qp);
    let mut pending = qp.sq.pending.lock();
    (pending.draining, pending.notify_drained) = (true, notify);
    if carrier.is_none() && pending.is_empty() {
        progress::drained(qp, &mut pending);
    }
    drop(pending);
    // Marked before the carrier is asked, since it may report the end meanwhile.
    if carrier.is_some_and(|carrier| carrier.hold(qp)) {
        progress::drained(qp, &mut qp.sq.pending.lock());
    }
}

/// Lets nothing in or out any more. The caller holds the control lock and is in no guard.
pub(crate) fn stop(qp: &Qp) {
    carrier::disconnect(qp);
    // Release pairs with the Acquire of senders.
    qp.inbound.accept.store(0, Ordering::Release);
    qp.sq.close();
    guards::quiesce(Taken::Qp(qp.qpn));
}

/// Into RESET: as new; earlier completions aren't given out any more.
fn reset(qp: &Qp) {
    stop(qp);
    progress::forget(qp);
    let old_tag = qp.tag();
    qp.new_tag();
    // A poll that began with the old tag is over after this: from here on nobody counts the old
    // completions.
    guards::quiesce(Taken::Qp(qp.qpn));
    if let Some(srq) = qp.srq() {
        flush::give_back(srq, qp, old_tag);
    }
    qp.sq.reset();
    qp.rq.reset();
    qp.inbound.attention.lower(FLUSHING | WAITING);
    *qp.attributes() = Attributes::default();
    store(qp, &Attributes::default().0, AttrMask::NONE);
}
