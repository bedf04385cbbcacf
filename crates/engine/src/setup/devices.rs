//! Opens the plan's devices and checks the plan against their limits; makes the pools on them, and
//! the lcores' completion queues.

use std::ops::Index;

use verbline_mem::{Pool, PoolSpec, RegionSpec};
use verbline_plan::{DeviceId, Lcore, Plan, PoolId, Provider, Transport};
use verbline_verbs::{
    Context, Device, DeviceError, ProtectionDomain,
    attr::{Capability, DeviceAttr, PortAttr, PortState},
};

use crate::control::device_events::{Watched, WatchedLcore, WatchedPort};
use crate::errors::error::{Cause, EngineError, place};
use crate::idle::wake_set::CqSource;
use crate::setup::memory::{Memory, page_choice};
use crate::setup::select_device::{self, Candidate, PickError};
use crate::stats::counter::Shared;
use crate::stats::snapshot::{PortEntry, RunStats};

/// A device of the plan.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) attr: DeviceAttr,
    pub(crate) port: PortAttr,
    /// The GID table entry of its queue pairs.
    pub(crate) gid_index: u8,
}

/// The devices, by their ids in the plan.
#[derive(Debug)]
pub(crate) struct Devices(Vec<Opened>);

impl Devices {
    /// Their own names, by their ids in the plan.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|opened| opened.context.name()).collect()
    }

    /// The devices and lcores whose events are watched. `cqs`: the completion queues of the lcores.
    pub(crate) fn watched(&self, plan: &Plan, stats: &RunStats, cqs: &[Option<u64>]) -> Vec<Watched> {
        let watched_port = |port: &PortEntry| WatchedPort {
            name: port.known.name.clone(),
            stats: Shared::clone(&port.stats),
            is_many: port.connections.is_some(),
        };
        let shares = |port: &verbline_plan::Port| port.connections.as_ref().is_some_and(|many| many.rx_shared_wr > 0);
        let watched = |(declared, opened): (&verbline_plan::Device, &Opened)| Watched {
            device: opened.context.name().to_owned(),
            plan_name: declared.name.clone(),
            port_num: declared.port_num,
            shares_receives: plan.ports().iter().any(|port| port.device == declared.id && shares(port)),
            events: opened.context.async_events(),
            lcores: (plan.lcores().iter())
                .filter(|lcore| lcore.device == Some(declared.id))
                .map(|lcore| WatchedLcore {
                    index: lcore.id.index(),
                    name: lcore.name.clone(),
                    cq: cqs[lcore.id.index()],
                    ports: lcore.ports.iter().map(|id| watched_port(&stats.ports[id.index()])).collect(),
                })
                .collect(),
        };
        plan.devices().iter().zip(&self.0).map(watched).collect()
    }
}

impl Index<DeviceId> for Devices {
    type Output = Opened;

    fn index(&self, id: DeviceId) -> &Opened {
        &self.0[id.index()]
    }
}

/// The pools, by their ids in the plan.
#[derive(Debug)]
pub(crate) struct Pools(Vec<Pool>);

impl Pools {
    pub(crate) fn all(&self) -> &[Pool] {
        &self.0
    }
}

impl Index<PoolId> for Pools {
    type Output = Pool;

    fn index(&self, id: PoolId) -> &Pool {
        &self.0[id.index()]
    }
}

/// Opens every device and checks the plan's depths against its limits.
pub(crate) fn open_devices(plan: &Plan) -> Result<Devices, EngineError> {
    let devices = plan.devices().iter().map(|device| open(plan, device)).collect::<Result<_, _>>()?;
    let devices = Devices(devices);
    check_limits(plan, &devices)?;
    Ok(devices)
}

/// Maps and registers every pool.
pub(crate) fn open_pools(plan: &Plan, devices: &Devices, memory: &mut Memory<'_>) -> Result<Pools, EngineError> {
    let open = |pool| open_pool(plan, pool, devices, memory);
    Ok(Pools(plan.pools().iter().map(open).collect::<Result<_, _>>()?))
}

