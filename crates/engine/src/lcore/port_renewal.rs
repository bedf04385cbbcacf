//! How a port lets go of a queue pair whose connection is lost, and takes another: the lcore's side of [`crate::connection::handover`].
//!
//! Guarantees: what came before the loss is handed on, as the queue pair is only given back when all its completions were taken;
//! nothing is posted in between.

use std::mem;
use std::sync::Arc;

use verbline_verbs::QueuePair;

use crate::connection::handover::{Orders, Seat};
use crate::lcore::port::{Health, Port};
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::DropReason;

/// A port's side of [`crate::connection::handover`].
#[derive(Debug)]
pub(crate) struct Renewal {
    seat: Arc<Seat>,
    life: Life,
}

/// What came of attending to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attended {
    Nothing,
    /// Its queue pair is in the error state, and its completions are to come.
    LetsGo,
    /// It has another queue pair.
    Renewed,
}

/// Where the queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    InUse,
    /// In the error state, and its completions are to come. `marked`: behind its last send there is a marker of ours.
    LetGo {
        marked: bool,
    },
    /// Nothing of it is outstanding, or what is was waited for in vain.
    Empty {
        marked: bool,
    },
}

impl Renewal {
    pub(crate) fn new(seat: Arc<Seat>) -> Renewal {
        Renewal { seat, life: Life::InUse }
    }

    /// Whether the last completion of the send queue is that of a marker.
    pub(super) fn is_marked(&self) -> bool {
        matches!(self.life, Life::LetGo { marked: true } | Life::Empty { marked: true })
    }
}

impl Port {
    /// Does what its keeper wants, and what has to be done when it failed.
    #[cold]
    pub(crate) fn attend(&mut self) -> Attended {
        let Some(renewal) = &self.renewal else { return Attended::Nothing };
        let Orders { lost, fresh } = renewal.seat.orders();
        if let Some(fresh) = fresh {
            self.renew(fresh);
            return Attended::Renewed;
        }
        if renewal.life == Life::InUse && (lost || self.health == Health::Down) {
            self.let_go(lost);
            return Attended::LetsGo;
        }
        Attended::Nothing
    }

    /// Whether nothing of its queue pair is outstanding.
    pub(crate) fn is_drained(&self) -> bool {
        self.qp.is_drained()
    }

    /// Brings the queue pair to ERR: whatever is posted completes, behind what has completed already. `lost`: the keeper knows why.
    fn let_go(&mut self, lost: bool) {
        self.go_down(Health::Down, DownReason::LOST);
        let before = self.qp.sends_outstanding();
        if let Err(error) = self.qp.start_drain() {
            tracing::error!(port = %self.name, %error, "its queue pair cannot be let go");
        }
        let marked = self.qp.sends_outstanding() > before;
        if let Some(receiving) = &mut self.receiving {
            receiving.retry_ns = None;
        }
        let Some(renewal) = &mut self.renewal else { return };
        renewal.life = Life::LetGo { marked };
        if !lost {
            renewal.seat.went_down(self.stats.down_reason.value());
        }
    }

    /// Nothing of its queue pair is outstanding, or what is never comes back by itself.
    pub(crate) fn is_let_go(&mut self) {
        self.stats.tx_outstanding.set(self.qp.sends_outstanding() as u64);
        let refill = self.receiving.as_ref().map_or(0, |receiving| receiving.refill.len());
        self.stats.rx_outstanding.set((self.qp.recvs_outstanding() + refill) as u64);
        if let Some(renewal) = &mut self.renewal {
            renewal.life = Life::Empty { marked: renewal.is_marked() };
            renewal.seat.is_empty();
        }
    }

    /// Takes another queue pair, which is connected; its receives are posted in this turn.
    fn renew(&mut self, fresh: QueuePair) {
        let old = mem::replace(&mut self.qp, fresh);
        // What the device never answered for goes with the queue pair: its marker, if that is among it, is no packet of anybody's.
        let marker = usize::from(self.renewal.as_ref().is_some_and(Renewal::is_marked));
        let unanswered = old.sends_outstanding().saturating_sub(marker);
        self.stats.drops.add(DropReason::SendError, unanswered as u64);
        self.stats.qpn.set(self.qp.qpn().into());
        if let Some(receiving) = &mut self.receiving {
            receiving.missing = receiving.depth_wr;
        }
        if let Some(sending) = &mut self.sending {
            sending.end_signaled = false;
        }
        self.stats.tx_outstanding.set(0);
        self.stats.down.set(0);
        self.stats.down_reason.set(0);
        self.health = Health::Up;
        if let Some(renewal) = &mut self.renewal {
            renewal.life = Life::InUse;
            renewal.seat.retire(old);
        }
    }
}
