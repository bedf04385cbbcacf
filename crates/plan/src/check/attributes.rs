//! Checks the attributes of a port's queue pairs: each has an effect there, and both ends agree.

use crate::choices::Transport::{self, Rc, Uc, Ud};
use crate::choices::{Group, transport_word};
use crate::diag::sink::Sink;
use crate::read::raw::RawPlan;
use crate::read::raw_port::RawPort;
use crate::read::reader::Field;

/// The ports on which an attribute has an effect.
struct Place {
    key: &'static str,
    transports: &'static [Transport],
    /// Why it has no effect with another transport.
    elsewhere: &'static str,
    /// Why it has none on a port with an address, and the remedy. librdmacm has no option for it
    /// (rdma_set_option(3), rdma_connect(3)).
    by_address: Option<(&'static str, &'static str)>,
}

const PLACES: &[Place] = &[
    Place { key: "traffic_class", transports: &[Rc, Uc, Ud], elsewhere: "", by_address: None },
    Place {
        key: "hop_limit",
        transports: &[Rc, Uc, Ud],
        elsewhere: "",
        by_address: Some((
            "the connection manager takes it from the route to the address",
            "remove it, and give the route one: `ip route … hoplimit 8`",
        )),
    },
    Place {
        key: "service_level",
        transports: &[Rc, Uc, Ud],
        elsewhere: "",
        by_address: Some((
            "the connection manager works it out of the traffic class",
            "write `traffic_class`, which the interface or the subnet manager maps",
        )),
    },
    Place {
        key: "path_mtu",
        transports: &[Rc, Uc],
        elsewhere: "a datagram is one packet: its length is all there is to limit",
        by_address: Some((
            "the connection manager agrees with the peer on the MTU of the path",
            "remove it, and set the MTU of the interface: `ip link set … mtu 1500`",
        )),
    },
    Place {
        key: "pkey",
        transports: &[Rc, Uc, Ud],
        elsewhere: "",
        by_address: Some((
            "the connection manager takes the partition of the interface with the address",
            "connect from and to addresses of that partition's interfaces",
        )),
    },
    Place {
        key: "qkey",
        transports: &[Ud],
        elsewhere: "a queue pair that has one peer needs no key against others",
        by_address: None,
    },
    Place { key: "max_rd_atomic", transports: &[Rc], elsewhere: NO_READS, by_address: None },
    Place { key: "max_dest_rd_atomic", transports: &[Rc], elsewhere: NO_READS, by_address: None },
    // The device decides at start which transports it paces.
    Place { key: "rate_limit", transports: &[Rc, Uc, Ud], elsewhere: "", by_address: None },
];

const NO_READS: &str = "only a reliable connection carries READs and atomics";

pub(crate) fn check(port: &RawPort, sink: &mut Sink) {
    let Some(transport) = &port.transport else { return };
    check_retries(port, transport, sink);
    for (key, span) in port.attributes.given() {
        let Some(place) = PLACES.iter().find(|place| place.key == key) else { continue };
        let (name, word) = (&port.head.name, transport_word(transport.value));
        if !place.transports.contains(&transport.value) {
            let (code, words) = meant_for(place.transports);
            sink.error(code, span, format!("`{key}` is for {words}; port.{name} is {word}"))
                .related(transport.span, "its transport")
                .note(place.elsewhere)
                .help("remove it");
        } else if let (Some((note, help)), Some((address, field))) = (place.by_address, address(port)) {
            sink.error("conflicting-keys", span, format!("port.{name} has both `{key}` and `{address}`"))
                .related(field.span, format!("`{address}`"))
                .note(note)
                .help(help);
        }
    }
    if let Some(mtu) = port.attributes.path_mtu.as_ref().filter(|mtu| !mtu.value.is_power_of_two()) {
        sink.error("bad-value", mtu.span, format!("`path_mtu` is {}, which no queue pair can have", mtu.value))
            .note("it counts the data of a packet; an interface's MTU counts the headers too")
            .help("write 256, 512, 1024, 2048 or 4096");
    }
    warn_of_nothing_sent(port, transport.value, sink);
    if let Some(field) = port.attributes.max_rd_atomic.as_ref().filter(|_| port.ops_depth_wr.value == 0) {
        let why = format!("port.{} carries out no operations", port.head.name);
        sink.no_effect("max_rd_atomic", field.span, why).help("remove it, or add `ops_depth_wr`");
    }
}

/// Only a reliable connection retries.
fn check_retries(port: &RawPort, transport: &Field<Transport>, sink: &mut Sink) {
    let word = transport_word(transport.value);
    for (key, span) in port.retries.given().filter(|_| transport.value != Rc) {
        sink.error("rc-only-key", span, format!("`{key}` is for RC; port.{} is {word}", port.head.name))
            .related(transport.span, "its transport")
            .note(format!("{word} sends nothing again: what is lost is lost"))
            .help("remove it, or write `transport = \"rc\"`");
    }
}

