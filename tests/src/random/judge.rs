//! The conditions on the report of every run that ended by itself.

use std::time::Duration;

use serde::Deserialize;
use verbline::engine::{LcoreReport, Report, StageReport};
use verbline::plan::{Consumer, Plan, SpreadBy, Stage, Target};

use super::marks::{LATE_NS, OUTPUTS_MAX, PATIENCE, SECTION};
use crate::report_faults;

/// The violated conditions, a sentence each.
pub fn judge(plan: &Plan, report: &Report) -> Vec<String> {
    let is_strict = report.stages.iter().all(|stage| stage.counter("may_lose").unwrap_or(0) == 0);
    let side = plan.section(SECTION).and_then(|section| section.parse::<Side>().ok()?.side);
    // Whether visitors close connections with packets under way is known in their process.
    let is_strict = is_strict && (side.is_none() || plan.ports().iter().all(|port| port.connections.is_none()));
    let mut judge = Judge { plan, report, is_strict, side, faults: Vec::new() };
    judge.whole_run();
    judge.lcores();
    judge.links();
    plan.stages().iter().for_each(|stage| judge.stage(stage));
    judge.parts();
    judge.faults.extend(report_faults(&serde_json::json!(report)));
    judge.faults
}

#[derive(Deserialize)]
struct Side {
    side: Option<u8>,
}

pub(super) struct Judge<'a> {
    pub(super) plan: &'a Plan,
    pub(super) report: &'a Report,
    /// Nobody closes a connection while packets are under way.
    pub(super) is_strict: bool,
    /// The plan's other part runs in another process: 0 for the client, which ends first, and 1 for
    /// the server.
    pub(super) side: Option<u8>,
    pub(super) faults: Vec<String>,
}

