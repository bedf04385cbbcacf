//! Checks rings: each has one producer and one consumer, on two different lcores.

use crate::diag::Sink;
use crate::ids::{Producer, RingId, Target};
use crate::raw::RawPlan;
use crate::refs::{Edge, Edges, Links};

/// The producer of each ring, with the first place that names it.
pub(crate) fn check(raw: &RawPlan, links: &Links<'_>, edges: &Edges, sink: &mut Sink) -> Vec<Option<Edge>> {
    (0..raw.rings.len()).map(RingId::from_index).map(|id| check_one(id, raw, links, edges, sink)).collect()
}

fn check_one(id: RingId, raw: &RawPlan, links: &Links<'_>, edges: &Edges, sink: &mut Sink) -> Option<Edge> {
    let ring = &raw.rings[id.index()];
    let mut producers: Vec<Edge> = Vec::new();
    for edge in edges.leading_to(Target::Ring(id)) {
        // Two outputs of one stage are one producer: a stage runs on one lcore. They stand side by
        // side.
        if producers.last().is_none_or(|known| known.from != edge.from) {
            producers.push(*edge);
        }
    }
    let Some(first) = producers.first().copied() else {
        if !links.incomplete {
            sink.error("unused-ring", ring.head.span, format!("nothing puts packets into ring.{}", ring.head.name))
                .help(format!("name it as a target: `\"ring.{}\"`, or remove it", ring.head.name));
        }
        return None;
    };
    for other in &producers[1..] {
        two_producers(raw, &ring.head.name, first, *other, sink);
    }
    let consumer = links.rings[id.index()];
    let consumer_lcore = consumer.and_then(|consumer| links.lcore_of(consumer));
    if let (Some(consumer), Some(to), Some(lcore)) =
        (consumer, &ring.to, consumer_lcore.filter(|_| consumer_lcore == first.lcore))
    {
        let lcore = &raw.lcores[lcore.index()].head.name;
        let target = raw.consumer_name(consumer);
        sink.error("ring-within-lcore", to.span, format!("ring.{} starts and ends on lcore.{lcore}", ring.head.name))
            .related(first.hop.span, "filled here")
            .note("on one lcore packets are handed on in batches, without a ring")
            .help(format!("write \"{target}\" in place of \"ring.{}\", and remove the ring", ring.head.name));
    }
    Some(first)
}

fn two_producers(raw: &RawPlan, ring: &str, first: Edge, other: Edge, sink: &mut Sink) {
    let (one, two) = (raw.producer_name(first.from), raw.producer_name(other.from));
    let same_lcore = first.lcore.is_some() && first.lcore == other.lcore;
    let help = match (same_lcore, other.from) {
        (true, _) => "join them in one stage that feeds the ring, or give each a ring of its own",
        (false, Producer::Port(_) | Producer::Stage(_)) => "give each a ring of its own to the same consumer",
    };
    sink.error("two-producers", other.hop.span, format!("ring.{ring} has two producers: {one} and {two}"))
        .related(first.hop.span, "the first is here")
        .note("a ring is single-producer: its tail is written by one side only, without a lock")
        .help(help);
}
