//! What one thread at a time does for a wire: takes in what has come, lets time pass, sends, and
//! completes.
//!
//! What it guarantees: a turn is bounded, whatever comes and whatever is to be sent. It waits for
//! nobody, and nothing is allocated in it but by connection management.

use crate::data_path::arrival::{self, Arrival};
use crate::data_path::completion::{self, Header};
use crate::data_path::errors::Errors;
use crate::data_path::progress;
use crate::events::async_event::Kind;
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::Transport;
use crate::queues::timer;
use crate::wire::management::Management;
use crate::wire::memory::Keys;
use crate::wire::outbox::Outbox;
use crate::wire::socket::{Arrivals, Link};
use rdma_sys::{ibv_wc_flags, ibv_wc_status};
use std::collections::HashMap;
use std::sync::Arc;
use verbline_roce::transport::{self, Fault, Icrc, QueuePair};
use verbline_roce::wire::{Addresses, Qpn, Route, SendEnd};
use verbline_roce::{Completed, Completion, Engine, PostError, Received, SendRequest, Status};
use verbline_sync::ring::Overrun;

/// Datagrams that one turn sends at most.
const SENT_MAX: usize = 64;

/// See the [module](self).
pub(crate) struct Inner {
    link: Arc<Link>,
    engine: Engine,
    pub(super) management: Management,
    sends: HashMap<u32, Sends>,
    arrivals: Arrivals,
    outbox: Outbox,
    /// Turns that the owners of queue pairs took.
    pub(super) polls: u64,
    /// The last turn kept its answers back.
    has_kept_back: bool,
    /// The last turn did not send all.
    has_more: bool,
}

/// What the transport doesn't keep of a queue pair's sends: by position, in a ring.
struct Sends(Box<[(u64, u32)]>);

impl Inner {
    pub(super) fn new(link: &Arc<Link>) -> Inner {
        let own = link.own();
        Inner {
            link: link.clone(),
            engine: Engine::new(),
            management: Management::new(own),
            sends: HashMap::new(),
            arrivals: Arrivals::new(),
            outbox: Outbox::new(own.port()),
            polls: 0,
            has_kept_back: false,
            has_more: false,
        }
    }

    /// Takes over a queue pair; false if its number can't be.
    pub(super) fn add(&mut self, qp: &Qp, made: QueuePair) -> bool {
        let ring = vec![(0, 0); (qp.cap.max_send_wr as usize).max(1)];
        self.sends.insert(qp.qpn, Sends(ring.into()));
        self.engine.add(made).is_ok()
    }

    /// Gives a queue pair up, with all that is posted.
    pub(super) fn remove(&mut self, qpn: u32) {
        self.sends.remove(&qpn);
        self.engine.remove(Qpn::new(qpn));
    }

    /// Tells a queue pair something.
    pub(super) fn with<R>(&mut self, qpn: u32, tell: impl FnOnce(&mut QueuePair) -> R) -> Option<R> {
        self.engine.with(Qpn::new(qpn), tell)
    }

    /// A queue pair takes nothing any more. What was posted is flushed to where programs poll it.
    pub(super) fn fail(&mut self, qp: &Qp) {
        let sends = &self.sends;
        self.engine.with(Qpn::new(qp.qpn), |made| {
            // A reliable one that failed by itself has flushed all, and may still have to tell its
            // peer why.
            if qp.transport != Transport::Rc || !made.is_failed() {
                made.fail();
            }
            while let Some(completion) = made.poll() {
                // If it is lost to an overrun, that queue's event said so.
                let _ = give(qp, &completion, sends);
            }
        });
    }

    /// What a queue pair counted.
    pub(super) fn counters(&self, qpn: u32) -> Option<transport::Counters> {
        self.engine.queue_pair(Qpn::new(qpn)).map(|found| *found.counters())
    }

    /// Posts a work request, whose id is its position.
    pub(super) fn post(
        &mut self,
        qpn: u32,
        request: &SendRequest<'_>,
        wr_id: u64,
        opcode: u32,
    ) -> Result<(), PostError> {
        self.engine.post_send(Qpn::new(qpn), request).unwrap_or(Err(PostError::NotReady))?;
        if let Some(Sends(ring)) = self.sends.get_mut(&qpn) {
            let place = request.id as usize % ring.len();
            ring[place] = (wr_id, opcode);
        }
        Ok(())
    }

