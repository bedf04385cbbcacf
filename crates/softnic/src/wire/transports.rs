//! The queue pairs of a wire: their transports, the state beside these, and their completions.
//!
//! Guarantees: allocates only when a queue pair is added.

use crate::data_path::arrival::{self, Arrival};
use crate::data_path::completion::{self, Header};
use crate::data_path::errors::Errors;
use crate::data_path::progress;
use crate::events::async_event::Kind;
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::Transport;
use crate::wire::counters::{Published, QpIncidents};
use crate::wire::peers::Peers;
use rdma_sys::{ibv_wc_flags, ibv_wc_status};
use std::sync::Arc;
use verbline_roce::transport::{self, PeerFault, QueuePair};
use verbline_roce::wire::{Qpn, SendEnd};
use verbline_roce::{ByNumber, Completed, Completion, Engine, PostError, SendRequest, Status};
use verbline_sync::ring::Overrun;

/// See the [module](self).
pub(super) struct Transports {
    pub(super) engine: Engine,
    carried: ByNumber<Carried>,
}

/// The state of a queue pair that its transport doesn't keep.
struct Carried {
    /// The `wr_id` and opcode of its sends: by position, in a ring whose length is a power of two.
    sends: Box<[(u64, u32)]>,
    /// The UDP port of its packets, which may be of its [peer's socket](crate::wire::peers).
    port: u16,
    incidents: QpIncidents,
}

impl Transports {
    pub(super) fn new() -> Transports {
        Transports { engine: Engine::new(), carried: ByNumber::default() }
    }

    /// Takes over a queue pair with that UDP port; returns false if its number is reserved or
    /// taken.
    pub(super) fn add(&mut self, qp: &Qp, made: QueuePair, port: u16) -> bool {
        let ring = vec![(0, 0); (qp.cap.max_send_wr as usize).next_power_of_two()];
        let incidents = QpIncidents(Arc::new(Published::new()));
        let is_added = self.engine.add(made).is_ok();
        if is_added {
            self.carried.insert(qp.qpn, Carried { sends: ring.into(), port, incidents });
        }
        is_added
    }

    /// The UDP port of a queue pair's packets.
    pub(super) fn port(&self, qpn: u32) -> Option<u16> {
        self.carried.get(&qpn).map(|carried| carried.port)
    }

    /// Notes another UDP port of a queue pair's packets.
    pub(super) fn set_port(&mut self, qpn: u32, port: u16) {
        if let Some(carried) = self.carried.get_mut(&qpn) {
            carried.port = port;
        }
    }

    /// Removes a queue pair, with all its work requests.
    pub(super) fn remove(&mut self, qpn: u32) {
        let removed = self.engine.remove(Qpn::new(qpn));
        if let (Some(carried), Some(removed)) = (self.carried.remove(&qpn), removed) {
            carried.incidents.0.publish(removed.counters().incidents());
        }
    }

    /// Applies `tell` to a queue pair.
    pub(super) fn with<R>(&mut self, qpn: u32, tell: impl FnOnce(&mut QueuePair) -> R) -> Option<R> {
        self.engine.with(Qpn::new(qpn), tell)
    }

    /// Makes a queue pair take nothing any more. Its work requests are flushed to its completion
    /// queues.
    pub(super) fn fail(&mut self, qp: &Qp) {
        let carried = &self.carried;
        self.engine.with(Qpn::new(qp.qpn), |made| {
            // A reliable queue pair that failed by itself has flushed all, and may still have to
            // tell its peer the reason.
            if qp.transport != Transport::Rc || !made.is_failed() {
                made.fail();
            }
            while let Some(completion) = made.poll() {
                // If an overrun loses it, the queue's event has told of it.
                let _ = give(qp, &completion, carried);
            }
        });
    }

    /// A queue pair's counters.
    pub(super) fn counters(&self, qpn: u32) -> Option<transport::Counters> {
        self.engine.queue_pair(Qpn::new(qpn)).map(|found| *found.counters())
    }

    /// A queue pair's incidents, to be read later.
    pub(super) fn incidents(&self, qpn: u32) -> Option<QpIncidents> {
        self.carried.get(&qpn).map(|carried| carried.incidents.clone())
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
        if let Some(Carried { sends, .. }) = self.carried.get_mut(&qpn) {
            let place = request.id as usize & (sends.len() - 1);
            sends[place] = (wr_id, opcode);
        }
        Ok(())
    }

    /// Whether the peer has answered a packet of a queue pair.
    pub(super) fn was_answered(&self, qpn: u32) -> bool {
        self.engine.queue_pair(Qpn::new(qpn)).is_some_and(QueuePair::was_answered)
    }

