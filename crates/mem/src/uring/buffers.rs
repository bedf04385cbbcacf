//! Pools as registered buffers of a ring.

use crate::packet::Packet;
use crate::pool::Pool;

/// The kernel takes at most so much as one buffer (io_uring_register(2)).
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// The most buffers of a ring, far below the kernel's own limit.
const BUFFERS_MAX: usize = 256;

/// Regions of pools, each cut into buffers of [`BUFFER_BYTES_MAX`].
#[derive(Debug, Default)]
pub(super) struct Buffers {
    regions: Vec<Registered>,
    /// Alive as long as their memory is registered, so that no later mapping takes its addresses.
    _pools: Vec<Pool>,
}

#[derive(Clone, Copy, Debug)]
struct Registered {
    base: u64,
    len_bytes: u64,
    first_index: u16,
}

impl Buffers {
    /// Returns the buffers to register for these pools, and the table that finds a packet's. `None`
    /// for no pools, or too many.
    pub(super) fn plan(pools: &[Pool]) -> Option<(Buffers, Vec<libc::iovec>)> {
        let (mut regions, mut vectors) = (Vec::with_capacity(pools.len()), Vec::new());
        for pool in pools {
            let (base, len) = (pool.region().as_ptr(), pool.region().len_bytes());
            let first_index = u16::try_from(vectors.len()).ok()?;
            regions.push(Registered { base: base.addr() as u64, len_bytes: len as u64, first_index });
            vectors.extend((0..len).step_by(BUFFER_BYTES_MAX).map(|offset| libc::iovec {
                iov_base: base.wrapping_add(offset).cast(),
                iov_len: (len - offset).min(BUFFER_BYTES_MAX),
            }));
        }
        let fits = !vectors.is_empty() && vectors.len() <= BUFFERS_MAX;
        fits.then(|| (Buffers { regions, _pools: pools.to_vec() }, vectors))
    }

    /// The number of the buffer that the packet's data lies in, whole.
    #[inline]
    pub(super) fn index_of(&self, packet: &Packet) -> Option<u16> {
        let (addr, len) = packet.span();
        let region = self.regions.iter().find(|region| addr.wrapping_sub(region.base) < region.len_bytes)?;
        let (first, last) = (addr - region.base, addr - region.base + (len as u64).saturating_sub(1));
        let max = BUFFER_BYTES_MAX as u64;
        // From one buffer into the next: only where a pool has more than the kernel takes as one.
        (first / max == last / max).then_some(region.first_index + (first / max) as u16)
    }
}
