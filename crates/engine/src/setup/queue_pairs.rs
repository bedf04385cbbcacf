//! Makes the queue pairs of a plan on their lcores' completion queues, and connects them to their
//! peers and groups.
//!
//! Both ends of a connection between ports of the plan are in this process, so they exchange
//! endpoints directly. A port with an address stays in INIT; [`crate::connection::connector`]
//! connects it once everything else is made.

use std::net::{IpAddr, SocketAddr};

use verbline_plan::{Destination, Group, Lcore, Plan, PortId, Transport};
use verbline_verbs::connection::{CmTransport, ConnectOptions, Listener};
use verbline_verbs::signature::QpSignature;
use verbline_verbs::{
    Endpoint, Gid, InitSpec, Mtu, QpMaker, QpSpec, QueuePair, RtrSpec, RtsSpec, VerbError,
    datagram::{AddressHandle, AhSpec, DestinationId, MULTICAST_QPN},
};

use crate::connection::cm_mailbox::CmMailboxes;
use crate::connection::connector::BACKLOG;
use crate::connection::spec::{ConnectionSpec, LocalPort, Role, SharedOptions};
use crate::errors::error::{Cause, EngineError, place};
use crate::idle::wake_set::CqSource;
use crate::lcore::poll_loop::LcoreParts;
use crate::setup::attributes::{path_of, pkey_index, rtr_of, rts_of};
use crate::setup::devices::{Devices, Opened, provider, transport};
use crate::setup::regions::{ReadDepths, peer_access, read_depths};

/// The queue pairs on their way to their ports.
#[derive(Debug)]
pub(crate) struct QueuePairs<'a> {
    plan: &'a Plan,
    qps: Vec<Option<QueuePair>>,
    /// The makers of ports that reconnect.
    makers: Vec<Option<QpMaker>>,
}

