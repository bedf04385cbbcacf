//! Checks a port's sends: how often they are signaled, whether they are solicited, and whether
//! packets choose their options.

use crate::diag::sink::Sink;
use crate::read::raw_port::RawPort;

/// Returns the number of sends to each signaled one.
pub(crate) fn check(port: &RawPort, sink: &mut Sink) -> u32 {
    let name = &port.head.name;
    if port.solicited.value && port.tx_depth_wr.value == 0 && port.ops_depth_wr.value == 0 {
        sink.no_effect("solicited", port.solicited.span, format!("port.{name} sends nothing"))
            .help("remove it, or add `tx_depth_wr`");
    }
    check_sent(port, sink);
    let (every, depth) = (&port.signal_every_wr, &port.tx_depth_wr);
    if every.given && depth.value == 0 {
        sink.no_effect("signal_every_wr", every.span, format!("port.{name} sends nothing"))
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

/// Checks that `sent` comes with `send_options`, and both with a send queue.
fn check_sent(port: &RawPort, sink: &mut Sink) {
    let name = &port.head.name;
    let given = port.send_options.given.then_some(("send_options", port.send_options.span));
    let sent = port.sent.as_ref().map(|field| ("sent", field.span));
    if port.tx_depth_wr.value == 0 {
        for (key, span) in given.into_iter().chain(sent) {
            sink.no_effect(key, span, format!("port.{name} sends nothing")).help("remove it, or add `tx_depth_wr`");
        }
    } else if let Some((_, span)) = sent.filter(|_| !port.send_options.value) {
        sink.error("missing-key", span, format!("[port.{name}] has `sent`, and does not look at what packets ask"))
            .help("add `send_options = true`");
    }
}
