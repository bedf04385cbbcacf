//! One end: a queue pair, and small messages with a block's number and whether it is good.

use verbline_mem::{Batch, Packet, PageChoice, PeerRegion, Pool, PoolCache, PoolSpec, Region, RegionSpec};
use verbline_verbs::rdma::PeerMr;
use verbline_verbs::signature::QpSignature;
use verbline_verbs::{
    Access, CompletionQueue, Completions, Context, Device, InitSpec, ProtectionDomain, Provider, QpSpec, QueuePair,
    RtrSpec, RtsSpec, Transport, WrKind,
};

use crate::{Card, Outcome};

const DEPTH_WR: u32 = 128;

pub(crate) struct End {
    pub(crate) qp: QueuePair,
    cq: CompletionQueue,
    cache: PoolCache,
    completions: Completions,
    freed: Batch,
    gid_index: u8,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
}

impl End {
    /// Creates an end on a kernel device of that name, or on a software RNIC.
    pub(crate) fn new(card: &Card, soft: &'static str, signature: QpSignature) -> Outcome<End> {
        let device = match &card.device {
            Some(name) => Device::find(Provider::Kernel, name)?,
            None => Device::find(Provider::Soft, soft)?,
        };
        let context = device.open()?;
        let pd = context.alloc_pd()?;
        End::on(context, pd, signature, card.gid_index)
    }

    /// Creates another queue pair of the same protection domain.
    pub(crate) fn beside(other: &End, signature: QpSignature) -> Outcome<End> {
        End::on(other.context.clone(), other.pd.clone(), signature, other.gid_index)
    }

    fn on(context: Context, pd: ProtectionDomain, signature: QpSignature, gid_index: u8) -> Outcome<End> {
        let pool = PoolSpec { name: "messages".into(), packets: 256, data_bytes: 64, headroom_bytes: 0 };
        let pool = Pool::new(map("messages", Pool::required_bytes(&pool))?, pool)?;
        pd.register_pool(&pool)?;
        // Space for all completions, and for one fault of each key.
        let cq = context.create_cq(4 * DEPTH_WR, None)?;
        let spec = QpSpec { tx_depth_wr: DEPTH_WR, signature, ..QpSpec::new(Transport::Rc, &cq) };
        let mut qp = pd.create_qp(&spec)?;
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        qp.to_init(&InitSpec { access, gid_index, ..InitSpec::default() })?;
        let (completions, freed) = (Completions::with_capacity(32), Batch::with_capacity(DEPTH_WR as usize));
        Ok(End { qp, cq, cache: pool.cache(32), completions, freed, gid_index, pd, context })
    }

    pub(crate) fn connect_to_itself(&mut self) -> Outcome<()> {
        self.qp.to_rtr(&RtrSpec::connected(self.qp.endpoint()))?;
        Ok(self.qp.to_rts(&RtsSpec::default())?)
    }

    /// Memory that the other end may read and write.
    pub(crate) fn region(&self, len_bytes: usize) -> Outcome<PeerMr> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        Ok(self.pd.register_peer_region(PeerRegion::new(map("blocks", len_bytes)?), access)?)
    }

    pub(crate) fn message(&self, block: u16, good: bool) -> Outcome<Packet> {
        let mut packet = self.cache.get().ok_or("no packet is free")?;
        let [high, low] = block.to_be_bytes();
        if !packet.fill(&[high, low, good.into()]) {
            return Err("a packet has no room for a message".into());
        }
        Ok(packet)
    }

    pub(crate) fn post_receives(&mut self, count: usize) -> Outcome<()> {
        let mut batch = Batch::with_capacity(count);
        self.cache.get_bulk(&mut batch, count);
        match self.qp.post_recv(&mut batch).stop {
            None => Ok(()),
            Some(stop) => Err(stop.into()),
        }
    }

    /// Polls once. Returns the number of completed work requests; all must succeed.
    pub(crate) fn poll_sends(&mut self) -> Outcome<usize> {
        let found = self.cq.poll(&mut self.completions);
        for completion in &self.completions {
            if !completion.is_ok() {
                return Err(format!("a work request failed: {completion:?}").into());
            }
            match completion.kind() {
                WrKind::Op => drop(self.qp.op_done(completion, &mut self.freed)?),
                _ => drop(self.qp.send_done(completion, &mut self.freed)?),
            }
        }
        self.freed.clear();
        Ok(found)
    }

    /// Waits for `count` messages.
    pub(crate) fn receive(&mut self, count: usize) -> Outcome<Vec<(u16, bool)>> {
        let mut messages = Vec::new();
        while messages.len() < count {
            self.cq.poll(&mut self.completions);
            for completion in &self.completions {
                let packet = self.qp.recv_done(completion)?;
                let &[high, low, good] = packet.data() else { return Err("a message of another length".into()) };
                messages.push((u16::from_be_bytes([high, low]), good == 1));
            }
        }
        Ok(messages)
    }
}

pub(crate) fn connect(one: &mut End, other: &mut End) -> Outcome<()> {
    let ends = [one.qp.endpoint(), other.qp.endpoint()];
    one.qp.to_rtr(&RtrSpec::connected(ends[1]))?;
    other.qp.to_rtr(&RtrSpec::connected(ends[0]))?;
    one.qp.to_rts(&RtsSpec::default())?;
    Ok(other.qp.to_rts(&RtsSpec::default())?)
}

fn map(name: &str, len_bytes: usize) -> Outcome<Region> {
    Ok(Region::map(&RegionSpec { name: name.into(), len_bytes, pages: PageChoice::Auto, lock: false })?)
}
