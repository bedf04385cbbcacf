//! A queue pair that is released and replaced, with work posted to it.

use std::sync::Arc;

use verbline_mem::Batch;
use verbline_verbs::rdma::Remote;
use verbline_verbs::{CompletionQueue, Completions, QpState, QueuePair, Transport};

use super::*;
use crate::connection::cm_mailbox::{CmMailbox, Reconnecting, first_connection};
use crate::control::change::{Asked, Change};
use crate::control::notice::Notice;
use crate::control::run_control::{Control, LcoreInbox};
use crate::operations::operation::{Operation, OperationError};
use crate::ports::rx_half::Receiving;
use crate::ports::sink::{Link, Sink, SinkStats};
use crate::ports::state::LcoreState;
use crate::ports::tx_half::Sending;
use crate::rig::figures::{FULL, WRONG};
use crate::rig::{Depths, Rig, operation_queue, port};
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::{LcoreStats, StageStats};

/// Closes the first connection.
fn lost() -> ToLcore {
    ToLcore::Close { connection: first_connection(0), reason: "it is lost" }
}

const DEPTHS: Depths = Depths { tx_wr: 64, rx_wr: 4, signal_every_wr: 16 };

/// A device that completes nothing by itself, and the supervisor's end of the mailbox.
struct Line {
    rig: Rig,
    cq: CompletionQueue,
    inbox: LcoreInbox,
    mailbox: Arc<CmMailbox>,
}

impl Line {
    fn new() -> Line {
        let rig = Rig::new(256);
        let cq = rig.context.create_cq(256, None).unwrap();
        let control = Arc::new(Control::new(vec![verbline_ring::doorbell().unwrap().0]));
        let inbox = LcoreInbox { control, lcore: 0 };
        let mailbox = Arc::new(CmMailbox::new(inbox.clone(), 0, 1).unwrap());
        Line { rig, cq, inbox, mailbox }
    }

    fn qp(&self) -> QueuePair {
        let mut qp = self.rig.pd.create_qp(&Rig::spec(&self.cq, Transport::Rc, DEPTHS, 0)).unwrap();
        self.rig.bring_up(&mut qp);
        qp
    }

    fn port(&self, sending: Option<Sending>) -> Port {
        let mut port = port(0, self.qp(), None, sending, Some(Reconnecting::new(Arc::clone(&self.mailbox), 0)));
        port.inbox = Some(self.inbox.clone());
        port
    }

    /// Gives the port a message. Returns true if the port then has another queue pair.
    fn tell(&self, port: &mut Port, sinks: &mut [Sink], message: ToLcore) -> bool {
        self.mailbox.tell_lcore(message);
        port.service_reconnect(0, sinks)
    }

    fn release(&self, port: &mut Port) {
        assert!(!self.tell(port, &mut [], lost()));
        assert_eq!(port.health, Health::Down);
    }

    /// The completions have come, or are waited for in vain: for a hundred turns at least, however
    /// late each is.
    fn wait(port: &mut Port) {
        for turn in 1..=RELEASE.as_nanos() as u64 / TURN_MAX_NS {
            assert!(!port.service_reconnect(turn * 60_000_000_000, &mut []));
        }
    }

    /// Returns the lcore's messages.
    fn said(&self) -> Vec<ToCm> {
        let mut said = Vec::new();
        self.mailbox.take_for_cm(&mut said);
        said
    }

    fn replace(&self, port: &mut Port, sinks: &mut [Sink]) {
        Line::wait(port);
        let of = first_connection(0);
        assert!(matches!(self.said()[..], [ToCm::Drained { connection }] if connection == of));
        let (connection, qp) = (ConnectionId::new(0, 0, 2).unwrap(), Box::new(PortQp::new(self.qp())));
        assert!(self.tell(port, sinks, ToLcore::Open { connection, qp, peer: None }));
        let stats = &port.stats;
        let gauges = [&stats.tx_outstanding, &stats.down, &stats.down_reason].map(|gauge| gauge.value());
        assert_eq!(gauges, [0; 3], "outstanding, down, and the reason");
        assert_eq!((port.health, port.qp.sends_outstanding()), (Health::Up, 0));
        let said = self.said();
        assert!(
            matches!(said[..], [ToCm::Released { connection, .. }] if connection == of),
            "to be destroyed: {said:?}"
        );
        // A late message about the old connection does not touch the new one.
        assert!(!self.tell(port, sinks, lost()));
        assert_eq!((port.health, self.said().len()), (Health::Up, 0));
    }
}

