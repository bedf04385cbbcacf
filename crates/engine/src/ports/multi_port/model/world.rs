//! A port with many connections, and its surroundings.

mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

use verbline_mem::{ConnectionId, Packet};
use verbline_verbs::{CompletionQueue, Completions, QpSpec, SrqSpec, Status, Transport};

use super::cm_thread::CmThread;
use super::oracle::{Message, Oracle, Shape, Word};
use super::{PLACE, PORT, STAGE, Step, To};
use crate::connection::cm_mailbox::CmMailbox;
use crate::control::run_control::{Control, LcoreInbox};
use crate::ports::context::LcoreContext;
use crate::ports::multi_port::{ManyReceiving, ManySending, MultiPort, MultiPortSpec};
use crate::ports::rx_half::{Delivery, Receiving};
use crate::ports::sink::{Link, Sink, SinkStats};
use crate::ports::state::LcoreState;
use crate::ports::tx_half::Sending;
use crate::rig::figures::{Device, FULL};
use crate::rig::{Rig, no_run};
use crate::stats::connection_counters::ConnectionsStats;
use crate::stats::counter::{Shared, shared};
use crate::stats::counters::{LcoreStats, PortStats, StageStats};
use crate::stats::drop_reason::DropReason;
use crate::stats::sampling::Weights;
use crate::stats::turn_time::TurnTime;

/// The device's name for a failed queue pair.
const EVENT: &str = "an event";

pub(super) struct World {
    oracle: Oracle,
    cm_thread: CmThread,
    lcore: LcoreState,
    stats: Shared<PortStats>,
    counts: Shared<ConnectionsStats>,
    stage: Shared<StageStats>,
    cq: CompletionQueue,
    completions: Completions,
    /// The last poll emptied the completion queue.
    is_emptied: bool,
    control: Arc<Control>,
    keeps: bool,
    kept: Vec<Packet>,
    /// The completions that wait in the device, and their queue pairs.
    coming: VecDeque<(u32, Word)>,
    /// The queue pair of the last polled completion.
    heard: Option<u32>,
    /// The sends done since the last send completion.
    quietly_done: BTreeMap<u32, usize>,
    /// Queue pairs that have failed.
    failed: BTreeSet<u32>,
    rig: Rig,
}

impl World {
    pub(super) fn new(shape: &Shape) -> World {
        let rig = Rig::new(shape.packets);
        let cq = rig.context.create_cq(512, None).unwrap();
        let Shape { depths, connections, burst, .. } = *shape;
        let srq = shape.shares.then(|| rig.pd.create_srq(&SrqSpec::new(Transport::Rc, depths.rx_wr)).unwrap());
        let maker = rig.pd.qp_maker(&QpSpec { srq: srq.as_ref(), ..Rig::spec(&cq, Transport::Rc, depths, 0) });
        let next = if shape.feeds { Link::Sink(STAGE as u16) } else { Link::Drop };
        let next = if shape.immediates { Delivery::from(next).one_by_one() } else { next.into() };
        let queue = Receiving::new(0, next, depths.rx_wr as usize, burst, shape.timestamps);
        let receiving = ManyReceiving::new(srq, queue, burst, connections);
        let [_, pending] = shape.room;
        let half = || Sending::new(PORT, depths.signal_every_wr, depths.tx_wr as usize);
        let sending = shape.sends.then(|| ManySending::new(half(), shape.most_wr, pending));
        let control = Arc::new(Control::new(vec![verbline_ring::doorbell().unwrap().0]));
        let inbox = LcoreInbox { control: Arc::clone(&control), lcore: 0 };
        let mailbox = Arc::new(CmMailbox::new(inbox, 0, connections).unwrap());
        let (stats, counts) = (shared::<PortStats>(), shared::<ConnectionsStats>());
        let (stage, lcore) = (shared::<StageStats>(), shared::<LcoreStats>());
        let mut port = MultiPort::new(MultiPortSpec {
            name: "port".into(),
            index: PLACE,
            connections,
            receiving: Some(receiving),
            sending,
            any: shape.any,
            mailbox: Arc::clone(&mailbox),
            stats: Shared::clone(&stats),
            counts: Shared::clone(&counts),
        });
        let caches = [rig.pool.cache(shape.cache)];
        port.fill_first(&caches[0], &lcore);
        let mut oracle = Oracle::new(shape, Device { takes: usize::MAX, errno: FULL });
        oracle.fill(shape.packets as usize);
        let ctx = LcoreContext {
            sinks: vec![
                Sink::new(shape.room[STAGE], DropReason::StageFull, SinkStats::Stage(Shared::clone(&stage))),
                Sink::new(shape.room[PORT], DropReason::TxFull, SinkStats::Port(Shared::clone(&stats))),
            ],
            caches: caches.into_iter().map(|cache| cache.bind()).collect(),
            time: TurnTime::new(rig.time.clock(), Shared::clone(&lcore)),
            stats: lcore,
            weights: Weights::default(),
            stage_ended: None,
            tap: None,
        };
        World {
            oracle,
            cm_thread: CmThread::new(mailbox, maker, connections),
            lcore: LcoreState { ctx, many: vec![port], failing: no_run() },
            stats,
            counts,
            stage,
            cq,
            completions: Completions::with_capacity(burst),
            is_emptied: true,
            control,
            keeps: false,
            kept: Vec::new(),
            coming: VecDeque::new(),
            heard: None,
            quietly_done: BTreeMap::new(),
            failed: BTreeSet::new(),
            rig,
        }
    }
}

