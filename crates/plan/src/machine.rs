//! What the machine has, as far as a plan can ask too much of it.
//!
//! [`Machine::detect`] reads it from Linux's /proc and /sys; tests fill it in by hand.

use std::collections::BTreeSet;
use std::fs;

/// Facts that a plan is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The CPUs that this process may run on.
    pub cpus: BTreeSet<u32>,
    /// Free 2 MiB pages; `None` if the kernel has no pages of this size.
    pub huge_2m_free: Option<u64>,
    /// Free 1 GiB pages; `None` if the kernel has no pages of this size.
    pub huge_1g_free: Option<u64>,
    /// The system's default hugepage size, which `pages = "auto"` takes; `None` without hugepages.
    pub huge_default_bytes: Option<u64>,
    /// The size of an ordinary page.
    pub page_bytes: u64,
    /// RLIMIT_MEMLOCK; `None` if nothing limits this process (`unlimited`, or CAP_IPC_LOCK).
    pub memlock_bytes: Option<u64>,
    /// Memory that can be had without swapping (MemAvailable); hugepages come on top.
    pub memory_bytes: u64,
}

impl Machine {
    /// This machine, for this process. What can't be read counts as absent, except the memory limits, which count as none.
    pub fn detect() -> Machine {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let free = |kib: u64| {
            let path = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/free_hugepages");
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        Machine {
            cpus: field(&status, "Cpus_allowed_list:").map(parse_cpu_list).unwrap_or_default(),
            huge_2m_free: free(2 << 10),
            huge_1g_free: free(1 << 20),
            huge_default_bytes: kib(&meminfo, "Hugepagesize:"),
            // The kernel's KernelPageSize is the page size of every ordinary mapping; 4 KiB on every x86-64.
            page_bytes: fs::read_to_string("/proc/self/smaps")
                .ok()
                .and_then(|maps| kib(&maps, "KernelPageSize:"))
                .unwrap_or(4096),
            memlock_bytes: if may_lock(&status) { None } else { memlock_bytes(&limits) },
            memory_bytes: kib(&meminfo, "MemAvailable:").unwrap_or(u64::MAX),
        }
    }
}

/// The rest of the first line that starts with `name`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// A field in kB, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// `0-3,8` as a set; what is malformed is left out.
fn parse_cpu_list(list: &str) -> BTreeSet<u32> {
    let mut cpus = BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse()) {
            cpus.extend(first..=last);
        }
    }
    cpus
}

/// Whether the process has CAP_IPC_LOCK, bit 14 (linux/capability.h), and so no RLIMIT_MEMLOCK (mlock(2)).
fn may_lock(status: &str) -> bool {
    let effective = field(status, "CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    effective & (1 << 14) != 0
}

/// The soft limit of `Max locked memory` in /proc/self/limits (proc(5)).
fn memlock_bytes(limits: &str) -> Option<u64> {
    field(limits, "Max locked memory")?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_formats() {
        assert_eq!(parse_cpu_list("0-2,8"), BTreeSet::from([0, 1, 2, 8]));
        assert_eq!(parse_cpu_list("x,1-"), BTreeSet::new());
        let limits = "Limit    Soft Limit   Hard Limit   Units\nMax locked memory         8388608              8388608              bytes\n";
        assert_eq!(memlock_bytes(limits), Some(8 << 20));
        assert_eq!(memlock_bytes("Max locked memory   unlimited  unlimited  bytes"), None);
        assert!(may_lock("CapEff:\t000001ffffffffff\n"));
        assert!(!may_lock("CapEff:\t0000000000000000\n"));
        assert_eq!(kib("Hugepagesize:       2048 kB\n", "Hugepagesize:"), Some(2 << 20));
    }

    #[test]
    fn detects_this_machine() {
        let machine = Machine::detect();
        assert!(!machine.cpus.is_empty(), "a running process is allowed on some CPU");
        assert!(machine.page_bytes.is_power_of_two());
    }
}
