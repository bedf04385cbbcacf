//! The [`Stage`] trait, which an app implements. A stage takes batches of packets, and sends packets through its
//! [`Outputs`].
//!
//! Guarantees: all methods of a stage run on the thread of its lcore, never two at the same time; one call covers a
//! whole batch.

use verbline_mem::Batch;

use crate::api::outputs::Outputs;
use crate::stats::clock::Tick;

/// One step of a plan, run by one lcore.
///
/// A stage must not block and should not allocate: while it runs, nothing else on its lcore does.
pub trait Stage: Send {
    /// Takes a batch of at least one packet. A packet that a port received carries the port's number
    /// ([`StageContext::port`](crate::StageContext::port)) and, as its timestamp, the tick of the turn that received it
    /// (0 if the plan says `timestamps = false` for the port).
    ///
    /// Packets that are left in `input` are dropped and counted as `unclaimed`. A source, which has no input, does not
    /// override this.
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let _ = (input, out);
    }

    /// For sources and timers. Called once a loop before `process`; the answer says when it wants to be called again.
    /// A stage that does not override it is asked once and then left alone.
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let _ = out;
        Next::Done
    }

    /// The run is stopping. Called once, before the drain: a stage hands on what it holds. Packets may still arrive
    /// afterwards, until the drain ends. A source is not polled any more after this call.
    fn stop(&mut self, out: &mut Outputs<'_>) {
        let _ = out;
    }

    /// Something happened to a port of the stage's lcore that no packet tells of: e.g. a market maker takes its quotes
    /// back when its order port is down. Called between two turns of the loop, once for each port and event, on every
    /// stage of the lcore.
    fn port_event(&mut self, event: PortEvent, out: &mut Outputs<'_>) {
        let _ = (event, out);
    }
}

/// What happened to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortEvent {
    /// The number of the port ([`StageContext::port`](crate::StageContext::port)).
    pub port: u16,
    /// What happened.
    pub change: PortChange,
}

/// A change of a port's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChange {
    /// Its queue pair is in an error state: what is sent to it is dropped and counted. Why, the report says
    /// ([`PortReport::down_reason`](crate::PortReport::down_reason)). With a port that has no address the run ends.
    Down,
    /// It is connected again, with another queue pair. What was sent to it in between was dropped.
    Up,
    /// The link under it is down. Sends are still posted: an RC queue pair tries for a while, and what is lost
    /// otherwise is lost.
    LinkDown,
    /// The link is up again.
    LinkUp,
}

/// When a stage wants its [`Stage::poll`] called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// In the next loop: there is more to do. The lcore does not sleep.
    Busy,
    /// In the next loop if there is one; the lcore may sleep until something else wakes it. The stage may send when it
    /// is polled again, though it said so.
    Idle,
    /// Not before this tick, which may be over, unless packets arrive for the stage earlier. The lcore may sleep until
    /// then. `At(Tick::MAX)`: once packets have arrived; until then the stage costs the lcore nothing.
    At(Tick),
    /// Never again. For a source this means that it has finished; a run ends when all its sources have.
    Done,
}
