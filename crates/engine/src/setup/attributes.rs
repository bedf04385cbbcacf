//! Translates a plan's keys of queue pairs to verbs attributes, with the usual values as defaults.

use std::collections::BTreeSet;

use verbline_plan::{Plan, Port};
use verbline_verbs::datagram::AhSpec;
use verbline_verbs::{Gid, RtrSpec, RtsSpec};

use crate::connection::alternate::{Alternate, PathEnd};
use crate::errors::error::Cause;
use crate::setup::devices::Opened;

/// The attributes for RTR, with the plan's keys applied.
pub(super) fn rtr_of(port: &Port, usual: RtrSpec) -> RtrSpec {
    let said = port.attributes;
    RtrSpec {
        min_rnr_timer: port.retries.map_or(usual.min_rnr_timer, |retries| retries.min_rnr_timer),
        hop_limit: said.hop_limit.unwrap_or(usual.hop_limit),
        traffic_class: said.traffic_class.unwrap_or(usual.traffic_class),
        service_level: said.service_level.unwrap_or(usual.service_level),
        ..usual
    }
}

/// The path of datagrams, with the plan's keys applied.
pub(super) fn path_of(port: &Port, usual: AhSpec) -> AhSpec {
    let said = port.attributes;
    AhSpec {
        hop_limit: said.hop_limit.unwrap_or(usual.hop_limit),
        traffic_class: said.traffic_class.unwrap_or(usual.traffic_class),
        service_level: said.service_level.unwrap_or(usual.service_level),
        ..usual
    }
}

pub(super) fn rts_of(port: &Port, usual: RtsSpec) -> RtsSpec {
    let rate_limit_kbit_per_s = port.attributes.rate_limit_kbit_per_s.unwrap_or(usual.rate_limit_kbit_per_s);
    let usual = RtsSpec { rate_limit_kbit_per_s, ..usual };
    let Some(retries) = port.retries else { return usual };
    RtsSpec {
        timeout: retries.timeout.unwrap_or(usual.timeout),
        retry_cnt: retries.retry_cnt,
        rnr_retry: retries.rnr_retry,
        ..usual
    }
}

/// The port's alternate path to its peer, if the device supports one.
pub(super) fn alternate_of(plan: &Plan, port: &Port, device: &Opened) -> Result<Option<Box<Alternate>>, Cause> {
    let Some(said) = port.alternate else { return Ok(None) };
    let port_num = said.port_num.unwrap_or(plan[port.device].port_num);
    device.context.check_alternate_path(port_num)?;
    let path = AhSpec { lid: said.lid, ..AhSpec::to_gid(Gid(said.gid)) };
    let path = path.from_port(port_num, said.gid_index.unwrap_or(device.gid_index));
    let usual = || rts_of(port, RtsSpec::default()).timeout;
    Ok(Some(Box::new(Alternate::new(PathEnd {
        ah: path_of(port, path),
        port: port_num,
        pkey_index: index_of(said.pkey, port_num, device)?,
        timeout: said.timeout.unwrap_or_else(usual),
    }))))
}

/// The index of the port's P_Key in the device's table, compared with the plan's in all bits; 0 if
/// the plan says none.
pub(super) fn pkey_index(plan: &Plan, port: &Port, device: &Opened) -> Result<u16, Cause> {
    index_of(port.attributes.pkey, plan[port.device].port_num, device)
}

fn index_of(pkey: Option<u16>, port_num: u8, device: &Opened) -> Result<u16, Cause> {
    let (Some(pkey), context) = (pkey, &device.context) else { return Ok(0) };
    let mut others = BTreeSet::new();
    for index in 0..device.port.pkey_table_len {
        match context.query_pkey(port_num, index)? {
            found if found == pkey => return Ok(index),
            // An unused entry.
            0 => {}
            other => _ = others.insert(other),
        }
    }
    let others: Vec<String> = others.iter().map(|pkey| format!("{pkey:#06x}")).collect();
    let (name, others) = (context.name(), others.join(", "));
    Err(format!("{name} has no P_Key {pkey:#06x} at port {port_num}; those that it has: {others}").into())
}
