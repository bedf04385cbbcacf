//! A pool: a region cut into packets of one size, with one MR.
//!
//! Every packet is in one of three places: on the free list that all threads share, in a
//! [`PoolCache`](crate::PoolCache), or held by somebody. [`Pool::account`] counts all three. When
//! the last `Pool` and `PoolCache` go and no packet is held, the MR is deregistered, then the
//! region unmapped. When packets are still held, all of it is leaked and counted in
//! [`leaked_pools`]: memory that a device or a stage may still use is never freed.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use crate::freelist::FreeList;
use crate::packet::Packet;
use crate::region::Region;
use crate::shared::{CachedCount, Lines, Meta, Mr, Shared, View};
use crate::sync::{Arc, Mutex, Ordering};

/// Buffers start on cache lines, so that no two packets share one.
const BUFFER_ALIGN: usize = 64;

/// The pools that were leaked. Keeping their addresses tells leak checkers that the memory is meant
/// to stay.
static LEAKED: std::sync::Mutex<Vec<Owner>> = std::sync::Mutex::new(Vec::new());

/// The next [`Packet::pool_id`].
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// How many pools of this process were leaked because packets were out when their last handle went.
/// Above 0 is a bug in what holds packets.
#[must_use]
pub fn leaked_pools() -> usize {
    LEAKED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).len()
}

/// The shape of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// Named in every message.
    pub name: String,
    /// How many packets, above 0.
    pub packets: u32,
    /// Room for data in a fresh packet, bytes, above 0.
    pub data_bytes: u32,
    /// Room before the data of a fresh packet, bytes. With `data_bytes` a multiple of 128, 64 is a
    /// good choice beyond its use: buffers then start an odd number of cache lines apart and spread
    /// over all sets of a cache.
    pub headroom_bytes: u32,
}

/// Why a pool could not be made, or an MR not attached.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A count of 0.
    #[error("pool `{pool}`: {field} is 0; it must be at least 1")]
    Zero {
        /// The pool's name.
        pool: String,
        /// The field of the spec.
        field: &'static str,
    },
    /// More packets than indices.
    #[error("pool `{pool}`: {packets} packets; the most is {max}: use several pools", max = u32::MAX - 1)]
    TooManyPackets {
        /// The pool's name.
        pool: String,
        /// The requested number.
        packets: u32,
    },
    /// This process has made 2^32 pools.
    #[error("pool `{pool}`: this process has made as many pools as there are numbers for them; start another")]
    TooManyPools {
        /// The pool's name.
        pool: String,
    },
    /// Headroom and data together overflow 32 bits.
    #[error(
        "pool `{pool}`: headroom_bytes {headroom_bytes} + data_bytes {data_bytes} is above {max}; ask for less",
        max = u32::MAX
    )]
    PacketTooLarge {
        /// The pool's name.
        pool: String,
        /// The requested value, bytes.
        headroom_bytes: u32,
        /// The requested value, bytes.
        data_bytes: u32,
    },
    /// The region does not hold the packets.
    #[error(
        "pool `{pool}`: region `{region}` has {region_bytes} bytes, {required_bytes} are needed; map a region of \
         Pool::required_bytes(&spec)"
    )]
    RegionTooSmall {
        /// The pool's name.
        pool: String,
        /// The region's name.
        region: String,
        /// The region's length, bytes.
        region_bytes: usize,
        /// The length that the packets need, bytes.
        required_bytes: usize,
    },
    /// No memory for the metadata.
    #[error(
        "pool `{pool}`: no memory for the metadata of {packets} packets (64 bytes each, rounded up to a power of two, \
         and 64 more); use fewer packets or free memory"
    )]
    NoMetadata {
        /// The pool's name.
        pool: String,
        /// The requested number.
        packets: u32,
    },
    /// A pool has one MR.
    #[error(
        "pool `{pool}`: already registered in protection domain {pd_id} with lkey {lkey:#x}; use one pool \
         for each device"
    )]
    AlreadyRegistered {
        /// The pool's name.
        pool: String,
        /// Where it is registered.
        pd_id: u64,
        /// With which key.
        lkey: u32,
    },
}

