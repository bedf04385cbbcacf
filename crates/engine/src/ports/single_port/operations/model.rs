//! A port that carries out operations, against a device that follows a script: it takes a part of a
//! list, completes late, refuses, fails.
//!
//! An oracle knows the operations and packets of two stages, in order, the work requests that the
//! device took, and the polled completions. It predicts the posts, each stage's returned
//! operations, and each counter.

mod named;
mod oracle;
mod refusals;

use proptest::prelude::*;
use verbline_mem::Packet;
use verbline_plan::{OperationKind, Rights};
use verbline_verbs::rdma::{KeptKey, KeptRegion, KeptWindow, Local, Part, Remote};
use verbline_verbs::signature::QpSignature;
use verbline_verbs::{CompletionQueue, Completions, QpSpec, Status, Transport};

use self::named::{blocks, keep};
use self::oracle::{Given, Oracle, Outcome, Taken, UNKNOWN};
use crate::operations::operation::{Operation, OperationError};
use crate::operations::queue::{OperationQueue, OperationsSpec};
use crate::ports::single_port::{Health, Port};
use crate::ports::sink::{Sink, SinkStats};
use crate::ports::state::LcoreState;
use crate::ports::tx_half::Sending;
use crate::rig::figures::{FULL, WRONG};
use crate::rig::{Depths, Rig, port};
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::StageStats;
use crate::stats::drop_reason::DropReason;
use crate::stats::operations::OperationStats;

/// The only sink of the lcore: the port's.
const PORT: usize = 0;
const PEER: Remote = Remote { addr: 4096, rkey: 7 };

#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) tx_wr: usize,
    pub(super) ops_wr: usize,
    pub(super) signal_every_wr: u32,
    /// The sink's room, in packets.
    pub(super) room: usize,
    burst: usize,
}

/// One step of the model.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The lcore takes a turn.
    Turn,
    /// The first half of a turn: a poll, after which the stages run.
    Poll,
    /// A stage sends packets of this length.
    Send(usize, usize),
    /// A stage gives operations of this length, one after the other.
    Give(usize, usize, OperationKind, usize),
    /// A stage gives three operations together, or none.
    GiveTogether(usize, OperationKind, usize),
    /// A stage takes its completed operations.
    Take(usize),
    /// The device completes its oldest work requests.
    Done(usize),
    Fail(Status),
    /// The device takes this many more work requests, and refuses others with this errno.
    TakeOnly(usize, i32),
    TakeAll,
}

struct World {
    oracle: Oracle,
    port: Port,
    lcore: LcoreState,
    users: [Shared<StageStats>; 2],
    stats: Shared<OperationStats>,
    cq: CompletionQueue,
    completions: Completions,
    next_tag: u64,
    rig: Rig,
}

impl World {
    fn new(shape: Shape) -> World {
        let rig = Rig::new(256);
        let cq = rig.context.create_cq(256, None).unwrap();
        let depth = (shape.tx_wr + shape.ops_wr) as u32;
        let depths = Depths { tx_wr: depth, rx_wr: 1, signal_every_wr: shape.signal_every_wr.min(depth) };
        let spec = QpSpec { signature: QpSignature::Keys, ..Rig::spec(&cq, Transport::Rc, depths, 0) };
        let mut qp = rig.pd.create_qp(&spec).unwrap();
        rig.bring_up(&mut qp);
        keep(&rig, &mut qp);
        let sending = Sending::new(PORT, depths.signal_every_wr, shape.tx_wr).with_operations(shape.ops_wr);
        let port = port(0, qp, None, Some(sending), None);
        let (users, stats) = ([shared::<StageStats>(), shared::<StageStats>()], shared::<OperationStats>());
        let mut queue = OperationQueue::new(OperationsSpec {
            port: Shared::clone(&port.stats),
            stats: Shared::clone(&stats),
            transport: Transport::Rc,
            sends: shape.tx_wr,
            depth: shape.ops_wr,
            many: None,
            regions: Box::new([true]),
            windows: 1,
            keys: 1,
        });
        users.iter().for_each(|user| _ = queue.add_user(Shared::clone(user)));
        let lcore =
            rig.lcore_state(vec![Sink::new(shape.room, DropReason::TxFull, SinkStats::Operations(Box::new(queue)))], 0);
        let completions = Completions::with_capacity(shape.burst);
        World { oracle: Oracle::new(shape), port, lcore, users, stats, cq, completions, next_tag: 0, rig }
    }

