//! Carries out work requests: the effect of each on its peer, and the outcome for both.

use super::{FETCHES, GRH_BYTES, Message, Name, Oracle, RecvDue, Sent, State};
use crate::harness::{SUCCESS, pattern};
use crate::model::steps::*;
use rdma_sys::ibv_wc_status as status;

enum Outcome {
    Done,
    Wait,
    Failed(u32),
}

impl Oracle {
    /// Called when the condition that this queue pair may have waited for holds.
    pub(super) fn start(&mut self, name: Name) {
        if self.ends[name.0].name == name {
            self.carry_out(name.0);
        }
    }

    /// Carries out an end's pending work requests, as far as possible.
    pub(super) fn carry_out(&mut self, end: usize) {
        loop {
            let this = &mut self.ends[end];
            if !(this.state == State::Rts || this.state == State::Sqd && this.draining) {
                return;
            }
            let Some(sent) = this.pending.pop_front() else { return };
            match self.attempt(end, &sent) {
                Outcome::Wait => return self.ends[end].pending.push_front(sent),
                Outcome::Done => {
                    self.ends[end].draining = false;
                    self.ends[end].complete(sent, SUCCESS);
                }
                Outcome::Failed(status) => {
                    let this = &mut self.ends[end];
                    this.complete(sent, status);
                    this.state = State::Sqe;
                    this.flush_sends();
                    if self.transport == Transport::Rc {
                        self.fail(end);
                    }
                }
            }
            std::mem::take(&mut self.broken).into_iter().for_each(|end| self.fail(end));
        }
    }

    fn attempt(&mut self, end: usize, sent: &Sent) -> Outcome {
        if sent.flaw == Flaw::LocalKey && sent.work.bytes() > 0 {
            return Outcome::Failed(status::IBV_WC_LOC_PROT_ERR);
        }
        if self.transport == Transport::Ud {
            let (target, generation) = sent.to;
            if self.ends[target].name == (target, generation) && self.ends[target].receives_messages() {
                let _ = self.deliver(end, target, sent);
            }
            return Outcome::Done;
        }
        if let Work::Bind | Work::LocalInv { .. } = sent.work {
            return self.turn_window(end, sent);
        }
        let reliable = self.transport == Transport::Rc;
        let Some(peer) = self.reachable(end) else { return if reliable { Outcome::Wait } else { Outcome::Done } };
        let outcome = match sent.work {
            Work::Send { .. } | Work::SendInv { .. } => self.deliver(end, peer, sent),
            _ => self.reach(end, peer, sent),
        };
        match outcome {
            Outcome::Done => (self.ends[end].sent_any, self.ends[peer].got_any) = (true, true),
            _ if !reliable => return Outcome::Done,
            _ => {}
        }
        outcome
    }

    /// Carries out work requests on windows of the end's own device.
    fn turn_window(&mut self, end: usize, sent: &Sent) -> Outcome {
        let name = self.ends[end].name;
        let (of, key) = sent.window;
        let window = &mut self.windows[of];
        let done = match sent.work {
            Work::Bind if window.key == key && window.bound.is_none() => {
                window.key.1 += 1;
                window.bound = Some(name);
                true
            }
            Work::LocalInv { .. } => window.invalidate(key, name),
            _ => false,
        };
        if done { Outcome::Done } else { Outcome::Failed(status::IBV_WC_MW_BIND_ERR) }
    }

    /// The peer, if it listens to this end: on RC both must be before their first message, or
    /// neither.
    fn reachable(&self, end: usize) -> Option<usize> {
        let this = &self.ends[end];
        let peer = this.peer?;
        let other = &self.ends[peer.0];
        let in_step = self.transport == Transport::Uc || this.sent_any == other.got_any;
        (other.name == peer && other.receives_messages() && other.peer == Some(this.name) && in_step).then_some(peer.0)
    }

