//! The test rig for models of ports and lcores: a scripted device, a pool, and a clock that a test
//! moves.

pub(crate) mod figures;
pub(crate) mod log;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, Timespec};
use verbline_mem::{PageChoice, PageSize, Pool, PoolSpec, Region, RegionSpec};
use verbline_ring::Sleeper;
use verbline_verbs::scripted_device::Script;
use verbline_verbs::{
    CompletionQueue, Completions, Context, InitSpec, ProtectionDomain, QpSpec, QueuePair, RtrSpec, RtsSpec, Transport,
    datagram::{AhSpec, DEFAULT_QKEY},
};

use crate::api::outputs::Output;
use crate::api::stage::Stage;
use crate::connection::cm_mailbox::{CmMailbox, Reconnecting};
use crate::connection::port_qp::PortQp;
use crate::control::run_control::{Control, Failing, LcoreInbox};
use crate::errors::guarded::Guarded;
use crate::idle::policy::Budget;
use crate::idle::wake_set::{CqSource, WakeSet};
use crate::lcore::drain::Drain;
use crate::lcore::node::{Node, NodeSpec};
use crate::lcore::poll_loop::{Lcore, LcoreParts};
use crate::lcore::waits::WaitsFor;
use crate::operations::queue::{OperationQueue, OperationsSpec};
use crate::ports::context::LcoreContext;
use crate::ports::multi_port::{ManyReceiving, MultiPort, MultiPortSpec};
use crate::ports::rx_half::Receiving;
use crate::ports::single_port::{Health, Port};
use crate::ports::sink::{Sink, SinkStats};
use crate::ports::state::LcoreState;
use crate::ports::tx_half::Sending;
use crate::stats::clock::told::Time;
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::{LcoreStats, PortStats, StageStats};
use crate::stats::drop_reason::DropReason;
use crate::stats::sampling::Weights;
use crate::stats::turn_time::TurnTime;

/// The bytes of a packet of [`Rig::pool`].
pub(crate) const DATA_BYTES: u32 = 512;

pub(crate) struct Rig {
    pub(crate) time: Time,
    pub(crate) script: Script,
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) pool: Pool,
}

/// The variable parts of [`Rig::lcore`].
pub(crate) struct Parts {
    pub(crate) budget: Budget,
    pub(crate) ports: Vec<Port>,
    /// The ports' sinks, behind the stage's, which is the first.
    pub(crate) sinks: Vec<Sink>,
    pub(crate) stage: Box<dyn Stage>,
    pub(crate) source: Option<CqSource>,
    pub(crate) doorbell: Sleeper,
    pub(crate) burst: usize,
}

/// The queues of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depths {
    pub(crate) tx_wr: u32,
    pub(crate) rx_wr: u32,
    pub(crate) signal_every_wr: u32,
}

/// Stage failures for an lcore outside a run.
pub(crate) fn no_run() -> Failing {
    Failing::new(Arc::new(Control::new(Vec::new())), "lcore".into(), Box::new([]))
}

impl Rig {
    pub(crate) fn new(packets: u32) -> Rig {
        let (context, script) = Script::open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let pool = pool(packets);
        pd.register_pool(&pool).unwrap();
        Rig { time: Time::default(), script, context, pd, pool }
    }

    /// The context of an lcore with these sinks and a cache of the pool.
    pub(crate) fn lcore_context(&self, sinks: Vec<Sink>, cache: usize) -> LcoreContext {
        let stats = shared::<LcoreStats>();
        LcoreContext {
            sinks,
            caches: vec![self.pool.cache(cache).bind()],
            time: TurnTime::new(self.time.clock(), Shared::clone(&stats)),
            stats,
            weights: Weights::default(),
            stage_ended: None,
            tap: None,
        }
    }

    /// The state for the stages of such an lcore, without ports that have many connections.
    pub(crate) fn lcore_state(&self, sinks: Vec<Sink>, cache: usize) -> LcoreState {
        LcoreState { ctx: self.lcore_context(sinks, cache), many: Vec::new(), failing: no_run() }
    }

    /// An lcore of one stage, on this thread; also returns the stage's counters.
    pub(crate) fn lcore(&self, control: &Arc<Control>, parts: Parts) -> (Lcore, Shared<StageStats>) {
        let Parts { budget, ports, mut sinks, stage, source, doorbell, burst } = parts;
        let stats = shared::<StageStats>();
        sinks.insert(0, Sink::new(burst * 4, DropReason::StageFull, SinkStats::Stage(Shared::clone(&stats))));
        let node = Node::new(NodeSpec {
            name: "stage".into(),
            source: false,
            stats: Shared::clone(&stats),
            stage: Guarded::new("stage", stage),
            // Its only output leads back to it.
            links: Box::new([Output::Sink(0)]),
            input: 0,
            cache: Some(0),
            batch_packets: burst * 4,
            waits_for: WaitsFor::default(),
            ports: ports.iter().map(|port| port.index).collect(),
        });
        let parts = LcoreParts {
            index: 0,
            name: "lcore".into(),
            cpu: 0,
            budget,
            drain: Drain::new(Duration::from_secs(1), false),
            unsolicited_wait: None,
            clock: self.time.clock(),
            nodes: vec![node],
            sinks,
            caches: vec![self.pool.cache(0)],
            ports,
            many: Vec::new(),
            rings_in: Vec::new(),
            rings_out: Vec::new(),
            holds: Vec::new(),
            doorbells: Vec::new(),
            wakes: WakeSet::new(source, doorbell, None),
            completions: Completions::with_capacity(burst),
            stats: shared(),
        };
        (Lcore::bind(parts, Arc::clone(control)), stats)
    }

