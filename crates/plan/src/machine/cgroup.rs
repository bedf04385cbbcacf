//! Limits by cgroups, in either hierarchy (cgroups(7)): CPU time, memory, and hugepages. The
//! tightest of the cgroups around this process holds.
//!
//! In a container the path in /proc may be the host's: a missing folder is passed over, up to the
//! container's own root.

use std::fs;
use std::path::{Path, PathBuf};

use crate::machine::{CpuQuota, MemoryGrant};

/// The cgroups of a process.
pub(crate) struct Groups<'a> {
    /// /proc/self/cgroup.
    groups: &'a str,
    /// The mount point.
    mount: &'a Path,
}

/// One group's folder, in the hierarchy of version 2 or of one controller.
struct Group {
    folder: PathBuf,
    is_v2: bool,
}

impl<'a> Groups<'a> {
    pub(crate) fn new(groups: &'a str, mount: &'a Path) -> Groups<'a> {
        Groups { groups, mount }
    }

    /// The CPU time that is granted.
    pub(crate) fn cpu_quota(&self) -> Option<CpuQuota> {
        let quota = |group: Group| if group.is_v2 { quota_v2(&group.folder) } else { quota_v1(&group.folder) };
        self.around("cpu").filter_map(quota).min_by_key(|quota| quota.millicpus)
    }

    /// The memory that is still available, without hugepages.
    pub(crate) fn memory(&self) -> Option<MemoryGrant> {
        let grant = |group: Group| {
            let [limit, used, reclaimable] = match group.is_v2 {
                true => ["memory.max", "memory.current", ""],
                false => ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_"],
            };
            let cached = |stat: &str| -> u64 {
                let lists = ["inactive_file ", "active_file ", "slab_reclaimable "];
                let of = |name: &str| stat.lines().find_map(|line| line.strip_prefix(&format!("{reclaimable}{name}")));
                lists.into_iter().filter_map(|name| of(name)?.trim().parse::<u64>().ok()).sum()
            };
            let stat = fs::read_to_string(group.folder.join("memory.stat")).unwrap_or_default();
            let used = number(&group.folder.join(used)).unwrap_or(0).saturating_sub(cached(&stat));
            group.grant(limit, used)
        };
        self.around("memory").filter_map(grant).min_by_key(|grant| grant.bytes)
    }

    /// The hugepages of this size that are still available.
    pub(crate) fn hugepages(&self, size_bytes: u64) -> Option<MemoryGrant> {
        let size =
            if size_bytes >= 1 << 30 { format!("{}GB", size_bytes >> 30) } else { format!("{}MB", size_bytes >> 20) };
        // Reservations are charged as well, against a limit of their own.
        let grant = |group: Group| {
            let files = match group.is_v2 {
                true => [("max", "current"), ("rsvd.max", "rsvd.current")],
                false => [("limit_in_bytes", "usage_in_bytes"), ("rsvd.limit_in_bytes", "rsvd.usage_in_bytes")],
            };
            let of = |(limit, used): (&str, &str)| {
                let used = number(&group.folder.join(format!("hugetlb.{size}.{used}"))).unwrap_or(0);
                group.grant(&format!("hugetlb.{size}.{limit}"), used)
            };
            files.into_iter().filter_map(of).min_by_key(|grant| grant.bytes)
        };
        self.around("hugetlb").filter_map(grant).min_by_key(|grant| grant.bytes)
    }

    /// The groups around this process that may limit the controller's resource, from the inner to
    /// the outer.
    fn around(&self, controller: &str) -> impl Iterator<Item = Group> {
        let of_line = move |line: &'a str| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let (root, is_v2) = match controllers {
                "" => (self.mount.to_owned(), true),
                _ if controllers.split(',').any(|name| name == controller) => (self.mount.join(controller), false),
                _ => return None,
            };
            let folders = Path::new(path.trim_start_matches('/')).ancestors();
            Some(folders.map(move |folder| Group { folder: root.join(folder), is_v2 }))
        };
        self.groups.lines().filter_map(of_line).flatten().collect::<Vec<_>>().into_iter()
    }
}

impl Group {
    /// The rest of the limit in a file of this name.
    fn grant(&self, file: &str, used_bytes: u64) -> Option<MemoryGrant> {
        let file = self.folder.join(file);
        // Version 1 writes a number close to 2^63 for no limit.
        let limit = number(&file).filter(|limit| *limit < 1 << 60)?;
        let none = if self.is_v2 { "max" } else { "-1" };
        let remedy = format!("`echo {none} > {}`", file.display());
        Some(MemoryGrant { bytes: limit.saturating_sub(used_bytes), limit_bytes: limit, remedy })
    }
}

/// Reads `cpu.max`: the quota, or `max`, and the period.
fn quota_v2(folder: &Path) -> Option<CpuQuota> {
    let file = folder.join("cpu.max");
    let text = fs::read_to_string(&file).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    quota_of(quota.parse().ok()?, period.parse().ok()?, "max", file)
}

