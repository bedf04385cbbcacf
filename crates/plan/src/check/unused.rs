//! Reports declarations without an effect. These are warnings, except a target that cannot send.

use std::collections::HashSet;

use crate::check::edges::Edges;
use crate::check::refs::{Links, PortLinks, StageLinks};
use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::ids::{Consumer, DeviceId, LcoreId, PoolId, PortId, Target};
use crate::read::raw::RawPlan;

pub(crate) fn check(raw: &RawPlan, links: &Links<'_>, edges: &Edges, sink: &mut Sink) {
    senders(raw, edges, sink);
    // A misspelt name elsewhere could make one look unused.
    if sink.has_errors() {
        return;
    }
    let of_ports = |what: fn(&PortLinks) -> Option<usize>| links.ports.iter().filter_map(what).collect::<HashSet<_>>();
    let of_stages = |what: fn(&StageLinks<'_>) -> Option<usize>| links.stages.iter().filter_map(what);
    let mut pools = of_ports(|port| port.pool.map(PoolId::index));
    pools.extend(links.injectors.iter().filter_map(|injector| injector.pool.map(PoolId::index)));
    pools.extend(of_stages(|stage| stage.pool.map(PoolId::index)));
    let mut devices = of_ports(|port| port.device.map(DeviceId::index));
    devices.extend(links.pools.iter().flatten().map(|id| id.index()));
    let mut lcores = of_ports(|port| port.lcore.map(LcoreId::index));
    lcores.extend(of_stages(|stage| stage.lcore.map(LcoreId::index)));
    for (_, pool) in raw.pools.iter().enumerate().filter(|(index, _)| !pools.contains(index)) {
        unused(sink, "pool", &pool.head.name, pool.head.span, "no port and no stage takes packets from it");
    }
    for (_, device) in raw.devices.iter().enumerate().filter(|(index, _)| !devices.contains(index)) {
        unused(sink, "device", &device.head.name, device.head.span, "no port and no pool is on it");
    }
    for (_, lcore) in raw.lcores.iter().enumerate().filter(|(index, _)| !lcores.contains(index)) {
        unused(sink, "lcore", &lcore.head.name, lcore.head.span, "it has no port and no stage");
    }
}

fn unused(sink: &mut Sink, word: &str, name: &str, span: Span, why: &str) {
    sink.warn("unused", span, format!("{word}.{name} is not used: {why}")).help("remove it, or refer to it");
}

/// Targets must have a send queue, and a send queue should have a stage or ring that fills it.
fn senders(raw: &RawPlan, edges: &Edges, sink: &mut Sink) {
    for (index, port) in raw.ports.iter().enumerate() {
        let id = PortId::from_index(index);
        let by_edge = edges.leading_to(Target::Port(id)).iter().map(|edge| edge.hop.span);
        let by_ring = edges.rings_into(Consumer::Port(id)).iter().filter_map(|id| raw.rings[id.index()].to.as_ref());
        let spans: Vec<Span> = by_edge.chain(by_ring.map(|to| to.span)).collect();
        let name = &port.head.name;
        if port.tx_depth_wr.value == 0 {
            for span in spans {
                sink.error("no-send-queue", span, format!("port.{name} can't send: it has no send queue"))
                    .related(port.tx_depth_wr.span, "`tx_depth_wr` is 0 here")
                    .help(format!("add `tx_depth_wr = 256` to [port.{name}]"));
            }
        } else if spans.is_empty() && !sink.has_errors() {
            sink.warn("unused", port.tx_depth_wr.span, format!("nothing sends through port.{name}"))
                .help("remove `tx_depth_wr`, or name the port as a target");
        }
    }
}
