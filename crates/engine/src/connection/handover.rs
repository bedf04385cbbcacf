//! How a port gets another queue pair after its connection was lost: the messages between the
//! port's lcore, which owns the queue pair, and the supervisor, which makes the next one.
//!
//! ```text
//!   lcore                                        supervisor
//!   a completion failed ── report_down ────────▶
//!                       ◀────────── lose ─────── the connection manager reports the end
//!   queue pair to ERR, its completions come
//!                       ── report_drained ─────▶ makes another queue pair and connects it
//!                       ◀────────── give ───────
//!   replaces the queue pair, posts receives
//!                       ── retire ─────────────▶ destroys the old queue pair
//! ```
//!
//! Guarantees, beside those of the [`Mailbox`]: what either side said of a queue pair is forgotten
//! once the next queue pair is given.

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use verbline_verbs::QueuePair;

use crate::connection::mailbox::Mailbox;
use crate::control::run_control::LcoreInbox;

/// Shared by a port and its supervisor.
#[derive(Debug)]
pub(crate) struct Handover(Mailbox<Slots>);

/// One for each port of the plan, in order; `None` for ports that do not reconnect.
pub(crate) type Handovers = [Option<Arc<Handover>>];

#[derive(Debug, Default)]
struct Slots {
    for_lcore: ForLcore,
    for_supervisor: ForSupervisor,
}

/// What the supervisor has said to the lcore.
#[derive(Debug, Default)]
pub(crate) struct ForLcore {
    /// The connection is over: release the queue pair.
    pub(crate) lost: bool,
    /// A connected queue pair, to replace the released one.
    pub(crate) replacement: Option<QueuePair>,
}

/// What the lcore has said to the supervisor.
#[derive(Debug, Default)]
pub(crate) struct ForSupervisor {
    /// The queue pair failed: the number of the [`crate::stats::down_reason::DownReason`].
    pub(crate) down: Option<u64>,
    /// Nothing of the queue pair is outstanding any more.
    pub(crate) drained: bool,
    /// The queue pair that was replaced.
    pub(crate) retired: Option<QueuePair>,
}

impl Handover {
    pub(crate) fn new(inbox: LcoreInbox, place: usize) -> io::Result<Handover> {
        Ok(Handover(Mailbox::new(Slots::default(), inbox, place)?))
    }

    /// The lcore: takes what the supervisor has said.
    pub(crate) fn take_for_lcore(&self) -> ForLcore {
        mem::take(&mut self.0.lock().for_lcore)
    }

    /// The lcore: the queue pair is in the error state, for this reason.
    pub(crate) fn report_down(&self, reason: u64) {
        self.0.lock().for_supervisor.down = Some(reason);
        self.0.call_thread();
    }

    /// The lcore: no completion of the queue pair is outstanding any more.
    pub(crate) fn report_drained(&self) {
        self.0.lock().for_supervisor.drained = true;
        self.0.call_thread();
    }

    /// The lcore: gives back a queue pair that was replaced.
    pub(crate) fn retire(&self, old: QueuePair) {
        let before = self.0.lock().for_supervisor.retired.replace(old);
        // The supervisor takes each before it gives the next, so there is none; if there were, it
        // would go outside of the lock.
        drop(before);
        self.0.call_thread();
    }

    /// The supervisor: the connection is over. Returns a queue pair that was given and not taken
    /// yet.
    pub(crate) fn lose(&self) -> Option<QueuePair> {
        let mut slots = self.0.lock();
        let back = slots.for_lcore.replacement.take();
        match back {
            // The queue pair before it was drained, and still is.
            Some(_) => slots.for_supervisor.drained = true,
            None => slots.for_lcore.lost = true,
        }
        drop(slots);
        self.0.call_lcore();
        back
    }

    /// The supervisor: gives a connected queue pair. What was said of the one before is forgotten.
    pub(crate) fn give(&self, replacement: QueuePair) {
        let mut slots = self.0.lock();
        slots.for_lcore = ForLcore { lost: false, replacement: Some(replacement) };
        (slots.for_supervisor.down, slots.for_supervisor.drained) = (None, false);
        drop(slots);
        self.0.call_lcore();
    }

    /// The supervisor: takes what the lcore has said. `drained` stays true until the next queue
    /// pair is given.
    pub(crate) fn take_for_supervisor(&self) -> ForSupervisor {
        self.0.heard();
        let mut slots = self.0.lock();
        let said = &mut slots.for_supervisor;
        ForSupervisor { down: said.down.take(), drained: said.drained, retired: said.retired.take() }
    }
}

impl AsFd for Handover {
    /// Readable when the lcore has said something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The port's side of a handover.
#[derive(Debug)]
pub(crate) struct PortSide {
    pub(crate) handover: Arc<Handover>,
    /// The queue pair is in the error state, and its completions are to come; or they have, or were
    /// waited for in vain.
    pub(crate) is_releasing: bool,
}

impl PortSide {
    pub(crate) fn new(handover: Arc<Handover>) -> PortSide {
        PortSide { handover, is_releasing: false }
    }
}
