//! A port against a device that follows a script: it takes a part of a list, completes late,
//! refuses, fails, starves.
//!
//! After every turn, each counter of the port equals the oracle's. The oracle knows the offered
//! packets, the device's script and the polled completions, but nothing of the port. Compared as
//! well: the packets that the port handed on, its posts and which of them were signaled, when it
//! wants its next turn, and the lcore's notices.

mod oracle;

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use verbline_mem::{Batch, Packet};
use verbline_verbs::scripted_device::Post;
use verbline_verbs::{CompletionQueue, Completions, Status, Transport};

use self::oracle::{Oracle, Shape, Word};
use super::{Health, Port, STARVED_RETRY_NS};
use crate::control::notice::Notice;
use crate::control::run_control::{Control, LcoreInbox};
use crate::lcore::completing::complete_runs;
use crate::ports::rx_half::Receiving;
use crate::ports::sink::{Link, Sink, SinkStats};
use crate::ports::state::LcoreState;
use crate::ports::tx_half::Sending;
use crate::rig::figures::{Device, FULL, Figures, WRONG};
use crate::rig::log::errors_of;
use crate::rig::{DATA_BYTES, Depths, Rig, port};
use crate::stats::clock::Tick;
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::StageStats;
use crate::stats::drop_reason::DropReason;

/// The sinks of the model's lcore: the input of the stage that the port feeds, and the port's own.
const STAGE: usize = 0;
const PORT: usize = 1;
/// The port's place in the plan, which every received packet carries. Its place on its lcore is 0.
const PLACE: u16 = 7;
/// The header in front of every datagram.
const GRH_BYTES: u32 = 40;

/// One step of the model.
#[derive(Clone, Debug)]
enum Step {
    /// The lcore takes a turn.
    Turn,
    /// A stage hands on packets of this length.
    Offer(usize, usize),
    /// Messages arrive.
    Arrive(usize, u32),
    /// The device completes its oldest sends.
    Done(usize),
    FailSend(Status),
    FailRecv(Status),
    /// The device reports a completion twice.
    Repeat,
    /// Whether the stage behind it keeps its packets, or drops all that it has.
    Keep(bool),
    Pass(u64),
    /// The device takes this many more work requests, and refuses others with this errno.
    TakeOnly(usize, i32),
    TakeAll,
    Drain,
}

/// Whether each post is of sends, and which of its work requests are signaled.
fn signals(posts: &[Post]) -> Vec<(bool, Vec<bool>)> {
    let signals = |post: &Post| (post.sends, post.taken.iter().map(|posted| posted.signaled).collect());
    posts.iter().map(signals).collect()
}

/// The port and its surroundings.
struct World {
    oracle: Oracle,
    ports: Vec<Port>,
    lcore: LcoreState,
    stage: Shared<StageStats>,
    cq: CompletionQueue,
    completions: Completions,
    control: Arc<Control>,
    keeps: bool,
    kept: Vec<Packet>,
    /// The completions that wait in the device.
    coming: VecDeque<Word>,
    /// The sends done since the last send completion.
    quietly_done: usize,
    /// The errno of the device's refusals.
    errno: i32,
    /// How often the lcore was told that the port is down.
    told: usize,
    rig: Rig,
}

