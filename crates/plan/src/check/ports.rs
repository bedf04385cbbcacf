//! Checks that the keys of a port fit together: transport, peer, groups, depths, device and pool.

use crate::catalog::Catalog;
use crate::check::addresses::{self, End};
use crate::check::alternate;
use crate::check::attributes;
use crate::check::connections;
use crate::check::listeners;
use crate::check::refs::Links;
use crate::check::regions;
use crate::check::sends;
use crate::choices::{Destination, Group, Transport, transport_word};
use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::ids::{PortId, Target};
use crate::read::raw::RawPlan;
use crate::read::raw_port::RawPort;

/// Devices are likely to refuse more inline data.
const INLINE_BYTES_LIKELY: u32 = 512;

/// Results of the checks of one port.
#[derive(Debug)]
pub(crate) struct PortFacts {
    pub(crate) join: Vec<Group>,
    pub(crate) destination: Destination,
    /// The groups that the port sends to.
    pub(crate) send_to: Vec<Group>,
    /// This plan's port at the other end of a connection by address, if there is one.
    pub(crate) across: Option<PortId>,
    /// Clamped to the depth if left out.
    pub(crate) signal_every_wr: u32,
    /// The target of received packets; `None` if nothing is received or it could not be resolved.
    pub(crate) next: Option<Target>,
}

pub(crate) fn check(raw: &RawPlan, links: &Links<'_>, catalog: &Catalog, sink: &mut Sink) -> Vec<PortFacts> {
    let ids = (0..raw.ports.len()).map(PortId::from_index);
    let mut all: Vec<PortFacts> =
        ids.map(|id| Check { raw, links, catalog, id, port: &raw.ports[id.index()], sink }.run()).collect();
    let joins: Vec<&[Group]> = all.iter().map(|facts| facts.join.as_slice()).collect();
    let sends: Vec<&[Group]> = all.iter().map(|facts| facts.send_to.as_slice()).collect();
    attributes::check_groups(raw, &joins, &sends, sink);
    // A port with a shared listener is met there.
    let has_own = |(facts, port): (&PortFacts, &RawPort)| facts.end().filter(|_| port.shared.listen_with.is_none());
    let ends: Vec<Option<End>> = all.iter().zip(&raw.ports).map(has_own).collect();
    let mut others = addresses::meet(raw, links, &ends, sink);
    listeners::check(raw, links, &mut others, sink);
    listeners::warn_of_too_few_places(raw, links, &others, sink);
    listeners::warn_of_more_than_a_wire_has(raw, links, sink);
    for (index, (facts, other)) in all.iter_mut().zip(others).enumerate() {
        facts.across = other;
        let Some((other, (_, field))) = other.zip(raw.ports[index].address_keys().next()) else { continue };
        warn_deaf(&raw.ports[index], &raw.ports[other.index()], field.span, sink);
    }
    all
}

impl PortFacts {
    /// This plan's port that receives this port's sends, over a connection or by datagram.
    pub(crate) fn other_end(&self) -> Option<PortId> {
        self.destination.peer().or(self.across)
    }

    fn end(&self) -> Option<End> {
        match self.destination {
            Destination::Listen(address) => Some(End::Listen(address)),
            Destination::Connect(address) => Some(End::Connect(address)),
            Destination::None | Destination::Peer(_) | Destination::Group(_) => None,
        }
    }
}

struct Check<'a, 'c> {
    raw: &'a RawPlan,
    links: &'a Links<'c>,
    catalog: &'a Catalog,
    id: PortId,
    port: &'a RawPort,
    sink: &'a mut Sink,
}

