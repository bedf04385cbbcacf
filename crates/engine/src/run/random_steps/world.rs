//! A run, its peers, and the invariants.

mod ending;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbline_mem::{Batch, PageChoice, PageSize, Pool, PoolCache, PoolSpec, Region, RegionSpec};
use verbline_plan::{Loader, Machine, OutputOperations, StageSpec};
use verbline_verbs::connection::{ConnectOptions, Connecting, Connection, ConnectionError, resolve};
use verbline_verbs::rdma::Remote;
use verbline_verbs::{
    CompletionQueue, Completions, Device, ProtectionDomain, Provider, QpSpec, QueuePair, SendOptions, Transport,
    WrKind, expert::fault,
};

use super::desk::{Desk, MESSAGE_BYTES, Shared, message, read};
use super::memory::{Lent, all};
use super::{Kind, Shape, Step};
use crate::api::registry::Registry;
use crate::connection::multi_port::cm_thread::CmThread;
use crate::control::device_events::ByHand;
use crate::control::event_fd::{StopFlag, StopFlags};
use crate::control::run_control::Control;
use crate::lcore::poll_loop::Lcore;
use crate::setup::assemble::build;
use crate::stats::report::Report;
use crate::stats::snapshot::RunStats;

const ADDRESS: &str = "10.9.9.1:7900";
/// The most peers at a time, and the receives and sends of each.
const PEERS_MAX: usize = 10;
const DEPTH: u32 = 4;
/// The rounds after which nothing more happens by itself.
const SETTLE_ROUNDS: usize = 400;

struct Peer {
    id: u32,
    tag: u16,
    connecting: Option<Connecting>,
    connection: Option<Connection>,
    sent: u32,
    /// Sends that completed with success.
    done: u32,
    /// The number of the last message that came back.
    last: Option<u32>,
    reads: bool,
    /// It has done or suffered something that ends its connection.
    is_doomed: bool,
    /// The other end may not know.
    is_broken: bool,
    /// Declared after the connection, so that the queue pair is dropped after it.
    qp: QueuePair,
}

pub(super) struct World {
    peers: Vec<Peer>,
    /// Peers that have left: the number of each, and its successful sends.
    gone: Vec<(u32, u32)>,
    next_id: u32,
    echoed: u64,
    lent: Lent,
    is_abrupt: bool,
    cq: CompletionQueue,
    found: Completions,
    freed: Batch,
    cache: PoolCache,
    pd: ProtectionDomain,
    ledger: Shared,
    cm_thread: Option<CmThread>,
    events: ByHand,
    stop: StopFlags,
    control: Arc<Control>,
    lcore: Option<Lcore>,
    stats: RunStats,
}

fn text(shape: Shape) -> String {
    let Shape { connections, shared, rx_wr, tx_wr, burst, ops_wr, is_abrupt } = shape;
    // In an abrupt run no party takes turns, so a longer drain would not help.
    let drain = if is_abrupt { "2ms" } else { "1s" };
    let receives = if shared { "rx_shared_wr" } else { "rx_depth_wr" };
    format!(
        r#"
        [device.nic0]
        provider = "soft"
        name = "soft0"
        [pool.p]
        device = "nic0"
        packets = 1024
        data_bytes = 64
        cache_packets = 16
        pages = "4KiB"
        [lcore.only]
        cpu = "allowed:0"
        idle = "poll"
        burst = {burst}
        drain = "{drain}"
        [port.door]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "rc"
        listen = "{ADDRESS}"
        connections_max = {connections}
        {receives} = {rx_wr}
        tx_depth_wr = {tx_wr}
        ops_depth_wr = {ops_wr}
        signal_every_wr = {tx_wr}
        next = "stage.desk"
        [stage.desk]
        use = "desk"
        lcore = "only"
        out = {{ out = "port.door" }}
        "#
    )
}

