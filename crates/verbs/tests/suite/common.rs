//! Two sides of a conversation on the software RNIC, for tests through the public API.

use std::time::{Duration, Instant};

use verbline_mem::{Batch, Packet, PageChoice, PageSize, PeerRegion, Pool, PoolCache, PoolSpec, Region, RegionSpec};
use verbline_verbs::{
    Access, Completion, CompletionChannel, CompletionQueue, Completions, Context, Device, Endpoint, Gid, InitSpec, Mtu,
    ProtectionDomain, Provider, QpSpec, QueuePair, RtrSpec, RtsSpec, Transport, WrKind, datagram::AhSpec, rdma::PeerMr,
};

/// Long enough for any event, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The software RNIC; with `VERBS_TEST_PROVIDER=kernel` the kernel's rxe0 and rxe1 instead, as
/// created by tests/guest/run.
pub fn provider() -> Provider {
    match std::env::var("VERBS_TEST_PROVIDER").as_deref() {
        Err(_) | Ok("soft") => Provider::Soft,
        Ok("kernel") => Provider::Kernel,
        Ok(other) => panic!("VERBS_TEST_PROVIDER={other}: soft or kernel"),
    }
}

/// Returns from a test without a meaning on kernel devices, and prints the reason.
macro_rules! only_soft {
    ($why:literal) => {
        if $crate::common::provider() != verbline_verbs::Provider::Soft {
            eprintln!("skipped: on kernel devices: {}", $why);
            return;
        }
    };
}
pub(crate) use only_soft;

/// Returns from a test without a meaning on the software RNIC, and prints the reason.
macro_rules! only_kernel {
    ($why:literal) => {
        if $crate::common::provider() != verbline_verbs::Provider::Kernel {
            eprintln!("skipped: on the software RNIC: {}", $why);
            return;
        }
    };
}
pub(crate) use only_kernel;

