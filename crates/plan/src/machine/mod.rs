//! The machine's CPUs, memory and limits, against which a plan is checked.
//!
//! [`Machine::detect`] queries the kernel; tests fill it in by hand.

mod cgroup;
mod detect;
#[cfg(test)]
mod mounted;
pub(crate) mod note;
mod numa;
pub(crate) mod number_list;

use std::collections::BTreeSet;

pub use numa::Numa;

/// Facts of a machine and this process, against which a plan is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The CPUs that this process may run on.
    pub cpus: BTreeSet<u32>,
    /// The CPU time that a cgroup grants this process, if less than these CPUs have.
    pub cpu_quota: Option<CpuQuota>,
    /// Pages of 2 MiB.
    pub huge_2m: Hugepages,
    /// Pages of 1 GiB.
    pub huge_1g: Hugepages,
    /// The system's default hugepage size, which `pages = "auto"` takes; `None` without hugepages,
    /// or where neither /sys nor /proc names it.
    pub huge_default_bytes: Option<u64>,
    /// The size of an ordinary page.
    pub page_bytes: u64,
    /// RLIMIT_MEMLOCK; `None` if nothing limits this process (`unlimited`, or CAP_IPC_LOCK).
    pub memlock_bytes: Option<u64>,
    /// Memory available without swapping (MemAvailable); hugepages come on top.
    pub memory_bytes: u64,
    /// A cgroup's grant of it, if lower.
    pub memory_grant: Option<MemoryGrant>,
    /// A cgroup's grants of the free hugepages, by their size, where lower.
    pub hugepage_grants: Vec<(u64, MemoryGrant)>,
    /// The rest of RLIMIT_AS; `None` if the address space is not limited.
    pub address_space_bytes: Option<u64>,
    /// The rest of RLIMIT_DATA, which bounds private writable mappings; `None` if nothing does.
    pub data_bytes: Option<u64>,
    /// The file descriptors that this process may have open, however it raises its own limit
    /// (RLIMIT_NOFILE); `None` if nothing limits them.
    pub descriptors_max: Option<u64>,
    /// The descriptors that are open already.
    pub descriptors_open: u64,
    /// The NUMA nodes of the memory, CPUs and devices.
    pub numa: Numa,
}

impl Machine {
    /// Memory that this process can have.
    pub(crate) fn available_bytes(&self) -> u64 {
        self.memory_grant.as_ref().map_or(self.memory_bytes, |grant| grant.bytes.min(self.memory_bytes))
    }

    /// The grant that limits hugepages of this size.
    pub(crate) fn hugepage_grant(&self, page_bytes: u64) -> Option<&MemoryGrant> {
        self.hugepage_grants.iter().find(|(size, _)| *size == page_bytes).map(|(_, grant)| grant)
    }
}

/// The hugepages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hugepages {
    /// The kernel has no pages of this size.
    Absent,
    /// The count is unknown, since neither /sys nor /proc tells: only an attempt to map some does.
    Unknown,
    /// The kernel's counts.
    Counted {
        /// All hugepages that are set aside.
        total: u64,
        /// Hugepages that a new mapping can have.
        free: u64,
    },
}

/// The rest of a cgroup's grant of some memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryGrant {
    /// The rest of the limit.
    pub bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
    /// The command that lifts it.
    pub remedy: String,
}

/// A cgroup's limit on CPU time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuQuota {
    /// Thousandths of a CPU.
    pub millicpus: u64,
    /// The command that lifts it.
    pub remedy: String,
}
