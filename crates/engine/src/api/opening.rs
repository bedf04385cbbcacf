//! The second step of a stage that opens something: a file, a socket, a descriptor to watch.
//!
//! A stage is described first, without effects: a check makes the same description, of the plan
//! alone. Opening follows in a second step, which only a run takes. The types keep the two apart:
//! the context of a description ([`StageContext`]) can watch nothing, and an [`Opening`] is made by
//! a run alone.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::time::Duration;

use verbline_mem::Pool;

use crate::api::context::StageContext;
use crate::api::stage::Stage;
use crate::errors::error::StageError;
use crate::errors::guarded::Guarded;
use crate::stats::own_figures::OwnFigures;
use crate::waiting::fds::{FdId, FdInterest, Fds};

/// Opens a described stage. A stage that the description has made already is guarded, since a check
/// drops it.
pub(crate) type Open = Box<dyn FnOnce(&Opening<'_>) -> Result<Guarded<dyn Stage>, StageError>>;

/// A stage as its kind described it: checked, and not open yet.
pub(crate) struct Described<'a> {
    pub(crate) context: StageContext<'a>,
    pub(crate) open: Open,
}

impl fmt::Debug for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Described").field("context", &self.context).finish_non_exhaustive()
    }
}

/// The context in which a stage opens, in a run and never in a check: that of its description, and
/// calls with effects.
#[derive(Debug)]
pub struct Opening<'a> {
    context: StageContext<'a>,
    memory: Option<Pool>,
    fds: RefCell<Option<Fds>>,
}

impl<'a> Opening<'a> {
    pub(crate) fn new(context: StageContext<'a>, memory: Option<Pool>) -> Opening<'a> {
        Opening { context, memory, fds: RefCell::default() }
    }

    /// The stage's pool, for other users of its packets: a file's ring registers its memory.
    /// Registering pins and maps pages, a system call of milliseconds, so it belongs here and not
    /// on an lcore. `None` if the plan names no pool for this stage.
    pub fn pool_memory(&self) -> Option<&Pool> {
        self.memory.as_ref()
    }

    /// Has the stage's lcore watch a descriptor: an eventfd (io_uring has one), a timerfd, a
    /// socket, a pipe. A ready descriptor ends the lcore's sleep, and the stage hears of it
    /// ([`Stage::fd_ready`]). While awake, the lcore checks all descriptors of the stage (one
    /// system call for 16) once per `look_every`; with `None` only after a sleep that a descriptor
    /// has ended. A stage whose lcore never sleeps (`idle = "poll"`, or load without a pause)
    /// passes an interval, or reads its descriptor in its own [`Stage::poll`]. While the run drains
    /// nobody sleeps, and the lcore checks five times a millisecond at least; a source's
    /// descriptors are no longer watched then.
    ///
    /// The engine watches a duplicate, which keeps the file open until the stage returns
    /// [`FdNext::Unwatch`](crate::FdNext::Unwatch) or the run ends. So a watched descriptor counts
    /// twice against the process's limit, and a stage that has any counts one more, for its
    /// epoll(7) instance: the stage's kind declares that in
    /// [`Needs::descriptors`](verbline_plan::Needs).
    ///
    /// # Errors
    /// The errors of dup(2) and epoll_ctl(2): out of descriptors, or a kind that can't be watched
    /// (a regular file).
    pub fn watch_fd(&self, fd: impl AsFd, interest: FdInterest, look_every: Option<Duration>) -> std::io::Result<FdId> {
        let mut fds = self.fds.borrow_mut();
        let fds = match &mut *fds {
            Some(fds) => fds,
            none => none.insert(Fds::new()?),
        };
        fds.watch(fd.as_fd(), interest, look_every)
    }

    /// The stage's own figures, its descriptors, and the ports that it asked for.
    pub(crate) fn into_parts(self) -> (OwnFigures, Option<Fds>, Vec<u16>) {
        let (own, ports) = self.context.into_parts();
        (own, self.fds.into_inner(), ports)
    }
}

impl<'a> Deref for Opening<'a> {
    type Target = StageContext<'a>;

    fn deref(&self) -> &StageContext<'a> {
        &self.context
    }
}
