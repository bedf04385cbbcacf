//! A plan as an object: built on the calling thread, run by one pinned thread per lcore, and
//! stopped in order.
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
    /// devices' limits. In a process whose mappings are limited (RLIMIT_AS, RLIMIT_DATA), threads
    /// that start from now on share arenas of the allocator: glibc maps 64 MiB for each.
    ///
    /// # Errors
    /// The first part that cannot be made, with the plan's line. Nothing is left behind.
    pub fn build(plan: &Plan, registry: &Registry) -> Result<Runtime, EngineError> {
        verbline_mem::share_arenas_if_limited();
        Ok(Runtime { built: crate::setup::assemble::build(plan, registry)? })
    }

    /// Checks everything that only the app can judge: describes every stage like
    /// [`Runtime::build`], and drops it. Opens no device, file or socket, maps no memory for
    /// packets and starts no thread: these belong to a step that a check never takes
    /// ([`Registry::opening_stage`]).
    ///
    /// # Errors
    /// The first fault that each factory finds, at its place in the plan. The same fault in a
    /// section that several stages read counts once.
    pub fn check(plan: &Plan, registry: &Registry) -> Result<(), Diagnostics> {
        let faults = crate::setup::stages::stage_faults(plan, registry);
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// The machine's shortcomings that the run works without: one note of each kind, with the
    /// command that mends it. [`Plan::notes`] can only predict some of them (such as the pages of a
    /// pool); these are facts.
    pub fn notes(&self) -> &[Note] {
        &self.built.notes
    }

    /// Connects the ports that have an address, all at once, and returns when all are connected.
    /// `stop` is asked fifty times a second whether to give up; [`Interrupter::interrupt`] also
    /// makes it give up. A connection that is lost later is reconnected, unless the plan says
    /// `reconnect = false`. The report tells its state
    /// ([`ConnectionReport`](crate::ConnectionReport)); packets sent to its port meanwhile are
    /// dropped and counted.
    ///
    /// # Errors
    /// [`EngineError::NotConnected`]: a port was not connected within its `connect_timeout`.
    /// [`EngineError::Address`]: a port cannot be connected, e.g. because the listener rejected it
    /// with a reason. [`EngineError::Interrupted`]: it was told to stop, or connecting has failed
    /// before. The runtime can't start after an error.
    pub fn connect(&mut self, stop: impl FnMut() -> bool) -> Result<(), EngineError> {
        self.built.connect(stop)
    }

    /// A handle of the plan's `[injector.NAME]`, by which threads of the embedder hand messages to
    /// its stage: from now on (messages before the start wait in the injector) until the run stops.
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
    /// The errors of [`Runtime::connect`]; or an lcore cannot be started or pinned. Started lcores
    /// are stopped again.
    pub fn start(self) -> Result<Running, EngineError> {
        Ok(Running { inner: crate::run::start::start(self.built)? })
    }
}

/// A run. Dropping it stops it like [`Running::stop`]; if one of its own stages drops it, it ends
/// without a drain.
#[derive(Debug)]
pub struct Running {
    pub(crate) inner: crate::run::stop::RunningInner,
}

impl Running {
    /// Reports the run's figures so far. Reads the lcores' counters without stopping or slowing
    /// them.
    pub fn snapshot(&self) -> Report {
        self.inner.snapshot()
    }

    /// A handle by which another thread takes snapshots of the run, until it is over.
    pub fn observer(&self) -> Observer {
        Observer::new(&self.inner.observed)
    }

    /// Applies the queue pairs' attributes (`timeout`, `traffic_class`, …) that differ in `plan`,
    /// which was read again, to the ports. Ports are matched by name; the rest of `plan` is
    /// ignored. Some attributes take effect while the queue pair sends. For most its send queue is
    /// drained first (SQD): sends wait there meanwhile, and go on in order, so that nothing is
    /// lost. Returns the outcome of each port's keys, within five seconds: a send queue that is not
    /// drained by then takes its attributes later.
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
    /// The keys that can't change during the run, each at its place in `plan`. In that case no port
    /// was changed.
    pub fn change_ports(&self, plan: &Plan) -> Result<Vec<ChangedPort>, Diagnostics> {
        self.inner.change_ports(plan)
    }

    /// Has a port hold its sends, until the returned value is dropped. Sends under way are
    /// finished; later ones wait in the send queue, in order, and behind it as if the peer were
    /// slow. Attributes that the plan changes meanwhile ([`Running::change_ports`]) take effect
    /// before the queue pair sends again.
    ///
    /// # Errors
    /// The port is not paused, with the reason: the plan has no such port, its device has no SQD,
    /// or its send queue was not drained within five seconds.
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
    /// The errors of [`Runtime::injector`].
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
    /// devices' events, whatever the app's code does ([`Running::stop_within`] sets another limit).
    /// An orderly stop takes some milliseconds after the drain.
    ///
    /// # Errors
    /// A stage panicked or an lcore failed, during the run or while it stopped; or a port is down
    /// for good; or a port received none of the packets that ports of the plan sent to it. The
    /// error carries the report. [`EngineError::Stuck`]: a stage or an acceptor does not return. It
    /// is named, with the call and its duration, and its thread is left behind.
    /// [`EngineError::StoppedInside`]: a stage or an acceptor of this run called it. The run ends
    /// after the call.
    pub fn stop(self) -> Result<Report, EngineError> {
        self.stop_within(STOP_LIMIT)
    }

    /// [`Running::stop`] with another limit after the drain. Half of it is for the threads that
    /// make connections and call acceptors, which end before the lcores do.
    ///
    /// # Errors
    /// The errors of [`Running::stop`].
    pub fn stop_within(mut self, limit: Duration) -> Result<Report, EngineError> {
        let Some(who) = self.inner.inside() else { return self.inner.stop(limit) };
        let report = Box::new(self.inner.snapshot());
        // Another thread joins the calling one. If none can be made, `self` is dropped here, and
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
