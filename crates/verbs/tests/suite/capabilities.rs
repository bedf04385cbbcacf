//! Refusals of capabilities that a device lacks: they name the capability and a remedy, and change
//! nothing.

use crate::common::{Options, Side, device, open, provider};
use verbline_verbs::{
    Provider, QpError, QpSpec, QpState, RtrSpec, RtsSpec, Transport,
    attr::Capability,
    expert::{AttrMask, QpAttr, QpCap},
};

/// An RC QP in RTS that talks to itself.
fn ready() -> Side {
    let mut side = Side::new("soft0", &Options::new(Transport::Rc), 0);
    let own = side.qp.endpoint();
    side.qp.to_rtr(&RtrSpec::connected(own)).unwrap();
    side.qp.to_rts(&RtsSpec::default()).unwrap();
    side
}

/// The text of the error, after checking that it is about the capability and that the QP is
/// unchanged.
fn refused(side: &mut Side, attr: &QpAttr, mask: AttrMask, capability: Capability) -> String {
    let all = AttrMask(u32::MAX >> 11);
    let before = side.qp.query(all).unwrap();
    let error = side.qp.modify(attr, mask).unwrap_err();
    let QpError::Lacking(lacking) = &error else { panic!("{error}") };
    assert_eq!((lacking.capability, lacking.device.as_str()), (capability, device("soft0")));
    assert_eq!(side.qp.query(all).unwrap(), before);
    error.to_string()
}

#[test]
fn an_alternate_path() {
    let mut side = ready();
    let attr = QpAttr { alt_ah: crate::common::to_gid(side.qp.endpoint().gid), alt_port: 1, ..QpAttr::default() };
    if provider() == Provider::Soft {
        // The software RNIC has alternate paths (migration.rs); a device with an address lacks
        // them, and so does the fake of capability_check.rs.
        return side.qp.modify(&attr, AttrMask::ALT_PATH).unwrap();
    }
    let said = refused(&mut side, &attr, AttrMask::ALT_PATH, Capability::AlternatePath);
    // rdma_rxe has the capability bit, but not the link layer.
    assert!(said.contains("InfiniBand ports only, and port 1 is Ethernet"), "{said}");
}

#[test]
fn queues_of_another_size() {
    let mut side = ready();
    let cap = side.qp.query(AttrMask::CAP).unwrap().cap;
    assert!(cap.max_send_wr >= 16 && cap.max_recv_wr >= 16, "{cap:?}");
    let attr = QpAttr { cap: QpCap { max_send_wr: 64, ..cap }, ..QpAttr::default() };
    let said = refused(&mut side, &attr, AttrMask::CAP, Capability::ResizeQueues);
    let said = said.replace(device("soft0"), "soft0");
    assert_eq!(
        said.to_string(),
        "soft0 has no queues that can be resized (IBV_QP_CAP): IBV_DEVICE_RESIZE_MAX_WR is not in its \
         device_cap_flags; leave the attribute out, and create the QP with the depths that it will need \
         (QpSpec::tx_depth_wr, rx_depth_wr)"
    );
}

#[test]
fn a_rate_limit() {
    let mut side = ready();
    let attr = QpAttr { rate_limit_kbit_per_s: 1_000_000, ..QpAttr::to_state(QpState::Rts) };
    let mask = AttrMask::STATE | AttrMask::RATE_LIMIT;
    let said = refused(&mut side, &attr, mask, Capability::RateLimit(Transport::Rc));
    let said = said.replace(device("soft0"), "soft0");
    assert_eq!(
        said.to_string(),
        "soft0 has no rate limit for RC QPs (IBV_QP_RATE_LIMIT): its packet_pacing_caps.qp_rate_limit_max is 0; leave \
         the attribute out, and pace the sends where they are posted"
    );
}

#[test]
fn raw_ethernet() {
    let context = open("soft0");
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(64, None).unwrap());
    let error = pd.create_qp(&QpSpec::new(Transport::RawPacket, &cq)).unwrap_err();
    assert!(matches!(&error, QpError::Lacking(lacking) if lacking.capability == Capability::RawPacket), "{error}");
    let said = error.to_string().replace(device("soft0"), "soft0");
    assert_eq!(
        said.to_string(),
        "soft0 has no QPs for whole Ethernet frames (IBV_QPT_RAW_PACKET): ibv_create_qp answered EOPNOTSUPP \
         (Operation not supported); use a UD QP, or an Ethernet card whose driver has such QPs (mlx4, mlx5); no \
         software device has"
    );
}