impl<'a> QueuePairs<'a> {
    pub(crate) fn new(plan: &'a Plan) -> QueuePairs<'a> {
        let none = plan.ports().iter();
        QueuePairs { plan, qps: none.clone().map(|_| None).collect(), makers: none.map(|_| None).collect() }
    }

    /// Makes the queue pairs of an lcore, in INIT and joined to their groups. A port's tag is its
    /// index on its lcore.
    pub(crate) fn create(&mut self, lcore: &Lcore, source: &CqSource, devices: &Devices) -> Result<(), EngineError> {
        // Ports with many connections come last, and have no queue pair yet.
        let ports = lcore.ports.iter().map(|id| (id, &self.plan[*id]));
        for (tag, (id, port)) in ports.take_while(|(_, port)| port.connections.is_none()).enumerate() {
            let device = &devices[port.device];
            let spec = spec(port, device, source, tag as u16);
            self.qps[id.index()] = Some(create(self.plan, port, &spec, device)?);
            self.makers[id.index()] = port.reconnect.then(|| device.pd.qp_maker(&spec));
        }
        Ok(())
    }

    /// Has later queue pairs of the port keep the same objects as this one.
    pub(crate) fn keep_like(&mut self, id: PortId, qp: &QueuePair) {
        if let Some(maker) = &mut self.makers[id.index()] {
            maker.keep_like(qp);
        }
    }

    /// The queue pair of a port, once.
    pub(crate) fn take(&mut self, id: PortId) -> QueuePair {
        self.qps[id.index()].take().expect("every port is on one lcore, which has a completion queue")
    }
}

/// Brings every queue pair to RTS, and to its peer or group. Returns the endpoint of each, by the
/// index of its port.
pub(crate) fn connect(
    plan: &Plan,
    devices: &Devices,
    lcores: &mut [LcoreParts],
) -> Result<Vec<Option<Endpoint>>, EngineError> {
    let mut endpoints = vec![None; plan.ports().len()];
    for port in lcores.iter().flat_map(|lcore| &lcore.ports) {
        endpoints[usize::from(port.index)] = Some(port.qp.endpoint());
    }
    let peers = Peers { plan, devices, endpoints };
    for port in lcores.iter_mut().flat_map(|lcore| &mut lcore.ports) {
        let declared = &plan.ports()[usize::from(port.index)];
        if declared.destination.is_by_address() {
            continue;
        }
        let named = peers.bring_up(declared, &mut port.qp).map_err(|source| EngineError::Connect {
            at: place(plan, declared.span),
            port: declared.name.clone(),
            peer: destination_name(plan, declared.destination),
            source,
        })?;
        if let Some(datagrams) = port.sending.as_mut().and_then(|sending| sending.datagrams.as_mut()) {
            datagrams.name(&named, &mut port.qp);
        }
    }
    Ok(peers.endpoints)
}

/// The ports that have an address, in the plan's order. Ports with `listen` listen from here on, so
/// that an address in use is reported before any port waits.
pub(crate) fn connection_specs(
    plan: &Plan,
    devices: &Devices,
    qps: &mut QueuePairs<'_>,
    mailboxes: &CmMailboxes,
) -> Result<Vec<ConnectionSpec>, EngineError> {
    let mut specs = Vec::new();
    for port in plan.ports().iter().filter(|port| port.connections.is_none()) {
        let Some(mailbox) = mailboxes[port.id.index()].clone() else { continue };
        let provider = provider(plan[port.device].provider);
        let role = match port.destination {
            Destination::Listen(address) => {
                let listener = listen(plan, port, address, BACKLOG)?;
                Role::Listen { listener: Some(listener), provider, at: address }
            }
            Destination::Connect(to) => {
                let from = own_address(plan, port, &devices[port.device], to)?;
                Role::Connect { provider, to, from }
            }
            Destination::None | Destination::Peer(_) | Destination::Group(_) => continue,
        };
        let local = local_port(plan, port, &devices[port.device]);
        let maker = qps.makers[port.id.index()].take();
        specs.push(ConnectionSpec { port: local, role, maker, mailbox });
    }
    Ok(specs)
}

/// The listener of a port with `listen`, with up to `backlog` waiting requests.
pub(super) fn listen(
    plan: &Plan,
    port: &verbline_plan::Port,
    address: SocketAddr,
    backlog: u32,
) -> Result<Listener, EngineError> {
    let provider = provider(plan[port.device].provider);
    let listener = Listener::bind_for(provider, address, cm_transport(port.transport), backlog);
    listener.map_err(|source| EngineError::Address {
        at: place(plan, port.span),
        port: port.name.clone(),
        doing: format!("listen at {address}"),
        source: source.into(),
    })
}

/// Whether a device reaches other processes.
pub(super) fn reaches_others(device: &verbline_plan::Device) -> bool {
    device.provider == verbline_plan::Provider::Kernel || device.address.is_some()
}

/// The local end of a port's connections.
pub(super) fn local_port(plan: &Plan, port: &verbline_plan::Port, device: &Opened) -> LocalPort {
    LocalPort {
        index: port.id.index(),
        name: port.name.clone(),
        at: place(plan, port.span),
        lcore: plan[port.lcore].name.clone(),
        lcore_index: port.lcore.index(),
        timeout: port.connect_timeout,
        device: device.context.name().to_owned(),
        reaches_others: reaches_others(&plan[port.device]),
        init: init_spec(plan, port, device),
        options: SharedOptions::new(connect_options(plan, port, device)),
    }
}

/// An address of the port's own device, so that the path leads over it and not over another device
/// of this host; its GID's address if that is of the same kind. `None` lets the host choose, as on
/// InfiniBand, where GIDs are no IP addresses.
pub(super) fn own_address(
    plan: &Plan,
    port: &verbline_plan::Port,
    device: &Opened,
    to: SocketAddr,
) -> Result<Option<SocketAddr>, EngineError> {
    let declared = &plan[port.device];
    let refused = |source: VerbError| EngineError::DeviceVerb {
        at: place(plan, declared.span),
        device: declared.name.clone(),
        source: source.into(),
    };
    let mut gids = device.context.gids(declared.port_num).map_err(refused)?;
    gids.sort_by_key(|entry| entry.index != device.gid_index);
    let of_kind = |gid: Gid| match to.ip() {
        IpAddr::V4(_) => gid.to_ipv4().map(IpAddr::V4),
        // A link-local address means nothing without its interface.
        IpAddr::V6(_) => Some(gid.to_ipv6())
            .filter(|ip| ip.to_ipv4_mapped().is_none() && !ip.is_unicast_link_local())
            .map(IpAddr::V6),
    };
    Ok(gids.iter().find_map(|entry| of_kind(entry.gid)).map(|ip| SocketAddr::new(ip, 0)))
}

fn init_spec(plan: &Plan, port: &verbline_plan::Port, device: &Opened) -> InitSpec {
    InitSpec {
        port: plan[port.device].port_num,
        gid_index: device.gid_index,
        access: peer_access(plan, port.device),
        ..InitSpec::default()
    }
}

/// The connection options of a port's local end.
pub(super) fn connect_options(plan: &Plan, port: &verbline_plan::Port, device: &Opened) -> ConnectOptions {
    let ReadDepths { served, started } = read_depths(plan, port, device);
    let access = peer_access(plan, port.device);
    let usual = ConnectOptions::default();
    ConnectOptions {
        transport: cm_transport(port.transport),
        private_data: port.private_data.clone().into_bytes(),
        access,
        responder_resources: served,
        initiator_depth: started,
        retry_count: port.retries.map_or(usual.retry_count, |retries| retries.retry_cnt),
        rnr_retry_count: port.retries.map_or(usual.rnr_retry_count, |retries| retries.rnr_retry),
        timeout: port.retries.and_then(|retries| retries.timeout),
        min_rnr_timer: port.retries.map_or(usual.min_rnr_timer, |retries| retries.min_rnr_timer),
        traffic_class: port.attributes.traffic_class,
        rate_limit_kbit_per_s: port.attributes.rate_limit_kbit_per_s.unwrap_or(0),
    }
}

/// The connection manager's transport of a port with an address.
fn cm_transport(transport: Transport) -> CmTransport {
    match transport {
        Transport::Uc => CmTransport::Uc,
        // A UD port has no address (the plan's checks), and never gets here.
        Transport::Rc | Transport::Ud => CmTransport::Rc,
    }
}

/// The number of signature keys of each queue pair of a port: none if the device can't have them.
pub(super) fn signature_keys(port: &verbline_plan::Port, device: &Opened) -> usize {
    if device.context.check_signature_offload().is_ok() { port.signature_keys as usize } else { 0 }
}

pub(super) fn spec<'a>(port: &verbline_plan::Port, device: &Opened, source: &'a CqSource, tag: u16) -> QpSpec<'a> {
    QpSpec {
        signature: if signature_keys(port, device) > 0 { QpSignature::Pipelined } else { QpSignature::None },
        tx_depth_wr: port.tx_depth_wr + port.ops_depth_wr,
        rx_depth_wr: port.rx_depth_wr,
        max_send_sge: port.max_sge,
        max_inline_bytes: if port.tx_depth_wr > 0 { port.inline_bytes } else { 0 },
        signal_every_wr: port.signal_every_wr.max(1),
        tag,
        solicited: port.solicited,
        // Only its lcore posts to it: the driver may leave out its locks.
        thread_domain: true,
        ..QpSpec::new(transport(port.transport), &source.cq)
    }
}

