//! A scatter/gather list: the local memory of one work request, in parts that may lie anywhere
//! (`sg_list` in ibv_post_send(3)).
//!
//! - It owns its parts, and moves into the QP with them: while it is posted, nobody can read, write
//!   or free any of them.
//! - It never grows: each completion returns the list, and using it again allocates nothing.

use rdma_sys::ibv_sge;
use verbline_mem::Packet;

use crate::memory::peer::PeerSlice;

/// One part of an [`SgList`].
#[derive(Debug)]
pub enum SgEntry {
    /// A packet's data: `len()` bytes of it.
    Packet(Packet),
    /// A part of memory that peers may also reach.
    Peer(PeerSlice),
}

impl SgEntry {
    /// The part's length, bytes.
    pub fn len_bytes(&self) -> usize {
        match self {
            SgEntry::Packet(packet) => packet.len(),
            SgEntry::Peer(slice) => slice.len() as usize,
        }
    }

    /// The packet, if it is one.
    pub fn into_packet(self) -> Option<Packet> {
        match self {
            SgEntry::Packet(packet) => Some(packet),
            SgEntry::Peer(_) => None,
        }
    }

    /// The packet, if it is one.
    pub fn as_packet(&self) -> Option<&Packet> {
        match self {
            SgEntry::Packet(packet) => Some(packet),
            SgEntry::Peer(_) => None,
        }
    }

    pub(crate) fn pd_id(&self) -> u64 {
        match self {
            SgEntry::Packet(packet) => packet.pd_id(),
            SgEntry::Peer(slice) => slice.pd_id(),
        }
    }

    pub(crate) fn sge(&self) -> ibv_sge {
        match self {
            SgEntry::Packet(packet) => packet_sge(packet),
            SgEntry::Peer(slice) => slice.sge(),
        }
    }
}

/// The memory of a packet's data.
pub(crate) fn packet_sge(packet: &Packet) -> ibv_sge {
    // A packet's length fits: its pool counts it in 32 bits.
    ibv_sge { addr: packet.addr(), length: packet.len() as u32, lkey: packet.lkey() }
}

impl From<Packet> for SgEntry {
    fn from(packet: Packet) -> SgEntry {
        SgEntry::Packet(packet)
    }
}

impl From<PeerSlice> for SgEntry {
    fn from(slice: PeerSlice) -> SgEntry {
        SgEntry::Peer(slice)
    }
}

/// The local memory of one work request, in parts: sent and written in their order as one message,
/// or filled one after the other.
///
/// Parts may be packets and slices of different regions, as long as all are registered on the QP's
/// PD. An empty part takes no entry of the work request. A QP takes up to
/// [`crate::QpSpec::max_send_sge`] and [`crate::QpSpec::max_recv_sge`] non-empty parts. If parts to
/// fill overlap, the content of the overlap is undefined (ibv_post_send(3)).
///
/// ```
/// # use verbline_mem::{Batch, PageChoice, PeerRegion, Pool, PoolSpec, Region, RegionSpec};
/// # use verbline_verbs::{Access, Completions, Device, InitSpec, Provider, QpSpec, RtrSpec, RtsSpec};
/// # use verbline_verbs::{SendOptions, Transport, expert::SgList};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let context = Device::find(Provider::Soft, "soft0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let spec = PoolSpec { name: "demo".into(), packets: 64, data_bytes: 2048, headroom_bytes: 64 };
/// # let region = |len_bytes| RegionSpec { name: "demo".into(), len_bytes, pages: PageChoice::Auto, lock: false };
/// # let map = |len_bytes| Region::map(&region(len_bytes));
/// # let pool = Pool::new(map(Pool::required_bytes(&spec))?, spec)?;
/// # pd.register_pool(&pool)?;
/// # let cache = pool.cache(32);
/// # let mut cq = context.create_cq(256, None)?;
/// let blocks = pd.register_peer_region(PeerRegion::new(map(65536)?), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// let mut qp = pd.create_qp(&QpSpec { max_send_sge: 2, ..QpSpec::new(Transport::Rc, &cq) })?;
/// # qp.to_init(&InitSpec { access: Access::REMOTE_WRITE, ..InitSpec::default() })?;
/// # qp.to_rtr(&RtrSpec::connected(qp.endpoint()))?;
/// # qp.to_rts(&RtsSpec::default())?;
/// // A header of its own before a block that stays where it is.
/// let mut header = cache.get().expect("packets are free");
/// assert!(header.fill(b"block 7"));
/// let mut list = SgList::with_capacity(2);
/// list.push(header)?;
/// list.push(blocks.slice(0, 4096).expect("inside the region"))?;
/// qp.rc()?.write(list, blocks.remote(32768), SendOptions::default())?;
///
/// let mut completions = Completions::with_capacity(8);
/// while cq.poll(&mut completions) == 0 {}
/// let mut freed = Batch::with_capacity(8);
/// let list = qp.op_done(&completions.as_slice()[0], &mut freed)?.into_list().expect("what was posted");
/// assert_eq!((list.len(), list.len_bytes()), (2, 7 + 4096));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct SgList {
    entries: Vec<SgEntry>,
}

