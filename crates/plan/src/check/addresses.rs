//! Addresses of ports: their listening and connecting addresses, the ports of the plan that meet
//! there, and multicast groups as GIDs.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::check::alternate;
use crate::check::refs::Links;
use crate::choices::{Destination, Group, Provider, Transport, transport_word};
use crate::diag::sink::Sink;
use crate::ids::PortId;
use crate::read::raw::{RawDevice, RawPlan};
use crate::read::raw_port::RawPort;
use crate::read::reader::Field;

/// Parses an address. An IPv4-mapped IPv6 address becomes the IPv4 one.
pub(crate) fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse::<IpAddr>().ok()?.to_canonical())
}

/// Like [`ip`], with a port number.
pub(crate) fn with_port(text: &str) -> Option<SocketAddr> {
    let address: SocketAddr = text.parse().ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Parses an address of `listen` or `connect`. `listen` may name every local address.
pub(crate) fn parse(field: &Field<String>, key: &'static str, sink: &mut Sink) -> Option<Field<SocketAddr>> {
    let refused = match with_port(&field.value) {
        None => format!("`{}` is not an address with a port", field.value),
        Some(address) if address.port() == 0 => format!("`{}` has no port that the other end could know", field.value),
        Some(address) if address.ip().is_multicast() => {
            format!("`{}` is a group; a connection has two ends", field.value)
        }
        Some(address) if address.ip().is_unspecified() && key == "connect" => {
            format!("`{}` is nobody's address", field.value)
        }
        Some(value) => return Some(Field { value, span: field.span, given: field.given }),
    };
    let one = sink.error("bad-value", field.span, refused);
    match field.value.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => one.help(format!("add a port: {key} = \"[{ip}]:4420\"")),
        Ok(ip) => one.help(format!("add a port: {key} = \"{ip}:4420\"")),
        Err(_) => one.help("write an IP address and a port, e.g. \"10.9.9.1:4420\" or \"[fe80::1]:4420\""),
    };
    None
}

impl RawPort {
    /// The keys that make a connection by address, as far as they are given.
    pub(crate) fn address_keys(&self) -> impl Iterator<Item = (&'static str, &Field<String>)> {
        let keys = [("listen", &self.listen), ("connect", &self.connect.first)];
        keys.into_iter().filter_map(|(key, field)| Some((key, field.as_ref()?)))
    }
}

impl RawPort {
    /// All addresses that the port connects to, as far as they parse.
    pub(crate) fn connect_to(&self) -> Vec<SocketAddr> {
        let fields = self.connect.first.iter().chain(&self.connect.more);
        fields.filter_map(|field| with_port(&field.value)).collect()
    }
}

/// Several addresses need `connections`: each is made, and made again, at an address that answers.
fn check_list(port: &RawPort, sink: &mut Sink) {
    let (Some(first), Some(second)) = (&port.connect.first, port.connect.more.first()) else { return };
    let name = &port.head.name;
    if port.shared.connections.is_none() {
        sink.error("missing-key", second.span, format!("several addresses of port.{name} need `connections`"))
            .help("add `connections = 4`, which are spread over the addresses; 1 is one that moves")
            .help("or keep one address");
    }
    let mut seen = vec![first];
    for field in &port.connect.more {
        if let Some(before) = seen.iter().find(|before| before.value == field.value) {
            sink.error("duplicate-name", field.span, format!("port.{name} connects to {} twice", field.value))
                .related(before.span, "it is here too")
                .help("remove one");
        }
        parse(field, "connect", sink);
        seen.push(field);
    }
}

/// A connection by address needs RC or UC, and many at one port RC.
pub(crate) fn check_transport(port: &RawPort, transport: Transport, sink: &mut Sink) {
    let (name, word) = (&port.head.name, transport_word(transport));
    let many = [("connections_max", &port.shared.connections_max), ("connections", &port.shared.connections)];
    match transport {
        Transport::Rc => {}
        Transport::Uc => {
            for (key, field) in many.into_iter().filter_map(|(key, field)| Some((key, field.as_ref()?))) {
                sink.error("rc-only-key", field.span, format!("`{key}` is for RC; port.{name} is {word}"))
                    .note("on UC nothing says that a peer is gone without a word: its place would never be free")
                    .help(format!("write `transport = \"rc\"`, or remove `{key}`: the port has one connection"));
            }
        }
        Transport::Ud => {
            for (key, field) in port.address_keys() {
                sink.error(
                    "connected-only-key",
                    field.span,
                    format!("`{key}` is for RC and UC; port.{name} is {word}"),
                )
                .note("the connection manager connects queue pairs that have one peer")
                .help(format!("write `transport = \"rc\"`, or name a port of this plan instead of `{key}`"));
            }
        }
    }
}

