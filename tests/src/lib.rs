//! Helpers for tests of whole programs: they run a command to its end under a time limit, give it a
//! terminal, and name the files of the repository that it needs.
//!
//! Guarantees: a run that hangs is killed and shown, never awaited without end. Runs that take
//! whole cores run one after another, whatever runs the tests. A program's notes about the machine
//! are separated from the rest of its output ([`SaidNote`]). A test that can't show something here
//! says so with [`skipped`], and in CI that is a failure.
#![forbid(unsafe_code)]

mod browser;
mod cgroup;
mod effects;
mod live;
mod notes;
mod program;
pub mod random;
mod report;
mod shown;
mod terminal;
mod turn;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use verbline::plan::Machine;

pub use browser::{Browser, free_port};
pub use cgroup::Cgroup;
pub use live::{assert_is_within_memory_sum, assert_within_memory_sum, counted};
pub use notes::SaidNote;
pub use program::{Finished, Program, Started};
pub use report::{assert_report_holds, report_faults};
pub use shown::{assert_fits, normalised};
pub use terminal::{Terminal, terminal_pair};

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A shipped plan, by its file's stem.
pub fn config(stem: &str) -> PathBuf {
    root().join("config").join(stem).with_extension("toml")
}

/// The recorded MOEX feed: in `VERBLINE_MOEX_DIR`, or beside the repository.
///
/// # Panics
/// In CI, if it is in neither place: CI has the recording.
pub fn recording() -> Option<PathBuf> {
    let beside = root().join("../shared/data/moex-forts");
    let dir = std::env::var_os("VERBLINE_MOEX_DIR").map_or(beside, PathBuf::from);
    if dir.join("micex_increment_a.dat").is_file() {
        return Some(dir);
    }
    skipped(&format!("no MOEX recording in {}; set VERBLINE_MOEX_DIR", dir.display()));
    None
}

/// An address of this host that no other test's software RNIC has at the same time: it contains the
/// process's number.
pub fn own_address(last: u8) -> Ipv4Addr {
    let pid = std::process::id();
    Ipv4Addr::new(127, 0x40 | (pid >> 8) as u8 & 0x3f, pid as u8, last)
}

/// Arguments that give two lcores of a shipped plan ample time to drain: on a busy machine a thread
/// may be kept from its CPU for seconds. The CPUs are any two that this process may use, as the
/// shipped plans say.
///
/// # Panics
/// In CI, if there is only one CPU. Also if the machine has two and `./x test` gave this test only
/// one, since its name does not say that it needs both.
pub fn two_lcores(lcores: [&str; 2]) -> Option<Vec<String>> {
    let cpus = Machine::detect().cpus.len();
    if cpus < lcores.len() {
        assert!(
            program::machine_cpus() < lcores.len(),
            "a test that needs two CPUs has a name that begins with `two_lcores_`"
        );
        skipped(&format!("a run of two lcores needs two CPUs, and this process may run on {cpus}"));
        return None;
    }
    Some(lcores.into_iter().flat_map(|lcore| ["--set".to_owned(), format!("lcore.{lcore}.drain=60s")]).collect())
}

/// The keys that a diagnostic about an unknown key lists, e.g. if the test's key is like none of
/// them.
pub fn keys_listed(said: &str) -> Vec<String> {
    let said = unwrapped(said);
    let list = said.split_once("the keys here are ").map_or("", |(_, list)| list);
    let list = list.split_inclusive("` ").next().unwrap_or(list);
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The text with all white space collapsed to single spaces: for sentences that may be wrapped
/// anywhere.
pub fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reports that a test can't show here what it should.
///
/// # Panics
/// If `CI` is set in the environment: there a test that shows nothing is a failure.
pub fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI must not skip this: {why}");
    eprintln!("skipped: {why}");
}
