//! A target in this process, and hosts made of the test's own queue pairs, which may send anything.

pub(crate) mod liar;
pub(crate) mod plans;
pub(crate) mod protected;
pub(crate) mod proving;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nvme_target::NvmeTarget;
pub(crate) use plans::{SECOND, changed, load, plan};
use verbline::engine::{Report, Running, Runtime};
use verbline::mem::{Batch, PageChoice, PageSize, PeerRegion, Pool, PoolCache, PoolSpec, Region, RegionSpec};
use verbline::verbs::connection::{ConnectOptions, Connection, ConnectionError, resolve};
use verbline::verbs::rdma::PeerMr;
use verbline::verbs::{
    Access, CompletionQueue, Completions, Context, Device, ProtectionDomain, Provider, QpSpec, QueuePair, Transport,
    WrKind,
};
use verbline_nvme::cm::Request;
use verbline_nvme::connect::{CNTLID_ANY, Connect, ConnectData, DATA_BYTES};
use verbline_nvme::feature::{self, QueueCount};
use verbline_nvme::property::{self, Property};
use verbline_nvme::{Command, Nqn, Response, Sgl, opcode};

/// The subsystem.
pub(crate) const SUBSYSTEM: &str = "nqn.2026-01.org.verbline:disk";
/// The blocks of namespace 1, which is in memory, and of namespace 2, which stores nothing and is
/// read-only.
pub(crate) const BLOCKS: u64 = 256;
/// Names of hosts.
pub(crate) const NAMES: [&str; 8] = [
    "nqn.2026-01.org.example:a",
    "nqn.2026-01.org.example:b",
    "nqn.2026-01.org.example:c",
    "nqn.2026-01.org.example:d",
    "nqn.2026-01.org.example:e",
    "nqn.2026-01.org.example:f",
    "nqn.2026-01.org.example:g",
    "nqn.2026-01.org.example:h",
];
/// A time limit for any machine; normally the waits end at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// Entries of a host's queues.
pub(crate) const ENTRIES: u16 = 16;
pub(crate) const CONNECT: Connect = Connect { qid: 0, sqsize: ENTRIES - 1, cattr: 0, kato_ms: 0 };

/// A target that listens at this port, with these lines in `[nvme]`.
pub(crate) fn target(port: u16, settings: &str) -> Running {
    start(&plan(port, settings))
}

pub(crate) fn start(text: &str) -> Running {
    start_app(text, &NvmeTarget::default())
}

pub(crate) fn start_app(text: &str, app: &NvmeTarget) -> Running {
    let (registry, plan) = load(app, text);
    Runtime::build(&plan, &registry).and_then(Runtime::start).unwrap_or_else(|error| panic!("{error}"))
}

/// Ends the run, and checks that every packet is back and nothing has failed.
#[track_caller]
pub(crate) fn end(running: Running) -> Report {
    let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.packets.held, report.failures.len()), (0, 0), "{:?}", report.failures);
    report
}

/// Waits until a counter of the target's stage is at least `least`.
#[track_caller]
pub(crate) fn until(running: &Running, counter: &str, least: u64) {
    let deadline = Instant::now() + PATIENCE;
    let value = || running.snapshot().stage("target").and_then(|stage| stage.counter(counter)).unwrap_or(0);
    while value() < least {
        assert!(Instant::now() < deadline, "{counter} is {}, not {least}", value());
        std::thread::yield_now();
    }
}

/// A host: its queues share a completion queue, and memory that the target may reach.
pub(crate) struct Host {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    found: Completions,
    cache: PoolCache,
    freed: Batch,
    address: SocketAddr,
    from: SocketAddr,
    pub(crate) memory: PeerMr,
    pub(crate) name: &'static str,
    queues: Vec<Queue>,
    next_cid: u16,
    /// Receives that the next queue is given; `None` for all that it may need.
    receives: Option<usize>,
}

struct Queue {
    tag: u16,
    qp: QueuePair,
    connection: Connection,
    /// Messages received.
    got: Vec<Vec<u8>>,
    /// Receives are not posted again.
    is_deaf: bool,
}

