//! Errors of a run. Each error names the line of the plan, the value, the reason, and what to do.

use std::io;
use std::time::Duration;

use verbline_mem::{PoolError, RegionError};
use verbline_plan::{Diagnostic, Location, Plan, Span};

use crate::errors::stuck::{self, Stuck};
use crate::stats::report::Report;

/// What a device said: an error of `verbline_verbs`, whose message names the verb, the errno and
/// what to do.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a factory could not make its stage. A [`Diagnostic`] (from
/// [`StageContext::params`](crate::StageContext::params) or
/// [`Params::refuse`](verbline_plan::Params::refuse)) keeps its place in the plan.
pub type StageError = Box<dyn std::error::Error + Send + Sync>;

/// A line of the plan. Boxed, so that a `Result` stays small.
pub type Place = Box<Location>;

/// Where the plan declares something.
pub(crate) fn place(plan: &Plan, span: Span) -> Place {
    Box::new(plan.locate(span))
}

/// What to do if no peer is at the other end of an address.
fn how_to_meet(reaches_others: bool) -> &'static str {
    match reaches_others {
        true => "start the other end, or raise `connect_timeout`",
        false => {
            "start the other end, in this process or in another: the software RNIC reaches another process only where \
             its device has an `address` (in the plan's [device] table)"
        }
    }
}

