//! Warns of messages that may not fit the buffers that they arrive in. The length is up to the
//! stages, so these are warnings.

use crate::check::flow::Flow;
use crate::check::ports::PortFacts;
use crate::check::refs::Links;
use crate::choices::Transport;
use crate::diag::sink::Sink;
use crate::ids::{Consumer, PortId, Target};
use crate::read::raw::RawPlan;

/// Bytes that a UD receive puts before the message (InfiniBand Architecture Specification,
/// 11.4.1.2).
const GRH_BYTES: u32 = 40;

pub(crate) fn check(raw: &RawPlan, links: &Links<'_>, ports: &[PortFacts], flow: &Flow, sink: &mut Sink) {
    for (index, facts) in ports.iter().enumerate() {
        headroom(index, raw, links, sink);
        if let Some(peer) = facts.other_end() {
            peer_buffers(PortId::from_index(index), peer, raw, links, flow, sink);
        }
    }
}

fn headroom(index: usize, raw: &RawPlan, links: &Links<'_>, sink: &mut Sink) {
    let port = &raw.ports[index];
    let is_datagram = port.transport.as_ref().is_some_and(|transport| transport.value == Transport::Ud);
    let Some(pool) = links.ports[index].pool.filter(|_| is_datagram && port.receives()) else { return };
    let pool = &raw.pools[pool.index()];
    if pool.headroom_bytes.value < GRH_BYTES {
        let (pool_name, port_name) = (&pool.head.name, &port.head.name);
        let message =
            format!("port.{port_name} receives datagrams, and pool.{pool_name} has no headroom for their GRH");
        sink.warn("short-headroom", pool.headroom_bytes.span, message)
            .note(format!("the {GRH_BYTES} bytes before each message then take their room from `data_bytes`"))
            .help(format!("write `headroom_bytes = {GRH_BYTES}` or more"));
    }
}

fn peer_buffers(from: PortId, to: PortId, raw: &RawPlan, links: &Links<'_>, flow: &Flow, sink: &mut Sink) {
    let Some(landing) = links.ports[to.index()].pool.map(|id| &raw.pools[id.index()]) else { return };
    let Some(room) = &landing.data_bytes else { return };
    let pools = raw.pools.iter().zip(&flow.reach).zip(&flow.prepended);
    for ((pool, _), prepended) in pools.filter(|((_, reach), _)| reach.sent_by.contains(&from)) {
        let Some(data) = &pool.data_bytes else { continue };
        let prepended = prepended.at_port(from);
        let longest = u64::from(data.value) + prepended;
        if longest > room.value.into() && !keeps_to(room.value, from, raw, links) {
            let (from, to) = (&raw.ports[from.index()].head.name, &raw.ports[to.index()].head.name);
            let message = format!("port.{from} can send {longest} bytes, port.{to} receives {}", room.value);
            let headers = if prepended > 0 { format!(", with {prepended} prepended") } else { String::new() };
            sink.warn("short-buffers", room.span, message)
                .related(data.span, format!("pool.{}, sent from there{headers}", pool.head.name))
                .note("a message that is longer than its buffer fails at the receiver; a connection breaks with it")
                .help(format!("write `data_bytes = {longest}` here, or keep messages to {}", room.value));
        }
    }
}

/// Whether every stage that sends to the port promises messages that fit.
fn keeps_to(room_bytes: u32, port: PortId, raw: &RawPlan, links: &Links<'_>) -> bool {
    let leads_there = |target: &Target| *target == Target::Port(port);
    let is_forwarded =
        raw.ports.iter().zip(&links.ports).any(|(_, links)| links.next.is_some_and(|hop| leads_there(&hop.target)));
    let mut senders = links.stages.iter().filter(|stage| stage.outputs.iter().any(|hop| leads_there(&hop.target)));
    let fits = |max: u32| (1..=room_bytes).contains(&max);
    let by_ring = links.rings.iter().flatten().any(|to| *to == Consumer::Port(port));
    let by_spread = links.spreads.iter().flatten().any(|hop| leads_there(&hop.target));
    !is_forwarded
        && !by_ring
        && !by_spread
        && senders.all(|stage| stage.kind.is_some_and(|kind| fits(kind.spec.message_bytes_max)))
}
