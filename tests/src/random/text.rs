//! A draft as the text of a plan.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::draft::{Draft, HabitDraft, LcoreDraft, LinkDraft, NextDraft, NodeDraft, SpeakerDraft, TalkDraft, Via};

/// The first TCP-like port number of links by address; the plan's other links count up from it.
const ADDRESS_PORT: usize = 7500;

impl Draft {
    /// The plan, for these CPUs, with so many packets in each pool.
    pub fn text(&self, cpus: &[u32], packets: u64) -> String {
        let mut plan = Plan { draft: self, cpus: cpus.len().min(self.lcores.len()), text: String::new() };
        plan.write(cpus, packets);
        plan.text
    }
}

impl Draft {
    /// Whether its sources end by themselves, and soon.
    fn ends(&self) -> bool {
        let ends = |habits: &HabitDraft| {
            habits.count.is_some() && !habits.next.iter().any(|next| matches!(next, NextDraft::Fed))
        };
        self.is_talk_alone() || self.nodes[..self.sources].iter().all(|node| ends(&node.habits))
    }

    fn is_talk_alone(&self) -> bool {
        self.talk.as_ref().is_some_and(|talk| talk.alone)
    }
}

const INTO_STRING: &str = "a String takes everything";

/// Where a link begins and ends.
#[derive(Clone)]
struct Ends {
    /// In the names of its ring and ports.
    name: String,
    /// The lcores.
    near: usize,
    far: usize,
    /// The node that it leads to.
    to: usize,
}

struct Plan<'a> {
    draft: &'a Draft,
    /// Lcores that are really there.
    cpus: usize,
    text: String,
}

/// Adds a line to the plan. Writing to a `String` cannot fail.
macro_rules! line {
    ($plan:expr, $($argument:tt)*) => {
        writeln!($plan.text, $($argument)*).expect(INTO_STRING)
    };
}

