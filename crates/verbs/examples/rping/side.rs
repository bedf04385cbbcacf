//! One end of the conversation: its QP, its memory, and its events.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbline_mem::{Batch, PageChoice, PageSize, PeerRegion, Pool, PoolCache, PoolSpec, Region, RegionSpec};
use verbline_verbs::connection::Connection;
use verbline_verbs::{
    Access, CompletionChannel, CompletionQueue, Completions, Device, Notify, ProtectionDomain, Provider, QpSpec,
    QueuePair, Transport, WrKind,
    rdma::{PeerMr, Remote},
};

use crate::Outcome;

/// A message that announces memory for the peer to READ or WRITE. Address, R_Key and length, each
/// big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advert {
    pub(crate) at: Remote,
    pub(crate) len_bytes: u32,
}

/// The length of an [`Advert`] on the wire.
const ADVERT_BYTES: usize = 16;
const RECEIVES: usize = 2;

/// An event at a side.
pub(crate) enum Event {
    /// The peer's announcement.
    Advert(Advert),
    /// The posted READ or WRITE is done.
    Moved,
    /// The peer disconnected.
    Gone,
}

pub(crate) struct Side {
    pub(crate) qp: QueuePair,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    channel: CompletionChannel,
    completions: Completions,
    packets: PoolCache,
    batch: Batch,
    events: VecDeque<Event>,
    gone: bool,
}

impl Side {
    /// Creates a side on the device of this name, with a QP in RESET.
    pub(crate) fn new(provider: Provider, device: &str) -> Outcome<Side> {
        let context = Device::find(provider, device)?.open()?;
        let pd = context.alloc_pd()?;
        let channel = context.create_comp_channel()?;
        let cq = context.create_cq(64, Some(&channel))?;
        let qp = pd.create_qp(&QpSpec {
            tx_depth_wr: 16,
            rx_depth_wr: RECEIVES as u32,
            max_inline_bytes: ADVERT_BYTES as u32,
            signal_every_wr: 8,
            ..QpSpec::new(Transport::Rc, &cq)
        })?;
        let spec = PoolSpec { name: "adverts".into(), packets: 32, data_bytes: 64, headroom_bytes: 0 };
        let pool = Pool::new(region("adverts", Pool::required_bytes(&spec))?, spec)?;
        pd.register_pool(&pool)?;
        Ok(Side {
            qp,
            pd,
            cq,
            channel,
            completions: Completions::with_capacity(16),
            packets: pool.cache(8),
            batch: Batch::with_capacity(16),
            events: VecDeque::new(),
            gone: false,
        })
    }

    /// Registers memory for the peer, with this access.
    pub(crate) fn register(&self, name: &str, len_bytes: u32, access: Access) -> Outcome<PeerMr> {
        let memory = PeerRegion::new(region(name, len_bytes as usize)?);
        Ok(self.pd.register_peer_region(memory, access)?)
    }

    /// Fills the RQ. The QP is in INIT or further.
    pub(crate) fn post_receives(&mut self) -> Outcome<()> {
        self.packets.get_bulk(&mut self.batch, self.qp.recv_room().min(RECEIVES));
        match self.qp.post_recv(&mut self.batch).stop {
            None => Ok(()),
            Some(stop) => Err(stop.into()),
        }
    }

    pub(crate) fn send(&mut self, advert: Advert) -> Outcome<()> {
        let mut packet = self.packets.get().ok_or("no packet is free for a message")?;
        if !packet.fill(&advert.to_bytes()) {
            return Err("a packet is too short for a message".into());
        }
        self.batch.push(packet).map_err(|_| "the batch is full")?;
        match self.qp.post_send(&mut self.batch).stop {
            None => Ok(()),
            Some(stop) => Err(stop.into()),
        }
    }

    /// Sleeps until an event. The peer's last messages come before its disconnect.
    pub(crate) fn next(&mut self, connection: &mut Connection) -> Outcome<Event> {
        loop {
            self.take_completions()?;
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if self.gone {
                return Ok(Event::Gone);
            }
            let armed = self.cq.arm(Notify::Next)?;
            // Completions before the arming make no event.
            let nothing_came = self.take_completions()? == 0;
            if nothing_came {
                wait(&self.channel, connection)?;
            }
            self.channel.take_events(armed)?;
            self.gone = connection.wait_disconnected(Duration::ZERO)?;
        }
    }

    /// Turns completions into events. Returns their number.
    fn take_completions(&mut self) -> Outcome<usize> {
        let count = self.cq.poll(&mut self.completions);
        for completion in self.completions.iter().take(count) {
            if !completion.is_ok() {
                return Err(format!("{:?} failed: {}", completion.kind(), completion.status()).into());
            }
            match completion.kind() {
                WrKind::Recv => {
                    let packet = self.qp.recv_done(completion)?;
                    self.events.push_back(Event::Advert(Advert::from_bytes(packet.data())?));
                }
                WrKind::Send => {
                    self.qp.send_done(completion, &mut self.batch)?;
                }
                WrKind::Op | WrKind::SrqRecv => {
                    self.qp.op_done(completion, &mut self.batch)?;
                    self.events.push_back(Event::Moved);
                }
            }
            self.packets.put_bulk(&mut self.batch);
        }
        if count > 0 {
            self.post_receives()?;
        }
        Ok(count)
    }
}

/// Waits until the CQ or the connection has an event.
fn wait(channel: &CompletionChannel, connection: &Connection) -> Outcome<()> {
    let (channel, connection) = (channel.as_fd(), connection.as_fd());
    let mut fds = [channel, connection].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let patience = Timespec { tv_sec: crate::PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    match poll(&mut fds, Some(&patience)) {
        Ok(0) => Err(format!("the peer said nothing for {:?}", crate::PATIENCE).into()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn region(name: &str, len_bytes: usize) -> Outcome<Region> {
    let pages = PageChoice::Exactly(PageSize::Small4K);
    Ok(Region::map(&RegionSpec { name: name.into(), len_bytes, pages, lock: false })?)
}

impl Default for Advert {
    fn default() -> Advert {
        Advert { at: Remote { addr: 0, rkey: 0 }, len_bytes: 0 }
    }
}

impl Advert {
    fn to_bytes(self) -> [u8; ADVERT_BYTES] {
        let mut bytes = [0; ADVERT_BYTES];
        bytes[..8].copy_from_slice(&self.at.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.at.rkey.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len_bytes.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Outcome<Advert> {
        let number = |range: std::ops::Range<usize>| u64::from_be_bytes(padded(&bytes[range]));
        match bytes.len() {
            ADVERT_BYTES => {
                let at = Remote { addr: number(0..8), rkey: number(8..12) as u32 };
                Ok(Advert { at, len_bytes: number(12..16) as u32 })
            }
            len => Err(format!("a message of {len} bytes; adverts have {ADVERT_BYTES}").into()),
        }
    }
}

/// Pads with leading zeros to eight bytes.
fn padded(bytes: &[u8]) -> [u8; 8] {
    let mut padded = [0; 8];
    padded[8 - bytes.len()..].copy_from_slice(bytes);
    padded
}
