//! Checks rings: every lcore that fills a ring differs from the one that empties it, and a ring
//! that holds its producers back cannot stop the plan for good.
//!
//! Several producers are no fault. Producers on one lcore share a lane, and each lcore has its own.
//!
//! While packets wait for room in a ring that holds, the stages of the producing lcore that lead to
//! it are not run. Only the feeders of these stages stop with them: sources, which make nothing
//! meanwhile, and rings, which fill up and then follow their own policy. The last ring of such a
//! chain is emptied by a stage or a port that nothing holds back, so everything moves again:
//! - There is no circle. Packets never go round over stages and rings ([`crate::check::order`]),
//!   and over the network only through a port that receives. Such a port cannot be held back, since
//!   received packets have arrived. So a port that feeds a held stage is a fault.
//! - The pool suffices. Every place in which packets wait is a term of its sum, the inputs of held
//!   stages included, so that no receive queue starves because others wait.

use crate::check::edges::Edges;
use crate::check::refs::{Links, PortLinks};
use crate::check::upstream::Upstream;
use crate::choices::WhenFull;
use crate::diag::sink::Sink;
use crate::ids::{PortId, RingId, StageId, Target};
use crate::read::raw::RawPlan;

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

/// The stages that each lane of the ring holds back.
pub(crate) fn held_by(
    id: RingId,
    upstream: &mut Upstream<'_>,
    raw: &RawPlan,
    links: &Links<'_>,
    edges: &Edges,
    sink: &mut Sink,
) -> Vec<Vec<StageId>> {
    let holds = raw.rings[id.index()].full.value == WhenFull::Hold;
    let lanes = edges.lanes(id).iter();
    lanes
        .map(|lane| match holds {
            false => Vec::new(),
            true => {
                let (stages, ports) = upstream.leading_to(Target::Ring(id), lane.lcore);
                for port in ports {
                    reaches_port(id, port, raw, links, sink);
                }
                stages
            }
        })
        .collect()
}

fn reaches_port(id: RingId, port: PortId, raw: &RawPlan, links: &Links<'_>, sink: &mut Sink) {
    let ring = &raw.rings[id.index()];
    let (name, port_name) = (&ring.head.name, &raw.ports[port.index()].head.name);
    let message = format!("ring.{name} would hold back port.{port_name}, which can't wait");
    let one = sink.error("holds-a-port", ring.full.span, message);
    let PortLinks { next, sent, .. } = &links.ports[port.index()];
    for (hop, what) in [(next, "what it receives"), (sent, "what it has sent")] {
        if let Some(hop) = hop {
            one.related(hop.span, format!("{what} leads to the ring"));
        }
    }
    one.note("what has been received must go somewhere: its queue would overflow, or its peer would stall")
        .help(format!("write `full = \"refuse\"` or `full = \"displace\"` in [ring.{name}]"))
        .help("or put a ring that refuses or drops between the port and what is held back");
}
