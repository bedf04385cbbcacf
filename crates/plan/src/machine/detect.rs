//! Queries the kernel for this process and its machine: by system calls first, then by /proc and
//! /sys, which a container may lack.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, CpuSet, capabilities, sched_getaffinity};

use crate::machine::cgroup::Groups;
use crate::machine::number_list::parse_number_list;
use crate::machine::{Hugepages, Machine, MemoryGrant, Numa};

/// The inode of the first user namespace (PROC_USER_INIT_INO of linux/proc_ns.h), as
/// /proc/self/ns/user names it.
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

impl Machine {
    /// Describes this machine for this process. The CPUs and the limits come from system calls, so
    /// they are known even in a container without /proc. A fact that needs /proc or /sys is unknown
    /// without it, and limits nothing.
    pub fn detect() -> Machine {
        let meminfo = fs::read_to_string("/proc/meminfo").ok();
        let sizes = Path::new("/sys/kernel/mm/hugepages");
        let memlock_bytes = getrlimit(Resource::Memlock).current;
        let (page_bytes, groups) = (rustix::param::page_size() as u64, fs::read_to_string("/proc/self/cgroup"));
        let groups = Groups::new(groups.as_deref().unwrap_or_default(), Path::new("/sys/fs/cgroup"));
        let huge = |size_kib: u64| granted(hugepages(size_kib, sizes, meminfo.as_deref()), size_kib << 10, &groups);
        let [(huge_2m, of_2m), (huge_1g, of_1g)] = [huge(2 << 10), huge(1 << 20)];
        let available = meminfo.as_deref().and_then(|meminfo| kib(meminfo, "MemAvailable:"));
        let memory_bytes = available.unwrap_or(u64::MAX);
        Machine {
            cpus: cpus(),
            cpu_quota: groups.cpu_quota(),
            huge_2m,
            huge_1g,
            huge_default_bytes: meminfo.as_deref().and_then(|meminfo| kib(meminfo, "Hugepagesize:")),
            page_bytes,
            memlock_bytes: memlock_bytes.filter(|_| !may_lock_without_limit()),
            memory_bytes,
            memory_grant: groups.memory().filter(|grant| grant.bytes < memory_bytes),
            hugepage_grants: of_2m.into_iter().chain(of_1g).collect(),
            address_space_bytes: address_space_bytes(page_bytes),
            data_bytes: data_bytes(),
            descriptors_max: getrlimit(Resource::Nofile).maximum,
            descriptors_open: descriptors_open(),
            numa: Numa::detect(Path::new("/sys")),
        }
    }
}

/// The CPUs of the calling thread, which the lcores' threads inherit.
fn cpus() -> BTreeSet<u32> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect(),
        // The call fails on a kernel with more CPUs than the set has room for.
        Err(_) => {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
            field(&status, "Cpus_allowed_list:").map(parse_number_list).unwrap_or_default()
        }
    }
}

/// The kernel checks CAP_IPC_LOCK in the first user namespace: that of a rootless container lifts
/// no limit. Without /proc a container can't be recognized, and the capability counts.
fn may_lock_without_limit() -> bool {
    let has_it = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    has_it && fs::read_link("/proc/self/ns/user").map_or(true, |name| name == Path::new(FIRST_USER_NAMESPACE))
}

/// Reads the counts from /sys, which has every size, or from /proc/meminfo, which has the default
/// one.
fn hugepages(size_kib: u64, sizes: &Path, meminfo: Option<&str>) -> Hugepages {
    if sizes.is_dir() {
        let count = |file: &str| {
            let path = sizes.join(format!("hugepages-{size_kib}kB")).join(file);
            fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
        };
        return counted(count("nr_hugepages"), count("free_hugepages"), count("resv_hugepages"))
            .unwrap_or(Hugepages::Absent);
    }
    let Some(meminfo) = meminfo else { return Hugepages::Unknown };
    let count = |name: &str| field(meminfo, name)?.parse().ok();
    match kib(meminfo, "Hugepagesize:") {
        None => Hugepages::Absent,
        Some(default) if default != size_kib << 10 => Hugepages::Unknown,
        Some(_) => counted(count("HugePages_Total:"), count("HugePages_Free:"), count("HugePages_Rsvd:"))
            .unwrap_or(Hugepages::Unknown),
    }
}

/// Pages reserved for a mapping that has not touched them yet are not free.
fn counted(total: Option<u64>, free: Option<u64>, reserved: Option<u64>) -> Option<Hugepages> {
    Some(Hugepages::Counted { total: total?, free: free?.saturating_sub(reserved.unwrap_or(0)) })
}

/// The free hugepages of a size that the cgroups leave to this process, and the limiting cgroup.
fn granted(free: Hugepages, size_bytes: u64, groups: &Groups<'_>) -> (Hugepages, Option<(u64, MemoryGrant)>) {
    let Hugepages::Counted { total, free: counted } = free else { return (free, None) };
    match groups.hugepages(size_bytes).filter(|grant| grant.bytes / size_bytes < counted) {
        Some(grant) => (Hugepages::Counted { total, free: grant.bytes / size_bytes }, Some((size_bytes, grant))),
        None => (free, None),
    }
}

/// The rest of RLIMIT_AS beside the present mappings (proc_pid_statm(5)).
fn address_space_bytes(page_bytes: u64) -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(pages.saturating_mul(page_bytes)))
}

/// The rest of RLIMIT_DATA beside the present private writable mappings (VmData of
/// proc_pid_status(5)).
fn data_bytes() -> Option<u64> {
    let limit = getrlimit(Resource::Data).current?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    Some(limit.saturating_sub(kib(&status, "VmData:").unwrap_or(0)))
}

/// The open descriptors of this process; the three standard ones where /proc does not tell.
fn descriptors_open() -> u64 {
    // The folder itself is open during the count.
    fs::read_dir("/proc/self/fd").map_or(3, |open| (open.count() as u64).saturating_sub(1))
}

/// The rest of the first line that starts with `name`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// A field in kB, converted to bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str =
        "HugePages_Total:      16\nHugePages_Free:        9\nHugePages_Rsvd:        4\nHugepagesize:       2048 kB\n";

    #[test]
    fn reads_a_count_of_kilobytes() {
        assert_eq!(kib("Hugepagesize:       2048 kB\n", "Hugepagesize:"), Some(2 << 20));
    }

    #[test]
    fn detects_this_machine() {
        let machine = Machine::detect();
        assert!(!machine.cpus.is_empty(), "a running process is allowed on some CPU");
        assert!(machine.page_bytes.is_power_of_two());
        // Two ways to one answer, where /proc is there.
        if let Ok(status) = fs::read_to_string("/proc/thread-self/status") {
            assert_eq!(field(&status, "Cpus_allowed_list:").map(parse_number_list), Some(machine.cpus));
        }
    }

    #[test]
    fn hugepages_are_counted_in_sys_or_in_proc_or_are_unknown() {
        let nowhere = Path::new("/nowhere");
        let here = std::env::temp_dir();
        let counted = Hugepages::Counted { total: 16, free: 5 };
        assert_eq!(hugepages(2048, nowhere, Some(MEMINFO)), counted);
        assert_eq!(hugepages(1 << 20, nowhere, Some(MEMINFO)), Hugepages::Unknown);
        assert_eq!(hugepages(2048, nowhere, Some("MemTotal: 8 kB\n")), Hugepages::Absent);
        assert_eq!(hugepages(2048, nowhere, None), Hugepages::Unknown);
        assert_eq!(hugepages(2048, &here, Some(MEMINFO)), Hugepages::Absent, "a /sys without this size");
    }
}
