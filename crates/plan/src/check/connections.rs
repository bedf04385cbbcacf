//! Ports with many connections: one that listens and takes up to `connections_max` peers, and one
//! that connects `connections` times.

use crate::catalog::Catalog;
use crate::diag::sink::Sink;
use crate::diag::suggestions;
use crate::limits::PRIVATE_DATA_BYTES_MAX;
use crate::read::raw_port::RawPort;
use crate::read::reader::Field;

impl RawPort {
    /// The most connections of the port, if it may have many.
    pub(crate) fn many(&self) -> Option<&Field<u32>> {
        self.shared.connections_max.as_ref().or(self.shared.connections.as_ref())
    }

    /// The key with the number of posted receives: in one queue for all connections, or in each
    /// connection's own.
    pub(crate) fn rx_key(&self) -> &Field<u32> {
        if self.shared.rx_shared_wr.given { &self.shared.rx_shared_wr } else { &self.rx_depth_wr }
    }

    /// Whether the port's datagrams may go to several peers.
    pub(crate) fn has_peers(&self) -> bool {
        self.senders_max.value > 0 || !self.send_to.more.is_empty()
    }

    /// Whether a thread of its own makes its connections, watches them, or makes address handles.
    pub(crate) fn has_thread(&self) -> bool {
        self.is_by_address() || self.senders_max.value > 0
    }

    /// Whether its connections are made by an address, be it another port's.
    pub(crate) fn is_by_address(&self) -> bool {
        self.has_address() || self.shared.listen_with.is_some()
    }

    pub(crate) fn receives(&self) -> bool {
        self.rx_key().value > 0
    }

    /// Receives that can be posted at once.
    pub(crate) fn rx_wr(&self) -> u64 {
        let queues = if self.shared.rx_shared_wr.given { 1 } else { self.queue_pairs() };
        u64::from(self.rx_key().value) * queues
    }

    /// The computation of `rx_wr` in words; empty for one queue.
    pub(crate) fn rx_how(&self) -> String {
        match self.many() {
            Some(_) if self.shared.rx_shared_wr.given => "shared".to_owned(),
            Some(many) => format!("{} x {}", many.value, self.rx_depth_wr.value),
            None => String::new(),
        }
    }

    /// Sends that can be under way at once.
    pub(crate) fn sends(&self) -> Depth<'_> {
        self.depth(&self.tx_depth_wr, self.shared.tx_shared_wr.as_ref())
    }

    /// Operations that can be under way at once.
    pub(crate) fn operations(&self) -> Depth<'_> {
        self.depth(&self.ops_depth_wr, self.shared.ops_shared_wr.as_ref())
    }

    fn depth<'a>(&'a self, each: &'a Field<u32>, shared: Option<&'a Field<u32>>) -> Depth<'a> {
        Depth { each, shared, queue_pairs: self.queue_pairs(), many: self.many() }
    }

    /// Whether a lost connection by address is reconnected.
    pub(crate) fn reconnects(&self) -> bool {
        self.reconnect.value && self.has_address()
    }

    fn has_address(&self) -> bool {
        self.listen.is_some() || self.connect.first.is_some()
    }

    /// Queue pairs that may be released before the run ends, each of which ends with a marker work
    /// request: those of connections by address.
    pub(crate) fn markers(&self) -> u64 {
        match self.many() {
            Some(many) => many.value.into(),
            None => self.has_address().into(),
        }
    }

    /// Faults of signature keys that may wait to be reported.
    pub(crate) fn faults(&self) -> u64 {
        u64::from(self.signature_keys.value) * self.queue_pairs()
    }

    fn queue_pairs(&self) -> u64 {
        self.many().map_or(1, |many| many.value.max(1).into())
    }
}

/// Work requests that can be under way at once: the depth of each queue pair, and over all of them
/// the shared bound, if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Depth<'a> {
    each: &'a Field<u32>,
    shared: Option<&'a Field<u32>>,
    queue_pairs: u64,
    many: Option<&'a Field<u32>>,
}

impl<'a> Depth<'a> {
    pub(crate) fn wr(self) -> u64 {
        let all = self.of_all();
        self.shared.map_or(all, |bound| all.min(bound.value.into()))
    }

    /// The computation of `wr` in words; empty for one queue.
    pub(crate) fn how(self) -> String {
        match (self.many, self.shared) {
            (Some(_), Some(_)) => "shared".to_owned(),
            (Some(many), None) => format!("{} x {}", many.value, self.each.value),
            (None, _) => String::new(),
        }
    }

    /// The key that bounds the work requests.
    pub(crate) fn key(self) -> &'a Field<u32> {
        self.shared.filter(|_| self.many.is_some()).unwrap_or(self.each)
    }

    /// The depths of all queue pairs together, without the shared bound.
    fn of_all(self) -> u64 {
        u64::from(self.each.value) * self.queue_pairs
    }
}

