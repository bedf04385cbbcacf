//! A port against a device that does as it is told: it takes a part of what it is handed, completes late, refuses, fails, starves.
//!
//! After every turn each counter of the port is what an oracle says, which knows what was offered, what the device was told to do and
//! what a poll has found, and nothing of the port. So is what the port handed on, what it posted and which of that was signaled, when
//! it wants its next turn, and what its lcore was told.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use rustix::io::Errno;
use verbline_mem::{Batch, Packet};
use verbline_verbs::script::Post;
use verbline_verbs::{CompletionQueue, Completions, Status, Transport};

use super::{Health, Port, Receiving, STARVED_RETRY_NS, Sending};
use crate::api::outputs::{Link, Sink, SinkStats};
use crate::control::notice::Notice;
use crate::control::run_control::{Control, LcoreInbox};
use crate::lcore::node::Surroundings;
use crate::lcore::poll_loop::complete_runs;
use crate::rig::{DATA_BYTES, Depths, Rig, port};
use crate::stats::clock::Tick;
use crate::stats::count::{Shared, shared};
use crate::stats::counters::{LcoreStats, PortStats, STATUSES, StageStats};
use crate::stats::down_reason::DownReason;
use crate::stats::drop_reason::{DropReason, REASONS};
use crate::stats::sampling::Weights;
use crate::stats::turn_time::TurnTime;

/// The sinks of the model's lcore: of the stage that the port feeds, and the port's own.
const STAGE: usize = 0;
const PORT: usize = 1;
/// The port's place in the plan, which every packet that it brings carries. Its place on its lcore is 0.
const PLACE: u16 = 7;
/// What stands in front of every datagram.
const GRH_BYTES: u32 = 40;
/// How a device refuses whose queue is full, and one to which something is wrong.
const FULL: i32 = Errno::NOMEM.raw_os_error();
const WRONG: i32 = Errno::INVAL.raw_os_error();

/// What the port is.
#[derive(Clone, Debug)]
struct Shape {
    transport: Transport,
    depths: Depths,
    burst: usize,
    /// Packets of the pool, and of the lcore's cache of it.
    packets: u32,
    cache: usize,
    /// Whether a stage is behind it, or nobody.
    feeds: bool,
    /// Room in the stage's input, and in the port's.
    room: [usize; 2],
    timestamps: bool,
}

/// What happens.
#[derive(Clone, Debug)]
enum Step {
    /// The lcore takes a turn.
    Turn,
    /// A stage hands on so many packets of this length.
    Offer(usize, usize),
    /// Messages come.
    Arrive(usize, u32),
    /// The device is done with its oldest sends.
    Done(usize),
    FailSend(Status),
    FailRecv(Status),
    /// The device says something twice.
    Repeat,
    /// Whether the stage behind it keeps what it gets, or lets go of all that it has.
    Keep(bool),
    Pass(u64),
    /// The device takes so many more work requests, and refuses others with this errno.
    TakeOnly(usize, i32),
    TakeAll,
    Drain,
}

/// What a completion says that is not polled yet.
#[derive(Clone, Copy, Debug)]
enum Word {
    Received(u32),
    RecvFailed(Status),
    /// So many sends, this and those before it, are done.
    Sent(usize),
    SendFailed(Status, usize),
    Stale,
}

/// What should be.
#[derive(Debug)]
struct Oracle {
    shape: Shape,
    health: Health,
    draining: bool,
    /// Lengths of what waits in the port's sink.
    pending: VecDeque<u64>,
    /// What is posted and not known to be done: of sends, whether they are signaled.
    recvs: usize,
    sends: VecDeque<bool>,
    /// Sends until one is signaled.
    until_signal: u32,
    /// The end of the last batch was signaled, as ends are in a drain.
    ended: bool,
    /// On their way into the receive queue.
    refill: usize,
    retry_ns: Option<Tick>,
    /// Times that its lcore was told that it is down.
    fell: usize,
    figures: Figures,
    stage_full: u64,
    taken: u64,
}

