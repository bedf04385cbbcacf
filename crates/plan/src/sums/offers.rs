//! Checks the needs of stages against the plan's tables: operations of an output, armed timers,
//! rights of a region, and room for the sends of one peer.
//!
//! A kind declares them ([`StageSpec`](crate::StageSpec), and [`Needs`] where they depend on the
//! plan). Without this check a missing offer would show in a run only, one refused timer or
//! declined operation after another.

use std::collections::BTreeSet;

use crate::catalog::StageKind;
use crate::catalog::outputs::{OperationKind, OutputOperations};
use crate::catalog::stage_needs::{Needs, RegionNeed, SendsNeed};
use crate::check::refs::{Hop, Links};
use crate::check::regions::RegionFacts;
use crate::choices::Rights;
use crate::choices::Transport;
use crate::diag::sink::Sink;
use crate::ids::{Consumer, PortId, StageId, Target};
use crate::limits::TIMERS_MAX;
use crate::machine::note::listed;
use crate::read::raw::RawPlan;
use crate::read::raw_port::RawPort;
use crate::read::raw_stage::RawStage;
use crate::sums::send_offers;
use crate::sums::sum::Sum;

/// Whether each stage asks for operations, by output.
pub(crate) type Operates = Vec<Vec<bool>>;

/// Returns the sums of timers, and the outputs over which operations are asked for.
pub(crate) fn check(
    raw: &RawPlan,
    links: &Links<'_>,
    regions: &[RegionFacts],
    needs: &[(StageId, Needs)],
    sink: &mut Sink,
) -> (Vec<Sum>, Operates) {
    let nothing = Needs::default();
    let (mut sums, mut operates, mut crowded) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (index, (stage, linked)) in raw.stages.iter().zip(&links.stages).enumerate() {
        let id = StageId::from_index(index);
        let needs = needs.iter().find(|(of, _)| *of == id).map_or(&nothing, |(_, needs)| needs);
        let mut used = vec![false; linked.outputs.len()];
        if let Some(kind) = linked.kind {
            sums.extend(timers(stage, kind, needs, sink));
            for asked in kind.spec.operations.iter().chain(&needs.operations) {
                let Some(output) = kind.spec.outputs.iter().position(|output| *output == asked.output) else {
                    continue;
                };
                let Some(hop) = linked.outputs.get(output) else { continue };
                used[output] = true;
                operations(raw, stage, asked, *hop, sink);
            }
            for asked in kind.spec.sends {
                let output = kind.spec.outputs.iter().position(|output| *output == asked.output);
                if let Some(hop) = output.and_then(|output| linked.outputs.get(output)) {
                    send_offers::check(raw, links, stage, asked, *hop, sink);
                }
            }
        }
        for need in &needs.regions {
            rights(raw, regions, stage, need, sink);
        }
        for need in &needs.sends {
            let output = linked.kind.and_then(|kind| kind.spec.outputs.iter().position(|name| *name == need.output));
            if let Some(hop) = output.and_then(|output| linked.outputs.get(output)) {
                room(raw, links, stage, need, *hop, &mut crowded, sink);
            }
        }
        operates.push(used);
    }
    (sums, operates)
}

/// Checks that a stage's `timers_max` suffices for the timers that it may arm at once.
fn timers(stage: &RawStage, kind: &StageKind, needs: &Needs, sink: &mut Sink) -> Option<Sum> {
    let name = &stage.head.name;
    let mut sum = Sum::new(format!("timers of stage.{name}"), "timers that can be armed at once", sink);
    let own = [("its own", u64::from(kind.spec.timers))];
    for (what, timers) in own.iter().chain(&needs.timers) {
        sum.add((*what).to_owned(), "", *timers, stage.head.span);
    }
    let max = &stage.timers_max;
    sum.limit_to(max.value, max.span);
    if !sum.holds() {
        let needed = sum.needed;
        let timers = if needed == 1 { "timer" } else { "timers" };
        let message = format!("stage.{name} can arm {needed} {timers} at once, and may arm {}", max.value);
        let help = match needed <= TIMERS_MAX.into() {
            true => format!("write `timers_max = {needed}` or more"),
            false => format!("tell the stage to do less at once: a stage may have {TIMERS_MAX} timers"),
        };
        sink.error("too-few-timers", max.span, message)
            .label(format!("{needed} needed"))
            .note(format!("a timer that is refused never comes due:\n{}", sum.table()))
            .help(help);
    }
    Some(sum).filter(|sum| !sum.terms.is_empty())
}

/// Checks that an output with operations leads to a port that carries them out.
fn operations(raw: &RawPlan, stage: &RawStage, asked: &OutputOperations, hop: Hop, sink: &mut Sink) {
    let (name, output) = (&stage.head.name, asked.output);
    let kinds: Vec<&str> = match asked.kinds {
        [] => vec!["operations"],
        kinds => kinds.iter().map(|kind| kind.words()).collect(),
    };
    let what = format!("stage.{name} asks for {} over its output `{output}`", listed(&kinds));
    let Target::Port(id) = hop.target else {
        sink.error("no-operations", hop.span, format!("{what}, which leads to no port"))
            .note("an operation goes to one port, and no ring, stage or spread carries it")
            .help(format!("write `{output} = \"port.NAME\"`, a port with `ops_depth_wr` on the stage's own lcore"));
        return;
    };
    of_port(raw, id, asked, &what, hop, sink);
}

