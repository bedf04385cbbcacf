//! Warnings of a report: problems that do not end the run, each with what to do.

use std::fmt;

use verbline_verbs::event::AsyncEventKind;

use crate::stats::connection_counters::ConnectionsReport;
use crate::stats::counters::{LcoreReport, PortReport};
use crate::stats::report::{EventReport, PoolReport, Report};

/// The share of an lcore's time that may be stolen without a warning.
const STOLEN_SHARE_MAX: f64 = 0.01;
/// The time that may be stolen in all without a warning: one turn of another thread, in a run too
/// short for a judgement.
const STOLEN_NS_MAX: u64 = 1_000_000;
/// Interrupts and other threads don't keep an lcore from its CPU for this long at once; a stopped
/// process does.
const STOPPED_NS_MIN: u64 = 100_000_000;

impl LcoreReport {
    /// Whether so much of its time was stolen that its figures are not those of an lcore with a CPU
    /// to itself.
    pub fn is_robbed(&self) -> bool {
        self.stolen_share > STOLEN_SHARE_MAX && self.stolen_ns > STOLEN_NS_MAX
    }
}

impl PortReport {
    /// Messages lost since no receive was posted for them, as far as the device counts them. RC
    /// loses none: the sender waits.
    pub fn lost_messages(&self) -> u64 {
        self.rx_out_of_buffer.filter(|_| self.transport != "rc").unwrap_or(0)
    }
}

/// A problem that does not end the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// A stable name, of [`Warning::CODES`].
    pub code: &'static str,
    /// What is wrong, where, and how much.
    pub message: String,
    /// What to do.
    pub remedy: &'static str,
}

impl Warning {
    /// All codes.
    pub const CODES: [&'static str; 8] = [
        "port-down",
        "link-down",
        "not-connected",
        "messages-lost",
        "path-migrated",
        "lcore-moved",
        "stolen-time",
        "packets-held",
    ];
}

/// `warning[code]: message; remedy`.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warning[{}]: {}; {}", self.code, self.message, self.remedy)
    }
}

impl Report {
    /// Problems that do not end the run: ports that are down, links without a signal, connections
    /// that were never made, messages that found no receive, connections that migrated to their
    /// alternate path, lcores that were moved to another CPU, time stolen from them, and pools that
    /// lack packets at the end of the run. Ports come first, then lcores, then pools; a good run
    /// has none. An app without a `tracing` subscriber reads them from a
    /// [snapshot](crate::Running::snapshot) now and then.
    pub fn warnings(&self) -> Vec<Warning> {
        let ports = self.ports.iter().flat_map(|port| [down(port), link_down(port), not_connected(port), lost(port)]);
        let lcores = self.lcores.iter().flat_map(|lcore| [moved(lcore), stolen(self, lcore)]);
        let pools = self.pools.iter().map(|pool| kept(self, pool));
        let all: Vec<_> = ports.chain(self.events.iter().map(migrated)).chain(lcores).chain(pools).flatten().collect();
        debug_assert!(all.iter().all(|warning| Warning::CODES.contains(&warning.code)), "{all:?}");
        all
    }
}

/// Memory that is never freed: a process that runs plan after plan runs out of it.
fn kept(report: &Report, pool: &PoolReport) -> Option<Warning> {
    (report.ended && pool.held > 0).then(|| Warning {
        code: "packets-held",
        message: format!(
            "{} packets of pool {} were not given back as the run ended: its memory is never freed",
            pool.held, pool.name
        ),
        remedy: "drop packets that a stage gave to another thread, or forgot, before the run ends",
    })
}

fn down(port: &PortReport) -> Option<Warning> {
    let reason = port.down_reason.as_deref().unwrap_or("for a reason that is not known");
    port.down.then(|| Warning {
        code: "port-down",
        message: format!("port {} is down: its queue pair is in the error state ({reason})", port.name),
        remedy: "see its errors in the report; a port with an address is connected again unless the plan forbids it",
    })
}

