//! The sums of a plan: the greatest need against the limit.

pub(crate) mod descriptors;
mod headroom;
mod mapped;
mod memory;
mod needs;
pub(crate) mod offers;
mod program;
mod send_offers;
pub(crate) mod sum;

use crate::catalog::Catalog;
use crate::check::{Checked, lcores, nodes};
use crate::diag::sink::Sink;
use crate::machine::Machine;
use crate::machine::note::Note;
use crate::sums::descriptors::OpensBeside;
use crate::sums::offers::Operates;
use crate::sums::sum::Sum;

/// The sums of a plan, and their consequences.
#[derive(Default)]
pub(crate) struct Proved {
    pub(crate) sums: Vec<Sum>,
    /// The least depth of each lcore's completion queue.
    pub(crate) completions: Vec<u64>,
    /// The most file descriptors that are open at once.
    pub(crate) descriptors: u64,
    /// Whether each stage asks for operations, by output.
    pub(crate) operates: Operates,
    pub(crate) notes: Vec<Note>,
}

/// Works out the sums. Returns none while references are unresolved, since they would be wrong.
pub(crate) fn prove(
    checked: &Checked<'_>,
    catalog: &Catalog,
    machine: &Machine,
    opens: &[OpensBeside],
    sink: &mut Sink,
) -> Proved {
    if !sink.sums_are_sound() {
        return Proved::default();
    }
    let (raw, links, regions) = (&checked.raw, &checked.links, &checked.regions);
    let (mut sums, completions) = sum::check(raw, links, &checked.edges, &checked.flow, sink);
    sums.extend(headroom::check(raw, &checked.flow, sink));
    let needs = needs::ask(raw, links, &catalog.sections, &sink.sources);
    sums.extend(needs::packets(raw, links, &needs, sink));
    let (timers, operates) = offers::check(raw, links, regions, &needs, sink);
    sums.extend(timers);
    let (memory, mut notes) = memory::check(raw, (links, &checked.edges), regions, &needs, &completions, machine, sink);
    sums.extend(memory);
    let beside = descriptors::beside(opens, raw, &catalog.sections);
    let open = descriptors::check(raw, links, &needs, &beside, machine, sink);
    let descriptors = open.needed;
    sums.push(open);
    notes.extend(lcores::cpu_time(raw, machine));
    notes.extend(nodes::unknown(raw, machine));
    Proved { sums, completions, descriptors, operates, notes }
}