#[test]
fn sends_that_were_never_answered_for_are_counted_once_another_queue_pair_is_there() {
    let cases = [0, 1, 5, DEPTHS.tx_wr as usize].map(|sends| [(sends, true), (sends, false)]);
    for (sends, takes_marker) in cases.concat() {
        let line = Line::new();
        let mut port = line.port(Some(Sending::new(0, DEPTHS.signal_every_wr, DEPTHS.tx_wr as usize)));
        let mut batch = Batch::with_capacity(DEPTHS.tx_wr as usize);
        assert_eq!(line.rig.pool.cache(0).get_bulk_of_len(&mut batch, sends, 8), sends);
        assert_eq!(port.qp.post_send(&mut batch).posted, sends);
        if !takes_marker {
            line.rig.script.queues().take_only(0, WRONG);
        }
        line.release(&mut port);
        // The lcore waits for the completions, in vain.
        assert_eq!(port.qp.is_drained(), sends == 0);
        line.replace(&mut port, &mut []);
        assert_eq!(port.stats.drops.count(DropReason::SendError), sends as u64, "a marker is no packet");
    }
}

/// Regression: they went with the queue pair, and no count told of them.
#[test]
fn sends_that_were_never_answered_for_are_counted_as_the_run_ends() {
    for waits in [true, false] {
        let line = Line::new();
        let mut port = line.port(Some(Sending::new(0, DEPTHS.signal_every_wr, DEPTHS.tx_wr as usize)));
        let mut batch = Batch::with_capacity(3);
        assert_eq!(line.rig.pool.cache(0).get_bulk_of_len(&mut batch, 3, 8), 3);
        assert_eq!(port.qp.post_send(&mut batch).posted, 3);
        line.release(&mut port);
        if waits {
            Line::wait(&mut port);
        }
        port.count_stopped(&[]);
        let counts = [DropReason::SendError, DropReason::Stopped].map(|reason| port.stats.drops.count(reason));
        assert_eq!(counts, [3, 0], "a marker is no packet");
    }
}

#[test]
fn what_a_released_queue_pair_has_of_its_receives_is_told_with_those_that_it_refused() {
    for is_flushed in [false, true] {
        let mut line = Line::new();
        let mut port = line.port(None);
        port.receiving = Some(Receiving::new(0, Link::Drop, DEPTHS.rx_wr as usize, 4, false));
        line.rig.script.queues().take_only(3, FULL);
        assert!(port.refill(&line.rig.pool.cache(0), &shared::<LcoreStats>(), 0));
        // The device does not take a marker either.
        line.release(&mut port);
        for turn in 1..RELEASE.as_nanos() as u64 / TURN_MAX_NS {
            assert!(!port.service_reconnect(turn * 60_000_000_000, &mut []));
        }
        assert!(line.said().is_empty(), "its completions are to come");
        if !is_flushed {
            Line::wait(&mut port);
            assert!(matches!(line.said()[..], [ToCm::Drained { .. }]));
            assert_eq!(port.stats.rx_outstanding.value(), 3 + 1);
            continue;
        }
        line.rig.script.queues().flush(port.qp.qpn());
        let mut completions = Completions::with_capacity(4);
        assert_eq!(line.cq.poll(&mut completions), 3);
        for completion in completions.as_slice() {
            assert!(port.qp.recv_done(completion).is_ok());
        }
        assert!(!port.service_reconnect(0, &mut []));
        assert!(matches!(line.said()[..], [ToCm::Drained { .. }]));
        assert_eq!(port.stats.rx_outstanding.value(), 1, "one waits for the next queue pair");
        Line::wait(&mut port);
        assert!(line.said().is_empty(), "it is said once");
    }
}