fn link_down(port: &PortReport) -> Option<Warning> {
    port.link_down.then(|| Warning {
        code: "link-down",
        message: format!("port {}: the link of {} is down", port.name, port.device),
        remedy: "see to its cable and to the other end; it is used again once it is up",
    })
}

/// A path has failed, and the connection with it if the other path failed, too.
fn migrated(event: &EventReport) -> Option<Warning> {
    let ports = event.ports.join(", ");
    let times = if event.count == 1 { "once".to_owned() } else { format!("{} times", event.count) };
    let is = |kind: AsyncEventKind| event.event == kind.name();
    let message = if is(AsyncEventKind::PathMig) {
        format!("port {ports} went over to its other path {times}")
    } else if is(AsyncEventKind::PathMigErr) {
        format!("port {ports} could not go over to its other path")
    } else {
        return None;
    };
    let remedy = "see to the link, the switch and the subnet of the path that failed: it is the alternate one now";
    Some(Warning { code: "path-migrated", message, remedy })
}

/// A port with many connections that never had all of them, since it was refused; or a port that
/// refused every peer.
fn not_connected(port: &PortReport) -> Option<Warning> {
    let many = port.connections.as_ref()?;
    let (message, remedy) = if many.role == "connects" { lacking(many)? } else { refusing(many)? };
    let why = many.last_error.as_ref().map(|why| format!("; the last time: {why}")).unwrap_or_default();
    Some(Warning { code: "not-connected", message: format!("port {} {message}{why}", port.name), remedy })
}

/// The warning for a port that connects.
fn lacking(many: &ConnectionsReport) -> Option<(String, &'static str)> {
    let (asked, rejected) = (many.requests, many.rejected_by_peer);
    let attempts = format!("{asked} attempts, {rejected} of which the listener rejected");
    if many.opened == 0 && asked > 0 {
        let remedy = "see whether the listener runs at that address, and what it says of the port's requests";
        return Some((format!("never connected: {attempts}"), remedy));
    }
    (rejected > 0 && many.open_max < many.max).then(|| {
        let message = format!("had {} of its {} connections open at most: {attempts}", many.open_max, many.max);
        (message, "raise the listener's `connections_max`, or ask for fewer `connections`")
    })
}

/// The warning for a port that listens.
fn refusing(many: &ConnectionsReport) -> Option<(String, &'static str)> {
    let rejections: Vec<_> = many.rejections().map(|(why, times)| format!("{times} {why}")).collect();
    (many.opened == 0 && !rejections.is_empty()).then(|| {
        let message = format!("rejected all who asked: {}", rejections.join(", "));
        (message, "compare what the peers ask for with what the plan lets in")
    })
}

fn moved(lcore: &LcoreReport) -> Option<Warning> {
    let (name, cpu, plan_cpu, cpus) = (&lcore.name, lcore.cpu, lcore.plan_cpu, lcore.cpus_allowed);
    let now = match cpus {
        0 => return None,
        1 if cpu == plan_cpu => return None,
        1 => format!("pinned to CPU {cpu}"),
        _ => format!("free to use {cpus} CPUs, CPU {cpu} the first of them"),
    };
    Some(Warning {
        code: "lcore-moved",
        message: format!("lcore {name} was pinned to CPU {plan_cpu}, and is {now} by somebody else's doing"),
        remedy: "see who changes the affinity of its thread (taskset, a cpuset), or give the plan that CPU",
    })
}

fn lost(port: &PortReport) -> Option<Warning> {
    let lost = port.lost_messages();
    (lost > 0).then(|| Warning {
        code: "messages-lost",
        message: format!(
            "port {} has lost {lost} messages, for which no receive was posted (out_of_buffer of {})",
            port.name, port.device
        ),
        remedy: "raise its rx_depth_wr, and `packets` of its pool, or give its lcore less to do",
    })
}