    /// The turn of a thread that polls.
    pub(super) fn poll(&mut self, pinned: Pinned<'_>, errors: &mut Errors) {
        self.polls += 1;
        let now_ns = timer::now_ns();
        self.take_in(now_ns, pinned);
        // A refusal that ends a connection leaves before the queue pair goes to ERR.
        let has_completed = self.complete(pinned, errors) && errors.is_empty();
        // A program that is given a message mostly answers it: what the transport has to say leaves
        // behind the answer, or at the next poll.
        self.has_kept_back = has_completed && !self.has_kept_back;
        if !self.has_kept_back {
            self.send_at(now_ns, pinned, errors);
        }
    }

    /// The turn of the wire's own thread.
    pub(super) fn turn(&mut self, pinned: Pinned<'_>, errors: &mut Errors) {
        let now_ns = timer::now_ns();
        self.take_in(now_ns, pinned);
        self.complete(pinned, errors);
        self.send_at(now_ns, pinned, errors);
    }

    /// When to take the next turn at the latest, by the clock of `timer`; at once, if there is more
    /// to send.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        if self.has_more || self.has_kept_back {
            return Some(0);
        }
        let both = [self.engine.deadline_ns(), self.management.deadline_ns()];
        both.into_iter().flatten().min()
    }

    /// What has come, and what time does.
    fn take_in(&mut self, now_ns: u64, pinned: Pinned<'_>) {
        let own = self.link.own().ip();
        let mut memory = Keys(pinned);
        let count = self.arrivals.receive(&self.link);
        for index in 0..count {
            let Some((from, datagram)) = self.arrivals.datagram(index) else {
                self.link.counters.truncated.add(1);
                continue;
            };
            let Some(addresses) = Addresses::new(from.ip(), own) else { continue };
            let route = Route { addresses, source_port: from.port(), traffic_class: 0 };
            // Of IPv4 a socket doesn't tell the identification, which the checksum covers.
            let icrc = if own.is_ipv6() { Icrc::IpId(0) } else { Icrc::Unknown };
            let arrived = transport::Arrival { route, icrc };
            match self.engine.receive(now_ns, arrived, datagram, &mut memory) {
                Received::Management(management) => self.management.receive(now_ns, from.ip(), &management),
                Received::Taken(qpn) => {
                    if let Some(qp) = fabric::lookup(pinned, qpn.number()) {
                        arrival::establish(qp);
                    }
                }
                Received::Discarded(_) => {}
            }
        }
        self.engine.advance(now_ns);
        self.management.advance(now_ns);
    }

    /// Sends what is to be sent, up to a bound.
    pub(super) fn send(&mut self, pinned: Pinned<'_>, errors: &mut Errors) {
        self.has_kept_back = false;
        self.send_at(timer::now_ns(), pinned, errors);
    }

    fn send_at(&mut self, now_ns: u64, pinned: Pinned<'_>, errors: &mut Errors) {
        self.say();
        let mut memory = Keys(pinned);
        self.has_more = true;
        for _ in 0..SENT_MAX {
            let Some((room, ip_id)) = self.outbox.room() else { break };
            let Some(sent) = self.engine.transmit(now_ns, &mut memory, room, ip_id) else {
                self.has_more = false;
                break;
            };
            self.outbox.add(&sent.route, sent.len);
        }
        self.outbox.flush(&self.link);
        if let Some(all) = self.engine.take_new_incidents() {
            self.link.incidents.publish(all);
        }
        // Unreliable sends complete by being sent, and some fail.
        self.complete(pinned, errors);
    }

    /// Sends the messages of connection management. Needs no memory.
    pub(super) fn say(&mut self) {
        while let Some((room, ip_id)) = self.outbox.room() {
            let Some((route, len)) = self.management.transmit(room, ip_id) else { break };
            self.outbox.add(&route, len);
        }
        self.outbox.flush(&self.link);
    }

    /// Puts what has completed where programs poll it; whether there was something.
    pub(super) fn complete(&mut self, pinned: Pinned<'_>, errors: &mut Errors) -> bool {
        let mut is_some = false;
        while let Some((qpn, completion)) = self.engine.poll() {
            is_some = true;
            let Some(qp) = fabric::lookup(pinned, qpn.number()) else { continue };
            if give(qp, &completion, &self.sends).is_err() {
                errors.fail_fatally(qp);
            }
        }
        while let Some((qpn, fault)) = self.engine.take_failed() {
            is_some = true;
            let Some(qp) = fabric::lookup(pinned, qpn.number()) else { continue };
            match fault {
                Some(Fault::Access) => errors.fail_with_event(qp, Kind::QpAccessErr),
                Some(Fault::Request) => errors.fail_with_event(qp, Kind::QpReqErr),
                // An unreliable queue pair goes on receiving when a send has failed.
                None => errors.fail_sends(qp),
            }
        }
        while let Some(qpn) = self.engine.take_drained() {
            let Some(qp) = fabric::lookup(pinned, qpn.number()) else { continue };
            progress::drained(qp, &mut qp.sq.pending.lock());
        }
        is_some
    }
}

