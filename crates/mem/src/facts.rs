//! Facts about the machine: hugepages by size, the locked-memory limit.
//!
//! Every call reads afresh from the kernel; nothing is cached. What a container hides is looked for
//! in a second place (a system call, or /proc for /sys) before it counts as absent. A file that
//! cannot be read or understood is an error, never a guess. Other processes change the counts:
//! treat them as advice; the mapping decides.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::thread::CapabilitySet;

/// The inode of the first user namespace (PROC_USER_INIT_INO of linux/proc_ns.h), as
/// /proc/self/ns/user names it.
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

/// Why a fact about the machine could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// The kernel's file is there but cannot be read.
    #[error("cannot read {}: {source}; mount /proc and /sys readable in this container", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is there but does not say what proc(5) says it does.
    #[error("{}: `{found}` is not a count; is something other than the kernel mounted there?", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The text that was found.
        found: String,
    },
}

/// The hugepages of one size (Documentation/admin-guide/mm/hugetlbpage.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugepageCount {
    /// Size of one page, bytes.
    pub size_bytes: u64,
    /// Pages in the kernel's pool of this size (`nr_hugepages`).
    pub total: u64,
    /// Pages not yet allocated (`free_hugepages`).
    pub free: u64,
    /// Free pages already promised to a mapping that has not touched them (`resv_hugepages`).
    pub reserved: u64,
}

impl HugepageCount {
    /// Pages that a new mapping can have: free and not promised.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }
}

/// The machine's hugepages.
///
/// ```
/// use verbline_mem::facts::HugepageFacts;
///
/// let facts = HugepageFacts::read()?;
/// for pages in &facts.sizes {
///     assert!(pages.size_bytes.is_power_of_two());
///     println!("{} KiB: {} of {} free", pages.size_bytes >> 10, pages.available(), pages.total);
/// }
/// # Ok::<(), verbline_mem::facts::FactsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HugepageFacts {
    /// The size that a plain `MAP_HUGETLB` gets, bytes: `Hugepagesize` of /proc/meminfo; `None`
    /// where the kernel has no hugepages.
    pub default_bytes: Option<u64>,
    /// Every size that the kernel has, smallest first; without /sys the default size alone, as
    /// /proc/meminfo counts it.
    pub sizes: Vec<HugepageCount>,
}

impl HugepageFacts {
    /// Reads /proc/meminfo and /sys/kernel/mm/hugepages.
    ///
    /// # Errors
    /// When a file is there but unreadable or not understood.
    pub fn read() -> Result<Self, FactsError> {
        Self::read_under(Path::new("/"))
    }

    /// Like [`HugepageFacts::read`], with `root` in place of `/` (a container's, or a test's).
    ///
    /// # Errors
    /// When a file is there but unreadable or not understood.
    pub fn read_under(root: &Path) -> Result<Self, FactsError> {
        let path = root.join("proc/meminfo");
        let meminfo = read_if_there(&path)?.unwrap_or_default();
        let default_bytes = default_hugepage_bytes(&meminfo, &path)?;
        let sizes = match sizes_in(&root.join("sys/kernel/mm/hugepages"))? {
            Some(sizes) => sizes,
            None => {
                default_bytes.map(|bytes| count_in_meminfo(bytes, &meminfo, &path)).transpose()?.into_iter().collect()
            }
        };
        Ok(Self { default_bytes, sizes })
    }

    /// The counts for one page size, if the kernel has that size.
    #[must_use]
    pub fn size(&self, size_bytes: u64) -> Option<&HugepageCount> {
        self.sizes.iter().find(|pages| pages.size_bytes == size_bytes)
    }
}

/// How much memory this process may lock.
///
/// RDMA registration pins pages and counts them against the same limit (ibv_reg_mr(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemlockLimit {
    /// The limit in force, bytes; `None`: unlimited.
    pub soft_bytes: Option<u64>,
    /// The hard limit, up to which the process may raise it, bytes; `None`: unlimited.
    pub hard_bytes: Option<u64>,
    /// The process holds CAP_IPC_LOCK, so the limit does not bind it (capabilities(7)). That of a
    /// rootless container does not count.
    pub exempt: bool,
}