fn stolen(report: &Report, lcore: &LcoreReport) -> Option<Warning> {
    lcore.is_robbed().then(|| {
        let (share, name, cpu) = (lcore.stolen_share * 100.0, &lcore.name, lcore.cpu);
        let mut message =
            format!("{share:.1} % of the time of lcore {name} was stolen while it wanted to run on CPU {cpu}");
        if lcore.stalls > 0 {
            message += &format!(", {:.1?} at once at most", std::time::Duration::from_nanos(lcore.stall_max_ns));
        }
        if !lcore.pinned_beside.is_empty() {
            message += &format!("; also pinned to that CPU: {}", lcore.pinned_beside.join(", "));
        }
        Warning { code: "stolen-time", message, remedy: thief(report, lcore) }
    })
}

/// Returns the taker of most of the stolen time, as far as the kernel knows.
fn thief(report: &Report, lcore: &LcoreReport) -> &'static str {
    // A thread whose group has used up its quota, or whose CPU the hypervisor has, may wait in the
    // queue of its CPU as well.
    let (throttled_ns, hypervisor_ns) = (report.throttled_ns.unwrap_or(0), lcore.hypervisor_ns.unwrap_or(0));
    let others_ns = lcore.queued_ns.unwrap_or(0).saturating_sub(throttled_ns + hypervisor_ns);
    let known_ns = throttled_ns + hypervisor_ns + others_ns;
    // The thread did not even wait for its CPU.
    let rest_ns = lcore.stolen_ns.saturating_sub(known_ns);
    let most_ns = throttled_ns.max(hypervisor_ns).max(others_ns).max(rest_ns);
    if most_ns == throttled_ns {
        "the CPU quota of its control group was used up: raise or remove it (cpu.max)"
    } else if most_ns == hypervisor_ns {
        "the hypervisor gave its CPU to others: ask for dedicated CPUs"
    } else if most_ns == others_ns {
        "other threads ran on its CPU: keep them off it (isolcpus, cpusets), or give the lcore another"
    } else if lcore.queued_ns.is_some() && lcore.stall_max_ns >= STOPPED_NS_MIN {
        "it did not wait for its CPU: the process was stopped (SIGSTOP, Ctrl-Z, a debugger, a frozen control \
         group), or its memory was swapped out"
    } else {
        "the kernel doesn't tell by whom: look for interrupts and for quotas of the host"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_run_has_none_and_a_bad_one_names_the_thief() {
        let lcore = LcoreReport {
            name: "main".into(),
            cpu: 3,
            stolen_ns: 100_000_000,
            stolen_share: 0.01,
            plan_cpu: 3,
            cpus_allowed: 1,
            ..LcoreReport::default()
        };
        let mut report = Report { lcores: vec![lcore], ..Report::default() };
        assert_eq!(report.warnings(), []);
        report.lcores[0].stolen_share = 0.125;
        report.lcores[0].stalls = 1;
        report.lcores[0].stall_max_ns = 39_400_000;
        let said = |report: &Report| report.warnings().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let head = "warning[stolen-time]: 12.5 % of the time of lcore main was stolen while it wanted to run on \
                    CPU 3, 39.4ms at once";
        assert!(said(&report).starts_with(head) && said(&report).contains("doesn't tell"), "{}", said(&report));
        report.lcores[0].queued_ns = Some(40_000_000);
        assert!(said(&report).contains("doesn't tell"), "less than half of it is explained");
        report.lcores[0].stall_max_ns = 2_000_000_000;
        assert!(said(&report).contains("SIGSTOP"), "{}", said(&report));
        report.lcores[0].queued_ns = Some(90_000_000);
        assert!(said(&report).contains("other threads"));
        report.lcores[0].pinned_beside = vec!["thread vl-main of process 7 (kv)".into()];
        assert!(said(&report).contains("also pinned to that CPU: thread vl-main of process 7 (kv); other threads"));
        report.lcores[0].hypervisor_ns = Some(50_000_000);
        assert!(said(&report).contains("hypervisor"));
        report.throttled_ns = Some(60_000_000);
        assert!(said(&report).contains("quota"));
        report.lcores[0].stolen_ns = STOLEN_NS_MAX;
        assert_eq!(report.warnings(), [], "a run that was too short to say anything");
    }

    #[test]
    fn a_port_that_is_down_is_told_with_its_reason() {
        let port =
            PortReport { name: "orders".into(), device: "mlx5_0".into(), link_down: true, ..PortReport::default() };
        let port = PortReport { down: true, down_reason: Some("IBV_WC_RETRY_EXC_ERR".into()), ..port };
        let warnings = Report { ports: vec![port], ..Report::default() }.warnings();
        assert_eq!(warnings.iter().map(|warning| warning.code).collect::<Vec<_>>(), ["port-down", "link-down"]);
        assert!(
            warnings[0].message.contains("port orders is down") && warnings[0].message.contains("IBV_WC_RETRY_EXC_ERR")
        );
        assert!(warnings[1].message.contains("mlx5_0"));
    }

    #[test]
    fn an_lcore_that_was_moved_is_told_with_both_cpus() {
        let lcore = |cpu, cpus_allowed| LcoreReport {
            name: "a".into(),
            cpu,
            plan_cpu: 1,
            cpus_allowed,
            ..LcoreReport::default()
        };
        let said = |lcore| Report { lcores: vec![lcore], ..Report::default() }.warnings();
        assert_eq!(said(lcore(1, 1)), []);
        assert!(said(lcore(0, 1))[0].message.contains("was pinned to CPU 1, and is pinned to CPU 0"));
        assert!(said(lcore(0, 2))[0].message.contains("was pinned to CPU 1, and is free to use 2 CPUs"));
    }

    #[test]
    fn a_port_that_is_refused_throughout_is_told_with_the_listeners_words() {
        let said = |many| {
            let port = PortReport { name: "door".into(), connections: Some(many), ..PortReport::default() };
            Report { ports: vec![port], ..Report::default() }.warnings()
        };
        let words = Some("10.0.0.1:1 rejects it: full".to_owned());
        let base = ConnectionsReport { max: 65, role: "connects", last_error: words, ..ConnectionsReport::default() };
        let asked = ConnectionsReport { requests: 7, rejected_by_peer: 5, ..base.clone() };
        assert_eq!(said(base.clone()), [], "it has not asked yet");
        assert_eq!(
            said(asked.clone())[0].message,
            "port door never connected: 7 attempts, 5 of which the listener rejected; the last time: 10.0.0.1:1 \
             rejects it: full"
        );
        let most = ConnectionsReport { opened: 64, open_max: 64, ..asked.clone() };
        assert!(said(most.clone())[0].message.contains("had 64 of its 65 connections open at most"));
        assert_eq!(said(ConnectionsReport { open_max: 65, ..most }), [], "it had all of them in the end");
        let refusing = ConnectionsReport { role: "listens", rejected_full: 3, rejected_acceptor: 2, ..asked };
        assert!(said(refusing.clone())[0].message.starts_with(
            "port door rejected all who asked: 2 by its acceptor, 3 since all places were taken; the last time: "
        ));
        assert_eq!(said(ConnectionsReport { opened: 1, ..refusing }), []);
    }

    #[test]
    fn what_found_no_receive_was_lost_where_nobody_waits() {
        let port = PortReport {
            name: "feed".into(),
            device: "mlx5_0".into(),
            transport: "ud",
            rx_out_of_buffer: Some(17),
            ..PortReport::default()
        };
        let reliable = PortReport { transport: "rc", ..port.clone() };
        let uncounted = PortReport { rx_out_of_buffer: None, ..port.clone() };
        let warnings = Report { ports: vec![reliable, uncounted, port], ..Report::default() }.warnings();
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert_eq!(
            warning.to_string(),
            "warning[messages-lost]: port feed has lost 17 messages, for which no receive was posted (out_of_buffer of \
             mlx5_0); raise its rx_depth_wr, and `packets` of its pool, or give its lcore less to do"
        );
    }
}
