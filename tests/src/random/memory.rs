//! The memory of a run, against the sums that prove it enough: for plans that run in a process of
//! their own, whose queues are long enough to weigh more than the program.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbline::plan::Sum;
use verbline::prelude::*;

/// Memory that the test's own thread maps: its stack, and what it allocates.
const BESIDE_BYTES: u64 = 4 << 20;

/// The sums of a plan's memory.
pub(super) struct MemorySums(Vec<Sum>);

/// The figures of this process at one moment (proc_pid_status(5)).
struct Status(String);

impl Status {
    fn now() -> Status {
        Status(std::fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn bytes(&self, name: &str) -> u64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
    }
}

impl MemorySums {
    /// The sums of this plan where everything is limited, by the loader of a machine.
    pub(super) fn of(loader: impl FnOnce(Machine) -> Loader, text: &str) -> MemorySums {
        let mut machine = Machine::detect();
        (machine.address_space_bytes, machine.memlock_bytes) = (Some(u64::MAX), Some(u64::MAX));
        MemorySums(loader(machine).inspect_str("random.toml", text).sums)
    }

    fn needed(&self, of: &str) -> u64 {
        self.0.iter().filter(|sum| sum.of.starts_with(of)).map(|sum| sum.needed).sum()
    }

    /// Limits what the process maps from now on to its sum, and some for `threads` of the test. An
    /// allocation beyond it aborts the process.
    pub(super) fn limit(&self, threads: u64) -> Result<(), String> {
        let limit = Status::now().bytes("VmSize") + self.needed("address space") + threads * BESIDE_BYTES;
        let limit = Rlimit { current: Some(limit), ..getrlimit(Resource::As) };
        setrlimit(Resource::As, limit).map_err(|errno| format!("no limit of mappings: {errno}"))
    }

    /// Whether a run locks no more than its sum says.
    pub(super) fn locked_fault(&self) -> Option<String> {
        self.fault("locked memory", Status::now().bytes("VmLck"))
    }

    /// Whether this process has never had more memory than the run's sum. File pages are the
    /// program's text; their number only grows.
    pub(super) fn resident_fault(&self) -> Option<String> {
        let status = Status::now();
        let files = status.bytes("RssFile") + status.bytes("RssShmem");
        self.fault("memory on pages of", status.bytes("VmHWM").saturating_sub(files))
    }

    fn fault(&self, of: &str, taken: u64) -> Option<String> {
        let needed = self.needed(of);
        (taken > needed).then(|| {
            let sums: Vec<_> = self.0.iter().filter(|sum| sum.of.starts_with(of)).collect();
            format!("{of}: {taken} bytes, of a sum of {needed}: {sums:#?}")
        })
    }
}
