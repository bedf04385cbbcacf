//! Checks a modification against the device's capabilities first, so that a refusal names the
//! lacking capability.

use rdma_sys::{ibv_mig_state, ibv_qp_attr};

use crate::device::attr::LinkLayer;
use crate::device::capability::Capability;
use crate::device::context::Context;
use crate::device::provider::Provider;
use crate::qp::attr::AttrMask;
use crate::qp::{QpError, QueuePair};

impl Context {
    /// Fails if connections can have no alternate path that leaves by this port.
    pub fn check_alternate_path(&self, port: u8) -> Result<(), QpError> {
        Capability::AlternatePath.check(self.name(), &self.query_device()?)?;
        if self.inner.provider == Provider::Kernel && self.query_port(port)?.link_layer == LinkLayer::Ethernet {
            // _ib_modify_qp() in the kernel's drivers/infiniband/core/verbs.c: "Today the core code
            // can only handle alternate paths and APM for IB. Ban them in roce mode."
            let says = format!("the kernel takes them on InfiniBand ports only, and port {port} is Ethernet");
            return Err(Capability::AlternatePath.refused(self.name(), says).into());
        }
        Ok(())
    }
}

impl QueuePair {
    /// Checks that the device has the capabilities that these attributes need. Attributes that
    /// every device supports need no query.
    ///
    /// Returns the attributes that no row of the state table has and that this device takes: a
    /// resize of the queues (`IBV_DEVICE_RESIZE_MAX_WR`), and a rate limit of a transport that it
    /// paces. ibv_modify_qp(3) allows both by the capability alone; the kernel's table has
    /// IB_QP_CAP nowhere and IB_QP_RATE_LIMIT for RAW_PACKET only, so that its drivers may still
    /// refuse.
    pub(crate) fn check_offered(&self, attr: &ibv_qp_attr, mask: AttrMask) -> Result<AttrMask, QpError> {
        let has = |bit| mask.contains(bit);
        // Every QP is in IBV_MIG_MIGRATED.
        let migrates = has(AttrMask::PATH_MIG_STATE) && attr.path_mig_state != ibv_mig_state::IBV_MIG_MIGRATED;
        let needs = [
            (has(AttrMask::CAP), Capability::ResizeQueues),
            (has(AttrMask::RATE_LIMIT), Capability::RateLimit(self.transport())),
            (has(AttrMask::ALT_PATH) || migrates, Capability::AlternatePath),
        ];
        if needs.iter().all(|(needed, _)| !needed) {
            return Ok(AttrMask::NONE);
        }
        let context = self.context();
        if has(AttrMask::ALT_PATH) {
            context.check_alternate_path(attr.alt_port_num)?;
        }
        let device = context.query_device()?;
        for (_, capability) in needs.into_iter().filter(|(needed, _)| *needed) {
            capability.check(context.name(), &device)?;
        }
        let limits = device.rate_limit;
        if has(AttrMask::RATE_LIMIT) && !limits.allows(attr.rate_limit) {
            let (asked, min, max) = (attr.rate_limit, limits.min_kbit_per_s, limits.max_kbit_per_s);
            return Err(self.attribute(&format!(
                "a rate limit of {asked} kbit/s: the device takes {min} to {max}, or 0 for no limit"
            )));
        }
        Ok([AttrMask::CAP, AttrMask::RATE_LIMIT]
            .into_iter()
            .filter(|&bit| has(bit))
            .fold(AttrMask::NONE, AttrMask::with))
    }
}

#[cfg(test)]
mod tests {
    use rdma_sys::{
        ibv_context, ibv_device_attr_ex, ibv_device_cap_flags, ibv_packet_pacing_caps, ibv_query_device_ex_input,
    };
    use verbline_softnic::qp_table::Transport;

    use super::*;
    use crate::fake_device;
    use crate::qp::QpSpec;
    use crate::qp::attr::{InitSpec, QpAttr, QpCap, QpState, RtrSpec, RtsSpec};

    /// A device that paces RC, migrates paths and resizes queues.
    unsafe extern "C" fn able(
        _: *mut ibv_context,
        _: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
        _: usize,
    ) -> libc::c_int {
        // SAFETY: ibv_query_device_ex is called with a place for the attributes.
        let attr = unsafe { &mut *attr };
        attr.orig_attr.device_cap_flags =
            (ibv_device_cap_flags::IBV_DEVICE_AUTO_PATH_MIG | ibv_device_cap_flags::IBV_DEVICE_RESIZE_MAX_WR).0;
        let supported_qpts = 1 << Transport::Rc.raw();
        attr.packet_pacing_caps =
            ibv_packet_pacing_caps { qp_rate_limit_min: 1000, qp_rate_limit_max: 9000, supported_qpts };
        0
    }

