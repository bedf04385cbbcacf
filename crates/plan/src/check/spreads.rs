//! Checks spreads: each is used, has no place twice, and a stage that copies has a pool for the
//! copies.

use std::collections::{HashMap, HashSet};

use crate::check::edges::Edges;
use crate::check::flow::Flow;
use crate::check::refs::Links;
use crate::diag::sink::Sink;
use crate::ids::{SpreadId, StageId};
use crate::read::raw::RawPlan;

pub(crate) fn check(raw: &RawPlan, links: &Links<'_>, edges: &Edges, sink: &mut Sink) {
    let used: HashSet<SpreadId> = edges.all().iter().filter_map(|edge| edge.through).collect();
    for index in 0..raw.spreads.len() {
        twice(SpreadId::from_index(index), raw, links, sink);
    }
    for (index, resolved) in links.stages.iter().enumerate() {
        if resolved.pool.is_none() && raw.stages[index].pool.is_none() {
            needs_pool(StageId::from_index(index), raw, edges, sink);
        }
    }
    if links.incomplete {
        return;
    }
    let unused = |(index, _): &(usize, _)| !used.contains(&SpreadId::from_index(*index));
    for (_, spread) in raw.spreads.iter().enumerate().filter(unused) {
        let name = &spread.head.name;
        sink.error("unused-spread", spread.head.span, format!("nothing sends to spread.{name}"))
            .help(format!("write `\"spread.{name}\"` as an output of a stage, or remove it"));
    }
}

fn twice(id: SpreadId, raw: &RawPlan, links: &Links<'_>, sink: &mut Sink) {
    let mut seen = HashMap::new();
    for hop in &links.spreads[id.index()] {
        if let Some(first) = seen.insert(hop.target, hop.span) {
            let message = format!("spread.{} has this place twice", raw.spreads[id.index()].head.name);
            sink.error("place-twice", hop.span, message).related(first, "it is here too").help("remove one of them");
        }
    }
}

/// Refuses a stage that copies and has no pool.
fn needs_pool(id: StageId, raw: &RawPlan, edges: &Edges, sink: &mut Sink) {
    let copied = edges.copied_by(id, raw).into_iter().find(|(_, places)| *places > 1);
    let Some((spread, _)) = copied else { return };
    let head = &raw.stages[id.index()].head;
    let message = format!("stage.{} sends copies, and has no pool to take them from", head.name);
    sink.error("no-pool-to-copy-from", head.span, message)
        .related(raw.spreads[spread.index()].head.span, "which copies")
        .help("add `pool = \"NAME\"` to the stage");
}

/// Warns of copies that may be shorter than their originals.
pub(crate) fn sizes(raw: &RawPlan, links: &Links<'_>, edges: &Edges, flow: &Flow, sink: &mut Sink) {
    for (index, resolved) in links.stages.iter().enumerate() {
        let stage = StageId::from_index(index);
        let Some(own) = resolved.pool.map(|id| &raw.pools[id.index()]) else { continue };
        let Some(room) = own.data_bytes.as_ref().filter(|_| !edges.copied_by(stage, raw).is_empty()) else { continue };
        let pools = raw.pools.iter().zip(&flow.reach).filter(|(_, reach)| reach.stages.contains(&stage));
        for data in pools.filter_map(|(pool, _)| pool.data_bytes.as_ref()).filter(|data| data.value > room.value) {
            let name = &raw.stages[index].head.name;
            let message =
                format!("stage.{name} copies packets of up to {} bytes into those of {}", data.value, room.value);
            sink.warn("short-copies", room.span, message)
                .related(data.span, "these may be longer")
                .note("a copy that does not fit is not made, and counted as `too_long`")
                .help(format!("write `data_bytes = {}` here", data.value));
        }
    }
}