/// The provider's counterpart of this soft device.
pub fn device(name: &'static str) -> &'static str {
    match (provider(), name) {
        (Provider::Kernel, "soft0") => "rxe0",
        (Provider::Kernel, "soft1") => "rxe1",
        _ => name,
    }
}

/// Both kinds have the IPv4 address at index 1; the kernel's link-local one at 0 needs neighbours
/// resolved.
pub const GID_INDEX: u8 = 1;

pub fn init_spec() -> InitSpec {
    InitSpec { gid_index: GID_INDEX, ..InitSpec::default() }
}

pub fn to_gid(gid: Gid) -> AhSpec {
    AhSpec::to_gid(gid).from_port(1, GID_INDEX)
}

pub fn open(name: &'static str) -> Context {
    Device::find(provider(), device(name)).unwrap().open().unwrap()
}

pub fn region(name: &str, len_bytes: usize) -> Region {
    let pages = PageChoice::Exactly(PageSize::Small4K);
    Region::map(&RegionSpec { name: name.into(), len_bytes, pages, lock: false }).unwrap()
}

pub fn pool(name: &str, packets: u32, data_bytes: u32, headroom_bytes: u32) -> Pool {
    let spec = PoolSpec { name: name.into(), packets, data_bytes, headroom_bytes };
    Pool::new(region(name, Pool::required_bytes(&spec)), spec).unwrap()
}

/// The parameters of a side.
#[derive(Clone, Copy)]
pub struct Options {
    pub transport: Transport,
    pub packets: u32,
    pub data_bytes: u32,
    pub headroom_bytes: u32,
    pub tx_depth_wr: u32,
    pub rx_depth_wr: u32,
    pub inline_bytes: u32,
    pub signal_every_wr: u32,
    pub cq_depth_wc: u32,
    pub rts: RtsSpec,
    pub access: Access,
    pub destroy_timeout: Duration,
}

impl Options {
    pub fn new(transport: Transport) -> Options {
        Options {
            transport,
            packets: 256,
            data_bytes: 2048,
            headroom_bytes: 64,
            tx_depth_wr: 16,
            rx_depth_wr: 16,
            inline_bytes: 64,
            signal_every_wr: 4,
            cq_depth_wc: 64,
            rts: RtsSpec::default(),
            access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::LOCAL_WRITE,
            destroy_timeout: Duration::from_secs(1),
        }
    }
}

/// One side: a context with a pool, a CQ and a QP on it.
pub struct Side {
    pub qp: QueuePair,
    pub cq: CompletionQueue,
    pub channel: Option<CompletionChannel>,
    pub cache: PoolCache,
    pub pool: Pool,
    pub pd: ProtectionDomain,
    pub context: Context,
    pub completions: Completions,
    pub freed: Batch,
}

impl Side {
    /// Creates a side with its QP in INIT.
    pub fn new(device: &'static str, options: &Options, tag: u16) -> Side {
        Side::build(open(device), options, tag, false)
    }

    pub fn build(context: Context, options: &Options, tag: u16, with_channel: bool) -> Side {
        let pd = context.alloc_pd().unwrap();
        let pool = pool("test", options.packets, options.data_bytes, options.headroom_bytes);
        pd.register_pool(&pool).unwrap();
        let channel = with_channel.then(|| context.create_comp_channel().unwrap());
        let cq = context.create_cq(options.cq_depth_wc, channel.as_ref()).unwrap();
        let mut qp = pd.create_qp(&spec(options, &cq, tag)).unwrap();
        qp.to_init(&InitSpec { access: options.access, ..init_spec() }).unwrap();
        Side {
            qp,
            cq,
            channel,
            cache: pool.cache(32),
            pool,
            pd,
            context,
            completions: Completions::with_capacity(8),
            freed: Batch::with_capacity(64),
        }
    }

    pub fn packet(&self, bytes: &[u8]) -> Packet {
        let mut packet = self.cache.get().expect("a packet is free");
        assert!(packet.fill(bytes), "{} bytes fit", bytes.len());
        packet
    }

    pub fn batch<'a>(&self, messages: impl IntoIterator<Item = &'a [u8]>) -> Batch {
        let mut batch = Batch::with_capacity(64);
        for message in messages {
            batch.push(self.packet(message)).unwrap();
        }
        batch
    }

    pub fn post_recvs(&mut self, count: usize) -> usize {
        let mut batch = Batch::with_capacity(count);
        assert_eq!(self.cache.get_bulk(&mut batch, count), count);
        self.qp.post_recv(&mut batch).posted
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let mut batch = self.batch([bytes]);
        let outcome = self.qp.post_send(&mut batch);
        assert_eq!((outcome.posted, outcome.stop), (1, None));
    }

    /// Polls once and passes every completion to `each`.
    pub fn poll(&mut self, mut each: impl FnMut(&mut QueuePair, &mut Batch, &Completion)) -> usize {
        let found = self.cq.poll(&mut self.completions);
        for completion in &self.completions {
            each(&mut self.qp, &mut self.freed, completion);
        }
        self.freed.clear();
        found
    }

    /// Polls until it has `count` received packets; sends that complete meanwhile must have
    /// succeeded.
    pub fn receive(&mut self, count: usize) -> Vec<Packet> {
        let mut packets = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while packets.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} messages came", packets.len());
            self.poll(|qp, freed, completion| {
                assert!(completion.is_ok(), "{completion:?}");
                match completion.kind() {
                    WrKind::Recv => packets.push(qp.recv_done(completion).unwrap()),
                    WrKind::Send => assert!(qp.send_done(completion, freed).unwrap() > 0),
                    kind => panic!("nobody posted {kind:?}"),
                }
            });
        }
        packets
    }

    /// Polls until a completion of this kind comes, and returns the result of `take`. Others are
    /// handed back to the QP.
    pub fn wait_for<T>(
        &mut self,
        kind: WrKind,
        mut take: impl FnMut(&mut QueuePair, &mut Batch, &Completion) -> T,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut found = None;
        while found.is_none() {
            assert!(Instant::now() < deadline, "a {kind:?} completion comes");
            self.poll(|qp, freed, completion| match completion.kind() {
                this if this == kind => found = Some(take(qp, freed, completion)),
                WrKind::Recv => drop(qp.recv_done(completion)),
                WrKind::Send => assert!(qp.send_done(completion, freed).is_ok()),
                _ => drop(qp.op_done(completion, freed)),
            });
        }
        found.unwrap()
    }

    /// Polls until no more completions come, and drops them.
    pub fn drain(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.qp.is_drained() {
            assert!(Instant::now() < deadline, "the QP drains: {:?}", self.qp);
            self.poll(hand_back);
        }
    }

    pub fn peer_region(&self, len_bytes: usize, access: Access) -> PeerMr {
        self.pd.register_peer_region(PeerRegion::new(region("peer", len_bytes)), access).unwrap()
    }

    /// Checks that every packet is free again, once the cache has returned its own.
    pub fn assert_all_free(&self) {
        self.cache.flush();
        let account = self.pool.account();
        assert_eq!((account.free, account.cached, account.held), (self.pool.packets(), 0, 0), "{account:?}");
    }
}

