//! The report as text, within 80 columns; numbers of long runs may take more.

use std::fmt::Write as _;

use verbline_engine::{EventReport, Report, Warning};

use super::figures::{count, duration};
use super::output::{COLUMNS, alarming, labelled, wrapped};
use super::port_text::{lost, port_errors, refused};
use super::stage_text::{own_figures, sampled, sleepers, unmet};
use super::visible::visible_name;
use super::{Outcome, remedies, tables};

/// The whole report. Failures come last, where a terminal shows them.
pub(super) fn report(report: &Report, outcome: &Outcome, coloured: bool) -> String {
    let failures = failures(report, outcome);
    let verdict = if failures.is_empty() { String::new() } else { alarming(", FAILED", coloured) };
    let elapsed = duration(report.elapsed_ns);
    let mut text = format!("{}: ran {elapsed}{verdict}\n\n", visible_name(&report.plan));
    if !outcome.text.is_empty() {
        let _ = writeln!(text, "{}\n", outcome.text.trim_end());
    }
    let _ = writeln!(text, "{}\n", tables::lcores(&report.lcores));
    text.push_str(&sleepers(&report.lcores));
    let _ = writeln!(text, "{}", tables::stages(&report.stages));
    text.push_str(sampled(&report.stages));
    text.push_str(&own_figures(&report.stages));
    text.push_str(&unmet(&report.stages));
    if !report.ports.is_empty() {
        let _ = writeln!(text, "{}\n", tables::ports(&report.ports));
    }
    text.extend(tables::operations(&report.ports).map(|table| table + "\n\n"));
    text.push_str(&port_errors(&report.ports));
    text.extend(tables::many_connections(&report.ports).map(|table| table + "\n\n"));
    text.push_str(&refused(&report.ports));
    if !report.connections.is_empty() {
        let _ = writeln!(text, "{}\n", tables::connections(&report.connections));
    }
    text.push_str(&lost(&report.connections));
    text.push_str(&super::wire_text::network(report));
    if !report.rings.is_empty() {
        let _ = writeln!(text, "{}\n", tables::rings(&report.rings));
    }
    if !report.injectors.is_empty() {
        let _ = writeln!(text, "{}\n", tables::injectors(&report.injectors));
    }
    match report.drops.as_slice() {
        [] => text.push_str("drops    none\n"),
        drops => _ = writeln!(text, "{}\n", tables::drops(drops)),
    }
    text.push_str(&packets(report));
    text.push_str(&events(&report.events));
    if !failures.is_empty() {
        text.push_str(&stolen(report));
    }
    for (index, failure) in failures.iter().enumerate() {
        let gap = if index == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{gap}{}", alarming(failure, coloured));
    }
    text
}

/// The time stolen from the lcores of a failed run: it alone may have caused the failures.
fn stolen(report: &Report) -> String {
    let warnings = report.warnings();
    let stolen = warnings.iter().filter(|warning| warning.code == "stolen-time");
    let line = |warning: &Warning| {
        let line = format!("{}: {}; what failed may come of that", warning.message, warning.remedy);
        format!("\n{}\n", labelled("stolen", &line))
    };
    stolen.map(line).collect()
}

/// The failures, one paragraph each.
pub(super) fn failures(report: &Report, outcome: &Outcome) -> Vec<String> {
    let of_lcore = report.failures.iter().map(|failure| {
        let stage = failure.stage.as_deref().map(|stage| format!(", stage {stage}")).unwrap_or_default();
        let verb = if failure.panicked { "panicked" } else { "failed" };
        format!("lcore {}{stage} {verb}: {}", failure.lcore, failure.message)
    });
    let sentences = of_lcore.chain(outcome.failures.iter().cloned());
    const HEAD: &str = "FAILED   ";
    sentences.map(|sentence| format!("{HEAD}{}", wrapped(&sentence, COLUMNS, HEAD.len()))).collect()
}

