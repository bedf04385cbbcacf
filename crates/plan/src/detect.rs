//! Asks the kernel about this process and its machine: by system calls first, then by /proc and
//! /sys, which a container may lack.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, CpuSet, capabilities, sched_getaffinity};

use crate::machine::{CpuQuota, Hugepages, Machine};

/// The inode of the first user namespace (PROC_USER_INIT_INO of linux/proc_ns.h), as
/// /proc/self/ns/user names it.
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

impl Machine {
    /// This machine, for this process. The CPUs and the limits are asked of the kernel itself, so
    /// that they are known where a container has no /proc; what can't be learned without /proc or
    /// /sys is unknown, and limits nothing.
    pub fn detect() -> Machine {
        let meminfo = fs::read_to_string("/proc/meminfo").ok();
        let sizes = Path::new("/sys/kernel/mm/hugepages");
        let memlock_bytes = getrlimit(Resource::Memlock).current;
        Machine {
            cpus: cpus(),
            cpu_quota: fs::read_to_string("/proc/self/cgroup")
                .ok()
                .and_then(|groups| cpu_quota(&groups, Path::new("/sys/fs/cgroup"))),
            huge_2m: hugepages(2 << 10, sizes, meminfo.as_deref()),
            huge_1g: hugepages(1 << 20, sizes, meminfo.as_deref()),
            huge_default_bytes: meminfo.as_deref().and_then(|meminfo| kib(meminfo, "Hugepagesize:")),
            page_bytes: rustix::param::page_size() as u64,
            memlock_bytes: memlock_bytes.filter(|_| !may_lock_without_limit()),
            memory_bytes: meminfo.as_deref().and_then(|meminfo| kib(meminfo, "MemAvailable:")).unwrap_or(u64::MAX),
        }
    }
}

/// Those of the calling thread, which the lcores' threads inherit.
fn cpus() -> BTreeSet<u32> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect(),
        // A kernel with more CPUs than the set has room for refuses to fill it.
        Err(_) => {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
            field(&status, "Cpus_allowed_list:").map(parse_cpu_list).unwrap_or_default()
        }
    }
}

/// The kernel asks for CAP_IPC_LOCK in the first user namespace: that of a rootless container lifts
/// no limit. Without /proc no container shows, and the capability is taken at its word.
fn may_lock_without_limit() -> bool {
    let has_it = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    has_it && fs::read_link("/proc/self/ns/user").map_or(true, |name| name == Path::new(FIRST_USER_NAMESPACE))
}

/// /sys has every size, /proc/meminfo the default one.
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

/// What is promised to a mapping that has not touched it is not free.
fn counted(total: Option<u64>, free: Option<u64>, reserved: Option<u64>) -> Option<Hugepages> {
    Some(Hugepages::Counted { total: total?, free: free?.saturating_sub(reserved.unwrap_or(0)) })
}

/// The least that any cgroup around this process grants. `groups`: /proc/self/cgroup (cgroups(7));
/// `mount`: where they are mounted.
fn cpu_quota(groups: &str, mount: &Path) -> Option<CpuQuota> {
    let of_group = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, read): (_, fn(&Path) -> Option<CpuQuota>) = match controllers {
            "" => (mount.to_owned(), quota_v2),
            _ if controllers.split(',').any(|name| name == "cpu") => (mount.join("cpu"), quota_v1),
            _ => return None,
        };
        // In a container the path may be the host's: what is not there is passed over, up to the
        // container's own root.
        let folders = Path::new(path.trim_start_matches('/')).ancestors().map(|folder| root.join(folder));
        folders.filter_map(|folder| read(&folder)).min_by_key(|quota| quota.millicpus)
    };
    groups.lines().filter_map(of_group).min_by_key(|quota| quota.millicpus)
}

/// `cpu.max` has the quota, or `max`, and the period.
fn quota_v2(folder: &Path) -> Option<CpuQuota> {
    let file = folder.join("cpu.max");
    let text = fs::read_to_string(&file).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    quota_of(quota.parse().ok()?, period.parse().ok()?, "max", file)
}

/// The quota is -1 where there is none.
fn quota_v1(folder: &Path) -> Option<CpuQuota> {
    let file = folder.join("cpu.cfs_quota_us");
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    quota_of(number(&file)?, number(&folder.join("cpu.cfs_period_us"))?, "-1", file)
}

fn quota_of(quota_us: u64, period_us: u64, none: &str, file: PathBuf) -> Option<CpuQuota> {
    let millicpus = quota_us.checked_mul(1000)?.checked_div(period_us)?;
    Some(CpuQuota { millicpus, remedy: format!("`echo {none} > {}`", file.display()) })
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

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str =
        "HugePages_Total:      16\nHugePages_Free:        9\nHugePages_Rsvd:        4\nHugepagesize:       2048 kB\n";

    #[test]
    fn reads_the_kernels_formats() {
        assert_eq!(parse_cpu_list("0-2,8"), BTreeSet::from([0, 1, 2, 8]));
        assert_eq!(parse_cpu_list("x,1-"), BTreeSet::new());
        assert_eq!(kib("Hugepagesize:       2048 kB\n", "Hugepagesize:"), Some(2 << 20));
    }

    #[test]
    fn detects_this_machine() {
        let machine = Machine::detect();
        assert!(!machine.cpus.is_empty(), "a running process is allowed on some CPU");
        assert!(machine.page_bytes.is_power_of_two());
        // Two roads to one answer, where /proc is there.
        if let Ok(status) = fs::read_to_string("/proc/thread-self/status") {
            assert_eq!(field(&status, "Cpus_allowed_list:").map(parse_cpu_list), Some(machine.cpus));
        }
    }

    #[test]
    fn the_least_quota_around_the_process_counts() {
        let mount = tempfile::tempdir().expect("a folder");
        let write = |file: &str, text: &str| {
            let path = mount.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        write("a/cpu.max", "50000 100000\n");
        write("a/b/cpu.max", "max 100000\n");
        write("a/b/c/cpu.max", "200000 100000\n");
        let quota = |groups: &str| cpu_quota(groups, mount.path());
        let found = quota("0::/a/b/c\n").expect("a quota");
        assert_eq!(found.millicpus, 500, "an outer group's");
        assert_eq!(found.remedy, format!("`echo max > {}/a/cpu.max`", mount.path().display()));
        // A path of the host, in a container that mounts its own group as the root.
        assert_eq!(quota("0::/a/b\n").map(|quota| quota.millicpus), Some(500));
        assert_eq!(quota("0::/kubepods/pod7\n"), None);
        write("cpu.max", "150000 100000\n");
        assert_eq!(quota("0::/kubepods/pod7\n").map(|quota| quota.millicpus), Some(1500));

        write("cpu/box/cpu.cfs_quota_us", "-1\n");
        write("cpu/box/cpu.cfs_period_us", "100000\n");
        let v1 = "4:memory:/box\n3:cpu,cpuacct:/box\n";
        assert_eq!(quota(v1), None);
        write("cpu/box/cpu.cfs_quota_us", "25000\n");
        let found = quota(v1).expect("a quota");
        let file = mount.path().join("cpu/box/cpu.cfs_quota_us");
        assert_eq!((found.millicpus, found.remedy), (250, format!("`echo -1 > {}`", file.display())));
        assert_eq!(quota("nonsense\n0::\n1:cpu\n"), Some(cpu_quota("0::/", mount.path()).expect("the root's")));
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
