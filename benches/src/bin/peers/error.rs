//! The errors of a measurement.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use verbline_benches::callgrind::CallgrindError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("no row is called `{name}`; --list names them all{}", suggestion(.near))]
    UnknownRow { name: String, near: Option<String> },
    #[error(
        "these packages are missing: {packages}\n       \
         install them (as root: apt-get install {packages}) and run this again"
    )]
    Packages { packages: String },
    #[error("apt-get could not install {packages}: {reason}")]
    Install { packages: String, reason: String },
    #[error(
        "DPDK needs {wanted} free hugepages of 2 MiB and a mounted hugetlbfs; as root:\n       \
         echo {wanted} > /proc/sys/vm/nr_hugepages; \
         mkdir -p /dev/hugepages; mount -t hugetlbfs nodev /dev/hugepages\n       \
         ({reason})"
    )]
    Hugepages { wanted: u64, reason: String },
    #[error("two CPUs are needed to measure anything between two cores; this process may run on {found}")]
    Cpus { found: usize },
    #[error("`{command}` does not start: {source}")]
    Spawn { command: String, source: io::Error },
    #[error("`{command}` was not done after {} s, and was stopped", .limit.as_secs())]
    TimedOut { command: String, limit: Duration },
    #[error("`{command}` failed ({status}):\n{output}")]
    Failed { command: String, status: String, output: String },
    #[error("`{command}` printed no {wanted}:\n{output}")]
    Unreadable { command: String, wanted: &'static str, output: String },
    #[error("{what} read something else than ours: {theirs} is not {ours}")]
    OtherWork { what: String, ours: f64, theirs: f64 },
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is not what `peers --json` prints: {error}", .path.display())]
    Stored { path: PathBuf, error: serde_json::Error },
    #[error(transparent)]
    Callgrind(#[from] CallgrindError),
    #[error("the page's plots: {0}")]
    Plot(String),
    #[error("interrupted")]
    Interrupted,
    #[error("not measured: {rows}")]
    Missed { rows: String },
    #[error("no signal can be waited for: {0}")]
    Signals(io::Error),
}

impl RunError {
    /// Whether the machine or the command line is unfit for the run, as opposed to a run that
    /// failed.
    pub(crate) fn is_setup(&self) -> bool {
        matches!(
            self,
            RunError::UnknownRow { .. }
                | RunError::Packages { .. }
                | RunError::Install { .. }
                | RunError::Hugepages { .. }
                | RunError::Cpus { .. }
                | RunError::Stored { .. }
        )
    }
}

fn suggestion(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!("; `{near}`?")).unwrap_or_default()
}