    fn queue(&mut self) -> (&mut OperationQueue, usize) {
        self.lcore.operations_at(PORT).expect("the port's operations")
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Turn => self.turn(),
            Step::Poll => self.poll(),
            Step::Send(count, len) => (0..count).for_each(|_| self.send(len)),
            Step::Give(user, count, kind, len) => self.give(user, count, kind, len),
            Step::GiveTogether(user, kind, len) => self.give_together(user, kind, len),
            Step::Take(user) => self.take(user),
            Step::Done(count) => (0..count).for_each(|_| _ = self.end(Status::SUCCESS)),
            Step::Fail(status) => {
                // The work behind it is flushed.
                let failed = self.end(status);
                while failed && self.end(Status::WR_FLUSH_ERR) {}
            }
            Step::TakeOnly(count, errno) => {
                self.rig.script.queues().take_only(count, errno);
                self.oracle.errno_is_full = errno == FULL;
            }
            Step::TakeAll => self.rig.script.queues().take_all(),
        }
        self.check();
    }

    fn packet(&self, len: usize) -> Packet {
        let mut packet = self.lcore.ctx.caches[0].get().expect("enough packets");
        assert!(packet.set_len(len));
        packet
    }

    fn send(&mut self, len: usize) {
        let packet = self.packet(len);
        self.lcore.ctx.sinks[PORT].push(packet);
        self.oracle.send(len);
    }

    /// Makes an operation of this kind, and its entry for the oracle.
    fn operation(&mut self, user: usize, kind: OperationKind, len: usize) -> (Operation, Given) {
        let tag = self.next_tag;
        self.next_tag += 1;
        // Half of the operations that may use either use a part of the region.
        let in_region = len.is_multiple_of(2);
        let range = |len| Part { region: KeptRegion(0), span: (0..len).into() };
        let memory = || match in_region {
            true => Local::Part(range(len as u32)),
            false => Local::Packet(self.packet(len)),
        };
        let (operation, bytes, has_packet) = match kind {
            OperationKind::Read => (Operation::read(memory(), PEER), len, !in_region),
            OperationKind::FetchAdd if in_region => (Operation::fetch_add(range(8), PEER, 1), 8, false),
            OperationKind::FetchAdd => (Operation::fetch_add(self.packet(8), PEER, 1), 8, true),
            OperationKind::Send => (Operation::send(memory()), len, !in_region),
            OperationKind::Invalidate => (Operation::invalidate(9), 0, false),
            OperationKind::Bind => (Operation::bind(KeptWindow(0), range(64), Rights::REMOTE_WRITE), 64, false),
            OperationKind::Sign => (Operation::sign(KeptKey(0), range(512), blocks()), 512, false),
            OperationKind::Respond => (Operation::respond(KeptKey(0), memory(), None), len, !in_region),
            _ => (Operation::write(memory(), PEER), len, !in_region),
        };
        // Every third operation is fenced, and each response.
        let fenced = tag % 3 == 2;
        let operation = if fenced { operation.fenced() } else { operation };
        let fenced = fenced || kind == OperationKind::Respond;
        (operation.tag(tag), Given { tag, user, kind, bytes, has_packet, fenced })
    }

    fn give(&mut self, user: usize, count: usize, kind: OperationKind, len: usize) {
        let mut made: Vec<_> = (0..count).map(|_| self.operation(user, kind, len)).collect();
        let given: Vec<_> = made.iter().map(|(_, given)| *given).collect();
        let stage = Shared::clone(&self.users[user]);
        let (queue, sends) = self.queue();
        let accepted = queue.accept_each(&stage, sends, count, |_| made.remove(0).0);
        let declined = accepted.declined.map(|declined| declined.reason);
        assert_eq!((accepted.count, declined), self.oracle.give_each(&given));
    }

    fn give_together(&mut self, user: usize, kind: OperationKind, len: usize) {
        let made = [(); 3].map(|()| self.operation(user, kind, len));
        let given = [made[0].1, made[1].1, made[2].1];
        let stage = Shared::clone(&self.users[user]);
        let (queue, sends) = self.queue();
        let declined = queue.accept(&stage, sends, made.map(|(operation, _)| operation)).err();
        if let Some(declined) = &declined {
            assert_eq!(declined.operation.each_ref().map(|back| back.tag), given.map(|given| given.tag));
        }
        assert_eq!(declined.map(|declined| declined.reason), self.oracle.give_together(&given));
    }

    fn take(&mut self, user: usize) {
        let mut done = Vec::with_capacity(self.oracle.shape.ops_wr);
        let expected = self.oracle.take(user);
        let (queue, _) = self.queue();
        assert_eq!(queue.has_done(user as u16), !expected.is_empty());
        queue.take_done(user as u16, &mut done);
        let outcome = |result| match result {
            Ok(()) => Outcome::Completed,
            Err(OperationError::Status(status)) => Outcome::Status(status),
            Err(OperationError::PortDown) => Outcome::PortDown,
            Err(OperationError::Refused(_)) => Outcome::Refused,
            Err(other) => panic!("{other}"),
        };
        let got = done.iter().map(|done| Taken {
            tag: done.tag,
            kind: done.kind,
            bytes: done.bytes as usize,
            len: done.packet().map(Packet::len),
            outcome: outcome(done.result),
        });
        assert_eq!(got.collect::<Vec<_>>(), expected);
    }

    fn end(&mut self, status: Status) -> bool {
        let qpn = self.port.qp.qpn();
        let Some(posted) = self.rig.script.queues().end_send(qpn, status) else { return false };
        self.oracle.ended(posted.signaled, status);
        true
    }

    /// Polls, like an lcore.
    fn poll(&mut self) {
        self.lcore.ctx.time.begin(false, true);
        let found = self.cq.poll(&mut self.completions);
        self.oracle.hear(found);
        for at in 0..found {
            self.port.complete::<false>(&self.completions.as_slice()[at], &mut self.lcore.ctx);
        }
        self.completions.clear();
    }

    fn turn(&mut self) {
        self.poll();
        let takes = self.rig.script.queues().takes();
        let _ = self.rig.script.queues().posts();
        let busy = self.oracle.work(takes);
        assert_eq!(self.port.work::<false>(&mut self.lcore.ctx), busy);
        let posts = self.rig.script.queues().posts();
        for post in &posts {
            assert!(post.refused || post.taken.last().is_some_and(|last| last.signaled), "the last is signaled");
        }
        let posted: Vec<_> = posts
            .iter()
            .flat_map(|post| &post.taken)
            .zip(&self.oracle.posted_now)
            // The bytes of a written configuration are the device's affair.
            .map(|(posted, (expected, _))| match *expected {
                UNKNOWN => (UNKNOWN, posted.fenced),
                _ => (posted.len_bytes as usize, posted.fenced),
            })
            .collect();
        assert_eq!(posted, self.oracle.posted_now, "what is posted, in order, and how");
        assert_eq!(posts.iter().map(|post| post.taken.len()).sum::<usize>(), posted.len());
    }

    fn check(&mut self) {
        let under_way = [0, 1].map(|user| self.queue().0.under_way(user));
        let room = self.queue().0.room();
        let (port, oracle) = (&self.port, &self.oracle);
        // A failure on RC takes receiving along.
        let health = if oracle.up { Health::Up } else { Health::Down };
        assert_eq!((port.health, under_way, room), (health, oracle.under_way, oracle.room()));
        assert_eq!(self.stats.under_way.value(), oracle.under_way.iter().sum::<usize>() as u64);
        let stats = &port.stats;
        let drops = [DropReason::TxFull, DropReason::PortDown, DropReason::SendError].map(|why| stats.drops.count(why));
        assert_eq!(drops, oracle.drops);
        let sent = [&stats.tx_packets, &stats.tx_bytes, &stats.tx_posts].map(|count| count.value());
        assert_eq!(sent, oracle.sent);
        assert_eq!([stats.tx_pending.value(), stats.tx_outstanding.value()], oracle.gauges);
        assert_eq!(self.stats.declined.value(), oracle.declined);
        for (kind, stats) in OperationKind::ALL.iter().zip(&self.stats.kinds) {
            let got = [&stats.posted, &stats.completed, &stats.failed, &stats.bytes].map(|count| count.value());
            assert_eq!(got, oracle.kinds[*kind as usize], "{kind:?}");
        }
        assert_eq!(port.is_settled(&self.lcore.ctx.sinks), oracle.is_settled());
        assert_eq!(port.awaits_completion(), !oracle.posted.is_empty());
    }

    /// Ends the run: operations under way are counted, and every packet comes back to the pool.
    fn finish(mut self) {
        let packets = self.oracle.abandoned_packets();
        assert_eq!(self.queue().0.abandon(), packets);
        assert_eq!((self.queue().0.room(), self.stats.under_way.value()), (self.oracle.shape.ops_wr, 0));
        let World { port, lcore, rig, .. } = self;
        drop((port, lcore));
        let account = rig.pool.account();
        assert_eq!((account.free, account.held), (account.packets, 0));
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    (1usize..8, 1usize..12, 1u32..12, 1usize..12, 1usize..9)
        .prop_map(|(tx_wr, ops_wr, signal_every_wr, room, burst)| Shape { tx_wr, ops_wr, signal_every_wr, room, burst })
}