fn packets(report: &Report) -> String {
    let packets = &report.packets;
    let (taken, returned) = (count(packets.taken), count(packets.returned));
    let mut text = format!("packets  {taken} taken, {returned} returned, {} held\n", count(packets.held));
    for holder in packets.holders.iter().filter(|holder| holder.packets > 0) {
        let place = if holder.place == "elsewhere" { "a stage or the app" } else { &holder.place };
        let _ = writeln!(text, "         {} held by {place}", count(holder.packets));
    }
    text
}

/// The events of the devices, with their ports and lcores, and the remedies.
fn events(events: &[EventReport]) -> String {
    let names = |kind: &str, names: &[String]| match names {
        [] => String::new(),
        [name] => format!(" {kind} {name}"),
        names => format!(" {kind}s {}", names.join(", ")),
    };
    let line = |event: &EventReport| {
        let times = if event.count == 1 { String::new() } else { format!(", {} times", count(event.count)) };
        let mut concerns = names("port", &event.ports);
        if !event.lcores.is_empty() {
            let _ = write!(concerns, "{}{}", if concerns.is_empty() { "" } else { ";" }, names("lcore", &event.lcores));
        }
        let concerns = if concerns.is_empty() { concerns } else { format!(" ({})", concerns.trim_start()) };
        let remedy = remedies::for_event(&event.event).map(|remedy| format!(": {remedy}")).unwrap_or_default();
        let source = if event.source == "device" { String::new() } else { format!(" {}", event.source) };
        labelled("event", &format!("{} on {}{source}{concerns}{times}{remedy}", event.event, event.device)) + "\n"
    };
    events.iter().filter(|event| event.count > 0).map(line).collect()
}

#[cfg(test)]
mod tests {
    use verbline_engine::{
        ConnectionReport, ConnectionState, ConnectionsReport, CounterReport, DropReport, FailureReport,
        HistogramReport, HolderReport, IncidentsReport, LcoreReport, OperationReport, OperationsReport, PacketReport,
        PoolReport, PortReport, RingReport, StageReport, StatusReport, TimesReport, WakeReport,
    };

    use super::*;

