//! The report's text about the network of software devices.

use std::fmt::Write as _;

use verbline_engine::{ConnectionReport, DatagramsReport, IncidentsReport, Report, WireReport};

use super::figures::count;
use super::output::labelled;

/// The network's activity, with an empty line behind it; empty without a network.
pub(super) fn network(report: &Report) -> String {
    let mut text = connections(&report.connections) + &wires(&report.wires);
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// A line per device with an address; empty without one.
fn wires(wires: &[WireReport]) -> String {
    wires.iter().map(|wire| labelled("wire", &line(wire)) + "\n").collect()
}

fn line(wire: &WireReport) -> String {
    let WireReport { device, address, datagrams_sent, datagrams_received, .. } = wire;
    let [sent, received] = [*datagrams_sent, *datagrams_received].map(count);
    let of_reasons = |what: &str, all: &[DatagramsReport]| {
        let one = |one: &DatagramsReport| format!("{what} ({}) {}", one.reason, count(one.datagrams));
        all.iter().map(one).collect::<Vec<_>>()
    };
    let reasons = of_reasons("not sent", &wire.unsent).into_iter().chain(of_reasons("discarded", &wire.discarded));
    let all: Vec<_> = said(&wire.incidents).chain(reasons).collect();
    let rest = if all.is_empty() { "no loss was noticed".to_owned() } else { all.join(", ") };
    // Known where processes share the address.
    let shared = [(wire.datagrams_passed_on, "passed on"), (wire.datagrams_taken_over, "taken over")];
    let shared = shared.into_iter().filter(|(datagrams, _)| *datagrams > 0);
    let shared: String = shared.map(|(datagrams, what)| format!(", {} {what}", count(datagrams))).collect();
    format!("{device} at {address}: {sent} datagrams sent, {received} received{shared}; {rest}")
}

/// A line per connection with incidents.
fn connections(connections: &[ConnectionReport]) -> String {
    let mut text = String::new();
    for one in connections {
        let all: Vec<_> = one.wire.iter().flat_map(said).collect();
        if !all.is_empty() {
            let line = format!("port {} and {}: {}", one.port, one.peer_address, all.join(", "));
            let _ = writeln!(text, "{}", labelled("wire", &line));
        }
    }
    text
}

/// The incidents that occurred, each with its number.
fn said(all: &IncidentsReport) -> impl Iterator<Item = String> {
    let incidents = [
        ("packets sent again", all.retransmitted),
        ("time-outs", all.timeouts),
        ("out of order", all.out_of_order),
        ("duplicates", all.duplicates),
        ("sequence NAKs sent", all.sequence_naks_sent),
        ("sequence NAKs received", all.sequence_naks_received),
        ("RNR NAKs sent", all.rnr_naks_sent),
        ("RNR NAKs received", all.rnr_naks_received),
        ("fatal NAKs sent", all.fatal_naks_sent),
        ("fatal NAKs received", all.fatal_naks_received),
    ];
    let happened = incidents.into_iter().filter(|(_, happened)| *happened > 0);
    happened.map(|(what, happened)| format!("{what} {}", count(happened)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_said_and_what_did_not_is_not() {
        let quiet = WireReport {
            device: "soft0".into(),
            address: "127.0.0.1".into(),
            datagrams_sent: 1_234,
            datagrams_received: 1_200,
            ..WireReport::default()
        };
        assert_eq!(line(&quiet), "soft0 at 127.0.0.1: 1,234 datagrams sent, 1,200 received; no loss was noticed");
        let shared = WireReport { datagrams_passed_on: 1_100, datagrams_taken_over: 7, ..quiet.clone() };
        let says = "1,200 received, 1,100 passed on, 7 taken over; no loss was noticed";
        assert!(line(&shared).ends_with(says), "{}", line(&shared));
        let happened = IncidentsReport { retransmitted: 12, rnr_naks_received: 3, ..IncidentsReport::default() };
        let reason = |reason, datagrams| vec![DatagramsReport { reason, datagrams }];
        let busy = WireReport {
            incidents: happened.clone(),
            unsent: reason("full", 4),
            discarded: reason("icrc", 5),
            ..quiet
        };
        let says = "packets sent again 12, RNR NAKs received 3, not sent (full) 4, discarded (icrc) 5";
        assert!(line(&busy).ends_with(says), "{}", line(&busy));
        assert!(wires(&[busy]).lines().all(|line| line.len() <= 80));
        assert_eq!(wires(&[]), "");
        let connection = |wire| ConnectionReport {
            port: "orders".into(),
            peer_address: "10.0.0.7:4420".into(),
            wire,
            ..ConnectionReport::default()
        };
        let three = [connection(None), connection(Some(IncidentsReport::default())), connection(Some(happened))];
        let line = "wire     port orders and 10.0.0.7:4420: packets sent again 12, RNR NAKs received\n         3\n";
        assert_eq!(connections(&three), line);
    }
}