impl World {
    fn new(shape: &Shape) -> World {
        let rig = Rig::new(shape.packets);
        let cq = rig.context.create_cq(256, None).unwrap();
        let mut qp = rig.pd.create_qp(&Rig::spec(&cq, shape.transport, shape.depths, 0)).unwrap();
        rig.bring_up(&mut qp);
        let next = if shape.feeds { Link::Sink(STAGE as u16) } else { Link::Drop };
        let receiving = Receiving::new(0, next, shape.depths.rx_wr as usize, shape.burst, shape.timestamps);
        let sending = Sending::new(PORT, shape.depths.signal_every_wr, shape.depths.tx_wr as usize);
        let mut port = port(PLACE, qp, Some(receiving), Some(sending), None);
        let control = Arc::new(Control::new(vec![verbline_ring::doorbell().unwrap().0]));
        port.inbox = Some(LcoreInbox { control: Arc::clone(&control), lcore: 0 });
        let stage = shared::<StageStats>();
        let lcore = rig.lcore_state(
            vec![
                Sink::new(shape.room[STAGE], DropReason::StageFull, SinkStats::Stage(Shared::clone(&stage))),
                Sink::new(shape.room[PORT], DropReason::TxFull, SinkStats::Port(Shared::clone(&port.stats))),
            ],
            shape.cache,
        );
        World {
            oracle: Oracle::new(shape),
            ports: vec![port],
            lcore,
            stage,
            cq,
            completions: Completions::with_capacity(shape.burst),
            control,
            keeps: false,
            kept: Vec::new(),
            coming: VecDeque::new(),
            quietly_done: 0,
            errno: FULL,
            told: 0,
            rig,
        }
    }