fn create(
    plan: &Plan,
    port: &verbline_plan::Port,
    spec: &QpSpec<'_>,
    device: &Opened,
) -> Result<QueuePair, EngineError> {
    let refused =
        |source: Cause| EngineError::QueuePair { at: place(plan, port.span), port: port.name.clone(), source };
    let mut qp = device.pd.create_qp(spec).map_err(|error| refused(error.into()))?;
    if qp.max_inline_bytes() < spec.max_inline_bytes {
        return Err(EngineError::DeviceLimit {
            at: place(plan, port.span),
            place: format!("port.{}", port.name),
            key: "inline_bytes",
            asked: spec.max_inline_bytes.into(),
            limit: qp.max_inline_bytes().into(),
            device: device.context.name().to_owned(),
        });
    }
    let init = InitSpec {
        pkey_index: pkey_index(plan, port, device).map_err(refused)?,
        qkey: port.attributes.qkey,
        ..init_spec(plan, port, device)
    };
    qp.to_init(&init).map_err(|error| refused(error.into()))?;
    for group in &port.join {
        qp.attach_mcast(gid(*group), 0).map_err(|error| EngineError::Connect {
            at: place(plan, port.span),
            port: port.name.clone(),
            peer: format!("group {group}"),
            source: error.into(),
        })?;
    }
    Ok(qp)
}

/// The queue pairs of the plan, as seen by a port that sends to one of them.
struct Peers<'a> {
    plan: &'a Plan,
    devices: &'a Devices,
    endpoints: Vec<Option<Endpoint>>,
}

