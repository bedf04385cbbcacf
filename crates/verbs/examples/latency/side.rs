//! One end: a QP, its outgoing messages, and the memory that the peer writes.

use std::time::Duration;

use verbline_mem::{Batch, BoundCache, Packet, PageChoice, PeerRegion, Pool, PoolSpec, Region, RegionSpec};
use verbline_verbs::connection::Connection;
use verbline_verbs::{
    Access, Completion, CompletionQueue, Completions, Device, ProtectionDomain, Provider, QpSpec, QueuePair,
    SendOptions, Transport, WrKind,
    rdma::{KeepSpec, KeptRegion, Operation, Part, PeerMr, PeerSlice, Remote, Work, WorkList},
};

use crate::Outcome;

/// As deep as ib_write_bw's queue.
const DEPTH_WR: u32 = 128;

/// Messages posted at once when measuring their rate.
pub(crate) const BURST: usize = 16;

/// Receives reposted at once.
const REPOST: usize = 16;

/// The inline size that ib_write_lat and ib_send_lat request, if the device grants it.
const INLINE_BYTES: u32 = 220;

/// Polls without success before checking that the connection is still up.
const LOOKS: u32 = 1 << 16;

/// The same limit for an end that waits only for the connection to end.
const SHORT_LOOKS: u32 = 1 << 10;
/// How long the peer's disconnect message may take, once the queue pair knows of it.
const SAID: Duration = Duration::from_secs(1);

pub(crate) struct Side {
    pub(crate) qp: QueuePair,
    cq: CompletionQueue,
    completions: Completions,
    cache: BoundCache,
    batch: Batch,
    freed: Batch,
    /// Receives to repost.
    owed: usize,
    /// Messages received.
    received: u32,
    size_bytes: u32,
    incoming: PeerMr,
    outgoing: PeerMr,
    /// All of `outgoing`, for the next write that goes inline: created while the last is in flight.
    next: Option<PeerSlice>,
    /// The list for writes that do not go inline.
    works: WorkList,
}

