//! What a QP is made of, and making it: as much inline data as the device takes.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::ibv_qp;

use super::QpError;
#[cfg(doc)]
use super::QueuePair;
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::errno::{Errno, VerbError};
use crate::pd::PdInner;
use crate::provider::verb;
use crate::qp_attr::Transport;
use crate::srq::SharedReceiveQueue;
use crate::wr_id::MAX_SLOTS;

/// What a QP is made of.
#[derive(Clone, Debug)]
pub struct QpSpec<'a> {
    /// RC, UC or UD.
    pub transport: Transport,
    /// Where sends complete.
    pub send_cq: &'a CompletionQueue,
    /// Where receives complete.
    pub recv_cq: &'a CompletionQueue,
    /// Sends posted at once, at most.
    pub tx_depth_wr: u32,
    /// Receives posted at once, at most. Of no effect with an SRQ.
    pub rx_depth_wr: u32,
    /// Take receives from this SRQ, which must be on the same PD and for the same kind of transport.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// The most parts with bytes that a scatter/gather list may have that is sent, written from or read into
    /// ([`crate::SgList`]); at least 1. [`crate::DeviceAttr::max_sge`] is the device's limit.
    pub max_send_sge: u32,
    /// The same of receives. Above 1, the QP receives into lists ([`QueuePair::post_recv_scatter`]) and into nothing else. Of no
    /// effect with an SRQ, whose receives are packets.
    pub max_recv_sge: u32,
    /// Packets up to this length are copied into the work request and are back at once. The device may grant less.
    pub max_inline_bytes: u32,
    /// Signal every n-th send: 1 is every one. Taken down to `tx_depth_wr`, so that a full queue always empties.
    pub signal_every_wr: u32,
    /// Given back by [`crate::Completion::tag`], for telling the QPs of a CQ apart.
    pub tag: u16,
    /// How long a drop tries to destroy the QP before it leaks it.
    pub destroy_timeout: Duration,
}

