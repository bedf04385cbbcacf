//! `devices`: what a plan can name, with the limits that matter to it.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde::Serialize;
use verbline_verbs::{Context, Device, DeviceError, Provider};

use super::args::DevicesOptions;
use super::figures::count;
use super::output::{COLUMNS, message, result, wrapped};

/// One device as it is shown.
#[derive(Debug, Serialize)]
struct Row {
    provider: String,
    name: String,
    max_qp: u32,
    max_qp_wr: u32,
    max_cqe: u32,
    max_sge: u32,
    max_mr: u32,
    max_mcast_groups: u32,
    ports: Vec<PortRow>,
}

/// One port of it.
#[derive(Debug, Serialize)]
struct PortRow {
    port: u8,
    state: String,
    mtu_bytes: u32,
    lid: u16,
    gids: Vec<GidRow>,
}

/// One entry of its GID table.
#[derive(Debug, Serialize)]
struct GidRow {
    index: u8,
    gid: String,
}

/// Lists the devices of both providers.
pub(super) fn devices(options: &DevicesOptions) -> ExitCode {
    let mut rows = Vec::new();
    let mut faults = Vec::new();
    for provider in [Provider::Kernel, Provider::Soft] {
        match list(provider) {
            Ok(found) => rows.extend(found),
            Err(error) => faults.push(format!("{provider} devices: {error}")),
        }
    }
    let text = if options.json {
        format!("{:#}\n", serde_json::json!({ "devices": rows, "errors": faults }))
    } else {
        let mut text: String = rows.iter().map(show).collect();
        if !rows.iter().any(|row| row.provider == Provider::Kernel.to_string()) {
            text.push_str("no kernel devices: this kernel has no RDMA device, or its driver is not loaded\n");
        }
        text
    };
    for fault in &faults {
        message(&format!("error: {}", wrapped(fault, COLUMNS, "error: ".len())));
    }
    result(&text, if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list(provider: Provider) -> Result<Vec<Row>, DeviceError> {
    Device::list(provider)?.iter().map(|device| Ok(row(device, &device.open()?)?)).collect()
}

fn row(device: &Device, context: &Context) -> Result<Row, verbline_verbs::VerbError> {
    let attr = context.query_device()?;
    let ports = (1..=attr.ports).map(|port| port_row(context, port)).collect::<Result<_, _>>()?;
    Ok(Row {
        provider: device.provider().to_string(),
        name: device.name().to_owned(),
        max_qp: attr.max_qp,
        max_qp_wr: attr.max_qp_wr,
        max_cqe: attr.max_cqe,
        max_sge: attr.max_sge,
        max_mr: attr.max_mr,
        max_mcast_groups: attr.max_mcast_groups,
        ports,
    })
}

fn port_row(context: &Context, port: u8) -> Result<PortRow, verbline_verbs::VerbError> {
    let attr = context.query_port(port)?;
    let gids = context.gids(port)?;
    Ok(PortRow {
        port,
        state: format!("{:?}", attr.state).to_uppercase(),
        mtu_bytes: attr.active_mtu.bytes(),
        lid: attr.lid,
        gids: gids.iter().map(|entry| GidRow { index: entry.index, gid: entry.gid.to_string() }).collect(),
    })
}

fn show(row: &Row) -> String {
    let mut text = format!("{}  (provider = \"{}\")\n", row.name, row.provider);
    let (qp, wr, sge, cqe) = (row.max_qp, row.max_qp_wr, row.max_sge, row.max_cqe);
    let [qp, wr, sge, cqe] = [qp, wr, sge, cqe].map(|limit| count(limit.into()));
    let _ = writeln!(text, "  up to {qp} queue pairs of {wr} work requests with {sge} SGEs");
    let _ = writeln!(text, "  completion queues of up to {cqe}");
    for port in &row.ports {
        let _ = writeln!(text, "  port {}: {}, MTU {} bytes, LID {}", port.port, port.state, port.mtu_bytes, port.lid);
        for gid in &port.gids {
            let _ = writeln!(text, "    gid_index {}: {}", gid.index, gid.gid);
        }
    }
    text
}