    /// A completion queue on which an lcore may sleep.
    pub(crate) fn source(&self) -> CqSource {
        source(&self.context)
    }

    /// A queue pair like the engine's, without inline sends: posted packets are held.
    pub(crate) fn spec(cq: &CompletionQueue, transport: Transport, depths: Depths, tag: u16) -> QpSpec<'_> {
        QpSpec {
            tx_depth_wr: depths.tx_wr,
            rx_depth_wr: depths.rx_wr,
            max_inline_bytes: 0,
            signal_every_wr: depths.signal_every_wr,
            tag,
            ..QpSpec::new(transport, cq)
        }
    }

    /// Brings a queue pair to RTS, connected to itself.
    pub(crate) fn bring_up(&self, qp: &mut QueuePair) {
        qp.to_init(&InitSpec::default()).unwrap();
        if qp.transport() == Transport::Ud {
            qp.to_rtr(&RtrSpec::datagram()).unwrap();
        } else {
            qp.to_rtr(&RtrSpec::connected(qp.endpoint())).unwrap();
        }
        qp.to_rts(&RtsSpec::default()).unwrap();
        if qp.transport() == Transport::Ud {
            let ah = self.pd.create_ah(&AhSpec::to_endpoint(&qp.endpoint())).unwrap();
            qp.set_destination(&ah, qp.qpn(), DEFAULT_QKEY).unwrap();
        }
    }
}

/// A pool on small pages, of packets of [`DATA_BYTES`].
pub(crate) fn pool(packets: u32) -> Pool {
    let spec = PoolSpec { name: "rig".into(), packets, data_bytes: DATA_BYTES, headroom_bytes: 64 };
    let region = Region::map(&RegionSpec {
        name: "rig".into(),
        len_bytes: Pool::required_bytes(&spec),
        pages: PageChoice::Exactly(PageSize::Small4K),
        lock: false,
    });
    Pool::new(region.unwrap(), spec).unwrap()
}

/// Like [`Rig::source`], on this device.
pub(crate) fn source(context: &Context) -> CqSource {
    let channel = context.create_comp_channel().unwrap();
    let cq = context.create_cq(256, Some(&channel)).unwrap();
    CqSource { cq, channel }
}

thread_local! {
    /// The time that passes while this thread sleeps; `None`: real time.
    static SLEEPS_IN: RefCell<Option<Time>> = const { RefCell::new(None) };
    /// How long this thread sleeps before a signal comes.
    static SIGNAL_EVERY_NS: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// From now on, this thread's sleeps pass in `time`.
pub(crate) fn sleep_in(time: &Time) {
    SLEEPS_IN.set(Some(time.clone()));
}

/// From now on, a signal interrupts each sleep of this thread, in its own time, after `every_ns`.
pub(crate) fn interrupt_every(every_ns: u64) {
    SIGNAL_EVERY_NS.set(every_ns);
}

/// The clock of [`poll`]'s time-outs.
pub(crate) fn monotonic_ns() -> u64 {
    match SLEEPS_IN.with_borrow(Clone::clone) {
        Some(time) => time.clock().now_ns(),
        None => {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        }
    }
}

/// ppoll(2). A thread that sleeps in its own time passes it to the nanosecond, unless something is
/// ready already.
pub(crate) fn poll(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> rustix::io::Result<usize> {
    let Some(time) = SLEEPS_IN.with_borrow(Clone::clone) else { return rustix::event::poll(fds, timeout) };
    let found = rustix::event::poll(fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    let timeout = timeout.expect("nobody sleeps for ever");
    if found == 0 {
        let timeout_ns = timeout.tv_sec as u64 * 1_000_000_000 + timeout.tv_nsec as u64;
        let signal_ns = SIGNAL_EVERY_NS.get();
        time.pass(timeout_ns.min(signal_ns));
        if signal_ns < timeout_ns {
            return Err(rustix::io::Errno::INTR);
        }
    }
    Ok(found)
}

/// A port with this name and place, which no lcore has attended to yet.
pub(crate) fn port(
    place: u16,
    qp: QueuePair,
    receiving: Option<Receiving>,
    sending: Option<Sending>,
    reconnect: Option<Reconnecting>,
) -> Port {
    let stats = shared::<PortStats>();
    stats.qpn.set(qp.qpn().into());
    Port {
        name: format!("port{place}"),
        index: place,
        qp: PortQp::new(qp),
        receiving,
        sending,
        stats,
        health: Health::Up,
        inbox: None,
        reconnect,
        changing: None,
        is_paused: false,
        alternate: None,
    }
}

/// A port of one connection at most, which nobody has made yet, and the mailbox of its cm thread.
/// `place`: among the lcore's ports, and those of the plan.
pub(crate) fn many_port(
    inbox: LcoreInbox,
    place: u16,
    receiving: Option<ManyReceiving>,
) -> (MultiPort, Arc<CmMailbox>) {
    let mailbox = Arc::new(CmMailbox::new(inbox, place.into(), 1).unwrap());
    let port = MultiPort::new(MultiPortSpec {
        name: "many".into(),
        index: place,
        connections: 1,
        receiving,
        sending: None,
        any: false,
        mailbox: Arc::clone(&mailbox),
        stats: shared(),
        counts: shared(),
    });
    (port, mailbox)
}

/// The operations of a port with one queue pair, which names no region: `depth` sends and as many
/// operations.
pub(crate) fn operation_queue(port: Shared<PortStats>, depth: usize) -> OperationQueue {
    OperationQueue::new(OperationsSpec {
        port,
        stats: shared(),
        transport: Transport::Rc,
        sends: depth,
        depth,
        many: None,
        regions: Box::new([]),
        windows: 0,
        keys: 0,
    })
}