impl Peers<'_> {
    /// Brings a queue pair to RTS. Returns the destinations of a datagram port.
    fn bring_up(&self, port: &verbline_plan::Port, qp: &mut QueuePair) -> Result<Vec<DestinationId>, Cause> {
        let rtr = match port.transport {
            Transport::Ud => RtrSpec::datagram(),
            Transport::Rc | Transport::Uc => {
                let peer = port.destination.peer().ok_or("a connected port without a peer")?;
                RtrSpec::connected(self.endpoint(peer)?).mtu(self.path_mtu(port, peer))
            }
        };
        let depths = |port: &verbline_plan::Port| read_depths(self.plan, port, &self.devices[port.device]);
        let own = depths(port);
        let started = port.destination.peer().map_or(1, |peer| own.started.min(depths(&self.plan[peer]).served));
        qp.to_rtr(&rtr_of(port, RtrSpec { max_dest_rd_atomic: own.served, ..rtr }))?;
        qp.to_rts(&rts_of(port, RtsSpec { max_rd_atomic: started, ..RtsSpec::default() }))?;
        match port.transport {
            Transport::Ud if port.tx_depth_wr > 0 => self.addresses(port, qp),
            _ => Ok(Vec::new()),
        }
    }

    /// The destinations of a datagram port.
    fn addresses(&self, port: &verbline_plan::Port, qp: &mut QueuePair) -> Result<Vec<DestinationId>, Cause> {
        let first = destination(self.plan, self.devices, &self.endpoints, port)?;
        let others = port.send_to.iter().skip(1).map(|group| to_group(self.plan, self.devices, port, *group));
        let all = first.map(Ok).into_iter().chain(others);
        all.map(|to| to.and_then(|(ah, qpn, qkey)| Ok(qp.add_destination(&ah, qpn, qkey)?))).collect()
    }

    fn endpoint(&self, id: PortId) -> Result<Endpoint, Cause> {
        endpoint(self.plan, &self.endpoints, id)
    }

    /// The largest MTU that both ends' ports carry and the plan allows.
    fn path_mtu(&self, port: &verbline_plan::Port, peer: PortId) -> Mtu {
        let of = |port: &verbline_plan::Port| {
            let active = self.devices[port.device].port.active_mtu;
            port.attributes.path_mtu_bytes.and_then(Mtu::from_bytes).map_or(active, |mtu| mtu.min(active))
        };
        of(port).min(of(&self.plan[peer]))
    }
}

/// The destination of a datagram port: the path, the queue pair and its Q_Key.
pub(super) fn destination(
    plan: &Plan,
    devices: &Devices,
    endpoints: &[Option<Endpoint>],
    port: &verbline_plan::Port,
) -> Result<Option<(AddressHandle, u32, u32)>, Cause> {
    match port.destination {
        Destination::None | Destination::Listen(_) | Destination::Connect(_) => Ok(None),
        Destination::Peer(peer) => {
            let endpoint = endpoint(plan, endpoints, peer)?;
            let ah = address(plan, devices, port, AhSpec::to_endpoint(&endpoint))?;
            Ok(Some((ah, endpoint.qpn, plan[peer].attributes.qkey)))
        }
        Destination::Group(group) => to_group(plan, devices, port, group).map(Some),
    }
}

/// A group's path, the QP number for multicast, and the Q_Key of its queue pairs.
fn to_group(
    plan: &Plan,
    devices: &Devices,
    port: &verbline_plan::Port,
    group: Group,
) -> Result<(AddressHandle, u32, u32), Cause> {
    let ah = address(plan, devices, port, AhSpec::to_gid(gid(group)))?;
    Ok((ah, MULTICAST_QPN, port.attributes.qkey))
}

fn address(plan: &Plan, devices: &Devices, port: &verbline_plan::Port, path: AhSpec) -> Result<AddressHandle, Cause> {
    let device = &devices[port.device];
    let path = path_of(port, path.from_port(plan[port.device].port_num, device.gid_index));
    Ok(device.pd.create_ah(&path)?)
}

fn endpoint(plan: &Plan, endpoints: &[Option<Endpoint>], id: PortId) -> Result<Endpoint, Cause> {
    endpoints[id.index()].ok_or_else(|| format!("port.{} has no queue pair", plan[id].name).into())
}

fn gid(group: Group) -> Gid {
    Gid(group.gid)
}

fn destination_name(plan: &Plan, destination: Destination) -> String {
    match destination {
        Destination::None => "nobody".to_owned(),
        Destination::Peer(id) => format!("port.{}", plan[id].name),
        Destination::Group(group) => format!("group {group}"),
        Destination::Listen(address) | Destination::Connect(address) => address.to_string(),
    }
}
