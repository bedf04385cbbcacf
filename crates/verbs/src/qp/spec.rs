//! A QP's specification, and its creation with as much inline data as the device takes.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::{ibv_pd, ibv_qp};
use verbline_softnic::qp_table::Transport;

use super::QpError;
use crate::cq::CompletionQueue;
use crate::device::capability::Capability;
use crate::device::context::Context;
use crate::device::offload::Offload;
use crate::device::provider::verb;
use crate::errno::{Errno, VerbError};
use crate::memory::pd::PdInner;
use crate::mlx5::extended::ExtendedQp;
use crate::qp::srq::{SharedReceiveQueue, SrqInner};
use crate::qp::thread_domain::OwnDomain;
use crate::signature::QpSignature;
use crate::wr_id::MAX_SLOTS;

/// The parameters of a QP.
#[derive(Clone, Debug)]
pub struct QpSpec<'a> {
    /// RC, UC, UD or RAW_PACKET.
    pub transport: Transport,
    /// The CQ for sends.
    pub send_cq: &'a CompletionQueue,
    /// The CQ for receives.
    pub recv_cq: &'a CompletionQueue,
    /// The most sends posted at once.
    pub tx_depth_wr: u32,
    /// The most receives posted at once. Without effect with an SRQ.
    pub rx_depth_wr: u32,
    /// The SRQ to receive from; it must be on the same PD and for the same kind of transport.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// The most non-empty parts of a scatter/gather list that is sent, written from or read into
    /// ([`crate::expert::SgList`]); at least 1. [`crate::attr::DeviceAttr::max_sge`] is the
    /// device's limit.
    pub max_send_sge: u32,
    /// The same limit for receives. Above 1, the QP receives into lists
    /// ([`crate::QueuePair::post_recv_scatter`]) only. Without effect with an SRQ, whose receives
    /// are packets.
    pub max_recv_sge: u32,
    /// Packets up to this length are copied into the work request and return at once. The device
    /// may grant less.
    pub max_inline_bytes: u32,
    /// Signal every n-th send: 1 is every one. Reduced to `tx_depth_wr`, so that a full queue
    /// always empties.
    pub signal_every_wr: u32,
    /// The [`crate::Completion::tag`] of the QP's completions, to tell the QPs of a CQ apart.
    pub tag: u16,
    /// Solicit every SEND, and every WRITE with immediate of a list: it wakes a receiver that armed
    /// its CQ for solicited completions only (ibv_req_notify_cq(3)).
    pub solicited: bool,
    /// Give the QP a thread domain of its own, so that the driver posts without its locks. If the
    /// device has no thread domains, or none left, the QP is created without
    /// ([`crate::QueuePair::has_thread_domain`] tells). On mlx5 a domain takes one doorbell page of
    /// the device and saves up to two spin locks per post.
    pub thread_domain: bool,
    /// Whether the QP's work requests configure signature keys (RC), and whether it stops at a
    /// failed check. Refused with [`QpError::Lacking`] on devices without signature offload.
    pub signature: QpSignature,
    /// How long a drop retries to destroy the QP before it leaks it. `Duration::MAX` is for ever.
    pub destroy_timeout: Duration,
}

impl<'a> QpSpec<'a> {
    /// A QP of this transport, with both queues completing into `cq`: 128 sends and receives, 128 B
    /// inline, every 32nd send signaled.
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
            solicited: false,
            thread_domain: false,
            signature: QpSignature::None,
            destroy_timeout: Duration::from_secs(1),
        }
    }
}