/// A memory registration, to tie to a pool.
pub struct MrBinding {
    /// Tells protection domains apart; 0 stands for "none".
    pub pd_id: u64,
    /// The local key (ibv_reg_mr(3)).
    pub lkey: u32,
    /// Deregisters on drop: dropped before the region is unmapped, leaked with it. Must not hold
    /// the pool, which would then never go.
    pub keep: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for MrBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MrBinding").field("pd_id", &self.pd_id).field("lkey", &self.lkey).finish_non_exhaustive()
    }
}

/// Where a pool's packets are. While other threads get and put, the counts are each read at its own
/// moment; else `free + cached + held == packets` exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolAccount {
    /// In all.
    pub packets: u32,
    /// On the shared free list.
    pub free: u32,
    /// In caches.
    pub cached: u32,
    /// Held by somebody: `packets` less the others.
    pub held: u32,
}

/// A pool; clones are the same pool. See the [module](self).
///
/// ```
/// use verbline_mem::{Batch, PageChoice, Pool, PoolSpec, Region, RegionSpec};
///
/// let spec = PoolSpec { name: "ticks".into(), packets: 256, data_bytes: 2048, headroom_bytes: 64 };
/// let region = Region::map(&RegionSpec {
///     name: spec.name.clone(),
///     len_bytes: Pool::required_bytes(&spec),
///     pages: PageChoice::Auto,
///     lock: false,
/// })?;
/// let pool = Pool::new(region, spec)?;
///
/// let cache = pool.cache(64).bind(); // one for each lcore: drops on this thread return to it
/// let mut burst = Batch::with_capacity(32);
/// assert_eq!(cache.get_bulk(&mut burst, 32), 32);
/// assert_eq!(pool.account().held, 32);
/// drop(burst);
/// assert_eq!(pool.account().held, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Pool(Arc<Owner>);

/// Frees or leaks when the last handle goes.
struct Owner(NonNull<Shared>);

// SAFETY: `Shared` is Send and Sync, and the owner does no more than point to it and free it.
unsafe impl Send for Owner {}
// SAFETY: `Shared` is Sync, and a shared owner only points to it.
unsafe impl Sync for Owner {}

impl Pool {
    /// Cuts the region into packets.
    ///
    /// # Errors
    /// The spec is impossible, or the region too small.
    pub fn new(region: Region, spec: PoolSpec) -> Result<Self, PoolError> {
        check(&region, &spec)?;
        // Relaxed: only uniqueness matters, nothing is published by it.
        let pool_id = NEXT_ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let Ok(pool_id) = u32::try_from(pool_id) else { return Err(PoolError::TooManyPools { pool: spec.name }) };
        let (Some(lines), Some(free)) = (Lines::new(spec.packets), FreeList::full(spec.packets)) else {
            return Err(PoolError::NoMetadata { pool: spec.name, packets: spec.packets });
        };
        let shared = Box::new(Shared {
            mr: OnceLock::new(),
            free,
            lines,
            name: spec.name.clone(),
            fresh: View::fresh(spec.headroom_bytes, spec.data_bytes),
            caches: Mutex::new(Vec::new()),
            region,
        });
        let shared = NonNull::from(Box::leak(shared));
        write_lines(shared, &spec, pool_id);
        Ok(Self(Arc::new(Owner(shared))))
    }

    /// The region that a pool of this shape needs, bytes: each packet's headroom and data rounded
    /// up to whole 64-byte lines. `usize::MAX` when it overflows, which no region satisfies.
    #[must_use]
    pub fn required_bytes(spec: &PoolSpec) -> usize {
        (spec.packets as usize).saturating_mul(stride_bytes(spec))
    }

    /// The name that messages and reports have for it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// How many packets it was cut into; that never changes.
    #[must_use]
    pub fn packets(&self) -> u32 {
        self.shared().free.packets()
    }