fn region(len_bytes: usize) -> Region {
    let pages = PageChoice::Exactly(PageSize::Small4K);
    Region::map(&RegionSpec { name: "host".into(), len_bytes, pages, lock: false }).expect("memory")
}

impl Host {
    /// A host of the target at this port.
    pub(crate) fn new(port: u16) -> Host {
        Host::at(port, 2)
    }

    /// A host at the address 10.9.9.N.
    pub(crate) fn at(port: u16, number: u8) -> Host {
        let device = format!("soft{}", number - 1);
        let context: Context =
            Device::find(Provider::Soft, &device).and_then(|device| device.open()).expect("a device");
        let (pd, cq) = (context.alloc_pd().expect("a PD"), context.create_cq(1024, None).expect("a CQ"));
        let spec = PoolSpec { name: "host".into(), packets: 1024, data_bytes: 8192, headroom_bytes: 0 };
        let pool = Pool::new(region(Pool::required_bytes(&spec)), spec).expect("a pool");
        pd.register_pool(&pool).expect("registered");
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let memory = pd.register_peer_region(PeerRegion::new(region(64 << 10)), access);
        Host {
            memory: memory.expect("registered"),
            cache: pool.cache(0),
            found: Completions::with_capacity(64),
            freed: Batch::with_capacity(64),
            address: SocketAddr::from(([10, 9, 9, 1], port)),
            from: SocketAddr::from(([10, 9, 9, number], 0)),
            name: "nqn.2026-01.org.example:host",
            queues: Vec::new(),
            next_cid: 0,
            receives: None,
            pd,
            cq,
        }
    }

    /// Asks for a connection with this private data. Returns the queue's index here.
    pub(crate) fn dial(&mut self, private_data: Vec<u8>) -> Result<usize, ConnectionError> {
        let tag = self.queues.len() as u16 + 1;
        let depth = u32::from(ENTRIES) * 2;
        let spec = QpSpec {
            tx_depth_wr: depth,
            rx_depth_wr: depth,
            signal_every_wr: 1,
            tag,
            ..QpSpec::new(Transport::Rc, &self.cq)
        };
        let mut qp = self.pd.create_qp(&spec).expect("a queue pair");
        let route = resolve(Provider::Soft, self.address, Some(self.from), PATIENCE)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let options = ConnectOptions { private_data, access, ..ConnectOptions::default() };
        let asked = route.connect(&mut qp, &options)?;
        let mut batch = Batch::with_capacity(depth as usize);
        let receives = self.receives.unwrap_or(depth as usize);
        self.cache.get_bulk(&mut batch, receives);
        assert_eq!(qp.post_recv(&mut batch).posted, receives);
        let connection = asked.finish(&mut qp, PATIENCE)?;
        self.queues.push(Queue { tag, qp, connection, got: Vec::new(), is_deaf: self.receives.is_some() });
        Ok(self.queues.len() - 1)
    }

    /// Connects a queue that takes this many responses and no more, until
    /// [`listen_again`](Self::listen_again).
    pub(crate) fn dial_deaf(&mut self, qid: u16, responses: usize) -> usize {
        self.receives = Some(responses);
        let queue = self.dial_queue(qid);
        self.receives = None;
        queue
    }

    /// Lets a deaf queue take responses again.
    pub(crate) fn listen_again(&mut self, queue: usize) {
        let depth = usize::from(ENTRIES) * 2;
        let mut batch = Batch::with_capacity(depth);
        self.cache.get_bulk(&mut batch, depth);
        self.queues[queue].is_deaf = false;
        assert!(self.queues[queue].qp.post_recv(&mut batch).posted > 0, "it takes some");
    }

    /// Connects the queue of this number.
    pub(crate) fn dial_queue(&mut self, qid: u16) -> usize {
        let request = Request { qid, recv_depth: ENTRIES, send_depth_less_one: ENTRIES - 1, cntlid: 0 };
        self.dial(request.to_bytes().to_vec()).expect("a queue is let in")
    }

    pub(crate) fn data(&self, cntlid: u16, subsystem: &str) -> ConnectData {
        let name = |text| Nqn::new(text).expect("a name");
        ConnectData { host_id: [7; 16], cntlid, subsystem: name(subsystem), host: name(self.name) }
    }

