//! Builds the operation queues of ports, and finds the stages that may use each.

use verbline_plan::{Connections, Plan, Port};
use verbline_verbs::expert::WindowKind;
use verbline_verbs::rdma::{KeptKey, KeptRegion, KeptWindow, PeerMr};
use verbline_verbs::{PostStop, QpMaker, QueuePair};

use crate::api::outputs::Output;
use crate::errors::error::{Cause, EngineError, place};
use crate::lcore::waits::OperationPort;
use crate::operations::queue::{OperationQueue, OperationsSpec};
use crate::operations::region::Region;
use crate::ports::sink::Sink;
use crate::setup::devices::{Opened, transport};
use crate::setup::queue_pairs::signature_keys;
use crate::stats::count::Shared;
use crate::stats::counters::StageStats;
use crate::stats::operations::OperationStats;
use crate::stats::snapshot::PortEntry;

/// The queue of a port's operations. Its queue pair keeps every region of its device.
pub(crate) fn operation_queue(
    plan: &Plan,
    port: &Port,
    regions: &[Region],
    device: &Opened,
    qp: &mut QueuePair,
    entry: &PortEntry,
) -> Result<Option<OperationQueue>, EngineError> {
    let Some(stats) = &entry.operations else { return Ok(None) };
    let mut keep = || -> Result<Kept, Cause> {
        let regions = keep_regions(plan, port, regions, |region| qp.keep_region(region))?;
        let mut windows = Vec::with_capacity(port.windows as usize);
        for _ in 0..port.windows {
            windows.push(qp.keep_window(device.pd.alloc_mw(WindowKind::Type2)?)?);
        }
        Ok((regions, windows.into(), qp.keep_keys(offered_keys(port, device))?.into()))
    };
    let spec = spec(port, entry, stats, keep().map_err(refused(plan, port))?);
    Ok(Some(OperationQueue::new(spec)))
}

/// The queue of the operations of a port with many connections, each of whose queue pairs will keep
/// every region of its device.
pub(crate) fn many_operation_queue(
    plan: &Plan,
    port: &Port,
    connections: &Connections,
    regions: &[Region],
    device: &Opened,
    maker: &mut QpMaker,
    entry: &PortEntry,
) -> Result<Option<OperationQueue>, EngineError> {
    let Some(stats) = &entry.operations else { return Ok(None) };
    let mut keep = || -> Result<Kept, Cause> {
        let regions = keep_regions(plan, port, regions, |region| maker.keep_region(region))?;
        let windows = maker.keep_windows(port.windows as usize)?;
        Ok((regions, windows.into(), maker.keep_keys(offered_keys(port, device))?.into()))
    };
    Ok(Some(OperationQueue::new(OperationsSpec {
        sends: port.batch_packets as usize,
        depth: connections.ops_shared_wr as usize,
        many: Some([connections.max as usize, port.ops_depth_wr as usize]),
        ..spec(port, entry, stats, keep().map_err(refused(plan, port))?)
    })))
}

/// What a port's queue pair calls the regions, by their places in the plan, its windows, and its
/// signature keys.
type Kept = (Box<[Option<KeptRegion>]>, Box<[KeptWindow]>, Box<[KeptKey]>);

/// The signature keys that a port gets of those that the plan wants.
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

fn keep_regions(
    plan: &Plan,
    port: &Port,
    regions: &[Region],
    mut keep: impl FnMut(&PeerMr) -> Result<KeptRegion, PostStop>,
) -> Result<Box<[Option<KeptRegion>]>, Cause> {
    let mut kept = vec![None; regions.len()];
    for (index, declared) in plan.regions().iter().enumerate() {
        if declared.device == port.device && declared.owner.is_some() {
            kept[index] = Some(keep(regions[index].memory()?)?);
        }
    }
    Ok(kept.into())
}

fn spec(port: &Port, entry: &PortEntry, stats: &Shared<OperationStats>, kept: Kept) -> OperationsSpec {
    let (regions, windows, keys) = kept;
    OperationsSpec {
        port: Shared::clone(&entry.stats),
        stats: Shared::clone(stats),
        transport: transport(port.transport),
        sends: port.tx_depth_wr as usize,
        depth: port.ops_depth_wr as usize,
        many: None,
        regions,
        windows,
        keys,
    }
}

fn refused(plan: &Plan, port: &Port) -> impl Fn(Cause) -> EngineError {
    let (at, port) = (place(plan, port.span), port.name.clone());
    move |source| EngineError::QueuePair { at: at.clone(), port: port.clone(), source }
}

/// The ports that a stage may ask for operations, and the most that one of them carries out at
/// once. `links`: where operations are asked for, as the stage's kind says; a port accepts none
/// that come another way.
pub(crate) fn operation_ports<'a>(
    stats: &Shared<StageStats>,
    links: impl Iterator<Item = &'a Output>,
    sinks: &mut [Sink],
) -> (Vec<OperationPort>, usize) {
    let sink = |link: &Output| match link {
        Output::Sink(place) => Some(*place),
        // An operation goes to one port, and no spread chooses for it.
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
