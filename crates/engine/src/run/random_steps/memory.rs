//! The memory that a peer lends to the other end: two words, its name to be read, and one to be
//! written.

use verbline_mem::{PageChoice, PageSize, PeerRegion, Region, RegionSpec};
use verbline_verbs::rdma::{PeerMr, Remote};
use verbline_verbs::{Access, ProtectionDomain};

const WORD_BYTES: usize = 8;
const WORDS: usize = 2;
/// The rights on a peer's memory.
pub(super) const ACCESS: [Access; 3] = [Access::LOCAL_WRITE, Access::REMOTE_READ, Access::REMOTE_WRITE];

/// The memory of all peers, by their tags.
pub(super) struct Lent(PeerMr);

impl Lent {
    pub(super) fn new(pd: &ProtectionDomain, peers: usize) -> Lent {
        let region = Region::map(&RegionSpec {
            name: "lent".into(),
            len_bytes: peers * WORDS * WORD_BYTES,
            pages: PageChoice::Exactly(PageSize::Small4K),
            lock: false,
        });
        let region = PeerRegion::of_first(region.unwrap(), peers * WORDS * WORD_BYTES);
        Lent(pd.register_peer_region(region, all()).unwrap())
    }

    /// Resets the memory of this tag for a new peer.
    pub(super) fn begin(&self, tag: u16, id: u32) {
        self.0.store_u64(offset(tag), u64::from(id)).unwrap();
        self.0.store_u64(offset(tag) + WORD_BYTES, 0).unwrap();
    }

    /// The number written last.
    pub(super) fn written(&self, tag: u16) -> u64 {
        self.0.load_u64(offset(tag) + WORD_BYTES).unwrap()
    }

    /// The address and key of the peer's words.
    pub(super) fn remote(&self, tag: u16) -> Remote {
        self.0.remote(offset(tag) as u64)
    }
}

/// The word to be written.
pub(super) fn second(words: Remote) -> Remote {
    words.offset(WORD_BYTES as u64)
}

pub(super) fn all() -> Access {
    ACCESS.into_iter().fold(Access::NONE, |all, one| all | one)
}

fn offset(tag: u16) -> usize {
    usize::from(tag) * WORDS * WORD_BYTES
}
