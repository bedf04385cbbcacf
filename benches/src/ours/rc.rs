//! One side of an RC connection on the software RNIC, held like by a user of `verbline_verbs`.

use std::net::IpAddr;

use verbline::mem::{Batch, PageChoice, PeerRegion, Pool, PoolCache, Region, RegionSpec};
use verbline::verbs::{
    Access, Completion, CompletionQueue, Completions, Context, Device, InitSpec, Mtu, ProtectionDomain, Provider,
    QpSpec, QueuePair, RtrSpec, RtsSpec, SharedReceiveQueue, SrqSpec, Transport, WrKind, rdma::PeerMr,
};

use super::pool::pool;

/// The parameters of a side.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Queue pairs, all on one CQ.
    pub queue_pairs: u16,
    /// Length of a message in bytes.
    pub message_bytes: u32,
    /// Sends and receives posted at once, per queue pair.
    pub depth_wr: u32,
    /// The longest inline message.
    pub inline_bytes: u32,
    /// One in this many sends is signaled: the earlier ones are given back with it, and their
    /// packets are not reused sooner.
    pub signal_every_wr: u32,
    /// Receives taken before as many are posted again.
    pub repost: usize,
    /// Receives of one SRQ that all queue pairs share, instead of `depth_wr` for each; 0 for none.
    /// The CQ is then as deep as the SRQ plus `depth_wr` sends: the sender must poll before more
    /// sends than that are unpolled, over all queue pairs.
    pub shared_depth_wr: u32,
}

impl Spec {
    /// One queue pair for messages of this length, inline if they are short.
    pub fn new(message_bytes: u32) -> Spec {
        Spec {
            queue_pairs: 1,
            message_bytes,
            depth_wr: 512,
            inline_bytes: 128,
            signal_every_wr: 32,
            repost: 32,
            shared_depth_wr: 0,
        }
    }
}

/// A context with a pool, a CQ and queue pairs on it.
#[derive(Debug)]
pub struct Side {
    /// The queue pairs; a completion's tag is the index, unless it is the SRQ's.
    pub qps: Vec<QueuePair>,
    /// The shared source of receives, if there is one.
    shared: Option<SharedReceiveQueue>,
    /// The CQ of all queue pairs.
    pub cq: CompletionQueue,
    /// The pool's cache, to bind on the thread that uses the side.
    pub cache: Option<PoolCache>,
    /// The completions of the last poll.
    pub completions: Completions,
    /// Packets given back by completed sends.
    pub freed: Batch,
    messages: Batch,
    fresh: Batch,
    /// Receives taken and not yet replaced, per queue pair.
    owed: Vec<usize>,
    repost: usize,
    pd: ProtectionDomain,
    context: Context,
}

pub(super) const READS_AT_ONCE: u8 = 16;

impl Side {
    fn new(device: &str, address: Option<IpAddr>, spec: &Spec) -> Side {
        let context = Device::find(Provider::Soft, device).expect("the software RNIC").open().expect("it opens");
        if let Some(address) = address {
            context.set_address(address).expect("an address of this host that no other process has");
        }
        let pd = context.alloc_pd().expect("a PD");
        let own_wr = spec.depth_wr * u32::from(spec.queue_pairs);
        // Receives posted at once, and sends unpolled at once.
        let [receives, sends] = match spec.shared_depth_wr {
            0 => [own_wr, own_wr],
            shared => [shared, spec.depth_wr],
        };
        let in_flight = receives + sends + 1024;
        let pool: Pool = pool(in_flight, spec.message_bytes.max(64));
        pd.register_pool(&pool).expect("the pool registers");
        let cq = context.create_cq(receives + sends, None).expect("a CQ");
        let shared = (spec.shared_depth_wr > 0).then(|| {
            let srq = SrqSpec::new(Transport::Rc, spec.shared_depth_wr);
            pd.create_srq(&srq).expect("an SRQ")
        });
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let qps = (0..spec.queue_pairs).map(|tag| {
            let qp = QpSpec {
                tx_depth_wr: spec.depth_wr,
                rx_depth_wr: spec.depth_wr,
                max_inline_bytes: spec.inline_bytes,
                signal_every_wr: spec.signal_every_wr.min(spec.depth_wr / 2),
                tag,
                srq: shared.as_ref(),
                ..QpSpec::new(Transport::Rc, &cq)
            };
            let mut qp = pd.create_qp(&qp).expect("a queue pair");
            qp.to_init(&InitSpec { access, ..InitSpec::default() }).expect("INIT");
            qp
        });
        let qps: Vec<_> = qps.collect();
        Side {
            // With an SRQ the queue pairs have no receives of their own.
            owed: vec![if shared.is_some() { 0 } else { spec.depth_wr as usize }; qps.len()],
            qps,
            shared,
            cq,
            cache: Some(pool.cache(512)),
            completions: Completions::with_capacity(32),
            freed: Batch::with_capacity(spec.depth_wr as usize),
            messages: Batch::with_capacity(32),
            fresh: Batch::with_capacity(spec.depth_wr.max(spec.shared_depth_wr) as usize),
            repost: spec.repost.min(spec.depth_wr as usize / 2),
            pd,
            context,
        }
    }