/// The counters of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Figures {
    rx_packets: u64,
    rx_bytes: u64,
    rx_posted: u64,
    rx_starved: u64,
    rx_outstanding: u64,
    tx_packets: u64,
    tx_bytes: u64,
    tx_posts: u64,
    tx_outstanding: u64,
    tx_pending: u64,
    stale: u64,
    down: u64,
    down_reason: u64,
    statuses: [u64; STATUSES],
    drops: [u64; REASONS],
}

impl Figures {
    fn of(stats: &PortStats) -> Figures {
        let mut drops = [0; REASONS];
        stats.drops.non_zero().for_each(|(reason, packets)| drops[reason] = packets);
        Figures {
            rx_packets: stats.rx_packets.value(),
            rx_bytes: stats.rx_bytes.value(),
            rx_posted: stats.rx_posted.value(),
            rx_starved: stats.rx_starved.value(),
            rx_outstanding: stats.rx_outstanding.value(),
            tx_packets: stats.tx_packets.value(),
            tx_bytes: stats.tx_bytes.value(),
            tx_posts: stats.tx_posts.value(),
            tx_outstanding: stats.tx_outstanding.value(),
            tx_pending: stats.tx_pending.value(),
            stale: stats.stale.value(),
            down: stats.down.value(),
            down_reason: stats.down_reason.value(),
            statuses: std::array::from_fn(|status| stats.statuses[status].value()),
            drops,
        }
    }
}

/// What the device does with what it is handed: how many more it takes, and how it refuses.
#[derive(Clone, Copy, Debug)]
struct Device {
    takes: usize,
    errno: i32,
}

impl Device {
    /// How many of so many it takes.
    fn take(&mut self, offered: usize) -> usize {
        let taken = offered.min(self.takes);
        if self.takes != usize::MAX {
            self.takes -= taken;
        }
        taken
    }
}

impl Oracle {
    fn new(shape: &Shape) -> Oracle {
        Oracle {
            shape: shape.clone(),
            health: Health::Up,
            draining: false,
            pending: VecDeque::new(),
            recvs: 0,
            sends: VecDeque::new(),
            until_signal: shape.depths.signal_every_wr,
            ended: false,
            refill: 0,
            retry_ns: None,
            fell: 0,
            figures: Figures::default(),
            stage_full: 0,
            taken: 0,
        }
    }

    fn drop_some(&mut self, reason: DropReason, packets: usize) {
        self.figures.drops[reason.index()] += packets as u64;
    }

    fn offer(&mut self, len: usize) {
        match self.pending.len() < self.shape.room[PORT] {
            true => self.pending.push_back(len as u64),
            false => self.drop_some(DropReason::TxFull, 1),
        }
    }

    fn goes_down(&mut self, left: Health, reason: DownReason) {
        self.fell += usize::from(self.health == Health::Up);
        self.health = self.health.max(left);
        self.figures.down = 1;
        if DownReason::is_vague(self.figures.down_reason) {
            self.figures.down_reason = reason.number();
        }
    }

    fn fails(&mut self, status: Status, left: Health) {
        self.figures.statuses[status.raw() as usize] += 1;
        self.goes_down(left, DownReason::of_status(status));
    }