    /// A device without these capabilities.
    unsafe extern "C" fn bare(
        _: *mut ibv_context,
        _: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
        _: usize,
    ) -> libc::c_int {
        // SAFETY: ibv_query_device_ex is called with a place for the attributes, which are integers
        // only.
        unsafe { *attr = std::mem::zeroed() };
        0
    }

    #[test]
    fn an_alternate_path_is_refused_by_the_name_of_the_capability() {
        let context = fake_device::soft_with(|table| table.query_device_ex = Some(bare));
        let cq = context.create_cq(64, None).unwrap();
        let mut qp = context.alloc_pd().unwrap().create_qp(&QpSpec::new(Transport::Rc, &cq)).unwrap();
        qp.to_init(&InitSpec::default()).unwrap();
        let own = RtrSpec::connected(qp.endpoint());
        qp.to_rtr(&own).unwrap();
        qp.to_rts(&RtsSpec::default()).unwrap();
        let says = "soft0 has no alternate paths (IBV_QP_ALT_PATH, IBV_QP_PATH_MIG_STATE): IBV_DEVICE_AUTO_PATH_MIG is \
                    not in its device_cap_flags; leave the attribute out, and connect again over another path when \
                    this one fails";
        let rearm = QpAttr { path_mig_state: 1, alt_port: 1, ..QpAttr::default() };
        for mask in [AttrMask::ALT_PATH, AttrMask::PATH_MIG_STATE, AttrMask::ALT_PATH | AttrMask::PATH_MIG_STATE] {
            assert_eq!(qp.modify(&rearm, mask).unwrap_err().to_string(), says);
        }
        assert_eq!(context.check_alternate_path(1).unwrap_err().to_string(), says);
        // Every QP's state, whatever the device's capabilities.
        qp.modify(&QpAttr::default(), AttrMask::PATH_MIG_STATE).unwrap();
    }

    #[test]
    fn what_a_device_offers_is_left_to_the_state_table_and_to_it() {
        let context = fake_device::soft_with(|table| table.query_device_ex = Some(able));
        let cq = context.create_cq(64, None).unwrap();
        let mut qp = context.alloc_pd().unwrap().create_qp(&QpSpec::new(Transport::Rc, &cq)).unwrap();
        qp.to_init(&InitSpec::default()).unwrap();
        let mut refused = |attr: &QpAttr, mask| {
            let qpn = format!("{:#x}", qp.qpn());
            qp.modify(attr, mask).unwrap_err().to_string().replace(&qpn, "0x11")
        };
        let limited = |rate| QpAttr { rate_limit_kbit_per_s: rate, ..QpAttr::default() };
        assert_eq!(
            refused(&limited(999), AttrMask::RATE_LIMIT).to_string(),
            "QP 0x11 on soft0: a rate limit of 999 kbit/s: the device takes 1000 to 9000, or 0 for no limit"
        );
        assert_eq!(refused(&limited(9001), AttrMask::RATE_LIMIT).matches("kbit/s").count(), 1);
        // The table has no such transition. The page requires the capability alone, so that the
        // device decides; the one behind the fake lacks both.
        let cap = QpAttr { cap: QpCap { max_send_wr: 8, ..QpCap::default() }, ..QpAttr::default() };
        let asked = [(limited(1000), AttrMask::RATE_LIMIT), (limited(0), AttrMask::RATE_LIMIT), (cap, AttrMask::CAP)];
        for (attr, mask) in asked {
            let says = refused(&attr, mask);
            assert!(says.contains("ibv_modify_qp") && says.contains("EINVAL"), "{says}");
        }
        let both = refused(&cap, AttrMask::CAP | AttrMask::QKEY);
        assert!(both.contains("INIT -> INIT: not allowed here IBV_QP_QKEY"), "{both}");
        // The table takes an alternate path on the way to RTR; the device behind the fake has none.
        let own = RtrSpec::connected(qp.endpoint());
        qp.to_rtr(&own).unwrap();
        let rearm = QpAttr { path_mig_state: 1, ..QpAttr::to_state(QpState::Rts) };
        let rts = AttrMask::SQ_PSN | AttrMask::TIMEOUT | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY;
        let mask = AttrMask::STATE | rts | AttrMask::MAX_QP_RD_ATOMIC | AttrMask::PATH_MIG_STATE;
        assert!(matches!(qp.modify(&rearm, mask), Err(QpError::Verb(error)) if error.errno.raw() == libc::EINVAL));
        // The step to RTS can carry a limit; without one the device is not asked.
        let paced = RtsSpec { rate_limit_kbit_per_s: 1000, ..RtsSpec::default() };
        let says = qp.to_rts(&paced).unwrap_err().to_string();
        assert!(says.contains("ibv_modify_qp") && says.contains("IBV_QP_RATE_LIMIT"), "{says}");
        qp.to_rts(&RtsSpec::default()).unwrap();
    }
}
