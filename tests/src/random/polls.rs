//! Stages that ask by datagrams, to one of two groups of their port, and stages that answer: each
//! question comes to all members of its group, and each answer to the one who asked.
//!
//! A member knows a bounded number of senders. Where fewer ask, nothing is lost; where more ask, an
//! answer may find its sender forgotten, and is dropped.

use std::fmt::Write as _;
use std::ops::Range;

use fastrand::Rng;
use serde::Deserialize;
use verbline::engine::{ConnectionId, StageError, Tick};
use verbline::plan::Port;
use verbline::prelude::*;

use super::judge::Judge;
use super::marks::{
    ANYBODY, ASKER, ASKERS_MAX, ASKS_AT, Counters, DROPS, GROUPS, LATE_NS, POLLED, RETRY_NS, STAMP_BYTES, Stamps, fill,
    is_filled,
};
use super::parts::PollDraft;
use super::text::{Plan, line};

const OUT: OutId = OutId(0);
/// In the place of an output: the member that answers.
const OUTPUT_AT: usize = 1;
/// The wait for lost answers.
const LOST_NS: Tick = 2_000_000;
/// Room for all that is under way, twice.
const DEPTH_WR: u32 = 128;
const ASKERS: Range<usize> = ASKER..ASKER + ASKERS_MAX as usize;
const MEMBERS: Range<usize> = POLLED..POLLED + 2;

pub(super) fn register(registry: &mut Registry) {
    let spec = |source, summary| StageSpec { outputs: &["a"], source, drops: DROPS, summary, ..StageSpec::default() };
    registry.stage("asker", spec(true, "asks groups"), |context| Ok(Box::new(Asker::new(context)?)));
    registry.stage("polled", spec(false, "answers who asks"), |context| Ok(Box::new(Polled::new(context)?)));
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    node: u8,
    seed: u64,
    rounds: u32,
    window_packets: usize,
    groups: Vec<String>,
    /// The members of each group.
    members: Vec<usize>,
    /// Members in all.
    answer: usize,
    may_lose: bool,
}

struct Asker {
    params: Params,
    rng: Rng,
    counters: Counters,
    late: Counter,
    /// Questions, once for each member that they go to.
    expected: Counter,
    groups: Vec<ConnectionId>,
    /// Its questions, and the last answer from each member to one for each group. Groups keep no
    /// order between them: by the wire each has a socket.
    stamps: Stamps,
    answered: [[u32; 2]; 2],
    under_way: usize,
    sent_ns: Tick,
    /// Each member had answered before. One that had not may have more answers than can wait for
    /// the address handle.
    was_known: bool,
}

impl Asker {
    fn new(context: &StageContext<'_>) -> Result<Asker, StageError> {
        let params: Params = context.params()?;
        let port = format!("a{}", params.node);
        let group = |name: &String| context.group(&port, name).ok_or(format!("{name} is no group of port.{port}"));
        Ok(Asker {
            rng: Rng::with_seed(params.seed),
            counters: Counters::new(context),
            late: context.counter("late"),
            expected: context.counter("expected"),
            groups: params.groups.iter().map(group).collect::<Result<_, _>>()?,
            stamps: Stamps::new(params.node),
            answered: [[0; 2]; 2],
            under_way: 0,
            sent_ns: 0,
            was_known: false,
            params,
        })
    }

    /// Whether it asked this question, and this member has not answered it or a later one.
    fn is_answer(&mut self, packet: &Packet) -> bool {
        let Some([node, member, _, group, number @ ..]) = packet.data().first_chunk::<STAMP_BYTES>() else {
            return false;
        };
        let of_member = self.answered.get_mut(usize::from(*member));
        let Some(last) = of_member.and_then(|last| last.get_mut(usize::from(*group))) else { return false };
        let number = u32::from_le_bytes(*number);
        let is_next = number > std::mem::replace(last, number);
        *node == self.params.node && is_next && packet.connection().is_none()
    }
}

