//! Peers of a port that takes many: not engines, but queue pairs of the test. They are on the
//! second device, and the port is on the first.

use std::net::SocketAddr;
use std::time::Instant;

use verbline_mem::{Batch, Packet, PageChoice, PageSize, Pool, PoolCache, PoolSpec, Region, RegionSpec};
use verbline_verbs::connection::{ConnectOptions, Connecting, Connection, ConnectionError, resolve};
use verbline_verbs::{
    CompletionQueue, Completions, Context, Device, ProtectionDomain, QpSpec, QueuePair, Status, Transport, WrKind,
};

use super::{PATIENCE, device, provider};

/// A peer's posted receives, and its sends that may be under way.
pub(crate) const DEPTH: u32 = 8;
/// The most bytes of one of their messages.
pub(crate) const MESSAGE_BYTES: usize = 4096;

/// All peers: one completion queue, told apart by tag.
pub(crate) struct Peers {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    found: Completions,
    cache: PoolCache,
    address: SocketAddr,
    pub(crate) all: Vec<Peer>,
    /// Each queue pair has a tag of its own: a device may leave completions of a destroyed queue
    /// pair behind.
    next_tag: u16,
    /// The messages received, each with its peer.
    got: Vec<(usize, Vec<u8>)>,
    freed: Batch,
}

pub(crate) struct Peer {
    tag: u16,
    pub(crate) qp: QueuePair,
    pub(crate) connection: Option<Connection>,
    /// Whether it reposts its completed receives.
    pub(crate) reads: bool,
    /// Its completed sends, writes and reads; and the first failure.
    pub(crate) done: u64,
    pub(crate) failed: Option<Status>,
}

impl Peers {
    pub(crate) fn new(port: u16) -> Peers {
        let context: Context = Device::find(provider(), &device(1)).unwrap().open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(8192, None).unwrap());
        let spec =
            PoolSpec { name: "peers".into(), packets: 4096, data_bytes: MESSAGE_BYTES as u32, headroom_bytes: 0 };
        let region = RegionSpec {
            name: "peers".into(),
            len_bytes: Pool::required_bytes(&spec),
            pages: PageChoice::Exactly(PageSize::Small4K),
            lock: false,
        };
        let pool = Pool::new(Region::map(&region).unwrap(), spec).unwrap();
        pd.register_pool(&pool).unwrap();
        let address = format!("10.9.9.1:{port}").parse().unwrap();
        let (found, freed) = (Completions::with_capacity(64), Batch::with_capacity(64));
        Peers { pd, cq, found, cache: pool.cache(0), address, all: Vec::new(), next_tag: 0, got: Vec::new(), freed }
    }

    /// Asks for a connection, and does not wait for an answer.
    pub(crate) fn begin(&mut self, options: &ConnectOptions) -> Result<(QueuePair, Connecting), ConnectionError> {
        self.next_tag = self.next_tag.checked_add(1).expect("a test has fewer");
        let spec = QpSpec {
            tx_depth_wr: DEPTH,
            rx_depth_wr: DEPTH,
            signal_every_wr: 1,
            tag: self.next_tag,
            ..QpSpec::new(Transport::Rc, &self.cq)
        };
        let mut qp = self.pd.create_qp(&spec).unwrap();
        let from = SocketAddr::new("10.9.9.2".parse().unwrap(), 0);
        let route = resolve(provider(), self.address, Some(from), PATIENCE)?;
        let asked = route.connect(&mut qp, options)?;
        let mut batch = Batch::with_capacity(DEPTH as usize);
        assert_eq!(self.cache.get_bulk(&mut batch, DEPTH as usize), DEPTH as usize);
        assert_eq!(qp.post_recv(&mut batch).posted, DEPTH as usize);
        Ok((qp, asked))
    }

    /// Connects a queue pair with posted receives.
    pub(crate) fn ask(&mut self) -> Result<usize, ConnectionError> {
        self.ask_with(&ConnectOptions::default())
    }

    pub(crate) fn ask_with(&mut self, options: &ConnectOptions) -> Result<usize, ConnectionError> {
        let (mut qp, asked) = self.begin(options)?;
        let connection = Some(asked.finish(&mut qp, PATIENCE)?);
        self.all.push(Peer { tag: self.next_tag, qp, connection, reads: true, done: 0, failed: None });
        Ok(self.all.len() - 1)
    }

    pub(crate) fn packet(&self, bytes: &[u8]) -> Packet {
        let mut packet = self.cache.get().unwrap();
        assert!(packet.fill(bytes));
        packet
    }

    /// Sends as soon as there is room.
    pub(crate) fn send(&mut self, peer: usize, bytes: &[u8]) {
        self.until("there is room to send", |peers| peers.all[peer].qp.send_room() > 0);
        let packet = self.packet(bytes);
        assert!(self.all[peer].qp.post_send_one(packet).is_ok());
    }

    /// Polls until `is_so` holds.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Peers) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}");
            self.poll();
        }
    }

    /// Polls once.
    pub(crate) fn poll(&mut self) {
        self.cq.poll(&mut self.found);
        for completion in &self.found {
            let Some(at) = self.all.iter().position(|peer| peer.tag == completion.tag()) else { continue };
            let peer = &mut self.all[at];
            match completion.kind() {
                WrKind::Send => _ = peer.qp.send_done(completion, &mut self.freed).unwrap(),
                WrKind::Op => drop(peer.qp.op_done(completion, &mut self.freed).unwrap()),
                _ => {
                    let packet = peer.qp.recv_done(completion).unwrap();
                    if completion.is_ok() {
                        self.got.push((at, packet.data().to_vec()));
                        assert!(!peer.reads || peer.qp.post_recv_one(packet).is_ok());
                    }
                    continue;
                }
            }
            self.freed.clear();
            match completion.status() {
                Status::SUCCESS => peer.done += 1,
                status => _ = peer.failed.get_or_insert(status),
            }
        }
    }

    /// Polls until `count` messages have come; returns each with its peer.
    pub(crate) fn receive(&mut self, count: usize) -> Vec<(usize, Vec<u8>)> {
        self.until("this many messages come", |peers| peers.got.len() >= count);
        self.got.drain(..count).collect()
    }

    /// Forgets the received messages; returns their number.
    pub(crate) fn forget(&mut self) -> usize {
        self.got.drain(..).count()
    }

    /// Sends `bytes`, and checks that they come back, to the same peer.
    pub(crate) fn round_trip(&mut self, peer: usize, bytes: &[u8]) {
        self.send(peer, bytes);
        assert_eq!(self.receive(1), [(peer, bytes.to_vec())]);
    }

    pub(crate) fn leave(&mut self, peer: usize) {
        self.all[peer].connection = None;
    }
}
