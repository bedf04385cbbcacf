//! Checks ports that share a listener: a server whose connections are spread over several lcores.
//! Warns of more connections than a listener, or the address of a device, has places for.

use crate::check::refs::{Links, PortLinks};
use crate::choices::{Provider, Transport, transport_word};
use crate::diag::sink::Sink;
use crate::ids::{DeviceId, PortId};
use crate::limits::WIRE_CONNECTIONS_MAX;
use crate::read::raw::RawPlan;
use crate::read::raw_port::RawPort;
use crate::read::reader::Field;

/// `others`: the other ends in this plan. A port that meets the listening one meets all that share
/// it.
pub(crate) fn check(raw: &RawPlan, links: &Links<'_>, others: &mut [Option<PortId>], sink: &mut Sink) {
    for (index, port) in raw.ports.iter().enumerate() {
        let shared = links.ports.iter().any(|other| other.listen_with == Some(PortId::from_index(index)));
        if port.shared.placement.given && !shared {
            let why = format!("nobody shares the listener of port.{}", port.head.name);
            sink.no_effect("placement", port.shared.placement.span, why)
                .help(format!("add a port with `listen_with = \"port.{}\"`, or remove it", port.head.name));
        }
        let Some(field) = &port.shared.listen_with else { continue };
        keys(port, field, sink);
        if let Some(leader) = links.ports[index].listen_with {
            others[index] = others[leader.index()];
            meet(raw, links, PortId::from_index(index), leader, field, sink);
        }
    }
}

/// Checks the keys that a port with a shared listener needs, and those that it can't have.
fn keys(port: &RawPort, field: &Field<String>, sink: &mut Sink) {
    let name = &port.head.name;
    let others = [
        ("listen", &port.listen),
        ("connect", &port.connect.first),
        ("peer", &port.peer),
        ("send_to", &port.send_to.first),
        ("acceptor", &port.shared.acceptor),
    ];
    for (key, other) in others.into_iter().filter_map(|(key, other)| Some((key, other.as_ref()?))) {
        sink.error("conflicting-keys", other.span, format!("port.{name} has both `listen_with` and `{key}`"))
            .related(field.span, "`listen_with`")
            .note("who listens for it also decides who comes in")
            .help(format!("remove `{key}`, or `listen_with`"));
    }
    if port.shared.connections_max.is_none() {
        sink.error("missing-key", field.span, format!("`listen_with` of port.{name} needs `connections_max`"))
            .help("add `connections_max = 1024`, as many as this port takes");
    }
    if let Some(transport) = port.transport.as_ref().filter(|transport| transport.value != Transport::Rc) {
        let word = transport_word(transport.value);
        sink.error("rc-only-key", field.span, format!("`listen_with` is for RC; port.{name} is {word}"))
            .help("write `transport = \"rc\"`");
    }
}

/// Checks the other port: it listens for many, and its peers can reach this port too.
fn meet(raw: &RawPlan, links: &Links<'_>, id: PortId, leader: PortId, field: &Field<String>, sink: &mut Sink) {
    let (port, with) = (&raw.ports[id.index()], &raw.ports[leader.index()]);
    let (name, with_name) = (&port.head.name, &with.head.name);
    if leader == id {
        sink.error("peer-mismatch", field.span, format!("port.{name} shares its own listener"))
            .help("name the port that has `listen`");
        return;
    }
    let lacks = [("listen", with.listen.is_none()), ("connections_max", with.shared.connections_max.is_none())];
    for (key, _) in lacks.into_iter().filter(|(_, is_missing)| *is_missing) {
        sink.error("peer-mismatch", field.span, format!("port.{with_name} has no `{key}` to share"))
            .related(with.head.span, "that port")
            .help("name the port that has `listen` and `connections_max`");
    }
    let provider = |id: PortId| -> Option<Provider> {
        Some(raw.devices[links.ports[id.index()].device?.index()].provider.as_ref()?.value)
    };
    if let Some((own, other)) = provider(id).zip(provider(leader)).filter(|(own, other)| own != other) {
        let message = format!("port.{name} is on a {} device, port.{with_name} on a {} one", own.word(), other.word());
        sink.error("peer-mismatch", field.span, message)
            .note("one listener hears of one kind of device")
            .help("put both on devices of one provider");
    }
}

/// Warns of a listener that has fewer places than the ports of its own plan want: some of their
/// connections would be refused for as long as the run lasts.
///
/// `others`: the other ends in this plan.
pub(crate) fn warn_of_too_few_places(raw: &RawPlan, links: &Links<'_>, others: &[Option<PortId>], sink: &mut Sink) {
    for (index, leader) in raw.ports.iter().enumerate() {
        let (Some(_), Some(own)) = (&leader.listen, &leader.shared.connections_max) else { continue };
        let id = PortId::from_index(index);
        let shares = |(port, link): (&RawPort, &PortLinks)| {
            let places = port.shared.connections_max.as_ref().filter(|_| link.listen_with == Some(id));
            places.map_or(0, |places| u64::from(places.value))
        };
        let places = u64::from(own.value) + raw.ports.iter().zip(&links.ports).map(shares).sum::<u64>();
        // A port with several addresses takes its other connections elsewhere.
        let asks = |(port, other): &(&RawPort, &Option<PortId>)| {
            **other == Some(id) && port.connect.first.is_some() && port.connect.more.is_empty()
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

/// Warns of ports that want more connections than their device has by its address: the requests of
/// further peers are refused.
pub(crate) fn warn_of_more_than_a_wire_has(raw: &RawPlan, links: &Links<'_>, sink: &mut Sink) {
    for (index, device) in raw.devices.iter().enumerate() {
        let Some(address) = &device.address else { continue };
        let id = DeviceId::from_index(index);
        let own = raw.ports.iter().zip(&links.ports).filter(|(_, link)| link.device == Some(id));
        let many: Vec<_> = own.filter_map(|(port, _)| port.many()).collect();
        let all: u64 = many.iter().map(|many| u64::from(many.value)).sum();
        let most = many.into_iter().max_by_key(|many| many.value);
        let (true, Some(most)) = (all > WIRE_CONNECTIONS_MAX, most) else { continue };
        let name = &device.head.name;
        let message = format!("device.{name} has at most {WIRE_CONNECTIONS_MAX} connections by its address, not {all}");
        sink.warn("too-few-places", most.span, message)
            .related(address.span, "the address")
            .note("those within this process are as many as the plan says")
            .help(format!("ask for {WIRE_CONNECTIONS_MAX} in all, or put ports on the other software device"));
    }
}
