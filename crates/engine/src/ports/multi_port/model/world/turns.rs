//! The turns of the model, taken like an lcore's, and the comparisons after each.

use std::mem;

use verbline_mem::{Batch, Packet};
use verbline_verbs::scripted_device::Post;

use super::super::oracle::{Answer, Call, Counts};
use super::super::{PLACE, STAGE};
use super::World;
use crate::connection::event::ConnectionChange;
use crate::control::notice::Notice;
use crate::lcore::completing::complete_runs;
use crate::ports::state::LcoreState;
use crate::rig::figures::Figures;
use crate::stats::connection_counters::ConnectionsStats;
use crate::stats::drop_reason::DropReason;

impl World {
    pub(super) fn turn(&mut self, listens: bool) {
        self.lcore.ctx.time.begin(false, true);
        self.oracle.now_ns = self.rig.time.now_ns();
        if listens {
            self.listen();
        }
        let found = self.cq.poll(&mut self.completions);
        self.is_emptied = found < self.completions.capacity();
        for (qpn, word) in self.coming.drain(..found) {
            self.heard = Some(qpn);
            self.oracle.hear(qpn, word);
        }
        complete_runs::<false>(self.completions.as_slice(), &mut [], &mut self.lcore);
        self.completions.clear();
        self.take_input();
        self.work();
        self.check();
    }

    /// Reads notices, like an lcore with a notice for the port.
    fn listen(&mut self) {
        let mut notices = Vec::new();
        self.control.read_notices(0, &mut notices);
        assert!(notices.iter().all(|notice| *notice == Notice::Connections { port: 0 }), "{notices:?}");
        assert!(!self.oracle.has_news() || !notices.is_empty(), "nobody calls the lcore for {:?}", self.oracle);
        if notices.is_empty() {
            return;
        }
        self.lcore.many[0].heard();
        let mut waits = self.tell();
        if !waits {
            let any = self.lcore.many[0].take_messages(self.is_emptied, &mut self.lcore.ctx.sinks);
            assert_eq!(any, self.oracle.take_messages(self.is_emptied));
            waits = self.tell();
        }
        if waits {
            self.lcore.many[0].tell_later();
        }
    }

    /// Tells the stages their events. Returns true if more have to wait.
    fn tell(&mut self) -> bool {
        let mut waits = self.hand_on_early();
        while !waits {
            let change = self.lcore.many[0].next_change();
            assert_eq!(change, self.oracle.changes.pop_front());
            let Some((id, change)) = change else { break };
            // Stages ask for the peer as they are told of a connection, even if it is over by then.
            let tag = self.lcore.many[0].peer(id).map(|peer| peer.tag);
            let known = (change == ConnectionChange::Opened).then(|| u64::from(id.generation()));
            assert_eq!(tag, known, "who is at the other end of {id} that is {change:?}");
            if change != ConnectionChange::Opened {
                self.oracle.answers.push(Answer::Told(id.generation().into()));
            }
            if change == ConnectionChange::Opened {
                self.lcore.many[0].told_of(id);
                self.oracle.told_of(id);
                waits = self.hand_on_early();
            }
        }
        waits
    }

    fn hand_on_early(&mut self) -> bool {
        let LcoreState { ctx, many, .. } = &mut self.lcore;
        let any = many[0].hand_on_early(ctx);
        assert_eq!(any, self.oracle.hand_on_early());
        any
    }

    /// The stage takes its input.
    fn take_input(&mut self) {
        let mut batch = Batch::with_capacity(self.oracle.shape.room[STAGE]);
        batch.swap(&mut self.lcore.ctx.sinks[STAGE].batch);
        assert!(batch.iter().all(|packet| packet.port() == PLACE));
        let handed = |packet: &Packet| (packet.connection(), packet.len(), packet.timestamp());
        assert_eq!(batch.iter().map(handed).collect::<Vec<_>>(), mem::take(&mut self.oracle.stage));
        if self.keeps {
            self.kept.extend(std::iter::from_fn(|| batch.take_first()));
        }
    }

