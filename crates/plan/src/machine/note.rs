//! Notes: shortcomings of the machine that the plan runs with, their costs, and the commands that
//! mend them.
//!
//! Notes are kept apart from a plan's [`Diagnostics`](crate::Diagnostics): a fault of a plan is the
//! same on every machine that can run it, and a lack of a machine is the same for every plan that
//! needs it. There is at most one note for each [`Lack`], however many lcores or pools it concerns.
//! `docs/machines.md` lists them all.

use std::borrow::Borrow;
use std::fmt;

use serde::ser::{Serialize, SerializeStruct, Serializer};

/// A shortcoming of a machine that a run survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lack {
    /// Too few hugepages are free: pools with `pages = "auto"` lie on ordinary pages.
    Hugepages,
    /// The number of free hugepages is unknown, since neither /sys nor /proc is there.
    HugepageCounts,
    /// The process may not lock the memory of its pools, which may be swapped out.
    LockedMemory,
    /// A cgroup's quota grants less CPU time than the plan has lcores.
    CpuTime,
    /// membarrier(2) is refused: every turn of an lcore pays for a full fence.
    Membarrier,
    /// An lcore's CPU, its device and its memory are on different NUMA nodes.
    FarApart,
    /// Memory lies on another NUMA node than its own.
    FarMemory,
    /// The machine's NUMA nodes are unknown, and the plan names some.
    NodesUnknown,
}

impl Lack {
    /// All lacks.
    pub const ALL: [Lack; 8] = [
        Lack::Hugepages,
        Lack::HugepageCounts,
        Lack::LockedMemory,
        Lack::CpuTime,
        Lack::Membarrier,
        Lack::FarApart,
        Lack::FarMemory,
        Lack::NodesUnknown,
    ];

    /// Its name in `note[…]`, and in docs/machines.md.
    pub fn code(self) -> &'static str {
        match self {
            Lack::Hugepages => "no-hugepages",
            Lack::HugepageCounts => "hugepages-unknown",
            Lack::LockedMemory => "not-locked",
            Lack::CpuTime => "cpu-quota",
            Lack::Membarrier => "no-membarrier",
            Lack::FarApart => "far-apart",
            Lack::FarMemory => "far-memory",
            Lack::NodesUnknown => "nodes-unknown",
        }
    }

    /// Whether a plan's note of it foretells a finding of the run as it lays out its memory: the
    /// run's own finding then holds.
    pub fn is_forecast(self) -> bool {
        matches!(self, Lack::Hugepages | Lack::HugepageCounts | Lack::LockedMemory | Lack::FarApart)
    }
}

/// One shortcoming of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Its kind.
    pub lack: Lack,
    /// The missing thing, and the cost.
    pub message: String,
    /// The command that mends it.
    pub remedy: String,
}

impl Note {
    /// Makes the note that these pools and regions (`pool.NAME`, `region.NAME`) are without
    /// hugepages; `why` has the counts.
    pub fn hugepages(names: &[String], page: &str, why: &str, remedy: &str) -> Note {
        let (names, be) = (listed(names), if names.len() == 1 { "is" } else { "are" });
        let message = format!("{names} {be} on {page} pages: {why}");
        Note { lack: Lack::Hugepages, message, remedy: remedy.to_owned() }
    }

    /// Makes the note that the memory of these pools and regions could not be locked; `why` has the
    /// limit, or the kernel's error.
    pub fn locked_memory(names: &[String], why: &str, remedy: &str) -> Note {
        let message = format!("{} may be swapped out, at the price of milliseconds: {why}", listed(names));
        Note { lack: Lack::LockedMemory, message, remedy: remedy.to_owned() }
    }
}

/// `note[code]: message; remedy`.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "note[{}]: {}; {}", self.lack.code(), self.message, self.remedy)
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Note", 3)?;
        out.serialize_field("code", self.lack.code())?;
        out.serialize_field("message", &self.message)?;
        out.serialize_field("remedy", &self.remedy)?;
        out.end()
    }
}

/// `pool.a, pool.b and pool.c`.
pub(crate) fn listed<S: Borrow<str>>(names: &[S]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => [&first.join(", "), last.borrow()].join(" and "),
        names => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_with_commas_and_one_and() {
        let list = |names: &[&str]| listed(names);
        assert_eq!(
            [list(&[]), list(&["a"]), list(&["a", "b"]), list(&["a", "b", "c"])],
            ["", "a", "a and b", "a, b and c"]
        );
    }
}
