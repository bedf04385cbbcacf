//! Maps the memory of pools and regions: on the plan's pages and NUMA node, locked if possible. A
//! shortfall is no error: it is noted.
//!
//! The kernel is told the node before the first page is touched (`verbline_mem::numa`). On machines
//! with one node it is told nothing.

use verbline_mem::{
    Fallback, NodeControl, NodeFound, NodeOutcome, NodeWish, PageChoice, PageSize, Region, RegionError, RegionSpec,
    Shortage,
};
use verbline_plan::{Home, Lack, Machine, MemoryGrant, Nodes, Note, Pages, Plan};

/// Maps memory, and records shortfalls.
pub(crate) struct Memory<'a> {
    nodes: Nodes,
    control: &'a dyn NodeControl,
    shortfall: Shortfall,
}

impl<'a> Memory<'a> {
    /// `opened`: the names of the plan's devices, by their ids.
    pub(crate) fn new(plan: &Plan, opened: &[&str], control: &'a dyn NodeControl) -> Memory<'a> {
        Memory { nodes: plan.nodes(opened), control, shortfall: Shortfall::default() }
    }

    /// Maps the memory of a pool or a region, which notes call `name`, at the home that it finds:
    /// locked if this process may lock it, and swappable otherwise.
    pub(crate) fn map(
        &mut self,
        name: &str,
        mut spec: RegionSpec,
        home: impl FnOnce(&Nodes) -> Option<&Home>,
    ) -> Result<Region, RegionError> {
        let home = home(&self.nodes);
        let wish = home.map(|home| NodeWish { node: home.node, control: self.control });
        let (region, refusal) = match Region::map_near(&spec, wish) {
            Err(refusal @ RegionError::Lock { .. }) => {
                spec.lock = false;
                (Region::map_near(&spec, wish)?, Some(refusal))
            }
            done => (done?, None),
        };
        self.shortfall.note(name, &region, refusal);
        if let (Some(home), Some(outcome)) = (home, region.node()) {
            self.shortfall.far.extend(far(name, home, outcome, region.page_size()));
        }
        Ok(region)
    }

    /// The total shortage of hugepages.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        self.shortfall.shortage()
    }

    pub(crate) fn notes(&self, plan: &Plan) -> Vec<Note> {
        self.shortfall.notes().into_iter().chain(self.nodes.far(plan)).collect()
    }
}

/// Memory that is on the wrong node.
struct Far {
    said: String,
    remedy: String,
}

/// The fault of memory on the wrong node, if it is.
fn far(name: &str, home: &Home, outcome: &NodeOutcome, page: PageSize) -> Option<Far> {
    let Home { node, why } = home;
    match &outcome.found {
        NodeFound::There | NodeFound::Unknown => None,
        NodeFound::Elsewhere { node: other } => Some(Far {
            said: format!("{name} lies in part or whole on NUMA node {other}, and belongs on node {node}: {why}"),
            remedy: match page {
                PageSize::Small4K => format!("free memory on node {node}: `numactl -H` shows what it has"),
                huge => format!(
                    "as root, raise the number in /sys/devices/system/node/node{node}/hugepages/hugepages-{}kB/\
                     nr_hugepages",
                    huge.bytes() >> 10
                ),
            },
        }),
        NodeFound::Refused { errno } => {
            let error = std::io::Error::from_raw_os_error(*errno);
            let remedy = match error.kind() {
                // The node exists: the plan was checked against this machine's nodes.
                std::io::ErrorKind::InvalidInput => {
                    format!("let the process use memory of node {node}: its cgroup's cpuset.mems, or `numactl -m`")
                }
                _ => "allow mbind(2) in the seccomp filter of this container (`--security-opt seccomp=PROFILE`)".into(),
            };
            let said =
                format!("{name} belongs on NUMA node {node}, {why}, and the kernel does not put it there: {error}");
            Some(Far { said, remedy })
        }
    }
}

/// The pools and regions that are not on their hugepages, and those that could not be locked, as
/// one note each.
#[derive(Default)]
struct Shortfall {
    on_small_pages: Vec<String>,
    /// Hugepages of that size, wanted in all.
    wanted: Option<(PageSize, u64)>,
    unlocked: Vec<String>,
    /// The bytes of all unlocked memory, and the reason for the first.
    unlocked_bytes: usize,
    refusal: Option<RegionError>,
    far: Vec<Far>,
}

impl Shortfall {
    fn on_small_pages(&mut self, name: &str, fallback: &Fallback) {
        self.on_small_pages.push(name.to_owned());
        let (page, others) = self.wanted.unwrap_or((fallback.shortage.page, 0));
        self.wanted = Some((page, others.saturating_add(fallback.shortage.pages)));
    }

    fn unlocked(&mut self, name: &str, refusal: RegionError) {
        self.unlocked.push(name.to_owned());
        if let RegionError::Lock { len_bytes, .. } = &refusal {
            self.unlocked_bytes += len_bytes;
        }
        self.refusal.get_or_insert(refusal);
    }