impl Check<'_, '_> {
    fn run(mut self) -> PortFacts {
        let port = self.port;
        if !port.receives() && port.tx_depth_wr.value == 0 {
            self.sink
                .error("missing-key", port.head.span, format!("port.{} neither receives nor sends", port.head.name))
                .help("add `rx_depth_wr = 512`, `tx_depth_wr = 256`, or both");
        }
        connections::check(port, self.catalog, self.sink);
        self.receive();
        regions::check_port(port, self.sink);
        attributes::check(port, self.sink);
        alternate::check(port, self.sink);
        self.device();
        if port.inline_bytes.value > INLINE_BYTES_LIKELY {
            self.sink
                .warn(
                    "large-inline",
                    port.inline_bytes.span,
                    format!("{} bytes inline are more than most devices grant", port.inline_bytes.value),
                )
                .note("the device is asked at start, and what it grants is used or the run is refused");
        }
        let destination = self.destination();
        let (join, send_to) = (self.join(), addresses::groups(port, destination, self.sink));
        PortFacts {
            join,
            destination,
            send_to,
            across: None,
            signal_every_wr: sends::check(port, self.sink),
            next: self.links.ports[self.id.index()].next.filter(|_| port.receives()).map(|hop| hop.target),
        }
    }

    /// Checks that `pool` and `next` come with `rx_depth_wr`.
    fn receive(&mut self) {
        let (port, receives) = (self.port, self.port.receives());
        for (key, field, help) in [
            ("pool", &port.pool, "add `pool = \"NAME\"`, the pool that receive buffers come from"),
            ("next", &port.next, "add `next = \"stage.NAME\"`, where received packets go"),
        ] {
            match field {
                None if receives => {
                    self.sink
                        .error("missing-key", port.head.span, format!("[port.{}] needs `{key}`", port.head.name))
                        .related(port.rx_key().span, "because it receives")
                        .help(help);
                }
                Some(field) if !receives => {
                    let why = format!("port.{} receives nothing", port.head.name);
                    self.sink.no_effect(key, field.span, why).help("remove it, or add `rx_depth_wr`");
                }
                _ => {}
            }
        }
        if port.timestamps.given && !receives {
            let why = format!("port.{} receives nothing", port.head.name);
            self.sink.no_effect("timestamps", port.timestamps.span, why).help("remove it, or add `rx_depth_wr`");
        }
    }

    fn device(&mut self) {
        let links = &self.links.ports[self.id.index()];
        let Some((pool, device)) = links.pool.zip(links.device) else { return };
        let Some(pool_device) = self.links.pools[pool.index()].filter(|of_pool| *of_pool != device) else { return };
        let raw_pool = &self.raw.pools[pool.index()];
        let name = |id: crate::ids::DeviceId| self.raw.devices[id.index()].head.name.clone();
        let message = format!(
            "port.{} is on device `{}`, its pool on `{}`",
            self.port.head.name,
            name(device),
            name(pool_device)
        );
        let span = self.port.pool.as_ref().map_or(self.port.head.span, |field| field.span);
        let one = self.sink.error("device-mismatch", span, message);
        if let Some(field) = &raw_pool.device {
            one.related(field.span, "the pool is registered here");
        }
        one.note("memory is registered with one device, and another can't reach it")
            .help("give each device a pool of its own");
    }

    fn destination(&mut self) -> Destination {
        let Some(transport) = self.port.transport.clone() else { return Destination::None };
        let port = self.port;
        addresses::check_transport(port, transport.value, self.sink);
        let (timeout, reconnect) = (&port.connect_timeout, &port.reconnect);
        for (key, given, span) in
            [("connect_timeout", timeout.given, timeout.span), ("reconnect", reconnect.given, reconnect.span)]
        {
            if given && port.address_keys().next().is_none() {
                let why = format!("port.{} has no address", port.head.name);
                self.sink.no_effect(key, span, why).help("remove it, or add `listen` or `connect`");
            }
        }
        match transport.value {
            Transport::Ud => self.datagram_destination(),
            Transport::Rc | Transport::Uc => self.connected_destination(transport.value),
        }
    }

