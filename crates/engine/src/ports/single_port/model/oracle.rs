//! The expected behaviour and counters of a port: an oracle that knows the offered packets, the
//! device's script and the polled completions.

use std::collections::VecDeque;

use verbline_verbs::{Status, Transport};

use super::{PORT, STAGE};
use crate::ports::single_port::{Health, STARVED_RETRY_NS};
use crate::rig::Depths;
use crate::rig::figures::{Device, FULL, Figures};
use crate::stats::clock::Tick;
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

/// The settings of the port.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) transport: Transport,
    pub(super) depths: Depths,
    pub(super) burst: usize,
    /// The packets of the pool, and of the lcore's cache of it.
    pub(super) packets: u32,
    pub(super) cache: usize,
    /// Whether a stage is behind it.
    pub(super) feeds: bool,
    /// The room in the stage's input, and in the port's.
    pub(super) room: [usize; 2],
    pub(super) timestamps: bool,
}

/// A completion that is not polled yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Received(u32),
    RecvFailed(Status),
    /// The oldest sends are done: this many.
    Sent(usize),
    SendFailed(Status, usize),
    Stale,
}

/// The expected state of the port.
#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) shape: Shape,
    pub(super) health: Health,
    pub(super) draining: bool,
    /// The lengths of the packets in the port's sink.
    pub(super) pending: VecDeque<u64>,
    /// The work posted and not known to be done; for sends, whether each is signaled.
    pub(super) recvs: usize,
    pub(super) sends: VecDeque<bool>,
    /// The place among them of the marker behind sends that were not signaled as the drain began.
    pub(super) marker: Option<usize>,
    /// The number of sends until one is signaled.
    pub(super) until_signal: u32,
    /// The end of the last batch was signaled, like all ends in a drain.
    pub(super) ended: bool,
    /// Packets on their way into the receive queue.
    pub(super) refill: usize,
    pub(super) retry_ns: Option<Tick>,
    /// How often its lcore was told that it is down.
    pub(super) fell: usize,
    pub(super) figures: Figures,
    pub(super) stage_full: u64,
    pub(super) taken: u64,
    /// The last turn moved something.
    pub(super) busy: bool,
}

impl Oracle {
    pub(super) fn new(shape: &Shape) -> Oracle {
        Oracle {
            shape: shape.clone(),
            health: Health::Up,
            draining: false,
            pending: VecDeque::new(),
            recvs: 0,
            sends: VecDeque::new(),
            marker: None,
            until_signal: shape.depths.signal_every_wr,
            ended: false,
            refill: 0,
            retry_ns: None,
            fell: 0,
            figures: Figures::default(),
            stage_full: 0,
            taken: 0,
            busy: false,
        }
    }

    pub(super) fn offer(&mut self, len: usize) {
        match self.pending.len() < self.shape.room[PORT] {
            true => self.pending.push_back(len as u64),
            false => self.figures.drop_some(DropReason::TxFull, 1),
        }
    }

    /// Begins to drain with this device. Returns the posts: a marker, if there is one.
    pub(super) fn drain(&mut self, device: &mut Device) -> Vec<(bool, Vec<bool>)> {
        self.draining = true;
        let is_rc = self.shape.transport == Transport::Rc;
        let is_full = self.sends.len() >= self.shape.depths.tx_wr as usize;
        if !is_rc || self.ended || self.sends.is_empty() || is_full {
            return Vec::new();
        }
        self.ended = true;
        if device.take(1) == 0 {
            return vec![(true, Vec::new())];
        }
        self.marker = Some(self.sends.len());
        self.sends.push_back(true);
        self.until_signal = self.shape.depths.signal_every_wr;
        vec![(true, vec![true])]
    }

    /// The oldest sends are done. Returns whether the last of them is the marker.
    fn cover(&mut self, covered: usize) -> bool {
        self.sends.drain(..covered);
        let is_marker = self.marker == Some(covered - 1);
        self.marker = self.marker.and_then(|place| place.checked_sub(covered));
        is_marker
    }

    pub(super) fn goes_down(&mut self, left: Health, reason: DownReason) {
        self.fell += usize::from(self.health == Health::Up);
        self.health = self.health.max(left);
        self.retry_ns = self.retry_ns.filter(|_| self.health < Health::Down);
        self.figures.down = 1;
        if DownReason::is_vague(self.figures.down_reason) {
            self.figures.down_reason = reason.number();
        }
    }

    pub(super) fn fails(&mut self, status: Status, left: Health) {
        self.figures.statuses[status.raw() as usize] += 1;
        self.goes_down(left, DownReason::of_status(status));
    }