    /// A report with everything that it can have, and numbers of a long run.
    fn bad_day() -> Report {
        let wakes =
            [("completion", 1_234_567_890), ("ring", 987_654_321), ("control", 0), ("timer", 4_096), ("timeout", 2)];
        let lcore = LcoreReport {
            name: "market-data".into(),
            cpu: 127,
            policy: "adaptive".into(),
            spin_ns: 21_400,
            spin_from: "disturbed",
            late_share_max: Some(0.01),
            busy_share: 0.5,
            idle_share: 0.125,
            asleep_share: 0.25,
            stolen_share: 0.125,
            stolen_ns: 10_800_000_000_000,
            stalls: 7,
            stall_max_ns: 2_000_000_000,
            queued_ns: Some(9_000_000_000_000),
            plan_cpu: 127,
            cpus_allowed: 2,
            pinned_beside: vec!["thread vl-io of process 4711 (nvme-load)".into()],
            sleeps: 2_222_226_309,
            wakes: wakes.map(|(cause, count)| WakeReport { cause, count }).into(),
            rescues: 2,
            ..LcoreReport::default()
        };
        let stage = StageReport {
            name: "arbiter".into(),
            lcore: "market-data".into(),
            calls: 100_000_000,
            packets_in: 1_250_000_000,
            operations: 625_000_000,
            ns_per_packet: 1.2,
            timed: 6_250_000,
            busy_error: 0.0125,
            busy_share: 0.75,
            alloc_failed: 1_024,
            timers_refused: 3,
            histograms: vec![HistogramReport {
                name: "tick_to_trade".into(),
                times: TimesReport {
                    count: 1_250_000,
                    p50_ns: 11_264,
                    p99_ns: 57_344,
                    p999_ns: 163_840,
                    max_ns: 1_234_567,
                    ..TimesReport::default()
                },
            }],
            counters: [("gaps", 12), ("ticks", 1_250_000_000), ("late", 0), ("duplicates", 1_234_567_890)]
                .map(|(name, value)| CounterReport { name: name.into(), value })
                .into(),
            ..StageReport::default()
        };
        let error = |status: &str, count| StatusReport { status: status.into(), count };
        let port = PortReport {
            name: "orders".into(),
            lcore: "market-data".into(),
            rx_packets: 1_250_000_000,
            tx_packets: 40_000_000,
            tx_posts: 10_000_000,
            down: true,
            down_reason: Some("IBV_WC_RNR_RETRY_EXC_ERR".into()),
            link_down: true,
            errors: vec![error("RNR_RETRY_EXC_ERR", 1), error("WR_FLUSH_ERR", 255)],
            ..PortReport::default()
        };
        let kind = |kind, posted, failed, bytes| {
            let completed = posted - failed;
            OperationReport { kind, posted, completed, failed, bytes }
        };
        let kinds = vec![kind("send", 1_300_000, 0, 20_800_000), kind("write", 1_250_000_000, 3, 40_960_000_000_000)];
        let door = PortReport {
            name: "door".into(),
            lcore: "market-data".into(),
            rx_packets: 1_300_000,
            operations: Some(OperationsReport { kinds, ..OperationsReport::default() }),
            connections: Some(ConnectionsReport {
                max: 65,
                role: "connects",
                requests: 12_345,
                unanswered: 12_281,
                rejected_by_peer: 12_280,
                opened: 64,
                open_max: 64,
                closed: 63,
                failed: 1,
                last_error: Some("[2001:db8:7:8::1234:5678]:44200 rejects the connection: no place is free".into()),
                ..ConnectionsReport::default()
            }),
            ..PortReport::default()
        };
        let connection = ConnectionReport {
            port: "orders".into(),
            role: "connects",
            address: "[2001:db8:7:8::1234:5678]:44200".into(),
            peer_address: "[2001:db8:7:8::1234:5678]:44200".into(),
            link: "udp",
            wire: Some(IncidentsReport { retransmitted: 4_711, timeouts: 12, ..IncidentsReport::default() }),
            state: ConnectionState::Reconnecting,
            reason: Some("the peer disconnected".into()),
            attempts: 1_024,
            times_connected: 3,
            connect_ns: 12_345_678_901,
            ended_ns: Some(86_300_000_000_000),
            last_error: Some("nobody listens at [2001:db8:7:8::1234:5678]:44200".into()),
        };
        let listening = ConnectionReport {
            port: "audit".into(),
            role: "listens",
            peer_address: "10.9.9.1:49152".into(),
            attempts: 2,
            times_connected: 2,
            connect_ns: 1_300_000,
            reason: Some("a completion failed: IBV_WC_RETRY_EXC_ERR (no answer after all retries)".into()),
            ended_ns: Some(3_600_000_000_000),
            ..ConnectionReport::default()
        };
        let ring = RingReport {
            name: "signals".into(),
            producer: "market-data".into(),
            consumer: "gateway".into(),
            pushed: 10_000,
            push_batches: 1_000,
            popped: 9_999,
            pop_batches: 500,
            depth: 4_096,
            most: 4_096,
            full: 12_345,
            lanes: Vec::new(),
        };
        Report {
            plan: "bad-day".into(),
            elapsed_ns: 86_400_000_000_000,
            lcores: vec![lcore],
            stages: vec![stage],
            ports: vec![port, door],
            connections: vec![connection, listening],
            rings: vec![ring],
            drops: vec![DropReport { place: "ring.signals".into(), reason: "left_behind".into(), packets: 1 }],
            packets: PacketReport {
                taken: 1_250_000_512,
                returned: 1_250_000_000,
                held: 512,
                holders: vec![HolderReport { place: "elsewhere".into(), packets: 512 }],
            },
            pools: vec![PoolReport {
                name: "packets".into(),
                locked: true,
                fallback: Some(
                    "4 KiB pages, since the machine has no free hugepages: echo 64 > /proc/sys/vm/nr_hugepages".into(),
                ),
                ..PoolReport::default()
            }],
            events: vec![
                EventReport {
                    device: "mlx5_0".into(),
                    event: "IBV_EVENT_PORT_ERR".into(),
                    source: "port 1".into(),
                    ports: vec!["orders".into(), "audit".into()],
                    lcores: vec!["market-data".into()],
                    count: 3,
                },
                EventReport {
                    device: "mlx5_1".into(),
                    event: "IBV_EVENT_SM_CHANGE".into(),
                    source: "port 2".into(),
                    count: 1,
                    ..EventReport::default()
                },
            ],
            failures: vec![FailureReport {
                lcore: "gateway".into(),
                stage: Some("sign".into()),
                panicked: true,
                message: "index out of bounds: the len is 3 but the index is 99".into(),
            }],
            ..Report::default()
        }
    }