    fn qpn(&self) -> u32 {
        self.ports[0].qp.qpn()
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Turn => self.turn(),
            Step::Offer(count, len) => (0..count).for_each(|_| self.offer(len)),
            Step::Arrive(count, len) => (0..count).for_each(|_| self.arrive(len)),
            Step::Done(count) => (0..count).for_each(|_| _ = self.end_send(Status::SUCCESS)),
            Step::FailSend(status) => {
                // The sends behind it are flushed, and on RC the posted receives as well.
                let failed = self.end_send(status);
                while failed && self.end_send(Status::WR_FLUSH_ERR) {}
                while failed && self.oracle.shape.transport == Transport::Rc && self.fail_recv(Status::WR_FLUSH_ERR) {}
            }
            Step::FailRecv(status) => {
                let failed = self.fail_recv(status);
                while failed && self.end_send(Status::WR_FLUSH_ERR) {}
                while failed && self.fail_recv(Status::WR_FLUSH_ERR) {}
            }
            Step::Repeat => {
                if self.rig.script.queues().repeat() {
                    self.coming.push_back(Word::Stale);
                }
            }
            Step::Keep(keeps) => {
                self.keeps = keeps;
                if !keeps {
                    self.kept.clear();
                }
            }
            Step::Pass(ns) => self.rig.time.pass(ns),
            Step::TakeOnly(count, errno) => {
                self.rig.script.queues().take_only(count, errno);
                self.errno = errno;
            }
            Step::TakeAll => self.rig.script.queues().take_all(),
            Step::Drain => self.drain(),
        }
    }

    fn drain(&mut self) {
        let mut device = Device { takes: self.rig.script.queues().takes(), errno: self.errno };
        let expected = self.oracle.drain(&mut device);
        self.ports[0].drain();
        assert_eq!(signals(&self.rig.script.queues().posts()), expected, "a marker or none");
    }

    fn offer(&mut self, len: usize) {
        let Some(mut packet) = self.lcore.ctx.caches[0].get() else { return };
        assert!(packet.set_len(len));
        self.lcore.ctx.sinks[PORT].push(packet);
        self.oracle.offer(len);
    }

    fn arrive(&mut self, len: u32) {
        let lead = if self.oracle.shape.transport == Transport::Ud { GRH_BYTES } else { 0 };
        if self.rig.script.queues().receive(self.qpn(), lead + len) {
            self.coming.push_back(Word::Received(len));
        }
    }

    fn end_send(&mut self, status: Status) -> bool {
        let Some(posted) = self.rig.script.queues().end_send(self.qpn(), status) else { return false };
        self.quietly_done += 1;
        if posted.signaled || !status.is_success() {
            let covered = std::mem::take(&mut self.quietly_done);
            self.coming.push_back(match status.is_success() {
                true => Word::Sent(covered),
                false => Word::SendFailed(status, covered),
            });
        }
        true
    }

    fn fail_recv(&mut self, status: Status) -> bool {
        let failed = self.rig.script.queues().fail_recv(self.qpn(), status);
        self.coming.extend(failed.then_some(Word::RecvFailed(status)));
        failed
    }

    /// Takes a turn, like an lcore.
    fn turn(&mut self) {
        self.lcore.ctx.time.begin(false, true);
        let now_ns = self.rig.time.now_ns();
        let found = self.cq.poll(&mut self.completions);
        let handed_on = self.oracle.hear(self.coming.drain(..found));
        match self.completions.as_slice() {
            [only] => self.ports[0].complete::<false>(only, &mut self.lcore.ctx),
            many => complete_runs::<false>(many, &mut self.ports, &mut self.lcore),
        }
        self.completions.clear();
        let stamp = if self.oracle.shape.timestamps { now_ns } else { 0 };
        let mut batch = Batch::with_capacity(self.oracle.shape.room[STAGE]);
        batch.swap(&mut self.lcore.ctx.sinks[STAGE].batch);
        let brought: Vec<_> = batch.iter().map(|packet| (packet.len(), packet.port(), packet.timestamp())).collect();
        assert_eq!(brought, handed_on.iter().map(|len| (*len as usize, PLACE, stamp)).collect::<Vec<_>>());
        if self.keeps {
            self.kept.extend(std::iter::from_fn(|| batch.take_first()));
        }
        drop(batch);
        self.work(now_ns);
    }

    fn work(&mut self, now_ns: Tick) {
        let Oracle { recvs, refill, ref sends, ref pending, .. } = self.oracle;
        let markers = usize::from(self.oracle.marker.is_some());
        let used = self.kept.len() + recvs + refill + sends.len() - markers + pending.len();
        let free = self.rig.pool.packets() as usize - used;
        let mut device = Device { takes: self.rig.script.queues().takes(), errno: self.errno };
        let expected = self.oracle.work(&mut device, free, now_ns);
        assert_eq!(self.ports[0].work::<false>(&mut self.lcore.ctx), self.oracle.busy, "whether it moved something");
        let posts = self.rig.script.queues().posts();
        assert_eq!(signals(&posts), expected, "sends or not, and what is signaled");
        self.check();
    }

    fn check(&mut self) {
        let (port, oracle) = (&self.ports[0], &self.oracle);
        assert_eq!(Figures::of(&port.stats), oracle.figures);
        assert_eq!(port.health, oracle.health);
        assert_eq!((port.retry_ns(), port.is_settled(&self.lcore.ctx.sinks)), (oracle.retry_ns, oracle.is_settled()));
        assert_eq!(self.stage.drops.count(DropReason::StageFull), oracle.stage_full);
        assert_eq!(self.lcore.ctx.stats.taken.value(), oracle.taken);
        if oracle.pending.is_empty() {
            let will_come = oracle.sends.contains(&true);
            // Without a place for its marker, a drain waits as long as it may; a queue pair that
            // has failed flushes its sends.
            let waits_in_vain = (oracle.ended || oracle.health != Health::Up) && !oracle.sends.is_empty();
            let waits = port.awaits_completion();
            assert!(will_come || waits_in_vain || !waits, "it waits for a completion that nobody was asked for");
            assert!(!will_come || !oracle.ended || port.awaits_completion(), "it does not wait for what was sent last");
        }
        let mut notices = Vec::new();
        self.control.read_notices(0, &mut notices);
        assert!(notices.iter().all(|notice| *notice == Notice::PortDown { port: 0 }), "{notices:?}");
        self.told += notices.len();
        assert_eq!(self.told, oracle.fell);
        // Without an address it does not come back, which ends the run.
        let lost = self.control.with(|progress| progress.lost_ports.clone());
        assert_eq!(lost, vec![usize::from(PLACE); self.told]);
    }

    /// Ends the run: every packet comes back to the pool.
    fn end(self) {
        let World { ports, lcore, kept, rig, .. } = self;
        drop((ports, kept, lcore));
        let account = rig.pool.account();
        assert_eq!((account.free, account.held), (account.packets, 0));
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let transport = prop_oneof![Just(Transport::Rc), Just(Transport::Uc), Just(Transport::Ud)];
    let depths = (1u32..12, 1u32..20).prop_flat_map(|(tx_wr, rx_wr)| {
        (1..=tx_wr).prop_map(move |signal_every_wr| Depths { tx_wr, rx_wr, signal_every_wr })
    });
    let sizes = (1usize..9, 1u32..48, 0usize..16);
    let behind = (any::<bool>(), 1usize..9, 1usize..9, any::<bool>());
    (transport, depths, sizes, behind).prop_map(|(transport, depths, sizes, behind)| {
        let ((burst, packets, cache), (feeds, input, pending, timestamps)) = (sizes, behind);
        Shape { transport, depths, burst, packets, cache, feeds, room: [input, pending], timestamps }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let errors = [
        Status::LOC_LEN_ERR,
        Status::LOC_PROT_ERR,
        Status::WR_FLUSH_ERR,
        Status::REM_ACCESS_ERR,
        Status::RETRY_EXC_ERR,
    ];
    let status = || prop::sample::select(errors.to_vec());
    prop_oneof![
        24 => Just(Step::Turn),
        8 => (1usize..6, 1usize..=DATA_BYTES as usize).prop_map(|(count, len)| Step::Offer(count, len)),
        8 => (1usize..6, 0..=DATA_BYTES).prop_map(|(count, len)| Step::Arrive(count, len)),
        8 => (1usize..6).prop_map(Step::Done),
        1 => status().prop_map(Step::FailSend),
        1 => status().prop_map(Step::FailRecv),
        1 => Just(Step::Repeat),
        3 => any::<bool>().prop_map(Step::Keep),
        6 => prop::sample::select(vec![1, 1_000, STARVED_RETRY_NS - 1, STARVED_RETRY_NS]).prop_map(Step::Pass),
        3 => (0usize..6, prop::sample::select(vec![FULL, WRONG]))
            .prop_map(|(count, errno)| Step::TakeOnly(count, errno)),
        3 => Just(Step::TakeAll),
        2 => Just(Step::Drain),
    ]
}

/// Runs these steps, and compares after each turn.
fn run(shape: &Shape, steps: &[Step]) {
    let mut world = World::new(shape);
    steps.iter().for_each(|step| world.step(step));
    world.end();
}

/// A small RC shape.
fn small() -> Shape {
    Shape {
        transport: Transport::Rc,
        depths: Depths { tx_wr: 5, rx_wr: 2, signal_every_wr: 4 },
        burst: 1,
        packets: 6,
        cache: 0,
        feeds: false,
        room: [1, 4],
        timestamps: false,
    }
}

#[test]
fn a_port_that_drains_waits_for_no_completion_that_nobody_was_asked_for() {
    use Step::{Done, Drain, Offer, TakeOnly, Turn};
    // The last send of the second batch, which would be signaled, is refused.
    run(&small(), &[Drain, Offer(1, 1), Turn, Done(1), TakeOnly(3, WRONG), Turn, Offer(4, 1), Turn]);
}

#[test]
fn what_is_dropped_is_not_pending_any_more() {
    use Step::{FailSend, Offer, TakeOnly, Turn};
    // Refused by the device; and by a port that is down, when some packets waited for room.
    run(&small(), &[Offer(2, 1), TakeOnly(0, WRONG), Turn, Turn]);
    run(
        &small(),
        &[Offer(2, 1), Turn, TakeOnly(0, FULL), Offer(2, 1), Turn, FailSend(Status::RETRY_EXC_ERR), Turn, Turn],
    );
}

#[test]
fn what_cannot_be_sent_is_said_once_and_not_once_a_packet() {
    use Step::{Offer, TakeOnly, Turn};
    let refused = |errno| errors_of(|| run(&small(), &[Turn, Offer(3, 1), TakeOnly(0, errno), Turn, Turn, Turn]));
    assert_eq!((refused(WRONG), refused(FULL)), (1, 0));
}

proptest! {
    #[test]
    fn a_port_does_and_counts_what_it_should_whatever_its_device_does(
        shape in shape(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(&shape, &steps);
    }
}