/// The steps.
impl World {
    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Turn => self.turn(true),
            Step::DeafTurn => self.turn(false),
            Step::Expect => {
                let message = self.cm_thread.expect(&self.rig);
                self.say(message);
            }
            Step::Open(which) => {
                let message = self.cm_thread.open(which);
                self.say(message);
            }
            Step::Forget(which) => {
                let message = self.cm_thread.forget(which);
                self.say(message);
            }
            Step::Close(which) => {
                let message = self.cm_thread.close(which);
                self.say(message);
            }
            Step::Force(which) => {
                let message = self.cm_thread.force(which);
                self.say(message);
            }
            Step::Destroy => self.destroy(),
            Step::Offer(..) if !self.oracle.shape.sends => {}
            Step::Offer(to, count, len) => (0..count).for_each(|_| self.offer(to, len)),
            Step::Shut(which) => self.shut(which),
            Step::Arrive(which, count, len) => (0..count).for_each(|_| self.arrive(which, len)),
            Step::Done(which, count) => (0..count).for_each(|_| self.done(which)),
            Step::FailSend(which, status) => self.fail(which, |world, qpn| world.end_send(qpn, status)),
            Step::FailRecv(which, status) => self.fail(which, |world, qpn| world.fail_recv(qpn, status)),
            Step::Event(which) => {
                if let Some(qpn) = self.one(which) {
                    self.failed.insert(qpn);
                    self.lcore.many[0].qp_failed(qpn, EVENT, &mut self.lcore.ctx.sinks);
                    self.oracle.qp_failed(qpn, EVENT);
                }
            }
            Step::Repeat => {
                if self.rig.script.queues().repeat() {
                    // A queue pair that is gone completes nothing.
                    let heard = self.heard.filter(|qpn| self.cm_thread.all.iter().any(|made| made.qpn == *qpn));
                    self.coming.extend(heard.map(|qpn| (qpn, Word::Stale)));
                }
            }
            Step::Keep(keeps) => {
                self.keeps = keeps;
                if !keeps {
                    self.kept.clear();
                }
            }
            Step::Pass(ns) => self.rig.time.pass(ns),
            Step::TakeOnly(takes, errno) => {
                self.rig.script.queues().take_only(takes, errno);
                self.oracle.device = Device { takes, errno };
            }
            Step::TakeAll => {
                self.rig.script.queues().take_all();
                self.oracle.device.takes = usize::MAX;
            }
            Step::Drain => {
                self.lcore.many[0].drain();
                self.oracle.drain();
            }
        }
    }

    fn say(&mut self, message: Option<Message>) {
        self.oracle.inbox.extend(message);
    }

    fn destroy(&mut self) {
        for qpn in self.cm_thread.destroy() {
            self.coming.retain(|(of, _)| *of != qpn);
            self.quietly_done.remove(&qpn);
            self.failed.remove(&qpn);
        }
    }

    /// Returns a connection that exists or existed.
    fn id(&self, which: usize) -> Option<ConnectionId> {
        let ids = &self.cm_thread.ids;
        (!ids.is_empty()).then(|| ids[ids.len() - 1 - which % ids.len()])
    }

    fn offer(&mut self, to: To, len: usize) {
        let to = match to {
            To::One(which) => self.id(which),
            To::Foreign(which) => {
                let id = self.id(which);
                id.and_then(|id| ConnectionId::new(PLACE + 1, id.slot() as u16, id.generation()))
            }
            To::Nobody => None,
        };
        let Some(mut packet) = self.lcore.ctx.caches[0].get() else { return };
        assert!(packet.set_len(len));
        packet.set_connection(to);
        self.lcore.ctx.sinks[PORT].push(packet);
        self.oracle.offer(to, len as u32);
    }

    fn shut(&mut self, which: usize) {
        if let Some(id) = self.id(which) {
            assert_eq!(self.lcore.many[0].close(id), self.oracle.close(id));
            assert_eq!(self.lcore.many[0].closes, self.oracle.closes, "each once");
        }
    }

    /// Returns the number of a queue pair.
    fn one(&self, which: usize) -> Option<u32> {
        let all = &self.cm_thread.all;
        (!all.is_empty()).then(|| all[which % all.len()].qpn)
    }

    /// Whether work posted to it is flushed.
    fn is_dead(&self, qpn: u32) -> bool {
        self.failed.contains(&qpn) || self.rig.script.queues().in_error().contains(&qpn)
    }

    fn arrive(&mut self, which: usize, len: u32) {
        let Some(qpn) = self.one(which).filter(|qpn| !self.is_dead(*qpn)) else { return };
        if self.rig.script.queues().receive(qpn, len) {
            self.coming.push_back((qpn, Word::Received(len)));
        }
    }

    /// Completes the oldest send; for a queue pair in error, the oldest work request.
    fn done(&mut self, which: usize) {
        let Some(qpn) = self.one(which) else { return };
        match self.is_dead(qpn) {
            false => _ = self.end_send(qpn, Status::SUCCESS),
            true => _ = self.end_send(qpn, Status::WR_FLUSH_ERR) || self.flush_recv(qpn),
        }
    }

    /// Fails a queue pair by `how`, if that is possible. The work behind it is flushed.
    fn fail(&mut self, which: usize, mut how: impl FnMut(&mut World, u32) -> bool) {
        let Some(qpn) = self.one(which).filter(|qpn| !self.is_dead(*qpn)) else { return };
        if how(self, qpn) {
            self.failed.insert(qpn);
            while self.end_send(qpn, Status::WR_FLUSH_ERR) || self.flush_recv(qpn) {}
        }
    }

    fn end_send(&mut self, qpn: u32, status: Status) -> bool {
        let Some(posted) = self.rig.script.queues().end_send(qpn, status) else { return false };
        let quietly = self.quietly_done.entry(qpn).or_default();
        *quietly += 1;
        if posted.signaled || !status.is_success() {
            let covered = mem::take(quietly);
            let word = if status.is_success() { Word::Sent(covered) } else { Word::SendFailed(status, covered) };
            self.coming.push_back((qpn, word));
        }
        true
    }

    /// Receives in the shared queue belong to no queue pair, and stay.
    fn flush_recv(&mut self, qpn: u32) -> bool {
        !self.oracle.shape.shares && self.fail_recv(qpn, Status::WR_FLUSH_ERR)
    }

    fn fail_recv(&mut self, qpn: u32, status: Status) -> bool {
        let failed = self.rig.script.queues().fail_recv(qpn, status);
        self.coming.extend(failed.then_some((qpn, Word::RecvFailed(status))));
        failed
    }
}
