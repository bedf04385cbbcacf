//! Other threads pinned to an lcore's CPU that ran there. Their data comes from /proc; without it
//! none is found.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The most threads named: more are no help.
const NAMED_MAX: usize = 4;

/// The threads pinned to one CPU, and how long each had run before the lcores began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Neighbours {
    ran_ns: HashMap<Thread, u64>,
}

/// A thread of the machine, by its process id and its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    process: String,
    thread: String,
}

impl Neighbours {
    /// Reads the present state: a file for each thread of the machine, so this is not for a run
    /// that goes on.
    pub(crate) fn now() -> Neighbours {
        let pinned = threads().filter(|thread| cpu_of(thread).is_some());
        Neighbours { ran_ns: pinned.map(|thread| (thread.clone(), thread.ran_ns())).collect() }
    }

    /// Returns the threads that may run on this CPU alone, and did for `least_ns` or longer since
    /// then, except for this process's thread `own`: each with its process, those that ran the
    /// longest first. It reads as many files.
    pub(crate) fn who_ran_on(&self, cpu: usize, own: u64, least_ns: u64) -> Vec<String> {
        let own = Thread { process: std::process::id().to_string(), thread: own.to_string() };
        let mut found: Vec<(u64, String)> = threads()
            .filter(|thread| *thread != own)
            .filter_map(|thread| {
                let (of, name) = cpu_of(&thread)?;
                let ran_ns = thread.ran_ns().saturating_sub(self.ran_ns.get(&thread).copied().unwrap_or(0));
                let process = match thread.process == own.process {
                    true => "this process".to_owned(),
                    false => format!("process {}{}", thread.process, called(&thread.process)),
                };
                (of == cpu.to_string() && ran_ns >= least_ns).then(|| (ran_ns, format!("thread {name} of {process}")))
            })
            .collect();
        found.sort_by_key(|(ran_ns, _)| std::cmp::Reverse(*ran_ns));
        found.into_iter().take(NAMED_MAX).map(|(_, who)| who).collect()
    }
}

impl Thread {
    fn file(&self, name: &str) -> PathBuf {
        format!("/proc/{}/task/{}/{name}", self.process, self.thread).into()
    }

    /// Returns how long it has run since it began (proc(5), schedstat); 0 if that is unknown.
    fn ran_ns(&self) -> u64 {
        let text = fs::read_to_string(self.file("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|ran| ran.parse().ok()).unwrap_or(0)
    }
}

/// Returns all threads of the machine.
fn threads() -> impl Iterator<Item = Thread> {
    numbers_in(Path::new("/proc")).flat_map(|process| {
        let threads = numbers_in(&Path::new("/proc").join(&process).join("task"));
        threads.map(move |thread| Thread { process: process.clone(), thread })
    })
}

/// Returns the only CPU that the thread may use, if it is one alone, and the thread's name.
fn cpu_of(thread: &Thread) -> Option<(String, String)> {
    pinned(&fs::read_to_string(thread.file("status")).ok()?)
}

/// Returns the CPU and the name of the thread with this status (proc_pid_status(5)), if it may use
/// one CPU alone. Leaves out the kernel's own threads for each CPU, which have no memory.
fn pinned(status: &str) -> Option<(String, String)> {
    let value = |key: &str| Some(status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?.trim());
    value("VmSize")?;
    let cpus = value("Cpus_allowed_list")?;
    let is_one = !cpus.is_empty() && cpus.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then_some(())?;
    Some((cpus.to_owned(), value("Name")?.to_owned()))
}

/// Returns the process's name, as ` (NAME)`.
fn called(process: &str) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.map(|name| format!(" ({})", name.trim())).unwrap_or_default()
}

/// Returns the entries of a folder that are numbers.
fn numbers_in(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|it| it.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_with_memory_that_may_use_one_cpu_is_pinned() {
        let status = |memory: &str, cpus: &str| format!("Name:\tvl-main\n{memory}Cpus_allowed_list:\t{cpus}\n");
        let main = |cpu: &str| Some((cpu.to_owned(), "vl-main".to_owned()));
        assert_eq!(pinned(&status("VmSize:\t 9 kB\n", "3")), main("3"));
        assert_eq!(pinned(&status("VmSize:\t 9 kB\n", "13")), main("13"));
        for (memory, cpus) in [("VmSize:\t 9 kB\n", "0-3"), ("VmSize:\t 9 kB\n", "1,3"), ("", "3")] {
            assert_eq!(pinned(&status(memory, cpus)), None, "{memory:?}, {cpus}");
        }
        assert_eq!(pinned(""), None);
    }
}
