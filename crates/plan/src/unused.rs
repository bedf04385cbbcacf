//! What is declared and does nothing: warnings, except a target that can't send.

use crate::diag::Sink;
use crate::ids::{Consumer, PortId, Target};
use crate::raw::RawPlan;
use crate::refs::{Edge, Links};
use crate::source::Span;

pub(crate) fn check(raw: &RawPlan, links: &Links<'_>, edges: &[Edge], sink: &mut Sink) {
    senders(raw, links, edges, sink);
    // What is misspelt elsewhere looks unused here.
    if sink.has_errors() {
        return;
    }
    for (index, pool) in raw.pools.iter().enumerate() {
        let of_port = links.ports.iter().any(|port| port.pool.is_some_and(|id| id.index() == index));
        let of_stage = links.stages.iter().any(|stage| stage.pool.is_some_and(|id| id.index() == index));
        if !of_port && !of_stage {
            unused(sink, "pool", &pool.head.name, pool.head.span, "no port and no stage takes packets from it");
        }
    }
    for (index, device) in raw.devices.iter().enumerate() {
        let of_port = links.ports.iter().any(|port| port.device.is_some_and(|id| id.index() == index));
        let of_pool = links.pools.iter().any(|pool| pool.is_some_and(|id| id.index() == index));
        if !of_port && !of_pool {
            unused(sink, "device", &device.head.name, device.head.span, "no port and no pool is on it");
        }
    }
    for (index, lcore) in raw.lcores.iter().enumerate() {
        let of_port = links.ports.iter().any(|port| port.lcore.is_some_and(|id| id.index() == index));
        let of_stage = links.stages.iter().any(|stage| stage.lcore.is_some_and(|id| id.index() == index));
        if !of_port && !of_stage {
            unused(sink, "lcore", &lcore.head.name, lcore.head.span, "it has no port and no stage");
        }
    }
}

fn unused(sink: &mut Sink, word: &str, name: &str, span: Span, why: &str) {
    sink.warn("unused", span, format!("{word}.{name} is not used: {why}")).help("remove it, or refer to it");
}

/// Targets must have a send queue, and send queues should have somebody to fill them.
fn senders(raw: &RawPlan, links: &Links<'_>, edges: &[Edge], sink: &mut Sink) {
    for (index, port) in raw.ports.iter().enumerate() {
        let id = PortId::from_index(index);
        let by_edge = edges.iter().filter(|edge| edge.hop.target == Target::Port(id)).map(|edge| edge.hop.span);
        let by_ring = raw.rings.iter().zip(&links.rings).filter(|(_, to)| **to == Some(Consumer::Port(id)));
        let spans: Vec<Span> =
            by_edge.chain(by_ring.filter_map(|(ring, _)| ring.to.as_ref()).map(|to| to.span)).collect();
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