impl Stage for Asker {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.as_mut_slice() {
            let mut is_well = self.is_answer(packet);
            // Restores the question's form.
            packet.data_mut()[OUTPUT_AT] = packet.data()[ASKS_AT];
            is_well &= is_filled(packet.data());
            self.counters.astray.add((!is_well).into());
        }
        self.under_way = self.under_way.saturating_sub(input.len());
        self.counters.came.add(input.len() as u64);
        self.counters.drop_all(input, out);
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let waited_ns = out.fresh_ns().saturating_sub(self.sent_ns);
        if self.under_way > 0 {
            let may_lose = self.params.may_lose || !self.was_known;
            if waited_ns < if may_lose { LOST_NS } else { LATE_NS } {
                return Next::At(out.now_ns() + RETRY_NS);
            }
            self.late.add((!may_lose).into());
            self.under_way = 0;
        }
        if self.params.rounds == 0 {
            return Next::Done;
        }
        self.params.rounds -= 1;
        self.was_known = self.answered.iter().filter(|last| **last != [0; 2]).count() == self.params.answer;
        let window = self.rng.usize(1..=self.params.window_packets).min(out.room(OUT));
        for _ in 0..window {
            let Some(mut packet) = self.counters.take(out) else { break };
            let capacity = packet.tailroom().max(STAMP_BYTES);
            assert!(packet.set_len(self.rng.usize(STAMP_BYTES..=capacity)), "a plan's packets hold a stamp");
            let group = self.rng.usize(..self.groups.len());
            self.stamps.stamp(&mut packet, group, ANYBODY);
            packet.data_mut()[ASKS_AT] = group as u8;
            fill(packet.data_mut());
            // Without a handle the question goes to the first group.
            packet.set_connection(Some(self.groups[group]).filter(|_| group > 0 || self.rng.bool()));
            match out.send(OUT, packet) {
                true => {
                    self.counters.sent[0].add(1);
                    self.under_way += self.params.members[group];
                    self.expected.add(self.params.members[group] as u64);
                }
                false => self.counters.refused[0].add(1),
            }
        }
        self.sent_ns = out.fresh_ns();
        Next::At(out.now_ns() + RETRY_NS)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolledParams {
    node: u8,
    /// Its number among the members, and a bit for each group that it is in.
    member: u8,
    joins: u8,
}

struct Polled {
    params: PolledParams,
    counters: Counters,
    stamps: Stamps,
    /// The number of senders that its port knows, and whether more may ask, some of them without a
    /// slot.
    places: usize,
    knows_too_few: bool,
}

impl Polled {
    fn new(context: &StageContext<'_>) -> Result<Polled, StageError> {
        let params: PolledParams = context.params()?;
        let stamps = Stamps::new(params.node);
        let ports = context.plan().ports();
        let port = ports.iter().find(|port| port.name == format!("g{}", params.node));
        let places = port.map_or(0, |port| port.senders_max as usize);
        let knows_too_few = ports.iter().filter(asks).count() > places;
        Ok(Polled { counters: Counters::new(context), stamps, places, knows_too_few, params })
    }
}

impl Stage for Polled {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.counters.came.add(input.len() as u64);
        for mut packet in input.drain_front(input.len()) {
            let group = packet.data().get(ASKS_AT).copied().unwrap_or(u8::MAX);
            let is_known = packet.connection().is_some_and(|from| self.knows_too_few || from.slot() < self.places);
            let is_ours = group < 2 && self.params.joins >> group & 1 == 1 && is_filled(packet.data());
            let is_well = self.stamps.is_next(&packet) && is_known && is_ours;
            self.counters.astray.add((!is_well).into());
            packet.data_mut()[OUTPUT_AT] = self.params.member;
            match out.send(OUT, packet) {
                true => self.counters.sent[0].add(1),
                false => self.counters.refused[0].add(1),
            }
        }
    }
}