impl MemlockLimit {
    /// Reads RLIMIT_MEMLOCK (getrlimit(2)) and the effective capabilities (capget(2)); neither
    /// needs /proc.
    #[must_use]
    pub fn read() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
        Self { soft_bytes: limit.current, hard_bytes: limit.maximum, exempt: may_lock_without_limit() }
    }

    /// The bytes that can be locked; `None`: no limit.
    #[must_use]
    pub fn effective_bytes(&self) -> Option<u64> {
        if self.exempt { None } else { self.soft_bytes }
    }
}

fn read_if_there(path: &Path) -> Result<Option<String>, FactsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FactsError::Read { path: path.to_owned(), source }),
    }
}

fn parse_error(path: &Path, found: &str) -> FactsError {
    FactsError::Parse { path: path.to_owned(), found: found.trim().to_owned() }
}

/// The `Hugepagesize:` line, which a kernel without hugetlbfs leaves out. hugepage-rs reads the
/// same line and panics without it.
fn default_hugepage_bytes(meminfo: &str, path: &Path) -> Result<Option<u64>, FactsError> {
    let Some(rest) = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:")) else {
        return Ok(None);
    };
    let kib = rest.trim().strip_suffix("kB").unwrap_or("").trim();
    match kib.parse::<u64>().ok().and_then(|kib| kib.checked_mul(1024)) {
        Some(bytes) if bytes.is_power_of_two() => Ok(Some(bytes)),
        _ => Err(parse_error(path, rest)),
    }
}

/// Reads the count of the default size from /proc/meminfo (proc(5)).
fn count_in_meminfo(size_bytes: u64, meminfo: &str, path: &Path) -> Result<HugepageCount, FactsError> {
    let count = |name: &str| {
        let found = meminfo.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
        found.trim().parse().map_err(|_| parse_error(path, &format!("{name}{found}")))
    };
    Ok(HugepageCount {
        size_bytes,
        total: count("HugePages_Total:")?,
        free: count("HugePages_Free:")?,
        reserved: count("HugePages_Rsvd:")?,
    })
}

/// One folder a size, named `hugepages-<KiB>kB`; `None` if the folder of them all is not there.
fn sizes_in(folder: &Path) -> Result<Option<Vec<HugepageCount>>, FactsError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(FactsError::Read { path: folder.to_owned(), source }),
    };
    let mut sizes = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| FactsError::Read { path: folder.to_owned(), source })?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let Some(kib) = name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB")) else {
            continue;
        };
        let size_bytes = match kib.parse::<u64>().ok().and_then(|kib| kib.checked_mul(1024)) {
            Some(bytes) if bytes.is_power_of_two() => bytes,
            _ => return Err(parse_error(&entry.path(), &name)),
        };
        sizes.push(HugepageCount {
            size_bytes,
            total: count_in(&entry.path().join("nr_hugepages"))?,
            free: count_in(&entry.path().join("free_hugepages"))?,
            reserved: count_in(&entry.path().join("resv_hugepages"))?,
        });
    }
    sizes.sort_by_key(|pages| pages.size_bytes);
    Ok(Some(sizes))
}

fn count_in(path: &Path) -> Result<u64, FactsError> {
    let text = fs::read_to_string(path).map_err(|source| FactsError::Read { path: path.to_owned(), source })?;
    text.trim().parse().map_err(|_| parse_error(path, &text))
}

/// The kernel asks for the capability in the first user namespace (`capable()` of mm/mlock.c and of
/// ib_umem_get). Without /proc no container shows, and the capability is taken at its word.
fn may_lock_without_limit() -> bool {
    let has_it = rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    has_it && fs::read_link("/proc/self/ns/user").map_or(true, |name| name == Path::new(FIRST_USER_NAMESPACE))
}
