//! Checks a run's mappings against the limits of this process (getrlimit(2)): RLIMIT_AS for all of
//! them, hugepages and stacks too, and RLIMIT_DATA for those that are private and writable, as all
//! memory of pools and regions is.
//!
//! Beyond either limit an allocation aborts the process, wherever it happens, and no thread can be
//! made.

use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::machine::Machine;
use crate::read::raw::RawPlan;
use crate::sums::sum::{Limit, Sum};

/// A thread's stack, with its guard. A process that is limited has no arena of the allocator for
/// each thread (`verbline_mem::share_arenas_if_limited`).
const STACK_BYTES: u64 = (2 << 20) + (64 << 10);
/// The threads of every run: they watch devices, keep time, write reports and logs, and serve those
/// who look at the run.
const THREADS_OF_RUN: u64 = 12;

/// A limit of this process.
struct Mapped {
    of: &'static str,
    /// The kind of mappings that count.
    what: &'static str,
    /// The program's heap, and the arena of the allocator: mapped in full, and writable as far as
    /// it is used.
    program_bytes: u64,
    limit: &'static str,
    remedy: &'static str,
}

const ADDRESS_SPACE: Mapped = Mapped {
    of: "address space",
    what: "bytes",
    program_bytes: 64 << 20,
    limit: "RLIMIT_AS",
    remedy: "`ulimit -v unlimited`, LimitAS=infinity in the systemd unit",
};

const DATA: Mapped = Mapped {
    of: "data",
    what: "bytes of data",
    program_bytes: 8 << 20,
    limit: "RLIMIT_DATA",
    remedy: "`ulimit -d unlimited`, LimitDATA=infinity in the systemd unit",
};

/// Returns the sums that have a limit. `held` adds the terms of packets, regions, queues and
/// stages; `largest` is the place of the largest of them.
pub(super) fn check(
    raw: &RawPlan,
    held: impl Fn(&mut Sum),
    largest: Span,
    machine: &Machine,
    sink: &mut Sink,
) -> Vec<Sum> {
    let limits = [(&ADDRESS_SPACE, machine.address_space_bytes), (&DATA, machine.data_bytes)];
    let sums = limits.into_iter().filter_map(|(mapped, limit)| {
        let mut sum = Sum::new(mapped.of, "bytes", sink);
        sum.limit = Limit::Machine(limit?);
        held(&mut sum);
        mapped.add_threads(raw, &mut sum);
        if !sum.holds() {
            mapped.refuse(&sum, limit?, largest, sink);
        }
        Some(sum)
    });
    sums.collect()
}

impl Mapped {
    fn add_threads(&self, raw: &RawPlan, sum: &mut Sum) {
        let mut add = |what: String, at: Span| sum.add(what, "its thread", STACK_BYTES, at);
        raw.lcores.iter().for_each(|lcore| add(format!("lcore.{}", lcore.head.name), lcore.head.span));
        for device in raw.devices.iter().filter(|device| device.address.is_some()) {
            add(format!("device.{}", device.head.name), device.head.span);
        }
        for port in raw.ports.iter().filter(|port| port.has_thread()) {
            add(format!("port.{}", port.head.name), port.head.span);
        }
        let (bytes, top) = (self.program_bytes + THREADS_OF_RUN * STACK_BYTES, Span::new(0, 0..0));
        sum.add("the program and its other threads".to_owned(), "", bytes, top);
    }

    fn refuse(&self, sum: &Sum, limit: u64, largest: Span, sink: &mut Sink) {
        let message = format!("the run maps {} {}, and this process may map {limit} more", sum.needed, self.what);
        sink.error("too-much-memory", largest, message)
            .label("the largest")
            .note(format!("{} bounds it:\n{}", self.limit, sum.table()))
            .help(format!("raise it ({}), or make a term smaller", self.remedy));
    }
}