    /// The memory that it is cut from: to register it with a device, and to ask about its pages.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.shared().region
    }

    /// Whether the packet is of this pool.
    #[must_use]
    pub fn owns(&self, packet: &Packet) -> bool {
        self.shared().lines.owns(packet.raw())
    }

    /// Ties the pool to its MR, once; every packet then has its lkey.
    ///
    /// # Errors
    /// There is an MR already; the new one's `keep` is dropped.
    pub fn attach_mr(&self, mr: MrBinding) -> Result<(), PoolError> {
        let MrBinding { pd_id, lkey, keep } = mr;
        let mr = &self.shared().mr;
        mr.set(Mr { pd_id, lkey, _keep: keep }).map_err(|_| {
            // There is one, or `set` would have taken ours; and it stays.
            let (pd_id, lkey) = self.mr().unwrap_or_default();
            PoolError::AlreadyRegistered { pool: self.name().to_owned(), pd_id, lkey }
        })
    }

    /// The MR's protection domain and lkey.
    #[must_use]
    pub fn mr(&self) -> Option<(u64, u32)> {
        self.shared().mr.get().map(|mr| (mr.pd_id, mr.lkey))
    }

    /// Where the packets are. Control path: takes a lock that only making and dropping caches takes
    /// too.
    #[must_use]
    pub fn account(&self) -> PoolAccount {
        let shared = self.shared();
        let caches = lock(&shared.caches);
        // SAFETY: a cache takes its count out under this lock before it goes.
        // Relaxed: a count that nothing hangs on.
        let cached = caches.iter().map(|count| unsafe { count.0.as_ref() }.load(Ordering::Relaxed)).sum();
        let (packets, free) = (self.packets(), shared.free.len());
        PoolAccount { packets, free, cached, held: packets.saturating_sub(free).saturating_sub(cached) }
    }

    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: alive while a handle is.
        unsafe { self.0.0.as_ref() }
    }

    pub(crate) fn shared_ptr(&self) -> NonNull<Shared> {
        self.0.0
    }

    pub(crate) fn register_cache(&self, count: CachedCount) {
        lock(&self.shared().caches).push(count);
    }

    pub(crate) fn deregister_cache(&self, count: &CachedCount) {
        lock(&self.shared().caches).retain(|other| other.0 != count.0);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: this is the last handle; nothing has freed the pool before.
        if unsafe { self.0.as_ref() }.free.all_home() {
            // SAFETY: made by Box::leak in `Pool::new`. No handle, hence no cache, is left, and
            // every packet is home with its put over.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        } else {
            // Never dropped from there: statics are not.
            LEAKED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(Self(self.0));
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("name", &self.name()).field("account", &self.account()).finish_non_exhaustive()
    }
}

/// A cache's thread that panicked inside the lock left at worst a count too many: the list is still
/// good.
fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn stride_bytes(spec: &PoolSpec) -> usize {
    (spec.headroom_bytes as usize + spec.data_bytes as usize).next_multiple_of(BUFFER_ALIGN)
}

fn check(region: &Region, spec: &PoolSpec) -> Result<(), PoolError> {
    let pool = || spec.name.clone();
    for (field, value) in [("packets", spec.packets), ("data_bytes", spec.data_bytes)] {
        if value == 0 {
            return Err(PoolError::Zero { pool: pool(), field });
        }
    }
    if spec.packets == u32::MAX {
        return Err(PoolError::TooManyPackets { pool: pool(), packets: spec.packets });
    }
    if spec.headroom_bytes.checked_add(spec.data_bytes).is_none() {
        let (headroom_bytes, data_bytes) = (spec.headroom_bytes, spec.data_bytes);
        return Err(PoolError::PacketTooLarge { pool: pool(), headroom_bytes, data_bytes });
    }
    let (region_bytes, required_bytes) = (region.len_bytes(), Pool::required_bytes(spec));
    if region_bytes < required_bytes {
        let region = region.name().to_owned();
        return Err(PoolError::RegionTooSmall { pool: pool(), region, region_bytes, required_bytes });
    }
    Ok(())
}

/// Writes every line of a new pool.
fn write_lines(shared: NonNull<Shared>, spec: &PoolSpec, pool_id: u32) {
    // SAFETY: just made, and nobody else has it.
    let pool = unsafe { shared.as_ref() };
    let base = pool.region.as_ptr();
    for index in 0..spec.packets {
        // SAFETY: `check` found the region to hold `packets` strides, so this is inside it and not
        // null.
        let buffer = unsafe { NonNull::new_unchecked(base.add(index as usize * stride_bytes(spec))) };
        let meta = Meta {
            view: pool.fresh,
            buffer,
            pool: shared,
            headroom_bytes: spec.headroom_bytes,
            pool_id,
            connection: None,
        };
        // SAFETY: below `packets`; no handle has been made yet.
        unsafe { pool.lines.write(index, meta) };
    }
}