impl<'a> QpSpec<'a> {
    /// Of this transport, with both queues completing into `cq`: 128 sends and receives, 128 B inline, every 32nd signaled.
    pub fn new(transport: Transport, cq: &'a CompletionQueue) -> QpSpec<'a> {
        QpSpec {
            transport,
            send_cq: cq,
            recv_cq: cq,
            tx_depth_wr: 128,
            rx_depth_wr: 128,
            srq: None,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_bytes: 128,
            signal_every_wr: 32,
            tag: 0,
            destroy_timeout: Duration::from_secs(1),
        }
    }
}

pub(super) fn check(pd: &Arc<PdInner>, spec: &QpSpec<'_>) -> Result<(), QpError> {
    for (what, cq) in [("send CQ", spec.send_cq), ("receive CQ", spec.recv_cq)] {
        if !Arc::ptr_eq(&cq.inner.context, &pd.context) {
            let (theirs, ours) = (cq.inner.context.name.clone(), pd.context.name.clone());
            return Err(QpError::Foreign { what, theirs, ours });
        }
    }
    if let Some(srq) = spec.srq {
        if srq.inner.pd.id != pd.id {
            let (theirs, ours) = (srq.inner.pd.describe(), pd.describe());
            return Err(QpError::Foreign { what: "SRQ", theirs, ours });
        }
        if (srq.transport() == Transport::Ud) != (spec.transport == Transport::Ud) {
            return Err(QpError::SrqTransport { srq: srq.transport(), qp: spec.transport });
        }
    }
    // One slot is the drain marker's.
    for (what, asked, max) in
        [("tx_depth_wr", spec.tx_depth_wr, MAX_SLOTS - 1), ("rx_depth_wr", spec.rx_depth_wr, MAX_SLOTS)]
    {
        if asked > max {
            return Err(QpError::Depth { what, asked, max });
        }
    }
    check_sges(pd, spec)
}

fn check_sges(pd: &Arc<PdInner>, spec: &QpSpec<'_>) -> Result<(), QpError> {
    let asked = [("max_send_sge", spec.max_send_sge), ("max_recv_sge", spec.max_recv_sge)];
    if asked.iter().all(|&(_, asked)| asked <= 1) {
        return Ok(());
    }
    let context = Context { inner: pd.context.clone() };
    let max = context.query_device()?.max_sge;
    match asked.into_iter().find(|&(_, asked)| asked > max) {
        Some((what, asked)) => Err(QpError::Sges { what, asked, max, device: context.name().to_owned() }),
        None => Ok(()),
    }
}

/// Creates the QP with as much inline data as the device takes, at most what is asked; gives that too. There is no verb that
/// tells the limit, so that trying is the documented way (ibv_post_send(3)).
/// Sends that the device is asked for beyond the depth. One is for the marker of a drain. The others keep lists whole: a device
/// may look for freed slots only when it knows of none, and with an odd one to spare it then posts that one and looks, which cut
/// every other list of 32 in two. Where queues are rounded up to powers of two, they are there anyway.
const SPARE_WR: u32 = 32;

/// As [`create`], with room to spare; a device that has no room for that is asked for less.
pub(super) fn create_with_spare(pd: &PdInner, spec: &QpSpec<'_>) -> Result<(NonNull<ibv_qp>, u32), QpError> {
    let create = |spare| create(pd, spec, spec.tx_depth_wr + spare);
    create(SPARE_WR).or_else(|_| create(1)).or_else(|_| create(0))
}

fn create(pd: &PdInner, spec: &QpSpec<'_>, tx_depth: u32) -> Result<(NonNull<ibv_qp>, u32), QpError> {
    let mut inline_bytes = spec.max_inline_bytes;
    loop {
        // SAFETY: ibv_qp_init_attr is integers and pointers: all zeros is a value.
        let mut init: rdma_sys::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        init.send_cq = spec.send_cq.inner.as_ptr();
        init.recv_cq = spec.recv_cq.inner.as_ptr();
        init.srq = spec.srq.map_or(std::ptr::null_mut(), |srq| srq.inner.as_ptr());
        init.qp_type = spec.transport.to_raw();
        // Some drivers refuse a queue of none.
        init.cap.max_send_wr = tx_depth.max(1);
        init.cap.max_recv_wr = spec.rx_depth_wr.max(1);
        init.cap.max_send_sge = spec.max_send_sge.max(1);
        init.cap.max_recv_sge = spec.max_recv_sge.max(1);
        init.cap.max_inline_data = inline_bytes;
        // SAFETY: PD and CQs are alive and of one device (`check`), and the QP keeps them.
        let raw = unsafe { verb!(pd.provider(), ibv_create_qp(pd.as_ptr(), &raw mut init)) };
        if let Some(raw) = NonNull::new(raw) {
            // A device may grant more; what was asked is what is used.
            return Ok((raw, inline_bytes.min(init.cap.max_inline_data)));
        }
        let errno = Errno::last();
        let too_much = matches!(errno.raw(), libc::EINVAL | libc::ENOMEM | libc::EOPNOTSUPP);
        if inline_bytes == 0 || !too_much {
            return Err(create_error(pd, spec, errno).into());
        }
        inline_bytes = if inline_bytes < 16 { 0 } else { inline_bytes / 2 };
    }
}

fn create_error(pd: &PdInner, spec: &QpSpec<'_>, errno: Errno) -> VerbError {
    let QpSpec { transport, tx_depth_wr, rx_depth_wr, max_send_sge, max_recv_sge, .. } = spec;
    let parts = match (max_send_sge, max_recv_sge) {
        (0..=1, 0..=1) => String::new(),
        _ => format!(" of at most {max_send_sge} and {max_recv_sge} parts"),
    };
    let object =
        format!("{transport} QP of {tx_depth_wr} sends and {rx_depth_wr} receives{parts} on {}", pd.describe());
    let error = VerbError::new("ibv_create_qp", object, errno);
    match errno.raw() {
        libc::EINVAL | libc::ENOMEM => error.advise(
            "a depth may be beyond DeviceAttr::max_qp_wr, the device may be out of QPs (DeviceAttr::max_qp), or locked \
             memory may be short (`ulimit -l`)",
        ),
        _ => error,
    }
}