    fn outcome() -> Outcome {
        Outcome {
            text: "ticks    1,250,000,000 received\n".into(),
            failures: vec!["12 ticks were neither received nor dropped on purpose; lower the rate".into()],
            ..Outcome::default()
        }
    }

    #[test]
    fn a_bad_day_in_full() {
        let text = report(&bad_day(), &outcome(), false);
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS, "too wide: {line}");
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_report_of_nothing_is_short_and_no_failure() {
        let empty = Report { plan: "nothing".into(), drained: true, ..Report::default() };
        insta::assert_snapshot!(report(&empty, &Outcome::default(), true));
    }

    #[test]
    fn every_error_that_a_user_can_do_something_about_says_what() {
        let statuses = [
            "LOC_LEN_ERR",
            "LOC_QP_OP_ERR",
            "LOC_PROT_ERR",
            "BAD_RESP_ERR",
            "REM_INV_REQ_ERR",
            "REM_ACCESS_ERR",
            "REM_OP_ERR",
            "RETRY_EXC_ERR",
            "RNR_RETRY_EXC_ERR",
            "RESP_TIMEOUT_ERR",
            "REM_ABORT_ERR",
            "FATAL_ERR",
            "GENERAL_ERR",
            "WR_FLUSH_ERR",
        ];
        let port = |name: &str, statuses: &[&str]| PortReport {
            name: name.into(),
            errors: statuses.iter().map(|&status| StatusReport { status: status.into(), count: 1 }).collect(),
            ..PortReport::default()
        };
        // The second port repeats nothing, and the third was only flushed.
        let ports = [port("all", &statuses), port("again", &statuses), port("flushed", &["WR_FLUSH_ERR"])];
        let kinds = [
            "CQ_ERR",
            "QP_FATAL",
            "QP_REQ_ERR",
            "QP_ACCESS_ERR",
            "PATH_MIG_ERR",
            "DEVICE_FATAL",
            "PORT_ERR",
            "PORT_ACTIVE",
            "GID_CHANGE",
            "LID_CHANGE",
        ];
        let told = kinds.map(|kind| EventReport {
            device: "rxe0".into(),
            event: format!("IBV_EVENT_{kind}"),
            source: if kind == "DEVICE_FATAL" { "device".into() } else { "port 1".into() },
            lcores: vec!["only".into()],
            count: 1,
            ..EventReport::default()
        });
        let text = port_errors(&ports) + &events(&told);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn failures_are_red_in_a_terminal() {
        let text = report(&bad_day(), &outcome(), true);
        assert!(text.starts_with("bad-day: ran 1d 0h\x1b[1;31m, FAILED\x1b[0m\n"), "{text}");
        assert_eq!(text.matches("\x1b[1;31mFAILED   ").count(), 2, "{text}");
    }
}