#[test]
fn a_receive_that_a_queue_pair_refused_is_one_of_the_next_ones() {
    let line = Line::new();
    let mut port = line.port(None);
    let depth = DEPTHS.rx_wr as usize;
    port.receiving = Some(Receiving::new(0, Link::Drop, depth, depth, false));
    let (cache, lcore) = (line.rig.pool.cache(0), shared::<LcoreStats>());
    line.rig.script.queues().take_only(depth - 1, FULL);
    assert!(port.refill(&cache, &lcore, 0));
    line.release(&mut port);
    line.replace(&mut port, &mut []);
    line.rig.script.queues().take_all();
    assert!(port.refill(&cache, &lcore, 0));
    assert_eq!((port.qp.recvs_outstanding(), lcore.taken.value()), (depth, 2 * depth as u64 - 1));
}

/// The supervisor learns that a queue pair is lost before the lcore has it.
#[test]
fn a_queue_pair_that_is_lost_at_once_is_taken_and_released() {
    let line = Line::new();
    let mut port = line.port(None);
    line.release(&mut port);
    let (connection, qp) = (ConnectionId::new(0, 0, 2).unwrap(), Box::new(PortQp::new(line.qp())));
    line.mailbox.tell_lcore(ToLcore::Open { connection, qp, peer: None });
    let lost = ToLcore::Close { connection, reason: "it is lost" };
    assert!(line.tell(&mut port, &mut [], lost));
    let said: Vec<_> = line
        .said()
        .iter()
        .map(|said| match said {
            ToCm::Drained { connection } => ("drained", *connection),
            ToCm::Released { connection, .. } => ("released", *connection),
            ToCm::Told { .. } => unreachable!("of a port with many connections"),
            ToCm::Over { connection, .. } => ("over", *connection),
        })
        .collect();
    let first = first_connection(0);
    assert_eq!(said, [("drained", first), ("released", first), ("drained", connection)]);
}

/// Regression: a port whose sends had failed was not released when the rest of it failed too, and
/// never opened again.
#[test]
fn a_port_that_fails_by_halves_is_looked_at_for_each() {
    let line = Line::new();
    let mut port = line.port(None);
    let mut posted = |left| {
        port.go_down(left, DownReason::LOST);
        let mut notices = Vec::new();
        line.inbox.control.read_notices(0, &mut notices);
        notices
    };
    assert_eq!(posted(Health::SendsDown), [Notice::PortDown { port: 0 }]);
    assert_eq!(posted(Health::SendsDown), []);
    assert_eq!(posted(Health::Down), [Notice::Connections { port: 0 }]);
    assert_eq!(posted(Health::Down), []);
}

/// A port that has sent packets, with three operations behind them.
fn operating(line: &Line, sends: usize) -> (Port, LcoreState) {
    let mut port = line.port(Some(Sending::new(0, DEPTHS.signal_every_wr, 8).with_operations(8)));
    let stage = shared::<StageStats>();
    let mut queue = operation_queue(Shared::clone(&port.stats), 8);
    queue.add_user(Shared::clone(&stage));
    let mut lcore =
        line.rig.lcore_state(vec![Sink::new(8, DropReason::TxFull, SinkStats::Operations(Box::new(queue)))], 0);
    for _ in 0..sends {
        let packet = lcore.ctx.caches[0].get().unwrap();
        lcore.ctx.sinks[0].push(packet);
    }
    let writes = [(); 3].map(|()| Operation::write(lcore.ctx.caches[0].get().unwrap(), Remote { addr: 0, rkey: 1 }));
    let (queue, waiting) = lcore.operations_at(0).unwrap();
    queue.accept(&stage, waiting, writes).unwrap();
    assert!(port.work::<false>(&mut lcore.ctx));
    assert_eq!(port.qp.sends_outstanding(), sends + 3);
    (port, lcore)
}

/// Returns the results of completed operations.
fn ends(lcore: &mut LcoreState) -> Vec<Result<(), OperationError>> {
    let mut done = Vec::with_capacity(8);
    lcore.operations_at(0).unwrap().0.take_done(0, &mut done);
    done.iter().map(|done| done.result).collect()
}

