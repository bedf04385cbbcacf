//! Proves that rings which hold their producers back cannot stop the plan for good.
//!
//! While packets wait for room in such a ring, the stages of the producing lcore that lead to it
//! are not run. What stops with them is only what feeds these stages: sources, which make nothing
//! meanwhile, and rings, which fill up and then do as they say themselves. The last ring of such a
//! chain is emptied by a stage or a port that nothing holds back, so that everything moves again:
//! - There is no circle. Packets never go round over stages and rings ([`crate::order`]), and over
//!   the network only through a port that receives, which cannot be held back: what has arrived has
//!   arrived. A port that feeds a held stage is a fault.
//! - The pool suffices. Every place in which packets wait is a term of its sum, the inputs of held
//!   stages included, so that no receive queue starves because others wait.

use crate::choices::WhenFull;
use crate::edges::Edges;
use crate::ids::{PortId, RingId, StageId, Target};
use crate::raw::RawPlan;
use crate::refs::Links;
use crate::sink::Sink;
use crate::upstream::Upstream;

/// The stages that each lane of the ring holds back.
pub(crate) fn check(
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
    if let Some(next) = links.ports[port.index()].next {
        one.related(next.span, "what it receives leads to the ring");
    }
    one.note("what has been received must go somewhere: its queue would overflow, or its peer would stall")
        .help(format!("write `full = \"refuse\"` or `full = \"displace\"` in [ring.{name}]"))
        .help("or put a ring that refuses or drops between the port and what is held back");
}
