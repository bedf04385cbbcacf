//! Operations and sends over several connections, on a device that follows commands.

use std::sync::Arc;

use verbline_mem::ConnectionId;
use verbline_verbs::rdma::Remote;
use verbline_verbs::{CompletionQueue, Completions, QpMaker, QpSpec, SrqSpec, Status, Transport};

use super::super::{ManyReceiving, MultiPort, MultiPortSpec};
use super::*;
use crate::connection::acceptor::ConnectionPeer;
use crate::connection::cm_mailbox::{CmMailbox, ToLcore};
use crate::connection::port_qp::PortQp;
use crate::control::run_control::{Control, LcoreInbox};
use crate::lcore::completing::complete_runs;
use crate::operations::operation::Operation;
use crate::operations::queue::OperationsSpec;
use crate::ports::rx_half::Receiving;
use crate::ports::sink::{Link, Sink, SinkStats};
use crate::ports::state::LcoreState;
use crate::ports::tx_half::Sending;
use crate::rig::figures::{FULL, WRONG};
use crate::rig::{Depths, Rig, no_run};
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::{LcoreStats, PortStats, StageStats};
use crate::stats::operations::OperationStats;
use crate::stats::sampling::Weights;
use crate::stats::turn_time::TurnTime;

/// The only sink of the lcore: the port's.
const PORT: usize = 0;
const DEPTH: usize = 4;
const BYTES: usize = 8;

/// A port with two connections, the only port of its lcore.
struct World {
    lcore: LcoreState,
    mailbox: Arc<CmMailbox>,
    maker: QpMaker,
    stage: Shared<StageStats>,
    stats: Shared<PortStats>,
    cq: CompletionQueue,
    rig: Rig,
}

impl World {
    fn new() -> World {
        World::with(false, true)
    }

    /// `any`: packets that name no connection go to each in turn. `shares`: both have one receive
    /// queue.
    fn with(any: bool, shares: bool) -> World {
        let rig = Rig::new(64);
        let cq = rig.context.create_cq(128, None).unwrap();
        let srq = shares.then(|| rig.pd.create_srq(&SrqSpec::new(Transport::Rc, 2)).unwrap());
        let depths = Depths { tx_wr: 2 * DEPTH as u32, rx_wr: if shares { 0 } else { 2 }, signal_every_wr: 8 };
        let maker = rig.pd.qp_maker(&QpSpec { srq: srq.as_ref(), ..Rig::spec(&cq, Transport::Rc, depths, 0) });
        let (stage, stats, lcore) = (shared::<StageStats>(), shared::<PortStats>(), shared::<LcoreStats>());
        let mut queue = OperationQueue::new(OperationsSpec {
            port: Shared::clone(&stats),
            stats: shared::<OperationStats>(),
            transport: Transport::Rc,
            sends: 2 * DEPTH,
            depth: 2 * DEPTH,
            many: Some([2, DEPTH]),
            regions: Box::new([]),
            windows: 0,
            keys: 0,
        });
        queue.add_user(Shared::clone(&stage));
        let control = Arc::new(Control::new(vec![verbline_ring::doorbell().unwrap().0]));
        let mailbox = Arc::new(CmMailbox::new(LcoreInbox { control, lcore: 0 }, 0, 2).unwrap());
        let port = MultiPort::new(MultiPortSpec {
            name: "port".into(),
            index: 0,
            connections: 2,
            receiving: Some(ManyReceiving::new(srq, Receiving::new(0, Link::Drop, 2, 2, false), 2, 2)),
            sending: Some(ManySending::new(Sending::new(PORT, 8, DEPTH).with_operations(DEPTH), 2 * DEPTH, 2 * DEPTH)),
            any,
            mailbox: Arc::clone(&mailbox),
            stats: Shared::clone(&stats),
            counts: shared(),
        });
        let ctx = LcoreContext {
            sinks: vec![Sink::new(2 * DEPTH, DropReason::TxFull, SinkStats::Operations(Box::new(queue)))],
            caches: vec![rig.pool.cache(0).bind()],
            time: TurnTime::new(rig.time.clock(), Shared::clone(&lcore)),
            stats: lcore,
            weights: Weights::default(),
            stage_ended: None,
            tap: None,
        };
        World { lcore: LcoreState { ctx, many: vec![port], failing: no_run() }, mailbox, maker, stage, stats, cq, rig }
    }