/// The two ends of a connection have one transport: a request for another finds no listener.
fn check_ends(asking: &RawPort, listening: &RawPort, sink: &mut Sink) {
    let (Some(own), Some(other)) = (&asking.transport, &listening.transport) else { return };
    if own.value != other.value {
        let (name, listener) = (&asking.head.name, &listening.head.name);
        let words = (transport_word(own.value), transport_word(other.value));
        sink.error(
            "peer-mismatch",
            own.span,
            format!("port.{name} is {}, port.{listener} listens for {}", words.0, words.1),
        )
        .related(other.span, "the listener's transport")
        .help("both ends of a connection have one transport");
    }
}

/// A port's end of a connection by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Listen(SocketAddr),
    Connect(SocketAddr),
}

/// Finds the other ends in this plan: for each listening port the one that connects there, and the
/// reverse. Complains about addresses that two ports want.
pub(crate) fn meet(raw: &RawPlan, links: &Links<'_>, ends: &[Option<End>], sink: &mut Sink) -> Vec<Option<PortId>> {
    raw.ports.iter().for_each(|port| check_list(port, sink));
    let mut others = vec![None; ends.len()];
    let provider = |index: usize| {
        let device = &raw.devices[links.ports[index].device?.index()];
        Some(device.provider.as_ref()?.value)
    };
    let listeners: Vec<(usize, SocketAddr, Provider)> = (ends.iter().enumerate())
        .filter_map(|(index, end)| match end {
            Some(End::Listen(address)) => Some((index, *address, provider(index)?)),
            _ => None,
        })
        .collect();
    for (place, (index, address, provider)) in listeners.iter().enumerate() {
        let first = listeners[..place].iter().find(|(_, other, on)| on == provider && overlap(*other, *address));
        if let Some((first, ..)) = first {
            address_taken(&raw.ports[*index], *address, &raw.ports[*first], sink);
        }
    }
    let connects = |(index, end): (usize, &Option<End>)| {
        let to = if let Some(End::Connect(_)) = end { raw.ports[index].connect_to() } else { Vec::new() };
        to.into_iter().map(move |to| (index, to))
    };
    for (index, to) in ends.iter().enumerate().flat_map(connects) {
        let Some(own) = provider(index) else { continue };
        let here = |(_, at, on): &&(usize, SocketAddr, Provider)| *on == own && overlap(*at, to);
        let Some((listener, ..)) = listeners.iter().find(here) else { continue };
        check_ends(&raw.ports[index], &raw.ports[*listener], sink);
        alternate::check_pair(&raw.ports[index], &raw.ports[*listener], sink);
        match others[*listener] {
            _ if raw.ports[*listener].many().is_some() => {
                others[*listener].get_or_insert(PortId::from_index(index));
                others[index] = Some(PortId::from_index(*listener));
            }
            None => {
                others[*listener] = Some(PortId::from_index(index));
                others[index] = Some(PortId::from_index(*listener));
            }
            Some(first) => second_peer(&raw.ports[index], &raw.ports[*listener], &raw.ports[first.index()], sink),
        }
    }
    // A misspelt name elsewhere could make a port look alone.
    if !sink.has_errors() {
        for index in (0..ends.len()).filter(|index| others[*index].is_none()) {
            let device = links.ports[index].device.map(|device| &raw.devices[device.index()]);
            if let Some(device) = device.filter(|device| !device.reaches_others(ends[index])) {
                alone(&raw.ports[index], ends[index], device, sink);
            }
        }
    }
    others
}

/// Refuses a port that listens where the port `first` does.
fn address_taken(port: &RawPort, address: SocketAddr, first: &RawPort, sink: &mut Sink) {
    let Some(field) = &port.listen else { return };
    let message = format!("port.{} can't listen at {address} as well", port.head.name);
    let one = sink.error("address-taken", field.span, message);
    if let Some(field) = &first.listen {
        one.related(field.span, format!("port.{} listens here", first.head.name));
    }
    one.help(match first.many() {
        Some(many) => format!(
            "give each port a port number of its own, or share the listener, which takes {}: `listen_with = \
             \"port.{}\"`",
            many.value, first.head.name
        ),
        None => format!(
            "give each port a port number of its own, or take all with one: `connections_max = {}`",
            port.many().map_or(16, |many| many.value.saturating_add(1))
        ),
    });
}

