//! The parts of a draft as the text of a plan.

use std::fmt::Write as _;

use super::links::{LinkDraft, RingDraft};
use super::marks::{
    ANSWERER, ASKS_END, CALLER, HELLO, INJECTED, LISTENER, OPERATOR, OWNER, RUSH, RUSHED, SLOT_BYTES, SLOTS_SPARE,
    VISITOR, WORD_BYTES, WORDS_FIXED, doors,
};
use super::parts::{
    GateDraft, InjectorDraft, OperatorDraft, PartsDraft, RushDraft, SpeakerDraft, TalkDraft, VisitsDraft,
};
use super::text::{Ends, INTO_STRING, Plan, line};

impl PartsDraft {
    pub(super) fn any(&self) -> bool {
        self.receive() || !self.injectors.is_empty()
    }

    /// Whether any has a port.
    pub(super) fn receive(&self) -> bool {
        self.talk.is_some() || self.operator.is_some() || self.visits.is_some() || self.poll.is_some()
    }
}

impl Plan<'_> {
    pub(super) fn parts(&mut self, reached: &[usize]) {
        let draft = self.draft;
        let PartsDraft { talk, operator, injectors, visits, rush, poll, watch, .. } = &draft.parts;
        talk.iter().for_each(|talk| self.talk(talk));
        operator.iter().for_each(|operator| self.operator(operator));
        injectors.iter().enumerate().for_each(|(index, injector)| self.injector(index, injector, reached));
        visits.iter().for_each(|visits| self.visits(visits));
        rush.iter().for_each(|rush| self.rush(rush));
        poll.iter().for_each(|poll| self.poll(poll));
        watch.iter().for_each(|watch| self.watch(watch));
    }

    /// Two lcores, the second of which counts from the first.
    pub(super) fn two_lcores(&self, first: u8, second: u8) -> [usize; 2] {
        if self.pair().is_some() {
            return [0, 1];
        }
        [0, second.min(1)].map(|further| usize::from(first + further) % self.cpus)
    }

    /// The lcore this many behind another one, in its process.
    pub(super) fn beside(&self, lcore: usize, behind: usize) -> usize {
        if self.pair().is_some() { lcore } else { (lcore + behind) % self.cpus }
    }

    /// The caller and its answerer.
    fn talk(&mut self, talk: &TalkDraft) {
        let TalkDraft { caller, answerer, rounds, window_packets, there, back, .. } = talk;
        let lcores = self.two_lcores(caller.lcore, answerer.lcore);
        // A ring that would hold a port back is refused, and a displaced packet would be awaited
        // for ever.
        let [there, back] =
            [there, back].map(|link| LinkDraft { ring: RingDraft { full: 0, ..link.ring.clone() }, ..link.clone() });
        for (at, speaker, link) in [(0, caller, &there), (1, answerer, &back)] {
            let (node, to) = [(CALLER, ANSWERER), (ANSWERER, CALLER)][at];
            let ends = Ends { name: format!("{node}_0"), near: lcores[at], far: lcores[1 - at], to, may_hold: false };
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

    /// The stage that asks for operations, and the owner of their region.
    fn operator(&mut self, operator: &OperatorDraft) {
        let OperatorDraft { lcore, owner_lcore, seed, count, depth, words, pause_ns, sends, by_address, .. } = operator;
        let OperatorDraft { max_sge, windows, port, .. } = operator;
        let lcores = self.two_lcores(*lcore, *owner_lcore);
        let (own_bytes, bytes) =
            ((usize::from(*depth) + SLOTS_SPARE) * SLOT_BYTES, (WORDS_FIXED + usize::from(*words)) * WORD_BYTES);
        let rights = match windows {
            0 => "\"local-write\", \"remote-read\", \"remote-write\", \"remote-atomic\"",
            _ => "\"local-write\", \"remote-atomic\", \"bind\"",
        };
        for (name, bytes, rights) in [("own", own_bytes, "\"local-write\""), ("there", bytes, rights)] {
            line!(self, "[region.{name}]\ndevice = \"nic\"\nbytes = {bytes}\npages = \"4KiB\"\nrights = [{rights}]\n");
        }
        let LinkDraft { rx_depth_wr, tx_depth_wr, signal_every_wr, inline_bytes, .. } = port;
        // With receives for most of the packets under way, as in `with_room`.
        let rx_depth_wr = (*rx_depth_wr).max((*depth).into());
        let (pool, address) = (self.receives_into(), self.address());
        let [near_keys, far_keys] = self.options("ops", lcores[0], port);
        let asked: Vec<[usize; 3]> = port.options.iter().map(|options| [OPERATOR, 0, (options & 1).into()]).collect();
        let by_address = *by_address || self.pair().is_some();
        let ends = match by_address {
            true => [format!("connect = \"{address}\""), format!("listen = \"{address}\"")],
            false => ["qops", "tops"].map(|other| format!("peer = \"port.{other}\"")),
        };
        let lends = match windows {
            0 => String::new(),
            _ => {
                let has_immediates = far_keys.contains("immediates");
                let immediates = if has_immediates { "" } else { "immediates = true\n" };
                format!("ops_depth_wr = {}\nwindows = {windows}\n{immediates}", 2 * windows)
            }
        };
        let mtu = if by_address { String::new() } else { port.path_mtu_key() };
        let keys =
            [format!("{near_keys}{mtu}ops_depth_wr = {depth}\nmax_sge = {max_sge}\n"), format!("{far_keys}{lends}")];
        for (at, name, node) in [(0, "tops", OPERATOR), (1, "qops", OWNER)] {
            line!(
                self,
                "[port.{name}]\nlcore = \"c{}\"\ndevice = \"nic\"\ntransport = \"rc\"\n{}",
                lcores[at],
                ends[at]
            );
            line!(self, "pool = \"{pool}\"\nrx_depth_wr = {rx_depth_wr}\nnext = \"stage.s{node}\"");
            line!(
                self,
                "tx_depth_wr = {tx_depth_wr}\nsignal_every_wr = {signal_every_wr}\ninline_bytes = {inline_bytes}"
            );
            line!(self, "{}", keys[at]);
        }
        line!(self, "[stage.s{OPERATOR}]\nuse = \"operator\"\nlcore = \"c{}\"\npool = \"packets\"", lcores[0]);
        line!(self, "regions = [\"own\"]\nout = {{ a = \"port.tops\" }}");
        line!(
            self,
            "params = {{ seed = {seed}, count = {count}, depth = {depth}, words = {words}, pause_ns = {pause_ns}, \
            sends = {sends}, fences = {}, asks = {}, max_sge = {max_sge}, windows = {windows} }}\n",
            self.draft.by_wire,
            port.options.map_or(0, |_| seed % u32::from(ASKS_END))
        );
        let kind = if *windows > 0 { "lender" } else { "owner" };
        line!(self, "[stage.s{OWNER}]\nuse = \"{kind}\"\nlcore = \"c{}\"\npool = \"packets\"", lcores[1]);
        line!(self, "regions = [\"there\"]\nout = {{ a = \"port.qops\" }}");
        line!(self, "params = {{ asked = {asked:?}, windows = {windows} }}\n");
    }

    /// The node of an injector, unless it is a listener.
    fn injected(injector: &InjectorDraft, reached: &[usize], sources: usize) -> Option<usize> {
        let nodes: Vec<usize> = reached.iter().filter(|node| **node >= sources).copied().collect();
        let choice = usize::from(injector.to).checked_sub(1)?;
        nodes.get(choice.checked_rem(nodes.len())?).copied()
    }

    /// The settings of the pushing threads, as a list in the run's own section.
    pub(super) fn pushers(&mut self, reached: &[usize]) {
        let draft = self.draft;
        let rows = draft.parts.injectors.iter().enumerate().map(|(index, injector)| {
            let InjectorDraft { seed, count, batch, two_threads, pause_ns, .. } = injector;
            let to = Self::injected(injector, reached, draft.sources).unwrap_or(LISTENER + index);
            let (node, threads) = (INJECTED + index, 1 + u8::from(*two_threads));
            format!(
                "{{ name = \"i{index}\", node = {node}, to = {to}, seed = {seed}, count = {count}, batch = {batch}, \
                 threads = {threads}, pause_ns = {pause_ns} }}"
            )
        });
        let rows: Vec<String> = rows.collect();
        line!(self, "pushers = [{}]", rows.join(", "));
    }

    fn injector(&mut self, index: usize, injector: &InjectorDraft, reached: &[usize]) {
        let InjectorDraft { lcore, depth, count, two_threads, .. } = injector;
        let to = Self::injected(injector, reached, self.draft.sources).unwrap_or(LISTENER + index);
        line!(self, "[injector.i{index}]\nto = \"stage.s{to}\"\npool = \"packets\"\ndepth = {depth}\n");
        if to == LISTENER + index {
            let (lcore, count) =
                (usize::from(*lcore) % self.cpus, usize::from(*count) * (1 + usize::from(*two_threads)));
            line!(self, "[stage.s{to}]\nuse = \"listener\"\nlcore = \"c{lcore}\"");
            line!(self, "params = {{ node = {to}, index = {index}, count = {count} }}\n");
        }
    }

    /// A server and its clients.
    fn visits(&mut self, visits: &VisitsDraft) {
        let VisitsDraft { places, connections, shared, rx_depth_wr, spare_wr, window_packets, seed, .. } = visits;
        let lcores = self.two_lcores(visits.lcore, visits.server_lcore);
        let (pool, address) = (self.receives_into(), self.address());
        // Sends not yet covered by a completion take room.
        let signal_every_wr = 1 + seed % 8;
        let tx_depth_wr = u32::from(window_packets + spare_wr) + signal_every_wr - 1;
        let rx = if *shared { "rx_shared_wr" } else { "rx_depth_wr" };
        let VisitsDraft { rounds, closes, server_closes, is_rude, shards, in_turn, gate, .. } = visits;
        // A visitor that finds no place waits for up to a second before it asks again.
        let all_places = gate.iter().map(|gate| gate.most).fold(places * (1 + shards), u8::min);
        let closes = if *connections > all_places || gate.is_some() { (*closes).min(3) } else { *closes };
        let mut ports = vec![(
            lcores[0],
            "visitors".to_owned(),
            VISITOR,
            format!("connect = \"{address}\"\nconnections = {connections}\nprivate_data = \"{HELLO}\""),
        )];
        for (shard, (name, node)) in doors().take(1 + usize::from(*shards)).enumerate() {
            let mut keys = format!("connections_max = {places}\n");
            keys += &match shard {
                0 => format!("listen = \"{address}\""),
                _ => "listen_with = \"port.door\"".to_owned(),
            };
            if shard == 0 && *shards > 0 {
                keys += &format!("\nplacement = \"{}\"", if *in_turn { "round-robin" } else { "fewest" });
            }
            if let Some(GateDraft { most, reject_percent, says_place }) = gate.as_ref().filter(|_| shard == 0) {
                // Then nobody leaves, and the places named in requests stay true.
                let is_steady = closes == 0;
                keys += &format!(
                    "\nacceptor = \"gate\"\nacceptor_params = {{ seed = {seed}, most = {most}, \
                     reject_percent = {reject_percent}, says_place = {says_place}, in_turn = {in_turn}, \
                     is_steady = {is_steady} }}"
                );
            }
            ports.push((self.beside(lcores[1], shard), name, node, keys));
        }
        for (lcore, name, node, keys) in &ports {
            line!(self, "[port.{name}]\nlcore = \"c{lcore}\"\ndevice = \"nic\"\ntransport = \"rc\"\n{keys}");
            line!(self, "pool = \"{pool}\"\n{rx} = {rx_depth_wr}\nnext = \"stage.s{node}\"");
            line!(self, "tx_depth_wr = {tx_depth_wr}\nsignal_every_wr = {signal_every_wr}\n");
        }
        line!(self, "[stage.s{VISITOR}]\nuse = \"visitor\"\nlcore = \"c{}\"\npool = \"packets\"", lcores[0]);
        line!(self, "out = {{ a = \"port.visitors\" }}");
        line!(
            self,
            "params = {{ seed = {seed}, rounds = {rounds}, closes = {closes}, window_packets = {window_packets}, \
            server_closes = {server_closes}, is_rude = {is_rude}, by_wire = {}, has_gate = {} }}\n",
            self.draft.by_wire,
            gate.is_some()
        );
        for (shard, (lcore, name, node, _)) in ports[1..].iter().enumerate() {
            line!(self, "[stage.s{node}]\nuse = \"desk\"\nlcore = \"c{lcore}\"\nout = {{ a = \"port.{name}\" }}");
            line!(self, "params = {{ place = {shard}, has_gate = {} }}\n", gate.is_some());
        }
    }

    /// Rings of several priorities, with their producers and consumers, if there are two lcores.
    fn rush(&mut self, rush: &RushDraft) {
        if self.cpus < 2 || self.pair().is_some() {
            return;
        }
        let RushDraft { lcore, seed, count, depth, priorities } = rush;
        let lcores = self.two_lcores(*lcore, 1);
        let mut urgency = Vec::new();
        let habits = "hold_packets = 0, drop_percent = 0, leave_percent = 0, take_percent = 0, polite = false";
        for (at, priority) in priorities.iter().enumerate() {
            let (node, batches) = (RUSH + at, seed >> at & 1 == 1);
            line!(self, "[ring.u{at}]\nto = \"stage.s{RUSHED}\"\ndepth = {depth}\npriority = {priority}\n");
            line!(self, "[stage.s{node}]\nuse = \"source1\"\nlcore = \"c{}\"\npool = \"packets\"", lcores[0]);
            line!(self, "out = {{ a = \"ring.u{at}\" }}");
            line!(
                self,
                "params = {{ node = {node}, seed = {seed}, next = [\"busy\"], {habits}, batches = {batches}, \
                 count = {count}, to = [[{RUSHED}]], by = [\"one\"], urgency = [] }}\n"
            );
            urgency.push([node, 0, usize::from(*priority)]);
        }
        line!(self, "[stage.s{RUSHED}]\nuse = \"relay1\"\nlcore = \"c{}\"\nout = {{ a = \"drop\" }}", lcores[1]);
        line!(
            self,
            "params = {{ node = {RUSHED}, seed = {seed}, next = [\"fed\"], {habits}, batches = true, to = [[]], \
             by = [\"one\"], urgency = {urgency:?} }}\n"
        );
    }
}