/// A part that does not fit into an [`SgList`]; it comes back.
#[derive(Debug, thiserror::Error)]
#[error("the scatter/gather list is full: it was made for {capacity} parts")]
pub struct SgListFull {
    /// The part.
    pub entry: SgEntry,
    /// The list's capacity.
    pub capacity: usize,
}

impl SgList {
    /// Allocates space for `entries` parts; it never grows.
    pub fn with_capacity(entries: usize) -> SgList {
        SgList { entries: Vec::with_capacity(entries) }
    }

    /// Appends a part.
    pub fn push(&mut self, entry: impl Into<SgEntry>) -> Result<(), SgListFull> {
        let entry = entry.into();
        let capacity = self.capacity();
        if self.len() == capacity {
            return Err(SgListFull { entry, capacity });
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Takes all parts out, from the first on. Parts not taken are dropped, as by
    /// [`SgList::clear`].
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = SgEntry> {
        self.entries.drain(..)
    }

    /// Drops the parts: packets go back to their pools.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The parts.
    pub fn as_slice(&self) -> &[SgEntry] {
        &self.entries
    }

    /// The number of parts.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the list has no parts.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The largest number of parts.
    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// The number of parts that are packets.
    pub fn packets(&self) -> usize {
        self.entries.iter().filter(|entry| entry.as_packet().is_some()).count()
    }

    /// The length of all parts together, bytes.
    pub fn len_bytes(&self) -> usize {
        self.entries.iter().map(SgEntry::len_bytes).sum()
    }

    /// The parts in the work request.
    fn with_bytes(&self) -> impl Iterator<Item = &SgEntry> {
        // An SGE of length 0 means 2^31 bytes (ibv_post_send(3)).
        self.entries.iter().filter(|entry| entry.len_bytes() > 0)
    }

    /// The number of SGEs in its work request.
    pub(crate) fn sges(&self) -> usize {
        self.with_bytes().count()
    }

    /// The PD of a part in the work request that belongs to another PD than this one.
    pub(crate) fn foreign_pd(&self, pd_id: u64) -> Option<u64> {
        self.with_bytes().map(SgEntry::pd_id).find(|&theirs| theirs != pd_id)
    }

    /// Writes the work request's entries into `places`, which has space for them; returns how many.
    pub(crate) fn write_sges(&self, places: &mut [ibv_sge]) -> usize {
        let written = places.iter_mut().zip(self.with_bytes()).map(|(place, entry)| *place = entry.sge());
        written.count()
    }

    /// Sets the lengths of the packets to the bytes that a message of `len_bytes` put into them.
    pub(crate) fn cut_to(&mut self, mut len_bytes: usize) {
        for entry in &mut self.entries {
            let here = len_bytes.min(entry.len_bytes());
            if let SgEntry::Packet(packet) = entry {
                let shortened = packet.trim_back(packet.len() - here);
                debug_assert!(shortened, "`here` is no more than its length");
            }
            len_bytes -= here;
        }
    }
}

impl FromIterator<SgEntry> for SgList {
    /// A list with capacity for just these parts.
    fn from_iter<I: IntoIterator<Item = SgEntry>>(entries: I) -> SgList {
        SgList { entries: entries.into_iter().collect() }
    }
}

impl IntoIterator for SgList {
    type Item = SgEntry;
    type IntoIter = std::vec::IntoIter<SgEntry>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}
