//! The queue by which the listening cm thread hands connection requests to another port's cm
//! thread, with the number of that port's connections, which both threads update.
//!
//! ```text
//!   the cm thread that listens               the cm thread of the port
//!   reserve, while there is room
//!   hand ──────────────────────────────────▶ take_all: makes their queue pairs
//!                                            give_back: the slot is free again
//!                                            close: takes no more requests
//! ```
//!
//! Guarantees: at most `max` slots are reserved; a request that is handed over is taken once, or
//! comes back to its giver; requests handed over before the accept queue closes are returned by
//! [`AcceptQueue::close`]. All of it is one mutex, held for a few moves, and an eventfd that is
//! signaled after a hand-over and cleared before a look. There are no orderings to model beyond
//! those of the two, so that the model below goes step by step.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use crate::control::event_fd::EventFd;
use crate::errors::guarded::lock;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct AcceptQueue<T> {
    max: usize,
    state: Mutex<State<T>>,
    /// Signaled for the port's cm thread.
    event: EventFd,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    reserved: usize,
    is_open: bool,
}

impl<T> State<T> {
    /// Whether another request fits into `max` slots.
    fn fits(&self, max: usize) -> bool {
        self.is_open && self.reserved < max
    }
}

impl<T> AcceptQueue<T> {
    pub(crate) fn new(max: usize) -> io::Result<AcceptQueue<T>> {
        let state = State { waiting: VecDeque::new(), reserved: 0, is_open: true };
        Ok(AcceptQueue { max, state: Mutex::new(state), event: EventFd::new()? })
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// The number of reserved slots: those of connections, and of requests on their way.
    pub(crate) fn reserved(&self) -> usize {
        lock(&self.state).reserved
    }

    pub(crate) fn has_room(&self) -> bool {
        lock(&self.state).fits(self.max)
    }

    /// Reserves a slot. False if none is free.
    pub(crate) fn reserve(&self) -> bool {
        let mut state = lock(&self.state);
        let fits = state.fits(self.max);
        state.reserved += usize::from(fits);
        fits
    }

    /// Frees a reserved slot.
    pub(crate) fn give_back(&self) {
        let mut state = lock(&self.state);
        state.reserved = state.reserved.saturating_sub(1);
    }

    /// Hands a request to the port's cm thread; returns it if the queue is closed.
    #[must_use = "who comes back is still to be answered"]
    pub(crate) fn hand(&self, one: T) -> Option<T> {
        let mut state = lock(&self.state);
        if !state.is_open {
            return Some(one);
        }
        state.waiting.push_back(one);
        drop(state);
        self.event.signal();
        None
    }

    /// For the port's cm thread: takes all waiting requests.
    pub(crate) fn take_all(&self) -> VecDeque<T> {
        // Cleared first: a request handed over after the clear ends the next wait.
        self.event.clear();
        std::mem::take(&mut lock(&self.state).waiting)
    }

    /// For the port's cm thread: closes the queue. Returns the requests that still wait.
    pub(crate) fn close(&self) -> VecDeque<T> {
        let mut state = lock(&self.state);
        state.is_open = false;
        std::mem::take(&mut state.waiting)
    }
}

impl<T> AsFd for AcceptQueue<T> {
    /// Readable when a request was handed over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
