//! What must be true of the report of every run that came to its end by itself.

use verbline::engine::Report;
use verbline::plan::{Consumer, Plan, Stage, Target, Transport};

use super::marks::OUTPUTS_MAX;
use crate::report_faults;

/// What does not hold, a sentence each.
pub fn judge(plan: &Plan, report: &Report) -> Vec<String> {
    let mut judge = Judge { plan, report, faults: Vec::new() };
    judge.whole_run();
    judge.lcores();
    judge.links();
    plan.stages().iter().for_each(|stage| judge.stage(stage));
    judge.faults.extend(report_faults(&serde_json::json!(report)));
    judge.faults
}

struct Judge<'a> {
    plan: &'a Plan,
    report: &'a Report,
    faults: Vec<String>,
}

impl Judge<'_> {
    #[track_caller]
    fn equal(&mut self, what: impl FnOnce() -> String, left: u64, right: u64) {
        if left != right {
            self.faults.push(format!("{}: {left} and {right}", what()));
        }
    }

    fn whole_run(&mut self) {
        let report = self.report;
        self.equal(|| "packets taken and returned".into(), report.packets.taken, report.packets.returned);
        self.equal(|| "packets held, and none".into(), report.packets.held, 0);
        self.equal(|| "failures, and none".into(), report.failures.len() as u64, 0);
        self.equal(|| "drained, and true".into(), report.drained.into(), 1);
        for pool in &report.pools {
            self.equal(|| format!("pool.{}: packets and free", pool.name), pool.packets, pool.free);
        }
        for drop in &report.drops {
            if matches!(
                drop.reason.as_str(),
                "stopped" | "send_error" | "recv_error" | "port_down" | "too_long" | "no_output"
            ) {
                self.faults.push(format!("{} dropped {} packets: {}", drop.place, drop.packets, drop.reason));
            }
        }
    }

    fn lcores(&mut self) {
        for lcore in &self.report.lcores {
            self.equal(|| format!("lcore.{}: rescues, and none", lcore.name), lcore.rescues, 0);
            self.equal(|| format!("lcore.{}: strays, and none", lcore.name), lcore.strays, 0);
        }
    }

    /// What left a place is what came to the next one.
    fn links(&mut self) {
        for ring in &self.report.rings {
            let name = format!("ring.{}", ring.name);
            self.equal(|| format!("{name}: pushed and popped"), ring.pushed, ring.popped);
            let (sent, refused) = self.sent_to(|target| self.plan.target_name(target) == name);
            self.equal(|| format!("{name}: sent to it and pushed"), sent, ring.pushed);
            self.equal(|| format!("{name}: refused and ring_full"), refused, self.dropped(&name, "ring_full"));
        }
        for (port, told) in self.plan.ports().iter().zip(&self.report.ports) {
            let name = format!("port.{}", port.name);
            let (sent, refused) = self.sent_to(|target| self.plan.target_name(target) == name);
            let rings = self.plan.rings().iter().zip(&self.report.rings);
            let to_this = rings.filter(|(ring, _)| ring.to == Consumer::Port(port.id));
            let popped: u64 = to_this.map(|(_, told)| told.popped).sum();
            self.equal(|| format!("{name}: sent to it and posted"), sent + popped, told.tx_packets);
            self.equal(|| format!("{name}: refused and tx_full"), refused, self.dropped(&name, "tx_full"));
            let trouble = told.stale + u64::from(told.down) + told.errors.len() as u64;
            self.equal(|| format!("{name}: stale completions, errors and being down, and none"), trouble, 0);
        }
        self.wires();
    }

    /// An RC queue pair delivers everything; the others deliver no more than was sent.
    fn wires(&mut self) {
        for port in self.plan.ports().iter().filter(|port| port.name.starts_with('t')) {
            let other_end = format!("q{}", &port.name[1..]);
            let (Some(near), Some(far)) = (self.report.port(&port.name), self.report.port(&other_end)) else {
                continue;
            };
            let (sent, received) = (near.tx_packets, far.rx_packets);
            if received > sent || (received < sent && port.transport == Transport::Rc) {
                self.faults.push(format!("port.{} sent {sent}, port.{other_end} received {received}", port.name));
            }
        }
    }

    fn stage(&mut self, stage: &Stage) {
        let Some(told) = self.report.stage(&stage.name) else {
            self.faults.push(format!("stage.{} is not in the report", stage.name));
            return;
        };
        let name = format!("stage.{}", stage.name);
        let own = |counter: &str| told.counter(counter).unwrap_or(u64::MAX);
        let each = |word: &str| (0..OUTPUTS_MAX).map(|output| own(&format!("{word}_{output}"))).sum::<u64>();
        self.equal(|| format!("{name}: packets astray, and none"), own("astray"), 0);
        let late = told.counter("late").unwrap_or(0);
        self.equal(|| format!("{name}: rounds as long as a safety time-out, and none"), late, 0);
        self.equal(|| format!("{name}: packets_in and what came"), told.packets_in, own("came"));
        self.equal(|| format!("{name}: packets_out and what it sent"), told.packets_out, each("sent"));
        self.equal(|| format!("{name}: unclaimed and left"), self.dropped(&name, "unclaimed"), own("left"));
        self.equal(|| format!("{name}: on_purpose, twice"), self.dropped(&name, "on_purpose"), own("on_purpose"));
        let gone = each("sent") + each("refused") + own("left") + own("on_purpose") + self.dropped(&name, "planned");
        self.equal(|| format!("{name}: what it got and what it gave"), own("came") + own("made"), gone);

        let (sent, refused) = self.sent_to(|target| target == Target::Stage(stage.id));
        let rings = self.plan.rings().iter().zip(&self.report.rings);
        let popped: u64 =
            rings.filter(|(ring, _)| ring.to == Consumer::Stage(stage.id)).map(|(_, told)| told.popped).sum();
        let ports = self.plan.ports().iter().zip(&self.report.ports);
        let received: u64 =
            ports.filter(|(port, _)| port.next == Some(Target::Stage(stage.id))).map(|(_, told)| told.rx_packets).sum();
        self.equal(|| format!("{name}: sent to it and packets_in"), sent + popped + received, told.packets_in);
        self.equal(|| format!("{name}: refused and stage_full"), refused, self.dropped(&name, "stage_full"));
    }

    /// What the stages' own counters say was taken and refused by the places that `is_there` names.
    fn sent_to(&self, is_there: impl Fn(Target) -> bool) -> (u64, u64) {
        let (mut sent, mut refused) = (0, 0);
        for (stage, told) in self.plan.stages().iter().zip(&self.report.stages) {
            for (output, _) in stage.outputs.iter().enumerate().filter(|(_, target)| is_there(**target)) {
                sent += told.counter(&format!("sent_{output}")).unwrap_or(0);
                refused += told.counter(&format!("refused_{output}")).unwrap_or(0);
            }
        }
        (sent, refused)
    }

    fn dropped(&self, place: &str, reason: &str) -> u64 {
        let drops = self.report.drops.iter().filter(|drop| drop.place == place && drop.reason == reason);
        drops.map(|drop| drop.packets).sum()
    }
}
