//! Checks that the NUMA nodes in `node` keys exist.

use crate::diag::sink::Sink;
use crate::machine::Machine;
use crate::machine::note::{Lack, Note, listed};
use crate::machine::number_list::show_number_list;
use crate::read::raw::RawPlan;
use crate::read::reader::Field;

pub(crate) fn check(raw: &RawPlan, machine: &Machine, sink: &mut Sink) {
    let nodes = &machine.numa.nodes;
    for (_, node) in keys(raw).filter(|(_, node)| !nodes.is_empty() && !nodes.contains_key(&node.value)) {
        let noun = if nodes.len() == 1 { "only node" } else { "nodes" };
        sink.error("no-such-node", node.span, format!("this machine has no NUMA node {} with memory", node.value))
            .note(format!("it has {noun} {}", show_number_list(nodes.keys().copied())))
            .help("remove `node`: the memory is then near its device, or near the lcore that uses it");
    }
}

/// Without known nodes of the machine, the key can't be followed.
pub(crate) fn unknown(raw: &RawPlan, machine: &Machine) -> Option<Note> {
    let names: Vec<String> = keys(raw).map(|(name, _)| name).collect();
    (machine.numa.nodes.is_empty() && !names.is_empty()).then(|| Note {
        lack: Lack::NodesUnknown,
        message: format!("`node` of {} has no effect: /sys tells no NUMA nodes", listed(&names)),
        remedy: "run `mount -t sysfs sysfs /sys` as root, have the container mount it, or remove `node`".to_owned(),
    })
}

/// The `node` keys of a plan, and their owners.
fn keys(raw: &RawPlan) -> impl Iterator<Item = (String, &Field<u32>)> {
    let pools = raw.pools.iter().map(|pool| ("pool", &pool.head.name, &pool.node));
    let regions = raw.regions.iter().map(|region| ("region", &region.head.name, &region.node));
    pools.chain(regions).filter_map(|(sort, name, node)| Some((format!("{sort}.{name}"), node.as_ref()?)))
}
