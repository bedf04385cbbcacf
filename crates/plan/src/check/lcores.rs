//! Checks each lcore: its CPU, the one device of its completion queue, and that packets leave it
//! over rings only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::check::edges::Edge;
use crate::check::refs::Links;
use crate::choices::{Cpu, IdlePolicy};
use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::ids::{Consumer, DeviceId, LcoreId, Target};
use crate::machine::Machine;
use crate::machine::note::{Lack, Note};
use crate::machine::number_list::show_number_list;
use crate::read::raw::{RawLcore, RawPlan};
use crate::read::reader::Field;

/// Results for each lcore.
pub(crate) struct Lcores {
    /// The CPU, if it exists.
    pub(crate) cpus: Vec<Option<u32>>,
    /// The device of its ports.
    pub(crate) devices: Vec<Option<DeviceId>>,
}

pub(crate) fn check(raw: &RawPlan, links: &Links<'_>, edges: &[Edge], machine: &Machine, sink: &mut Sink) -> Lcores {
    let cpus = cpus(raw, machine, sink);
    budgets(raw, sink);
    deaf(raw, links, sink);
    for edge in edges {
        crossing(raw, links, edge, sink);
    }
    Lcores { cpus, devices: devices(raw, links, sink) }
}

/// The kernel's number of a CPU; `None` for a place beyond the last.
fn resolve(cpu: Cpu, machine: &Machine) -> Option<u32> {
    match cpu {
        Cpu::Number(number) => Some(number),
        Cpu::Allowed(place) => machine.cpus.iter().nth(place as usize).copied(),
    }
}

fn cpus(raw: &RawPlan, machine: &Machine, sink: &mut Sink) -> Vec<Option<u32>> {
    let resolved = |lcore: &RawLcore| lcore.cpu.as_ref().and_then(|cpu| resolve(cpu.value, machine));
    let cpus: Vec<Option<u32>> = raw.lcores.iter().map(resolved).collect();
    let are_too_few = too_few_cpus(raw, machine, sink);
    let mut taken: BTreeMap<u32, (Span, &str)> = BTreeMap::new();
    for (lcore, resolved) in raw.lcores.iter().zip(&cpus) {
        let Some(cpu) = &lcore.cpu else { continue };
        let allowed = resolved.filter(|number| machine.cpus.contains(number));
        match resolved.and_then(|number| Some((number, taken.get(&number)?))) {
            Some((number, (first, name))) => {
                let number = named(cpu.value, number);
                sink.error("cpu-twice", cpu.span, format!("CPU {number} already has an lcore, lcore.{name}"))
                    .related(*first, "taken here")
                    .note(
                        "an lcore spins: two on one CPU would take turns by the scheduler's quantum, milliseconds each",
                    )
                    .help(free_cpus(&cpus, machine));
                continue;
            }
            None if allowed.is_none() && !are_too_few => not_allowed(cpu, &cpus, machine, sink),
            None => {}
        }
        taken.extend(resolved.map(|number| (number, (cpu.span, lcore.head.name.as_str()))));
    }
    cpus
}

/// More lcores than CPUs: the plan must decide which lcore to give up.
fn too_few_cpus(raw: &RawPlan, machine: &Machine, sink: &mut Sink) -> bool {
    let (lcores, cpus) = (raw.lcores.len(), machine.cpus.len());
    let Some(first) = raw.lcores.get(cpus) else { return false };
    let span = first.cpu.as_ref().map_or(first.head.span, |cpu| cpu.span);
    let noun = if cpus == 1 { "CPU" } else { "CPUs" };
    sink.error(
        "too-few-cpus",
        span,
        format!("the plan has {lcores} lcores, and this process may run on {cpus} {noun}"),
    )
    .note(format!("it may run on {}", list_cpus(machine.cpus.iter().copied())))
    .help("let the process run on more: `taskset -c LIST`, the cgroup's cpuset, the container's CPUs")
    .help("or merge two lcores");
    true
}

