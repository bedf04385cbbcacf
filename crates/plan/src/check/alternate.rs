//! Checks a port's alternate path: it is complete, and the port's queue pairs can have one.

use std::net::{IpAddr, Ipv6Addr};

use crate::choices::{Transport, transport_word};
use crate::diag::sink::Sink;
use crate::read::raw_port::RawPort;
use crate::read::reader::Field;

pub(crate) fn check(port: &RawPort, sink: &mut Sink) {
    let Some((key, span)) = port.alternate.given().next() else { return };
    let name = &port.head.name;
    if let Some(transport) = port.transport.as_ref().filter(|transport| transport.value != Transport::Rc) {
        let word = transport_word(transport.value);
        sink.error("rc-only-key", span, format!("`{key}` is for RC; port.{name} is {word}"))
            .related(transport.span, "its transport")
            .note("a device finds out that a path has failed by the ACKs that don't come")
            .help("remove it, or write `transport = \"rc\"`");
        return;
    }
    if let Some(many) = port.many() {
        sink.error("conflicting-keys", span, format!("port.{name} has many connections and one alternate path"))
            .related(many.span, "its connections")
            .note("an alternate path leads to one peer")
            .help("remove it, or make a port for each peer");
        return;
    }
    match &port.alternate.gid {
        Some(gid) if parse(gid).is_none() => {
            sink.error("bad-value", gid.span, format!("`{}` is no address of one peer", gid.value))
                .help("write a GID, e.g. \"fe80::2:c903:a:1\", or the IPv4 address of a RoCE v2 one");
        }
        Some(_) => {}
        None => {
            sink.error("missing-key", span, format!("`{key}` needs `alternate_gid` in [port.{name}]"))
                .note("it is where the alternate path leads to")
                .help("add `alternate_gid = \"GID\"`, that of the peer's other port");
        }
    }
}

/// Checks that both ends of a pair have an alternate path, or neither: a device that knows one of
/// two ends never switches.
pub(crate) fn check_pair(port: &RawPort, peer: &RawPort, sink: &mut Sink) {
    let (has, lacks, gid) = match (&port.alternate.gid, &peer.alternate.gid) {
        (Some(gid), None) => (port, peer, gid),
        (None, Some(gid)) => (peer, port, gid),
        _ => return,
    };
    let (name, peer_name) = (&has.head.name, &lacks.head.name);
    sink.error("peer-mismatch", gid.span, format!("port.{name} has an alternate path, port.{peer_name} none"))
        .related(lacks.head.span, "its peer")
        .note("a connection switches only if both ends have another path")
        .help(format!("add `alternate_gid` to [port.{peer_name}], or remove it here"));
}

/// Parses the GID of one peer: IPv6, or IPv4 mapped to `::ffff:a.b.c.d`.
pub(crate) fn parse(field: &Field<String>) -> Option<[u8; 16]> {
    let address: Ipv6Addr = match field.value.parse::<IpAddr>().ok()? {
        IpAddr::V4(address) if address.is_multicast() => return None,
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let is_one = !address.is_multicast() && !address.is_unspecified();
    is_one.then(|| address.octets())
}