#[test]
fn operations_that_were_never_answered_for_come_back_as_lost_and_the_sends_among_them_are_counted() {
    for sends in [0, 1, 4] {
        let line = Line::new();
        let (mut port, mut lcore) = operating(&line, sends);
        line.release(&mut port);
        assert!(!port.qp.is_drained());
        line.replace(&mut port, &mut lcore.ctx.sinks);
        assert_eq!(port.stats.drops.count(DropReason::SendError), sends as u64);
        assert_eq!(ends(&mut lcore), [Err(OperationError::Lost); 3]);
        assert!(port.is_settled(&lcore.ctx.sinks));
        // The old queue pair's work is not on the new one's account.
        assert_eq!(port.qp.sends, 0);
    }
}

/// The completion queue may not have been empty since the present queue pair stopped.
#[test]
fn a_stop_of_the_queue_pair_before_resumes_nothing() {
    let line = Line::new();
    let (mut port, mut lcore) = operating(&line, 0);
    port.qp.to_sqd(false).unwrap();
    let qpn = port.qp.qpn();
    for (stopped, state) in [(qpn + 1, QpState::Sqd), (qpn, QpState::Rts)] {
        port.sq_stopped(stopped, &mut lcore.ctx);
        assert_eq!(port.qp.state(), state);
    }
}

/// Regression: operations that a stage posted when it was told that the port is up were declined,
/// and a stage that waits for answers posted no more.
#[test]
fn operations_are_taken_as_soon_as_stages_are_told_that_the_port_is_up() {
    let line = Line::new();
    let (mut port, mut lcore) = operating(&line, 0);
    line.release(&mut port);
    port.work::<false>(&mut lcore.ctx);
    let is_down = |lcore: &mut LcoreState| lcore.operations_at(0).unwrap().0.is_down;
    assert!(is_down(&mut lcore));
    line.replace(&mut port, &mut lcore.ctx.sinks);
    assert!(!is_down(&mut lcore));
}

#[test]
fn a_queue_pair_with_operations_is_released_once_its_marker_has_come() {
    for sends in [0, 4] {
        let line = Line::new();
        let (mut port, mut lcore) = operating(&line, sends);
        line.release(&mut port);
        let (mut cq, mut completions) = (line.cq, Completions::with_capacity(16));
        assert_eq!(line.rig.script.queues().flush(port.qp.qpn()).len(), sends + 3 + 1);
        assert_eq!(cq.poll(&mut completions), sends + 3 + 1);
        for completion in completions.as_slice() {
            assert!(!port.qp.is_drained());
            port.complete::<false>(completion, &mut lcore.ctx);
        }
        assert!(port.qp.is_drained());
        assert_eq!(port.stats.stale.value(), 0);
        assert_eq!(port.stats.drops.count(DropReason::SendError), sends as u64, "the marker is none of them");
        assert_eq!(ends(&mut lcore).len(), 3);
        completions.clear();
        assert!(line.rig.script.queues().repeat());
        assert_eq!(cq.poll(&mut completions), 1);
        port.complete::<false>(&completions.as_slice()[0], &mut lcore.ctx);
        assert_eq!(port.stats.stale.value(), 1, "the marker twice");
    }
}

/// A pause lasts until it is ended, whichever queue pair the port has meanwhile.
#[test]
fn a_port_that_is_paused_is_so_with_another_queue_pair_too() {
    for resumes_meanwhile in [false, true] {
        let line = Line::new();
        let mut port = line.port(None);
        port.change(Change::new(Asked::Pause), 0);
        assert!(port.is_paused);
        line.release(&mut port);
        let resume = Change::new(Asked::Resume);
        if resumes_meanwhile {
            port.change(Arc::clone(&resume), 0);
        }
        line.replace(&mut port, &mut []);
        let held = (true, QpState::Sqd);
        let expected = if resumes_meanwhile { (false, QpState::Rts) } else { held };
        assert_eq!((port.is_paused, port.qp.state()), expected);
        port.change(Change::new(Asked::Resume), 0);
        assert_eq!((port.is_paused, port.qp.state(), port.health), (false, QpState::Rts, Health::Up));
    }
}
