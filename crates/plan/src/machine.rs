//! What the machine has, as far as a plan can ask too much of it.
//!
//! [`Machine::detect`] asks the kernel; tests fill it in by hand.

use std::collections::BTreeSet;

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

/// A cgroup's limit on CPU time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuQuota {
    /// Thousandths of a CPU.
    pub millicpus: u64,
    /// The command that lifts it.
    pub remedy: String,
}