fn not_allowed(cpu: &Field<Cpu>, cpus: &[Option<u32>], machine: &Machine, sink: &mut Sink) {
    let allowed = list_cpus(machine.cpus.iter().copied());
    match cpu.value {
        Cpu::Number(number) => sink
            .error("cpu-not-allowed", cpu.span, format!("this process may not run on CPU {number}"))
            .note(format!("it may run on {allowed}"))
            .help(free_cpus(cpus, machine))
            .help(match machine.cpus.first() {
                Some(first) => {
                    format!("or name a place among those allowed: `cpu = \"allowed:0\"` is CPU {first} here")
                }
                None => "see `taskset -p $$`, and the cgroup's cpuset".to_owned(),
            }),
        Cpu::Allowed(place) => {
            let count = machine.cpus.len();
            let last = count.saturating_sub(1);
            sink.error(
                "cpu-not-allowed",
                cpu.span,
                format!("there is no allowed:{place}: this process may run on {allowed}"),
            )
            .help(format!("places count from 0: \"allowed:{last}\" is the last"))
        }
    };
}

/// A CPU's number, with the place that named it.
fn named(cpu: Cpu, number: u32) -> String {
    match cpu {
        Cpu::Number(_) => number.to_string(),
        Cpu::Allowed(_) => format!("{number} ({cpu})"),
    }
}

/// Notes a cgroup's quota that stops spinning lcores.
pub(crate) fn cpu_time(raw: &RawPlan, machine: &Machine) -> Option<Note> {
    let quota = machine.cpu_quota.as_ref()?;
    let lcores = raw.lcores.len();
    (quota.millicpus < lcores as u64 * 1000).then(|| Note {
        lack: Lack::CpuTime,
        message: format!(
            "a cgroup grants this process {}.{:02} CPUs, and the plan has {lcores} lcore{}: what spins is stopped for \
             the rest of each period, some tens of milliseconds",
            quota.millicpus / 1000,
            quota.millicpus % 1000 / 10,
            if lcores == 1 { "" } else { "s" }
        ),
        remedy: format!("lift the limit: {} as root, or a CPU limit of {lcores} in the container", quota.remedy),
    })
}

fn free_cpus(used: &[Option<u32>], machine: &Machine) -> String {
    let used: BTreeSet<u32> = used.iter().flatten().copied().collect();
    let mut free = machine.cpus.difference(&used).copied().peekable();
    match free.peek() {
        Some(_) => format!("free for this plan: {}", list_cpus(free)),
        None => "no CPU is left: merge two lcores, or let the process run on more CPUs".to_owned(),
    }
}

/// `CPU 0-3, 8`.
fn list_cpus(cpus: impl Iterator<Item = u32>) -> String {
    match show_number_list(cpus) {
        none if none.is_empty() => "no CPU at all".to_owned(),
        list => format!("CPU {list}"),
    }
}

fn budgets(raw: &RawPlan, sink: &mut Sink) {
    for lcore in &raw.lcores {
        let span = |field: &Option<Field<Duration>>| field.as_ref().map(|field| field.span);
        let learned =
            [("late_share", lcore.late_share.as_ref().map(|field| field.span)), ("spin_max", span(&lcore.spin_max))];
        let fixed = [("spin", span(&lcore.spin)), ("dwell", span(&lcore.dwell))];
        let quiet = [("unsolicited_wait", span(&lcore.unsolicited_wait))];
        let name = &lcore.head.name;
        let (without_effect, why, help): (Vec<_>, _, _) = match lcore.idle.value {
            IdlePolicy::Poll => (
                fixed.into_iter().chain(learned).chain(quiet).collect(),
                "never sleeps",
                "remove it, or write `idle = \"adaptive\"`",
            ),
            IdlePolicy::Event => (
                learned.into_iter().chain([("pause", lcore.pause.given.then_some(lcore.pause.span))]).collect(),
                "sleeps as soon as it can",
                "remove it, or write `idle = \"adaptive\"`",
            ),
            IdlePolicy::Adaptive if lcore.spin.is_some() => {
                (learned.into(), "spins for as long as `spin` says", "remove it, or remove `spin`")
            }
            IdlePolicy::Adaptive => continue,
        };
        for (key, span) in without_effect.into_iter().filter_map(|(key, span)| Some((key, span?))) {
            sink.no_effect(key, span, format!("lcore.{name} {why}")).help(help);
        }
    }
}

