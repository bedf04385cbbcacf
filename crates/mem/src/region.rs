//! A region: one mapping of hugepages, prefaulted and, if asked, locked.
//!
//! A mapped region is all there, unless it was asked for on demand: every page has been faulted in,
//! so neither the data path nor a device meets a page fault, and running out of pages is an error
//! at start and not a SIGBUS later. Its bytes are zero at first. It is left out of forked children
//! (`MADV_DONTFORK`), so a fork cannot move pages away from under a device by copy-on-write.
//!
//! The machine's default hugepage comes from hugepage-rs; chosen sizes and base pages come from
//! memmap2. When [`PageChoice::Auto`] finds no hugepages the region lies on 4
//! KiB pages and says so in [`Region::fallback`]; nothing else ever degrades.
//!
//! Pages come from the NUMA node of the thread that maps (first touch), unless another node is
//! wished for ([`Region::map_near`]).

use std::io;
use std::ops::Range;

use rustix::io::Errno;
use rustix::mm::Advice;

use crate::facts::{HugepageFacts, MemlockLimit};
use crate::mapping::{Mapping, PageSource};
use crate::numa::{NodeFound, NodeOutcome, NodeWish};
use crate::pages::{Fallback, PageChoice, PageSize, Shortage};

/// The size, pages and name of a region to map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSpec {
    /// Named in every message.
    pub name: String,
    /// Bytes needed, above 0; rounded up to whole pages.
    pub len_bytes: usize,
    /// On which pages.
    pub pages: PageChoice,
    /// Fail unless the region can never be swapped out.
    pub lock: bool,
}

/// Why a region could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// A region of nothing.
    #[error("region `{region}`: 0 bytes asked; ask for at least 1")]
    Empty {
        /// The region's name.
        region: String,
    },
    /// Rounded up to whole pages, the length overflows.
    #[error("region `{region}`: {len_bytes} bytes on {page} pages is more than an address space holds; ask for less")]
    TooLong {
        /// The region's name.
        region: String,
        /// The requested length, bytes.
        len_bytes: usize,
        /// The page size.
        page: PageSize,
    },
    /// The size asked for is not to be had.
    #[error("region `{region}`: no {page} pages: {why}; {remedy}")]
    NoPages {
        /// The region's name.
        region: String,
        /// The page size.
        page: PageSize,
        /// How many pages of it.
        pages: u64,
        /// What the machine lacks.
        why: String,
        /// The command that makes it available.
        remedy: String,
    },
    /// mlock(2) refused.
    #[error("region `{region}`: cannot lock {len_bytes} bytes: {source}; {remedy}")]
    Lock {
        /// The region's name.
        region: String,
        /// The region's length, bytes.
        len_bytes: usize,
        /// The kernel's error.
        source: io::Error,
        /// How to raise the limit.
        remedy: String,
    },
    /// Any other call refused.
    #[error("region `{region}`: {call} of {len_bytes} bytes failed: {source}; {remedy}")]
    System {
        /// The region's name.
        region: String,
        /// The call.
        call: &'static str,
        /// Its length, bytes.
        len_bytes: usize,
        /// The kernel's error.
        source: io::Error,
        /// A hint where to look.
        remedy: &'static str,
    },
}

/// A mapping, unmapped on drop. See the [module](self) for what it guarantees.
///
/// A region gives out raw addresses only: what may be done with them is for the type on top to say,
/// a [`Pool`](crate::Pool) or a [`PeerRegion`](crate::PeerRegion).
///
/// ```
/// use verbline_mem::{PageChoice, Region, RegionSpec};
///
/// let region = Region::map(&RegionSpec {
///     name: "ticks".into(),
///     len_bytes: 100_000,
///     pages: PageChoice::Auto,
///     lock: false,
/// })?;
/// assert!(region.len_bytes() >= 100_000);
/// if let Some(fallback) = region.fallback() {
///     eprintln!("{fallback}"); // why, and the command that helps
/// }
/// # Ok::<(), verbline_mem::RegionError>(())
/// ```
#[derive(Debug)]
pub struct Region {
    name: String,
    mapping: Mapping,
    page: PageSize,
    locked: bool,
    fallback: Option<Fallback>,
    node: Option<NodeOutcome>,
}

// SAFETY: a region owns its mapping and hands out raw addresses only; every method reads fields
// that never change after `map`. The types that turn an address into a reference (Pool, PeerRegion)
// answer for the accesses.
unsafe impl Send for Region {}
// SAFETY: as above: `&Region` reads immutable fields only.
unsafe impl Sync for Region {}

