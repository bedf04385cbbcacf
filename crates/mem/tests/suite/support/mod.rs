//! Shared by several test files: pools on base pages, which every machine has.

use verbline_mem::{PageChoice, PageSize, Pool, PoolSpec, Region, RegionSpec};

pub(crate) fn region(len_bytes: usize) -> Region {
    let spec =
        RegionSpec { name: "test".into(), len_bytes, pages: PageChoice::Exactly(PageSize::Small4K), lock: false };
    Region::map(&spec).expect("base pages")
}

pub(crate) fn spec(packets: u32, data_bytes: u32, headroom_bytes: u32) -> PoolSpec {
    PoolSpec { name: "test".into(), packets, data_bytes, headroom_bytes }
}

pub(crate) fn pool_of(spec: PoolSpec) -> Pool {
    Pool::new(region(Pool::required_bytes(&spec)), spec).expect("a pool that fits its region")
}

pub(crate) fn pool(packets: u32) -> Pool {
    pool_of(spec(packets, 128, 64))
}