    /// Notes the shortfalls of this pool's or region's memory.
    fn note(&mut self, name: &str, memory: &Region, refusal: Option<RegionError>) {
        if let Some(fallback) = memory.fallback() {
            self.on_small_pages(name, fallback);
        }
        if let Some(refusal) = refusal {
            self.unlocked(name, refusal);
        }
    }

    /// The total shortage of hugepages.
    fn shortage(&self) -> Option<Shortage> {
        let shortage = self.wanted.map(|(page, pages)| Shortage::of(page, pages))?;
        Some(as_granted(shortage, &Machine::detect().hugepage_grants))
    }

    fn notes(&self) -> Vec<Note> {
        let pages = self
            .shortage()
            .map(|Shortage { why, remedy, .. }| Note::hugepages(&self.on_small_pages, "4 KiB", &why, &remedy));
        let locks = self.refusal.as_ref().map(|refusal| match refusal {
            RegionError::Lock { source, remedy, .. } => {
                let why = format!("cannot lock {} bytes: {source}", self.unlocked_bytes);
                Note::locked_memory(&self.unlocked, &why, remedy)
            }
            other => Note::locked_memory(&self.unlocked, &other.to_string(), "free memory"),
        });
        let far = self.far.first().map(|first| Note {
            lack: Lack::FarMemory,
            message: self.far.iter().map(|far| far.said.as_str()).collect::<Vec<_>>().join("; "),
            remedy: first.remedy.clone(),
        });
        pages.into_iter().chain(locks).chain(far).collect()
    }
}

/// The shortage, where a cgroup grants fewer pages than are wanted and free: more free ones would
/// not help.
fn as_granted(shortage: Shortage, grants: &[(u64, MemoryGrant)]) -> Shortage {
    let Shortage { page, pages, .. } = shortage;
    let page_bytes = page.bytes() as u64;
    let grant = grants.iter().find(|(size, grant)| *size == page_bytes && grant.bytes / page_bytes < pages);
    let Some((_, grant)) = grant else { return shortage };
    let noun = if pages == 1 { "hugepage" } else { "hugepages" };
    Shortage {
        why: format!("{pages} {noun} of {page} needed, and a cgroup grants {}", grant.bytes / page_bytes),
        remedy: format!("a cgroup grants no more: {} as root", grant.remedy),
        ..shortage
    }
}