    /// Handles polled completions. Returns the lengths of the messages that the stage gets.
    pub(super) fn hear(&mut self, words: impl Iterator<Item = Word>) -> Vec<u32> {
        let mut handed_on = Vec::new();
        for word in words {
            match word {
                Word::Received(len) => {
                    self.recvs -= 1;
                    self.figures.rx_packets += 1;
                    self.figures.rx_bytes += u64::from(len);
                    match self.shape.feeds {
                        false => self.figures.drop_some(DropReason::Planned, 1),
                        true if handed_on.len() == self.shape.room[STAGE] => self.stage_full += 1,
                        true => handed_on.push(len),
                    }
                }
                Word::RecvFailed(status) => {
                    self.recvs -= 1;
                    self.figures.drop_some(DropReason::RecvError, usize::from(status != Status::WR_FLUSH_ERR));
                    self.fails(status, Health::Down);
                }
                Word::Sent(covered) => _ = self.cover(covered),
                Word::SendFailed(status, covered) => {
                    if self.cover(covered) {
                        if self.health == Health::Up {
                            self.fails(status, Health::Down);
                        }
                        continue;
                    }
                    self.figures.drop_some(DropReason::SendError, 1);
                    // For UC and UD only the send queue fails (InfiniBand Architecture
                    // Specification, 10.3.1).
                    let left = if self.shape.transport == Transport::Rc { Health::Down } else { Health::SendsDown };
                    self.fails(status, left);
                }
                Word::Stale => self.figures.stale += 1,
            }
        }
        handed_on
    }

    /// Does the port's work with this device, with `free` packets in the pool. Returns the posts.
    pub(super) fn work(&mut self, device: &mut Device, free: usize, now_ns: Tick) -> Vec<(bool, Vec<bool>)> {
        let waited = self.pending.len() + self.sends.len();
        let waits = self.pending.len();
        let mut posts = self.flush(device);
        self.busy = self.pending.len() < waits;
        let free = free + waited - self.pending.len() - self.sends.len();
        let worth = self.shape.burst.min(self.depth()).min(self.depth().div_ceil(4)).max(1);
        let due = self.retry_ns.map_or(self.missing() >= worth, |retry_ns| retry_ns <= now_ns);
        if due && self.health < Health::Down {
            let posted = self.figures.rx_posted;
            self.fill(device, free, now_ns, &mut posts);
            self.busy |= self.figures.rx_posted > posted;
        }
        self.figures.tx_outstanding = self.sends.len() as u64;
        self.figures.tx_pending = self.pending.len() as u64;
        posts
    }

    pub(super) fn flush(&mut self, device: &mut Device) -> Vec<(bool, Vec<bool>)> {
        let offered = self.pending.len();
        let fits = offered.min(self.shape.depths.tx_wr as usize - self.sends.len());
        if self.health != Health::Up {
            self.figures.drop_some(DropReason::PortDown, offered);
            self.pending.clear();
            return Vec::new();
        }
        if fits == 0 {
            return Vec::new();
        }
        let taken = device.take(fits);
        let mut signals = Vec::new();
        for len in self.pending.drain(..taken) {
            self.figures.tx_bytes += len;
            self.until_signal -= 1;
            let ends = self.draining && signals.len() + 1 == offered;
            signals.push(ends || self.until_signal == 0);
            if signals.last() == Some(&true) {
                self.until_signal = self.shape.depths.signal_every_wr;
            }
        }
        self.figures.tx_packets += taken as u64;
        self.figures.tx_posts += u64::from(taken > 0);
        if taken > 0 {
            self.ended = self.draining && taken == offered;
        }
        self.sends.extend(&signals);
        if taken < fits && device.errno != FULL {
            self.pending.pop_front();
            self.figures.drop_some(DropReason::SendError, 1);
        }
        vec![(true, signals)]
    }

    pub(super) fn depth(&self) -> usize {
        self.shape.depths.rx_wr as usize
    }

    pub(super) fn missing(&self) -> usize {
        self.depth() - self.recvs
    }

    /// Fills the receive queue, a burst at a time, for as long as there are packets and the device
    /// takes all.
    pub(super) fn fill(
        &mut self,
        device: &mut Device,
        mut free: usize,
        now_ns: Tick,
        posts: &mut Vec<(bool, Vec<bool>)>,
    ) {
        self.retry_ns = None;
        let mut refused = false;
        while self.missing() > 0 {
            let wanted = self.missing().min(self.shape.burst);
            let got = (wanted - self.refill).min(free);
            (free, self.refill, self.taken) = (free - got, self.refill + got, self.taken + got as u64);
            let (starved, offered) = (self.refill < wanted, self.refill);
            let posted = device.take(offered);
            if offered > 0 {
                posts.push((false, vec![true; posted]));
            }
            (self.refill, self.recvs) = (self.refill - posted, self.recvs + posted);
            self.figures.rx_posted += posted as u64;
            if starved {
                self.figures.rx_starved += 1;
                self.retry_ns = Some(now_ns + STARVED_RETRY_NS);
                break;
            }
            if posted < offered {
                refused = device.errno != FULL;
                break;
            }
        }
        self.figures.rx_outstanding = (self.recvs + self.refill) as u64;
        if refused {
            self.goes_down(Health::Down, DownReason::REFUSED);
        }
    }

    /// Whether the port has nothing to do in the next turn, unless something arrives or is sent.
    pub(super) fn is_settled(&self) -> bool {
        let worth = self.shape.burst.min(self.depth()).min(self.depth().div_ceil(4)).max(1);
        self.pending.is_empty() && self.retry_ns.is_none() && self.missing() < worth
    }
}