    /// A side whose device has an address of this host, for a peer in another process. Its queue
    /// pairs are not connected.
    pub(super) fn at(address: IpAddr, spec: &Spec) -> Side {
        Side::new("soft0", Some(address), spec)
    }

    /// A region of this side for the peer to read and write.
    pub fn peer_region(&self, len_bytes: usize) -> PeerMr {
        let spec = RegionSpec { name: "peer".to_owned(), len_bytes, pages: PageChoice::Auto, lock: false };
        let region = PeerRegion::new(Region::map(&spec).expect("memory for the region"));
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        self.pd.register_peer_region(region, access).expect("the region registers")
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        self.context.name()
    }

    /// Fills the receive queues.
    pub fn fill(&mut self, cache: &PoolCache) {
        for index in 0..self.qps.len() {
            self.post_owed(index, cache);
        }
    }

    /// Polls once and hands the messages to `each`, consecutive ones of a queue pair together;
    /// messages that `each` leaves go back to the pool. Posts receives again in bulk. Returns the
    /// counts of messages and of our completed work requests.
    #[inline]
    pub fn poll(&mut self, cache: &PoolCache, mut each: impl FnMut(&mut QueuePair, &mut Batch)) -> Done {
        let mut done = Done::default();
        self.cq.poll(&mut self.completions);
        let mut rest = self.completions.as_slice();
        while let Some(first) = rest.first() {
            let index = usize::from(first.tag());
            let qp = &mut self.qps[index];
            let count = match first.kind() {
                WrKind::Recv => {
                    let count = qp.recv_run(rest, &mut self.messages);
                    assert!(count > 0, "{first:?}");
                    each(qp, &mut self.messages);
                    cache.put_bulk(&mut self.messages);
                    done.messages += count;
                    let owed = &mut self.owed[index];
                    *owed += count;
                    if *owed >= self.repost {
                        let owed = std::mem::take(owed);
                        let got = cache.get_bulk_unreset(&mut self.fresh, owed);
                        let posted = qp.post_recv(&mut self.fresh).posted;
                        assert!(got == owed && posted == owed, "the pool covers the queues");
                    }
                    count
                }
                kind => {
                    done.sent += sent(qp, kind, first, &mut self.freed);
                    1
                }
            };
            rest = &rest[count..];
        }
        if !self.freed.is_empty() {
            cache.put_bulk(&mut self.freed);
        }
        done
    }

    /// Fills the shared receive queue with `count` packets.
    pub fn fill_shared(&mut self, cache: &PoolCache, count: usize) {
        let shared = self.shared.as_mut().expect("made with an SRQ");
        assert_eq!(cache.get_bulk_unreset(&mut self.fresh, count), count, "the pool covers the queue");
        assert_eq!(shared.post_recv(&mut self.fresh).posted, count);
    }

    /// Polls once for messages that took a shared receive, gives them back to the pool, and posts
    /// as many again as one list. Returns the number of messages.
    #[inline]
    pub fn poll_shared(&mut self, cache: &PoolCache) -> usize {
        let came = self.cq.poll(&mut self.completions);
        if came == 0 {
            return 0;
        }
        let shared = self.shared.as_mut().expect("made with an SRQ");
        let mut rest = self.completions.as_slice();
        while !rest.is_empty() {
            let count = shared.recv_run(rest, &mut self.messages);
            assert!(count > 0, "{:?}", rest[0]);
            cache.put_bulk(&mut self.messages);
            rest = &rest[count..];
        }
        self.fill_shared(cache, came);
        came
    }

    fn post_owed(&mut self, index: usize, cache: &PoolCache) {
        let owed = std::mem::take(&mut self.owed[index]);
        assert_eq!(cache.get_bulk_unreset(&mut self.fresh, owed), owed, "the pool covers the queues");
        assert_eq!(self.qps[index].post_recv(&mut self.fresh).posted, owed);
    }
}

/// Takes a completion of our work requests, and returns how many are done.
fn sent(qp: &mut QueuePair, kind: WrKind, completion: &Completion, freed: &mut Batch) -> usize {
    assert!(completion.is_ok(), "{completion:?}");
    if kind == WrKind::Op {
        return qp.works_done(completion, freed, |_, _, _| ()).expect("a work request of ours").count;
    }
    qp.send_done(completion, freed).expect("a send of ours")
}

/// The counts of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Messages received.
    pub messages: usize,
    /// Our completed sends and one-sided work requests.
    pub sent: usize,
}

/// Two connected sides, on two devices.
pub fn pair(spec: &Spec) -> [Side; 2] {
    let mut sides = [Side::new("soft0", None, spec), Side::new("soft1", None, spec)];
    for index in 0..usize::from(spec.queue_pairs) {
        let [a, b] = &mut sides;
        let (to_a, to_b) = (a.qps[index].endpoint(), b.qps[index].endpoint());
        for (side, peer) in [(a, to_b), (b, to_a)] {
            let rtr = RtrSpec { max_dest_rd_atomic: READS_AT_ONCE, ..RtrSpec::connected(peer).mtu(Mtu::B4096) };
            side.qps[index].to_rtr(&rtr).expect("RTR");
            let rts = RtsSpec { max_rd_atomic: READS_AT_ONCE, ..RtsSpec::default() };
            side.qps[index].to_rts(&rts).expect("RTS");
        }
    }
    sides
}