pub(super) fn check(pd: &Arc<PdInner>, spec: &QpSpec<'_>, srq: Option<&SrqInner>) -> Result<(), QpError> {
    for (what, cq) in [("send CQ", spec.send_cq), ("receive CQ", spec.recv_cq)] {
        if !Arc::ptr_eq(&cq.inner.context, &pd.context) {
            let (theirs, ours) = (cq.inner.context.name.clone(), pd.context.name.clone());
            return Err(QpError::Foreign { what, theirs, ours });
        }
    }
    if let Some(srq) = srq {
        if srq.pd.id != pd.id {
            let (theirs, ours) = (srq.pd.describe(), pd.describe());
            return Err(QpError::Foreign { what: "SRQ", theirs, ours });
        }
        if (srq.transport == Transport::Ud) != (spec.transport == Transport::Ud) {
            return Err(QpError::SrqTransport { srq: srq.transport, qp: spec.transport });
        }
    }
    if spec.signature != QpSignature::None {
        pd.context.offload()?;
    }
    // One slot is reserved for the drain marker.
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

/// Sends requested from the device beyond the depth. One is for the marker of a drain. The others
/// keep lists whole: a device may look for freed slots only when it knows of no free one. With one
/// odd slot to spare, it posts one work request and then looks, which cut every other list of 32 in
/// two. Where queues are rounded up to powers of two, these slots exist anyway.
const SPARE_WR: u32 = 32;

/// A created QP.
pub(super) struct Made {
    pub(super) raw: NonNull<ibv_qp>,
    /// The requested length, or less if the device grants less.
    pub(super) inline_bytes: u32,
    pub(super) domain: Option<OwnDomain>,
    /// Present if the QP configures keys on a card.
    pub(super) extended: Option<Box<ExtendedQp>>,
}

/// Creates the QP, in a thread domain if one is requested and available.
pub(super) fn create_in_domain(pd: &Arc<PdInner>, spec: &QpSpec<'_>, srq: Option<&SrqInner>) -> Result<Made, QpError> {
    if spec.thread_domain {
        let domain = OwnDomain::alloc(pd).map_err(QpError::from);
        match domain.and_then(|domain| Ok((create_with_spare(pd, domain.as_ptr(), spec, srq)?, domain))) {
            Ok((made, domain)) => return Ok(Made { domain: Some(domain), ..made }),
            Err(error) => tracing::debug!(device = %pd.context.name, %error, "a QP goes without a thread domain"),
        }
    }
    create_with_spare(pd, pd.as_ptr(), spec, srq)
}

/// Creates the QP with spare slots. If the device has no space for them, fewer are requested first,
/// and only then less inline data.
fn create_with_spare(
    pd: &PdInner,
    on: *mut ibv_pd,
    spec: &QpSpec<'_>,
    srq: Option<&SrqInner>,
) -> Result<Made, QpError> {
    let offload = match spec.signature {
        QpSignature::None => None,
        _ => Some(pd.context.offload()?),
    };
    let slots = spec.tx_depth_wr * offload.map_or(1, Offload::slots_a_work_request);
    let fewer = if slots > spec.tx_depth_wr { Some([spec.tx_depth_wr + 1]) } else { None };
    let create = |depths: &[u32]| create_inline(pd, on, spec, srq, offload, depths);
    create(&[slots + SPARE_WR, slots + 1, slots]).or_else(|error| fewer.map_or(Err(error), |fewer| create(&fewer)))
}

/// Creates the QP with as much inline data as the device takes, at most the requested length, and
/// with the first of `depths` that the device takes with it. No verb reports the limit, so trying
/// is the documented way (ibv_post_send(3)).
fn create_inline(
    pd: &PdInner,
    on: *mut ibv_pd,
    spec: &QpSpec<'_>,
    srq: Option<&SrqInner>,
    offload: Option<Offload>,
    depths: &[u32],
) -> Result<Made, QpError> {
    let mut inline_bytes = spec.max_inline_bytes;
    loop {
        let mut errno = Errno::new(libc::EINVAL);
        for &tx_depth in depths {
            match create(pd, on, spec, srq, offload, tx_depth, inline_bytes)? {
                Ok(made) => return Ok(made),
                Err(refused) => errno = refused,
            }
        }
        let too_much = matches!(errno.raw(), libc::EINVAL | libc::ENOMEM | libc::EOPNOTSUPP);
        if inline_bytes == 0 || !too_much {
            return Err(create_error(pd, spec, errno));
        }
        inline_bytes = if inline_bytes < 16 { 0 } else { inline_bytes / 2 };
    }
}

/// Creates the QP, or returns the device's errno.
fn create(
    pd: &PdInner,
    on: *mut ibv_pd,
    spec: &QpSpec<'_>,
    srq: Option<&SrqInner>,
    offload: Option<Offload>,
    tx_depth: u32,
    inline_bytes: u32,
) -> Result<Result<Made, Errno>, QpError> {
    // SAFETY: ibv_qp_init_attr is integers and pointers: all zeros is a value.
    let mut init: rdma_sys::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    init.send_cq = spec.send_cq.inner.as_ptr();
    init.recv_cq = spec.recv_cq.inner.as_ptr();
    init.srq = srq.map_or(std::ptr::null_mut(), SrqInner::as_ptr);
    init.qp_type = spec.transport.raw();
    // Some drivers refuse an empty queue.
    init.cap.max_send_wr = tx_depth.max(1);
    init.cap.max_recv_wr = spec.rx_depth_wr.max(1);
    init.cap.max_send_sge = spec.max_send_sge.max(1);
    init.cap.max_recv_sge = spec.max_recv_sge.max(1);
    init.cap.max_inline_data = inline_bytes;
    let raw = match offload {
        // SAFETY: PD, CQs and SRQ are alive and of one device (`check`), and the QP keeps them;
        // `on` is the PD or a parent domain of it.
        None => unsafe { verb!(pd.provider(), ibv_create_qp(on, &raw mut init)) },
        // SAFETY: as above; and the offload is of this device.
        Some(offload) => unsafe { offload.create_qp(on, &mut init, spec.signature.extras()) },
    };
    let Some(raw) = NonNull::new(raw) else { return Ok(Err(Errno::last())) };
    let extended = extend(pd, offload, raw, inline_bytes)?;
    // A device may grant more; only the requested length is used.
    let inline_bytes = inline_bytes.min(init.cap.max_inline_data);
    Ok(Ok(Made { raw, inline_bytes, domain: None, extended }))
}

/// The functions for posting to a QP that configures keys on a card. A QP without them is
/// destroyed.
fn extend(
    pd: &PdInner,
    offload: Option<Offload>,
    raw: NonNull<ibv_qp>,
    inline_bytes: u32,
) -> Result<Option<Box<ExtendedQp>>, QpError> {
    let Some(Offload::Mlx5(card)) = offload else { return Ok(None) };
    // SAFETY: the QP was just made by the card, and is destroyed only where nothing leads to it.
    unsafe {
        if let Some(extended) = card.extended(raw.as_ptr(), inline_bytes) {
            return Ok(Some(extended));
        }
        verb!(pd.provider(), ibv_destroy_qp(raw.as_ptr()));
    }
    let says = "a QP made for it has no mlx5dv_wr_mkey_configure";
    Err(Capability::SignatureOffload.refused(&pd.context.name, says).into())
}

fn create_error(pd: &PdInner, spec: &QpSpec<'_>, errno: Errno) -> QpError {
    let QpSpec { transport, tx_depth_wr, rx_depth_wr, max_send_sge, max_recv_sge, .. } = spec;
    let parts = match (max_send_sge, max_recv_sge) {
        (0..=1, 0..=1) => String::new(),
        _ => format!(" of at most {max_send_sge} and {max_recv_sge} parts"),
    };
    let object =
        format!("{transport} QP of {tx_depth_wr} sends and {rx_depth_wr} receives{parts} on {}", pd.describe());
    if spec.signature == QpSignature::Pipelined && errno.raw() == libc::EOPNOTSUPP && *transport == Transport::Rc {
        let says = format!("mlx5dv_create_qp with MLX5DV_QP_CREATE_SIG_PIPELINING answered {errno}");
        return Capability::SignaturePipelining.refused(&pd.context.name, says).into();
    }
    let error = VerbError::new("ibv_create_qp", object, errno);
    let limits = "a depth may be beyond DeviceAttr::max_qp_wr, the device may be out of QPs \
                  (DeviceAttr::max_qp), or locked memory may be short (`ulimit -l`)";
    match (transport, errno.raw()) {
        (Transport::RawPacket, libc::EOPNOTSUPP | libc::ENOSYS) => {
            Capability::RawPacket.refused(&pd.context.name, format!("ibv_create_qp answered {errno}")).into()
        }
        (Transport::RawPacket, libc::EPERM | libc::EACCES) => error
            .advise(
                "whole frames can be forged, so that the kernel wants CAP_NET_RAW for them: run as root, or give it \
                 to the program with `setcap cap_net_raw+ep PROGRAM`",
            )
            .into(),
        (Transport::RawPacket, libc::EINVAL | libc::ENOMEM) => {
            error.advise(format!("{limits}; or its port is not Ethernet, which frames need")).into()
        }
        (_, libc::EINVAL | libc::ENOMEM) => error.advise(limits).into(),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::provider::Provider;

    #[test]
    fn a_refused_qp_says_what_it_takes() {
        let context = Device::find(Provider::Soft, "soft0").unwrap().open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16, None).unwrap());
        let spec = QpSpec::new(Transport::RawPacket, &cq);
        let says = |errno| {
            let said = create_error(&pd.inner, &spec, Errno::new(errno)).to_string();
            said.replace(&pd.inner.describe(), "PD 1 on mlx5_0")
        };
        assert_eq!(
            says(libc::EPERM).to_string(),
            "ibv_create_qp of RAW_PACKET QP of 128 sends and 128 receives on PD 1 on mlx5_0: EPERM (Operation not \
             permitted); whole frames can be forged, so that the kernel wants CAP_NET_RAW for them: run as root, or \
             give it to the program with `setcap cap_net_raw+ep PROGRAM`"
        );
        assert_eq!(
            says(libc::EINVAL).to_string(),
            "ibv_create_qp of RAW_PACKET QP of 128 sends and 128 receives on PD 1 on mlx5_0: EINVAL (Invalid \
             argument); a depth may be beyond DeviceAttr::max_qp_wr, the device may be out of QPs \
             (DeviceAttr::max_qp), or locked memory may be short (`ulimit -l`); or its port is not Ethernet, which \
             frames need"
        );
        let of = |transport, signature, errno| {
            let spec = QpSpec { signature, ..QpSpec::new(transport, &cq) };
            create_error(&pd.inner, &spec, Errno::new(errno)).to_string()
        };
        let (refused, pipelined) = (libc::EOPNOTSUPP, QpSignature::Pipelined);
        assert!(of(Transport::Rc, pipelined, refused).contains("make the QP with QpSignature::Keys"));
        for (transport, signature, errno) in [
            (Transport::Uc, pipelined, refused),
            (Transport::Rc, QpSignature::Keys, refused),
            (Transport::Rc, pipelined, libc::EPERM),
        ] {
            let said = of(transport, signature, errno);
            assert!(said.starts_with("ibv_create_qp of "), "{said}");
        }
        assert_eq!(
            pd.create_qp(&spec).unwrap_err().to_string(),
            "soft0 has no QPs for whole Ethernet frames (IBV_QPT_RAW_PACKET): ibv_create_qp answered EOPNOTSUPP \
             (Operation not supported); use a UD QP, or an Ethernet card whose driver has such QPs (mlx4, mlx5); no \
             software device has"
        );
    }
}
