//! What a report says of the network of software devices.

use verbline_engine::{DatagramsReport, WireReport};

use super::figures::count;
use super::output::labelled;

/// A line a device with an address; nothing without one.
pub(super) fn wires(wires: &[WireReport]) -> String {
    wires.iter().map(|wire| labelled("wire", &line(wire)) + "\n").collect()
}

fn line(wire: &WireReport) -> String {
    let WireReport { device, address, datagrams_sent, datagrams_received, .. } = wire;
    let [sent, received] = [*datagrams_sent, *datagrams_received].map(count);
    let incidents = [
        ("packets sent again", wire.retransmitted),
        ("time-outs", wire.timeouts),
        ("out of order", wire.out_of_order),
        ("duplicates", wire.duplicates),
        ("sequence NAKs sent", wire.sequence_naks_sent),
        ("sequence NAKs received", wire.sequence_naks_received),
        ("RNR NAKs sent", wire.rnr_naks_sent),
        ("RNR NAKs received", wire.rnr_naks_received),
        ("fatal NAKs sent", wire.fatal_naks_sent),
        ("fatal NAKs received", wire.fatal_naks_received),
    ];
    let of_reasons = |what: &str, all: &[DatagramsReport]| {
        let one = |one: &DatagramsReport| format!("{what} ({}) {}", one.reason, count(one.datagrams));
        all.iter().map(one).collect::<Vec<_>>()
    };
    let said = incidents.into_iter().filter(|(_, happened)| *happened > 0);
    let said = said.map(|(what, happened)| format!("{what} {}", count(happened)));
    let all: Vec<_> =
        (said.chain(of_reasons("not sent", &wire.unsent))).chain(of_reasons("discarded", &wire.discarded)).collect();
    let rest = if all.is_empty() { "nothing was lost".to_owned() } else { all.join(", ") };
    format!("{device} at {address}: {sent} datagrams sent, {received} received; {rest}")
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
        assert_eq!(line(&quiet), "soft0 at 127.0.0.1: 1,234 datagrams sent, 1,200 received; nothing was lost");
        let reason = |reason, datagrams| vec![DatagramsReport { reason, datagrams }];
        let busy = WireReport {
            retransmitted: 12,
            rnr_naks_received: 3,
            unsent: reason("full", 4),
            discarded: reason("icrc", 5),
            ..quiet
        };
        let says = "packets sent again 12, RNR NAKs received 3, not sent (full) 4, discarded (icrc) 5";
        assert!(line(&busy).ends_with(says), "{}", line(&busy));
        assert!(wires(&[busy]).lines().all(|line| line.len() <= 80));
        assert_eq!(wires(&[]), "");
    }
}
