//! The pool beneath its handles: the metadata lines, the free list, the region, the MR.
//!
//! A [`RawPacket`] points at its packet's metadata line and is the right to that packet. It exists
//! once: in a `Packet`, in a stash, or as an index on the free list. That is the invariant which
//! every `unsafe` of this crate rests on, and only `Packet`, `Stash` and `FreeList` move it.
//!
//! The lines fill a block whose size is a power of two and which is aligned to it, so "is it this
//! pool's?" is one mask and compare of the handle itself: no line is touched to find out.

use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::connection::ConnectionId;
use crate::freelist::FreeList;
use crate::prefetch::prefetch_at;
use crate::region::Region;
use crate::sync::{AtomicU32, Mutex};

/// The right to one packet.
pub(crate) type RawPacket = NonNull<Meta>;

/// A packet's metadata: one cache line, in ordinary memory that no device sees.
#[repr(C, align(64))]
pub(crate) struct Meta {
    pub(crate) view: View,
    /// The buffer's first byte, in the region.
    pub(crate) buffer: NonNull<u8>,
    pub(crate) pool: NonNull<Shared>,
    /// Where data starts in a fresh packet, bytes.
    pub(crate) headroom_bytes: u32,
    /// Which pool: above 0, and no other pool's, ever.
    pub(crate) pool_id: u32,
    /// The last value set; valid while `View::has_connection` is true: a renewal of the view resets
    /// it too.
    pub(crate) connection: Option<ConnectionId>,
}

/// The part of a packet that its holder may change. The data is `start .. start + len` of the
/// buffer, and never leaves it.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct View {
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) timestamp: u64,
    pub(crate) mark: u64,
    pub(crate) port: u16,
    /// 1 if `Meta::connection` is this packet's, otherwise 0.
    pub(crate) has_connection: u8,
    /// The options that the packet asks of its send, or their outcome.
    pub(crate) send_note: u8,
    /// Length of the whole buffer, bytes: never changes, but a renewal writes it along.
    pub(crate) buffer_bytes: u32,
}

const _: () = assert!(size_of::<Meta>() == 64 && align_of::<Meta>() == 64);
// Two 16-byte stores renew a packet.
const _: () = assert!(size_of::<View>() == 32);

impl View {
    pub(crate) const fn fresh(headroom_bytes: u32, data_bytes: u32) -> Self {
        let buffer_bytes = headroom_bytes + data_bytes;
        let (start, len, timestamp, mark, port) = (headroom_bytes, 0, 0, 0, 0);
        Self { start, len, timestamp, mark, port, has_connection: 0, send_note: 0, buffer_bytes }
    }
}

pub(crate) struct Mr {
    pub(crate) pd_id: u64,
    pub(crate) lkey: u32,
    /// Deregisters on drop.
    pub(crate) _keep: Box<dyn Any + Send + Sync>,
}

/// The length word of a cache, kept up to date by the cache's owner and read by `account`.
pub(crate) struct CachedCount(pub(crate) NonNull<AtomicU32>);

// SAFETY: it is read under the lock of `Shared::caches`, and a cache takes its own out, under that
// lock, before it goes.
unsafe impl Send for CachedCount {}

/// Fields drop in this order: the MR is deregistered before the region is unmapped.
pub(crate) struct Shared {
    pub(crate) mr: OnceLock<Mr>,
    pub(crate) free: FreeList,
    pub(crate) lines: Lines,
    pub(crate) name: String,
    pub(crate) fresh: View,
    /// Control path only: caches come and go, and are counted.
    pub(crate) caches: Mutex<Vec<CachedCount>>,
    pub(crate) region: Region,
}

// SAFETY: the raw pointers in `lines` lead to memory that `Shared` owns. Only the holder of a
// packet touches its line; all else is immutable, atomic, or behind the lock.
unsafe impl Send for Shared {}
// SAFETY: through `&Shared` lines are reached by their packets' owners only, the rest is immutable,
// atomic, or behind the lock.
unsafe impl Sync for Shared {}

impl Shared {
    /// The packet's index on the free list.
    pub(crate) fn index_of(&self, packet: RawPacket) -> u32 {
        debug_assert!(self.lines.owns(packet));
        ((packet.addr().get() - self.lines.base.addr().get()) / size_of::<Meta>()) as u32
    }

    /// The handle for an index that was taken from the free list.
    pub(crate) fn handle_at(&self, index: u32) -> RawPacket {
        debug_assert!(index < self.free.packets());
        // SAFETY: the free list holds indices below `packets` only, and the lines are that many.
        unsafe { self.lines.base.add(index as usize) }
    }

    /// Like [`Shared::handle_at`], of a packet whose line is written soon. Lines of packets that
    /// lost their order come from far, one at a time, if nobody asked before.
    pub(crate) fn handle_soon_at(&self, index: u32) -> RawPacket {
        let handle = self.handle_at(index);
        prefetch_at(handle.as_ptr());
        handle
    }

    /// Puts packets of this pool on the free list. The pool may be gone when this returns.
    ///
    /// # Safety
    /// The caller has the right to each packet, all are of this pool, and it gives the right up.
    pub(crate) unsafe fn put(this: NonNull<Self>, packets: &[RawPacket]) {
        // SAFETY: a field's address within a live allocation.
        let free = unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).free) };
        // SAFETY: the packets are out until `put` counts them home, so the pool is alive while it
        // asks for their indices; right and range are the caller's word.
        unsafe { FreeList::put(free, packets, |&packet| this.as_ref().index_of(packet)) };
    }
}

/// The block of metadata lines.
pub(crate) struct Lines {
    base: NonNull<Meta>,
    layout: Layout,
}

impl Lines {
    /// Room for `packets` lines, none of them written yet. `None` when the block is larger than an
    /// allocation can be.
    pub(crate) fn new(packets: u32) -> Option<Self> {
        let bytes = (packets as usize).checked_mul(size_of::<Meta>())?.checked_next_power_of_two()?;
        let layout = Layout::from_size_align(bytes.max(size_of::<Meta>()), bytes.max(size_of::<Meta>())).ok()?;
        // SAFETY: the layout's size is at least one line.
        let base = NonNull::new(unsafe { alloc(layout) })?;
        Some(Self { base: base.cast(), layout })
    }

    /// Writes line `index`, which makes it a packet.
    ///
    /// # Safety
    /// `index` is below the `packets` of `new`, and nobody has a handle to the line.
    pub(crate) unsafe fn write(&self, index: u32, meta: Meta) {
        // SAFETY: `index` is below the count that the block was allocated for: this method's
        // contract.
        unsafe { self.base.add(index as usize).write(meta) };
    }

    /// Whether the packet is of this pool.
    #[inline]
    pub(crate) fn owns(&self, packet: RawPacket) -> bool {
        packet.addr().get() & self.mask() == self.base.addr().get()
    }

    /// The block's address.
    pub(crate) fn base_addr(&self) -> usize {
        self.base.addr().get()
    }

    /// The address bits that all handles of this pool share.
    pub(crate) fn mask(&self) -> usize {
        !(self.layout.size() - 1)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; lines need no drop; the pool frees them only
        // when every packet is home.
        unsafe { dealloc(self.base.as_ptr().cast(), self.layout) };
    }
}