/// Gives a completion back to the QP and drops what it frees.
pub fn hand_back(qp: &mut QueuePair, freed: &mut Batch, completion: &Completion) {
    match completion.kind() {
        WrKind::Recv => drop(qp.recv_done(completion).unwrap()),
        WrKind::Send => assert!(qp.send_done(completion, freed).unwrap() > 0),
        WrKind::Op => drop(qp.op_done(completion, freed).unwrap()),
        kind => panic!("nobody posted {kind:?}"),
    }
}

pub fn spec<'a>(options: &Options, cq: &'a CompletionQueue, tag: u16) -> QpSpec<'a> {
    QpSpec {
        tx_depth_wr: options.tx_depth_wr,
        rx_depth_wr: options.rx_depth_wr,
        max_inline_bytes: options.inline_bytes,
        signal_every_wr: options.signal_every_wr,
        destroy_timeout: options.destroy_timeout,
        tag,
        ..QpSpec::new(options.transport, cq)
    }
}

/// Two sides on two devices, able to send to each other.
pub fn pair(options: &Options) -> (Side, Side) {
    let (mut a, mut b) = (Side::new("soft0", options, 0xa), Side::new("soft1", options, 0xb));
    connect(&mut a, &mut b, options);
    (a, b)
}

pub fn connect(a: &mut Side, b: &mut Side, options: &Options) {
    let (to_a, to_b) = (a.qp.endpoint(), b.qp.endpoint());
    bring_up(a, &to_b, options);
    bring_up(b, &to_a, options);
}

pub fn bring_up(side: &mut Side, peer: &Endpoint, options: &Options) {
    if options.transport == Transport::Ud {
        side.qp.to_rtr(&RtrSpec::datagram()).unwrap();
        let ah = side.pd.create_ah(&to_gid(peer.gid)).unwrap();
        side.qp.set_destination(&ah, peer.qpn, peer.qkey).unwrap();
    } else {
        side.qp.to_rtr(&RtrSpec::connected(*peer).mtu(Mtu::B1024)).unwrap();
    }
    side.qp.to_rts(&options.rts).unwrap();
}

/// Bytes that tell messages apart: the number, then a pattern made from it.
pub fn message(number: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at as u32).wrapping_mul(31).wrapping_add(number) as u8).collect();
    for (byte, with) in bytes.iter_mut().zip(number.to_le_bytes()) {
        *byte = with;
    }
    bytes
}

/// The content of memory.
pub fn bytes(mr: &PeerMr, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    mr.read_into(offset, &mut bytes).unwrap();
    bytes
}

/// Checks that written bytes are in memory. They are there once the send has completed; over UC
/// some time later, since the completion only means that the message has left.
#[track_caller]
pub fn assert_arrived(transport: Transport, mr: &PeerMr, offset: usize, expected: &[u8]) {
    let deadline = Instant::now() + PATIENCE;
    while transport == Transport::Uc && bytes(mr, offset, expected.len()) != expected && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(bytes(mr, offset, expected.len()), expected);
}
