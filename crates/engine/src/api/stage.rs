//! The [`Stage`] trait, which an app implements. A stage takes batches of packets, and sends
//! packets through its [`Outputs`].
//!
//! Guarantees: all methods of a stage run on the thread of its lcore, never two at the same time;
//! one call covers a whole batch.

use verbline_mem::Batch;

use crate::api::outputs::Outputs;
use crate::connection::event::ConnectionEvent;
use crate::errors::guarded::Vacancy;
use crate::operations::operation::Completed;
use crate::stats::clock::Tick;
use crate::waiting::fds::{FdNext, FdReady};
use crate::waiting::wheel::DueTimer;

/// One step of a plan, run by one lcore.
///
/// A stage must not block and should not allocate: while it runs, nothing else on its lcore does.
pub trait Stage: Send {
    /// Takes a batch of at least one packet. A packet that a port received carries the port's
    /// number ([`StageContext::port`](crate::StageContext::port)) and, as its timestamp, the tick
    /// of the turn that received it (0 if the plan says `timestamps = false` for the port).
    ///
    /// Packets left in `input` are dropped and counted as `unclaimed`: they do not come again with
    /// the next batch, and the plan's sum of the pool relies on that. A stage that wants to send
    /// them later moves them to a batch of its own, and declares
    /// [`holds_packets`](crate::StageSpec::holds_packets). A batch that replaces `input` (by
    /// [`Batch::swap`]) needs the same capacity; otherwise each batch costs an allocation. A source
    /// is called too if a port, a ring, a stage or an injector leads to it.
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let _ = (input, out);
    }

    /// For sources and timers. Called once per loop before `process`; the result says when to call
    /// it again. A stage that was given packets is polled in the next loop after any result but
    /// [`Next::Done`]. A stage that does not override this method is polled once and never again.
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let _ = out;
        Next::Done
    }

    /// Timers of the stage are due ([`Outputs::arm_timer`]): a batch of them, in the order of their
    /// ticks. A timer armed with a past tick may come after later ones. Called before `poll`, at
    /// most once per loop; further due timers come in the next loop. A timer of the batch can no
    /// longer be canceled.
    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        let _ = (due, out);
    }

    /// A descriptor of the stage is ready ([`Opening::watch_fd`](crate::Opening::watch_fd)). Called
    /// before `poll`, at most once per descriptor. A descriptor that the stage does not read (or
    /// write) until it would block is reported again. The stage must not block on it: open it with
    /// `O_NONBLOCK`.
    fn fd_ready(&mut self, ready: FdReady, out: &mut Outputs<'_>) -> FdNext {
        let _ = (ready, out);
        FdNext::Unwatch
    }

    /// Operations of this stage are done ([`Outputs::operate`]), each once, those of one port in
    /// the order in which the port was given them. Called between two calls of `process`, once per
    /// batch. Operations left in `done` are dropped, and their packets counted as `unclaimed`. A
    /// source that has finished still gets its later operations back.
    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        let _ = (done, out);
    }

    /// Called once when the run stops, before the drain: the stage sends the packets it holds.
    /// Packets may still arrive until the drain ends. A source is not polled after this call.
    fn stop(&mut self, out: &mut Outputs<'_>) {
        let _ = out;
    }

    /// Whether the stage waits for packets from outside this run: the responses of a peer in
    /// another process, say. Asked in each turn of the drain, which goes on, within its budget,
    /// until no stage waits. A run that ends before has not drained.
    fn awaits_packets(&self) -> bool {
        false
    }

    /// A port of the stage's lcore changed: one that leads to the stage or that the stage leads to,
    /// over any stages between, or that its factory asked for
    /// ([`StageContext::port`](crate::StageContext::port)). A market maker, for example, withdraws
    /// its quotes when its order port is down. Called between two turns of the loop, once for each
    /// port and event. A stage that a ring holds back (`full = "hold"`) hears of the event once it
    /// may run again; an event that was undone and happened again meanwhile is reported once.
    fn port_event(&mut self, event: PortEvent, out: &mut Outputs<'_>) {
        let _ = (event, out);
    }

    /// A connection opened or ended, on a port of the stage's lcore that may have many and that is
    /// linked to the stage as above. Called between two turns of the loop: once as the connection
    /// opened, before its first packet, and once as it closed or failed, after the last. If a ring
    /// holds the stage back, it is called once the stage may run again. A stage with several such
    /// ports tells them apart by [`ConnectionEvent::port`]: each port numbers its own slots.
    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        let _ = (event, out);
    }
}

/// Takes the place of a dropped stage.
struct Gone;

impl Stage for Gone {}

impl Vacancy for dyn Stage {
    fn vacant() -> Box<dyn Stage> {
        Box::new(Gone)
    }
}

/// An event of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortEvent {
    /// The number of the port ([`StageContext::port`](crate::StageContext::port)).
    pub port: u16,
    /// The change.
    pub change: PortChange,
}

/// A change of a port's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChange {
    /// Its queue pair is in an error state: packets sent to it are dropped and counted. The report
    /// has the reason ([`PortReport::down_reason`](crate::PortReport::down_reason)). If the port
    /// has no address, the run ends.
    Down,
    /// It is connected again, with another queue pair. Packets sent to it in between were dropped.
    Up,
    /// The link under it is down. Sends are still posted: an RC queue pair retries for a while; on
    /// other transports they are lost.
    LinkDown,
    /// The link is up again.
    LinkUp,
}

/// When a stage wants its [`Stage::poll`] called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// In the next loop: there is more to do. The lcore does not sleep.
    Busy,
    /// In the next loop if there is one; the lcore may sleep until something else wakes it. The
    /// stage may still send when it is polled again.
    Idle,
    /// At this tick, which may be past, or earlier if packets arrive for the stage. The lcore may
    /// sleep until then. `At(Tick::MAX)` waits for packets only, and costs the lcore nothing until
    /// they arrive.
    At(Tick),
    /// Never again. For a source this means that it has finished; a run ends when all its sources
    /// have.
    Done,
}
