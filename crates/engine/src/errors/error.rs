//! Errors of a run. Each error names the line of the plan, the value, the reason, and what to do.

use std::io;
use std::time::Duration;

use verbline_mem::{PoolError, RegionError};
use verbline_plan::{Diagnostic, LcoreId, Location, Plan, Span};

use crate::errors::no_thread;
use crate::errors::stuck::{self, Stuck};
use crate::stats::report::Report;

/// A device's error: one of `verbline_verbs`, whose message names the verb, the errno and the
/// remedy.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a factory could not make its stage. A [`Diagnostic`] (from
/// [`StageContext::params`](crate::StageContext::params) or
/// [`Params::refuse`](verbline_plan::Params::refuse)) keeps its place in the plan.
pub type StageError = Box<dyn std::error::Error + Send + Sync>;

/// A line of the plan. Boxed, so that a `Result` stays small.
pub type Place = Box<Location>;

/// The place of a declaration in the plan.
pub(crate) fn place(plan: &Plan, span: Span) -> Place {
    Box::new(plan.locate(span))
}

/// The refusal of a call that an lcore needs, from the kernel's error.
pub(crate) fn system(
    plan: &Plan,
    span: Span,
    lcore: LcoreId,
    call: &'static str,
    remedy: &'static str,
) -> impl FnOnce(io::Error) -> EngineError {
    move |source| {
        let (at, lcore) = (place(plan, span), plan[lcore].name.clone());
        EngineError::System { at, lcore, call, source, remedy }
    }
}

/// The remedy if no peer is at the other end of an address.
fn how_to_meet(reaches_others: bool) -> &'static str {
    match reaches_others {
        true => "start the other end, or raise `connect_timeout`",
        false => {
            "start the other end, in this process or in another: the software RNIC reaches another process only where \
             its device has an `address` (in the plan's [device] table)"
        }
    }
}

