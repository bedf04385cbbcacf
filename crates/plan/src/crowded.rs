//! Warns of a listener that has fewer places than the ports of its own plan want: some of their
//! connections would be refused for as long as the run lasts.

use crate::ids::PortId;
use crate::raw::{RawPlan, RawPort};
use crate::refs::{Links, PortLinks};
use crate::sink::Sink;

/// `others`: the other ends in this plan.
pub(crate) fn check(raw: &RawPlan, links: &Links<'_>, others: &[Option<PortId>], sink: &mut Sink) {
    for (index, leader) in raw.ports.iter().enumerate() {
        let (Some(_), Some(own)) = (&leader.listen, &leader.shared.connections_max) else { continue };
        let id = PortId::from_index(index);
        let shares = |(port, link): (&RawPort, &PortLinks)| {
            let places = port.shared.connections_max.as_ref().filter(|_| link.listen_with == Some(id));
            places.map_or(0, |places| u64::from(places.value))
        };
        let places = u64::from(own.value) + raw.ports.iter().zip(&links.ports).map(shares).sum::<u64>();
        // One with several addresses goes to the others for what it does not get here.
        let asks = |(port, other): &(&RawPort, &Option<PortId>)| {
            **other == Some(id) && port.connect.is_some() && port.connect_also.is_empty()
        };
        let asking = raw.ports.iter().zip(others).filter(asks).map(|(port, _)| port);
        let wanted = |port: &RawPort| port.shared.connections.as_ref().map_or(1, |wanted| u64::from(wanted.value));
        let all: u64 = asking.clone().map(wanted).sum();
        let Some(last) = asking.clone().rfind(|port| port.shared.connections.is_some()) else { continue };
        let (true, Some(field)) = (all > places, &last.shared.connections) else { continue };
        let names: Vec<_> = asking.map(|port| format!("port.{}", port.head.name)).collect();
        let verb = if names.len() == 1 { "wants" } else { "want" };
        let message = format!("{} {verb} {all} connections at port.{}", names.join(" and "), leader.head.name);
        sink.warn("too-few-places", field.span, message)
            .related(own.span, format!("there are places for {places}"))
            .help(format!("raise `connections_max` to {all}, or ask for fewer `connections`"));
    }
}
