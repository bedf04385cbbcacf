//! Builds the operation queues of ports, and finds the stages that may use each.

use verbline_plan::{Connections, Plan, Port};
use verbline_verbs::rdma::KeepSpec;

use crate::api::outputs::Output;
use crate::errors::error::{Cause, EngineError, place};
use crate::lcore::waits::OperationPort;
use crate::operations::queue::{OperationQueue, OperationsSpec};
use crate::operations::region::Region;
use crate::ports::sink::Sink;
use crate::setup::devices::{Opened, transport};
use crate::setup::queue_pairs::signature_keys;
use crate::stats::counter::Shared;
use crate::stats::counters::StageStats;
use crate::stats::snapshot::PortEntry;

/// The queue of a port's operations. Each of the port's queue pairs has to keep every region of its
/// device, by index in the plan. `connections`: for a port with many.
pub(crate) fn operation_queue(
    plan: &Plan,
    port: &Port,
    connections: Option<&Connections>,
    regions: &[Region],
    device: &Opened,
    entry: &PortEntry,
) -> Result<Option<(OperationQueue, KeepSpec)>, EngineError> {
    let Some(stats) = &entry.operations else { return Ok(None) };
    let is_kept = |declared: &verbline_plan::Region| declared.device == port.device && declared.owner.is_some();
    let kept: Box<[bool]> = plan.regions().iter().map(is_kept).collect();
    let memory =
        kept.iter().zip(regions).map(|(is_kept, region)| is_kept.then(|| region.memory().cloned()).transpose());
    let memory = memory.collect::<Result<Vec<_>, _>>().map_err(|source| refused(plan, port)(source.into()))?;
    // The plan's check limits both numbers.
    let (windows, keys) = (port.windows as u16, offered_keys(port, device) as u16);
    let spec = OperationsSpec {
        port: Shared::clone(&entry.stats),
        stats: Shared::clone(stats),
        transport: transport(port.transport),
        sends: connections.map_or(port.tx_depth_wr, |_| port.batch_packets) as usize,
        depth: connections.map_or(port.ops_depth_wr, |connections| connections.ops_shared_wr) as usize,
        many: connections.map(|connections| [connections.max as usize, port.ops_depth_wr as usize]),
        regions: kept,
        windows,
        keys,
    };
    Ok(Some((OperationQueue::new(spec), KeepSpec { regions: memory, windows, keys })))
}

/// The number of signature keys that a port gets of those in the plan.
fn offered_keys(port: &Port, device: &Opened) -> usize {
    let offered = signature_keys(port, device);
    if offered == 0
        && let Err(lacking) = device.context.check_signature_offload()
        && port.signature_keys > 0
    {
        tracing::warn!(port = %port.name, %lacking, "it has no signature keys: stages check blocks themselves");
    }
    offered
}

/// The error of a port whose queue pair lacks what the port's operations need.
pub(crate) fn refused(plan: &Plan, port: &Port) -> impl Fn(Cause) -> EngineError {
    let (at, port) = (place(plan, port.span), port.name.clone());
    move |source| EngineError::QueuePair { at: at.clone(), port: port.clone(), source }
}

/// The ports to which a stage may hand operations, and the most that one of them carries out at
/// once. `links`: the outputs for which the stage's kind declares operations; a port accepts none
/// from other outputs.
pub(crate) fn operation_ports<'a>(
    stats: &Shared<StageStats>,
    links: impl Iterator<Item = &'a Output>,
    sinks: &mut [Sink],
) -> (Vec<OperationPort>, usize) {
    let sink = |link: &Output| match link {
        Output::Sink(place) => Some(*place),
        // An operation goes to one port, without the choice of a spread.
        Output::Drop | Output::Spread(_) | Output::Displacing(_) => None,
    };
    let mut places: Vec<u16> = links.filter_map(sink).collect();
    places.sort_unstable();
    places.dedup();
    let (mut ports, mut depth) = (Vec::new(), 0);
    for place in places {
        let sink = usize::from(place);
        if let Some((queue, _)) = sinks[sink].operations() {
            ports.push(OperationPort { sink, user: queue.add_user(Shared::clone(stats)) });
            depth = depth.max(queue.depth());
        }
    }
    (ports, depth)
}
