//! What operations of the model name, beside packets.

use verbline_mem::{PageChoice, PageSize, PeerRegion, Region, RegionSpec};
use verbline_verbs::expert::WindowKind;
use verbline_verbs::rdma::{KeptKey, KeptRegion, KeptWindow};
use verbline_verbs::signature::{BlockSignature, BlockSize, Crc, CrcKind, Domain, Seed};
use verbline_verbs::{Access, QueuePair};

use crate::rig::Rig;

/// What operations name: a region, a window and a signature key.
pub(super) type Named = (Box<[Option<KeptRegion>]>, Box<[KeptWindow]>, Box<[KeptKey]>);

pub(super) fn kept(rig: &Rig, qp: &mut QueuePair) -> Named {
    let pages = PageChoice::Exactly(PageSize::Small4K);
    let region = Region::map(&RegionSpec { name: "model".into(), len_bytes: 4096, pages, lock: false }).unwrap();
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = rig.pd.register_peer_region(PeerRegion::new(region), access).unwrap();
    let window = rig.pd.alloc_mw(WindowKind::Type2).unwrap();
    let (region, window) = (qp.keep_region(&region).unwrap(), qp.keep_window(window).unwrap());
    (Box::new([Some(region)]), Box::new([window]), qp.keep_keys(1).unwrap().into())
}

pub(super) fn blocks() -> BlockSignature {
    BlockSignature::on_the_wire(Domain::Crc(BlockSize::B512, Crc { kind: CrcKind::Crc32c, seed: Seed::Ones }))
}
