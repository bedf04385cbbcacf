//! A plan as an object: built on the calling thread, run by one pinned thread an lcore, and stopped in order.
//!
//! ```text
//! Runtime::build ──start──▶ Running ──stop──▶ Report
//! ```

use std::sync::Arc;
use std::time::Duration;

use verbline_plan::{Diagnostics, Note, Plan};

use crate::api::error::EngineError;
use crate::api::registry::Registry;
use crate::control::run_control::Control;
use crate::run::stop::Ended;
use crate::stats::report::Report;

/// A plan with everything made that it needs: devices open, pools registered, queue pairs connected to their peers in
/// the plan, receive queues full, stages made. Ports that listen do; those that connect to an address wait for
/// [`Runtime::connect`]. No lcore runs yet.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) built: crate::build::assemble::Built,
}

impl Runtime {
    /// Makes everything that the plan names, on the calling thread, and checks the plan against the devices' limits.
    ///
    /// # Errors
    /// The first thing that cannot be had, with the plan's line. Nothing is left behind.
    pub fn build(plan: &Plan, registry: &Registry) -> Result<Runtime, EngineError> {
        Ok(Runtime { built: crate::build::assemble::build(plan, registry)? })
    }

    /// What the plan is wrong about that only the app can judge: makes every stage as [`Runtime::build`] does, and
    /// drops it. Opens no device, maps no memory for packets and starts no thread, unless a stage's factory does.
    ///
    /// # Errors
    /// What each factory says first, each at its place in the plan; the same fault in a section that several read
    /// counts once.
    pub fn check(plan: &Plan, registry: &Registry) -> Result<(), Diagnostics> {
        let faults = crate::build::stages::stage_faults(plan, registry);
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// What this machine lacks for the run, which does without: one note of each kind, with the command that mends it.
    /// Where [`Plan::notes`] could only foretell (which pages a pool will be on), this is what came about.
    pub fn notes(&self) -> &[Note] {
        &self.built.notes
    }

    /// Connects the ports that have an address, all at once, and returns when every one is connected. `stop` is asked
    /// fifty times a second whether to give up; so is [`Interrupter::interrupt`]. A connection that is lost later is
    /// made again unless the plan says `reconnect = false`: the report tells how it is
    /// ([`ConnectionReport`](crate::ConnectionReport)), and what its port is to send meanwhile is counted as dropped.
    ///
    /// # Errors
    /// [`EngineError::NotConnected`]: some port was not connected within its `connect_timeout`.
    /// [`EngineError::Address`]: some port cannot be, e.g. since the listener said no, with a reason.
    /// [`EngineError::Interrupted`]: it was told to stop. The runtime is of no use after an error.
    pub fn connect(&mut self, stop: impl FnMut() -> bool) -> Result<(), EngineError> {
        self.built.connect(stop)
    }

    /// A handle by which another thread ends [`Runtime::connect`], and later [`Running::wait`].
    pub fn interrupter(&self) -> Interrupter {
        Interrupter { control: Arc::clone(&self.built.control) }
    }

    /// Starts the lcores, each pinned to its CPU, and returns once all of them run. Ports that have an address are
    /// connected first, if [`Runtime::connect`] has not done so.
    ///
    /// # Errors
    /// Those of [`Runtime::connect`]; or an lcore cannot be started or pinned; those that were are stopped again.
    pub fn start(self) -> Result<Running, EngineError> {
        Ok(Running { inner: crate::run::start::start(self.built)? })
    }
}

/// A run. Dropping it stops it as [`Running::stop`] does.
#[derive(Debug)]
pub struct Running {
    pub(crate) inner: crate::run::stop::RunningInner,
}

impl Running {
    /// What the run has done so far. Reads the lcores' counters without stopping or slowing them.
    pub fn snapshot(&self) -> Report {
        self.inner.snapshot()
    }

    /// Waits until the run has a reason to be stopped, or for `timeout` (`None`: no limit). Does not stop it.
    pub fn wait(&self, timeout: Option<Duration>) -> Ended {
        self.inner.wait(timeout)
    }

    /// A handle by which another thread, e.g. one that waits for signals, ends [`Running::wait`].
    pub fn interrupter(&self) -> Interrupter {
        Interrupter { control: Arc::clone(&self.inner.control) }
    }

    /// Stops the run in order: sources first, then, once nothing is in flight or the drain budget has run out, the
    /// queue pairs, each on its lcore; and accounts for every packet.
    ///
    /// # Errors
    /// A stage panicked or an lcore failed, during the run or while it stopped; or a port is down for good, or received
    /// nothing of what ports of the plan sent to it. The error carries the report.
    pub fn stop(mut self) -> Result<Report, EngineError> {
        self.inner.stop()
    }
}

/// Ends [`Running::wait`] from another thread.
#[derive(Clone, Debug)]
pub struct Interrupter {
    control: Arc<Control>,
}

impl Interrupter {
    /// Makes [`Running::wait`] return [`Ended::Interrupted`], now and from now on.
    pub fn interrupt(&self) {
        self.control.tell(|progress| progress.interrupted = true);
    }
}
