//! The NUMA node of each part of a plan's memory, and the lcores far from theirs.
//!
//! Memory belongs on the node that its `node` key names; otherwise on the node of its device, which
//! reads and writes it; otherwise on the node of the lcore that uses it. On a machine of one node,
//! or of unknown nodes, no memory belongs anywhere.

use crate::choices::Provider;
use crate::ids::{DeviceId, LcoreId, PoolId, RegionId};
use crate::machine::note::{Lack, Note, listed};
use crate::machine::number_list::show_number_list;
use crate::plan::{Lcore, Plan};

/// The nodes of a plan's memory, devices and lcores.
#[derive(Debug, Clone)]
pub struct Nodes {
    devices: Vec<Option<u32>>,
    lcores: Vec<Option<u32>>,
    pools: Vec<Option<Home>>,
    regions: Vec<Option<Home>>,
}

/// The node where some memory belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// The node's number.
    pub node: u32,
    /// The reason, e.g. `device.nic is there`.
    pub why: String,
}

/// An lcore that is far from its device or memory.
struct Far {
    /// The message: the lcore's node, and everything on others.
    said: String,
    /// The remedy: a CPU on the other node.
    remedy: String,
}

impl Plan {
    /// Works out the node of each part of memory. `opened` gives the names of the plan's devices,
    /// by their ids, once they are open. Before that it is empty: a device without a name in the
    /// plan then has a known node only if all devices of the machine are on that node.
    pub fn nodes(&self, opened: &[&str]) -> Nodes {
        let is_one = !self.machine.numa.has_several();
        let devices: Vec<_> =
            self.devices.iter().map(|device| self.device_node(device.id, opened).filter(|_| !is_one)).collect();
        let of_lcore = |lcore: &Lcore| self.machine.numa.node_of_cpu(lcore.cpu).filter(|_| !is_one);
        let lcores: Vec<_> = self.lcores.iter().map(of_lcore).collect();
        let home = |key: Option<u32>, device: DeviceId, lcore: Option<LcoreId>| {
            if is_one {
                return None;
            }
            if let Some(node) = key {
                return Some(Home { node, why: "its `node` says so".to_owned() });
            }
            if let Some(node) = devices[device.index()] {
                return Some(Home { node, why: format!("device.{} is there", self[device].name) });
            }
            let lcore = &self[lcore?];
            let node = lcores[lcore.id.index()]?;
            Some(Home { node, why: format!("CPU {} of lcore.{} is there", lcore.cpu, lcore.name) })
        };
        let pools = self.pools.iter().map(|pool| home(pool.node, pool.device, self.lcore_of_pool(pool.id))).collect();
        let owner = |region: &super::Region| region.owner.map(|stage| self[stage].lcore);
        let owned = |region: &super::Region| region.owner.and_then(|_| home(region.node, region.device, owner(region)));
        let regions = self.regions.iter().map(owned).collect();
        Nodes { devices, lcores, pools, regions }
    }

    fn device_node(&self, device: DeviceId, opened: &[&str]) -> Option<u32> {
        let (device, known) = (&self[device], &self.machine.numa.devices);
        if device.provider == Provider::Soft {
            return None;
        }
        if let Some(name) = opened.get(device.id.index()).copied().or(device.device_name.as_deref()) {
            return known.get(name).copied();
        }
        let mut nodes = known.values().copied();
        let first = nodes.next()?;
        nodes.all(|node| node == first).then_some(first)
    }

    /// The lcore that receives into a pool, otherwise the first that its packets reach.
    fn lcore_of_pool(&self, pool: PoolId) -> Option<LcoreId> {
        let receives = self.ports.iter().find(|port| port.pool == Some(pool));
        receives.map(|port| port.lcore).or_else(|| self[pool].lcores.first().copied())
    }
}

impl Nodes {
    /// The node where a pool's packets belong.
    pub fn pool(&self, pool: PoolId) -> Option<&Home> {
        self.pools[pool.index()].as_ref()
    }

    /// The node where a region's memory belongs; `None` also for a region without an owner.
    pub fn region(&self, region: RegionId) -> Option<&Home> {
        self.regions[region.index()].as_ref()
    }

    /// All memory that belongs somewhere, by its name in reports.
    pub fn homes<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = (String, &'a Home)> {
        let pools = plan.pools.iter().map(|pool| (format!("pool.{}", pool.name), self.pool(pool.id)));
        let regions = plan.regions.iter().map(|region| (format!("region.{}", region.name), self.region(region.id)));
        pools.chain(regions).filter_map(|(name, home)| Some((name, home?)))
    }

    /// Notes the lcores whose CPU, device and memory are on different nodes.
    pub fn far(&self, plan: &Plan) -> Option<Note> {
        let far: Vec<_> = plan.lcores.iter().filter_map(|lcore| self.far_from(plan, lcore)).collect();
        let remedy = far.first()?.remedy.clone();
        let said = far.iter().map(|far| far.said.as_str()).collect::<Vec<_>>().join("; ");
        Some(Note { lack: Lack::FarApart, message: format!("{said}: what crosses between nodes takes longer"), remedy })
    }

    /// Finds the device, pools and regions of an lcore that are on other nodes, if any.
    fn far_from(&self, plan: &Plan, lcore: &Lcore) -> Option<Far> {
        let here = self.lcores[lcore.id.index()]?;
        let device = lcore.device.and_then(|id| Some((format!("device.{}", plan[id].name), self.devices[id.index()]?)));
        let pools =
            lcore.pools.iter().filter_map(|id| Some((format!("pool.{}", plan[*id].name), self.pool(*id)?.node)));
        let owned = lcore.stages.iter().flat_map(|stage| &plan[*stage].regions);
        let regions = owned.filter_map(|id| Some((format!("region.{}", plan[*id].name), self.region(*id)?.node)));
        let all: Vec<_> = device.into_iter().chain(pools).chain(regions).filter(|(_, node)| *node != here).collect();
        let (_, there) = all.first()?;
        let mut nodes: Vec<u32> = all.iter().map(|(_, node)| *node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let on = |node: &u32| {
            let names: Vec<_> = all.iter().filter(|(_, at)| at == node).map(|(name, _)| name.clone()).collect();
            format!("{} on node {node}", listed(&names))
        };
        let elsewhere = nodes.iter().map(on).collect::<Vec<_>>().join(", ");
        let (name, cpu) = (&lcore.name, lcore.cpu);
        let said = format!("lcore.{name} is on NUMA node {here} (CPU {cpu}), {elsewhere}");
        let cpus = &plan.machine.numa.nodes[there];
        let taken = |cpu: &u32| plan.lcores.iter().any(|lcore| lcore.cpu == *cpu);
        let free = cpus.iter().find(|cpu| plan.machine.cpus.contains(cpu) && !taken(cpu));
        let remedy = match free {
            Some(cpu) => format!("write `cpu = {cpu}` in [lcore.{name}], a CPU of node {there}"),
            None => {
                let cpus = show_number_list(cpus.iter().copied());
                format!("let the process run on the CPUs of node {there}, `taskset -c {cpus}`, and lcore.{name} on one")
            }
        };
        Some(Far { said, remedy })
    }
}
