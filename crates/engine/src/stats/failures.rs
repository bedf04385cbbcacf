//! Failures of a run whose lcores all reached their end: a port is down for good, or a port
//! received none of the packets sent to it.
//!
//! If an lcore failed, only that is reported: the faults of its ports, and of the ports that sent
//! to them, follow from it.

use crate::stats::counters::PortReport;
use crate::stats::report::{ConnectionState, FailureReport, Report};
use crate::stats::status::StatusReport;

/// The plan's wiring of a port.
#[derive(Clone, Debug)]
pub(crate) struct Wiring {
    /// Whether its connection is made again after a loss.
    pub(crate) reconnects: bool,
    /// The ports of the plan, by their places, whose packets all go to it.
    pub(crate) senders: Vec<usize>,
}

/// Returns the failures of a run. `lost`: the places of the ports that it ended with, in the order
/// in which they went down. While the run goes on, these are all: packets that never arrived may
/// still come.
pub(crate) fn failures(report: &Report, wiring: &[Wiring], lost: &[usize]) -> Vec<FailureReport> {
    let mut failures: Vec<_> = lost.iter().map(|place| down(&report.ports[*place])).collect();
    if !report.ended {
        return failures;
    }
    for (place, port) in report.ports.iter().enumerate().filter(|(place, _)| !lost.contains(place)) {
        if port.down && !wiring[place].reconnects && !was_left(report, port) {
            failures.push(down(port));
        } else if failures.is_empty() && report.drained {
            failures.extend(received_nothing(report, port, &wiring[place].senders));
        }
    }
    failures
}

/// Whether its peer ended the connection, and nothing went wrong.
fn was_left(report: &Report, port: &PortReport) -> bool {
    let is_flush = |error: &StatusReport| error.status == "WR_FLUSH_ERR";
    let connection = report.connection(&port.name);
    connection.is_some_and(|one| one.state == ConnectionState::Disconnected) && port.errors.iter().all(is_flush)
}

fn down(port: &PortReport) -> FailureReport {
    let why = port.down_reason.as_deref().unwrap_or("no reason is known");
    failure(port, format!("port.{} is down for good ({why})", port.name))
}

fn received_nothing(report: &Report, port: &PortReport, senders: &[usize]) -> Option<FailureReport> {
    if port.rx_packets > 0 || port.rx_posted == 0 {
        return None;
    }
    let senders: Vec<_> = senders.iter().map(|place| &report.ports[*place]).filter(|it| it.tx_packets > 0).collect();
    if senders.is_empty() {
        return None;
    }
    let sent: u64 = senders.iter().map(|sender| sender.tx_packets).sum();
    let names: Vec<_> = senders.iter().map(|sender| format!("port.{}", sender.name)).collect();
    let message = format!(
        "port.{} received none of the {sent} packets that {} sent to it; see the errors and the drops of both ends",
        port.name,
        names.join(" and ")
    );
    Some(failure(port, message))
}

pub(crate) fn failure(port: &PortReport, message: String) -> FailureReport {
    FailureReport { lcore: port.lcore.clone(), stage: None, panicked: false, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::report::ConnectionReport;

    fn port(name: &str) -> PortReport {
        PortReport { name: name.into(), lcore: "a".into(), rx_posted: 64, ..PortReport::default() }
    }

    fn error(status: &str) -> StatusReport {
        StatusReport { status: status.into(), count: 1 }
    }

    /// A port `rx`, to which `tx` sends, and `far` with an address.
    fn wired(reconnects: bool) -> Vec<Wiring> {
        let inside = |senders| Wiring { reconnects: false, senders };
        vec![inside(vec![]), inside(vec![0]), Wiring { reconnects, senders: vec![] }]
    }

    fn ended() -> Report {
        let ports = ["tx", "rx", "far"].map(port).into();
        Report { ended: true, drained: true, ports, ..Report::default() }
    }

    fn sentences(report: &Report, reconnects: bool, lost: &[usize]) -> Vec<String> {
        failures(report, &wired(reconnects), lost).into_iter().map(|failure| failure.message).collect()
    }

    #[test]
    fn a_run_in_which_all_went_well_fails_for_nothing() {
        let mut report = ended();
        assert_eq!(sentences(&report, true, &[]), [""; 0], "nothing was sent");
        (report.ports[0].tx_packets, report.ports[1].rx_packets) = (2, 1);
        assert_eq!(sentences(&report, true, &[]), [""; 0], "one of two was lost, which datagrams may be");
    }

    #[test]
    fn a_port_that_received_nothing_of_what_was_sent_to_it_is_a_failure_at_the_end() {
        let mut report = ended();
        report.ports[0].tx_packets = 267;
        let sentence = "port.rx received none of the 267 packets that port.tx sent to it; see the errors and \
                        the drops of both ends";
        assert_eq!(sentences(&report, true, &[]), [sentence]);
        report.drained = false;
        assert_eq!(sentences(&report, true, &[]), [""; 0], "they may be on their way");
        (report.drained, report.ended) = (true, false);
        assert_eq!(sentences(&report, true, &[]), [""; 0], "they may come yet");
        report.ended = true;
        report.ports[1].rx_posted = 0;
        assert_eq!(sentences(&report, true, &[]), [""; 0], "it takes nothing");
    }

    #[test]
    fn a_port_that_is_down_for_good_is_a_failure_and_one_whose_connection_is_made_again_is_none() {
        let mut report = ended();
        (report.ports[1].down, report.ports[1].down_reason) = (true, Some("IBV_WC_LOC_LEN_ERR".into()));
        report.ports[0].tx_packets = 267;
        let sentence = "port.rx is down for good (IBV_WC_LOC_LEN_ERR)";
        for lost in [&[][..], &[1]] {
            assert_eq!(sentences(&report, true, lost), [sentence], "which says more than that nothing came");
        }
        report.ended = false;
        assert_eq!(sentences(&report, true, &[1]), [sentence], "also while the others go on");
        let mut report = ended();
        report.ports[2].down = true;
        assert_eq!(sentences(&report, true, &[]), [""; 0]);
        assert_eq!(sentences(&report, false, &[]), ["port.far is down for good (no reason is known)"]);
    }

    #[test]
    fn a_peer_that_leaves_takes_no_run_with_it_unless_something_went_wrong_before() {
        let mut report = ended();
        report.ports[2].down = true;
        report.ports[2].errors = vec![error("WR_FLUSH_ERR")];
        let connection = ConnectionReport {
            port: "far".into(),
            state: ConnectionState::Disconnected,
            ..ConnectionReport::default()
        };
        report.connections = vec![connection];
        assert_eq!(sentences(&report, false, &[]), [""; 0]);
        report.connections[0].state = ConnectionState::Failed;
        assert_eq!(sentences(&report, false, &[]).len(), 1);
        report.connections[0].state = ConnectionState::Disconnected;
        report.ports[2].errors.push(error("LOC_LEN_ERR"));
        assert_eq!(sentences(&report, false, &[]).len(), 1);
    }
}