impl Plan<'_> {
    pub(super) fn poll(&mut self, poll: &PollDraft) {
        let PollDraft { lcore, polled_lcore, seed, askers, senders, has_second, joins_both, rounds, window_packets } =
            poll;
        let lcores = self.two_lcores(*lcore, *polled_lcore);
        let (pool, first) = (self.receives_into(), 1 + self.text.matches("send_to = ").count());
        let groups = [first, first + 1].map(|group| format!("{GROUPS}{group}"));
        let joins = [1 + 2 * u8::from(*joins_both || !has_second), 2];
        let joins = &joins[..1 + usize::from(*has_second)];
        let members = [0, 1].map(|group| joins.iter().filter(|joins| *joins >> group & 1 == 1).count());
        let queues = format!(
            "pool = \"{pool}\"\nrx_depth_wr = {DEPTH_WR}\ntx_depth_wr = {DEPTH_WR}\nsignal_every_wr = {}",
            1 + seed % 8
        );
        let port = |name: &str, lcore: usize, keys: &str| {
            let ends = format!("[port.{name}]\nlcore = \"c{lcore}\"\ndevice = \"nic\"\ntransport = \"ud\"");
            format!("{ends}\n{keys}\n{queues}\nnext = \"stage.s{}\"\n", &name[1..])
        };
        let may_lose = self.draft.by_wire || senders < askers;
        // Each wait for a lost answer takes some ms.
        let rounds = if may_lose { (*rounds).min(20) } else { *rounds };
        for node in ASKERS.take((*askers).into()) {
            let (lcore, seed) = (self.beside(lcores[0], node), u64::from(*seed) + node as u64);
            line!(self, "{}", port(&format!("a{node}"), lcore, &format!("send_to = {groups:?}")));
            line!(self, "[stage.s{node}]\nuse = \"asker\"\nlcore = \"c{lcore}\"\npool = \"packets\"");
            line!(
                self,
                "out = {{ a = \"port.a{node}\" }}\nparams = {{ node = {node}, seed = {seed}, rounds = {rounds}, \
                 window_packets = {window_packets}, groups = {groups:?}, members = {members:?}, \
                 answer = {}, may_lose = {may_lose} }}\n",
                joins.len()
            );
        }
        for (member, (node, joins)) in MEMBERS.zip(joins).enumerate() {
            let lcore = self.beside(lcores[1], member);
            let joined: Vec<&String> =
                (0..2).filter(|group| joins >> group & 1 == 1).map(|group| &groups[group]).collect();
            line!(self, "{}", port(&format!("g{node}"), lcore, &format!("join = {joined:?}\nsenders_max = {senders}")));
            line!(self, "[stage.s{node}]\nuse = \"polled\"\nlcore = \"c{lcore}\"\nout = {{ a = \"port.g{node}\" }}");
            line!(self, "params = {{ node = {node}, member = {member}, joins = {joins} }}\n");
        }
    }
}

/// Whether it is an asker's port.
fn asks(port: &&Port) -> bool {
    port.send_to.len() > 1
}

impl Judge<'_> {
    /// Whether a port gets questions from more senders than it knows at once.
    pub(super) fn knows_too_few(&self, place: &str) -> bool {
        let ports = self.plan.ports();
        let asks = ports.iter().filter(asks).count();
        let is_it = |port: &&Port| place.strip_prefix("port.") == Some(&port.name);
        ports.iter().find(is_it).is_some_and(|port| port.senders_max > 0 && (port.senders_max as usize) < asks)
    }

    /// Answers that a port dropped since it knew no way to the asker, or not yet.
    pub(super) fn lost_answers(&self, place: &str) -> u64 {
        ["no_connection", "tx_full"].iter().map(|reason| self.dropped(place, reason)).sum()
    }

    /// Each question came to all members of its group, and each answer to one who asked.
    pub(super) fn polls(&mut self) {
        // Otherwise they are judged together with those of the other process.
        if self.side.is_some() {
            return;
        }
        let report = self.report;
        let sums = |begins: &str, nodes: Range<usize>| {
            let ports = nodes.filter_map(|node| report.port(&format!("{begins}{node}")));
            ports.fold((0, 0), |(tx, rx), port| (tx + port.tx_packets, rx + port.rx_packets))
        };
        let ((asked, heard), (answered, came)) = (sums("a", ASKERS), sums("g", MEMBERS));
        let expected: u64 = ASKERS.filter_map(|node| report.stage(&format!("s{node}"))?.counter("expected")).sum();
        let dropped: u64 = MEMBERS.map(|node| self.lost_answers(&format!("port.g{node}"))).sum();
        // A datagram that finds no receive is lost: askers go on while a member waits for its CPU.
        let lost = |begins: &str, nodes: Range<usize>| {
            let ports = nodes.filter_map(|node| report.port(&format!("{begins}{node}")));
            ports.filter_map(|port| port.rx_out_of_buffer).sum::<u64>()
        };
        let (unasked, untold) = (lost("g", MEMBERS), lost("a", ASKERS));
        let by_wire = self.plan.devices().iter().any(|device| device.address.is_some());
        let fault = match by_wire {
            true => came > expected || heard > answered || answered + dropped != came,
            false => came + unasked != expected || heard + untold != answered || answered + dropped != came,
        };
        if fault {
            self.faults.push(format!(
                "{asked} questions for {expected}: {came} came, {answered} answered, {dropped} dropped, {heard} heard"
            ));
        }
    }
}
