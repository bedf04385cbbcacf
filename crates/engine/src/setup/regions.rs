//! Makes the regions of a plan: maps and registers their memory, and sets it in every handle of
//! each [`Region`].

use verbline_mem::{PeerRegion, RegionSpec};
use verbline_plan::{DeviceId, Pages, Plan, Provider, Rights};
use verbline_verbs::Access;
use verbline_verbs::expert::MrOptions;

use crate::errors::error::{EngineError, place};
use crate::operations::region::{Region, access};
use crate::setup::devices::{Devices, Opened};
use crate::setup::memory::{Memory, page_choice};

/// All of the plan's regions, without memory yet.
pub(crate) fn declared(plan: &Plan) -> Vec<Region> {
    plan.regions().iter().map(Region::declared).collect()
}

/// Makes the memory of the regions that a stage owns.
pub(crate) fn make(
    plan: &Plan,
    regions: &[Region],
    devices: &Devices,
    memory: &mut Memory<'_>,
) -> Result<(), EngineError> {
    for (declared, region) in plan.regions().iter().zip(regions).filter(|(declared, _)| declared.owner.is_some()) {
        make_one(plan, declared, region, &devices[declared.device], memory)?;
    }
    Ok(())
}

fn make_one(
    plan: &Plan,
    declared: &verbline_plan::Region,
    region: &Region,
    device: &Opened,
    memory: &mut Memory<'_>,
) -> Result<(), EngineError> {
    let (at, name) = (|| place(plan, declared.span), format!("region.{}", declared.name));
    let spec = RegionSpec {
        name: name.clone(),
        len_bytes: declared.len_bytes as usize,
        pages: page_choice(declared.pages),
        // As for a pool: the kernel pins memory that a kernel device registers.
        lock: plan[declared.device].provider == Provider::Soft,
    };
    let mapped = memory.map(&name, spec, |nodes| nodes.region(declared.id));
    let memory =
        mapped.map_err(|source| EngineError::Region { at: at(), place: name.clone(), source: source.into() })?;
    // Only the declared length: peers must not reach the rest of a huge page.
    let memory = PeerRegion::of_first(memory, declared.len_bytes as usize);
    let len_bytes = memory.len_bytes();
    let options = MrOptions { on_demand: declared.pages == Pages::OnDemand, ..MrOptions::default() };
    let made = device.pd.register_peer_region_with(memory, access(declared.rights), options);
    let made = made.map_err(|source| EngineError::Register {
        at: at(),
        place: name,
        len_bytes,
        device: device.context.name().to_owned(),
        source: source.into(),
    })?;
    region.made(made);
    Ok(())
}

/// The peers' rights on the queue pairs of a device: the sum of their rights on its regions. The
/// keys decide on the memory that they reach.
pub(crate) fn peer_access(plan: &Plan, device: DeviceId) -> Access {
    let rights = plan.regions().iter().filter(|region| region.device == device && region.owner.is_some());
    // Windows of a region open it to peers as far as work requests of this end may go.
    let by_windows = |rights: Rights| match (rights.contains(Rights::BIND), rights.contains(Rights::LOCAL_WRITE)) {
        (false, _) => Rights::NONE,
        (true, false) => Rights::REMOTE_READ,
        (true, true) => Rights::REMOTE_READ | Rights::REMOTE_WRITE,
    };
    let rights = rights.fold(Rights::NONE, |all, region| all | region.rights | by_windows(region.rights));
    let all = access(rights);
    let remote = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    let asked = remote.into_iter().filter(|one| all.contains(*one)).fold(Access::NONE, |all, one| all | one);
    // A queue pair that peers may write through also needs this (ibv_modify_qp(3)).
    if asked == Access::NONE { asked } else { asked | Access::LOCAL_WRITE }
}

/// The most READs and atomics that a port serves its peer, and that it starts itself, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadDepths {
    pub(crate) served: u8,
    pub(crate) started: u8,
}

/// The plan's depths; by default the device's limits if the port has a use for them, and otherwise
/// the default of verbs.
pub(crate) fn read_depths(plan: &Plan, port: &verbline_plan::Port, device: &Opened) -> ReadDepths {
    let access = peer_access(plan, port.device);
    let serves = access.contains(Access::REMOTE_READ) || access.contains(Access::REMOTE_ATOMIC);
    let said = port.attributes;
    let depth = |used: bool, limit: u32| if used { u8::try_from(limit).unwrap_or(u8::MAX).max(1) } else { 1 };
    ReadDepths {
        served: said.max_dest_rd_atomic.unwrap_or_else(|| depth(serves, device.attr.max_qp_rd_atomic)),
        started: said.max_rd_atomic.unwrap_or_else(|| depth(port.ops_depth_wr > 0, device.attr.max_qp_init_rd_atomic)),
    }
}
