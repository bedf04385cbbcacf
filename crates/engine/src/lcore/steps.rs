//! The steps of a watched lcore's turn: the trace and the capture hear of each before or after it
//! is taken.

use crate::lcore::node::Node;
use crate::lcore::rings::{RingConsumer, RingProducer};
use crate::lcore::tapped;
use crate::ports::context::LcoreContext;
use crate::ports::multi_port::MultiPort;
use crate::ports::single_port::Port;
use crate::ports::sink::Sink;
use crate::ports::state::LcoreState;
use crate::stats::counters::PortStats;
use crate::trace::recorder::Recorder;

/// An lcore's trace, if there is one.
pub(super) type Trace = Option<Box<Recorder>>;

/// A ring was polled, and gave `popped` packets.
pub(super) fn popped(trace: &mut Trace, ring: &RingConsumer, popped: usize, ctx: &mut LcoreContext) {
    tapped::popped(&ring.stats, ring.sink, popped, ctx);
    if let Some(trace) = trace {
        trace.popped(&ring.stats, ring.sink, &ctx.sinks);
    }
}

/// Polls a stage. See [`Node::poll`].
pub(super) fn poll(trace: &mut Trace, node: &mut Node, lcore: &mut LcoreState) -> bool {
    tapped::calls(&node.stats, &mut lcore.ctx);
    let began = trace.as_mut().map(|trace| trace.polls(&node.stats));
    let is_busy = node.poll::<true>(lcore);
    if let Some((trace, began)) = trace.as_mut().zip(began) {
        trace.polled(&node.stats, began, node.reached(), &lcore.ctx.sinks);
    }
    tapped::returned(&node.stats, node.links(), &mut lcore.ctx);
    is_busy
}

/// A stage is about to be called with its input.
pub(super) fn enters(trace: &mut Trace, node: &Node, lcore: &mut LcoreState) {
    tapped::calls(&node.stats, &mut lcore.ctx);
    if let Some(trace) = trace {
        trace.entered(&node.stats, node.input(), &lcore.ctx.sinks);
    }
}

/// The stage has returned.
pub(super) fn returned(trace: &mut Trace, node: &Node, lcore: &mut LcoreState) {
    if let Some(trace) = trace {
        trace.returned(&node.stats, node.reached(), &lcore.ctx.sinks);
    }
    tapped::returned(&node.stats, node.links(), &mut lcore.ctx);
}

/// Runs [`Port::work`].
pub(super) fn work(trace: &mut Trace, port: &mut Port, ctx: &mut LcoreContext) -> bool {
    let sink = port.sending.as_ref().map(|sending| sending.sink);
    let posts = posts(trace, &port.stats, sink, ctx);
    let is_busy = port.work::<true>(ctx);
    if let Some((trace, sink)) = posts {
        trace.posted(port.index, &port.stats, sink, &ctx.sinks);
    }
    is_busy
}

/// Runs [`MultiPort::work`].
pub(super) fn work_many(trace: &mut Trace, port: &mut MultiPort, ctx: &mut LcoreContext) -> bool {
    let posts = posts(trace, &port.stats, port.sink(), ctx);
    let is_busy = port.work(ctx);
    if let Some((trace, sink)) = posts {
        trace.posted(port.index, &port.stats, sink, &ctx.sinks);
    }
    is_busy
}

/// A port is about to post the packets in its sink. Returns the recorder to tell afterwards, and
/// the sink; `None` if the sink is empty.
fn posts<'a>(
    trace: &'a mut Trace,
    stats: &PortStats,
    sink: Option<usize>,
    ctx: &LcoreContext,
) -> Option<(&'a mut Recorder, usize)> {
    let (trace, sink) = trace.as_deref_mut().zip(sink)?;
    trace.posts(stats, sink, &ctx.sinks).then_some((trace, sink))
}

/// Publishes the packets gathered for a ring.
pub(super) fn flush(trace: &mut Trace, ring: &mut RingProducer, sinks: &mut [Sink]) -> usize {
    let begun = trace.as_mut().and_then(|trace| trace.pushes(ring.sink, sinks));
    let pushed = ring.flush(sinks);
    let Some((trace, at_ns)) = trace.as_mut().zip(begun) else { return pushed };
    trace.pushed(&ring.stats, at_ns, pushed, ring.sink, sinks);
    pushed
}