    /// Opens a connection. Returns its handle, and the number of its queue pair.
    fn open(&mut self, slot: u16) -> (ConnectionId, u32) {
        let connection = ConnectionId::new(0, slot, 1).unwrap();
        let mut qp = self.maker.make().unwrap();
        self.rig.bring_up(&mut qp);
        let qpn = qp.qpn();
        let address = ([127, 0, 0, 1], 4791).into();
        let peer = ConnectionPeer { address, local: address, private_data: Box::default(), tag: 0 };
        let peer = Some(Box::new(peer));
        self.mailbox.tell_lcore(ToLcore::Expect { connection, qpn });
        self.mailbox.tell_lcore(ToLcore::Open { connection, qp: Box::new(PortQp::new(qp)), peer });
        self.take_messages();
        (connection, qpn)
    }

    fn take_messages(&mut self) {
        assert!(self.lcore.many[0].take_messages(true, &mut self.lcore.ctx.sinks));
    }

    fn send(&mut self, to: impl Into<Option<ConnectionId>>, count: usize) {
        let to = to.into();
        for _ in 0..count {
            let mut packet = self.lcore.ctx.caches[0].get().unwrap();
            assert!(packet.set_len(BYTES));
            packet.set_connection(to);
            self.lcore.ctx.sinks[PORT].push(packet);
        }
    }

    fn write(&mut self, to: ConnectionId, count: usize) {
        for _ in 0..count {
            let operation = Operation::write(self.lcore.ctx.caches[0].get().unwrap(), Remote { addr: 0, rkey: 1 });
            let stage = Shared::clone(&self.stage);
            let (queue, sends) = self.lcore.operations_at(PORT).unwrap();
            queue.accept(&stage, sends, [operation.over(to)]).unwrap();
        }
    }

    /// Takes a turn, like an lcore.
    fn turn(&mut self) {
        self.lcore.ctx.time.begin(false, true);
        let mut completions = Completions::with_capacity(32);
        self.cq.poll(&mut completions);
        complete_runs::<false>(completions.as_slice(), &mut [], &mut self.lcore);
        let LcoreState { ctx, many, .. } = &mut self.lcore;
        many[0].work(ctx);
    }

    /// The device completes this many.
    fn done(&self, qpn: u32, count: usize) {
        for _ in 0..count {
            assert!(self.rig.script.queues().end_send(qpn, Status::SUCCESS).is_some());
        }
    }

    fn take(&mut self) -> Vec<Result<(), OperationError>> {
        let mut done = Vec::with_capacity(2 * DEPTH);
        self.lcore.operations_at(PORT).unwrap().0.take_done(0, &mut done);
        done.iter().map(|done| done.result).collect()
    }

    fn is_settled(&self) -> bool {
        self.lcore.many[0].is_settled(&self.lcore.ctx)
    }

    /// Returns the number of packets, and of operations, that a connection takes now.
    fn room(&self, to: ConnectionId) -> [usize; 2] {
        [self.lcore.many[0].room_to(to), self.lcore.ctx.sinks[PORT].queue().unwrap().room_over(to)]
    }

    fn out(&self) -> [u64; 2] {
        [self.stats.tx_outstanding.value(), self.stats.drops.count(DropReason::SendError)]
    }

    fn errors(&self, status: Status) -> u64 {
        self.stats.statuses[status.raw() as usize].value()
    }
}

#[test]
fn sends_and_operations_over_each_connection_take_its_own_room() {
    let mut world = World::new();
    let ((first, of_first), (second, of_second)) = (world.open(0), world.open(1));
    assert_eq!((world.room(first), world.room(second)), ([4, 4], [4, 4]));
    world.turn();
    assert!(world.is_settled());
    world.send(first, 1);
    assert!(!world.is_settled(), "a packet waits");
    world.write(first, 2);
    world.send(first, 1);
    world.write(second, 1);
    world.turn();
    assert!(world.is_settled(), "all of it is posted");
    assert_eq!((world.room(first), world.room(second), world.out()), ([2, 2], [4, 3], [2, 0]));
    assert!(world.lcore.many[0].awaits_completion());
    // Given in this order, it is one list per connection, whose last work request is signaled.
    let posted = |qpn| world.rig.script.queues().sends(qpn).iter().map(|send| send.signaled).collect::<Vec<_>>();
    assert_eq!((posted(of_first), posted(of_second)), (vec![false, false, false, true], vec![true]));
    world.done(of_first, 4);
    world.done(of_second, 1);
    world.turn();
    assert_eq!(world.take(), [Ok(()); 3]);
    assert_eq!((world.room(first), world.room(second), world.out()), ([4, 4], [4, 4], [0, 0]));
    assert!(!world.lcore.many[0].awaits_completion());
    world.write(second, 1);
    assert!(!world.is_settled(), "an operation waits");
    world.turn();
    world.done(of_second, 1);
    world.turn();
    assert_eq!(world.take(), [Ok(())]);
    // Sends beyond the room are dropped; the operations behind them go.
    world.send(first, DEPTH + 1);
    world.write(first, 1);
    world.turn();
    assert_eq!((world.room(first), world.stats.drops.count(DropReason::TxFull)), ([0, 3], 1));
    assert_eq!(world.rig.script.queues().sends(of_first).len(), DEPTH + 1);
}

