//! Makes the ports with many connections: their shared receive queues, the makers of their queue
//! pairs, the mailboxes and queues shared with their cm threads, and their listeners.

use std::sync::Arc;

use verbline_plan::{Connections, Destination, Lcore, Plan, Port, PortId};
use verbline_verbs::{QpMaker, QpSpec, SharedReceiveQueue, SrqSpec, Transport};

use crate::api::registry::Registry;
use crate::connection::cm_mailbox::{CmMailbox, CmMailboxes};
use crate::connection::multi_port::accept_queue::AcceptQueue;
use crate::connection::multi_port::acceptor_guard::AcceptorGuard;
use crate::connection::multi_port::cm_thread::{Admitted, BACKLOG, CmThreadRole, CmThreadSpec};
use crate::connection::multi_port::listener_ports::{ListenerPort, ListenerPorts};
use crate::errors::error::{EngineError, place, system};
use crate::errors::guarded::Guarded;
use crate::idle::wake_set::CqSource;
use crate::ports::multi_port::{ManyReceiving, ManySending, MultiPort, MultiPortSpec, signal_every};
use crate::setup::devices::{Devices, provider};
use crate::setup::queue_pairs::{listen, local_port, own_address, spec};
use crate::setup::stages::Acceptors;
use crate::stats::counter::Shared;
use crate::stats::snapshot::{ConnectionsEntry, RunStats};

/// The ports with many connections, on their way to their lcores and cm threads.
#[derive(Debug)]
pub(crate) struct ManyPorts<'a> {
    plan: &'a Plan,
    devices: &'a Devices,
    mailboxes: &'a CmMailboxes,
    stats: &'a RunStats,
    made: Vec<Made<'a>>,
}

#[derive(Debug)]
struct Made<'a> {
    port: &'a Port,
    connections: &'a Connections,
    entry: &'a ConnectionsEntry,
    /// Present until its lcore takes it.
    srq: Option<SharedReceiveQueue>,
    maker: QpMaker,
    mailbox: Arc<CmMailbox>,
}

/// The means to make the connections of a port that has no cm thread.
#[derive(Debug)]
pub(crate) struct Apart {
    pub(crate) port: PortId,
    pub(crate) maker: QpMaker,
    pub(crate) mailbox: Arc<CmMailbox>,
}

/// The distance between two signaled sends.
pub(crate) fn every_of(port: &Port, connections: &Connections) -> u32 {
    signal_every(port.signal_every_wr, connections.tx_shared_wr, connections.max)
}

impl<'a> ManyPorts<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        devices: &'a Devices,
        mailboxes: &'a CmMailboxes,
        stats: &'a RunStats,
    ) -> ManyPorts<'a> {
        ManyPorts { plan, devices, mailboxes, stats, made: Vec::new() }
    }

    /// Makes the ports of an lcore. Every completion for a port carries the port's index on its
    /// lcore.
    pub(crate) fn create(&mut self, lcore: &Lcore, source: &CqSource) -> Result<(), EngineError> {
        for (tag, id) in lcore.ports.iter().enumerate() {
            let port = &self.plan[*id];
            let entry = self.stats.ports[id.index()].connections.as_ref();
            let mailbox = self.mailboxes[id.index()].clone();
            let (Some(connections), Some(entry), Some(mailbox)) = (&port.connections, entry, mailbox) else { continue };
            let device = &self.devices[port.device];
            let srq = match connections.rx_shared_wr {
                0 => None,
                depth_wr => {
                    let spec = SrqSpec { tag: tag as u16, ..SrqSpec::new(Transport::Rc, depth_wr) };
                    Some(device.pd.create_srq(&spec).map_err(|error| self.refused(port, error.into()))?)
                }
            };
            let spec = QpSpec {
                srq: srq.as_ref(),
                signal_every_wr: every_of(port, connections),
                // A doorbell page of the device for each connection would soon exhaust them.
                thread_domain: false,
                ..spec(port, device, source, tag as u16)
            };
            let maker = device.pd.qp_maker(&spec);
            self.made.push(Made { port, connections, entry, srq, maker, mailbox });
        }
        Ok(())
    }

    fn refused(&self, port: &Port, source: crate::errors::error::Cause) -> EngineError {
        EngineError::QueuePair { at: place(self.plan, port.span), port: port.name.clone(), source }
    }

    /// The maker of a port's queue pairs.
    pub(crate) fn maker(&mut self, id: PortId) -> (&Connections, &mut QpMaker) {
        let made = self.made.iter_mut().find(|made| made.port.id == id).expect("made with its lcore's queue pairs");
        (made.connections, &mut made.maker)
    }

    /// The lcore's side of a port, once.
    pub(crate) fn port(
        &mut self,
        id: PortId,
        halves: impl FnOnce(Option<SharedReceiveQueue>, &Connections) -> (Option<ManyReceiving>, Option<ManySending>),
    ) -> MultiPort {
        let made = self.made.iter_mut().find(|made| made.port.id == id).expect("made with its lcore's queue pairs");
        let (receiving, sending) = halves(made.srq.take(), made.connections);
        MultiPort::new(MultiPortSpec {
            name: made.port.name.clone(),
            index: id.index() as u16,
            connections: made.connections.max as usize,
            receiving,
            sending,
            any: matches!(made.port.destination, Destination::Connect(_)),
            mailbox: Arc::clone(&made.mailbox),
            stats: Shared::clone(&self.stats.ports[id.index()].stats),
            counts: Shared::clone(&made.entry.stats),
        })
    }

    /// Like [`ManyPorts::into_cm_threads`], but without cm threads: no port listens.
    pub(crate) fn into_apart(self) -> Vec<Apart> {
        let apart = |made: Made<'_>| Apart { port: made.port.id, maker: made.maker, mailbox: made.mailbox };
        self.made.into_iter().map(apart).collect()
    }

    /// Makes the cm threads. Ports with `listen` listen from here on.
    pub(crate) fn into_cm_threads(
        self,
        registry: &Registry,
        mut acceptors: Acceptors,
    ) -> Result<Vec<CmThreadSpec>, EngineError> {
        let (plan, devices) = (self.plan, self.devices);
        let doors = self.made.iter().filter(|made| matches!(made.port.destination, Destination::Listen(_)));
        let doors = doors.map(|made| Door::new(plan, devices, made, &mut acceptors)).collect::<Result<Vec<_>, _>>()?;
        let cm_thread = |made: Made<'_>| {
            let port = made.port;
            let Some(role) = role(plan, devices, registry, &made, &doors)? else { return Ok(None) };
            let leader = made.connections.listen_with.unwrap_or(port.id);
            Ok(Some(CmThreadSpec {
                port: local_port(plan, port, &devices[port.device]),
                role,
                acceptor: doors.iter().find(|door| door.port.id == leader).and_then(Door::guard),
                accept_queue: doors
                    .iter()
                    .find(|door| door.port.id == port.id)
                    .map(|door| Arc::clone(&door.accept_queue)),
                connections: made.connections.max,
                maker: made.maker,
                mailbox: made.mailbox,
                counts: Shared::clone(&made.entry.cm_thread),
                last_error: Arc::clone(&made.entry.last_error),
            }))
        };
        self.made.into_iter().filter_map(|made| cm_thread(made).transpose()).collect()
    }
}

