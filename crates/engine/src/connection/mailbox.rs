//! The mailbox between an lcore and the thread that makes a port's connections. The messages are
//! those of a port with one connection ([`crate::connection::handover`]) or with many
//! ([`crate::connection::many::exchange`]).
//!
//! Guarantees: the hot path never looks here; the lcore takes the lock only after a notice
//! ([`crate::control::run_control`]) told it to, and no holder keeps the lock for longer than it
//! takes to move what was said.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::control::event_fd::EventFd;
use crate::control::notice::Notice;
use crate::control::run_control::LcoreInbox;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    said: Mutex<T>,
    /// Signaled for the thread.
    event: EventFd,
    pub(crate) inbox: LcoreInbox,
    /// The port's place on the lcore.
    place: usize,
}

impl<T> Mailbox<T> {
    pub(crate) fn new(said: T, inbox: LcoreInbox, place: usize) -> io::Result<Mailbox<T>> {
        Ok(Mailbox { said: Mutex::new(said), event: EventFd::new()?, inbox, place })
    }

    /// What both have said.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // Every change is a few moves that do not panic.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread is to look.
    pub(crate) fn call_thread(&self) {
        self.event.signal();
    }

    /// The thread is about to look.
    pub(crate) fn heard(&self) {
        self.event.clear();
    }

    /// The lcore is to look.
    pub(crate) fn call_lcore(&self) {
        self.inbox.post(Notice::Connections { port: self.place });
    }
}

impl<T> AsFd for Mailbox<T> {
    /// Readable when the thread is to look.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