#[test]
fn sends_beside_operations_share_the_room_of_all_connections() {
    let mut world = World::new();
    let ((first, of_first), (second, _)) = (world.open(0), world.open(1));
    world.lcore.many[0].sending.as_mut().unwrap().most_wr = DEPTH + 1;
    world.send(first, DEPTH);
    world.turn();
    assert_eq!((world.room(first), world.room(second)), ([0, 4], [1, 4]));
    world.send(second, 3);
    world.write(second, 1);
    world.turn();
    assert_eq!((world.room(second), world.stats.drops.count(DropReason::TxFull)), ([0, 3], 2));
    world.done(of_first, DEPTH);
    world.turn();
    assert_eq!((world.room(first), world.room(second)), ([4, 4], [3, 3]));
}

#[test]
fn a_connection_whose_device_refuses_a_list_ends_and_gives_back_all_of_it() {
    let mut world = World::new();
    let ((first, of_first), (second, _)) = (world.open(0), world.open(1));
    world.send(first, 2);
    world.write(first, 2);
    world.send(first, 1);
    world.write(second, 1);
    world.rig.script.queues().take_only(3, WRONG);
    world.turn();
    // Two sends and an operation are posted; the other operation came back, the third packet was
    // dropped, and the device takes nothing of the other connection either.
    assert_eq!((world.room(first), world.room(second)), ([0, 0], [0, 0]));
    let back = world.take();
    assert_eq!(back.len(), 2);
    assert!(back.iter().all(Result::is_err));
    // One of the packets; not the two that are posted.
    assert_eq!(world.out(), [2, 1]);
    world.rig.script.queues().take_all();
    assert_eq!(world.rig.script.queues().flush(of_first).len(), 3);
    world.turn();
    assert_eq!(world.take(), [Err(OperationError::Status(Status::WR_FLUSH_ERR))]);
    assert_eq!(world.out(), [0, 3]);
    assert_eq!(world.errors(Status::WR_FLUSH_ERR), 0, "of one that is closing it says nothing");
}

#[test]
fn a_connection_that_fails_tells_its_status_once_and_gives_back_what_is_behind() {
    let mut world = World::new();
    let ((first, of_first), (second, _)) = (world.open(0), world.open(1));
    world.write(first, 1);
    world.send(first, 1);
    world.write(first, 2);
    world.turn();
    assert!(world.rig.script.queues().end_send(of_first, Status::REM_ACCESS_ERR).is_some());
    world.turn();
    assert_eq!(world.take(), [Err(OperationError::Status(Status::REM_ACCESS_ERR))]);
    // The marker stands behind all posted work.
    assert_eq!((world.room(first), world.room(second)), ([0, 0], [4, 4]));
    assert_eq!(world.rig.script.queues().flush(of_first).len(), 3 + 1);
    world.turn();
    assert_eq!(world.take(), [Err(OperationError::Status(Status::WR_FLUSH_ERR)); 2]);
    assert_eq!((world.errors(Status::REM_ACCESS_ERR), world.errors(Status::WR_FLUSH_ERR)), (1, 0));
    assert_eq!((world.out(), world.stats.stale.value()), ([0, 1], 0));
    let mut said = Vec::new();
    world.mailbox.take_for_cm(&mut said);
    assert!(matches!(said[..], [ToCm::Over { .. }, ToCm::Released { .. }]), "{said:?}");
}

