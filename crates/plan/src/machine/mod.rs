//! The machine's CPUs, memory and limits, against which a plan is checked.
//!
//! [`Machine::detect`] asks the kernel; tests fill it in by hand.

mod cgroup;
mod detect;
#[cfg(test)]
mod mounted;
pub(crate) mod note;
mod numa;
pub(crate) mod number_list;

use std::collections::BTreeSet;

pub use numa::Numa;

/// Facts that a plan is held against.
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
    /// or where nobody names it.
    pub huge_default_bytes: Option<u64>,
    /// The size of an ordinary page.
    pub page_bytes: u64,
    /// RLIMIT_MEMLOCK; `None` if nothing limits this process (`unlimited`, or CAP_IPC_LOCK).
    pub memlock_bytes: Option<u64>,
    /// Memory that can be had without swapping (MemAvailable); hugepages come on top.
    pub memory_bytes: u64,
    /// What a cgroup grants of it, if that is less.
    pub memory_grant: Option<MemoryGrant>,
    /// What a cgroup grants of the free hugepages, by their size, where that is less.
    pub hugepage_grants: Vec<(u64, MemoryGrant)>,
    /// What RLIMIT_AS leaves of the address space; `None` if it is not limited.
    pub address_space_bytes: Option<u64>,
    /// The file descriptors that this process may have open, however it raises its own limit
    /// (RLIMIT_NOFILE); `None` if nothing limits them.
    pub descriptors_max: Option<u64>,
    /// Those that it has open already.
    pub descriptors_open: u64,
    /// Which memory is near which CPUs and devices.
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
    /// Nobody says how many there are, since neither /sys nor /proc does: only the attempt to have
    /// some tells.
    Unknown,
    /// As the kernel counts them.
    Counted {
        /// All that are set aside.
        total: u64,
        /// Those that a new mapping can have.
        free: u64,
    },
}

/// What a cgroup still grants of some memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryGrant {
    /// What is left of the limit.
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