    /// A poll has found these. Gives the lengths of the messages that the stage gets.
    fn hear(&mut self, words: impl Iterator<Item = Word>) -> Vec<u32> {
        let mut handed_on = Vec::new();
        for word in words {
            match word {
                Word::Received(len) => {
                    self.recvs -= 1;
                    self.figures.rx_packets += 1;
                    self.figures.rx_bytes += u64::from(len);
                    match self.shape.feeds {
                        false => self.drop_some(DropReason::Planned, 1),
                        true if handed_on.len() == self.shape.room[STAGE] => self.stage_full += 1,
                        true => handed_on.push(len),
                    }
                }
                Word::RecvFailed(status) => {
                    self.recvs -= 1;
                    self.drop_some(DropReason::RecvError, usize::from(status != Status::WR_FLUSH_ERR));
                    self.fails(status, Health::Down);
                }
                Word::Sent(covered) => drop(self.sends.drain(..covered)),
                Word::SendFailed(status, covered) => {
                    self.sends.drain(..covered);
                    self.drop_some(DropReason::SendError, 1);
                    // Of UC and UD only the send queue fails (InfiniBand Architecture Specification, 10.3.1).
                    let left = if self.shape.transport == Transport::Rc { Health::Down } else { Health::SendsDown };
                    self.fails(status, left);
                }
                Word::Stale => self.figures.stale += 1,
            }
        }
        handed_on
    }

    /// What the port then does with a device like this, where so many packets are free in the pool. Gives the posts.
    fn work(&mut self, device: &mut Device, free: usize, now_ns: Tick) -> Vec<(bool, Vec<bool>)> {
        let waited = self.pending.len() + self.sends.len();
        let mut posts = self.flush(device);
        let free = free + waited - self.pending.len() - self.sends.len();
        let worth = self.shape.burst.min(self.depth()).min(self.depth().div_ceil(4)).max(1);
        let due = self.retry_ns.map_or(self.missing() >= worth, |retry_ns| retry_ns <= now_ns);
        if due && self.health < Health::Down {
            self.fill(device, free, now_ns, &mut posts);
        }
        self.figures.tx_outstanding = self.sends.len() as u64;
        self.figures.tx_pending = self.pending.len() as u64;
        posts
    }

    fn flush(&mut self, device: &mut Device) -> Vec<(bool, Vec<bool>)> {
        let offered = self.pending.len();
        let fits = offered.min(self.shape.depths.tx_wr as usize - self.sends.len());
        if self.health != Health::Up {
            self.drop_some(DropReason::PortDown, offered);
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
            self.drop_some(DropReason::SendError, 1);
        }
        vec![(true, signals)]
    }

    fn depth(&self) -> usize {
        self.shape.depths.rx_wr as usize
    }

    fn missing(&self) -> usize {
        self.depth() - self.recvs
    }

    /// Fills the receive queue, a burst at a time, for as long as there are packets and the device takes all.
    fn fill(&mut self, device: &mut Device, mut free: usize, now_ns: Tick, posts: &mut Vec<(bool, Vec<bool>)>) {
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

    /// What the port says of itself after a turn: whether the next one has nothing to do, and when it wants one.
    fn is_settled(&self) -> bool {
        let worth = self.shape.burst.min(self.depth()).min(self.depth().div_ceil(4)).max(1);
        self.pending.is_empty() && self.retry_ns.is_none() && self.missing() < worth
    }
}

/// The port with all that it stands on.
struct World {
    oracle: Oracle,
    ports: Vec<Port>,
    around: Surroundings,
    stage: Shared<StageStats>,
    cq: CompletionQueue,
    completions: Completions,
    control: Arc<Control>,
    keeps: bool,
    kept: Vec<Packet>,
    /// What the completions say that wait in the device.
    coming: VecDeque<Word>,
    /// Sends that are done since the last completion of one.
    quietly_done: usize,
    /// How the device refuses.
    errno: i32,
    /// Times that the lcore was told that the port is down.
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
        let (stage, stats) = (shared::<StageStats>(), shared::<LcoreStats>());
        let around = Surroundings {
            sinks: vec![
                Sink::new(shape.room[STAGE], DropReason::StageFull, SinkStats::Stage(Shared::clone(&stage))),
                Sink::new(shape.room[PORT], DropReason::TxFull, SinkStats::Port(Shared::clone(&port.stats))),
            ],
            caches: vec![rig.pool.cache(shape.cache).bind()],
            time: TurnTime::new(rig.time.clock(), Shared::clone(&stats)),
            stats,
            weights: Weights::default(),
            stage_ended: None,
        };
        World {
            oracle: Oracle::new(shape),
            ports: vec![port],
            around,
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
                // What is behind it is flushed, and on RC what waits for messages as well.
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
            Step::Drain => {
                self.ports[0].drain();
                self.oracle.draining = true;
            }
        }
    }