    /// Publishes incidents since the last turn, mostly none. A queue pair that may be unheard casts
    /// doubt on its peer's socket.
    pub(super) fn publish(&mut self, of_all: &Published, peers: &mut Peers) {
        let Some(all) = self.engine.take_new_incidents() else { return };
        of_all.publish(all);
        while let Some((qpn, all)) = self.engine.take_noted() {
            let Some(Carried { port, incidents, .. }) = self.carried.get(&qpn.number()) else { continue };
            incidents.0.publish(&all);
            if self.engine.queue_pair(qpn).is_some_and(QueuePair::may_be_unheard) {
                let mut of_port = self.carried.iter().filter(|(_, other)| other.port == *port);
                peers.doubt(*port, || of_port.any(|(qpn, _)| self.was_answered(*qpn)));
            }
        }
    }

    /// Moves completions to the programs' completion queues, mostly none.
    #[inline]
    pub(super) fn complete(&mut self, pinned: Pinned<'_>, errors: &mut Errors) {
        if self.engine.has_news() {
            self.complete_all(pinned, errors);
        }
    }

    fn complete_all(&mut self, pinned: Pinned<'_>, errors: &mut Errors) {
        while let Some((qpn, completion)) = self.engine.poll() {
            let Some(qp) = fabric::lookup(pinned, qpn.number()) else { continue };
            if give(qp, &completion, &self.carried).is_err() {
                errors.fail_fatally(qp);
            }
        }
        while let Some((qpn, fault)) = self.engine.take_failed() {
            let Some(qp) = fabric::lookup(pinned, qpn.number()) else { continue };
            match fault {
                Some(PeerFault::Access) => errors.fail_with_event(qp, Kind::QpAccessErr),
                Some(PeerFault::Request) => errors.fail_with_event(qp, Kind::QpReqErr),
                // A queue pair that receives from a shared queue and sends nothing has no
                // completion for it.
                Some(PeerFault::Silence) => errors.fail_fatally(qp),
                // An unreliable queue pair goes on receiving after a failed send.
                None => errors.fail_sends(qp),
            }
        }
        while let Some(qpn) = self.engine.take_drained() {
            let Some(qp) = fabric::lookup(pinned, qpn.number()) else { continue };
            progress::drained(qp, &mut qp.sq.pending.lock());
        }
    }
}

/// Adds a completion to the program's completion queue.
fn give(qp: &Qp, completion: &Completion, carried: &ByNumber<Carried>) -> Result<(), Overrun> {
    match completion.completed {
        Completed::Receive(_) | Completed::ReceiveWrite { .. } => received(qp, completion),
        Completed::Send | Completed::Write | Completed::Read | Completed::Atomic | Completed::Local => {
            sent(qp, completion, carried)
        }
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

fn sent(qp: &Qp, completion: &Completion, carried: &ByNumber<Carried>) -> Result<(), Overrun> {
    let Some(Carried { sends, .. }) = carried.get(&qp.qpn) else { return Ok(()) };
    let position = completion.id;
    let (wr_id, opcode) = sends[position as usize & (sends.len() - 1)];
    let (status, byte_len) = (status(completion.status), completion.bytes);
    let header = Header { word: wr_id, qpn: qp.qpn, status, byte_len, opcode, ..Header::default() };
    let strong = status != completion::SUCCESS;
    completion::push(qp.send_cq(), qp.tag(), &header, [position + 1, 0], strong)
}

/// The status in terms of verbs.
fn status(status: Status) -> u32 {
    match status {
        Status::Success => ibv_wc_status::IBV_WC_SUCCESS,
        Status::LocalLength => ibv_wc_status::IBV_WC_LOC_LEN_ERR,
        Status::LocalProtection => ibv_wc_status::IBV_WC_LOC_PROT_ERR,
        Status::LocalRefused => ibv_wc_status::IBV_WC_MW_BIND_ERR,
        Status::LocalAccess => ibv_wc_status::IBV_WC_LOC_ACCESS_ERR,
        Status::RemoteInvalidRequest => ibv_wc_status::IBV_WC_REM_INV_REQ_ERR,
        Status::RemoteAccess => ibv_wc_status::IBV_WC_REM_ACCESS_ERR,
        Status::RemoteOperation => ibv_wc_status::IBV_WC_REM_OP_ERR,
        Status::RetryExceeded => ibv_wc_status::IBV_WC_RETRY_EXC_ERR,
        Status::RnrRetryExceeded => ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR,
        Status::Flushed => ibv_wc_status::IBV_WC_WR_FLUSH_ERR,
    }
}
