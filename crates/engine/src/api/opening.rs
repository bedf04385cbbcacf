//! The second step of a stage that opens something: a file, a socket, a descriptor to watch.
//!
//! A stage is described first, without effects: its description is made of the plan alone, and is
//! what a check makes too. What opens happens behind it, in a step that only a run takes. The types
//! keep the two apart: what a stage is described with ([`StageContext`]) can watch nothing, and
//! what it is opened with ([`Opening`]) is made by a run alone.

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

/// What opens a stage that was described. A stage that is made by then is guarded already, since a
/// check drops it.
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

/// What a stage is opened with, in a run and never in a check: all that it was described with, and
/// what has effects.
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

    /// The stage's pool, for what else is to use its packets: a file's ring registers its memory.
    /// That pins and maps pages, which takes a system call of milliseconds: so it is had here, and
    /// not on an lcore. `None` if the plan names none for this stage.
    pub fn pool_memory(&self) -> Option<&Pool> {
        self.memory.as_ref()
    }

    /// Has the stage's lcore watch a descriptor: an eventfd (io_uring has one), a timerfd, a
    /// socket, a pipe. It ends the lcore's sleep when it is ready, and the stage is told
    /// ([`Stage::fd_ready`]). While the lcore is awake it looks at all descriptors of the stage
    /// (one system call for 16), as often as `look_every` says; `None`: only after a sleep that one
    /// has ended. A stage whose lcore never sleeps (`idle = "poll"`, or load without a pause) gives
    /// an interval, or reads its descriptor in its own [`Stage::poll`].
    ///
    /// The engine watches a duplicate, until the stage says
    /// [`FdNext::Unwatch`](crate::FdNext::Unwatch) or the run ends: until then the file stays open.
    ///
    /// # Errors
    /// Those of dup(2) and epoll_ctl(2): out of descriptors, or of a sort that can't be watched (a
    /// regular file).
    pub fn watch_fd(&self, fd: impl AsFd, interest: FdInterest, look_every: Option<Duration>) -> std::io::Result<FdId> {
        let mut fds = self.fds.borrow_mut();
        let fds = match &mut *fds {
            Some(fds) => fds,
            none => none.insert(Fds::new()?),
        };
        fds.watch(fd.as_fd(), interest, look_every)
    }

    /// Its own figures, its descriptors, and the ports that it asked for.
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
