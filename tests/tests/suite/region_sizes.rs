//! The plan's sums and the pool agree on how much memory packets need.

use proptest::prelude::*;
use verbline::mem::{Pool, PoolSpec};
use verbline::plan::{Catalog, Loader, Machine};

/// The plan's sum of the memory that a pool's packets need, without their metadata. Pages are of
/// one byte, so that nothing is rounded up.
fn planned_bytes(packets: u32, data_bytes: u32, headroom_bytes: u32) -> u64 {
    let text = format!(
        "[device.nic]\nprovider = \"soft\"\nname = \"soft0\"\n\n[pool.packets]\ndevice = \"nic\"\npackets = {packets}\n\
         data_bytes = {data_bytes}\nheadroom_bytes = {headroom_bytes}\npages = \"4KiB\"\n\n[lcore.main]\ncpu = 0\n"
    );
    let machine = Machine { cpus: [0].into(), page_bytes: 1, memory_bytes: u64::MAX, ..Machine::detect() };
    let inspected = Loader::new(Catalog::default(), machine).inspect_str("sizes.toml", &text);
    let mut terms = inspected.sums.iter().filter(|sum| sum.unit == "bytes").flat_map(|sum| &sum.terms);
    let packets = terms.find(|term| term.what == "pool.packets" && term.how.is_empty());
    packets.unwrap_or_else(|| panic!("no such term:\n{}\n{}", inspected.explain(), inspected.diagnostics)).value
}

proptest! {
    #[test]
    fn the_plan_counts_what_the_pool_takes(
        packets in 1u32..100_000,
        data_bytes in 64u32..65_536,
        headroom_bytes in 0u32..1_024,
    ) {
        let spec = PoolSpec { name: "packets".into(), packets, data_bytes, headroom_bytes };
        prop_assert_eq!(planned_bytes(packets, data_bytes, headroom_bytes), Pool::required_bytes(&spec) as u64);
    }
}