/// Refuses a port that connects to a listener of one connection, as the port `first` does.
fn second_peer(port: &RawPort, listener: &RawPort, first: &RawPort, sink: &mut Sink) {
    let Some(field) = &port.connect.first else { return };
    let (name, listener) = (&port.head.name, &listener.head.name);
    let message = format!("port.{name} connects to port.{listener}, which takes one connection");
    let one = sink.error("peer-mismatch", field.span, message);
    if let Some(field) = &first.connect.first {
        one.related(field.span, format!("port.{} connects there too", first.head.name));
    }
    one.help("take both: `connections_max = 2`; or add a port that listens, with a port number of its own");
}

/// Warns of an end that only another plan in this process could meet.
fn alone(port: &RawPort, end: Option<End>, device: &RawDevice, sink: &mut Sink) {
    let (Some(end), Some((_, field))) = (end, port.address_keys().next()) else { return };
    let name = &port.head.name;
    let message = match end {
        End::Listen(at) => format!("port.{name} listens at {at}, and no port of this plan connects there"),
        End::Connect(to) => format!("port.{name} connects to {to}, and no port of this plan listens there"),
    };
    let one = sink.warn("this-process-only", field.span, message);
    let name = &device.head.name;
    match (end, device.address.as_ref().and_then(|own| Some((ip(&own.value)?, own.span)))) {
        (End::Listen(at), Some((own, span))) => {
            let every: IpAddr = if own.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
            let [own, every] = [own, every].map(|ip| SocketAddr::new(ip, at.port()));
            one.related(span, format!("device.{name} has this address"))
                .note("another process reaches the device at its own address only")
                .help(format!("write `listen = \"{own}\"`, or `listen = \"{every}\"`"))
        }
        _ => one
            .note("the software RNIC reaches this process only: another process can't be the other end")
            .help(format!(
                "give device.{name} an `address` of this host, e.g. address = \"127.0.0.1\", to reach other processes"
            ))
            .help("or put both ends into one plan, or run both on kernel devices"),
    };
}

impl RawDevice {
    /// Whether another process can be the other end of a port with this one.
    fn reaches_others(&self, end: Option<End>) -> bool {
        if self.provider.as_ref().is_none_or(|provider| provider.value != Provider::Soft) {
            return true;
        }
        let Some(own) = self.address.as_ref().and_then(|own| ip(&own.value)) else { return false };
        match end {
            Some(End::Listen(at)) => at.ip() == own || at.ip().is_unspecified(),
            Some(End::Connect(_)) | None => true,
        }
    }
}

/// Whether one address covers the other: the unspecified one is every address.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
}

/// Parses a multicast group: IPv4 (mapped to `::ffff:a.b.c.d`, as RoCE v2 does) or a GID in IPv6
/// notation.
pub(crate) fn parse_group(field: &Field<String>, sink: &mut Sink) -> Option<Group> {
    let refused = match field.value.parse::<IpAddr>() {
        Ok(IpAddr::V4(group)) if group.is_multicast() => return Some(to_group(group.to_ipv6_mapped())),
        Ok(IpAddr::V6(group)) if is_multicast(group) => return Some(to_group(group)),
        Ok(_) => format!("`{}` is not a multicast address", field.value),
        Err(_) => format!("`{}` is not an address", field.value),
    };
    sink.error("bad-value", field.span, refused)
        .help("a group is IPv4, 224.0.0.0 to 239.255.255.255, or a GID that starts with ff, e.g. \"239.1.1.1\"");
    None
}

/// Parses the groups that a port sends to. Warns of `senders_max` on a port that lacks a queue to
/// answer.
pub(crate) fn groups(port: &RawPort, destination: Destination, sink: &mut Sink) -> Vec<Group> {
    let name = &port.head.name;
    let silent = [(!port.receives(), "receives nothing"), (port.tx_depth_wr.value == 0, "sends nothing")];
    if let Some((_, why)) = silent.into_iter().find(|(is_so, _)| *is_so).filter(|_| port.senders_max.given) {
        sink.no_effect("senders_max", port.senders_max.span, format!("port.{name} {why}"))
            .help("remove it, or give the port both queues");
    }
    let mut groups: Vec<Group> = destination.group().into_iter().collect();
    let is_group = !groups.is_empty();
    for field in port.send_to.more.iter().filter(|_| is_group) {
        let Some(group) = parse_group(field, sink) else { continue };
        if groups.contains(&group) {
            sink.error("duplicate-name", field.span, format!("port.{name} sends to {group} twice")).help("remove one");
        }
        groups.push(group);
    }
    groups
}

fn is_multicast(group: Ipv6Addr) -> bool {
    group.is_multicast() || group.to_ipv4_mapped().is_some_and(|group| group.is_multicast())
}

fn to_group(address: Ipv6Addr) -> Group {
    Group { gid: address.octets() }
}