/// The reason why a run could not be built, started, or ended in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The device cannot be opened. If none has the name, the message lists the existing ones.
    #[error("{at}: device.{device}: {source}")]
    Device {
        /// The declaration of the device.
        at: Place,
        /// Its name in the plan.
        device: String,
        /// The provider's error.
        source: Cause,
    },
    /// A call of the control path that concerns a whole device failed.
    #[error("{at}: device.{device}: {source}")]
    DeviceVerb {
        /// The declaration of the device.
        at: Place,
        /// Its name in the plan.
        device: String,
        /// The verb and its errno.
        source: Cause,
    },
    /// The device's port carries no traffic.
    #[error("{at}: device.{device}: port {port_num} of {name} is {state}; {remedy}")]
    PortNotActive {
        /// The declaration of the device.
        at: Place,
        /// The device's name in the plan.
        device: String,
        /// The device's own name.
        name: String,
        /// Its port.
        port_num: u8,
        /// The state of the port.
        state: String,
        /// The remedy.
        remedy: String,
    },
    /// The plan asks for more than the device has.
    #[error("{at}: {place}: {key} is {asked}, but {device} grants {limit}; lower it to that")]
    DeviceLimit {
        /// The line that asks.
        at: Place,
        /// The table that asks, e.g. `port.orders`.
        place: String,
        /// The key of the plan.
        key: &'static str,
        /// The value there.
        asked: u64,
        /// The device's limit.
        limit: u64,
        /// The device's own name.
        device: String,
    },
    /// The memory of a pool or a region could not be mapped.
    #[error("{at}: {place}: {source}")]
    Region {
        /// The declaration of the pool or the region.
        at: Place,
        /// Its table: `pool.NAME` or `region.NAME`.
        place: String,
        /// The lacking resource, and the remedy.
        source: Box<RegionError>,
    },
    /// The pool cannot be made in its memory.
    #[error("{at}: pool.{pool}: {source}")]
    Pool {
        /// The declaration of the pool.
        at: Place,
        /// Its name in the plan.
        pool: String,
        /// The reason.
        source: Box<PoolError>,
    },
    /// The device refused the memory of a pool or a region.
    #[error(
        "{at}: {place}: registering {len_bytes} bytes with {device} failed: {source}; if locked memory is limited \
         here (`ulimit -l`), raise the limit or make it smaller"
    )]
    Register {
        /// The declaration of the pool or the region.
        at: Place,
        /// Its table: `pool.NAME` or `region.NAME`.
        place: String,
        /// The region's length, bytes.
        len_bytes: usize,
        /// The device's own name.
        device: String,
        /// The device's error.
        source: Cause,
    },
    /// The completion queue or its channel cannot be made.
    #[error("{at}: lcore.{lcore}: {source}")]
    CompletionQueue {
        /// The declaration of the lcore.
        at: Place,
        /// Its name in the plan.
        lcore: String,
        /// The verb and its errno.
        source: Cause,
    },
    /// The queue pair cannot be made.
    #[error("{at}: port.{port}: {source}")]
    QueuePair {
        /// The declaration of the port.
        at: Place,
        /// Its name in the plan.
        port: String,
        /// The reason.
        source: Cause,
    },
    /// The queue pair cannot be brought to its peer or its group.
    #[error("{at}: port.{port}: cannot reach {peer}: {source}")]
    Connect {
        /// The declaration of the port.
        at: Place,
        /// Its name in the plan.
        port: String,
        /// The peer or the group.
        peer: String,
        /// The reason.
        source: Cause,
    },
    /// The port can't listen at its address or connect to it, and waiting would not help.
    #[error("{at}: port.{port}: cannot {doing}: {source}")]
    Address {
        /// The declaration of the port.
        at: Place,
        /// Its name in the plan.
        port: String,
        /// The failed action, with the address.
        doing: String,
        /// The reason.
        source: Cause,
    },
    /// The port was not connected within its time.
    #[error(
        "{at}: port.{port} {role} and has no connection after {timeout:?} and {attempts} {}: {last}; {}",
        if *.attempts == 1 { "attempt" } else { "attempts" },
        how_to_meet(*.reaches_others)
    )]
    NotConnected {
        /// The declaration of the port.
        at: Place,
        /// Its name in the plan.
        port: String,
        /// `listens at` or `connects to`, and the address.
        role: String,
        /// The number of attempts, by this end or by peers.
        attempts: u64,
        /// `connect_timeout`.
        timeout: Duration,
        /// The error of the last attempt.
        last: String,
        /// Whether other processes reach the port's device.
        reaches_others: bool,
    },
    /// The run was told to stop before all ports were connected.
    #[error("stopped before all ports were connected")]
    Interrupted,
    /// The factory of a stage refused.
    #[error("{at}: stage.{stage} ({kind}): {source}")]
    Stage {
        /// The declaration of the stage.
        at: Place,
        /// Its name in the plan.
        stage: String,
        /// Its kind.
        kind: String,
        /// The factory's error.
        source: StageError,
    },
    /// The factory of an acceptor refused, or no acceptor has the name.
    #[error("{at}: port.{port}: acceptor `{acceptor}`: {source}")]
    Acceptor {
        /// The declaration of the port.
        at: Place,
        /// The port's name in the plan.
        port: String,
        /// The acceptor that it names.
        acceptor: String,
        /// The factory's error.
        source: StageError,
    },
    /// A stage's params or an app's section is wrong; the diagnostic shows the line.
    #[error("{0}")]
    Params(Diagnostic),
    /// The plan was checked against another catalog than that of this registry.
    #[error(
        "{at}: stage.{stage}: the kind `{kind}` is not registered; check the plan with the catalog of the registry \
         that runs it"
    )]
    UnknownKind {
        /// The declaration of the stage.
        at: Place,
        /// The stage's name.
        stage: String,
        /// Its kind in the plan.
        kind: String,
    },
    /// The kernel refused a call that an lcore needs to sleep or to be woken.
    #[error("{at}: lcore.{lcore}: {call}: {source}; {remedy}")]
    System {
        /// The declaration of the lcore.
        at: Place,
        /// Its name in the plan.
        lcore: String,
        /// The call.
        call: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// The kernel refused a call that concerns the whole run, not a single lcore or port.
    #[error("{call}: {source}; {remedy}")]
    Process {
        /// The call.
        call: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// This process may not run on the CPU.
    #[error(
        "{at}: lcore.{lcore}: cannot be pinned to CPU {cpu}; this process may run on {}: choose one of them, or widen \
         its cpuset (taskset, cgroup)", list(.allowed)
    )]
    Pin {
        /// The declaration of the lcore.
        at: Place,
        /// Its name in the plan.
        lcore: String,
        /// The CPU in the plan.
        cpu: u32,
        /// The CPUs that this process may use.
        allowed: Vec<usize>,
    },
    /// The plan has no injector of this name.
    #[error("the plan has no injector `{asked}`; {}", if .known.is_empty() {
        "it has none: add a table [injector.NAME] with `to`, `pool` and `depth`".to_owned()
    } else {
        format!("its injectors are: {}", .known.join(", "))
    })]
    NoInjector {
        /// The name.
        asked: String,
        /// The names of the plan's injectors.
        known: Vec<String>,
    },
    /// A stage panicked. The others were stopped in order.
    #[error("lcore.{lcore}: {} panicked: {message}", culprit(.stage))]
    Panicked {
        /// The lcore that ran it.
        lcore: String,
        /// The stage; `None` if the engine itself did.
        stage: Option<String>,
        /// The panic's message.
        message: String,
        /// The run's report up to then.
        report: Box<Report>,
    },
    /// An lcore met an error that it cannot recover from, or one of its stages reported a failure
    /// ([`Outputs::fail`](crate::Outputs::fail)). The others were stopped in order.
    #[error("lcore.{lcore}: {}{message}", of(.stage))]
    Failed {
        /// The lcore.
        lcore: String,
        /// The stage that failed; `None` if the lcore itself failed.
        stage: Option<String>,
        /// The error or the stage's reason.
        message: String,
        /// The run's report up to then.
        report: Box<Report>,
    },
    /// Threads of the run did not end in time when it was stopped. They are left behind, with all
    /// their resources: the program that embeds the engine should end the process.
    #[error("the run did not end within {limit:?} of its drain: {}; their threads are left behind", stuck::all(.stuck))]
    Stuck {
        /// The time that the stop waited after the drain.
        limit: Duration,
        /// The threads that did not end.
        stuck: Vec<Stuck>,
        /// The run's report up to then. Packets of the stuck threads count as held.
        report: Box<Report>,
    },
    /// A thread of the run stopped it, and would have waited for itself.
    #[error(
        "{who} stopped the run that it is a part of, and can't wait for itself: the run ends behind it, without a \
         report; call `Interrupter::interrupt` there, and `stop` where the run was started"
    )]
    StoppedInside {
        /// The thread: `lcore.NAME`, or one that makes connections.
        who: String,
        /// The run's report up to then.
        report: Box<Report>,
    },
    /// A thread that the run needs can't be made.
    #[error("{at}: port.{port}: the thread that {does} it can't be made: {source}; {}", no_thread::remedy())]
    Thread {
        /// The declaration of the port.
        at: Place,
        /// Its name in the plan.
        port: String,
        /// The purpose of the thread, e.g. `connects`.
        does: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

fn list(cpus: &[usize]) -> String {
    if cpus.is_empty() {
        return "no CPU that the kernel would name".to_owned();
    }
    let words: Vec<String> = cpus.iter().map(usize::to_string).collect();
    format!("CPU {}", words.join(", "))
}

fn of(stage: &Option<String>) -> String {
    stage.as_ref().map_or_else(String::new, |stage| format!("stage.{stage} failed: "))
}

fn culprit(stage: &Option<String>) -> String {
    match stage {
        Some(stage) => format!("stage.{stage}"),
        None => "the engine".to_owned(),
    }
}
