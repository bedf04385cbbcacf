//! Multicast groups as GIDs.

use std::net::{IpAddr, Ipv6Addr};

use crate::choices::Group;
use crate::diag::sink::Sink;
use crate::read::reader::Field;

/// A group from its text: IPv4 (mapped to `::ffff:a.b.c.d`, as RoCE v2 does) or a GID in IPv6
/// notation.
pub(crate) fn parse(field: &Field<String>, sink: &mut Sink) -> Option<Group> {
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

fn is_multicast(group: Ipv6Addr) -> bool {
    group.is_multicast() || group.to_ipv4_mapped().is_some_and(|group| group.is_multicast())
}

fn to_group(address: Ipv6Addr) -> Group {
    Group { gid: address.octets() }
}
