//! Threads that share an lcore's CPU without a choice: those that are pinned to it as well. What
//! they are is read from /proc; without it nobody is found.

use std::fs;
use std::path::Path;

/// Names more than this are no help.
const NAMED_MAX: usize = 4;

/// The threads that may run on this CPU alone, but for this process's thread `own`: each with its
/// process. Reads a file for each thread of the machine, so this is not for a run that goes on.
pub(crate) fn pinned_to(cpu: usize, own: u64) -> Vec<String> {
    let own_process = std::process::id().to_string();
    let mut found = Vec::new();
    for process in numbers_in(Path::new("/proc")) {
        for thread in numbers_in(&Path::new("/proc").join(&process).join("task")) {
            if process == own_process && thread == own.to_string() {
                continue;
            }
            let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status"));
            let Some(name) = status.ok().and_then(|status| pinned(&status, cpu)) else { continue };
            found.push(match process == own_process {
                true => format!("thread {name} of this process"),
                false => format!("thread {name} of process {process}{}", called(&process)),
            });
            if found.len() == NAMED_MAX {
                return found;
            }
        }
    }
    found
}

/// The name of the thread with this status (proc_pid_status(5)), if it may use this CPU alone. The
/// kernel has threads of its own for each CPU, which are no news: they have no memory.
fn pinned(status: &str, cpu: usize) -> Option<String> {
    let value = |key: &str| Some(status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?.trim());
    value("VmSize")?;
    (value("Cpus_allowed_list")? == cpu.to_string()).then_some(())?;
    Some(value("Name")?.to_owned())
}

/// ` (NAME)`, as the process is called.
fn called(process: &str) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.map(|name| format!(" ({})", name.trim())).unwrap_or_default()
}

/// The entries of a folder that are numbers.
fn numbers_in(folder: &Path) -> impl Iterator<Item = String> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|it| it.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_with_memory_that_may_use_one_cpu_is_pinned() {
        let status = |memory: &str, cpus: &str| format!("Name:\tvl-main\n{memory}Cpus_allowed_list:\t{cpus}\n");
        assert_eq!(pinned(&status("VmSize:\t 9 kB\n", "3"), 3), Some("vl-main".to_owned()));
        for (memory, cpus) in [("VmSize:\t 9 kB\n", "0-3"), ("VmSize:\t 9 kB\n", "13"), ("", "3")] {
            assert_eq!(pinned(&status(memory, cpus), 3), None, "{memory:?}, {cpus}");
        }
        assert_eq!(pinned("", 3), None);
    }
}
