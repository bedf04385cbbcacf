//! A process's resources at a moment, as the kernel sees them (proc(5)).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

/// A process's resources and its work so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// Time since the run counted its first unit.
    #[serde(serialize_with = "seconds")]
    pub(crate) at: Duration,
    /// The run's own counts: its unit, and its work if the plan has some.
    pub(crate) done: u64,
    pub(crate) work: u64,
    pub(crate) resident_kib: u64,
    /// Memory without a file behind it: evicted pages of the program must not hide a leak.
    pub(crate) anonymous_kib: u64,
    pub(crate) locked_kib: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
    pub(crate) lcores: Vec<LcoreTime>,
}

/// The CPU time of an lcore's thread, and its time of waiting for a CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LcoreTime {
    pub(crate) name: String,
    pub(crate) ran_ns: u64,
    /// Time in which it was ready while others had its CPU.
    pub(crate) waited_ns: u64,
}

fn seconds<S: serde::Serializer>(at: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((at.as_secs_f64() * 1000.0).round() / 1000.0)
}

impl Sample {
    /// A sample of a process; `None` once it has ended.
    pub(crate) fn of(pid: u32) -> Option<Sample> {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let status = fs::read_to_string(proc.join("status")).ok()?;
        Some(Sample {
            resident_kib: field(&status, "VmRSS")?,
            anonymous_kib: field(&status, "RssAnon").unwrap_or(0),
            locked_kib: field(&status, "VmLck").unwrap_or(0),
            descriptors: fs::read_dir(proc.join("fd")).ok()?.count() as u64,
            threads: field(&status, "Threads")?,
            lcores: lcores(&proc),
            ..Sample::default()
        })
    }
}

/// The number behind `name:`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

fn lcores(proc: &Path) -> Vec<LcoreTime> {
    let threads = fs::read_dir(proc.join("task")).into_iter().flatten().flatten();
    let mut lcores: Vec<LcoreTime> = threads.filter_map(|thread| lcore(&thread.path())).collect();
    lcores.sort_by(|one, other| one.name.cmp(&other.name));
    lcores
}

/// The times of an lcore's thread, recognized by its name.
fn lcore(thread: &Path) -> Option<LcoreTime> {
    let name = fs::read_to_string(thread.join("comm")).ok()?.trim().strip_prefix("vl-")?.to_owned();
    let times = fs::read_to_string(thread.join("schedstat")).ok()?;
    let mut times = times.split_whitespace().map_while(|time| time.parse().ok());
    Some(LcoreTime { name, ran_ns: times.next()?, waited_ns: times.next()? })
}

/// The CPU that an lcore of the process is pinned to.
pub(crate) fn cpu_of_an_lcore(pid: u32, turn: usize) -> Option<usize> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut cpus: Vec<usize> = threads
        .filter(|thread| lcore(&thread.path()).is_some())
        .filter_map(|thread| {
            let status = fs::read_to_string(thread.path().join("status")).ok()?;
            status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().parse().ok()
        })
        .collect();
    cpus.sort_unstable();
    let count = cpus.len();
    (count > 0).then(|| cpus[turn % count])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_descriptors_and_threads() {
        let sample = Sample::of(std::process::id()).expect("it runs");
        assert!(sample.resident_kib > 100 && sample.descriptors >= 3 && sample.threads >= 1, "{sample:?}");
        assert_eq!(Sample::of(u32::MAX), None);
    }

    #[test]
    fn a_field_is_the_one_of_its_whole_name() {
        let status = "VmRSSX:\t7 kB\nVmRSS:\t  12 kB\nThreads:\t3\n";
        assert_eq!(
            (field(status, "VmRSS"), field(status, "Threads"), field(status, "VmLck")),
            (Some(12), Some(3), None)
        );
    }
}