fn meant_for(transports: &[Transport]) -> (&'static str, String) {
    let words: Vec<&str> = transports.iter().copied().map(transport_word).collect();
    let code = match transports {
        [Rc] => "rc-only-key",
        [Ud] => "ud-only-key",
        _ => "connected-only-key",
    };
    (code, words.join(" and "))
}

/// The key by which the connection manager makes the port's connections, if it does.
fn address(port: &RawPort) -> Option<(&'static str, &Field<String>)> {
    let shared = port.shared.listen_with.as_ref().map(|field| ("listen_with", field));
    port.address_keys().next().or(shared)
}

/// A queue pair that only receives still answers on a connection, but sends no datagram.
fn warn_of_nothing_sent(port: &RawPort, transport: Transport, sink: &mut Sink) {
    if transport != Ud || port.tx_depth_wr.value > 0 {
        return;
    }
    const OF_SENDS: [&str; 4] = ["traffic_class", "hop_limit", "service_level", "rate_limit"];
    for (key, span) in port.attributes.given().filter(|(key, _)| OF_SENDS.contains(key)) {
        let why = format!("port.{} sends nothing", port.head.name);
        sink.no_effect(key, span, why).help("remove it, or add `tx_depth_wr`");
    }
}

/// Compares the attributes that both ends of a pair must have alike, where both give them.
pub(crate) fn check_pair(port: &RawPort, peer: &RawPort, sink: &mut Sink) {
    check_partitions(port, peer, sink);
    let (Some(own), Some(other)) = (&port.attributes.path_mtu, &peer.attributes.path_mtu) else { return };
    if own.value != other.value {
        let (name, peer_name) = (&port.head.name, &peer.head.name);
        let message = format!("port.{name} sends packets of {} bytes, port.{peer_name} of {}", own.value, other.value);
        sink.error("peer-mismatch", own.span, message)
            .related(other.span, "the peer's")
            .note("both ends of a connection have one path MTU")
            .help("write the same in both, or in one of them only");
    }
}

/// Warns of members of a group whose Q_Key no port of the plan uses, though some send to the group:
/// the members' devices drop these datagrams unseen. `joins`, `sends`: the groups of each port.
pub(crate) fn check_groups(raw: &RawPlan, joins: &[&[Group]], sends: &[&[Group]], sink: &mut Sink) {
    let qkey = |port: &RawPort| port.attributes.qkey();
    let at = |port: &RawPort| port.attributes.qkey.as_ref().map_or(port.head.span, |field| field.span);
    for (port, group) in raw.ports.iter().zip(joins).flat_map(|(port, groups)| groups.iter().map(move |to| (port, to)))
    {
        let senders = || raw.ports.iter().zip(sends).filter(|(_, to)| to.contains(group)).map(|(sender, _)| sender);
        if senders().any(|sender| qkey(sender) == qkey(port)) {
            continue;
        }
        let Some(sender) = senders().next() else { continue };
        let (name, other) = (&port.head.name, &sender.head.name);
        let message = format!("port.{name} has another Q_Key than port.{other}, which sends to {group}");
        sink.error("peer-mismatch", at(port), message)
            .related(at(sender), "the sender")
            .note("what is sent to a group has the `qkey` of its sender; another is dropped unseen")
            .help("write the same `qkey` in both");
    }
}

/// The upper bit of a P_Key is the membership, full or limited.
const PARTITION_BITS: u32 = 0x7fff;

fn check_partitions(port: &RawPort, peer: &RawPort, sink: &mut Sink) {
    let (Some(own), Some(other)) = (&port.attributes.pkey, &peer.attributes.pkey) else { return };
    let (name, peer_name) = (&port.head.name, &peer.head.name);
    let message = if (own.value ^ other.value) & PARTITION_BITS != 0 {
        format!("port.{name} is in partition {:#x}, port.{peer_name} in {:#x}", own.value, other.value)
    } else if own.value & other.value & !PARTITION_BITS == 0 && own.value == other.value {
        format!("port.{name} and port.{peer_name} are both limited members of {:#x}", own.value)
    } else {
        return;
    };
    sink.error("peer-mismatch", own.span, message)
        .related(other.span, "the peer's")
        .note("packets pass within a partition, to or from a full member (0x8000 and its number)")
        .help("give both ends a P_Key of one partition");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::raw::keys_of;
    use crate::read::raw_port::RawAttributes;

    #[test]
    fn every_attribute_has_a_place() {
        let keys: Vec<_> = keys_of(|_, reader| RawAttributes::read(reader)).iter().map(|key| key.name).collect();
        assert_eq!(keys, PLACES.iter().map(|place| place.key).collect::<Vec<_>>());
    }
}
