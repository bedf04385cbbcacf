//! How a port gets another queue pair: what its lcore, which owns the one that it has, and the thread that keeps its connection
//! tell each other.
//!
//! ```text
//!   lcore                                        keeper
//!   a completion failed ── went_down ──────────▶
//!                       ◀────────── lose ─────── the connection manager says that it is over
//!   queue pair to ERR, its completions come
//!                       ── is_empty ───────────▶ makes another and connects it
//!                       ◀────────── give ───────
//!   the one for the other, receives posted
//!                       ── retire ─────────────▶ destroys the old one
//! ```
//!
//! What it guarantees: the hot path never looks here. Whoever has something for the lcore leaves it a notice ([`crate::control::run_control`]),
//! and only then does the lcore take the lock, which nobody holds for longer than it takes to move a value. What one side says of a
//! queue pair is gone once the next one is given.

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use verbline_verbs::QueuePair;

use crate::control::event_fd::Bell;
use crate::control::notice::Notice;
use crate::control::run_control::Caller;

/// Shared by a port and its keeper.
#[derive(Debug)]
pub(crate) struct Seat {
    slots: Mutex<Slots>,
    /// Rung for the keeper.
    bell: Bell,
    /// The lcore's, and the port's place on it.
    caller: Caller,
    place: usize,
}

#[derive(Debug, Default)]
struct Slots {
    orders: Orders,
    news: News,
}

/// For the lcore.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// The connection is over: let go of what is posted.
    pub(crate) lost: bool,
    /// A queue pair that is connected, in place of the one that was let go.
    pub(crate) fresh: Option<QueuePair>,
}

/// For the keeper.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// The queue pair failed: the number of the reason.
    pub(crate) down: Option<u64>,
    /// Nothing of the queue pair is outstanding any more.
    pub(crate) empty: bool,
    /// What was replaced.
    pub(crate) old: Option<QueuePair>,
}

impl Seat {
    pub(crate) fn new(caller: Caller, place: usize) -> io::Result<Seat> {
        Ok(Seat { slots: Mutex::default(), bell: Bell::new()?, caller, place })
    }

    /// The lcore: what there is to do.
    pub(crate) fn orders(&self) -> Orders {
        mem::take(&mut self.lock().orders)
    }

    /// The lcore: its queue pair is in the error state. Why, as the number of a [`crate::stats::down_reason::DownReason`].
    pub(crate) fn went_down(&self, why: u64) {
        self.lock().news.down = Some(why);
        self.bell.ring();
    }

    /// The lcore: no completion of its queue pair is to come any more.
    pub(crate) fn is_empty(&self) {
        self.lock().news.empty = true;
        self.bell.ring();
    }

    /// The lcore: a queue pair that it has no use for any more.
    pub(crate) fn retire(&self, old: QueuePair) {
        let before = self.lock().news.old.replace(old);
        // The keeper takes each before it gives the next, so there is none; if there were, it would go outside of the lock.
        drop(before);
        self.bell.ring();
    }

    /// The keeper: the connection is over. A queue pair that was given and not taken yet comes back.
    pub(crate) fn lose(&self) -> Option<QueuePair> {
        let mut slots = self.lock();
        let back = slots.orders.fresh.take();
        match back {
            // The one before it was empty, and still is.
            Some(_) => slots.news.empty = true,
            None => slots.orders.lost = true,
        }
        drop(slots);
        self.caller.note(Notice::Connection { port: self.place });
        back
    }

    /// The keeper: here is another. What was said of the one before is forgotten.
    pub(crate) fn give(&self, fresh: QueuePair) {
        let mut slots = self.lock();
        slots.orders = Orders { lost: false, fresh: Some(fresh) };
        (slots.news.down, slots.news.empty) = (None, false);
        drop(slots);
        self.caller.note(Notice::Connection { port: self.place });
    }

    /// The keeper: what the lcore has said. That a queue pair is empty is true until the next is given.
    pub(crate) fn news(&self) -> News {
        self.bell.quiet();
        let mut slots = self.lock();
        News { down: slots.news.down.take(), empty: slots.news.empty, old: slots.news.old.take() }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        // Every change is a few assignments that do not panic.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Seat {
    /// Readable when there is news for the keeper.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