impl Region {
    /// Maps, prefaults and, if asked, locks.
    ///
    /// # Errors
    /// The pages are not to be had, or the kernel refused a call; each error says what to do.
    pub fn map(spec: &RegionSpec) -> Result<Self, RegionError> {
        Self::map_near(spec, None)
    }

    /// Like [`Region::map`], on a NUMA node. The kernel is told before the first page is touched.
    /// What it makes of it is no error: [`Region::node`] tells.
    ///
    /// # Errors
    /// The same as [`Region::map`]'s.
    pub fn map_near(spec: &RegionSpec, wish: Option<NodeWish<'_>>) -> Result<Self, RegionError> {
        match spec.pages {
            PageChoice::Exactly(page) => Self::map_exactly(spec, page, PageSource::Chosen, wish),
            PageChoice::Auto => Self::map_auto(spec, wish),
            PageChoice::OnDemand => Self::map_unfilled(spec, PageSize::Small4K, PageSource::Sparse, wish),
        }
    }

    /// The name that messages have for it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first byte, aligned to the page size.
    ///
    /// Its provenance is exposed, so that an address that went through a work request can be turned
    /// back into a pointer.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.as_ptr()
    }

    /// The length in bytes: whole pages, at least what was asked.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.mapping.len_bytes()
    }

    /// The pages that it lies on.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.page
    }

    /// It cannot be swapped out: it was locked, or it lies on hugepages, which the kernel never
    /// swaps (Documentation/admin-guide/mm/hugetlbpage.rst).
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// Set when hugepages were wanted and 4 KiB pages were taken: show it to the person who runs
    /// the program.
    #[must_use]
    pub fn fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }

    /// Returns the outcome of the wish for a NUMA node; `None` without a wish.
    #[must_use]
    pub fn node(&self) -> Option<&NodeOutcome> {
        self.node.as_ref()
    }

    /// Where the kernel names no default size that we know, hugepage-rs is not asked (it would
    /// panic): mmap says what is missing.
    fn map_auto(spec: &RegionSpec, wish: Option<NodeWish<'_>>) -> Result<Self, RegionError> {
        let (page, source) = match default_page() {
            Some(page) => (page, PageSource::Default),
            None => (PageSize::Huge2M, PageSource::Chosen),
        };
        match Self::map_exactly(spec, page, source, wish) {
            Err(RegionError::NoPages { page, pages, why, remedy, .. }) => {
                let mut region = Self::map_exactly(spec, PageSize::Small4K, PageSource::Chosen, wish)?;
                let shortage = Shortage { page, pages, why, remedy };
                region.fallback = Some(Fallback { region: spec.name.clone(), shortage });
                Ok(region)
            }
            done => done,
        }
    }

    /// Every page is still to come, from the node that is wished for.
    fn map_unfilled(
        spec: &RegionSpec,
        page: PageSize,
        source: PageSource,
        wish: Option<NodeWish<'_>>,
    ) -> Result<Self, RegionError> {
        let len = rounded_len(spec, page)?;
        let mapping = source.map(page, len).map_err(|error| unmapped(spec, page, len, error))?;
        let (name, locked) = (spec.name.clone(), page.is_huge());
        let mut region = Self { name, mapping, page, locked, fallback: None, node: None };
        region.as_ptr().expose_provenance();
        region.keep_from_children()?;
        region.node = wish.map(|wish| wish.tell(region.addresses()));
        Ok(region)
    }

    fn map_exactly(
        spec: &RegionSpec,
        page: PageSize,
        source: PageSource,
        wish: Option<NodeWish<'_>>,
    ) -> Result<Self, RegionError> {
        let mut region = Self::map_unfilled(spec, page, source, wish)?;
        region.prefault()?;
        let (addresses, page_bytes) = (region.addresses(), page.bytes());
        if let (Some(wish), Some(NodeOutcome { found: found @ NodeFound::Unknown, .. })) = (wish, &mut region.node) {
            *found = wish.look_up(addresses, page_bytes);
        }
        if spec.lock && !region.locked {
            region.lock()?;
        }
        Ok(region)
    }

    fn addresses(&self) -> Range<usize> {
        let start = self.as_ptr().addr();
        start..start + self.len_bytes()
    }

    fn advise(&self, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the range is this region's own mapping, whole; the advices given here (DONTFORK,
        // POPULATE_WRITE) change no byte of it.
        unsafe { rustix::mm::madvise(self.as_ptr().cast(), self.len_bytes(), advice) }
    }

    fn keep_from_children(&self) -> Result<(), RegionError> {
        self.advise(Advice::LinuxDontFork).map_err(|error| {
            self.system("madvise(MADV_DONTFORK)", error, "a seccomp filter may forbid madvise(2): allow it")
        })
    }

    /// Faults every page in. `MADV_POPULATE_WRITE` (Linux 5.14, madvise(2)) reports a shortage that
    /// a plain write would die of.
    fn prefault(&self) -> Result<(), RegionError> {
        match self.advise(Advice::LinuxPopulateWrite) {
            Ok(()) => Ok(()),
            Err(Errno::INVAL) => {
                self.touch_every_page();
                Ok(())
            }
            Err(error) if self.page.is_huge() => Err(no_pages(&self.name, self.page, self.len_bytes(), &error.into())),
            Err(error) => {
                Err(self.system("madvise(MADV_POPULATE_WRITE)", error, "free memory, or raise the cgroup's memory.max"))
            }
        }
    }

    /// For kernels before 5.14.
    fn touch_every_page(&self) {
        for offset in (0..self.len_bytes()).step_by(PageSize::Small4K.bytes()) {
            // SAFETY: the offset is inside the mapping, which nobody else knows yet; a fresh
            // mapping's bytes are zero, so this changes none.
            unsafe { self.as_ptr().add(offset).write_volatile(0) };
        }
    }

    fn lock(&mut self) -> Result<(), RegionError> {
        // SAFETY: the range is this region's own mapping; locking changes no byte of it.
        let locked = unsafe { rustix::mm::mlock(self.as_ptr().cast(), self.len_bytes()) };
        locked.map_err(|error| RegionError::Lock {
            region: self.name.clone(),
            len_bytes: self.len_bytes(),
            source: error.into(),
            remedy: lock_remedy(error, MemlockLimit::read().effective_bytes()),
        })?;
        self.locked = true;
        Ok(())
    }

    fn system(&self, call: &'static str, error: Errno, remedy: &'static str) -> RegionError {
        RegionError::System {
            region: self.name.clone(),
            call,
            len_bytes: self.len_bytes(),
            source: error.into(),
            remedy,
        }
    }
}