#[test]
fn what_only_the_marker_answers_for_is_lost() {
    let mut world = World::new();
    let (first, of_first) = world.open(0);
    // The last work request of the list that the device takes is not signaled.
    world.write(first, 1);
    world.send(first, 2);
    world.write(first, 1);
    world.rig.script.queues().take_only(3, WRONG);
    world.turn();
    world.done(of_first, 3);
    world.turn();
    // Without a marker, which the device did not take either, no message follows; the cm thread
    // waits in vain.
    assert_eq!((world.take().len(), world.out()), (1, [2, 0]));
    world.mailbox.tell_lcore(ToLcore::Force { connection: first });
    world.take_messages();
    assert_eq!((world.take().len(), world.out()), (0, [2, 0]), "what has come is taken first");
    assert!(!world.lcore.many[0].take_messages(true, &mut world.lcore.ctx.sinks));
    assert_eq!((world.take(), world.out()), (vec![Err(OperationError::Lost)], [0, 2]));

    // The marker behind such work requests is all that completes.
    let (second, of_second) = world.open(1);
    world.write(second, 1);
    world.send(second, 2);
    world.write(second, 1);
    world.rig.script.queues().take_only(3, FULL);
    world.turn();
    assert!(matches!(world.take()[..], [Err(OperationError::Refused(_))]));
    world.rig.script.queues().take_all();
    world.done(of_second, 3);
    world.mailbox.tell_lcore(ToLcore::Close { connection: second, reason: "left" });
    world.take_messages();
    assert_eq!(world.out(), [2, 2]);
    assert_eq!(world.rig.script.queues().flush(of_second).len(), 1, "a marker");
    world.turn();
    assert_eq!((world.take(), world.out()), (vec![Err(OperationError::Lost)], [0, 4]));

    let (second, of_second) = world.open(1);
    world.write(second, 1);
    world.send(second, 1);
    world.write(second, 1);
    world.turn();
    world.mailbox.tell_lcore(ToLcore::Close { connection: second, reason: "left" });
    world.take_messages();
    let posted = world.rig.script.queues().flush(of_second);
    assert_eq!(posted.len(), 3 + 1, "and a marker");
    world.turn();
    assert_eq!(world.take(), [Err(OperationError::Status(Status::WR_FLUSH_ERR)); 2]);
    assert_eq!((world.out(), world.stats.stale.value()), ([0, 5], 0));
}

#[test]
fn a_marker_that_comes_twice_is_stale_the_second_time() {
    let mut world = World::with(false, false);
    let (first, of_first) = world.open(0);
    world.write(first, 1);
    world.turn();
    world.mailbox.tell_lcore(ToLcore::Close { connection: first, reason: "left" });
    world.take_messages();
    for _ in ["the write", "the marker"] {
        assert!(world.rig.script.queues().end_send(of_first, Status::WR_FLUSH_ERR).is_some());
    }
    world.turn();
    // Its receives are still to come back.
    assert_eq!((world.take().len(), world.stats.stale.value()), (1, 0));
    assert!(world.rig.script.queues().repeat());
    world.turn();
    assert_eq!((world.take().len(), world.stats.stale.value()), (0, 1));
}

#[test]
fn the_packets_of_operations_that_are_under_way_at_the_end_are_counted() {
    let mut world = World::new();
    let ((first, _), (second, of_second)) = (world.open(0), world.open(1));
    world.write(second, 1);
    world.turn();
    world.done(of_second, 1);
    world.turn();
    world.write(first, 2);
    world.turn();
    world.write(first, 1);
    let abandoned = world.lcore.operations_at(PORT).unwrap().0.abandon();
    // One completed that no stage took, two posted, and one that waits.
    assert_eq!(abandoned, 4);
}

#[test]
fn operations_and_packets_for_a_connection_that_is_over_come_back_and_are_dropped() {
    let mut world = World::new();
    let ((first, of_first), (second, _)) = (world.open(0), world.open(1));
    world.write(first, 2);
    world.send(first, 2);
    world.write(second, 1);
    // The connection closes before they are posted.
    world.lcore.many[0].qp_failed(of_first, "an event", &mut world.lcore.ctx.sinks);
    world.turn();
    assert_eq!(world.take(), [Err(OperationError::ConnectionOver); 2]);
    assert_eq!((world.stats.drops.count(DropReason::NoConnection), world.out()), (2, [0, 0]));
    assert_eq!((world.room(first), world.room(second)), ([0, 0], [4, 3]));
}

#[test]
fn what_names_no_connection_goes_to_each_in_turn_where_the_plan_says_so_and_the_rest_where_it_says() {
    for any in [false, true] {
        let mut world = World::with(any, true);
        let ((first, _), (second, _)) = (world.open(0), world.open(1));
        for _ in 0..2 {
            world.send(None, 1);
            world.write(first, 1);
            world.turn();
        }
        let by_turns = usize::from(any);
        assert_eq!((world.room(first), world.room(second)), ([4 - by_turns, 2], [4 - by_turns, 4]));
        assert_eq!(world.stats.drops.count(DropReason::NoConnection), 2 * u64::from(!any));
        world.send(second, 2);
        world.turn();
        assert_eq!(world.room(second), [2 - by_turns, 4]);
    }
}