    fn work(&mut self) {
        let account = self.rig.pool.account();
        let busy = self.oracle.work((account.free + account.cached) as usize);
        let LcoreState { ctx, many, .. } = &mut self.lcore;
        assert_eq!(many[0].work(ctx), busy, "whether there was work");
        let posts = self.rig.script.queues().posts();
        let call = |post: &Post| -> Call {
            (post.qpn, post.sends, post.taken.iter().map(|posted| (posted.signaled, posted.len_bytes)).collect())
        };
        let calls = mem::take(&mut self.oracle.calls);
        assert_eq!(joined(posts.iter().map(call)), joined(calls.into_iter()), "what is posted");
        assert_eq!(self.cm_thread.answers(), mem::take(&mut self.oracle.answers), "what the cm thread is told");
    }

    fn check(&self) {
        let (port, oracle) = (&self.lcore.many[0], &self.oracle);
        assert_eq!(Figures::of(&self.stats), oracle.figures);
        let ConnectionsStats { opened, closed, failed, open, open_max, .. } = &**self.counts;
        let [opened, closed, failed, open, open_max] =
            [opened, closed, failed, open, open_max].map(|count| count.value());
        assert_eq!(Counts { opened, closed, failed, open, open_max }, oracle.counts);
        assert_eq!(self.stage.drops.count(DropReason::StageFull), oracle.stage_full);
        assert_eq!(self.lcore.ctx.stats.taken.value(), oracle.taken);
        assert_eq!(port.is_settled(&self.lcore.ctx), oracle.is_settled());
        assert_eq!(port.awaits_completion(), oracle.awaits_completion());
        assert!(!port.awaits_completion() || oracle.asked_for_completion(), "nobody was asked for one");
        // The port keeps nothing of a connection that is over, or it would grow.
        let open: Vec<_> = port.open.iter().map(|at| usize::from(*at)).collect();
        assert_eq!((&open, &port.forced), (&oracle.open, &oracle.forced));
        assert_eq!(port.receiving.as_ref().and_then(|receiving| receiving.opening), oracle.opening);
        assert!(open.iter().enumerate().all(|(place, at)| port.slots[*at].open_at == place), "{open:?}");
        for made in &self.cm_thread.all {
            assert_eq!(port.by_qpn.slot(made.qpn), oracle.place_of(made.qpn), "queue pair {:#x}", made.qpn);
        }
        for id in &self.cm_thread.ids {
            assert_eq!(port.room_to(*id), oracle.room_to(*id), "{id}");
            let peer = port.peer(*id).map(|peer| peer.tag);
            assert_eq!(peer, oracle.knows(*id).then_some(u64::from(id.generation())), "{id}");
        }
    }

    pub(in super::super) fn stale(&self) -> u64 {
        self.stats.stale.value()
    }

    pub(in super::super) fn closed(&self) -> u64 {
        self.counts.closed.value()
    }

    /// Ends the run: every packet comes back to the pool.
    pub(in super::super) fn end(mut self) {
        self.lcore.many[0].count_stopped(&self.lcore.ctx.sinks);
        self.oracle.stop();
        assert_eq!(Figures::of(&self.stats), self.oracle.figures);
        let World { cm_thread, lcore, kept, rig, .. } = self;
        drop((cm_thread, kept, lcore));
        let account = rig.pool.account();
        assert_eq!((account.free, account.held), (account.packets, 0));
    }
}

/// Joins consecutive receives of one queue into one call: where some were overtaken, a list may be
/// two.
fn joined(calls: impl Iterator<Item = Call>) -> Vec<Call> {
    let mut all: Vec<Call> = Vec::new();
    for call in calls {
        match all.last_mut() {
            Some(last) if !call.1 && (last.0, last.1) == (call.0, call.1) => last.2.extend(call.2),
            _ => all.push(call),
        }
    }
    all
}