impl Side {
    /// Creates a side on the device of this name, with a QP in RESET.
    pub(crate) fn new(provider: Provider, device: &str, size_bytes: u32) -> Outcome<Side> {
        let context = Device::find(provider, device)?.open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(2 * DEPTH_WR, None)?;
        let mut qp = pd.create_qp(&QpSpec {
            tx_depth_wr: DEPTH_WR,
            rx_depth_wr: DEPTH_WR,
            max_inline_bytes: INLINE_BYTES,
            signal_every_wr: BURST as u32,
            ..QpSpec::new(Transport::Rc, &cq)
        })?;
        let spec =
            PoolSpec { name: "messages".into(), packets: 4 * DEPTH_WR, data_bytes: size_bytes, headroom_bytes: 0 };
        let pool = Pool::new(memory("messages", Pool::required_bytes(&spec))?, spec)?;
        pd.register_pool(&pool)?;
        let outgoing = shared(&pd, "outgoing", size_bytes, Access::LOCAL_WRITE)?;
        qp.keep_memory(&KeepSpec { regions: vec![Some(outgoing.clone())], ..KeepSpec::default() })?;
        Ok(Side {
            qp,
            cq,
            completions: Completions::with_capacity(16),
            cache: pool.cache(DEPTH_WR as usize).bind(),
            batch: Batch::with_capacity(DEPTH_WR as usize),
            freed: Batch::with_capacity(DEPTH_WR as usize),
            owed: DEPTH_WR as usize,
            received: 0,
            size_bytes,
            incoming: shared(&pd, "incoming", size_bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?,
            next: outgoing.slice(0, size_bytes),
            outgoing,
            works: WorkList::with_capacity(BURST),
        })
    }

    /// The memory that the peer writes.
    pub(crate) fn incoming(&self) -> Remote {
        self.incoming.remote(0)
    }

    /// Fills the receive queue. The QP is in INIT or further.
    pub(crate) fn post_receives(&mut self) -> Outcome<()> {
        self.cache.get_bulk_unreset(&mut self.batch, self.owed);
        self.owed = 0;
        self.qp.post_recv(&mut self.batch).stop.map_or(Ok(()), |stop| Err(stop.into()))
    }

    /// Reposts receives, once enough are owed.
    pub(crate) fn replenish(&mut self) -> Outcome<()> {
        if self.owed < REPOST { Ok(()) } else { self.post_receives() }
    }

    pub(crate) fn message(&self, size_bytes: u32) -> Outcome<Packet> {
        Ok(self.cache.get_of_len(size_bytes as usize).ok_or("no packet is free for a message")?)
    }

    pub(crate) fn send(&mut self, packet: Packet) -> Outcome<()> {
        self.qp.post_send_one(packet).map_err(|unposted| unposted.stop.into())
    }

    /// Polls until a message comes.
    pub(crate) fn next_message(&mut self, connection: &mut Connection) -> Outcome<Packet> {
        loop {
            for _ in 0..LOOKS {
                if let Some(packet) = self.poll()? {
                    return Ok(packet);
                }
            }
            still_there(connection)?;
        }
    }

    /// Posts a list of messages of full length.
    pub(crate) fn send_list(&mut self) -> Outcome<()> {
        self.cache.get_bulk_of_len(&mut self.batch, BURST, self.size_bytes as usize);
        match self.batch.len() {
            BURST => self.qp.post_send(&mut self.batch).stop.map_or(Ok(()), |stop| Err(stop.into())),
            short => Err(format!("{short} packets are free for a list").into()),
        }
    }

    /// Posts a list of writes of full length.
    pub(crate) fn write_list(&mut self, to: Remote) -> Outcome<()> {
        for _ in 0..BURST {
            self.works.push(self.whole(to)).map_err(|_| "the last list was not posted")?;
        }
        self.qp.rc()?.post_works(&mut self.works).stop.map_or(Ok(()), |stop| Err(stop.into()))
    }

    /// Polls until a list can be posted.
    pub(crate) fn wait_for_room(&mut self, connection: &mut Connection) -> Outcome<()> {
        self.poll_until(connection, |side| side.qp.send_room() >= BURST)
    }

    /// Polls until all posted work requests are done.
    pub(crate) fn wait_for_the_last(&mut self, connection: &mut Connection) -> Outcome<()> {
        self.poll_until(connection, |side| side.qp.sends_outstanding() == 0)
    }

    /// Polls until this many messages have come.
    pub(crate) fn take(&mut self, messages: u32, connection: &mut Connection) -> Outcome<()> {
        self.poll_until(connection, |side| side.received >= messages)
    }

    fn poll_until(&mut self, connection: &mut Connection, is_so: impl Fn(&Side) -> bool) -> Outcome<()> {
        loop {
            for _ in 0..LOOKS {
                if is_so(self) {
                    return Ok(());
                }
                self.poll()?;
                self.replenish()?;
            }
            still_there(connection)?;
        }
    }

    /// Polls until the peer leaves.
    pub(crate) fn poll_until_left(&mut self, connection: &mut Connection) -> Outcome<()> {
        while !connection.wait_disconnected(Duration::ZERO)? {
            let looks = (0..SHORT_LOOKS).try_for_each(|_| self.poll().map(drop));
            if let Err(error) = looks {
                // If the peer leaves, this end's receives may be flushed before the disconnect
                // message arrives.
                return if connection.wait_disconnected(SAID)? { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    fn whole(&self, to: Remote) -> Work {
        let all = Part { region: KeptRegion(0), span: (0..self.size_bytes).into() };
        Work::plain(Operation::write(all.into(), to))
    }

    /// Writes to the peer's memory, with `number` at its end.
    pub(crate) fn write(&mut self, number: u64, to: Remote) -> Outcome<()> {
        self.outgoing.store_u64(self.last(), number)?;
        if self.size_bytes <= self.qp.max_inline_bytes() {
            let slice = self.next.take().ok_or("the region is shorter than a message")?;
            self.qp.rc()?.write_inline(slice, to, SendOptions::default())?;
            self.next = self.outgoing.slice(0, self.size_bytes);
            return Ok(());
        }
        self.works.push(self.whole(to)).map_err(|_| "the last write was not posted")?;
        self.qp.rc()?.post_works(&mut self.works).stop.map_or(Ok(()), |stop| Err(stop.into()))
    }

    /// Watches this side's memory until `number` is there. Devices place a message's bytes in
    /// order, as perftest also expects. Completed writes are taken before each look: looks in
    /// immediate succession take the cache line away from its writer. No PAUSE: it leaves an
    /// emulated CPU's loop, and on a real CPU it delays.
    pub(crate) fn watch_for(&mut self, number: u64, connection: &mut Connection) -> Outcome<()> {
        let last = self.last();
        loop {
            for _ in 0..LOOKS {
                self.poll()?;
                if self.incoming.load_u64(last)? == number {
                    return Ok(());
                }
            }
            still_there(connection)?;
        }
    }

    fn last(&self) -> usize {
        self.size_bytes as usize - size_of::<u64>()
    }

    /// Polls once. Returns the last received message.
    #[inline]
    fn poll(&mut self) -> Outcome<Option<Packet>> {
        let mut message = None;
        self.cq.poll(&mut self.completions);
        for completion in &self.completions {
            match self.qp.recv_one(completion) {
                Some(packet) => {
                    self.owed += 1;
                    self.received += 1;
                    message = Some(packet);
                }
                None => done(&mut self.qp, completion, &mut self.freed)?,
            }
        }
        Ok(message)
    }
}

/// Takes the completion of one of this side's work requests; its packets go back to their pool.
fn done(qp: &mut QueuePair, completion: &Completion, freed: &mut Batch) -> Outcome<()> {
    if !completion.is_ok() {
        return Err(format!("{:?} failed: {}", completion.kind(), completion.status()).into());
    }
    match completion.kind() {
        WrKind::Op => drop(qp.op_done(completion, freed)?),
        _ => drop(qp.send_done(completion, freed)?),
    }
    freed.clear();
    Ok(())
}

fn still_there(connection: &mut Connection) -> Outcome<()> {
    match connection.wait_disconnected(Duration::ZERO)? {
        true => Err("the peer has left".into()),
        false => Ok(()),
    }
}

fn shared(pd: &ProtectionDomain, name: &str, size_bytes: u32, access: Access) -> Outcome<PeerMr> {
    Ok(pd.register_peer_region(PeerRegion::new(memory(name, size_bytes as usize)?), access)?)
}

fn memory(name: &str, len_bytes: usize) -> Outcome<Region> {
    Ok(Region::map(&RegionSpec { name: name.into(), len_bytes, pages: PageChoice::Auto, lock: false })?)
}