fn step() -> impl Strategy<Value = Step> {
    let kinds = [
        OperationKind::Write,
        OperationKind::Read,
        OperationKind::Send,
        OperationKind::FetchAdd,
        OperationKind::Invalidate,
        OperationKind::Bind,
        OperationKind::Sign,
        OperationKind::Respond,
    ];
    let kind = || prop::sample::select(kinds.to_vec());
    let errors = vec![Status::REM_ACCESS_ERR, Status::RETRY_EXC_ERR, Status::WR_FLUSH_ERR];
    let errnos = prop::sample::select(vec![FULL, FULL, FULL, WRONG]);
    prop_oneof![
        16 => Just(Step::Turn),
        3 => Just(Step::Poll),
        6 => (1usize..6, 1usize..300).prop_map(|(count, len)| Step::Send(count, len)),
        8 => (0usize..2, 1usize..6, kind(), 1usize..300)
            .prop_map(|(user, count, kind, len)| Step::Give(user, count, kind, len)),
        4 => (0usize..2, kind(), 1usize..300).prop_map(|(user, kind, len)| Step::GiveTogether(user, kind, len)),
        8 => (0usize..2).prop_map(Step::Take),
        10 => (1usize..8).prop_map(Step::Done),
        1 => prop::sample::select(errors).prop_map(Step::Fail),
        3 => (0usize..6, errnos).prop_map(|(count, errno)| Step::TakeOnly(count, errno)),
        3 => Just(Step::TakeAll),
    ]
}