/// The completion queue of an lcore and the channel that wakes it; `None` for an lcore without
/// ports.
pub(crate) fn completion_source(
    plan: &Plan,
    lcore: &Lcore,
    devices: &Devices,
) -> Result<Option<CqSource>, EngineError> {
    let Some(device) = lcore.device else { return Ok(None) };
    let Opened { context, attr, .. } = &devices[device];
    if lcore.cq_depth_wc > attr.max_cqe {
        return Err(EngineError::DeviceLimit {
            at: place(plan, lcore.span),
            place: format!("lcore.{}", lcore.name),
            key: "cq_depth_wc (the sum of all that can complete into it)",
            asked: lcore.cq_depth_wc.into(),
            limit: attr.max_cqe.into(),
            device: context.name().to_owned(),
        });
    }
    let refused =
        |source| EngineError::CompletionQueue { at: place(plan, lcore.span), lcore: lcore.name.clone(), source };
    let channel = context.create_comp_channel().map_err(|error| refused(error.into()))?;
    let cq = context.create_cq(lcore.cq_depth_wc, Some(&channel)).map_err(|error| refused(error.into()))?;
    Ok(Some(CqSource { cq, channel }))
}

fn open(plan: &Plan, device: &verbline_plan::Device) -> Result<Opened, EngineError> {
    let at = || place(plan, device.span);
    let unfit = |source| EngineError::Device { at: at(), device: device.name.clone(), source };
    let context = match &device.device_name {
        Some(name) => Device::find(provider(device.provider), name)
            .and_then(|found| found.open())
            .map_err(|error| unfit(error.into()))?,
        None => open_the_one(provider(device.provider), device.port_num).map_err(unfit)?,
    };
    // An address that peers can reach is also the source of connections.
    let own_gid = match device.address {
        Some(address) => Some(context.set_address(address).map_err(|error| unfit(error.into()))?),
        None => None,
    };
    let refused = |source: verbline_verbs::VerbError| EngineError::DeviceVerb {
        at: at(),
        device: device.name.clone(),
        source: source.into(),
    };
    let attr = context.query_device().map_err(refused)?;
    let port = context.query_port(device.port_num).map_err(refused)?;
    if port.state != PortState::Active {
        return Err(EngineError::PortNotActive {
            at: at(),
            device: device.name.clone(),
            name: context.name().to_owned(),
            port_num: device.port_num,
            state: format!("{:?}", port.state),
            remedy: format!(
                "bring its link up (`ip link`, `rdma link`), or name another `port`; the device has {}",
                attr.ports
            ),
        });
    }
    let gid = match device.gid_index.or(own_gid) {
        // Fails now for a GID index that does not exist, and not later in a connection.
        Some(index) => context.query_gid_entry(device.port_num, index).map_err(refused)?,
        None => select_device::gid(&context.gids(device.port_num).map_err(refused)?).ok_or_else(|| {
            unfit(PickError::NoGid { device: context.name().to_owned(), port_num: device.port_num }.into())
        })?,
    };
    tracing::info!(
        "device.{}: {}, port {}, by GID {} ({})",
        device.name,
        context.name(),
        device.port_num,
        gid.index,
        gid.gid
    );
    let pd = context.alloc_pd().map_err(refused)?;
    Ok(Opened { context, pd, attr, port, gid_index: gid.index })
}

/// Opens the device for a plan that names none.
fn open_the_one(provider: verbline_verbs::Provider, port_num: u8) -> Result<Context, Cause> {
    let (mut candidates, mut contexts) = (Vec::new(), Vec::new());
    for device in Device::list(provider)? {
        let opened = device.open();
        candidates.push(Candidate { name: device.name().to_owned(), fault: fault(&opened, port_num) });
        contexts.push(opened);
    }
    let index = select_device::device(provider, port_num, &candidates)?;
    Ok(contexts.swap_remove(index)?)
}

/// The reason why a port carries no traffic, if any.
fn fault(opened: &Result<Context, DeviceError>, port_num: u8) -> Option<String> {
    let context = match opened {
        Ok(context) => context,
        Err(error) => return Some(error.to_string()),
    };
    match context.query_port(port_num) {
        Ok(port) if port.state == PortState::Active => None,
        Ok(port) => Some(format!("{:?}", port.state)),
        Err(_) => Some(format!("no port {port_num}")),
    }
}