/// Puts a completion where the program polls it.
fn give(qp: &Qp, completion: &Completion, sends: &HashMap<u32, Sends>) -> Result<(), Overrun> {
    match completion.completed {
        Completed::Receive(_) | Completed::ReceiveWrite { .. } => received(qp, completion),
        Completed::Send | Completed::Write | Completed::Read | Completed::Atomic => sent(qp, completion, sends),
    }
}

fn received(qp: &Qp, completion: &Completion) -> Result<(), Overrun> {
    let (opcode, imm, flags) = match completion.completed {
        Completed::ReceiveWrite { immediate } => {
            (completion::RECV_RDMA_WITH_IMM, immediate.to_be(), ibv_wc_flags::IBV_WC_WITH_IMM.0)
        }
        Completed::Receive(SendEnd::Immediate(immediate)) => {
            (completion::RECV, immediate.to_be(), ibv_wc_flags::IBV_WC_WITH_IMM.0)
        }
        Completed::Receive(SendEnd::Invalidate(rkey)) => (completion::RECV, rkey, ibv_wc_flags::IBV_WC_WITH_INV.0),
        _ => (completion::RECV, 0, 0),
    };
    let (bytes, solicited) = (u64::from(completion.bytes), completion.solicited);
    let arrival = Arrival { opcode, bytes, imm, flags, solicited };
    arrival::complete_receive(qp, completion.id, arrival, status(completion.status), [0, 0])
}

fn sent(qp: &Qp, completion: &Completion, sends: &HashMap<u32, Sends>) -> Result<(), Overrun> {
    let Some(Sends(ring)) = sends.get(&qp.qpn) else { return Ok(()) };
    let position = completion.id;
    let (wr_id, opcode) = ring[position as usize % ring.len()];
    let (status, byte_len) = (status(completion.status), completion.bytes);
    let header = Header { word: wr_id, qpn: qp.qpn, status, byte_len, opcode, ..Header::default() };
    let strong = status != completion::SUCCESS;
    completion::push(qp.send_cq(), qp.tag(), &header, [position + 1, 0], strong)
}

/// In verbs' words.
fn status(status: Status) -> u32 {
    match status {
        Status::Success => ibv_wc_status::IBV_WC_SUCCESS,
        Status::LocalLength => ibv_wc_status::IBV_WC_LOC_LEN_ERR,
        Status::LocalProtection => ibv_wc_status::IBV_WC_LOC_PROT_ERR,
        Status::LocalAccess => ibv_wc_status::IBV_WC_LOC_ACCESS_ERR,
        Status::RemoteInvalidRequest => ibv_wc_status::IBV_WC_REM_INV_REQ_ERR,
        Status::RemoteAccess => ibv_wc_status::IBV_WC_REM_ACCESS_ERR,
        Status::RemoteOperation => ibv_wc_status::IBV_WC_REM_OP_ERR,
        Status::RetryExceeded => ibv_wc_status::IBV_WC_RETRY_EXC_ERR,
        Status::RnrRetryExceeded => ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR,
        Status::Flushed => ibv_wc_status::IBV_WC_WR_FLUSH_ERR,
    }
}
