//! The machine's NUMA nodes: the CPUs and RDMA devices near each node's memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::machine::number_list::parse_number_list;

/// NUMA nodes (Documentation/ABI/stable/sysfs-devices-node).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Numa {
    /// The nodes with memory, each with its CPUs. Empty where /sys does not list them, or the
    /// kernel knows no nodes.
    pub nodes: BTreeMap<u32, BTreeSet<u32>>,
    /// The node of each RDMA device of the kernel, by the device's name. A device whose node the
    /// firmware does not report is left out.
    pub devices: BTreeMap<String, u32>,
}

impl Numa {
    /// Reads `sys`, the mount point of sysfs(5). A file that is absent or malformed is ignored.
    pub(crate) fn detect(sys: &Path) -> Numa {
        let folder = sys.join("devices/system/node");
        let list = |file: &str| Some(parse_number_list(&fs::read_to_string(folder.join(file)).ok()?));
        let numbers = list("has_memory").unwrap_or_default();
        let cpus = |node: u32| (node, list(&format!("node{node}/cpulist")).unwrap_or_default());
        let nodes: BTreeMap<_, _> = numbers.into_iter().map(cpus).collect();
        let node_of = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path().join("device/numa_node")).ok()?;
            // -1: the firmware does not report it.
            let node = text.trim().parse().ok().filter(|node| nodes.contains_key(node))?;
            Some((entry.file_name().into_string().ok()?, node))
        };
        let devices = fs::read_dir(sys.join("class/infiniband")).into_iter().flatten().flatten();
        let devices = devices.filter_map(node_of).collect();
        Numa { nodes, devices }
    }

    /// Whether the place of memory makes a difference.
    pub(crate) fn has_several(&self) -> bool {
        self.nodes.len() > 1
    }

    /// The node of a CPU; `None` for a CPU of a node without memory.
    pub(crate) fn node_of_cpu(&self, cpu: u32) -> Option<u32> {
        self.nodes.iter().find(|(_, cpus)| cpus.contains(&cpu)).map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::mounted::mounted;

    #[test]
    fn two_sockets_are_read_with_their_cpus_and_cards() {
        let sys = mounted(&[
            ("devices/system/node/has_memory", "0-1\n"),
            ("devices/system/node/node0/cpulist", "0-1,4\n"),
            ("devices/system/node/node1/cpulist", "2-3\n"),
            ("devices/system/node/node2/cpulist", "5\n"),
            ("class/infiniband/mlx5_0/device/numa_node", "1\n"),
            ("class/infiniband/rxe0/device/numa_node", "-1\n"),
            ("class/infiniband/odd/device/numa_node", "7\n"),
            ("class/infiniband/bare/node_guid", "1\n"),
        ]);
        let numa = Numa::detect(sys.path());
        assert_eq!(numa.nodes, BTreeMap::from([(0, BTreeSet::from([0, 1, 4])), (1, BTreeSet::from([2, 3]))]));
        assert_eq!(numa.devices, BTreeMap::from([("mlx5_0".to_owned(), 1)]));
        assert!(numa.has_several());
        assert_eq!([4, 3, 5].map(|cpu| numa.node_of_cpu(cpu)), [Some(0), Some(1), None]);
    }

    #[test]
    fn without_sys_nothing_is_known() {
        let numa = Numa::detect(Path::new("/nowhere"));
        assert_eq!(numa, Numa::default());
        assert!(!numa.has_several());
    }
}