/// An lcore without a port has no completions, and so none that are solicited or not.
fn deaf(raw: &RawPlan, links: &Links<'_>, sink: &mut Sink) {
    for (index, lcore) in raw.lcores.iter().enumerate() {
        let id = LcoreId::from_index(index);
        // `budgets` warns of lcores that never sleep.
        let sleeps = lcore.idle.value != IdlePolicy::Poll;
        let Some(field) = lcore.unsolicited_wait.as_ref().filter(|_| sleeps) else { continue };
        if links.ports.iter().all(|port| port.lcore != Some(id)) {
            sink.no_effect("unsolicited_wait", field.span, format!("lcore.{} has no port", lcore.head.name))
                .help("remove it, or name the lcore in the port that it polls");
        }
    }
}

/// Refuses an edge to a consumer on another lcore.
fn crossing(raw: &RawPlan, links: &Links<'_>, edge: &Edge, sink: &mut Sink) {
    let consumer = match edge.hop.target {
        Target::Stage(id) => Consumer::Stage(id),
        Target::Port(id) => Consumer::Port(id),
        Target::Ring(_) | Target::Spread(_) | Target::Drop => return,
    };
    let Some((from, to)) = edge.lcore.zip(links.lcore_of(consumer)).filter(|(from, to)| from != to) else { return };
    let name = |id: LcoreId| raw.lcores[id.index()].head.name.as_str();
    let target = raw.consumer_name(consumer);
    let span = match consumer {
        Consumer::Stage(id) => raw.stages[id.index()].lcore.as_ref().map(|field| field.span),
        Consumer::Port(id) => raw.ports[id.index()].lcore.as_ref().map(|field| field.span),
    };
    let message =
        format!("{target} is on lcore.{}, {} on lcore.{}", name(to), raw.producer_name(edge.from), name(from));
    let one = sink.error("crosses-lcores", edge.hop.span, message);
    if let Some(span) = span {
        one.related(span, "on that lcore");
    }
    one.note("packets go from lcore to lcore over a ring")
        .help(format!("add [ring.NAME] with `to = \"{target}\"` and `depth = 1024`, and write \"ring.NAME\" here"));
}

/// One completion queue an lcore, and a completion queue belongs to one device.
fn devices(raw: &RawPlan, links: &Links<'_>, sink: &mut Sink) -> Vec<Option<DeviceId>> {
    let mut devices: Vec<Option<(DeviceId, Span)>> = vec![None; raw.lcores.len()];
    for (port, resolved) in raw.ports.iter().zip(&links.ports) {
        let (Some(lcore), Some(device), Some(field)) = (resolved.lcore, resolved.device, &port.device) else {
            continue;
        };
        match devices[lcore.index()] {
            None => devices[lcore.index()] = Some((device, field.span)),
            Some((first, span)) if first != device => {
                let name = &raw.lcores[lcore.index()].head.name;
                sink.error("two-devices", field.span, format!("lcore.{name} has ports on two devices"))
                    .related(span, "one is here")
                    .note("an lcore has one completion queue, which belongs to one device")
                    .help("give each device an lcore of its own, with a ring between them if packets must pass");
            }
            Some(_) => {}
        }
    }
    devices.into_iter().map(|device| device.map(|(id, _)| id)).collect()
}

#[cfg(test)]
mod tests {
    use super::list_cpus;

    #[test]
    fn lists_cpus_as_runs() {
        assert_eq!(list_cpus([0, 1, 2, 5, 7, 8].into_iter()), "CPU 0-2, 5, 7-8");
        assert_eq!(list_cpus([].into_iter()), "no CPU at all");
    }
}