    /// Sends the Connect of a queue, with its data in the capsule.
    #[track_caller]
    pub(crate) fn connect(&mut self, queue: usize, asked: Connect, data: &ConnectData) -> Response {
        let cid = self.cid();
        let command = asked.command(cid, Sgl::InCapsule { offset: 0, len: DATA_BYTES as u32 });
        self.send(queue, &[&command.to_bytes()[..], &data.to_bytes()].concat());
        self.response(queue)
    }

    /// Enables a controller that grants four queues. Returns its admin queue, and its number.
    #[track_caller]
    pub(crate) fn controller(&mut self) -> (usize, u16) {
        let admin = self.dial_queue(0);
        (admin, self.controller_on(admin))
    }

    /// Like [`controller`](Self::controller), on an admin queue that is connected. Returns its
    /// number.
    #[track_caller]
    pub(crate) fn controller_on(&mut self, admin: usize) -> u16 {
        let deadline = Instant::now() + PATIENCE;
        let answer = loop {
            let data = self.data(CNTLID_ANY, SUBSYSTEM);
            let answer = self.connect(admin, CONNECT, &data);
            if !answer.status.is(verbline_nvme::Status::CONNECT_BUSY) || Instant::now() > deadline {
                break answer;
            }
        };
        assert!(answer.status.is_success(), "{answer:?}");
        let cc = Property { offset: property::CC, is_wide: false };
        assert!(self.ask(admin, &cc.set(0, property::CC_USUAL.into())).status.is_success());
        let queues = QueueCount { submission_less_one: 3, completion_less_one: 3 };
        let feature = Command::new(opcode::admin::SET_FEATURES, 0, Sgl::NONE);
        let feature = feature.with([feature::NUMBER_OF_QUEUES.into(), queues.to_dword(), 0, 0, 0, 0]);
        assert!(self.ask(admin, &feature).status.is_success());
        answer.result as u16
    }

    /// Sets a keep-alive time-out and then stays silent: the controller ends.
    #[track_caller]
    pub(crate) fn fall_silent(&mut self, admin: usize) {
        let feature = Command::new(opcode::admin::SET_FEATURES, 0, Sgl::NONE);
        let feature = feature.with([feature::KEEP_ALIVE.into(), 100, 0, 0, 0, 0]);
        assert!(self.ask(admin, &feature).status.is_success());
    }

    /// Like [`controller`](Self::controller), with the I/O queue 1. Returns the admin queue and
    /// that one.
    #[track_caller]
    pub(crate) fn queues(&mut self) -> (usize, usize) {
        let (admin, cntlid) = self.controller();
        (admin, self.io_queue(cntlid, 1))
    }

    /// Connects an I/O queue of a controller.
    #[track_caller]
    pub(crate) fn io_queue(&mut self, cntlid: u16, qid: u16) -> usize {
        let queue = self.dial_queue(qid);
        self.join(queue, cntlid, qid);
        queue
    }

    /// Like [`io_queue`](Self::io_queue), but deaf to all responses after that of its Connect.
    #[track_caller]
    pub(crate) fn deaf_queue(&mut self, cntlid: u16, qid: u16) -> usize {
        let queue = self.dial_deaf(qid, 1);
        self.join(queue, cntlid, qid);
        queue
    }

    #[track_caller]
    pub(crate) fn join(&mut self, queue: usize, cntlid: u16, qid: u16) {
        let data = self.data(cntlid, SUBSYSTEM);
        let answer = self.connect(queue, Connect { qid, ..CONNECT }, &data);
        assert!(answer.status.is_success(), "{answer:?}");
    }

    pub(crate) fn cid(&mut self) -> u16 {
        self.next_cid = (self.next_cid + 1) & 0x7FFF;
        self.next_cid
    }

    /// Sends a command, under an identifier of its own, and waits for its response.
    #[track_caller]
    pub(crate) fn ask(&mut self, queue: usize, command: &Command) -> Response {
        self.ask_with(queue, command, &[])
    }

