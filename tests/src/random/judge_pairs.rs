//! The conditions on two processes that run a plan together: what leaves one of them comes to the
//! other. What begins and ends in one of them is judged there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use verbline::engine::Report;
use verbline::plan::{Plan, Target, Transport};

use super::judge::{is_kept_long, kept_ns, was_cut};
use super::marks::{OPERATOR, OWNER};

/// The figures of a process's report that the other one's must match.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Facts {
    ports: BTreeMap<String, PortFacts>,
    /// The stages' own counters, and `packets_in`, by stage and counter.
    counters: BTreeMap<String, u64>,
    /// By place and reason.
    drops: BTreeMap<String, u64>,
    was_cut: bool,
    /// The time for which others kept its lcores from their CPUs.
    kept_ns: u64,
}

#[derive(Debug, Deserialize, Serialize)]
struct PortFacts {
    sent: u64,
    received: u64,
    is_reliable: bool,
    gets_back: bool,
    /// The stage that gets what it receives.
    next: Option<String>,
}

impl Facts {
    pub(super) fn of(plan: &Plan, report: &Report) -> Facts {
        let kept_ns = report.lcores.iter().map(kept_ns).sum();
        let mut facts = Facts { was_cut: was_cut(report), kept_ns, ..Facts::default() };
        for (port, told) in plan.ports().iter().zip(&report.ports) {
            let sends = told.operations.as_ref().and_then(|told| told.kind("send")).map_or(0, |sends| sends.posted);
            let next = plan.stages().iter().find(|stage| port.next == Some(Target::Stage(stage.id)));
            let fact = PortFacts {
                sent: told.tx_packets + sends,
                received: told.rx_packets,
                is_reliable: port.transport == Transport::Rc,
                gets_back: port.sent.is_some(),
                next: next.map(|stage| stage.name.clone()),
            };
            facts.ports.insert(port.name.clone(), fact);
        }
        for stage in &report.stages {
            facts.counters.insert(format!("{}.packets_in", stage.name), stage.packets_in);
            let own = stage.counters.iter().map(|counter| (format!("{}.{}", stage.name, counter.name), counter.value));
            facts.counters.extend(own);
        }
        facts.drops.extend(report.drops.iter().map(|drop| (format!("{} {}", drop.place, drop.reason), drop.packets)));
        facts
    }

    fn counter(&self, stage: &str, counter: &str) -> Option<u64> {
        self.counters.get(&format!("{stage}.{counter}")).copied()
    }
}

/// The violated conditions on both processes, a sentence each.
pub fn judge_pair(client: &Facts, server: &Facts) -> Vec<String> {
    let mut faults = Vec::new();
    if client.was_cut || server.was_cut {
        return faults;
    }
    for (near, far) in [(client, server), (server, client)] {
        for (name, port) in &near.ports {
            let other = match name.split_at(1) {
                ("t", link) => format!("q{link}"),
                ("q", link) => format!("t{link}"),
                ("v", "isitors") => "door".to_owned(),
                _ => continue,
            };
            let Some(other_end) = far.ports.get(&other) else { continue };
            // Connections that come and go lose what is under way, and may have several doors.
            let (sent, received) = (port.sent, other_end.received);
            if received > sent || (received < sent && port.is_reliable && name != "visitors") {
                faults.push(format!("port.{name} sent {sent}, port.{other} of the other process received {received}"));
            }
            faults.extend(returned(near, name, port, far, other_end));
        }
    }
    if !is_kept_long(client.kept_ns + server.kept_ns) {
        faults.extend(late(client).chain(late(server)));
    }
    faults.extend(operations(client, server));
    faults.extend(polls(client, server));
    faults
}

/// Rounds as long as a safety time-out.
fn late(facts: &Facts) -> impl Iterator<Item = String> {
    let late = facts.counters.iter().filter(|(name, rounds)| name.ends_with(".late") && **rounds > 0);
    late.map(|(name, rounds)| format!("stage.{name}: {rounds} rounds as long as a safety time-out"))
}

/// Packets that asked to come back have come back, or found no room.
fn returned(near: &Facts, name: &str, port: &PortFacts, far: &Facts, other: &PortFacts) -> Option<String> {
    let link = name.get(1..).filter(|_| port.gets_back)?;
    let by = match link {
        "ops" => format!("{OPERATOR}_0"),
        _ => link.splitn(3, '_').take(2).collect::<Vec<_>>().join("_"),
    };
    let asked = far.counter(other.next.as_deref()?, &format!("back_{by}")).unwrap_or(0);
    let full = near.drops.get(&format!("stage.w{link} stage_full")).unwrap_or(&0);
    let all = near.counter(&format!("w{link}"), "packets_in").unwrap_or(0) + full;
    let is_fault = all < asked || (all > asked && port.is_reliable);
    is_fault.then(|| format!("port.{name}: {all} packets came back or found no room, {asked} asked to"))
}

/// The owner's region holds the results of the operator's requests.
fn operations(client: &Facts, server: &Facts) -> Vec<String> {
    let (operator, owner) = (format!("s{OPERATOR}"), format!("s{OWNER}"));
    let differing = [("given_back", "came_back"), ("added", "sum")].into_iter().filter_map(|(near, far)| {
        let (left, right) = (client.counter(&operator, near)?, server.counter(&owner, far)?);
        (left != right).then(|| format!("{near} and {far}: {left} and {right}"))
    });
    differing.collect()
}

/// No question, and no answer, comes that nobody sent.
fn polls(client: &Facts, server: &Facts) -> Option<String> {
    let sums = |facts: &Facts, begins: char| {
        let ports = facts.ports.iter().filter(|(name, _)| name.strip_prefix(begins).is_some_and(is_number));
        ports.fold((0, 0), |(sent, received), (_, port)| (sent + port.sent, received + port.received))
    };
    let ((asked, heard), (answered, came)) = (sums(client, 'a'), sums(server, 'g'));
    let expected: u64 =
        client.counters.iter().filter(|(name, _)| name.ends_with(".expected")).map(|(_, value)| value).sum();
    (came > expected || heard > answered)
        .then(|| format!("{asked} questions for {expected}: {came} came, {answered} answered, {heard} heard"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Regression: a client had ended while its server had no receives for its last sends, none of
    // which was signaled.
    #[test]
    fn the_last_sends_arrive_though_none_of_them_is_signaled() {
        let facts = |name: &str, sent, received| {
            let fact = PortFacts { sent, received, is_reliable: true, gets_back: false, next: None };
            Facts { ports: [(name.to_owned(), fact)].into(), ..Facts::default() }
        };
        let judged = |received| judge_pair(&facts("t0", 136, 0), &facts("q0", 0, received));
        assert_eq!(judged(136), Vec::<String>::new());
        assert_eq!(judged(135).len(), 1);
    }

    // Regression: a round was late for the client, whose server others had kept from its CPU.
    #[test]
    fn a_late_round_counts_unless_either_process_was_kept_from_its_cpu() {
        let facts = |late, kept_ns| {
            let counters = [("s16.late".to_owned(), late)].into();
            Facts { counters, kept_ns, ..Facts::default() }
        };
        let second_ns = 1_000_000_000;
        assert_eq!(judge_pair(&facts(1, 0), &facts(0, 0)).len(), 1);
        assert_eq!(judge_pair(&facts(0, 0), &facts(1, 0)).len(), 1);
        assert_eq!(judge_pair(&facts(1, 0), &facts(0, second_ns)), Vec::<String>::new());
        assert_eq!(judge_pair(&facts(0, 0), &facts(0, 0)), Vec::<String>::new());
    }
}
