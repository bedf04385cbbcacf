//! `devices`: the devices that a plan can name, with the limits that matter to it.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use verbline_engine::preferred_gid;
use verbline_verbs::{
    Context, Device, DeviceError, Provider, VerbError,
    attr::{AtomicCap, GidKind},
};

use super::args::DevicesOptions;
use super::figures::count;
use super::output::{COLUMNS, document, message, result, sentence, wrapped};

/// One device's row.
#[derive(Debug, Serialize)]
struct Row {
    provider: String,
    name: String,
    firmware: String,
    /// Sixteen digits.
    node_guid: String,
    max_qp: u32,
    max_qp_wr: u32,
    max_sge: u32,
    max_cq: u32,
    max_cqe: u32,
    max_srq: u32,
    max_srq_wr: u32,
    max_mr: u32,
    max_mr_bytes: u64,
    max_mw: u32,
    /// Whether memory can be registered without being pinned.
    on_demand_paging: bool,
    max_qp_rd_atomic: u32,
    atomics: &'static str,
    max_mcast_groups: u32,
    /// Named as in verbs.h, without IBV_DEVICE_.
    capabilities: Vec<&'static str>,
    /// The peers that its queue pairs can be connected to, and the network used.
    reaches: String,
    ports: Vec<PortRow>,
}

/// One port of it.
#[derive(Debug, Serialize)]
struct PortRow {
    port: u8,
    state: String,
    link_layer: String,
    mtu_bytes: u32,
    lid: u16,
    gids: Vec<GidRow>,
}

/// One entry of its GID table.
#[derive(Debug, Serialize)]
struct GidRow {
    index: u8,
    gid: String,
    kind: String,
    /// The network interface behind it.
    netdev: Option<String>,
    /// Whether a plan without `gid_index` uses it.
    preferred: bool,
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
    for fault in &faults {
        message(&format!("error: {}", sentence(fault, "error: ".len())));
    }
    let code = if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if options.json {
        return document(&serde_json::json!({ "devices": rows, "errors": faults }), code, None);
    }
    let mut text: String = rows.iter().map(show).collect();
    if !rows.iter().any(|row| row.provider == Provider::Kernel.to_string()) {
        text.push_str("no kernel devices: this kernel has no RDMA device, or its driver is not loaded\n");
    }
    result(&text, code, None)
}

fn list(provider: Provider) -> Result<Vec<Row>, DeviceError> {
    Device::list(provider)?.iter().map(|device| Ok(row(device, &device.open()?)?)).collect()
}

fn row(device: &Device, context: &Context) -> Result<Row, VerbError> {
    let attr = context.query_device()?;
    let ports = (1..=attr.ports).map(|port| port_row(context, port)).collect::<Result<Vec<_>, _>>()?;
    Ok(Row {
        provider: device.provider().to_string(),
        name: device.name().to_owned(),
        capabilities: attr.capability_names().collect(),
        firmware: attr.firmware,
        node_guid: format!("{:016x}", attr.node_guid),
        max_qp: attr.max_qp,
        max_qp_wr: attr.max_qp_wr,
        max_sge: attr.max_sge,
        max_cq: attr.max_cq,
        max_cqe: attr.max_cqe,
        max_srq: attr.max_srq,
        max_srq_wr: attr.max_srq_wr,
        max_mr: attr.max_mr,
        max_mr_bytes: attr.max_mr_bytes,
        max_mw: attr.max_mw,
        on_demand_paging: attr.on_demand.supported,
        max_qp_rd_atomic: attr.max_qp_rd_atomic,
        atomics: match attr.atomics {
            AtomicCap::None => "none",
            AtomicCap::Hca => "between queue pairs of the device",
            AtomicCap::Glob => "against CPUs, too",
            AtomicCap::Unknown(_) => "unknown",
        },
        max_mcast_groups: attr.max_mcast_groups,
        reaches: reaches(device.provider(), &ports),
        ports,
    })
}

