//! A plan as an object: built on the calling thread, run by one pinned thread an lcore, and stopped
//! in order.
//!
//! ```text
//! Runtime::build ──start──▶ Running ──stop──▶ Report
//! ```

use std::sync::Arc;
use std::time::Duration;

use verbline_plan::{Diagnostics, Note, Plan};

use crate::api::injector::Injector;
use crate::api::registry::Registry;
use crate::control::change::ChangeOutcome;
use crate::control::run_control::Control;
use crate::errors::error::EngineError;
use crate::run::change::ChangedPort;
use crate::run::observer::Observer;
use crate::run::pause::PausedPort;
use crate::run::stop::{Ended, STOP_LIMIT};
use crate::stats::report::Report;

/// A plan with everything made: devices are open, pools registered, queue pairs connected to their
/// peers in the plan, receive queues full, stages made. Ports with `listen` listen; ports with
/// `connect` wait for [`Runtime::connect`]. No lcore runs yet.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) built: crate::setup::assemble::Built,
}

impl Runtime {
    /// Makes everything that the plan names, on the calling thread, and checks the plan against the
    /// devices' limits.
    ///
    /// # Errors
    /// The first thing that cannot be made, with the plan's line. Nothing is left behind.
    pub fn build(plan: &Plan, registry: &Registry) -> Result<Runtime, EngineError> {
        Ok(Runtime { built: crate::setup::assemble::build(plan, registry)? })
    }

    /// Checks what only the app can judge: describes every stage as [`Runtime::build`] does, and
    /// drops it. Opens no device, no file and no socket, maps no memory for packets and starts no
    /// thread: what does so is a step that a check never takes ([`Registry::opening_stage`]).
    ///
    /// # Errors
    /// The first fault that each factory finds, at its place in the plan. The same fault in a
    /// section that several stages read counts once.
    pub fn check(plan: &Plan, registry: &Registry) -> Result<(), Diagnostics> {
        let faults = crate::setup::stages::stage_faults(plan, registry);
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// What this machine lacks, although the run works without it: one note of each kind, with the
    /// command that mends it. [`Plan::notes`] can only predict some of it (which pages a pool will
    /// be on); this is what happened.
    pub fn notes(&self) -> &[Note] {
        &self.built.notes
    }

    /// Connects the ports that have an address, all at once, and returns when all are connected.
    /// `stop` is asked fifty times a second whether to give up; [`Interrupter::interrupt`] makes it
    /// give up too. A connection that is lost later is reconnected, unless the plan says `reconnect
    /// = false`. The report tells its state ([`ConnectionReport`](crate::ConnectionReport)); what
    /// its port is to send meanwhile is dropped and counted.
    ///
    /// # Errors
    /// [`EngineError::NotConnected`]: a port was not connected within its `connect_timeout`.
    /// [`EngineError::Address`]: a port cannot be connected, e.g. since the listener rejected it
    /// with a reason. [`EngineError::Interrupted`]: it was told to stop. The runtime is of no use
    /// after an error.
    pub fn connect(&mut self, stop: impl FnMut() -> bool) -> Result<(), EngineError> {
        self.built.connect(stop)
    }

    /// A handle of the plan's `[injector.NAME]`, by which threads of the embedder hand messages to
    /// its stage: from now on (what comes before the start waits in the injector) until the run
    /// stops.
    ///
    /// # Errors
    /// [`EngineError::NoInjector`]: the plan has none of this name.
    pub fn injector(&self, name: &str) -> Result<Injector, EngineError> {
        self.built.injectors.get(name)
    }

    /// A handle by which another thread ends [`Runtime::connect`], and later [`Running::wait`].
    pub fn interrupter(&self) -> Interrupter {
        Interrupter { control: Arc::clone(&self.built.control) }
    }

    /// Starts the lcores, each pinned to its CPU, and returns once all of them run. Connects the
    /// ports that have an address first, if [`Runtime::connect`] has not done so.
    ///
    /// # Errors
    /// Those of [`Runtime::connect`]; or an lcore cannot be started or pinned. Lcores that were
    /// started are stopped again.
    pub fn start(self) -> Result<Running, EngineError> {
        Ok(Running { inner: crate::run::start::start(self.built)? })
    }
}

/// A run. Dropping it stops it as [`Running::stop`] does; dropped by one of its own stages, it ends
/// without a drain.
#[derive(Debug)]
pub struct Running {
    pub(crate) inner: crate::run::stop::RunningInner,
}

impl Running {
    /// Reports what the run has done so far. Reads the lcores' counters without stopping or slowing
    /// them.
    pub fn snapshot(&self) -> Report {
        self.inner.snapshot()
    }