/// Why a run could not be built, started, or ended in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The device cannot be opened; if there is none of that name, the message lists those there
    /// are.
    #[error("{at}: device.{device}: {source}")]
    Device {
        /// Where the plan declares it.
        at: Place,
        /// Its name in the plan.
        device: String,
        /// What the provider said.
        source: Cause,
    },
    /// A call of the control path that concerns a whole device failed.
    #[error("{at}: device.{device}: {source}")]
    DeviceVerb {
        /// Where the plan declares it.
        at: Place,
        /// Its name in the plan.
        device: String,
        /// The verb and its errno.
        source: Cause,
    },
    /// The device's port carries no traffic.
    #[error("{at}: device.{device}: port {port_num} of {name} is {state}; {remedy}")]
    PortNotActive {
        /// Where the plan declares it.
        at: Place,
        /// The device's name in the plan.
        device: String,
        /// The device's own name.
        name: String,
        /// Its port.
        port_num: u8,
        /// The state that it is in.
        state: String,
        /// What to do.
        remedy: String,
    },
    /// The plan asks for more than the device has.
    #[error("{at}: {place}: {key} is {asked}, but {device} grants {limit}; lower it to that")]
    DeviceLimit {
        /// Where the plan asks.
        at: Place,
        /// What asks, e.g. `port.orders`.
        place: String,
        /// The key of the plan.
        key: &'static str,
        /// The value there.
        asked: u64,
        /// What the device has.
        limit: u64,
        /// The device's own name.
        device: String,
    },
    /// The memory of a pool or a region is not to be had.
    #[error("{at}: {place}: {source}")]
    Region {
        /// Where the plan declares it.
        at: Place,
        /// What is to have it: `pool.NAME` or `region.NAME`.
        place: String,
        /// What is missing, and what to do.
        source: Box<RegionError>,
    },
    /// The pool cannot be made of its memory.
    #[error("{at}: pool.{pool}: {source}")]
    Pool {
        /// Where the plan declares it.
        at: Place,
        /// Its name in the plan.
        pool: String,
        /// Why.
        source: Box<PoolError>,
    },
    /// The device refused the memory of a pool or a region.
    #[error(
        "{at}: {place}: registering {len_bytes} bytes with {device} failed: {source}; if locked memory is limited \
         here (`ulimit -l`), raise the limit or make it smaller"
    )]
    Register {
        /// Where the plan declares it.
        at: Place,
        /// What has the memory: `pool.NAME` or `region.NAME`.
        place: String,
        /// The region's length, bytes.
        len_bytes: usize,
        /// The device's own name.
        device: String,
        /// What the device said.
        source: Cause,
    },
    /// The completion queue or its channel cannot be made.
    #[error("{at}: lcore.{lcore}: {source}")]
    CompletionQueue {
        /// Where the plan declares the lcore.
        at: Place,
        /// Its name in the plan.
        lcore: String,
        /// The verb and its errno.
        source: Cause,
    },
    /// The queue pair cannot be made.
    #[error("{at}: port.{port}: {source}")]
    QueuePair {
        /// Where the plan declares the port.
        at: Place,
        /// Its name in the plan.
        port: String,
        /// Why.
        source: Cause,
    },
    /// The queue pair cannot be brought to its peer or its group.
    #[error("{at}: port.{port}: cannot reach {peer}: {source}")]
    Connect {
        /// Where the plan declares the port.
        at: Place,
        /// Its name in the plan.
        port: String,
        /// The peer or the group.
        peer: String,
        /// Why.
        source: Cause,
    },
    /// The port can't listen at its address or connect to it, and waiting would not help.
    #[error("{at}: port.{port}: cannot {doing}: {source}")]
    Address {
        /// Where the plan declares the port.
        at: Place,
        /// Its name in the plan.
        port: String,
        /// What it was to do, with the address.
        doing: String,
        /// Why it can't.
        source: Cause,
    },
    /// The port was not connected within its time.
    #[error(
        "{at}: port.{port} {role} and has no connection after {timeout:?} and {attempts} {}: {last}; {}",
        if *.attempts == 1 { "attempt" } else { "attempts" },
        how_to_meet(*.reaches_others)
    )]
    NotConnected {
        /// Where the plan declares the port.
        at: Place,
        /// Its name in the plan.
        port: String,
        /// `listens at` or `connects to`, and the address.
        role: String,
        /// How often it tried, or was tried by others.
        attempts: u64,
        /// `connect_timeout`.
        timeout: Duration,
        /// Why the last attempt failed.
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
        /// Where the plan declares it.
        at: Place,
        /// Its name in the plan.
        stage: String,
        /// Its kind.
        kind: String,
        /// What the factory said.
        source: StageError,
    },
    /// The factory of an acceptor refused, or there is none of its name.
    #[error("{at}: port.{port}: acceptor `{acceptor}`: {source}")]
    Acceptor {
        /// Where the plan declares the port.
        at: Place,
        /// The port's name in the plan.
        port: String,
        /// What it says its acceptor is.
        acceptor: String,
        /// What the factory said.
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
        /// Where the plan declares the stage.
        at: Place,
        /// The stage's name.
        stage: String,
        /// What it says it is.
        kind: String,
    },
    /// The kernel refused a call that an lcore needs to sleep or to be woken.
    #[error("{at}: lcore.{lcore}: {call}: {source}; {remedy}")]
    System {
        /// Where the plan declares the lcore.
        at: Place,
        /// Its name in the plan.
        lcore: String,
        /// The call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The kernel refused a call that concerns the run, and no lcore or port of it alone.
    #[error("{call}: {source}; {remedy}")]
    Process {
        /// The call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// This process may not run on the CPU.
    #[error(
        "{at}: lcore.{lcore}: cannot be pinned to CPU {cpu}; this process may run on {}: choose one of them, or widen \
         its cpuset (taskset, cgroup)", list(.allowed)
    )]
    Pin {
        /// Where the plan declares the lcore.
        at: Place,
        /// Its name in the plan.
        lcore: String,
        /// The CPU that the plan says.
        cpu: u32,
        /// The CPUs that there are.
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
        /// The names there are.
        known: Vec<String>,
    },
    /// A stage panicked. The others were stopped in order.
    #[error("lcore.{lcore}: {} panicked: {message}", culprit(.stage))]
    Panicked {
        /// The lcore that ran it.
        lcore: String,
        /// The stage; `None` if the engine itself did.
        stage: Option<String>,
        /// What the panic said.
        message: String,
        /// What the run had done by then.
        report: Box<Report>,
    },
    /// An lcore met an error that it cannot run on with, or one of its stages said that it has
    /// failed ([`Outputs::fail`](crate::Outputs::fail)). The others were stopped in order.
    #[error("lcore.{lcore}: {}{message}", of(.stage))]
    Failed {
        /// The lcore.
        lcore: String,
        /// The stage that said so; `None` if the lcore itself failed.
        stage: Option<String>,
        /// What it met.
        message: String,
        /// What the run had done by then.
        report: Box<Report>,
    },
    /// Threads of the run did not end in time when it was stopped. They are left behind, with what
    /// they hold: the program that embeds the engine should end the process.
    #[error("the run did not end within {limit:?} of its drain: {}; their threads are left behind", stuck::all(.stuck))]
    Stuck {
        /// How long the stop waited behind the drain.
        limit: Duration,
        /// Who did not end.
        stuck: Vec<Stuck>,
        /// What the run had done by then. Packets that they hold are among those held.
        report: Box<Report>,
    },
    /// A thread of the run stopped it, which would have waited for itself.
    #[error(
        "{who} stopped the run that it is a part of, and can't wait for itself: the run ends behind it, without a \
         report; call `Interrupter::interrupt` there, and `stop` where the run was started"
    )]
    StoppedInside {
        /// The thread: `lcore.NAME`, or one that makes connections.
        who: String,
        /// What the run had done by then.
        report: Box<Report>,
    },
    /// A thread that the run needs can't be made.
    #[error("{at}: port.{port}: the thread that {does} it can't be made: {source}; {remedy}", remedy = THREADS)]
    Thread {
        /// Where the plan declares the port.
        at: Place,
        /// Its name in the plan.
        port: String,
        /// What the thread is for, e.g. `connects`.
        does: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What to do where a thread can't be made.
const THREADS: &str = "raise the limit of threads (ulimit -u, prlimit --nproc, pids.max of a cgroup), or free memory";

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