/// The entrance of a port's peers: the parts that the cm threads of ports with one listener share.
struct Door<'a> {
    port: &'a Port,
    leader: PortId,
    device: String,
    accept_queue: Arc<AcceptQueue<Admitted>>,
    guard: Option<Arc<AcceptorGuard>>,
}

impl<'a> Door<'a> {
    fn new(
        plan: &Plan,
        devices: &Devices,
        made: &Made<'a>,
        acceptors: &mut Acceptors,
    ) -> Result<Door<'a>, EngineError> {
        let port = made.port;
        let call = "making the eventfd of a port that takes many peers";
        let refused = system(plan, port.span, port.lcore, call, "free file descriptors (ulimit -n)");
        let accept_queue = AcceptQueue::new(made.connections.max as usize).map_err(refused)?;
        let acceptor = port.acceptor.as_ref().zip(acceptors[port.id.index()].take());
        Ok(Door {
            port,
            leader: made.connections.listen_with.unwrap_or(port.id),
            device: devices[port.device].context.name().to_owned(),
            accept_queue: Arc::new(accept_queue),
            guard: acceptor
                .map(|(named, made)| Arc::new(AcceptorGuard::new(named.name.clone(), port.name.clone(), made))),
        })
    }
}

impl Door<'_> {
    /// The acceptor, for one more cm thread.
    fn guard(&self) -> Option<Arc<AcceptorGuard>> {
        self.guard.as_ref().inspect(|guard| guard.enter()).cloned()
    }
}

/// The source of a port's connections.
fn role(
    plan: &Plan,
    devices: &Devices,
    registry: &Registry,
    made: &Made<'_>,
    doors: &[Door<'_>],
) -> Result<Option<CmThreadRole>, EngineError> {
    let port = made.port;
    let provider = provider(plan[port.device].provider);
    Ok(Some(match port.destination {
        Destination::Connect(_) => {
            let from = |to: &_| Ok((*to, own_address(plan, port, &devices[port.device], *to)?));
            let to = port.connect_to.iter().map(from).collect::<Result<_, EngineError>>()?;
            let data = registry.request_data(plan, port);
            let data = data.map(|data| Guarded::new(&format!("the request data of port.{}", port.name), data));
            CmThreadRole::Connect { provider, to, again: port.reconnect, data }
        }
        Destination::Listen(_) if made.connections.listen_with.is_some() => CmThreadRole::Join,
        Destination::Listen(address) => {
            let listener = listen(plan, port, address, BACKLOG)?;
            let mut sharing: Vec<_> = doors.iter().filter(|door| door.leader == port.id).collect();
            // The port itself first; the others in the plan's order.
            sharing.sort_by_key(|door| (door.port.id != port.id, door.port.id.index()));
            let listener_port = |door: &Door<'_>| ListenerPort {
                port: door.port.name.clone(),
                device: door.device.clone(),
                accept_queue: Arc::clone(&door.accept_queue),
            };
            let all = sharing.into_iter().map(listener_port).collect();
            CmThreadRole::Listen {
                listener: Some(listener),
                listener_ports: ListenerPorts::new(all, made.connections.placement),
            }
        }
        Destination::None | Destination::Peer(_) | Destination::Group(_) => return Ok(None),
    }))
}