impl Plan<'_> {
    fn write(&mut self, cpus: &[u32], packets: u64) {
        let reached = self.reached();
        line!(self, "[{}]\nends = {}\n", super::marks::SECTION, self.draft.ends());
        line!(self, "[device.nic]\nprovider = \"soft\"\nname = \"soft0\"\n");
        self.pool("packets", packets);
        let by_port = |link: &LinkDraft| link.via != Via::Direct;
        let has_ports =
            reached.iter().any(|&node| self.targets(node).iter().any(|(link, to)| to.is_some() && by_port(link)));
        if self.draft.two_pools && (has_ports || self.draft.talk.is_some()) {
            self.pool("received", packets);
        }
        for (index, cpu) in cpus.iter().take(self.cpus).enumerate() {
            let LcoreDraft { idle, burst_packets, spin_us, dwell_us } = &self.draft.lcores[index];
            let policy = ["poll", "event", "adaptive"][usize::from(*idle) % 3];
            line!(self, "[lcore.c{index}]\ncpu = {cpu}\nidle = \"{policy}\"\nburst = {burst_packets}\ndrain = \"20s\"");
            if policy != "poll" {
                for (key, micros) in [("spin", spin_us), ("dwell", dwell_us)] {
                    micros.iter().for_each(|micros| line!(self, "{key} = \"{micros}us\""));
                }
            }
            line!(self, "");
        }
        for node in reached {
            self.node(node);
        }
        if let Some(talk) = &self.draft.talk {
            self.talk(talk);
        }
    }

    fn pool(&mut self, name: &str, packets: u64) {
        let Draft { data_bytes, cache_packets, .. } = self.draft;
        line!(self, "[pool.{name}]\ndevice = \"nic\"\npackets = {packets}\ndata_bytes = {data_bytes}");
        line!(self, "cache_packets = {cache_packets}\npages = \"4KiB\"\n");
    }

    /// The nodes that packets can come to; others would be refused.
    fn reached(&self) -> Vec<usize> {
        if self.draft.is_talk_alone() {
            return Vec::new();
        }
        let mut reached: BTreeSet<usize> = (0..self.draft.sources).collect();
        for node in 0..self.draft.nodes.len() {
            if reached.contains(&node) {
                reached.extend(self.targets(node).iter().filter_map(|(_, to)| *to));
            }
        }
        reached.into_iter().collect()
    }

    /// The links of a node with the node that each leads to: a later one that is no source, or
    /// nowhere.
    fn targets(&self, node: usize) -> Vec<(&LinkDraft, Option<usize>)> {
        let first = self.draft.sources.max(node + 1);
        let choices = self.draft.nodes.len().saturating_sub(first) + 1;
        let to = |link: &LinkDraft| match usize::from(link.to) % choices {
            0 => None,
            choice => Some(first + choice - 1),
        };
        self.draft.nodes[node].links.iter().map(|link| (link, to(link))).collect()
    }

    fn lcore(&self, node: usize) -> usize {
        usize::from(self.draft.nodes[node].lcore) % self.cpus
    }

    fn node(&mut self, node: usize) {
        let NodeDraft { links, habits, .. } = &self.draft.nodes[node];
        let targets: Vec<(LinkDraft, Option<usize>)> =
            self.targets(node).into_iter().map(|(link, to)| (link.clone(), to)).collect();
        let mut outputs = Vec::new();
        for (output, (link, to)) in targets.iter().enumerate() {
            let target = to.map_or("drop".to_owned(), |to| {
                let ends = Ends { name: format!("{node}_{output}"), near: self.lcore(node), far: self.lcore(to), to };
                self.link(&ends, link)
            });
            outputs.push(format!("{} = \"{target}\"", ["a", "b", "c"][output]));
        }
        let family = match (node < self.draft.sources, habits.hold_packets) {
            (true, _) => "source",
            (false, 0) => "relay",
            (false, _) => "holder",
        };
        line!(self, "[stage.s{node}]\nuse = \"{family}{}\"\nlcore = \"c{}\"", links.len(), self.lcore(node));
        if family == "source" || habits.take_percent > 0 {
            line!(self, "pool = \"packets\"");
        }
        line!(self, "out = {{ {} }}", outputs.join(", "));
        line!(self, "params = {{ {} }}\n", params(node, habits, family == "source"));
    }

    /// The caller and its answerer, numbered after the other nodes.
    fn talk(&mut self, talk: &TalkDraft) {
        let TalkDraft { caller, answerer, rounds, window_packets, there, back, .. } = talk;
        let first = self.draft.nodes.len();
        let lcores = [0, answerer.lcore.min(1)].map(|further| usize::from(caller.lcore + further) % self.cpus);
        for (at, speaker, link) in [(0, caller, there), (1, answerer, back)] {
            let (node, to) = (first + at, first + 1 - at);
            let ends = Ends { name: format!("{node}_0"), near: lcores[at], far: lcores[1 - at], to };
            let target = self.link(&ends, link);
            let SpeakerDraft { seed, pause_ns, waits_in_call, .. } = speaker;
            let mut params =
                format!("node = {node}, seed = {seed}, pause_ns = {pause_ns}, waits_in_call = {waits_in_call}");
            line!(self, "[stage.s{node}]\nuse = \"{}\"\nlcore = \"c{}\"", ["caller", "answerer"][at], lcores[at]);
            if at == 0 {
                line!(self, "pool = \"packets\"");
                write!(params, ", rounds = {rounds}, window_packets = {window_packets}").expect(INTO_STRING);
            }
            line!(self, "out = {{ a = \"{target}\" }}\nparams = {{ {params} }}\n");
        }
    }

    /// Writes what a link needs, and says what the output names.
    fn link(&mut self, ends: &Ends, link: &LinkDraft) -> String {
        let Ends { name, near, far, to } = ends;
        match link.via {
            Via::Direct if near == far => format!("stage.s{to}"),
            Via::Direct => self.ring(name, link, &format!("stage.s{to}")),
            Via::RingThenRc if self.cpus > 1 => {
                self.ports(&Ends { near: 1 - near, ..ends.clone() }, link);
                self.ring(name, link, &format!("port.t{name}"))
            }
            _ => {
                self.ports(ends, link);
                format!("port.t{name}")
            }
        }
    }

    fn ring(&mut self, name: &str, link: &LinkDraft, to: &str) -> String {
        line!(self, "[ring.r{name}]\nto = \"{to}\"\ndepth = {}\n", link.ring_depth);
        format!("ring.r{name}")
    }

    /// A port that sends and one that receives.
    fn ports(&mut self, ends: &Ends, link: &LinkDraft) {
        let Ends { name, near, far, to } = ends;
        let number = self.text.matches("[port.").count();
        let transport = match link.via {
            Via::Uc => "uc",
            Via::Ud | Via::Group => "ud",
            _ => "rc",
        };
        let group = format!("239.1.1.{}", number + 1);
        let address = format!("10.9.9.1:{}", ADDRESS_PORT + number);
        let (tx, rx) = match link.via {
            Via::Group => (format!("send_to = \"{group}\""), format!("join = [\"{group}\"]")),
            Via::Address => (format!("connect = \"{address}\""), format!("listen = \"{address}\"")),
            Via::Ud => (format!("peer = \"port.q{name}\""), String::new()),
            _ => (format!("peer = \"port.q{name}\""), format!("peer = \"port.t{name}\"")),
        };
        let LinkDraft { rx_depth_wr, tx_depth_wr, signal_every_wr, inline_bytes, .. } = link;
        line!(self, "[port.t{name}]\nlcore = \"c{near}\"\ndevice = \"nic\"\ntransport = \"{transport}\"\n{tx}");
        line!(
            self,
            "tx_depth_wr = {tx_depth_wr}\nsignal_every_wr = {signal_every_wr}\ninline_bytes = {inline_bytes}\n"
        );
        let pool = if self.draft.two_pools { "received" } else { "packets" };
        line!(self, "[port.q{name}]\nlcore = \"c{far}\"\ndevice = \"nic\"\ntransport = \"{transport}\"\n{rx}");
        line!(self, "pool = \"{pool}\"\nrx_depth_wr = {rx_depth_wr}\nnext = \"stage.s{to}\"\n");
    }
}

fn params(node: usize, habits: &HabitDraft, is_source: bool) -> String {
    let HabitDraft { seed, count, hold_packets, drop_percent, leave_percent, take_percent, .. } = habits;
    let next: Vec<String> = habits.next.iter().map(|next| format!("\"{}\"", next.word())).collect();
    let mut params = format!(
        "node = {node}, seed = {seed}, next = [{}], hold_packets = {hold_packets}, drop_percent = {drop_percent}, \
         leave_percent = {leave_percent}, take_percent = {take_percent}, batches = {}, polite = {}",
        next.join(", "),
        habits.batches,
        habits.polite
    );
    if let Some(count) = count.filter(|_| is_source) {
        write!(params, ", count = {count}").expect(INTO_STRING);
    }
    params
}

impl NextDraft {
    fn word(self) -> String {
        match self {
            NextDraft::Busy => "busy".to_owned(),
            NextDraft::After(micros) => format!("after {micros}"),
            NextDraft::Past(tick) => format!("at {tick}"),
            NextDraft::Idle => "idle".to_owned(),
            NextDraft::Fed => "fed".to_owned(),
            NextDraft::Done => "done".to_owned(),
        }
    }
}