/// The size of the machine's default hugepage, where the kernel says one and it is a size that we
/// know.
fn default_page() -> Option<PageSize> {
    HugepageFacts::read().ok()?.default_bytes.and_then(PageSize::from_bytes)
}

fn rounded_len(spec: &RegionSpec, page: PageSize) -> Result<usize, RegionError> {
    if spec.len_bytes == 0 {
        return Err(RegionError::Empty { region: spec.name.clone() });
    }
    let unit = page.bytes().max(rustix::param::page_size());
    let rounded = spec.len_bytes.checked_next_multiple_of(unit);
    rounded.filter(|&len| isize::try_from(len).is_ok()).ok_or_else(|| RegionError::TooLong {
        region: spec.name.clone(),
        len_bytes: spec.len_bytes,
        page,
    })
}

fn unmapped(spec: &RegionSpec, page: PageSize, len: usize, source: io::Error) -> RegionError {
    if page.is_huge() {
        return no_pages(&spec.name, page, len, &source);
    }
    let remedy = "free memory, or raise `ulimit -v`, `ulimit -d` and the cgroup's memory.max";
    RegionError::System { region: spec.name.clone(), call: "mmap", len_bytes: len, source, remedy }
}

fn no_pages(region: &str, page: PageSize, len: usize, source: &io::Error) -> RegionError {
    let Shortage { page, pages, why, mut remedy } = Shortage::of(page, (len / page.bytes()) as u64);
    // They are free, and can't be touched: a cgroup (hugetlb) grants fewer.
    if source.raw_os_error() == Some(Errno::FAULT.raw_os_error()) {
        let size = if page == PageSize::Huge1G { "1GB" } else { "2MB" };
        remedy = format!(
            "raise the limit of this process's cgroup (hugetlb.{size}.max, of version 1 \
             hugetlb.{size}.limit_in_bytes) as root"
        );
    }
    RegionError::NoPages { region: region.to_owned(), page, pages, why: format!("{why} ({source})"), remedy }
}

fn lock_remedy(refusal: Errno, limit_bytes: Option<u64>) -> String {
    // mlock(2) says EPERM only to a process that may lock nothing at all, and never ENOSYS.
    if refusal == Errno::NOSYS || (refusal == Errno::PERM && limit_bytes != Some(0)) {
        return "allow mlock(2) in the seccomp filter of this container (`--security-opt seccomp=PROFILE`)".into();
    }
    let Some(bytes) = limit_bytes else { return "no limit binds this process: free memory".into() };
    format!(
        "the limit is {bytes} bytes: raise it (`ulimit -l unlimited`, LimitMEMLOCK=infinity in the systemd unit, or \
         memlock in /etc/security/limits.conf)"
    )
}