pub(crate) fn provider(provider: Provider) -> verbline_verbs::Provider {
    match provider {
        Provider::Kernel => verbline_verbs::Provider::Kernel,
        Provider::Soft => verbline_verbs::Provider::Soft,
    }
}

pub(super) fn transport(transport: Transport) -> verbline_verbs::Transport {
    match transport {
        Transport::Rc => verbline_verbs::Transport::Rc,
        Transport::Uc => verbline_verbs::Transport::Uc,
        Transport::Ud => verbline_verbs::Transport::Ud,
    }
}

/// Checks the plan's values of ports against their devices' limits.
fn check_limits(plan: &Plan, devices: &Devices) -> Result<(), EngineError> {
    for port in plan.ports() {
        let Opened { context, attr, port: active, .. } = &devices[port.device];
        let sends = ("tx_depth_wr (with `ops_depth_wr`)", port.tx_depth_wr + port.ops_depth_wr);
        let sends = if port.ops_depth_wr > 0 { sends } else { ("tx_depth_wr", sends.1) };
        let said = port.attributes;
        let fastest = fastest(plan, port, &devices[port.device])?;
        let started = ("max_rd_atomic", said.max_rd_atomic.map_or(0, u32::from));
        let served = ("max_dest_rd_atomic", said.max_dest_rd_atomic.map_or(0, u32::from));
        for ((key, asked), limit) in [
            (("rx_depth_wr", port.rx_depth_wr), attr.max_qp_wr),
            (sends, attr.max_qp_wr),
            (("path_mtu", said.path_mtu_bytes.unwrap_or(0)), active.active_mtu.bytes()),
            (started, attr.max_qp_init_rd_atomic),
            (served, attr.max_qp_rd_atomic),
            (("max_sge", port.max_sge), attr.max_sge.max(1)),
            (("rate_limit", said.rate_limit_kbit_per_s.unwrap_or(0)), fastest),
        ] {
            if asked > limit {
                return Err(EngineError::DeviceLimit {
                    at: place(plan, port.span),
                    place: format!("port.{}", port.name),
                    key,
                    asked: asked.into(),
                    limit: limit.into(),
                    device: context.name().to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// The greatest rate limit of the port's queue pairs. A device without rate limits is refused here,
/// before a connection fails for it.
fn fastest(plan: &Plan, port: &verbline_plan::Port, device: &Opened) -> Result<u32, EngineError> {
    let Opened { context, attr, .. } = device;
    if port.attributes.rate_limit_kbit_per_s.is_some() {
        Capability::RateLimit(transport(port.transport)).check(context.name(), attr).map_err(|lacking| {
            let (at, port) = (place(plan, port.span), port.name.clone());
            EngineError::QueuePair { at, port, source: lacking.into() }
        })?;
    }
    Ok(attr.rate_limit.max_kbit_per_s)
}

fn open_pool(
    plan: &Plan,
    pool: &verbline_plan::Pool,
    devices: &Devices,
    memory: &mut Memory<'_>,
) -> Result<Pool, EngineError> {
    let at = || place(plan, pool.span);
    let spec = PoolSpec {
        name: pool.name.clone(),
        packets: pool.packets,
        data_bytes: pool.data_bytes,
        headroom_bytes: pool.headroom_bytes,
    };
    let region = RegionSpec {
        name: pool.name.clone(),
        len_bytes: Pool::required_bytes(&spec),
        pages: page_choice(pool.pages),
        // The kernel pins memory that a kernel device registers: locking it as well would count it
        // twice against the limit.
        lock: plan[pool.device].provider == Provider::Soft,
    };
    let name = format!("pool.{}", pool.name);
    let region = memory.map(&name, region, |nodes| nodes.pool(pool.id));
    let region =
        region.map_err(|source| EngineError::Region { at: at(), place: name.clone(), source: source.into() })?;
    let len_bytes = region.len_bytes();
    let made = Pool::new(region, spec).map_err(|source| EngineError::Pool {
        at: at(),
        pool: pool.name.clone(),
        source: source.into(),
    })?;
    let Opened { context, pd, .. } = &devices[pool.device];
    pd.register_pool(&made).map_err(|source| EngineError::Register {
        at: at(),
        place: name,
        len_bytes,
        device: context.name().to_owned(),
        source: source.into(),
    })?;
    Ok(made)
}
