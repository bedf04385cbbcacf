//! Checks how a port's sends are marked: which are signaled, and whether they are solicited.

use crate::diag::sink::Sink;
use crate::read::raw_port::RawPort;

/// Gives how many sends there are to a signaled one.
pub(crate) fn check(port: &RawPort, sink: &mut Sink) -> u32 {
    let name = &port.head.name;
    if port.solicited.value && port.tx_depth_wr.value == 0 && port.ops_depth_wr.value == 0 {
        sink.warn("no-effect", port.solicited.span, format!("`solicited` has no effect: port.{name} sends nothing"))
            .help("remove it, or add `tx_depth_wr`");
    }
    let (every, depth) = (&port.signal_every_wr, &port.tx_depth_wr);
    if every.given && depth.value == 0 {
        sink.warn("no-effect", every.span, format!("`signal_every_wr` has no effect: port.{name} sends nothing"))
            .help("remove it, or add `tx_depth_wr`");
    } else if every.given && every.value > depth.value {
        sink.error(
            "bad-value",
            every.span,
            format!("one send in {} is signaled, but {} fit the queue", every.value, depth.value),
        )
        .related(depth.span, "the queue's depth")
        .note("the queue would fill up before a completion could free a slot")
        .help(format!("write a value from 1 to {}", depth.value));
    }
    every.value.min(depth.value)
}
