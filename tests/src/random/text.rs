//! A draft as the text of a plan.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::draft::{Draft, HabitDraft, LcoreDraft, MeddlerDraft, NextDraft, NodeDraft};
use super::links::{LinkDraft, RingDraft, Via};
use super::marks::{ALONE, GROUPS, PART_BYTES, PREPEND_BYTES, WIRE_ADDRESS};

/// The first TCP-like port number of links by address; the plan's other links count up from it.
const ADDRESS_PORT: usize = 7500;

impl Draft {
    /// The plan, for these CPUs, with this many packets in each pool, and this much headroom in
    /// them where any stage prepends.
    pub fn text(&self, cpus: &[u32], packets: u64, headroom_bytes: u64) -> String {
        let mut plan = Plan { draft: self, cpus: cpus.len().min(self.lcores.len()), text: String::new() };
        plan.write(cpus, packets, headroom_bytes);
        plan.text
    }
}

impl Draft {
    /// Whether its sources end by themselves, and soon.
    fn ends(&self) -> bool {
        let ends = |habits: &HabitDraft| {
            habits.count.is_some() && !habits.next.iter().any(|next| matches!(next, NextDraft::Fed))
        };
        self.parts.are_alone() || self.nodes[..self.sources].iter().all(|node| ends(&node.habits))
    }
}

pub(super) const INTO_STRING: &str = "a String takes everything";

/// Where a link begins and ends.
#[derive(Clone)]
pub(super) struct Ends {
    /// A part of the names of its ring and ports.
    pub(super) name: String,
    /// The lcores.
    pub(super) near: usize,
    pub(super) far: usize,
    /// The node that it leads to.
    pub(super) to: usize,
    /// A ring on its way may hold its producers back.
    pub(super) may_hold: bool,
}

pub(super) struct Plan<'a> {
    pub(super) draft: &'a Draft,
    /// The number of existing lcores.
    pub(super) cpus: usize,
    pub(super) text: String,
}

/// Adds a line to the plan. Writing to a `String` cannot fail.
macro_rules! line {
    ($plan:expr, $($argument:tt)*) => {
        writeln!($plan.text, $($argument)*).expect($crate::random::text::INTO_STRING)
    };
}
pub(super) use line;

