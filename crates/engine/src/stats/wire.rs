//! The report's part about the network of software devices with an address.

use serde::Serialize;
use verbline_verbs::{Discard, Incidents, WireCounters, wire_counters};

/// What a software device's wire did since it has its address: RoCE v2 over UDP.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WireReport {
    /// The device's name.
    pub device: String,
    /// Its address.
    pub address: String,
    /// Datagrams that left.
    pub datagrams_sent: u64,
    /// Datagrams that came.
    pub datagrams_received: u64,
    /// Of these, datagrams that went on to another process of the address.
    pub datagrams_passed_on: u64,
    /// Datagrams that another process of the address passed on.
    pub datagrams_taken_over: u64,
    /// System calls by which they left.
    pub send_calls: u64,
    /// System calls that brought some.
    pub receive_calls: u64,
    /// Of all its queue pairs.
    #[serde(flatten)]
    pub incidents: IncidentsReport,
    /// Datagrams that the kernel did not take, by reason; only what occurred.
    pub unsent: Vec<DatagramsReport>,
    /// Datagrams that came and were discarded, by reason; only what occurred.
    pub discarded: Vec<DatagramsReport>,
}

/// What went otherwise than on a network that loses nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IncidentsReport {
    /// Packets that were sent again.
    pub retransmitted: u64,
    /// Times that no acknowledgement came.
    pub timeouts: u64,
    /// Packets that came before one that is missing.
    pub out_of_order: u64,
    /// Requests that came again.
    pub duplicates: u64,
    /// Refusals of a packet that came too early, sent.
    pub sequence_naks_sent: u64,
    /// The same, received.
    pub sequence_naks_received: u64,
    /// Refusals for want of a receive (RNR), sent.
    pub rnr_naks_sent: u64,
    /// The same, received.
    pub rnr_naks_received: u64,
    /// Refusals that ended a connection, sent.
    pub fatal_naks_sent: u64,
    /// The same, received.
    pub fatal_naks_received: u64,
}

impl From<&Incidents> for IncidentsReport {
    fn from(all: &Incidents) -> IncidentsReport {
        IncidentsReport {
            retransmitted: all.retransmitted,
            timeouts: all.timeouts,
            out_of_order: all.out_of_order,
            duplicates: all.duplicates,
            sequence_naks_sent: all.sequence_naks_sent,
            sequence_naks_received: all.sequence_naks_received,
            rnr_naks_sent: all.rnr_naks_sent,
            rnr_naks_received: all.rnr_naks_received,
            fatal_naks_sent: all.fatal_naks_sent,
            fatal_naks_received: all.fatal_naks_received,
        }
    }
}

/// Datagrams of one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DatagramsReport {
    /// The reason's name.
    pub reason: &'static str,
    /// How many.
    pub datagrams: u64,
}

/// Returns the wires of those of these devices that have an address. Waits for no lcore.
pub(crate) fn wires(devices: &[&str]) -> Vec<WireReport> {
    wire_counters().filter(|wire| devices.contains(&wire.device)).map(|wire| report(&wire)).collect()
}

fn report(wire: &WireCounters) -> WireReport {
    let WireCounters { device, address, link, incidents } = wire;
    let some = |(reason, datagrams)| (datagrams > 0).then_some(DatagramsReport { reason, datagrams });
    let unsent = [("full", link.full), ("too_long", link.too_long), ("refused", link.refused), ("failed", link.failed)];
    let of_link =
        [("truncated", link.truncated), ("neighbour_full", link.neighbour_full), ("socket_full", link.socket_full)];
    let discarded = Discard::ALL.into_iter().map(|why| (why.name(), incidents.discarded(why)));
    WireReport {
        device: (*device).to_owned(),
        address: address.to_string(),
        datagrams_sent: link.sent,
        datagrams_received: link.received,
        datagrams_passed_on: link.passed_on,
        datagrams_taken_over: link.taken_over,
        send_calls: link.send_calls,
        receive_calls: link.receive_calls,
        incidents: incidents.into(),
        unsent: unsent.into_iter().filter_map(some).collect(),
        discarded: discarded.chain(of_link).filter_map(some).collect(),
    }
}