proptest! {
    #[test]
    fn a_port_carries_out_operations_and_counts_them_whatever_its_device_does(
        shape in shape(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new(shape);
        steps.iter().for_each(|step| world.step(*step));
        world.finish();
    }
}

const SMALL: Shape = Shape { tx_wr: 2, ops_wr: 6, signal_every_wr: 3, room: 8, burst: 4 };

fn run(steps: &[Step]) {
    let mut world = World::new(SMALL);
    steps.iter().for_each(|step| world.step(*step));
    world.finish();
}

#[test]
fn what_waits_when_the_port_goes_down_comes_back_to_the_stage_that_gave_it() {
    use Step::{Fail, Give, Send, Take, TakeOnly, Turn};
    let give = |user| Give(user, 2, OperationKind::Write, 10);
    let down = [TakeOnly(2, FULL), Turn, Fail(Status::REM_ACCESS_ERR), Turn];
    run(&[&[give(0), Send(1, 20), give(1)][..], &down, &[give(0), Take(0), Take(1)]].concat());
}

/// Regression: it was counted as out for ever, and once more as lost when the queue pair was
/// replaced.
#[test]
fn a_send_that_was_listed_and_never_posted_is_dropped_once() {
    use Step::{Fail, Send, TakeOnly, Turn};
    run(&[Send(2, 20), TakeOnly(1, FULL), Turn, Fail(Status::RETRY_EXC_ERR), Turn]);
}

/// Regression: it held a place of the send queue for ever.
#[test]
fn a_packet_that_cannot_be_sent_is_dropped_and_leaves_its_place_to_the_next() {
    let mut world = World::new(SMALL);
    let foreign = crate::rig::pool(3);
    for refused in 1..=3 {
        let mut packet = foreign.cache(0).get().unwrap();
        assert!(packet.set_len(20));
        assert!(world.lcore.ctx.sinks[PORT].push(packet));
        assert!(world.port.work::<false>(&mut world.lcore.ctx));
        let stats = &world.port.stats;
        assert_eq!((stats.drops.count(DropReason::SendError), stats.tx_outstanding.value()), (refused, 0));
        assert_eq!(foreign.account().held, 0);
    }
    (0..SMALL.tx_wr).for_each(|_| world.send(10));
    world.turn();
    assert_eq!(world.port.stats.tx_packets.value(), SMALL.tx_wr as u64);
}