    fn datagram_destination(&mut self) -> Destination {
        let port = self.port;
        let group = port.send_to.first.as_ref().and_then(|field| addresses::parse_group(field, self.sink));
        if let (Some(send_to), Some(peer)) = (&port.send_to.first, &port.peer) {
            self.sink
                .error("conflicting-keys", peer.span, format!("port.{} sends to a group and to a peer", port.head.name))
                .related(send_to.span, "the group")
                .help("a port has one destination: keep `send_to` or `peer`, or make two ports");
            return Destination::None;
        }
        for field in [&port.send_to.first, &port.peer].into_iter().flatten() {
            if port.tx_depth_wr.value == 0 {
                self.sink
                    .warn(
                        "no-effect",
                        field.span,
                        format!("port.{} has a destination but no send queue", port.head.name),
                    )
                    .help("add `tx_depth_wr = 256`, or remove the destination");
            }
        }
        let answers = port.senders_max.value > 0;
        if port.tx_depth_wr.value > 0 && port.send_to.first.is_none() && port.peer.is_none() && !answers {
            self.sink
                .error("missing-key", port.head.span, format!("port.{} sends datagrams to nobody", port.head.name))
                .related(port.tx_depth_wr.span, "it has a send queue")
                .help("add `send_to = \"239.1.1.1\"` (a multicast group) or `peer = \"port.NAME\"`")
                .help("or `senders_max = 256`, to answer those who send to it");
        }
        match (group, self.peer()) {
            (Some(group), _) => Destination::Group(group),
            (None, Some(peer)) => Destination::Peer(peer),
            (None, None) => Destination::None,
        }
    }

    fn connected_destination(&mut self, transport: Transport) -> Destination {
        let port = self.port;
        let word = transport_word(transport);
        let senders = port.senders_max.given.then_some(port.senders_max.span);
        let send_to = port.send_to.first.as_ref().map(|field| field.span);
        for (key, span) in [("join", port.join_key), ("send_to", send_to), ("senders_max", senders)] {
            if let Some(span) = span {
                self.sink
                    .error("ud-only-key", span, format!("`{key}` is for UD; port.{} is {word}", port.head.name))
                    .note("a connected queue pair talks to its peer only")
                    .help(format!("remove `{key}`, or write `transport = \"ud\"`"));
            }
        }
        if port.shared.listen_with.is_some() {
            let leader = self.links.ports[self.id.index()].listen_with.map(|leader| &self.raw.ports[leader.index()]);
            let at = leader.and_then(|leader| addresses::with_port(&leader.listen.as_ref()?.value));
            return at.map_or(Destination::None, Destination::Listen);
        }
        if let Some(other_end) = self.address() {
            return other_end;
        }
        if port.peer.is_none() {
            self.sink
                .error("missing-key", port.head.span, format!("[port.{}] needs `peer`", port.head.name))
                .note(format!("{word} connects two queue pairs"))
                .help("add `peer = \"port.NAME\"`, and the same the other way round")
                .help("or `connect = \"ADDRESS:PORT\"`, or `listen = \"ADDRESS:PORT\"`, to meet somebody else's");
        }
        match self.peer() {
            Some(peer) => {
                self.check_mutual(peer);
                Destination::Peer(peer)
            }
            None => Destination::None,
        }
    }

    /// The address at which the port listens or to which it connects; `None` without either.
    /// [`Destination::None`] stands for one that is wrong.
    fn address(&mut self) -> Option<Destination> {
        let port = self.port;
        let (key, field) = port.address_keys().next()?;
        let peer = port.peer.as_ref().map(|peer| ("peer", peer));
        for (other, second) in port.address_keys().skip(1).chain(peer) {
            let message = format!("port.{} has both `{key}` and `{other}`", port.head.name);
            self.sink
                .error("conflicting-keys", second.span, message)
                .related(field.span, format!("`{key}`"))
                .help("a connection has one other end: keep one of `peer`, `listen` and `connect`");
        }
        let parsed: Vec<_> = port
            .address_keys()
            .map(|(key, field)| addresses::parse(field, key, self.sink).map(|at| at.value))
            .collect();
        Some(match (parsed[0], key) {
            (Some(address), "listen") => Destination::Listen(address),
            (Some(address), _) => Destination::Connect(address),
            (None, _) => Destination::None,
        })
    }