impl Plan<'_> {
    fn write(&mut self, cpus: &[u32], packets: u64, headroom_bytes: u64) {
        let reached = self.reached();
        line!(self, "[{}]\nends = {}", super::marks::SECTION, self.draft.ends());
        self.pair_key();
        if self.draft.scale > 1 {
            line!(self, "{ALONE}");
        }
        self.pushers(&reached);
        self.draft.parts.watch.iter().for_each(|watch| self.writer(watch));
        if let Some(MeddlerDraft { seed, pause_us, deeds }) = &self.draft.meddler {
            let does = deeds.iter().map(|deed| ["look", "trace", "capture", "change", "pause"][usize::from(*deed) % 5]);
            let does: Vec<&str> = does.collect();
            line!(self, "meddler = {{ seed = {seed}, pause_us = {pause_us}, does = {does:?} }}");
        }
        line!(self, "\n[device.nic]\nprovider = \"soft\"\nname = \"soft0\"");
        line!(self, "{}", if self.draft.by_wire { format!("address = \"{WIRE_ADDRESS}\"\n") } else { String::new() });
        self.pool("packets", packets, headroom_bytes);
        let by_port = |node: &usize| self.ways(*node).concat().iter().any(|way| self.via(*node, way) != Via::Direct);
        if self.draft.two_pools && (reached.iter().any(by_port) || self.draft.parts.receive()) {
            self.pool("received", packets, headroom_bytes);
        }
        for (index, cpu) in cpus.iter().take(self.cpus).enumerate() {
            let LcoreDraft { idle, burst_packets, spin_us, dwell_us, unsolicited_us, .. } = &self.draft.lcores[index];
            let LcoreDraft { late_permille, spin_max_us, .. } = &self.draft.lcores[index];
            let policy = ["poll", "event", "adaptive"][usize::from(*idle) % 3];
            line!(self, "[lcore.c{index}]\ncpu = {cpu}\nidle = \"{policy}\"\nburst = {burst_packets}\ndrain = \"20s\"");
            if policy != "event" && burst_packets % 2 == 0 {
                line!(self, "pause = true");
            }
            if policy != "poll" {
                for (key, micros) in [("spin", spin_us), ("dwell", dwell_us), ("unsolicited_wait", unsolicited_us)] {
                    micros.iter().for_each(|micros| line!(self, "{key} = \"{micros}us\""));
                }
            }
            if policy == "adaptive" && spin_us.is_none() {
                late_permille.iter().for_each(|share| line!(self, "late_share = {}", f64::from(*share) / 1000.0));
                spin_max_us.iter().for_each(|micros| line!(self, "spin_max = \"{micros}us\""));
            }
            line!(self, "");
        }
        for node in &reached {
            self.node(*node);
            self.inbox(*node, &reached);
        }
        self.parts(&reached);
    }

    /// What all stages of a way may prepend together: what is sent must fit where it is received.
    fn spare_bytes(&self) -> usize {
        self.draft.nodes.iter().filter(|node| node.habits.prepends).count() * PREPEND_BYTES
    }

    fn pool(&mut self, name: &str, packets: u64, headroom_bytes: u64) {
        let Draft { data_bytes, cache_packets, .. } = self.draft;
        let data_bytes = usize::from(*data_bytes).max(if self.draft.parts.any() { PART_BYTES } else { 0 });
        let data_bytes = data_bytes + self.spare_bytes();
        line!(self, "[pool.{name}]\ndevice = \"nic\"\npackets = {packets}\ndata_bytes = {data_bytes}");
        if self.spare_bytes() > 0 {
            line!(self, "headroom_bytes = {headroom_bytes}");
        }
        line!(self, "cache_packets = {cache_packets}\npages = \"4KiB\"\n");
    }

    /// The nodes that packets can come to; others would be refused.
    fn reached(&self) -> Vec<usize> {
        if self.draft.parts.are_alone() {
            return Vec::new();
        }
        let mut reached: BTreeSet<usize> = (0..self.draft.sources).collect();
        for node in 0..self.draft.nodes.len() {
            if reached.contains(&node) {
                reached.extend(self.ways(node).concat().iter().map(|(_, to)| *to));
            }
        }
        reached.into_iter().collect()
    }

    /// The links of each output of a node, with the node that each leads to: a later one that is no
    /// source, and of a spread each once. No link: to nowhere.
    pub(super) fn ways(&self, node: usize) -> Vec<Vec<(&LinkDraft, usize)>> {
        let first = self.draft.sources.max(node + 1);
        let choices = self.draft.nodes.len().saturating_sub(first) + 1;
        let outputs = self.draft.nodes[node].outputs.iter();
        let ways = outputs.map(|output| {
            let mut seen = BTreeSet::new();
            let to = |link: &LinkDraft| (usize::from(link.to) % choices).checked_sub(1).map(|choice| first + choice);
            let links = output.links.iter().filter_map(|link| Some((link, to(link)?)));
            links.filter(|(_, to)| seen.insert(*to)).collect()
        });
        ways.collect()
    }

    pub(super) fn lcore(&self, node: usize) -> usize {
        if let Some(pair) = self.pair() {
            return usize::from(node > usize::from(pair.split) % self.draft.nodes.len());
        }
        usize::from(self.draft.nodes[node].lcore) % self.cpus
    }

    /// Whether a ring that this node fills may hold it back: no port feeds what would be held.
    fn may_hold(&self, node: usize) -> bool {
        (0..node).all(|from| {
            self.ways(from).concat().iter().filter(|(_, to)| *to == node).all(|way| match self.via(from, way) {
                Via::Direct => self.lcore(from) != self.lcore(node) || self.may_hold(from),
                _ => false,
            })
        })
    }

    fn node(&mut self, node: usize) {
        let NodeDraft { outputs, habits, .. } = &self.draft.nodes[node];
        let ways: Vec<Vec<(LinkDraft, usize)>> = self
            .ways(node)
            .into_iter()
            .map(|ways| ways.into_iter().map(|(link, to)| (link.clone(), to)).collect())
            .collect();
        let (mut out, mut by) = (Vec::new(), Vec::new());
        for (output, ways) in ways.iter().enumerate() {
            let name = format!("{node}_{output}");
            let targets: Vec<String> = ways.iter().map(|way| self.way(node, &name, ways.len(), way)).collect();
            let how = ["key", "round-robin", "copy"][usize::from(outputs[output].by) % 3];
            by.push(if targets.len() > 1 { how } else { "one" });
            let target = match &*targets {
                [] => "drop".to_owned(),
                [target] => target.clone(),
                places => {
                    line!(self, "[spread.d{name}]\nto = {places:?}\nby = \"{how}\"\n");
                    format!("spread.d{name}")
                }
            };
            out.push(format!("{} = \"{target}\"", ["a", "b", "c"][output]));
        }
        let family = match (node < self.draft.sources, habits.hold_packets) {
            (true, _) => "source",
            (false, 0) => "relay",
            (false, _) => "holder",
        };
        let (outputs, prepends) = (outputs.len(), if habits.prepends { "p" } else { "" });
        line!(self, "[stage.s{node}]\nuse = \"{family}{outputs}{prepends}\"\nlcore = \"c{}\"", self.lcore(node));
        if family == "source" || habits.take_percent > 0 || by.contains(&"copy") {
            line!(self, "pool = \"packets\"");
        }
        if habits.timers > 0 {
            line!(self, "timers_max = {}", habits.timers);
        }
        line!(self, "out = {{ {} }}", out.join(", "));
        let to: Vec<Vec<usize>> = ways.iter().map(|ways| ways.iter().map(|(_, to)| *to).collect()).collect();
        let (habits, spare) = (params(node, habits, family == "source"), self.spare_bytes());
        let (urgency, asked) = (self.urgency(node), self.asked(node));
        line!(
            self,
            "params = {{ {habits}, spare_bytes = {spare}, to = {to:?}, by = {by:?}, urgency = {urgency:?}, \
             asked = {asked:?} }}\n"
        );
    }

    /// Nodes and outputs that lead to a node over a ring that it empties, with the ring's priority.
    fn urgency(&self, node: usize) -> Vec<[usize; 3]> {
        let mut urgency = Vec::new();
        for from in (0..node).filter(|from| self.lcore(*from) != self.lcore(node)) {
            for (output, ways) in self.ways(from).iter().enumerate() {
                let here = |way: &&(&LinkDraft, usize)| way.1 == node && self.via(from, way) == Via::Direct;
                urgency.extend(ways.iter().filter(here).map(|(link, _)| {
                    let ring = if link.by_inbox { &self.draft.nodes[node].inbox } else { &link.ring };
                    [from, output, ring.priority.into()]
                }));
            }
        }
        urgency
    }

    /// Nodes and outputs that lead to a node by a port that sends as packets ask, and whether their
    /// immediate data come with them.
    fn asked(&self, node: usize) -> Vec<[usize; 3]> {
        let mut asked = Vec::new();
        for from in self.reached().into_iter().filter(|from| *from < node) {
            for (output, ways) in self.ways(from).iter().enumerate() {
                let here = ways.iter().filter(|way| way.1 == node && self.via(from, way) != Via::Direct);
                asked.extend(here.filter_map(|(link, _)| Some([from, output, usize::from(link.options? & 1)])));
            }
        }
        asked
    }

    /// One of this many ways of an output.
    fn way(&mut self, node: usize, output: &str, ways: usize, (link, to): &(LinkDraft, usize)) -> String {
        let name = if ways > 1 { format!("{output}_{to}") } else { output.to_owned() };
        let (near, far, may_hold) = (self.lcore(node), self.lcore(*to), self.may_hold(node));
        if self.via(node, &(link, *to)) == Via::Direct && link.by_inbox && near != far {
            return format!("ring.in{to}");
        }
        self.link(&Ends { name, near, far, to: *to, may_hold }, link)
    }

    /// The ring that several nodes of the other lcore may fill, if any does.
    fn inbox(&mut self, node: usize, reached: &[usize]) {
        let into = |from: &&usize| {
            let near = self.lcore(**from) != self.lcore(node);
            let by_inbox =
                |way: &(&LinkDraft, usize)| way.1 == node && self.via(**from, way) == Via::Direct && way.0.by_inbox;
            near && self.ways(**from).concat().iter().any(by_inbox)
        };
        let from: Vec<usize> = reached.iter().filter(into).copied().collect();
        if !from.is_empty() {
            let may_hold = from.iter().all(|from| self.may_hold(*from));
            let inbox = self.draft.nodes[node].inbox.clone();
            self.ring(&format!("in{node}"), &inbox, &format!("stage.s{node}"), may_hold);
        }
    }

    /// Writes the ring and ports of a link, and returns the target of the output.
    pub(super) fn link(&mut self, ends: &Ends, link: &LinkDraft) -> String {
        let Ends { name, near, far, to, may_hold } = ends;
        let link = &LinkDraft { via: self.via_between(*near, *far, link), ..link.clone() };
        match link.via {
            Via::Direct if near == far => format!("stage.s{to}"),
            Via::Direct => self.ring(&format!("r{name}"), &link.ring, &format!("stage.s{to}"), *may_hold),
            Via::RingThenRc if self.cpus > 1 => {
                self.ports(&Ends { near: 1 - near, ..ends.clone() }, link);
                self.ring(&format!("r{name}"), &link.ring, &format!("port.t{name}"), *may_hold)
            }
            _ => {
                self.ports(ends, link);
                format!("port.t{name}")
            }
        }
    }

    pub(super) fn ring(&mut self, name: &str, ring: &RingDraft, to: &str, may_hold: bool) -> String {
        let full = match ring.full % 3 {
            0 => "refuse",
            1 => "displace",
            _ if may_hold => "hold",
            _ => "refuse",
        };
        line!(self, "[ring.{name}]\nto = \"{to}\"\ndepth = {}\nfull = \"{full}\"", ring.depth);
        line!(self, "priority = {}\n", ring.priority);
        format!("ring.{name}")
    }

    /// A port that sends and one that receives.
    fn ports(&mut self, ends: &Ends, link: &LinkDraft) {
        let Ends { name, near, far, to, .. } = ends;
        let transport = match link.via {
            Via::Uc => "uc",
            Via::Ud | Via::Group => "ud",
            _ => "rc",
        };
        // Groups are numbered by themselves: a group leaves something with the process only once.
        let group = format!("{GROUPS}{}", 1 + self.text.matches("send_to = ").count());
        let address = self.address();
        let (tx, rx) = match link.via {
            Via::Group => (format!("send_to = \"{group}\""), format!("join = [\"{group}\"]")),
            Via::Address => (format!("connect = \"{address}\""), format!("listen = \"{address}\"")),
            Via::Ud => (format!("peer = \"port.q{name}\""), String::new()),
            _ => (format!("peer = \"port.q{name}\""), format!("peer = \"port.t{name}\"")),
        };
        let LinkDraft { rx_depth_wr, tx_depth_wr, signal_every_wr, inline_bytes, solicited, .. } = link;
        let [mut near_keys, mut far_keys] = self.options(name, *near, link);
        if matches!(link.via, Via::Rc | Via::Uc | Via::RingThenRc | Via::Direct) {
            // At one end it holds for both.
            let at = if rx_depth_wr % 2 == 0 { &mut near_keys } else { &mut far_keys };
            at.push_str(&link.path_mtu_key());
        }
        line!(self, "[port.t{name}]\nlcore = \"c{near}\"\ndevice = \"nic\"\ntransport = \"{transport}\"\n{tx}");
        line!(
            self,
            "tx_depth_wr = {tx_depth_wr}\nsignal_every_wr = {signal_every_wr}\ninline_bytes = {inline_bytes}\n\
             solicited = {solicited}\n{near_keys}"
        );
        let pool = self.receives_into();
        line!(self, "[port.q{name}]\nlcore = \"c{far}\"\ndevice = \"nic\"\ntransport = \"{transport}\"\n{rx}");
        line!(self, "pool = \"{pool}\"\nrx_depth_wr = {rx_depth_wr}\n{far_keys}next = \"stage.s{to}\"\n");
    }

    pub(super) fn receives_into(&self) -> &'static str {
        if self.draft.two_pools { "received" } else { "packets" }
    }

    /// An address at which no other port of the plan listens.
    pub(super) fn address(&self) -> String {
        let host = if self.draft.by_wire { WIRE_ADDRESS } else { "10.9.9.1" };
        format!("{host}:{}", ADDRESS_PORT + self.text.matches("[port.").count())
    }
}

fn params(node: usize, habits: &HabitDraft, is_source: bool) -> String {
    let HabitDraft { seed, count, hold_packets, drop_percent, leave_percent, take_percent, .. } = habits;
    let next: Vec<String> = habits.next.iter().map(|next| format!("\"{}\"", next.word())).collect();
    let mut params = format!(
        "node = {node}, seed = {seed}, next = [{}], hold_packets = {hold_packets}, drop_percent = {drop_percent}, \
         leave_percent = {leave_percent}, take_percent = {take_percent}, batches = {}, polite = {}, timers = {}, \
         asks = {}",
        next.join(", "),
        habits.batches,
        habits.polite,
        habits.timers,
        habits.asks
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