    /// Delivers a message that consumes a receive and lands in it.
    fn deliver(&mut self, from: usize, to: usize, sent: &Sent) -> Outcome {
        let (len, imm, voided) = match sent.work {
            Work::Send { len, imm } => (len, imm, None),
            Work::SendInv { len, .. } => (len, false, Some(sent.window)),
            _ => unreachable!(),
        };
        let Some((number, room)) = self.take(from, to) else { return Outcome::Wait };
        let name = self.ends[to].name;
        if voided.is_some_and(|(of, key)| !self.windows[of].invalidate(key, name)) {
            self.ends[to].recv_due.push_back(RecvDue::new(number, status::IBV_WC_LOC_ACCESS_ERR, None));
            self.broken.push(to);
            return Outcome::Failed(status::IBV_WC_REM_ACCESS_ERR);
        }
        let header = if self.transport == Transport::Ud { GRH_BYTES } else { 0 };
        if room < header + len {
            self.ends[to].recv_due.push_back(RecvDue::new(number, status::IBV_WC_LOC_LEN_ERR, None));
            self.broken.push(to);
            return Outcome::Failed(status::IBV_WC_REM_INV_REQ_ERR);
        }
        let message = Message { from: self.ends[from].name, number: sent.number, len, imm, voided, written: false };
        self.ends[to].recv_due.push_back(RecvDue::new(number, SUCCESS, Some(message)));
        Outcome::Done
    }

    /// The first receive for a message to `to`; without one an RC sender waits in line at a shared
    /// queue.
    fn take(&mut self, from: usize, to: usize) -> Option<(u64, usize)> {
        let queue = self.queue_of(to);
        let name = self.ends[from].name;
        let receives = &mut self.receives[queue];
        let taken = receives.posted.pop_front();
        if taken.is_none() && self.shared && self.transport == Transport::Rc && !receives.waiting.contains(&name) {
            receives.waiting.push(name);
        }
        taken
    }

    /// Whether its key grants access to its target.
    fn is_granted(&self, to: usize, sent: &Sent) -> bool {
        match sent.work {
            _ if sent.flaw == Flaw::RemoteKey => false,
            Work::Write { at, len, through: true, .. } => {
                self.windows[to].is_open(sent.window.1, self.ends[to].name) && at + len <= WINDOW_BYTES
            }
            _ => true,
        }
    }

    /// Carries out an operation on the peer's memory.
    fn reach(&mut self, from: usize, to: usize, sent: &Sent) -> Outcome {
        if sent.work.bytes() > 0 && !self.is_granted(to, sent) {
            if self.transport == Transport::Rc {
                self.broken.push(to);
            }
            return Outcome::Failed(status::IBV_WC_REM_ACCESS_ERR);
        }
        let slot = (sent.number % FETCHES) as usize * READ_BYTES;
        match sent.work {
            Work::Send { .. } | Work::SendInv { .. } | Work::Bind | Work::LocalInv { .. } => unreachable!(),
            Work::Write { at, len, imm, .. } => {
                let receive = if imm { self.take(from, to) } else { None };
                if imm && receive.is_none() {
                    return Outcome::Wait;
                }
                self.exposed[to][at..at + len].copy_from_slice(&pattern(len, sent.number as u8));
                if let Some((number, _)) = receive {
                    let from = self.ends[from].name;
                    let message = Message { from, number: sent.number, len, imm, voided: None, written: true };
                    self.ends[to].recv_due.push_back(RecvDue::new(number, SUCCESS, Some(message)));
                }
            }
            Work::Read { at, len } => {
                let (to, from) = (&self.exposed[to], &mut self.fetched[from]);
                from[slot..slot + len].copy_from_slice(&to[at..at + len]);
            }
            Work::FetchAdd { at, .. } | Work::CmpSwap { at, .. } => {
                let word: [u8; 8] = self.exposed[to][at..at + 8].try_into().unwrap();
                let before = u64::from_ne_bytes(word);
                let after = match sent.work {
                    Work::FetchAdd { add, .. } => before.wrapping_add(add),
                    Work::CmpSwap { compare, swap, .. } if before == compare => swap,
                    _ => before,
                };
                self.exposed[to][at..at + 8].copy_from_slice(&after.to_ne_bytes());
                self.fetched[from][slot..slot + 8].copy_from_slice(&word);
            }
        }
        Outcome::Done
    }
}
