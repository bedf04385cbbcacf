//! Checks rings: each is filled by other lcores than the one that empties it.
//!
//! Several producers are no fault. Those on one lcore share a lane, and each lcore has its own.

use crate::edges::Edges;
use crate::ids::{RingId, Target};
use crate::raw::RawPlan;
use crate::refs::Links;
use crate::sink::Sink;

pub(crate) fn check(raw: &RawPlan, links: &Links<'_>, edges: &Edges, sink: &mut Sink) {
    for id in (0..raw.rings.len()).map(RingId::from_index) {
        check_one(id, raw, links, edges, sink);
    }
}

fn check_one(id: RingId, raw: &RawPlan, links: &Links<'_>, edges: &Edges, sink: &mut Sink) {
    let ring = &raw.rings[id.index()];
    let name = &ring.head.name;
    if edges.leading_to(Target::Ring(id)).is_empty() {
        if !links.incomplete {
            sink.error("unused-ring", ring.head.span, format!("nothing puts packets into ring.{name}"))
                .help(format!("name it as a target: `\"ring.{name}\"`, or remove it"));
        }
        return;
    }
    let (Some(consumer), Some(to)) = (links.rings[id.index()], &ring.to) else { return };
    let own = edges.lanes(id).iter().find(|lane| links.lcore_of(consumer) == Some(lane.lcore));
    let Some((own, edge)) = own.and_then(|own| Some((own, own.edges.first()?))) else { return };
    let lcore = &raw.lcores[own.lcore.index()].head.name;
    let target = raw.consumer_name(consumer);
    let is_all = edges.lanes(id).len() == 1;
    let message = match is_all {
        true => format!("ring.{name} starts and ends on lcore.{lcore}"),
        false => format!("ring.{name} ends on lcore.{lcore}, where {} fills it too", raw.producer_name(edge.from)),
    };
    let one = sink.error("ring-within-lcore", to.span, message);
    one.related(edge.hop.span, "filled here").note("on one lcore packets are handed on in batches, without a ring");
    one.help(match is_all {
        true => format!("write \"{target}\" in place of \"ring.{name}\", and remove the ring"),
        false => format!("write \"{target}\" in place of \"ring.{name}\" there; the other lcores keep the ring"),
    });
}
