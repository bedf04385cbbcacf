//! The surroundings of a tested stage: its ports and their connections, its operations, and the
//! run.

use std::net::SocketAddr;

use verbline_mem::{ConnectionId, Packet};

use super::{StageTest, no_such, sound};
use crate::api::stage::PortChange;
use crate::connection::acceptor::ConnectionPeer;
use crate::connection::event::ConnectionChange;
use crate::connection::multi_port::by_hand::CmByHand;
use crate::lcore::node::Node;
use crate::operations::operation::{OperationError, mark_of};
use crate::operations::queue::by_hand::Asked;
use crate::operations::send_with::{SendFailure, SendWith, asked_of, end};

/// Rounds within which the completions of an ending connection have come.
const ROUNDS_MAX: usize = 100_000;

impl StageTest {
    /// Opens a connection of a port with many, from a peer at 192.0.2.1 without private data, and
    /// tells the stage.
    ///
    /// # Panics
    /// Like [`StageTest::connect_as`].
    #[track_caller]
    pub fn connect(&mut self, port: &str) -> ConnectionId {
        let address = SocketAddr::from(([192, 0, 2, 1], 4791));
        let local = SocketAddr::from(([192, 0, 2, 2], 4791));
        self.connect_as(port, ConnectionPeer { address, local, private_data: Box::default(), tag: 0 })
    }

    /// Like [`StageTest::connect`], from this peer, as an acceptor would have let it in.
    ///
    /// # Panics
    /// The stage's lcore has no such port, the port has one connection alone, or it has as many as
    /// it may.
    #[track_caller]
    pub fn connect_as(&mut self, port: &str, peer: ConnectionPeer) -> ConnectionId {
        let place = self.port(port);
        let Some(cm) = self.cms.get_mut(&place) else {
            panic!("port.{port} does not have many connections: it is up from the beginning")
        };
        let opened = cm.open(peer).unwrap_or_else(|error| panic!("port.{port}: {error}"));
        let Some(connection) = opened else { panic!("port.{port} has as many connections as its plan lets it have") };
        self.turn();
        connection
    }

    /// Ends a connection, and tells the stage: its peer has left (`Closed`), or its queue pair has
    /// failed (`Failed`).
    ///
    /// # Panics
    /// The connection is not open, or the change is that it opens.
    #[track_caller]
    pub fn end_connection(&mut self, connection: ConnectionId, change: ConnectionChange) {
        let (cm, qpn) = self.open_connection(connection);
        match change {
            ConnectionChange::Opened => panic!("a connection is opened by `connect`"),
            ConnectionChange::Closed { reason } => cm.close(connection, reason),
            ConnectionChange::Failed { reason } => {
                let (_, state) = self.lcore.parts();
                let port = state.many.iter_mut().find(|port| port.index == connection.port());
                port.into_iter().for_each(|port| port.qp_failed(qpn, reason, &mut state.ctx.sinks));
            }
        }
        self.settle();
        self.turn();
    }

    /// Tells the stage what happened to a port. While a port is down it declines operations.
    ///
    /// # Panics
    /// The stage's lcore has no such port, or the stage is not told of it: neither leads to the
    /// other, and its factory does not ask for it.
    #[track_caller]
    pub fn port_event(&mut self, port: &str, change: PortChange) {
        let place = self.port(port);
        let (nodes, _) = self.lcore.parts();
        assert!(
            nodes.iter().any(|node| node.is_told_of(place)),
            "stage.{} is not told of port.{port}: neither leads to the other, and `StageContext::port` did not ask",
            self.stage
        );
        self.lcore.tell(place, change);
        self.turn();
    }

    /// Ends the operations that the stage has under way at the port of an output, in order, with
    /// the results of `end`, and tells the stage. `end` fills the packet of a READ or an atomic
    /// before it returns success. No operation ends by itself.
    ///
    /// # Panics
    /// The output leads to no port that carries out operations.
    #[track_caller]
    pub fn complete(&mut self, output: &str, mut end: impl FnMut(Asked<'_>) -> Result<(), OperationError>) {
        let sinks = self.sinks(output);
        let (_, state) = self.lcore.parts();
        let queue = sinks.first().and_then(|sink| state.operations_at(*sink));
        let Some((queue, _)) = queue else { panic!("the output `{output}` leads to no port with `ops_depth_wr`") };
        queue.end_all(&mut end);
        self.turn();
    }

    /// Hands back a packet that the stage has sent and asked to get back ([`SendWith::returned`]),
    /// as the port's `sent` does.
    pub fn send_ended(&mut self, mut packet: Packet, result: Result<(), SendFailure>) {
        end(&mut packet, result);
        self.process([packet]);
    }

    /// Tells the stage that the run is stopping, if it has not been told yet.
    pub fn stop(&mut self) {
        self.lcore.tell_of_stop();
        self.turn();
    }

    /// Whether the drain of a run would wait for packets that the stage expects
    /// ([`Stage::awaits_packets`](crate::Stage::awaits_packets)).
    pub fn awaits_packets(&mut self) -> bool {
        self.lcore.parts().0.iter().any(Node::awaits_packets)
    }

    /// Takes sent packets, has ending connections released, and tells the stage of them.
    pub(super) fn settle(&mut self) {
        self.take_sent();
        for round in 0.. {
            sound(self.lcore.hear());
            self.take_sent();
            let awaits = self.cms.values_mut().fold(false, |any, cm| cm.awaits_lcore() | any);
            if !awaits {
                break;
            }
            assert!(round < ROUNDS_MAX, "a bug of the engine: a connection that ends is never released");
            std::thread::yield_now();
        }
    }

    /// Returns the maker of an open connection, and the number of its queue pair.
    #[track_caller]
    pub(super) fn open_connection(&mut self, connection: ConnectionId) -> (&mut CmByHand, u32) {
        let cm = self.cms.get_mut(&connection.port());
        let open = cm.and_then(|cm| cm.qpn(connection).map(|qpn| (cm, qpn)));
        open.unwrap_or_else(|| panic!("the connection {connection} is not open"))
    }

    /// Returns the place in the plan of a port of the stage's lcore.
    #[track_caller]
    fn port(&self, name: &str) -> u16 {
        let here = || self.plan.ports().iter().filter(|port| self.plan[port.lcore].name == self.lcore_name);
        match here().find(|port| port.name == name) {
            Some(port) => port.id.index() as u16,
            None => no_such("port on this lcore", name, here().map(|port| &*port.name)),
        }
    }
}

/// Returns the options that a sent packet carries for its port ([`SendWith::ask`]).
pub fn asked(packet: &Packet) -> SendWith {
    asked_of(packet)
}

/// Gives a packet this immediate data, as a port with `immediates` would have received it
/// ([`immediate`](crate::immediate)).
pub fn set_immediate(packet: &mut Packet, imm: u32) {
    packet.set_mark(mark_of(Some(imm), None));
}
