//! The packets that arrive, and the receives that are posted for them.

use verbline_mem::ConnectionId;
use verbline_verbs::Status;

use super::super::{STAGE, STARVED_RETRY_NS};
use super::{Handed, Oracle, Phase};
use crate::stats::drop_reason::DropReason;

impl Oracle {
    /// Returns the packet that a stage gets for a message polled now.
    fn handed(&self, at: Option<usize>, len: u32) -> Handed {
        let id = at.and_then(|at| self.peers[at].as_ref()).map(|peer| peer.id);
        (id, len as usize, if self.shape.timestamps { self.now_ns } else { 0 })
    }

    pub(super) fn received(&mut self, qpn: u32, len: u32) {
        let known = self.place_of(qpn);
        if !self.end_recv(known) {
            return;
        }
        self.figures.rx_packets += 1;
        self.figures.rx_bytes += u64::from(len);
        let at = known.or_else(|| self.look_again(qpn));
        let handed = self.handed(at, len);
        self.hand_on(at, handed);
        known.into_iter().for_each(|at| self.release_if_drained(at));
    }

    pub(super) fn recv_failed(&mut self, qpn: u32, status: Status) {
        let known = self.place_of(qpn);
        if !self.end_recv(known) {
            return;
        }
        let is_flushed = status == Status::WR_FLUSH_ERR;
        if !(is_flushed && known.is_some_and(|at| self.is_closing(at))) {
            self.figures.statuses[status.raw() as usize] += 1;
        }
        self.figures.drop_some(DropReason::RecvError, usize::from(!is_flushed));
        if let Some(at) = known.or_else(|| self.look_again(qpn)) {
            self.fail(at, status.name());
            self.release_if_drained(at);
        }
    }

    /// Completes a receive. Returns false if its queue is gone.
    fn end_recv(&mut self, known: Option<usize>) -> bool {
        let worth = self.worth();
        if self.shape.shares {
            (self.recvs, self.missing) = (self.recvs - 1, self.missing + 1);
            return true;
        }
        let Some(at) = known else {
            self.figures.stale += 1;
            return false;
        };
        let peer = self.peer(at);
        (peer.recvs, peer.missing) = (peer.recvs - 1, peer.missing + 1);
        if peer.phase == Phase::Open && peer.missing >= worth && !self.hungry.contains(&at) {
            self.hungry.push(at);
        }
        true
    }

    fn hand_on(&mut self, at: Option<usize>, handed: Handed) {
        let is_told = at.and_then(|at| self.peers[at].as_ref()).map(|peer| peer.is_told);
        match is_told {
            Some(true) => self.hand_to_stage(handed),
            Some(false) if self.shape.shares => {
                self.early.push(handed);
                self.missing -= 1;
            }
            _ => self.figures.drop_some(DropReason::NoConnection, 1),
        }
    }

    pub(super) fn hand_to_stage(&mut self, handed: Handed) {
        match self.shape.feeds {
            false => self.figures.drop_some(DropReason::Planned, 1),
            true if self.stage.len() == self.shape.room[STAGE] => self.stage_full += 1,
            true => self.stage.push(handed),
        }
    }

    pub(super) fn take_early(&mut self, id: ConnectionId, most: usize) -> Vec<Handed> {
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for handed in self.early.drain(..) {
            let to = if handed.0 == Some(id) && taken.len() < most { &mut taken } else { &mut left };
            to.push(handed);
        }
        self.early = left;
        self.missing += taken.len();
        taken
    }

    /// Returns the most receives that are posted at once.
    fn burst(&self) -> usize {
        self.shape.burst.min(self.shape.depths.rx_wr as usize)
    }

    pub(super) fn worth(&self) -> usize {
        self.burst().min((self.shape.depths.rx_wr as usize).div_ceil(4)).max(1)
    }

    pub(super) fn refill_if_due(&mut self, free: usize) -> bool {
        let is_due = match self.retry_ns {
            Some(retry_ns) if retry_ns > self.now_ns => return false,
            Some(_) => true,
            None => self.missing >= self.worth() || !self.hungry.is_empty(),
        };
        let before = self.figures.rx_posted;
        if is_due {
            self.fill(free);
            let starved = self.missing >= self.worth() || !self.hungry.is_empty();
            self.retry_ns = starved.then_some(self.now_ns + STARVED_RETRY_NS);
            self.figures.rx_starved += u64::from(starved);
        }
        self.figures.rx_posted > before
    }

    /// Fills the receive queues, as far as the pool has packets and the device takes all.
    pub(in super::super) fn fill(&mut self, mut free: usize) {
        while self.missing > 0 {
            let had_all = self.take_packets(self.missing, &mut free);
            let offered = self.refill;
            let posted = self.post_recvs(0, offered);
            (self.recvs, self.missing) = (self.recvs + posted, self.missing - posted);
            if !had_all || posted < offered {
                break;
            }
        }
        // A queue that the device refuses a receive for is asked again later, and the others are
        // asked all the same.
        let mut asked = 0;
        while asked < self.hungry.len() {
            // First come, first served.
            let at = self.hungry[0];
            let (missing, qpn) = (self.peer(at).missing, self.peer(at).qpn);
            let had_all = self.take_packets(missing, &mut free);
            let offered = self.refill.min(missing);
            let posted = self.post_recvs(qpn, offered);
            let peer = self.peer(at);
            (peer.recvs, peer.missing) = (peer.recvs + posted, peer.missing - posted);
            let is_full = peer.missing == 0;
            if !had_all {
                break;
            }
            if is_full {
                self.hungry.remove(0);
            } else if posted < offered {
                self.hungry.rotate_left(1);
                asked += 1;
            }
        }
        self.gauge_recvs();
    }

    /// Takes as many packets as lack to a burst, or to `missing`. Returns false if the pool did not
    /// have them.
    fn take_packets(&mut self, missing: usize, free: &mut usize) -> bool {
        let wanted = missing.min(self.burst()).saturating_sub(self.refill);
        let got = wanted.min(*free);
        (*free, self.refill, self.taken) = (*free - got, self.refill + got, self.taken + got as u64);
        got == wanted
    }

    fn post_recvs(&mut self, qpn: u32, offered: usize) -> usize {
        let posted = self.device.take(offered);
        if offered > 0 {
            self.calls.push((qpn, false, vec![(true, crate::rig::DATA_BYTES); posted]));
        }
        self.refill -= posted;
        self.figures.rx_posted += posted as u64;
        posted
    }

    pub(super) fn gauge_recvs(&mut self) {
        let own: usize = self.peers.iter().flatten().map(|peer| peer.recvs).sum();
        self.figures.rx_outstanding = (self.recvs + own + self.refill + self.early.len()) as u64;
    }
}
