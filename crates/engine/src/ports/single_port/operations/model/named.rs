//! The regions, windows and keys that operations of the model name, besides packets.

use verbline_mem::{PageChoice, PageSize, PeerRegion, Region, RegionSpec};
use verbline_verbs::rdma::KeepSpec;
use verbline_verbs::signature::{BlockSignature, BlockSize, Crc, CrcKind, Domain, Seed};
use verbline_verbs::{Access, QueuePair};

use crate::rig::Rig;

/// Makes and keeps a region, a window and a signature key for operations to name.
pub(in crate::ports) fn keep(rig: &Rig, qp: &mut QueuePair) {
    let pages = PageChoice::Exactly(PageSize::Small4K);
    let region = Region::map(&RegionSpec { name: "model".into(), len_bytes: 4096, pages, lock: false }).unwrap();
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = rig.pd.register_peer_region(PeerRegion::new(region), access).unwrap();
    qp.keep_memory(&KeepSpec { regions: vec![Some(region)], windows: 1, keys: 1 }).unwrap();
}

pub(in crate::ports) fn blocks() -> BlockSignature {
    BlockSignature::on_the_wire(Domain::Crc(BlockSize::B512, Crc { kind: CrcKind::Crc32c, seed: Seed::Ones }))
}