/// Reads version 1's files; a quota of -1 is none.
fn quota_v1(folder: &Path) -> Option<CpuQuota> {
    let file = folder.join("cpu.cfs_quota_us");
    quota_of(number(&file)?, number(&folder.join("cpu.cfs_period_us"))?, "-1", file)
}

fn quota_of(quota_us: u64, period_us: u64, none: &str, file: PathBuf) -> Option<CpuQuota> {
    let millicpus = quota_us.checked_mul(1000)?.checked_div(period_us)?;
    Some(CpuQuota { millicpus, remedy: format!("`echo {none} > {}`", file.display()) })
}

/// The number in a file; `None` also for `max` and -1.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::mounted::mounted;

    #[test]
    fn the_least_quota_around_the_process_counts() {
        let v2 = [
            ("a/cpu.max", "50000 100000\n"),
            ("a/b/cpu.max", "max 100000\n"),
            ("a/b/c/cpu.max", "200000 100000\n"),
            ("cpu.max", "150000 100000\n"),
        ];
        let mount = mounted(&v2[..3]);
        let quota = |groups: &str| Groups::new(groups, mount.path()).cpu_quota();
        let found = quota("0::/a/b/c\n").expect("a quota");
        assert_eq!(found.millicpus, 500, "an outer group's");
        assert_eq!(found.remedy, format!("`echo max > {}/a/cpu.max`", mount.path().display()));
        // A path of the host, in a container that mounts its own group as the root.
        assert_eq!(quota("0::/a/b\n").map(|quota| quota.millicpus), Some(500));
        assert_eq!(quota("0::/kubepods/pod7\n"), None);
        let mount = mounted(&v2);
        let quota = |groups: &str| Groups::new(groups, mount.path()).cpu_quota();
        assert_eq!(quota("0::/kubepods/pod7\n").map(|quota| quota.millicpus), Some(1500));
        assert_eq!(quota("nonsense\n0::\n1:cpu\n").map(|quota| quota.millicpus), Some(1500), "the root's");

        let v1 = "4:memory:/box\n3:cpu,cpuacct:/box\n";
        for (quota, expected) in [("-1\n", None), ("25000\n", Some(250))] {
            let mount = mounted(&[("cpu/box/cpu.cfs_quota_us", quota), ("cpu/box/cpu.cfs_period_us", "100000\n")]);
            let found = Groups::new(v1, mount.path()).cpu_quota();
            assert_eq!(found.as_ref().map(|quota| quota.millicpus), expected);
            let file = mount.path().join("cpu/box/cpu.cfs_quota_us");
            assert!(found.is_none_or(|quota| quota.remedy == format!("`echo -1 > {}`", file.display())));
        }
    }

    /// Used memory counts, without the part that the kernel reclaims on demand.
    #[test]
    fn the_least_memory_around_the_process_counts() {
        let mount = mounted(&[
            ("a/memory.max", "1000000\n"),
            ("a/memory.current", "300000\n"),
            ("a/memory.stat", "anon 7\ninactive_file 50000\nactive_file 30000\nslab_reclaimable 20000\n"),
            ("a/b/memory.max", "max\n"),
            ("memory.max", "900000\n"),
        ]);
        let memory = |groups: &str| Groups::new(groups, mount.path()).memory();
        let found = memory("0::/a/b\n").expect("a limit");
        assert_eq!((found.bytes, found.limit_bytes), (800_000, 1_000_000));
        assert_eq!(found.remedy, format!("`echo max > {}/a/memory.max`", mount.path().display()));
        assert_eq!(memory("0::/elsewhere\n").map(|grant| grant.bytes), Some(900_000), "the container's own root");

        let v1 = |limit| {
            let files = [
                ("memory/box/memory.limit_in_bytes", limit),
                ("memory/box/memory.usage_in_bytes", "5000\n"),
                ("memory/box/memory.stat", "inactive_file 9\ntotal_inactive_file 1000\ntotal_active_file 500\n"),
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ];
            let mount = mounted(&files);
            Groups::new("9:memory:/box\n0::/\n", mount.path()).memory().map(|grant| grant.bytes)
        };
        assert_eq!((v1("10000\n"), v1("9223372036854771712\n"), v1("4000\n")), (Some(6500), None, Some(500)));
    }

    #[test]
    fn hugepages_are_limited_by_size_and_by_what_is_reserved() {
        let mount = mounted(&[
            ("a/hugetlb.2MB.max", "20971520\n"),
            ("a/hugetlb.2MB.current", "2097152\n"),
            ("a/hugetlb.2MB.rsvd.max", "8388608\n"),
            ("a/hugetlb.1GB.max", "max\n"),
            ("hugetlb/box/hugetlb.1GB.limit_in_bytes", "1073741824\n"),
        ]);
        let huge = |groups: &str, size| Groups::new(groups, mount.path()).hugepages(size).map(|grant| grant.bytes);
        assert_eq!((huge("0::/a\n", 2 << 20), huge("0::/a\n", 1 << 30)), (Some(8 << 20), None));
        assert_eq!(huge("11:hugetlb:/box\n", 1 << 30), Some(1 << 30));
    }
}