pub(crate) fn page_choice(pages: Pages) -> PageChoice {
    match pages {
        Pages::Auto => PageChoice::Auto,
        Pages::Small4K => PageChoice::Exactly(PageSize::Small4K),
        Pages::Huge2M => PageChoice::Exactly(PageSize::Huge2M),
        Pages::Huge1G => PageChoice::Exactly(PageSize::Huge1G),
        Pages::OnDemand => PageChoice::OnDemand,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};

    use verbline_mem::Pool;
    use verbline_plan::{Catalog, Loader, Numa, StageKind, StageSpec};

    use super::*;
    use crate::setup::devices::{open_devices, open_pools};
    use crate::setup::regions;

    #[test]
    fn what_is_not_locked_is_told_with_the_bytes_of_all_of_it() {
        let refusal = |len_bytes| RegionError::Lock {
            region: "any".into(),
            len_bytes,
            source: std::io::ErrorKind::OutOfMemory.into(),
            remedy: "raise it".into(),
        };
        let mut shortfall = Shortfall::default();
        shortfall.unlocked("pool.a", refusal(4096));
        shortfall.unlocked("region.b", refusal(8192));
        let [note] = &shortfall.notes()[..] else { panic!("{:?}", shortfall.notes()) };
        assert!(note.message.starts_with("pool.a and region.b may be swapped out"), "{note}");
        assert!(note.message.contains("cannot lock 12288 bytes: "), "{note}");
    }

    /// A run in a cgroup with a limit of hugetlb was told to reserve more pages, though enough were
    /// free.
    #[test]
    fn where_a_cgroup_limits_hugepages_it_is_the_one_that_is_named() {
        let shortage = Shortage {
            page: PageSize::Huge2M,
            pages: 11,
            why: "11 hugepages of 2 MiB needed, 8 of 8 available".into(),
            remedy: "run `sysctl -w vm.nr_hugepages=11` as root".into(),
        };
        let grants =
            |size: u64, bytes| [(size, MemoryGrant { bytes, limit_bytes: bytes, remedy: "`echo max`".into() })];
        let told = as_granted(shortage.clone(), &grants(2 << 20, 5 << 20));
        assert_eq!(told.why, "11 hugepages of 2 MiB needed, and a cgroup grants 2");
        assert_eq!(told.remedy, "a cgroup grants no more: `echo max` as root");
        for others in [grants(1 << 30, 0), grants(2 << 20, 22 << 20)] {
            assert_eq!(as_granted(shortage.clone(), &others), shortage);
        }
    }

    /// Records the calls to the kernel, and answers like a kernel whose pages are on node 0.
    #[derive(Debug, Default)]
    struct Recorder {
        wishes: RefCell<Vec<(std::ops::Range<usize>, u32)>>,
        refuses: bool,
    }

    impl NodeControl for Recorder {
        fn prefer(&self, addresses: std::ops::Range<usize>, node: u32) -> std::io::Result<()> {
            self.wishes.borrow_mut().push((addresses, node));
            if self.refuses { Err(std::io::Error::from_raw_os_error(1)) } else { Ok(()) }
        }

        fn nodes_of(&self, addresses: &[usize]) -> std::io::Result<Vec<Option<u32>>> {
            Ok(vec![Some(0); addresses.len()])
        }
    }

    const PLAN: &str = r#"
        [device.nic]
        provider = "soft"
        [pool.near]
        device = "nic"
        packets = 1024
        data_bytes = 512
        pages = "4KiB"
        [pool.here]
        device = "nic"
        packets = 8
        data_bytes = 64
        pages = "4KiB"
        node = 0
        [region.table]
        device = "nic"
        bytes = 65_536
        pages = "4KiB"
        [lcore.a]
        cpu = "allowed:0"
        [port.feed]
        lcore = "a"
        device = "nic"
        pool = "near"
        transport = "ud"
        join = ["239.1.1.1"]
        rx_depth_wr = 64
        next = "stage.sink"
        [stage.sink]
        use = "sink"
        lcore = "a"
        regions = ["table"]
    "#;

    /// The plan on a machine whose first CPU is on node 1, with or without a node 0.
    fn plan(has_two_nodes: bool) -> Plan {
        let sink = StageKind { name: "sink", spec: StageSpec::default(), needs: None };
        let catalog = Catalog { kinds: vec![sink], ..Catalog::default() };
        let mut machine = Machine::detect();
        let mut nodes = BTreeMap::from([(1, machine.cpus.clone())]);
        let text = if has_two_nodes { PLAN.to_owned() } else { PLAN.replace("node = 0", "node = 1") };
        nodes.extend(has_two_nodes.then(|| (0, BTreeSet::new())));
        machine.numa = Numa { nodes, ..Numa::default() };
        Loader::new(catalog, machine).load_str("plan.toml", &text).unwrap_or_else(|faults| panic!("{faults}"))
    }

    /// Makes the memory of a plan. Returns the notes, and the addresses of the pools.
    fn made(plan: &Plan, control: &Recorder) -> (Vec<Note>, Vec<std::ops::Range<usize>>) {
        let devices = open_devices(plan).expect("a device");
        let mut memory = Memory::new(plan, &devices.names(), control);
        let pools = open_pools(plan, &devices, &mut memory).expect("pools");
        let regions = regions::declared(plan);
        regions::make(plan, &regions, &devices, &mut memory).expect("regions");
        let of_pool = |pool: &Pool| {
            let start = pool.region().as_ptr().addr();
            start..start + pool.region().len_bytes()
        };
        (memory.notes(plan), pools.all().iter().map(of_pool).collect())
    }

    #[test]
    fn each_pool_and_region_goes_to_the_node_of_its_key_or_of_its_lcore() {
        let (plan, control) = (plan(true), Recorder::default());
        let (notes, pools) = made(&plan, &control);
        let wishes = control.wishes.borrow();
        let [near, here, table] = &wishes[..] else { panic!("{wishes:?}") };
        assert_eq!([near, here], [&(pools[0].clone(), 1), &(pools[1].clone(), 0)]);
        assert_eq!((table.0.len(), table.1), (65_536, 1));
        // All memory lies on node 0: two of the three are elsewhere.
        let far: Vec<_> = notes.iter().filter(|note| note.lack == Lack::FarMemory).collect();
        let [note] = &far[..] else { panic!("{notes:?}") };
        let said = "pool.near lies in part or whole on NUMA node 0, and belongs on node 1: CPU ";
        assert!(note.message.starts_with(said) && note.message.contains("region.table lies"), "{note}");
        assert!(!note.message.contains("pool.here") && note.remedy.contains("`numactl -H`"), "{note}");
    }

    #[test]
    fn a_kernel_that_refuses_is_noted_with_what_to_allow() {
        let control = Recorder { refuses: true, ..Recorder::default() };
        let (notes, _) = made(&plan(true), &control);
        let note = notes.iter().find(|note| note.lack == Lack::FarMemory).expect("a note");
        assert!(note.message.contains("pool.here belongs on NUMA node 0, its `node` says so"), "{note}");
        assert!(note.remedy.contains("allow mbind(2)"), "{note}");
    }

    #[test]
    fn on_one_node_the_kernel_is_told_nothing() {
        let control = Recorder::default();
        let (notes, _) = made(&plan(false), &control);
        assert!(control.wishes.borrow().is_empty());
        assert!(notes.iter().all(|note| ![Lack::FarMemory, Lack::FarApart].contains(&note.lack)), "{notes:?}");
    }
}