/// The peers that its queue pairs can be connected to, and the network used.
fn reaches(provider: Provider, ports: &[PortRow]) -> String {
    match provider {
        Provider::Soft => "this process, within it; with an `address` in its plan also other processes and hosts that \
                           speak RoCE v2, by UDP port 4791"
            .to_owned(),
        Provider::Kernel => {
            let layers: Vec<_> = ports.iter().map(|port| port.link_layer.as_str()).collect();
            format!("what its network does, by {}", layers.join(" and "))
        }
    }
}

fn port_row(context: &Context, port: u8) -> Result<PortRow, VerbError> {
    let attr = context.query_port(port)?;
    let gids = context.gids(port)?;
    let preferred = preferred_gid(&gids).map(|entry| entry.index);
    Ok(PortRow {
        port,
        state: format!("{:?}", attr.state).to_uppercase(),
        link_layer: format!("{:?}", attr.link_layer),
        mtu_bytes: attr.active_mtu.bytes(),
        lid: attr.lid,
        gids: gids
            .iter()
            .map(|entry| GidRow {
                index: entry.index,
                gid: entry.gid.to_string(),
                kind: kind(entry.kind),
                netdev: netdev(entry.netdev_index),
                preferred: preferred == Some(entry.index),
            })
            .collect(),
    })
}

fn kind(kind: GidKind) -> String {
    match kind {
        GidKind::Ib => "InfiniBand".to_owned(),
        GidKind::RoceV1 => "RoCE v1".to_owned(),
        GidKind::RoceV2 => "RoCE v2".to_owned(),
        GidKind::Unknown(raw) => format!("unknown kind {raw}"),
    }
}

/// The network interface of this index, by its entry in /sys/class/net.
fn netdev(index: u32) -> Option<String> {
    let has_index = |path: &Path| {
        let text = std::fs::read_to_string(path.join("ifindex")).unwrap_or_default();
        text.trim().parse() == Ok(index)
    };
    let entries = std::fs::read_dir("/sys/class/net").ok()?;
    let found = entries.flatten().find(|entry| index != 0 && has_index(&entry.path()))?;
    found.file_name().into_string().ok()
}

fn show(row: &Row) -> String {
    let mut text = format!("{}  (provider = \"{}\")\n", row.name, row.provider);
    let n = |limit: u32| count(limit.into());
    let mut line = |label: &str, value: String| {
        let label = format!("  {label:<19}");
        let _ = writeln!(text, "{label}{}", wrapped(&value, COLUMNS, label.len()));
    };
    line("node GUID", format!("{}, firmware {}", row.node_guid, row.firmware));
    line("queue pairs", format!("{} of {} work requests, {} SGEs each", n(row.max_qp), n(row.max_qp_wr), row.max_sge));
    line("completion queues", format!("{} of {} completions", n(row.max_cq), n(row.max_cqe)));
    line("shared receive", format!("{} queues of {} work requests", n(row.max_srq), n(row.max_srq_wr)));
    let paged = if row.on_demand_paging { "; pinned, or paged on demand" } else { "; pinned" };
    line("memory", format!("{} regions, {} windows{paged}", n(row.max_mr), n(row.max_mw)));
    line("READs, atomics", format!("{} at once a queue pair; atomic {}", n(row.max_qp_rd_atomic), row.atomics));
    line("multicast", format!("{} groups", n(row.max_mcast_groups)));
    line("capabilities", row.capabilities.join(" "));
    line("reaches", row.reaches.clone());
    for port in &row.ports {
        let PortRow { state, link_layer, mtu_bytes, lid, .. } = port;
        line(&format!("port {}", port.port), format!("{state}, {link_layer}, MTU {mtu_bytes} bytes, LID {lid}"));
        for GidRow { index, gid, kind, netdev, preferred } in &port.gids {
            let netdev = netdev.as_ref().map_or(String::new(), |name| format!(" on {name}"));
            let preferred = if *preferred { "; a plan's choice" } else { "" };
            line(&format!("  gid_index {index}"), format!("{gid}, {kind}{netdev}{preferred}"));
        }
    }
    text
}
