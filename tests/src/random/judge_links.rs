//! Over every link of a plan, the packets that leave one place come to the next.
//!
//! A stage knows where a packet goes if the output leads to one place, or deals it out by key.
//! Packets sent in turn, or as copies, are known only for all places together.

use verbline::engine::PortReport;
use verbline::plan::{Consumer, Port, SpreadBy, Target, Transport, WhenFull};

use super::judge::{Judge, each, has_many};
use super::marks::OPERATOR;

/// The packets that stages sent to a place.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    taken: u64,
    refused: u64,
    /// More may have come to it in turn, or as copies.
    and_shared: bool,
}

/// The packets that places took and refused beyond those sent to them alone.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    taken: u64,
    refused: u64,
}

impl Judge<'_> {
    pub(super) fn links(&mut self) {
        let mut shared = Shared::default();
        self.rings(&mut shared);
        self.ports(&mut shared);
        for stage in self.plan.stages() {
            let Some(told) = self.report.stage(&stage.name) else { continue };
            let handed = self.handed_to(stage);
            // Packets of a connection of which no stage ever heard are not handed to it.
            let unheard = if self.is_strict { 0 } else { handed.saturating_sub(told.packets_in) };
            let Some(direct) = (told.packets_in + unheard).checked_sub(handed) else {
                self.faults.push(format!("stage.{}: {handed} came to it, and {} did", stage.name, told.packets_in));
                continue;
            };
            let drops = self.report.drops.iter().filter(|drop| has_many(&drop.place) && drop.reason == "no_connection");
            let unheard_of = drops.map(|drop| drop.packets).sum();
            if unheard > unheard_of {
                self.faults.push(format!("stage.{}: {unheard} packets have not come to it", stage.name));
            }
            if !self.gets_back(&stage.name) {
                self.place(&format!("stage.{}", stage.name), direct, "stage_full", &mut shared);
            }
        }
        self.wires();
        self.returned();
        self.shared(shared);
    }

    fn rings(&mut self, shared: &mut Shared) {
        for (ring, told) in self.plan.rings().iter().zip(&self.report.rings) {
            let name = format!("ring.{}", ring.name);
            if told.most > told.depth {
                self.faults.push(format!("{name}: {} waited in it, of {} at most", told.most, told.depth));
            }
            let displaced = self.dropped(&name, "displaced");
            if ring.full != WhenFull::Displace {
                self.equal(|| format!("{name}: pushed and popped"), told.pushed, told.popped);
                self.equal(|| format!("{name}: displaced, and none"), displaced, 0);
            }
            if ring.full == WhenFull::Hold {
                self.equal(|| format!("{name}: ring_full, and none"), self.dropped(&name, "ring_full"), 0);
            }
            if !self.gets_back(&ring.name) {
                self.place(&name, told.popped + displaced, "ring_full", shared);
            }
        }
    }

    fn ports(&mut self, shared: &mut Shared) {
        for (port, told) in self.plan.ports().iter().zip(&self.report.ports) {
            let name = format!("port.{}", port.name);
            let may_fail = !self.is_strict && port.connections.is_some();
            if !may_fail && !self.is_left(port, told) {
                let trouble = told.stale + u64::from(told.down) + told.errors.len() as u64;
                self.equal(|| format!("{name}: stale completions, errors and being down, and none"), trouble, 0);
            }
            // What is posted and not received is in the receive queue.
            let in_queue = told.rx_posted.saturating_sub(told.rx_packets);
            if port.connections.is_none() && in_queue > port.rx_depth_wr.into() {
                self.faults.push(format!("{name}: {in_queue} receives in a queue of {}", port.rx_depth_wr));
            }
            let rings = self.plan.rings().iter().zip(&self.report.rings);
            let to_this = rings.filter(|(ring, _)| ring.to == Consumer::Port(port.id));
            let popped: u64 = to_this.map(|(_, told)| told.popped).sum();
            if port.senders_max > 0 {
                // Packets that it takes may wait for an address handle, and find no room there.
                let (sent, all) = (self.sent_to(&name), told.tx_packets + self.lost_answers(&name));
                self.equal(|| format!("{name}: sent to it, and posted or dropped"), sent.taken + sent.refused, all);
                continue;
            }
            let gone = if may_fail { self.unconnected(port.next, told) } else { 0 };
            match (told.tx_packets + gone).checked_sub(popped) {
                Some(taken) => self.place(&name, taken, "tx_full", shared),
                None => self.faults.push(format!("{name}: {popped} popped for it, {} posted", told.tx_packets)),
            }
        }
    }

    /// Whether it is a server's port whose peer is gone, in order: nothing was under way, and no
    /// more came back than its receives. A run may be stopped before all have.
    fn is_left(&self, port: &Port, told: &PortReport) -> bool {
        let other_end = match port.name.split_at(1) {
            ("t", link) => format!("q{link}"),
            (_, link) => format!("t{link}"),
        };
        let has_peer_here = self.plan.ports().iter().any(|port| port.name == other_end);
        let (flushed, others): (Vec<_>, Vec<_>) = told.errors.iter().partition(|error| error.status == "WR_FLUSH_ERR");
        let flushed: u64 = flushed.iter().map(|error| error.count).sum();
        let in_queue = told.rx_posted.saturating_sub(told.rx_packets);
        let is_well = others.is_empty() && told.stale == 0 && flushed <= in_queue;
        self.side == Some(1) && !has_peer_here && told.down && is_well
    }

    /// The packets that a port took for connections that were over.
    fn unconnected(&self, next: Option<Target>, told: &PortReport) -> u64 {
        let stage = self.plan.stages().iter().find(|stage| next == Some(Target::Stage(stage.id)));
        let heard = stage.and_then(|stage| self.report.stage(&stage.name)).map_or(0, |told| told.packets_in);
        let dropped = self.dropped(&format!("port.{}", told.name), "no_connection");
        dropped.saturating_sub(told.rx_packets.saturating_sub(heard))
    }

    /// An RC queue pair delivers everything; the others deliver no more than was sent.
    fn wires(&mut self) {
        for port in self.plan.ports() {
            let other_end = match port.name.split_at(1) {
                ("t", link) => format!("q{link}"),
                ("q", link) => format!("t{link}"),
                _ => continue,
            };
            let (Some(near), Some(far)) = (self.report.port(&port.name), self.report.port(&other_end)) else {
                continue;
            };
            // A SEND that comes back as an operation is counted with these.
            let operations =
                near.operations.as_ref().and_then(|told| told.kind("send")).map_or(0, |sends| sends.posted);
            let (sent, received) = (near.tx_packets + operations, far.rx_packets);
            if received > sent || (received < sent && port.transport == Transport::Rc) {
                self.faults.push(format!("port.{} sent {sent}, port.{other_end} received {received}", port.name));
            }
        }
    }

    /// Whether returned packets of ports go to the stage or the ring of this name.
    fn gets_back(&self, name: &str) -> bool {
        name.starts_with('w')
    }

    /// Packets that asked to come back have come back: to a stage, or to a ring or a stage that was
    /// full.
    fn returned(&mut self) {
        for port in self.plan.ports().iter().filter(|port| port.sent.is_some()) {
            let link = &port.name[1..];
            let far = self.plan.ports().iter().find(|far| far.name[1..] == *link && far.id != port.id);
            if far.is_none() && self.side.is_some() {
                continue;
            }
            let receiver =
                self.plan.stages().iter().find(|stage| far.and_then(|far| far.next) == Some(Target::Stage(stage.id)));
            let told = receiver.and_then(|stage| self.report.stage(&stage.name));
            let by = if link == "ops" {
                format!("{OPERATOR}_0")
            } else {
                link.splitn(3, '_').take(2).collect::<Vec<_>>().join("_")
            };
            // Other stages never ask.
            let asked = told.and_then(|told| told.counter(&format!("back_{by}"))).unwrap_or(0);
            let came = self.report.stage(&format!("w{link}")).map_or(0, |told| told.packets_in);
            let dropped = [("stage", "stage_full"), ("ring", "ring_full"), ("ring", "displaced")];
            let full: u64 = dropped.iter().map(|(sort, reason)| self.dropped(&format!("{sort}.w{link}"), reason)).sum();
            if came + full < asked || (came + full > asked && port.transport == Transport::Rc) {
                let name = &port.name;
                self.faults
                    .push(format!("port.{name}: {came} packets came back, {full} found no room, {asked} asked to"));
            }
        }
    }

    /// Compares the packets that a place took and refused with those sent to it.
    fn place(&mut self, name: &str, taken: u64, full: &str, shared: &mut Shared) {
        let (sent, refused) = (self.sent_to(name), self.dropped(name, full));
        if !sent.and_shared {
            self.equal(|| format!("{name}: sent to it and taken"), sent.taken, taken);
            self.equal(|| format!("{name}: refused and {full}"), sent.refused, refused);
            return;
        }
        match (taken.checked_sub(sent.taken), refused.checked_sub(sent.refused)) {
            (Some(taken), Some(refused)) => {
                (shared.taken, shared.refused) = (shared.taken + taken, shared.refused + refused);
            }
            _ => self.faults.push(format!("{name}: took {taken} and refused {refused}, and was sent more: {sent:?}")),
        }
    }

    /// The packets sent to a place, taken and refused, by the stages' own counters.
    fn sent_to(&self, name: &str) -> Sent {
        let is_there = |target: Target| self.plan.target_name(target) == name;
        let mut sent = Sent::default();
        for (stage, told) in self.plan.stages().iter().zip(&self.report.stages) {
            let counted = |word: &str| told.counter(word).unwrap_or(0);
            for (output, target) in stage.outputs.iter().enumerate() {
                match self.dealt(*target) {
                    None if is_there(*target) => {
                        sent.taken += counted(&format!("sent_{output}"));
                        sent.refused += counted(&format!("refused_{output}"));
                    }
                    None => {}
                    Some((by, places)) => {
                        for place in (0..places.len()).filter(|place| is_there(places[*place])) {
                            sent.taken += counted(&format!("dealt_{output}_{place}"));
                            sent.refused += counted(&format!("turned_{output}_{place}"));
                            sent.and_shared |= by != SpreadBy::Key;
                        }
                    }
                }
            }
        }
        sent
    }

    /// All packets sent in turn, and every copy, have come to some place.
    fn shared(&mut self, came: Shared) {
        let (mut taken, mut sent) = (0_u64, 0_u64);
        for (stage, told) in self.plan.stages().iter().zip(&self.report.stages) {
            let counted = |word: &str, output: usize| told.counter(&format!("{word}_{output}")).unwrap_or(0);
            taken += told.packets_out;
            let mut copies = false;
            for (output, target) in stage.outputs.iter().enumerate() {
                match self.dealt(*target) {
                    None | Some((SpreadBy::Key, _)) => taken = taken.wrapping_sub(counted("sent", output)),
                    Some((by, places)) => {
                        sent += counted("sent", output) + counted("refused", output);
                        sent += counted("copied", output) * (places.len() as u64 - 1);
                        copies |= by == SpreadBy::Copy;
                    }
                }
            }
            // Copies for which the pool had no packet were not made.
            let failed = told.alloc_failed.saturating_sub(told.counter("unmade").unwrap_or(0));
            sent = sent.wrapping_sub(if copies { failed } else { 0 });
            debug_assert!(each(told, "copied") == 0 || copies, "only what is copied is counted so");
        }
        self.equal(|| "sent in turn and as copies, and taken by the places".into(), taken, came.taken);
        self.equal(
            || "in turn and as copies, and taken or refused by the places".into(),
            sent,
            came.taken + came.refused,
        );
    }
}
