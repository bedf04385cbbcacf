//! NUMA nodes: the range reported to the kernel, none of whose pages is there yet.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use verbline_mem::{
    KernelNodes, NodeControl, NodeFound, NodeOutcome, NodeWish, PageChoice, PageSize, Region, RegionSpec,
};

/// Records the requests, and answers like a kernel whose pages are on the nodes `lies_on`, in turn.
#[derive(Debug, Default)]
struct Recorder {
    wishes: RefCell<Vec<(Range<usize>, u32)>>,
    looked_at: RefCell<Vec<usize>>,
    lies_on: Vec<Option<u32>>,
    refusal: Option<i32>,
}

impl NodeControl for Recorder {
    fn prefer(&self, addresses: Range<usize>, node: u32) -> io::Result<()> {
        assert_eq!(pages_there(&addresses), 0, "no page may be there before the kernel is told");
        self.wishes.borrow_mut().push((addresses, node));
        self.refusal.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn nodes_of(&self, addresses: &[usize]) -> io::Result<Vec<Option<u32>>> {
        self.looked_at.borrow_mut().extend(addresses);
        Ok(self.lies_on.iter().copied().cycle().take(addresses.len()).collect())
    }
}

/// The pages of these addresses that are in memory (bit 63 of proc_pid_pagemap(5)).
fn pages_there(addresses: &Range<usize>) -> usize {
    let pagemap = File::open("/proc/self/pagemap").unwrap();
    let there = |page: usize| {
        let mut entry = [0; 8];
        pagemap.read_exact_at(&mut entry, (page / 4096 * 8) as u64).unwrap();
        u64::from_ne_bytes(entry) >> 63 == 1
    };
    addresses.clone().step_by(4096).filter(|page| there(*page)).count()
}

fn spec(pages: PageChoice) -> RegionSpec {
    RegionSpec { name: "near".into(), len_bytes: 9 << 20, pages, lock: false }
}

fn map(pages: PageChoice, control: &Recorder) -> Region {
    Region::map_near(&spec(pages), Some(NodeWish { node: 1, control })).unwrap()
}

fn outcome(found: NodeFound) -> Option<NodeOutcome> {
    Some(NodeOutcome { wished: 1, found })
}

#[test]
fn the_kernel_is_told_of_the_whole_region_before_its_first_touch() {
    for pages in [PageChoice::Exactly(PageSize::Small4K), PageChoice::Auto, PageChoice::OnDemand] {
        let control = Recorder { lies_on: vec![Some(1)], ..Recorder::default() };
        let region = map(pages, &control);
        let start = region.as_ptr().addr();
        let whole = start..start + region.len_bytes();
        // If hugepages run out, the mapping that could not be filled was reported as well.
        assert_eq!(control.wishes.borrow().last(), Some(&(whole.clone(), 1)));
        let is_filled = pages != PageChoice::OnDemand;
        assert_eq!(pages_there(&whole) > 0, is_filled);
        assert_eq!(region.node().cloned(), outcome(if is_filled { NodeFound::There } else { NodeFound::Unknown }));
        let looked_at = control.looked_at.borrow();
        assert_eq!(looked_at.is_empty(), !is_filled);
        assert!(looked_at.iter().all(|page| whole.contains(page)) && looked_at.len() <= 1024);
        if is_filled {
            let last = *looked_at.last().unwrap();
            assert!(
                looked_at[0] == start && whole.end - last <= 3 * region.page_size().bytes(),
                "it is looked at whole"
            );
        }
    }
}

#[test]
fn memory_that_came_from_elsewhere_is_found() {
    let some_elsewhere = Recorder { lies_on: vec![Some(1), Some(1), Some(0)], ..Recorder::default() };
    let region = map(PageChoice::Exactly(PageSize::Small4K), &some_elsewhere);
    assert_eq!(region.node().cloned(), outcome(NodeFound::Elsewhere { node: 0 }));
    let untold = Recorder { lies_on: vec![None], ..Recorder::default() };
    let region = map(PageChoice::Exactly(PageSize::Small4K), &untold);
    assert_eq!(region.node().cloned(), outcome(NodeFound::Unknown));
}

/// Like under a seccomp filter: the memory is where it is, and the refusal is reported.
#[test]
fn a_refusal_costs_nothing_but_the_node() {
    let control = Recorder { lies_on: vec![Some(0)], refusal: Some(1), ..Recorder::default() };
    let region = map(PageChoice::Exactly(PageSize::Small4K), &control);
    assert_eq!(region.node().cloned(), outcome(NodeFound::Refused { errno: 1 }));
    assert!(control.looked_at.borrow().is_empty());
    assert_eq!(pages_there(&(region.as_ptr().addr()..region.as_ptr().addr() + region.len_bytes())), (9 << 20) / 4096);
}

#[test]
fn without_a_wish_nobody_is_told() {
    let region = Region::map(&spec(PageChoice::Exactly(PageSize::Small4K))).unwrap();
    assert!(region.node().is_none());
}

/// The real calls, on this machine's nodes.
#[test]
fn this_kernel_is_told_and_tells() {
    let near = |node| {
        let wish = NodeWish { node, control: &KernelNodes };
        let region = Region::map_near(&spec(PageChoice::Exactly(PageSize::Small4K)), Some(wish)).unwrap();
        region.node().cloned().unwrap()
    };
    let online = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    if online.trim() != "0" {
        println!("skipped: the nodes here are `{}`, and not `0`", online.trim());
        return;
    }
    match near(0).found {
        NodeFound::Refused { errno: 1 } => println!("skipped: mbind(2) is not permitted here"),
        found => assert_eq!(found, NodeFound::There),
    }
    for node in [900, 1024, u32::MAX] {
        let outcome = near(node);
        assert!(matches!(outcome.found, NodeFound::Refused { .. }) && outcome.wished == node, "{outcome:?}");
    }
}
