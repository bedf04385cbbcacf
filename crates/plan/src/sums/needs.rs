//! Queries stage kinds for their needs, and checks that packets have room for the messages that
//! stages write.
//!
//! Only a stage kind knows its needs, from the plan's values for its stage. The plan's check asks
//! it before anything is allocated, and the answers are terms of the plan's sums.

use crate::catalog::StageKind;
use crate::catalog::stage_needs::{Asked, Needs};
use crate::check::refs::{Hop, Links, StageLinks};
use crate::diag::sink::Sink;
use crate::diag::source::{Sources, Span};
use crate::ids::StageId;
use crate::read::raw::{RawPlan, RawRegion};
use crate::sums::sum::Sum;
use crate::text::params::Params;

/// Asks every stage whose kind answers.
pub(crate) fn ask(
    raw: &RawPlan,
    links: &Links<'_>,
    sections: &[&'static str],
    sources: &Sources,
) -> Vec<(StageId, Needs)> {
    let top = Span::new(0, 0..0);
    let pairs = sections.iter().zip(&raw.sections);
    let section = |(name, read): (&&'static str, &Option<_>)| (*name, params(sources, name, top, read.as_ref()));
    let sections: Vec<_> = pairs.map(section).collect();
    let regions: Vec<_> = raw.regions.iter().filter_map(with_bytes).collect();
    let asked = |index: usize| {
        let stage = &raw.stages[index];
        let path = format!("stage.{}.params", stage.head.name);
        Asked {
            params: params(sources, &path, stage.head.span, stage.params.as_ref()).sharing(&stage.params_asked),
            sections: &sections,
            connections: connections(raw, &links.stages[index]),
            regions: &regions,
        }
    };
    let answers = |kind: &StageKind| kind.needs;
    let stages = links.stages.iter().enumerate();
    stages
        .filter_map(|(index, stage)| {
            let answer = stage.kind.and_then(answers)?;
            Some((StageId::from_index(index), answer(&asked(index))))
        })
        .collect()
}

/// The outputs that lead to ports of many connections, and their numbers of connections.
fn connections(raw: &RawPlan, stage: &StageLinks<'_>) -> Vec<(&'static str, u32)> {
    let Some(kind) = stage.kind else { return Vec::new() };
    let many = |hop: &Hop| Some(raw.ports[hop.target.port()?.index()].many()?.value);
    let outputs = kind.spec.outputs.iter().zip(&stage.outputs);
    outputs.filter_map(|(output, hop)| Some((*output, many(hop)?))).collect()
}

fn with_bytes(region: &RawRegion) -> Option<(&str, u64)> {
    Some((region.head.name.as_str(), region.bytes.as_ref()?.value))
}

fn params(sources: &Sources, path: &str, absent: Span, read: Option<&(Span, crate::text::tree::Node)>) -> Params {
    match read {
        Some((head, node)) => Params::new(sources, path.to_owned(), *head, node.clone()),
        None => Params::absent(sources, path.to_owned(), absent),
    }
}

/// Checks each packet that a stage must be able to write against the size of its pool's.
pub(crate) fn packets(raw: &RawPlan, links: &Links<'_>, needs: &[(StageId, Needs)], sink: &mut Sink) -> Vec<Sum> {
    let mut sums = Vec::new();
    for (id, needs) in needs.iter().filter(|(_, needs)| !needs.packet_bytes.is_empty()) {
        let stage = &raw.stages[id.index()];
        let name = &stage.head.name;
        let Some(pool) = links.stages[id.index()].pool.map(|pool| &raw.pools[pool.index()]) else {
            sink.error("pool-needed", stage.head.span, format!("stage.{name} writes packets of its own"))
                .label("it has no `pool`")
                .help("write `pool = \"NAME\"`, the pool that it takes them from");
            continue;
        };
        let Some(data_bytes) = &pool.data_bytes else { continue };
        let mut sum = Sum::new(format!("packet of stage.{name}"), "bytes that it must hold", sink);
        for (what, bytes) in &needs.packet_bytes {
            sum.add((*what).to_owned(), "", *bytes, stage.head.span);
        }
        sum.limit_to(data_bytes.value, data_bytes.span);
        if !sum.holds() {
            let (pool, needed) = (&pool.head.name, sum.needed);
            let message =
                format!("packets of pool.{pool} hold {} bytes, stage.{name} writes {needed}", data_bytes.value);
            sink.error("packets-too-short", data_bytes.span, message)
                .label(format!("{needed} needed"))
                .note(format!("what it writes into one at least:\n{}", sum.table()))
                .help(format!("write `data_bytes = {needed}` or more"));
        }
        sums.push(sum);
    }
    sums
}