    /// The peer, once checked that a queue pair can reach it.
    fn peer(&mut self) -> Option<PortId> {
        let peer = self.links.ports[self.id.index()].peer?;
        let field = self.port.peer.as_ref()?;
        let other = &self.raw.ports[peer.index()];
        if peer == self.id {
            self.sink
                .error("peer-mismatch", field.span, format!("port.{} is its own peer", self.port.head.name))
                .help("name the port at the other end");
            return None;
        }
        let (own_transport, other_transport) = (self.port.transport.as_ref()?, other.transport.as_ref()?);
        if own_transport.value != other_transport.value {
            let words = (transport_word(own_transport.value), transport_word(other_transport.value));
            let message = format!("port.{} is {}, its peer {}", self.port.head.name, words.0, words.1);
            self.sink
                .error("peer-mismatch", field.span, message)
                .related(other_transport.span, "the peer's transport")
                .help("both ends of a connection have one transport");
            return None;
        }
        self.check_providers(peer);
        // A pair of ports that name each other is checked once.
        if self.links.ports[peer.index()].peer != Some(self.id) || self.id.index() < peer.index() {
            attributes::check_pair(self.port, other, self.sink);
            alternate::check_pair(self.port, other, self.sink);
        }
        warn_deaf(self.port, other, field.span, self.sink);
        Some(peer)
    }

    fn check_providers(&mut self, peer: PortId) {
        let Some(field) = &self.port.peer else { return };
        let device_of = |id: PortId| self.links.ports[id.index()].device.map(|at| &self.raw.devices[at.index()]);
        let Some((own, other)) = device_of(self.id).zip(device_of(peer)) else { return };
        let (Some(own_provider), Some(other_provider)) = (&own.provider, &other.provider) else { return };
        if own_provider.value != other_provider.value {
            let message = format!("devices `{}` and `{}` can't reach each other", own.head.name, other.head.name);
            self.sink
                .error("peer-mismatch", field.span, message)
                .related(own_provider.span, "one is this")
                .related(other_provider.span, "the other this")
                .note("a software device reaches software devices of this process only");
        }
    }

    fn check_mutual(&mut self, peer: PortId) {
        let Some(field) = &self.port.peer else { return };
        let other = &self.raw.ports[peer.index()];
        let back = self.links.ports[peer.index()].peer;
        if back == Some(self.id) {
            return;
        }
        let (own_name, other_name) = (&self.port.head.name, &other.head.name);
        // A peer without a peer of its own, or with an unknown one, is reported at its own table.
        let (Some(third), Some(other_field)) = (back, &other.peer) else { return };
        let third = &self.raw.ports[third.index()].head.name;
        self.sink
            .error("peer-mismatch", field.span, format!("port.{other_name} has another peer, port.{third}"))
            .related(other_field.span, "here")
            .help(format!("a connection has two ends: write `peer = \"port.{own_name}\"` in [port.{other_name}]"));
    }

    fn join(&mut self) -> Vec<Group> {
        let port = self.port;
        let is_datagram = port.transport.as_ref().is_some_and(|transport| transport.value == Transport::Ud);
        if let Some(span) = port.join_key.filter(|_| is_datagram && !port.receives()) {
            self.sink
                .error("missing-key", span, format!("port.{} joins a group but receives nothing", port.head.name))
                .help("add `rx_depth_wr = 512`");
        }
        let mut groups: Vec<Group> = Vec::new();
        for field in &port.join {
            let Some(group) = addresses::parse_group(field, self.sink) else { continue };
            if groups.contains(&group) {
                self.sink
                    .error("duplicate-name", field.span, format!("port.{} joins {group} twice", port.head.name))
                    .help("remove one");
            }
            groups.push(group);
        }
        groups
    }
}

/// `at`: the place where the sender names the other end.
fn warn_deaf(sender: &RawPort, other: &RawPort, at: Span, sink: &mut Sink) {
    let reads_or_writes = sender.ops_depth_wr.value > 0;
    if sender.tx_depth_wr.value == 0 || other.receives() || reads_or_writes {
        return;
    }
    let (name, other_name) = (&sender.head.name, &other.head.name);
    sink.warn("peer-deaf", at, format!("port.{name} sends to port.{other_name}, which receives nothing"))
        .related(other.rx_depth_wr.span, "no `rx_depth_wr` here")
        .help(format!("add `rx_depth_wr = {}` to [port.{other_name}]", sender.tx_depth_wr.value));
}