/// Checks that the keys of many connections fit together, and with the rest of the port's.
pub(crate) fn check(port: &RawPort, catalog: &Catalog, sink: &mut Sink) {
    let name = &port.head.name;
    check_acceptor(port, catalog, sink);
    check_private_data(port, sink);
    let listen_with = port.shared.listen_with.as_ref();
    for (key, field, needs, address) in [
        ("connections_max", &port.shared.connections_max, "listen", port.listen.as_ref().or(listen_with)),
        ("connections", &port.shared.connections, "connect", port.connect.first.as_ref()),
    ] {
        if let (Some(field), None) = (field, address) {
            sink.error("missing-key", field.span, format!("`{key}` of port.{name} needs `{needs}`"))
                .help(format!("add `{needs} = \"ADDRESS:PORT\"`, or remove `{key}`"));
        }
    }
    let shared = [
        ("rx_shared_wr", Some(&port.shared.rx_shared_wr)),
        ("tx_shared_wr", port.shared.tx_shared_wr.as_ref()),
        ("ops_shared_wr", port.shared.ops_shared_wr.as_ref()),
    ];
    let shared = shared.into_iter().filter_map(|(key, field)| Some((key, field.filter(|field| field.given)?.span)));
    if port.many().is_none() {
        for (key, span) in shared {
            sink.error("missing-key", span, format!("`{key}` is for many connections; port.{name} has one"))
                .help("add `connections_max = 1024` beside `listen`, or `connections = 4` beside `connect`");
        }
        return;
    }
    if port.shared.rx_shared_wr.given && port.rx_depth_wr.given {
        sink.error("conflicting-keys", port.rx_depth_wr.span, format!("port.{name} has two kinds of receive queues"))
            .related(port.shared.rx_shared_wr.span, "one for all connections")
            .help("keep `rx_shared_wr`; keep `rx_depth_wr`, a queue a connection, where the device has no SRQ");
    }
    for (key, depth, of_one) in [
        ("tx_shared_wr", port.sends(), "sends of one connection"),
        ("ops_shared_wr", port.operations(), "operations of one connection"),
    ] {
        let most = depth.of_all();
        if let Some(bound) = depth.shared.filter(|bound| u64::from(bound.value) > most) {
            sink.warn("no-effect", bound.span, format!("`{key}` bounds nothing: all queues together have {most}"))
                .related(depth.each.span, of_one)
                .help("remove it, or make it less");
        }
    }
    let (timeout, reconnect) = (&port.connect_timeout, &port.reconnect);
    if timeout.given {
        let why = format!("port.{name} waits for none of its many connections");
        sink.no_effect("connect_timeout", timeout.span, why).help("remove it");
    }
    if reconnect.given && port.shared.connections.is_none() {
        let why = format!("port.{name} connects to nobody; peers that it lost connect again of their own accord");
        sink.no_effect("reconnect", reconnect.span, why).help("remove it, or write it at the peer's port");
    }
}

/// Checks the acceptor: the application registered it, and the port takes connections.
fn check_acceptor(port: &RawPort, catalog: &Catalog, sink: &mut Sink) {
    let name = &port.head.name;
    let Some(acceptor) = &port.shared.acceptor else {
        if let Some((span, _)) = port.shared.acceptor_params {
            sink.error("missing-key", span, format!("`acceptor_params` of port.{name} needs `acceptor`"))
                .note("without an acceptor every peer is let in")
                .help("add `acceptor = \"NAME\"`, or remove `acceptor_params`");
        }
        return;
    };
    if port.shared.connections_max.is_none() {
        sink.error("missing-key", acceptor.span, format!("`acceptor` of port.{name} needs `connections_max`"))
            .help("add `connections_max = 16` beside `listen`; 1 takes one peer at a time")
            .help("or remove `acceptor`");
    }
    if !catalog.acceptors.contains(&acceptor.value.as_str()) {
        let known = catalog.acceptors.iter().copied();
        let help = suggestions::suggest(&acceptor.value, known, "the acceptors that are registered are");
        sink.error("unknown-kind", acceptor.span, format!("no acceptor `{}`", acceptor.value)).help(help);
    }
}

/// Checks the private data: it goes with a connection request, and fits it.
fn check_private_data(port: &RawPort, sink: &mut Sink) {
    let (name, Some(data)) = (&port.head.name, &port.shared.private_data) else { return };
    if port.connect.first.is_none() {
        sink.error("missing-key", data.span, format!("`private_data` of port.{name} needs `connect`"))
            .note("it goes with a request to connect; an acceptor says what goes back")
            .help("add `connect = \"ADDRESS:PORT\"`, or remove `private_data`");
    }
    let bytes = data.value.len();
    if bytes == 0 || bytes > PRIVATE_DATA_BYTES_MAX {
        let message = format!("`private_data` has {bytes} bytes, which is out of range");
        sink.error("bad-value", data.span, message)
            .note(format!("a request has room for 1 to {PRIVATE_DATA_BYTES_MAX} (rdma_connect(3))"))
            .help("send the rest as the first message");
    }
}