impl Judge<'_> {
    #[track_caller]
    pub(super) fn equal(&mut self, what: impl FnOnce() -> String, left: u64, right: u64) {
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
            let is_fault = match drop.reason.as_str() {
                "stopped" | "recv_error" | "port_down" | "too_long" | "no_output" => true,
                // Packets of connections that were closed with packets under way.
                "no_connection" if self.knows_too_few(&drop.place) => false,
                "send_error" | "no_connection" => self.is_strict || !has_many(&drop.place),
                _ => false,
            };
            if is_fault {
                self.faults.push(format!("{} dropped {} packets: {}", drop.place, drop.packets, drop.reason));
            }
        }
    }

    fn lcores(&mut self) {
        for lcore in &self.report.lcores {
            self.equal(|| format!("lcore.{}: rescues, and none", lcore.name), lcore.rescues, 0);
            self.equal(|| format!("lcore.{}: strays, and none", lcore.name), lcore.strays, 0);
            let asked =
                self.plan.lcores().iter().find(|planned| planned.name == lcore.name).and_then(|it| it.late_share);
            if asked.is_some() && asked != lcore.late_share_max {
                self.faults.push(format!("lcore.{}: late_share {asked:?} and {:?}", lcore.name, lcore.late_share_max));
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
        let (sent, refused) = (each(told, "sent"), each(told, "refused"));
        self.equal(|| format!("{name}: packets astray, and none"), own("astray"), 0);
        // A round with another process is late if either was kept from its CPU: judged with both.
        let is_judged = self.side.is_none() && !kept_from_cpus(self.report);
        let late = if is_judged { told.counter("late").unwrap_or(0) } else { 0 };
        self.urgency(&name, stage, told);
        self.timers(&name, told);
        self.equal(|| format!("{name}: rounds as long as a safety time-out, and none"), late, 0);
        self.equal(|| format!("{name}: packets_in and what came"), told.packets_in, own("came"));
        self.equal(|| format!("{name}: unclaimed and left"), self.dropped(&name, "unclaimed"), own("left"));
        self.equal(|| format!("{name}: on_purpose, twice"), self.dropped(&name, "on_purpose"), own("on_purpose"));
        let gone = sent + refused + own("left") + own("on_purpose") + self.dropped(&name, "planned");
        self.equal(|| format!("{name}: what it got and what it gave"), own("came") + own("made"), gone);
        self.equal(|| format!("{name}: packets that its pool had not, and none"), told.alloc_failed, 0);
        let copies = stage.outputs.iter().any(|target| self.dealt(*target).is_some_and(|(by, _)| by == SpreadBy::Copy));
        if !copies {
            self.equal(|| format!("{name}: packets_out and what it sent"), told.packets_out, sent);
            self.equal(|| format!("{name}: alloc_failed and unmade"), told.alloc_failed, own("unmade"));
        }
    }

    /// Each timer that the stage armed was due or canceled, or still armed as the run stopped.
    fn timers(&mut self, name: &str, told: &StageReport) {
        let Some(armed) = told.counter("timers_armed") else { return };
        let own = |counter: &str| told.counter(counter).unwrap_or(u64::MAX);
        let astray = own("timers_astray");
        self.equal(|| format!("{name}: timers astray, and none"), astray, 0);
        self.equal(|| format!("{name}: timers armed, twice"), told.timers_armed, armed);
        self.equal(|| format!("{name}: timers due, twice"), told.timers_due, own("timers_due"));
        self.equal(|| format!("{name}: timers canceled, twice"), told.timers_canceled, own("timers_canceled"));
        self.equal(|| format!("{name}: timers refused, twice"), told.timers_refused, own("timers_refused"));
    }

    /// Less urgent rings wait while a more urgent one has something, but in a timed turn, in which
    /// the call is timed. What waits for a stage that is held back comes together.
    fn urgency(&mut self, name: &str, stage: &Stage, told: &StageReport) {
        let is_held = self.plan.rings().iter().any(|ring| ring.lanes.iter().any(|lane| lane.held.contains(&stage.id)));
        let mixed = told.counter("mixed").unwrap_or(0);
        if !is_held && mixed > told.timed {
            self.faults.push(format!("{name}: {mixed} batches of several priorities, and {} timed calls", told.timed));
        }
    }

    /// The packets that come to a stage over rings, ports and injectors, not from stages of its own
    /// lcore.
    pub(super) fn handed_to(&self, stage: &Stage) -> u64 {
        let rings = self.plan.rings().iter().zip(&self.report.rings);
        let popped: u64 =
            rings.filter(|(ring, _)| ring.to == Consumer::Stage(stage.id)).map(|(_, told)| told.popped).sum();
        let ports = self.plan.ports().iter().zip(&self.report.ports);
        let received: u64 =
            ports.filter(|(port, _)| port.next == Some(Target::Stage(stage.id))).map(|(_, told)| told.rx_packets).sum();
        let injectors = self.plan.injectors().iter().zip(&self.report.injectors);
        let injected: u64 =
            injectors.filter(|(injector, _)| injector.to == stage.id).map(|(_, told)| told.popped).sum();
        popped + received + injected
    }

    /// The dealing and the places of an output, if it leads to a spread.
    pub(super) fn dealt(&self, target: Target) -> Option<(SpreadBy, &[Target])> {
        let Target::Spread(id) = target else { return None };
        let spread = &self.plan.spreads()[id.index()];
        Some((spread.by, &spread.to))
    }

    pub(super) fn dropped(&self, place: &str, reason: &str) -> u64 {
        let drops = self.report.drops.iter().filter(|drop| drop.place == place && drop.reason == reason);
        drops.map(|drop| drop.packets).sum()
    }
}

/// Whether connections of the port come and go.
pub(super) fn has_many(place: &str) -> bool {
    place == "port.visitors" || place.starts_with("port.door")
}

/// Whether other programs kept the lcores from their CPUs for as long as a round may take: then one
/// that took longer says nothing.
pub(super) fn kept_from_cpus(report: &Report) -> bool {
    is_kept_long(report.lcores.iter().map(kept_ns).sum())
}

pub(super) fn is_kept_long(kept_ns: u64) -> bool {
    kept_ns > LATE_NS / 2
}

/// Whether a run was stopped before its sources had ended, as others kept it from its CPUs.
pub(super) fn was_cut(report: &Report) -> bool {
    Duration::from_nanos(report.elapsed_ns) >= PATIENCE
}

/// The time for which others kept an lcore from its CPU, as it noticed or as the kernel counted:
/// what they take within a turn that has work counts as busy.
pub(super) fn kept_ns(lcore: &LcoreReport) -> u64 {
    lcore.stolen_ns.max(lcore.queued_ns.unwrap_or(0))
}

/// A stage's counter over all outputs.
pub(super) fn each(told: &StageReport, word: &str) -> u64 {
    (0..OUTPUTS_MAX).map(|output| told.counter(&format!("{word}_{output}")).unwrap_or(u64::MAX)).sum()
}
