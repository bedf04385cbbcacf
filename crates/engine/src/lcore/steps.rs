//! The steps of a turn of an lcore that is watched: each is told to the trace before it is
//! taken, or behind it.

use crate::lcore::node::Node;
use crate::lcore::rings::{RingConsumer, RingProducer};
use crate::ports::context::LcoreContext;
use crate::ports::multi_port::MultiPort;
use crate::ports::single_port::Port;
use crate::ports::sink::Sink;
use crate::ports::state::LcoreState;
use crate::trace::recorder::Recorder;

/// An lcore's trace, if there is one.
pub(super) type Trace = Option<Box<Recorder>>;

/// A ring was polled, and had something.
pub(super) fn popped(trace: &mut Trace, ring: &RingConsumer, sinks: &[Sink]) {
    if let Some(trace) = trace {
        trace.popped(&ring.stats, sinks);
    }
}

/// Polls a stage.
pub(super) fn poll(trace: &mut Trace, node: &mut Node, lcore: &mut LcoreState) -> bool {
    let Some(trace) = trace else { return node.poll::<true>(lcore) };
    let began = trace.polls(&node.stats);
    let is_busy = node.poll::<true>(lcore);
    trace.polled(&node.stats, began, &lcore.ctx.sinks);
    is_busy
}

/// A stage is to be called with its input.
pub(super) fn enters(trace: &mut Trace, node: &Node, lcore: &LcoreState) {
    if let Some(trace) = trace {
        trace.entered(&node.stats, node.input(), &lcore.ctx.sinks);
    }
}

/// The stage has returned.
pub(super) fn returned(trace: &mut Trace, node: &Node, lcore: &LcoreState) {
    if let Some(trace) = trace {
        trace.returned(&node.stats, &lcore.ctx.sinks);
    }
}

/// [`Port::work`].
pub(super) fn work(trace: &mut Trace, port: &mut Port, ctx: &mut LcoreContext) -> bool {
    let sink = port.sending.as_ref().map(|sending| sending.sink);
    let (Some(trace), Some(sink)) = (trace, sink) else { return port.work::<true>(ctx) };
    trace.posts(&port.stats, sink, &ctx.sinks);
    let is_busy = port.work::<true>(ctx);
    trace.posted(port.index, &port.stats, sink, &ctx.sinks);
    is_busy
}

/// [`MultiPort::work`].
pub(super) fn work_many(trace: &mut Trace, port: &mut MultiPort, ctx: &mut LcoreContext) -> bool {
    let (Some(trace), Some(sink)) = (trace, port.sink()) else { return port.work(ctx) };
    trace.posts(&port.stats, sink, &ctx.sinks);
    let is_busy = port.work(ctx);
    trace.posted(port.index, &port.stats, sink, &ctx.sinks);
    is_busy
}

/// Publishes what has gathered for a ring.
pub(super) fn flush(trace: &mut Trace, ring: &mut RingProducer, sinks: &mut [Sink]) -> usize {
    let Some(trace) = trace else { return ring.flush(sinks) };
    let at_ns = trace.pushes(ring.sink, sinks);
    let pushed = ring.flush(sinks);
    trace.pushed(&ring.stats, at_ns, pushed, ring.sink, sinks);
    pushed
}
