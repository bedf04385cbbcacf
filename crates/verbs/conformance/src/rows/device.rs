//! A device's attributes.

use super::common::*;
use crate::check::{Outcome, ensure, same};
use crate::rig::{QpCap, Rig, SideSpec};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    vec![
        Row::new(
            "device/limits-are-positive",
            page::QUERY_DEVICE,
            "A device can hold at least one of everything basic",
            limits,
        ),
        Row::new("device/qp-limits-are-kept", page::CREATE_QP, "More than max_qp_wr or max_sge is refused", qp_limits),
        Row::new(
            "device/port-is-active",
            page::QUERY_PORT,
            "The port is active, with an MTU and a GID table",
            port_is_active,
        ),
        Row::new(
            "device/no-such-port",
            page::QUERY_PORT,
            "Ports are 1 to phys_port_cnt; others are EINVAL",
            no_such_port,
        ),
        Row::new("device/gid-table", page::QUERY_GID, "The GID table has an entry, and ends", gid_table),
        Row::new("device/pkey-table", page::QUERY_PKEY, "The P_Key table has a default entry, and ends", pkey_table),
        Row::new("device/qp-numbers-are-different", page::CREATE_QP, "Each queue pair has its own number", qp_numbers),
        Row::new(
            "device/granted-is-at-least-asked",
            page::CREATE_QP,
            "Creation returns capabilities that are at least the asked ones, and query tells no less",
            granted_is_at_least_asked,
        ),
    ]
}

fn limits(rig: &Rig) -> Outcome {
    let attr = rig.context().query_device()?;
    let limits = [
        ("max_qp", attr.max_qp),
        ("max_qp_wr", attr.max_qp_wr),
        ("max_sge", attr.max_sge),
        ("max_cq", attr.max_cq),
        ("max_cqe", attr.max_cqe),
        ("max_mr", attr.max_mr),
        ("max_pd", attr.max_pd),
        ("max_qp_rd_atom", attr.max_qp_rd_atom),
        ("max_qp_init_rd_atom", attr.max_qp_init_rd_atom),
        ("phys_port_cnt", attr.phys_port_cnt.into()),
    ];
    for (name, value) in limits {
        ensure(value > 0, format_args!("{name} is positive, not {value}"))?;
    }
    ensure(attr.max_mr_size > 0, "max_mr_size is positive")
}

fn qp_limits(rig: &Rig) -> Outcome {
    let attr = rig.context().attr();
    let (wr, sge) = (attr.max_qp_wr as u32 + 1, attr.max_sge as u32 + 1);
    let cap = QpCap::default();
    let caps = [
        ("max_send_wr", QpCap { send_wr: wr, ..cap }),
        ("max_recv_wr", QpCap { recv_wr: wr, ..cap }),
        ("max_send_sge", QpCap { send_sge: sge, ..cap }),
        ("max_recv_sge", QpCap { recv_sge: sge, ..cap }),
    ];
    for (name, cap) in caps {
        let refused = rig.create_refused(RC, SideSpec { cap, ..SideSpec::default() })?;
        ensure(refused.is_some(), format_args!("{name} above the device's limit is refused"))?;
    }
    Ok(())
}

fn port_is_active(rig: &Rig) -> Outcome {
    let port = rig.context().query_port(1)?;
    ensure(port.active, "the port is active")?;
    ensure((1..=5).contains(&port.active_mtu), format_args!("active_mtu is one, not {}", port.active_mtu))?;
    ensure(port.active_mtu <= port.max_mtu, "active_mtu is at most max_mtu")?;
    ensure(port.gids > 0 && port.pkeys > 0, "the tables have entries")?;
    ensure(port.max_message_bytes >= 1 << 20, "messages of a MiB can be sent")
}

fn no_such_port(rig: &Rig) -> Outcome {
    let ports = rig.context().attr().phys_port_cnt;
    for port in [0, ports + 1] {
        let refused = rig.context().query_port(port).err().map(|refused| refused.errno);
        same(format_args!("port {port}"), refused, Some(libc::EINVAL))?;
    }
    Ok(())
}

fn gid_table(rig: &Rig) -> Outcome {
    let index = rig.port().gid_index;
    ensure(!rig.context().query_gid(1, index.into())?.is_zero(), "the entry in use is set")?;
    let end = rig.port().attr.gids as i32;
    ensure(rig.context().query_gid(1, end).is_err(), format_args!("entry {end} is beyond the table"))
}

fn pkey_table(rig: &Rig) -> Outcome {
    same("P_Key 0", rig.context().query_pkey(0)? | 0x8000, 0xffff)?;
    let end = i32::from(rig.port().attr.pkeys);
    ensure(rig.context().query_pkey(end).is_err(), format_args!("entry {end} is beyond the table"))
}

fn qp_numbers(rig: &Rig) -> Outcome {
    let mut sides = Vec::new();
    for transport in [RC, UC, UD, RC, UC, UD] {
        sides.push(rig.side(transport, SideSpec::default())?);
    }
    let mut numbers: Vec<u32> = sides.iter().map(|side| side.qp.number()).collect();
    ensure(
        numbers.iter().all(|&number| number > 1 && number < 0xff_ffff),
        "numbers have 24 bits, and 0 and 1 are taken",
    )?;
    numbers.sort_unstable();
    numbers.dedup();
    same("different numbers", numbers.len(), sides.len())
}

fn granted_is_at_least_asked(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let cap = QpCap { send_wr: 33, recv_wr: 17, send_sge: 3, recv_sge: 2, inline_bytes: 48 };
        let side = rig.side(transport, SideSpec { cap, ..SideSpec::default() })?;
        let granted = side.qp.granted();
        ensure(covers(&granted, &cap), format_args!("{cap:?} is granted, not {granted:?}"))?;
        let queried = QpCap::from_query(&side.qp.query()?.cap());
        ensure(covers(&queried, &granted), format_args!("query tells at least {granted:?}, not {queried:?}"))?;
    }
    Ok(())
}

/// Whether each value of one is at least the other's.
fn covers(one: &QpCap, other: &QpCap) -> bool {
    one.send_wr >= other.send_wr
        && one.recv_wr >= other.recv_wr
        && one.send_sge >= other.send_sge
        && one.recv_sge >= other.recv_sge
        && one.inline_bytes >= other.inline_bytes
}