    /// Like [`ask`](Self::ask), with data behind the command.
    #[track_caller]
    pub(crate) fn ask_with(&mut self, queue: usize, command: &Command, data: &[u8]) -> Response {
        let cid = self.cid();
        let command = Command { cid, ..*command };
        self.send(queue, &[&command.to_bytes()[..], data].concat());
        let answer = self.response(queue);
        assert_eq!(answer.cid, cid, "{answer:?}");
        answer
    }

    /// Sends any bytes.
    #[track_caller]
    pub(crate) fn send(&mut self, queue: usize, bytes: &[u8]) {
        let deadline = Instant::now() + PATIENCE;
        while self.queues[queue].qp.send_room() == 0 {
            assert!(Instant::now() < deadline, "there is room to send");
            self.poll();
        }
        let mut packet = self.cache.get().expect("a packet");
        assert!(packet.fill(bytes));
        assert!(self.queues[queue].qp.post_send_one(packet).is_ok());
    }

    /// Waits for the next response of a queue.
    #[track_caller]
    pub(crate) fn response(&mut self, queue: usize) -> Response {
        self.response_within(queue, PATIENCE).expect("a response comes")
    }

    /// A response of a queue, if one comes within that time.
    pub(crate) fn response_within(&mut self, queue: usize, within: Duration) -> Option<Response> {
        let deadline = Instant::now() + within;
        self.poll();
        while self.queues[queue].got.is_empty() && Instant::now() < deadline {
            self.poll();
        }
        let got = &mut self.queues[queue].got;
        (!got.is_empty()).then(|| Response::read(&got.remove(0)).expect("a response"))
    }

    /// Whether the target has disconnected a queue within that time.
    pub(crate) fn is_cut_off(&mut self, queue: usize, within: Duration) -> bool {
        !matches!(self.queues[queue].connection.wait_disconnected(within), Ok(false))
    }

    /// Waits until the target has disconnected a queue.
    #[track_caller]
    pub(crate) fn wait_cut_off(&mut self, queue: usize) {
        assert!(self.is_cut_off(queue, PATIENCE), "the target disconnects it");
    }

    /// Asserts that the target answers a queue: it reads the first block.
    #[track_caller]
    pub(crate) fn assert_served(&mut self, queue: usize) {
        let answer = self.ask(queue, &self.read(0, 1));
        assert!(answer.status.is_success(), "{answer:?}");
    }

    /// A read of blocks into the front of the host's memory.
    pub(crate) fn read(&self, slba: u64, blocks: u32) -> Command {
        self.of_blocks(opcode::io::READ, slba, blocks, self.keyed(0, blocks * 4096))
    }

    pub(crate) fn of_blocks(&self, opcode: u8, slba: u64, blocks: u32, sgl: Sgl) -> Command {
        let range = verbline_nvme::io::ReadWrite { slba, blocks };
        Command { nsid: 1, ..Command::new(opcode, 0, sgl).with(range.dwords()) }
    }

    /// The host's memory from `offset` on.
    pub(crate) fn keyed(&self, offset: u64, len: u32) -> Sgl {
        let remote = self.memory.remote(offset);
        Sgl::Keyed { addr: remote.addr, len, key: remote.rkey, invalidate: false }
    }

    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_into(offset, &mut bytes).expect("within the memory");
        bytes
    }

    /// Destroys every queue pair, without a word to the controller.
    pub(crate) fn vanish(&mut self) {
        self.queues.clear();
    }

    fn poll(&mut self) {
        self.cq.poll(&mut self.found);
        for completion in &self.found {
            let Some(queue) = self.queues.iter_mut().find(|queue| queue.tag == completion.tag()) else { continue };
            match completion.kind() {
                WrKind::Send => _ = queue.qp.send_done(completion, &mut self.freed),
                WrKind::Op => _ = queue.qp.op_done(completion, &mut self.freed),
                _ => {
                    let Ok(packet) = queue.qp.recv_done(completion) else { continue };
                    if completion.is_ok() {
                        queue.got.push(packet.data().to_vec());
                        if !queue.is_deaf {
                            let _ = queue.qp.post_recv_one(packet);
                        }
                    }
                }
            }
            self.freed.clear();
        }
    }
}
