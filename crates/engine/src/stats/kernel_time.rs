//! The time that an lcore was kept from its CPU, as the kernel accounts for it: how long its thread
//! waited for its CPU, how long the hypervisor had the CPU, and how long the process's control
//! group was throttled by its quota. The figures come from files under /proc and /sys; they are
//! `None` where a file is missing or says nothing.

use std::fs;

use rustix::param::clock_ticks_per_second;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Returns how long a thread of this process has waited for its CPU while it could run (proc(5),
/// schedstat): the thread with this id, or the calling one.
pub(crate) fn queued_ns(thread: Option<u64>) -> Option<u64> {
    let path = match thread {
        None => "/proc/thread-self/schedstat".to_owned(),
        Some(id) => format!("/proc/self/task/{id}/schedstat"),
    };
    fs::read_to_string(path).ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the CPUs that a thread of this process may use, the thread with this id or the calling
/// one: the first of them, and their number. `None` if there is no such thread.
pub(crate) fn allowed_cpus(thread: Option<u64>) -> Option<(usize, usize)> {
    let id = match thread {
        None => None,
        Some(id) => Some(Pid::from_raw(i32::try_from(id).ok()?)?),
    };
    let set = sched_getaffinity(id).ok()?;
    let first = (0..CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu))?;
    Some((first, set.count() as usize))
}

/// The time taken from whole CPUs or processes so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thieves {
    /// `/proc/stat`, whose lines have each CPU's time that went to the hypervisor.
    stat: Option<String>,
    throttled_ns: Option<u64>,
}

impl Thieves {
    /// Reads the present state.
    pub(crate) fn now() -> Thieves {
        Thieves { stat: fs::read_to_string("/proc/stat").ok(), throttled_ns: throttled_ns() }
    }

    /// Returns how long the process's control group was throttled since `before`.
    pub(crate) fn throttled_since(&self, before: &Thieves) -> Option<u64> {
        Some(self.throttled_ns?.saturating_sub(before.throttled_ns?))
    }

    /// Returns how long the hypervisor had the CPU since `before`, to a hundredth of a second.
    pub(crate) fn hypervisor_since(&self, before: &Thieves, cpu: u32) -> Option<u64> {
        let tick_ns = 1_000_000_000 / clock_ticks_per_second().max(1);
        let ticks = |thieves: &Thieves| steal_ticks(thieves.stat.as_deref()?, cpu);
        Some(ticks(self)?.saturating_sub(ticks(before)?) * tick_ns)
    }
}

/// Returns the eighth number of a CPU's line (proc(5), steal).
fn steal_ticks(stat: &str, cpu: u32) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|line| line.split_whitespace().next() == Some(&name))?;
    line.split_whitespace().nth(8)?.parse().ok()
}

/// Returns the longest throttling among the process's control group and those above it:
/// `throttled_usec` of the unified hierarchy, `throttled_time` of the cpu controller's own.
fn throttled_ns() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups
        .lines()
        .flat_map(folders)
        .filter_map(|folder| fs::read_to_string(format!("{folder}/cpu.stat")).ok())
        .filter_map(|stat| throttled_in(&stat))
        .max()
}

/// Returns the folders for a line of /proc/self/cgroup, e.g. `4:cpu,cpuacct:/a/b`: the group's, and
/// those above it.
fn folders(line: &str) -> Vec<String> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let roots: &[&str] = match controllers {
        "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
        several if several.split(',').any(|controller| controller == "cpu") => {
            &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
        }
        _ => &[],
    };
    let path = path.trim_end_matches('/');
    let above = path.match_indices('/').map(|(at, _)| &path[..at]).chain([path]);
    roots.iter().flat_map(|root| above.clone().map(move |path| format!("{root}{path}"))).collect()
}

fn throttled_in(stat: &str) -> Option<u64> {
    let value = |key: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()
    };
    value("throttled_usec").map(|usec| usec * 1000).or_else(|| value("throttled_time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_groups_folders_and_those_above() {
        let unified = ["/sys/fs/cgroup", "/sys/fs/cgroup/a", "/sys/fs/cgroup/a/b"];
        assert_eq!(folders("0::/a/b")[..3], unified);
        assert_eq!(folders("0::/")[..1], ["/sys/fs/cgroup"]);
        assert!(folders("4:cpu,cpuacct:/a").contains(&"/sys/fs/cgroup/cpu,cpuacct/a".to_owned()));
        assert!(folders("5:memory:/a").is_empty() && folders("nonsense").is_empty());
    }

    #[test]
    fn reads_what_either_hierarchy_says() {
        assert_eq!(throttled_in("usage_usec 5\nnr_throttled 2\nthrottled_usec 7\n"), Some(7_000));
        assert_eq!(throttled_in("nr_periods 1\nthrottled_time 900\n"), Some(900));
        assert_eq!(throttled_in("nr_periods 1\n"), None);
        let stat = "cpu  9 9 9 9 9 9 9 99 9 9\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu10 1 2 3 4 5 6 7 80 9 10\n";
        assert_eq!([0, 1, 10].map(|cpu| steal_ticks(stat, cpu)), [Some(8), None, Some(80)]);
    }
}