    /// A handle by which another thread takes snapshots of the run, until it is over.
    pub fn observer(&self) -> Observer {
        Observer::new(&self.inner.observed)
    }

    /// Has the ports take what `plan`, which was read again, says otherwise of their queue pairs'
    /// attributes (`timeout`, `traffic_class`, …). Ports are known by their names; the rest of
    /// `plan` is not looked at. Some attributes a queue pair takes while it sends. For most its
    /// send queue is drained first (SQD): what is sent meanwhile waits there, and goes on in its
    /// order, so that nothing is lost. Says what became of each port's keys, and returns within
    /// five seconds: a send queue that is not drained by then takes its attributes later.
    ///
    /// The lcore of a port makes the calls, which take some microseconds each, and does nothing
    /// else meanwhile.
    ///
    /// ```no_run
    /// # use verbline_engine::Running;
    /// # use verbline_plan::Loader;
    /// # fn reload(running: &Running, loader: &Loader) -> Result<(), Box<dyn std::error::Error>> {
    /// for changed in running.change_ports(&loader.load_path("gateway.toml")?)? {
    ///     let keys: Vec<String> = changed.keys.iter().map(ToString::to_string).collect();
    ///     println!("port.{}: {}: {:?}", changed.port, keys.join(", "), changed.outcome);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The keys that can't change while the run goes on, each at its place in `plan`. Then no port
    /// was changed.
    pub fn change_ports(&self, plan: &Plan) -> Result<Vec<ChangedPort>, Diagnostics> {
        self.inner.change_ports(plan)
    }

    /// Has a port hold what it sends, until the value that this gives is dropped: what is on its
    /// way is finished, and what is sent from then on waits in its send queue, in its order, and
    /// behind that as if the peer were slow. What attributes the plan changes meanwhile
    /// ([`Running::change_ports`]) the queue pair has before it sends again.
    ///
    /// # Errors
    /// The port is not paused, and why: the plan has none of this name, its device has no SQD, or
    /// its send queue was not drained within five seconds.
    pub fn pause_port(&self, port: &str) -> Result<PausedPort<'_>, ChangeOutcome> {
        self.inner.pause_port(port)
    }

    /// Waits until the run has a reason to be stopped, or for `timeout` (`None`: no limit). Does
    /// not stop it.
    pub fn wait(&self, timeout: Option<Duration>) -> Ended {
        self.inner.wait(timeout)
    }

    /// Like [`Runtime::injector`].
    ///
    /// # Errors
    /// Those of it.
    pub fn injector(&self, name: &str) -> Result<Injector, EngineError> {
        self.inner.injectors.get(name)
    }

    /// A handle by which another thread, e.g. one that waits for signals, ends [`Running::wait`].
    pub fn interrupter(&self) -> Interrupter {
        Interrupter { control: Arc::clone(&self.inner.control) }
    }

    /// Stops the run in order, and accounts for every packet. The sources stop first. Once nothing
    /// is in flight, or the drain budget has run out, each lcore destroys its queue pairs.
    ///
    /// It returns within the longest `drain` of the plan, a tenth of a second in which the reason
    /// of a failed port may still come, [`STOP_LIMIT`], and a second for the thread that reads the
    /// devices' events, whatever the app's code does ([`Running::stop_within`] has another limit).
    /// An orderly stop takes some milliseconds behind the drain.
    ///
    /// # Errors
    /// A stage panicked or an lcore failed, during the run or while it stopped; or a port is down
    /// for good; or a port received nothing of what ports of the plan sent to it. The error carries
    /// the report. [`EngineError::Stuck`]: a stage or an acceptor does not return. It is named,
    /// with the call and since when, and its thread is left behind. [`EngineError::StoppedInside`]:
    /// a stage or an acceptor of this run called it. The run ends behind it.
    pub fn stop(self) -> Result<Report, EngineError> {
        self.stop_within(STOP_LIMIT)
    }

    /// [`Running::stop`] with another limit behind the drain. Half of it is for the threads that
    /// make connections and ask acceptors, which end before the lcores do.
    ///
    /// # Errors
    /// Those of [`Running::stop`].
    pub fn stop_within(mut self, limit: Duration) -> Result<Report, EngineError> {
        let Some(who) = self.inner.inside() else { return self.inner.stop(limit) };
        let report = Box::new(self.inner.snapshot());
        // Somebody else waits for the calling thread. Where nobody can, `self` is dropped here, and
        // the run ends without a drain.
        let waits = std::thread::Builder::new().name("vl-stop".into()).spawn(move || drop(self));
        if let Err(error) = waits {
            tracing::error!(%error, "no thread can be made that waits for the run");
        }
        Err(EngineError::StoppedInside { who, report })
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
        self.control.update(|progress| progress.interrupted = true);
    }
}
