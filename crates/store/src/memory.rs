//! Blocks in memory.
//!
//! The memory is a region that devices may reach ([`PeerRegion`]), so that an RDMA operation reads
//! or writes a block where it lies ([`Store::direct`]), without a copy. What comes by a request is
//! copied once. Everything is done at the next poll. It is as durable as the process.

use std::collections::VecDeque;
use std::sync::Arc;

use verbline_mem::{PeerAccessError, PeerRegion};

use crate::immediate::Answers;
use crate::request::{Done, Fault, Op, Request};
use crate::store::{Geometry, GeometryError, Store};

/// The memory of a memory store's blocks. [`PeerRegion`] has the semantics: access is by copies,
/// and a device may change it at any time.
pub trait BlockMemory: Send {
    /// Length, bytes: what it had first, for ever.
    fn len_bytes(&self) -> usize;

    /// Copies from `offset` on.
    ///
    /// # Errors
    /// The range leaves the memory, or there is none yet.
    fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Copies to `offset` on.
    ///
    /// # Errors
    /// As for reading.
    fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), Fault>;
}

impl BlockMemory for Arc<PeerRegion> {
    fn len_bytes(&self) -> usize {
        PeerRegion::len_bytes(self)
    }

    fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Fault> {
        PeerRegion::read_into(self, offset, bytes).map_err(fault_of)
    }

    fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), Fault> {
        PeerRegion::write_from(self, offset, bytes).map_err(fault_of)
    }
}

fn fault_of(_: PeerAccessError) -> Fault {
    Fault::OutOfRange
}

/// A store in memory. Clones of its memory make stores over the same blocks for other lcores.
///
/// ```
/// use std::{collections::VecDeque, sync::Arc};
/// use verbline_mem::{PageChoice, PageSize, PeerRegion, Pool, PoolSpec, Region, RegionSpec};
/// use verbline_store::{Geometry, MemoryStore, Request, Store};
///
/// # let map = |name: &str, len_bytes| Region::map(&RegionSpec { name: name.into(), len_bytes,
/// #     pages: PageChoice::Exactly(PageSize::Small4K), lock: false });
/// # let spec = PoolSpec { name: "p".into(), packets: 8, data_bytes: 4096, headroom_bytes: 0 };
/// # let pool = Pool::new(map("p", Pool::required_bytes(&spec))?, spec)?;
/// let memory = Arc::new(PeerRegion::new(map("blocks", 1 << 20)?));
/// let mut store = MemoryStore::new(memory, 4096, 32)?;
///
/// let mut packet = pool.cache(8).get_of_len(4096).expect("8 packets are free");
/// packet.data_mut().fill(7);
/// let mut requests = VecDeque::from([Request::write(3, 1, packet, false, 40)]);
/// assert_eq!(store.submit(&mut requests), 1);
/// let mut done = Vec::with_capacity(32);
/// assert_eq!(store.poll(&mut done), 1);
/// assert!(done[0].tag == 40 && done[0].result.is_ok() && done[0].packet.is_some());
/// assert_eq!(store.direct(3, 1), Some(3 * 4096..4 * 4096));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MemoryStore<M> {
    memory: M,
    geometry: Geometry,
    answers: Answers,
}

impl<M: BlockMemory> MemoryStore<M> {
    /// Over the whole memory, with at most `depth` requests under way, above 0.
    ///
    /// # Errors
    /// Blocks can't be of this size.
    pub fn new(memory: M, block_bytes: u32, depth: usize) -> Result<MemoryStore<M>, GeometryError> {
        let geometry = Geometry::of_bytes(memory.len_bytes() as u64, block_bytes)?;
        Ok(MemoryStore { memory, geometry, answers: Answers::new(depth) })
    }

    /// Bytes that a store sets aside for `depth` requests, beside the memory of its blocks.
    #[must_use]
    pub fn queue_bytes(depth: u64) -> u64 {
        depth * size_of::<Done>() as u64
    }
}

/// Carries a request out in the memory.
fn carry_out<M: BlockMemory>(memory: &M, geometry: &Geometry, request: &mut Request) -> Result<(), Fault> {
    let extent = geometry.extent(request)?;
    // Within the memory, whose length is a usize.
    let (offset, len) = (extent.offset as usize, extent.len as usize);
    match (request.op, &mut request.packet) {
        (Op::Read, Some(packet)) => memory.read_into(offset, packet.data_mut()),
        (Op::Write { .. }, Some(packet)) => memory.write_from(offset, packet.data()),
        (Op::WriteZeroes { .. }, _) => zero(memory, offset, len),
        // Blocks keep what they hold: nothing beneath could be given up.
        (Op::Flush | Op::Discard, _) => Ok(()),
        (Op::Read | Op::Write { .. }, None) => Err(Fault::BadMemory),
    }
}

fn zero<M: BlockMemory>(memory: &M, offset: usize, len: usize) -> Result<(), Fault> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let end = offset + len;
    (offset..end).step_by(ZEROS.len()).try_for_each(|at| {
        let part = (end - at).min(ZEROS.len());
        memory.write_from(at, &ZEROS[..part])
    })
}

impl<M: BlockMemory> Store for MemoryStore<M> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, requests: &mut VecDeque<Request>) -> usize {
        self.answers.submit(requests, |request| carry_out(&self.memory, &self.geometry, request))
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        self.answers.poll(done)
    }

    fn under_way(&self) -> usize {
        self.answers.under_way()
    }

    fn room(&self) -> usize {
        self.answers.room()
    }

    fn direct(&self, lba: u64, blocks: u32) -> Option<std::ops::Range<usize>> {
        let end = lba.checked_add(blocks.into()).filter(|end| *end <= self.geometry.blocks)?;
        let block_bytes = self.geometry.block_bytes as usize;
        Some(lba as usize * block_bytes..end as usize * block_bytes)
    }
}
