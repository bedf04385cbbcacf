//! Faults of ports and connections, as text.

use verbline_engine::{ConnectionReport, ConnectionState, PortReport};

use super::figures::{count, duration};
use super::output::section;
use super::remedies;

/// The ports' errors, and each remedy once, for any number of ports with its kind of error.
pub(super) fn port_errors(ports: &[PortReport]) -> String {
    let (mut lines, mut told) = (Vec::new(), Vec::new());
    let is_bad =
        |port: &&PortReport| port.down || port.link_down || !port.errors.is_empty() || port.lost_messages() > 0;
    for port in ports.iter().filter(is_bad) {
        let statuses = port.errors.iter().map(|status| format!("{} {}", status.status, count(status.count)));
        let why = port.down_reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let down = port.down.then(|| format!("its queue pair is in the error state{why}"));
        let link = port.link_down.then(|| "its link is down".to_owned());
        let lost = Some(port.lost_messages()).filter(|lost| *lost > 0);
        let lost = lost.map(|lost| format!("{} messages lost, as no receive was posted", count(lost)));
        let all: Vec<_> = statuses.chain(down).chain(link).chain(lost).collect();
        lines.push(("errors", format!("port {}: {}", port.name, all.join(", "))));
        for status in &port.errors {
            let alone = status.status == "WR_FLUSH_ERR" && port.errors.len() == 1;
            let remedy = if alone { Some(remedies::FLUSHED) } else { remedies::for_status(&status.status) };
            if let Some(remedy) = remedy.filter(|_| !told.contains(&status.status)) {
                told.push(status.status.clone());
                lines.push(("", format!("{}: {remedy}", status.status)));
            }
        }
    }
    if ports.iter().any(|port| port.lost_messages() > 0) {
        lines.push(("", format!("lost: {}", remedies::OUT_OF_BUFFER)));
    }
    section(lines)
}

/// The reasons why connections ended before the run, and why they can't be reconnected.
pub(super) fn lost(connections: &[ConnectionReport]) -> String {
    section(connections.iter().filter_map(|connection| {
        let reason = connection.reason.as_ref()?;
        let when = connection.ended_ns.map(|ns| format!(" after {}", duration(ns))).unwrap_or_default();
        // A connection that is up was lost one time less than it was made.
        let losses = connection.times_connected.saturating_sub((connection.state == ConnectionState::Connected).into());
        let often = if losses > 1 { format!("{} times, the last time: ", count(losses)) } else { String::new() };
        let since = connection.last_error.as_ref().map(|error| format!("; since then: {error}")).unwrap_or_default();
        Some(("lost", format!("port {} ({}): {often}{reason}{when}{since}", connection.port, connection.address)))
    }))
}

/// The reasons why ports with many connections have fewer than were asked for: of a listener all of
/// its rejections, of a port that connects the last failure, with the listener's words.
pub(super) fn refused(ports: &[PortReport]) -> String {
    section(ports.iter().filter_map(|port| {
        let many = port.connections.as_ref()?;
        let rejections: Vec<_> = many.rejections().map(|(why, times)| format!("{} {why}", count(times))).collect();
        let rejections = Some(rejections.join(", ")).filter(|all| !all.is_empty()).map(|all| format!(": {all}"));
        let last = many.last_error.as_deref().map(|error| format!(", the last time: {error}"));
        let why: String = rejections.into_iter().chain(last).collect();
        (!why.is_empty()).then(|| ("refused", format!("port {}{why}", port.name)))
    }))
}

#[cfg(test)]
mod tests {
    use verbline_engine::ConnectionsReport;

    use super::*;

    /// Regression: the text had their sum alone, for an acceptor's word and for a lack of slots.
    #[test]
    fn a_listener_tells_why_it_rejected_peers() {
        let listener = |name: &str, many: ConnectionsReport| {
            let connections = Some(ConnectionsReport { role: "listens", ..many });
            PortReport { name: name.into(), connections, ..PortReport::default() }
        };
        let both = ConnectionsReport { rejected_full: 3, rejected_acceptor: 1200, ..ConnectionsReport::default() };
        let device = ConnectionsReport { rejected_device: 1, ..ConnectionsReport::default() };
        let text = refused(&[listener("a", both), listener("b", device), listener("c", ConnectionsReport::default())]);
        assert_eq!(
            text,
            "refused  port a: 1,200 by its acceptor, 3 since all places were taken\n\
             refused  port b: 1 since they came by another device\n\n"
        );
    }

    #[test]
    fn messages_that_a_port_lost_are_told_with_what_to_do_once() {
        let port = |name: &str, transport, lost| {
            let rx_out_of_buffer = Some(lost);
            PortReport { name: name.into(), transport, rx_out_of_buffer, ..PortReport::default() }
        };
        let text = port_errors(&[port("feed", "ud", 178_911), port("late", "rc", 7), port("other", "uc", 1)]);
        assert_eq!(
            text,
            "errors   port feed: 178,911 messages lost, as no receive was posted\n\
             errors   port other: 1 messages lost, as no receive was posted\n         \
             lost: raise `rx_depth_wr` of the port, and `packets` of its pool, or\n         \
             give its lcore less to do\n\n"
        );
    }
}