fn of_port(raw: &RawPlan, id: PortId, asked: &OutputOperations, what: &str, hop: Hop, sink: &mut Sink) {
    let port: &RawPort = &raw.ports[id.index()];
    let name = &port.head.name;
    if port.ops_depth_wr.value == 0 {
        sink.error("no-operations", port.ops_depth_wr.span, format!("port.{name} carries out no operations"))
            .related(hop.span, what)
            .help(format!("add `ops_depth_wr = 16` to [port.{name}], or as many as are to be under way"));
        return;
    }
    if asked.kinds.contains(&OperationKind::Bind) && port.windows.value == 0 {
        sink.error("no-operations", port.windows.span, format!("port.{name} has no memory windows to bind"))
            .related(hop.span, what)
            .help(format!("add `windows = 16` to [port.{name}], or as many as are to be bound at once"));
    }
    let Some(transport) = port.transport.as_ref().filter(|transport| transport.value == Transport::Uc) else { return };
    let reliable: BTreeSet<&str> =
        asked.kinds.iter().filter(|kind| kind.needs_answer()).map(|kind| kind.words()).collect();
    if !reliable.is_empty() {
        let kinds = listed(&Vec::from_iter(reliable));
        sink.error("no-operations", transport.span, format!("port.{name} is UC, which has no {kinds}"))
            .related(hop.span, what)
            .help("write `transport = \"rc\"`");
    }
}

/// Checks that a region has the rights that a stage needs. The stage's kind itself checks that the
/// region exists and whose it is.
fn rights(raw: &RawPlan, regions: &[RegionFacts], stage: &RawStage, need: &RegionNeed, sink: &mut Sink) {
    let mut pairs = raw.regions.iter().zip(regions);
    let Some((region, facts)) = pairs.find(|(region, _)| region.head.name == need.region) else { return };
    let lacks = |right: &&(&str, Rights)| need.rights.contains(right.1) && !facts.rights.contains(right.1);
    let lacking: Vec<String> = Rights::WORDS.iter().filter(lacks).map(|(word, _)| format!("\"{word}\"")).collect();
    if lacking.is_empty() {
        return;
    }
    let (name, lacking) = (&region.head.name, lacking.join(", "));
    let at = region.rights.first().map_or(region.head.span, |first| first.span);
    sink.error("missing-right", at, format!("region.{name} lacks {lacking}, which stage.{} needs", stage.head.name))
        .related(stage.head.span, need.what)
        .help(format!("add {lacking} to `rights` of [region.{name}]"));
}

/// Checks that a port has room for the sends that one peer may cause. Each port is reported once,
/// since all stages of a spread need the same. Behind another stage the fate of sends is unknown.
fn room(
    raw: &RawPlan,
    links: &Links<'_>,
    stage: &RawStage,
    need: &SendsNeed,
    hop: Hop,
    crowded: &mut BTreeSet<PortId>,
    sink: &mut Sink,
) {
    let id = match hop.target {
        Target::Port(id) => Some(id),
        Target::Ring(ring) => match links.rings[ring.index()] {
            Some(Consumer::Port(id)) => Some(id),
            Some(Consumer::Stage(_)) | None => None,
        },
        Target::Stage(_) | Target::Spread(_) | Target::Drop => None,
    };
    let Some(id) = id else { return };
    let port = &raw.ports[id.index()];
    let (depth, at_once) = (&port.tx_depth_wr, need.at_once);
    // A send keeps its place until a signaled one behind it is done. A port with many connections
    // signals in accordance with their number.
    let unsignaled = if port.many().is_some() { 0 } else { port.signal_every_wr.value.min(depth.value).max(1) - 1 };
    if u64::from(depth.value - unsignaled) >= at_once || !crowded.insert(id) {
        return;
    }
    let (name, stage, room) = (&port.head.name, &stage.head.name, depth.value - unsignaled);
    let message = format!("port.{name} has room for {room} sends to one peer, which may ask for {at_once}");
    let one = sink.warn("too-few-sends", depth.span, message);
    one.label(format!("{at_once} may be asked for at once"))
        .related(hop.span, format!("stage.{stage} sends {}", need.what))
        .note("what finds no room is dropped (`tx_full`, `unclaimed`), and its peer waits for it in vain");
    if unsignaled > 0 {
        one.note(format!("{unsignaled} more places may be taken: one send in {} is signaled", unsignaled + 1));
    }
    let needed = at_once.saturating_add(unsignaled.into());
    one.help(format!("write `tx_depth_wr = {needed}` or more, or let peers ask for less at once"));
}