    fn offer(&mut self, len: usize) {
        let Some(mut packet) = self.around.caches[0].get() else { return };
        assert!(packet.set_len(len));
        self.around.sinks[PORT].push(packet);
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

    /// As an lcore does.
    fn turn(&mut self) {
        self.around.time.begin(false, true);
        let now_ns = self.rig.time.now_ns();
        let found = self.cq.poll(&mut self.completions);
        let handed_on = self.oracle.hear(self.coming.drain(..found));
        match self.completions.as_slice() {
            [only] => self.ports[0].complete(only, &mut self.around),
            many => complete_runs(many, &mut self.ports, &mut self.around),
        }
        self.completions.clear();
        let stamp = if self.oracle.shape.timestamps { now_ns } else { 0 };
        let mut batch = Batch::with_capacity(self.oracle.shape.room[STAGE]);
        batch.swap(&mut self.around.sinks[STAGE].batch);
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
        let used = self.kept.len() + recvs + refill + sends.len() + pending.len();
        let free = self.rig.pool.packets() as usize - used;
        let mut device = Device { takes: self.rig.script.queues().takes(), errno: self.errno };
        let expected = self.oracle.work(&mut device, free, now_ns);
        self.ports[0].work(&mut self.around);
        let posts = self.rig.script.queues().posts();
        let signals = |post: &Post| (post.sends, post.taken.iter().map(|posted| posted.signaled).collect::<Vec<_>>());
        assert_eq!(posts.iter().map(signals).collect::<Vec<_>>(), expected, "sends or not, and what is signaled");
        self.check();
    }

    fn check(&mut self) {
        let (port, oracle) = (&self.ports[0], &self.oracle);
        assert_eq!(Figures::of(&port.stats), oracle.figures);
        assert_eq!(port.health, oracle.health);
        assert_eq!((port.retry_ns(), port.is_settled(&self.around.sinks)), (oracle.retry_ns, oracle.is_settled()));
        assert_eq!(self.stage.drops.count(DropReason::StageFull), oracle.stage_full);
        assert_eq!(self.around.stats.taken.value(), oracle.taken);
        if oracle.pending.is_empty() && oracle.health == Health::Up {
            let will_come = oracle.sends.contains(&true);
            assert!(will_come || !port.awaits_completion(), "it waits for a completion that nobody was asked for");
            assert!(!will_come || !oracle.ended || port.awaits_completion(), "it does not wait for what was sent last");
        }
        let mut notices = Vec::new();
        self.control.hear(0, &mut notices);
        assert!(notices.iter().all(|notice| *notice == Notice::Fell { port: 0 }), "{notices:?}");
        self.told += notices.len();
        assert_eq!(self.told, oracle.fell);
        // Without an address it does not come back, which ends the run.
        let lost = self.control.with(|progress| progress.lost_ports.clone());
        assert_eq!(lost, vec![usize::from(PLACE); self.told]);
    }

    /// Everything comes back to the pool.
    fn end(self) {
        let World { ports, around, kept, rig, .. } = self;
        drop((ports, kept, around));
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
        3 => (0usize..6, prop::sample::select(vec![FULL, FULL, FULL, WRONG]))
            .prop_map(|(count, errno)| Step::TakeOnly(count, errno)),
        3 => Just(Step::TakeAll),
        1 => Just(Step::Drain),
    ]
}

proptest! {
    #[test]
    fn a_port_does_and_counts_what_it_should_whatever_its_device_does(
        shape in shape(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new(&shape);
        steps.iter().for_each(|step| world.step(step));
        world.end();
    }
}