impl World {
    pub(super) fn new(shape: Shape) -> World {
        let ledger = Shared::default();
        let mut registry = Registry::new("test");
        let operations = &[OutputOperations { output: "out", kinds: &[] }];
        let operations: &[_] = if shape.ops_wr > 0 { operations } else { &[] };
        let spec = StageSpec { outputs: &["out"], operations, summary: "writes down", ..StageSpec::default() };
        let shared = ledger.clone();
        registry.stage("desk", spec, move |_| Ok(Box::new(Desk(shared.clone()))));
        let loader = Loader::new(registry.catalog(), Machine::detect());
        let plan = loader.load_str("steps.toml", &text(shape)).unwrap_or_else(|faults| panic!("{faults}"));
        let mut built = build(&plan, &registry).unwrap();
        let flag = || Arc::new(StopFlag::new().unwrap());
        let stop = StopFlags { connecting: flag(), watching: flag(), lcore_ended: flag() };
        let cm_thread = CmThread::new(built.cm_threads.remove(0), stop.clone()).unwrap();
        let lcore = Lcore::bind(built.lcores.remove(0), Arc::clone(&built.control));
        let context = Device::find(Provider::Soft, "soft1").unwrap().open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(1024, None).unwrap());
        let spec = PoolSpec { name: "peers".into(), packets: 512, data_bytes: 64, headroom_bytes: 0 };
        let region = Region::map(&RegionSpec {
            name: "peers".into(),
            len_bytes: Pool::required_bytes(&spec),
            pages: PageChoice::Exactly(PageSize::Small4K),
            lock: false,
        });
        let pool = Pool::new(region.unwrap(), spec).unwrap();
        pd.register_pool(&pool).unwrap();
        World {
            peers: Vec::new(),
            gone: Vec::new(),
            next_id: 0,
            echoed: 0,
            lent: Lent::new(&pd, PEERS_MAX),
            is_abrupt: shape.is_abrupt,
            cq,
            found: Completions::with_capacity(32),
            freed: Batch::with_capacity(64),
            cache: pool.cache(0),
            pd,
            ledger,
            cm_thread: Some(cm_thread),
            events: ByHand::new(built.watched, Arc::clone(&built.control)),
            stop,
            control: built.control,
            lcore: Some(lcore),
            stats: built.stats,
        }
    }

    fn peer(&mut self, number: u8) -> Option<usize> {
        usize::from(number).checked_rem(self.peers.len())
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Ask => self.ask(),
            Step::Finish(peer) => self.peer(peer).map_or((), |at| self.finish(at)),
            Step::HangUp(peer) => {
                let at = self.peer(peer).filter(|at| self.peers[*at].connecting.is_some());
                at.into_iter().for_each(|at| self.leave(at));
            }
            Step::Send(peer, count, kind) => {
                (0..count).for_each(|_| self.peer(peer).map_or((), |at| self.send(at, kind)));
            }
            Step::Read(peer, reads) => self.peer(peer).map_or((), |at| self.read(at, reads)),
            Step::Poll => self.poll(),
            Step::Leave(peer) => self.peer(peer).map_or((), |at| self.leave(at)),
            Step::Break(peer) => {
                let Some(at) = self.peer(peer).filter(|at| self.peers[*at].connection.is_some()) else { return };
                (self.peers[at].is_doomed, self.peers[at].is_broken) = (true, true);
                assert!(fault::break_queue_pair(self.peers[at].qp.qpn()));
            }
            Step::WrongKey(peer) => {
                let Some(at) = self.peer(peer).filter(|at| self.peers[*at].connection.is_some()) else { return };
                let Some(packet) = self.cache.get() else { return };
                let peer = &mut self.peers[at];
                if peer.qp.send_room() > 0 {
                    let nowhere = Remote { addr: 4096, rkey: u32::MAX };
                    peer.is_doomed |= peer.qp.rc().unwrap().write(packet, nowhere, SendOptions::default()).is_ok();
                }
            }
            Step::Restart => (0..self.peers.len()).rev().for_each(|at| self.leave(at)),
            Step::Calm => self.calm(),
            Step::CmThread => self.cm_turn(),
            Step::Lcore(turns) => (0..turns).for_each(|_| self.lcore_turn()),
            Step::Events => self.events.look(),
        }
    }

    fn ask(&mut self) {
        let tag = (0..PEERS_MAX as u16).find(|tag| self.peers.iter().all(|peer| peer.tag != *tag));
        let Some(tag) = tag else { return };
        let spec = QpSpec {
            tx_depth_wr: DEPTH,
            rx_depth_wr: DEPTH,
            signal_every_wr: 1,
            tag,
            ..QpSpec::new(Transport::Rc, &self.cq)
        };
        let mut qp = self.pd.create_qp(&spec).unwrap();
        let from = "10.9.9.2:0".parse().unwrap();
        let route = resolve(Provider::Soft, ADDRESS.parse().unwrap(), Some(from), Duration::ZERO).unwrap();
        let options = ConnectOptions { access: all(), ..ConnectOptions::default() };
        let connecting = Some(route.connect(&mut qp, &options).unwrap());
        let id = self.next_id;
        self.next_id += 1;
        self.lent.begin(tag, id);
        let (connection, last) = (None, None);
        let (sent, done, reads, is_doomed, is_broken) = (0, 0, true, false, false);
        self.peers.push(Peer { id, tag, connecting, connection, sent, done, last, reads, is_doomed, is_broken, qp });
        self.read(self.peers.len() - 1, true);
    }

    fn finish(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        let Some(connecting) = &peer.connecting else { return };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut [PollFd::from_borrowed_fd(connecting.as_fd(), PollFlags::IN)], Some(&now)).unwrap() == 0 {
            return;
        }
        match peer.connecting.take().expect("it was there").finish(&mut peer.qp, Duration::ZERO) {
            Ok(made) => peer.connection = Some(made),
            Err(error) => {
                assert!(matches!(error, ConnectionError::Rejected { .. }), "{error}");
                self.leave(at);
            }
        }
    }

    fn send(&mut self, at: usize, kind: Kind) {
        let peer = &mut self.peers[at];
        if peer.connection.is_none() || peer.qp.send_room() == 0 {
            return;
        }
        let Some(mut packet) = self.cache.get() else { return };
        assert!(packet.fill(&message(peer.id, peer.sent, kind, self.lent.remote(peer.tag))));
        peer.is_doomed |= kind == Kind::Bye;
        if peer.qp.post_send_one(packet).is_ok() {
            peer.sent += 1;
        }
    }

    fn read(&mut self, at: usize, reads: bool) {
        self.peers[at].reads = reads;
        while reads && self.peers[at].qp.recvs_outstanding() < DEPTH as usize {
            let Some(packet) = self.cache.get() else { return };
            if self.peers[at].qp.post_recv_one(packet).is_err() {
                return;
            }
        }
    }

    /// All peers poll.
    fn poll(&mut self) {
        while self.cq.poll(&mut self.found) > 0 {
            for completion in &self.found {
                let Some(peer) = self.peers.iter_mut().find(|peer| peer.tag == completion.tag()) else { continue };
                match completion.kind() {
                    WrKind::Send => {
                        peer.qp.send_done(completion, &mut self.freed).unwrap();
                        peer.done += u32::from(completion.is_ok());
                    }
                    WrKind::Op => drop(peer.qp.op_done(completion, &mut self.freed).unwrap()),
                    _ => {
                        let packet = peer.qp.recv_done(completion).unwrap();
                        if completion.is_ok() {
                            let (id, number, _) = read(packet.data());
                            assert_eq!((id, packet.len()), (peer.id, MESSAGE_BYTES), "another's answer");
                            assert!(peer.last < Some(number), "{number} came back after {:?}", peer.last);
                            peer.last = Some(number);
                            self.echoed += 1;
                        }
                    }
                }
                self.freed.clear();
            }
        }
        (0..self.peers.len()).filter(|at| self.peers[*at].reads).collect::<Vec<_>>().into_iter().for_each(|at| {
            self.read(at, true);
        });
    }

    /// Records a peer's successful sends, and removes it.
    fn leave(&mut self, at: usize) {
        // Completions until its queue pair is in ERR are polled as well.
        drop((self.peers[at].connecting.take(), self.peers[at].connection.take()));
        self.peers[at].reads = false;
        _ = self.peers[at].qp.to_err();
        self.poll();
        let peer = self.peers.swap_remove(at);
        let (written, ledger) = (self.lent.written(peer.tag), self.ledger.look());
        let told = ledger.stored.get(&peer.id).map_or(0, |number| u64::from(*number) + 1);
        let may_be = told..=u64::from(peer.sent);
        assert!(may_be.contains(&written), "{written} is written to peer {}, and not {may_be:?}", peer.id);
        drop(ledger);
        self.gone.push((peer.id, peer.done));
    }

    fn cm_turn(&mut self) {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.cm_thread.as_mut().expect("until the end").turn(Some(&now)).unwrap();
    }

    fn lcore_turn(&mut self) {
        let lcore = self.lcore.as_mut().expect("until the end");
        if self.control.word() != lcore.seen {
            lcore.read_notices().unwrap();
        }
        lcore.run_turn();
    }

    fn settle(&mut self) {
        for round in 0..SETTLE_ROUNDS {
            self.cm_turn();
            self.events.look();
            self.lcore_turn();
            (0..self.peers.len()).rev().for_each(|at| self.finish(at));
            if round % 8 == 0 {
                (0..self.peers.len()).for_each(|at| self.read(at, true));
                self.poll();
            }
        }
    }

    fn report(&self, ended: bool) -> Report {
        self.stats.report(0, ended)
    }

    /// All parties take turns until nothing waits any more.
    fn calm(&mut self) {
        self.settle();
        for peer in &self.peers {
            assert!(peer.is_doomed || peer.done == peer.sent, "peer {} waits: {} of {}", peer.id, peer.done, peer.sent);
        }
        let healthy = self.peers.iter().filter(|peer| peer.connection.is_some() && !peer.is_doomed).count();
        let broken = self.peers.iter().filter(|peer| peer.is_broken).count();
        let under_way = self.ledger.look().under_way.len();
        let waits = |peer: &Peer| peer.is_broken;
        assert!(under_way == 0 || self.peers.iter().any(waits), "{under_way} operations have not come back");
        let open = self.ledger.look().open.len();
        let may_be = healthy..=healthy + broken;
        assert!(may_be.contains(&open), "{open} are open, of {healthy} that are well and {broken} that broke silently");
    }
}
