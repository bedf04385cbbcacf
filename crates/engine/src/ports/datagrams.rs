//! The peers of a UD port with several: the destinations that its plan names, and the senders of
//! received datagrams, so that a stage can answer them. Each peer has a handle, like a connection
//! ([`ConnectionId`]). A packet carries its sender's handle, and goes to the peer whose handle it
//! carries, or else to the plan's first destination.
//!
//! Senders have a bounded number of places. A new sender takes the place of one that has not been
//! heard for a while. Its address handle is made on another thread ([`ah_maker`]); packets to it
//! wait until then. The address handle that it replaces is kept until no posted send may use it;
//! the last send of every batch, which is signaled, tells when.
//!
//! Guarantees: a packet goes to the peer whose handle it carries, and to no other; a handle is
//! never reused for another sender: a place that has had 2^32 senders stays with its last one;
//! there are at most three address handles per place: its own, one that is being made or was
//! replaced and may still be used, and one to be destroyed; nothing is allocated after the start,
//! and the lcore makes and destroys no address handle; packets that can't be sent are dropped and
//! counted (`no_connection`), or come back if they asked to.

pub(crate) mod ah_maker;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use verbline_mem::{Batch, ConnectionId, Packet};
use verbline_verbs::datagram::{AhSpec, DestinationId};
use verbline_verbs::{Completion, Gid, QueuePair};

use ah_maker::AhMaker;

/// The number of places searched for a new sender.
const LOOKS: usize = 64;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Datagrams {
    /// The port's place in the plan.
    port: u16,
    /// Packets may carry options for their sends.
    asks: bool,
    /// The number of the plan's peers, which come first.
    named: usize,
    peers: Box<[Peer]>,
    by_sender: HashMap<Sender, u16>,
    /// The last datagram's sender, and its handle: datagrams mostly come in runs.
    last: Option<(Sender, ConnectionId)>,
    /// The place where the search for the next sender's place starts.
    hand: usize,
    /// The senders' Q_Key, and the path of answers without its destination.
    qkey: u32,
    path: AhSpec,
    maker: Option<AhMaker>,
    /// The number of senders whose address handles are being made.
    asked: usize,
    /// Packets on their way to the queue pair, which may have had no room for them.
    ready: Batch,
    /// Packets to peers whose address handles are not made yet.
    parked: Batch,
    /// An address handle was made since the last look at `parked`.
    is_made: bool,
    /// Packets that are being sorted; empty between two calls.
    work: Batch,
}

/// The sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Sender {
    gid: Option<Gid>,
    lid: u16,
    qpn: u32,
}

#[derive(Debug)]
struct Peer {
    handle: ConnectionId,
    sender: Sender,
    way: Way,
    /// The queue pair's destination for this place.
    destination: Option<DestinationId>,
    /// Its peer was heard since the hand last came by.
    is_heard: bool,
}

/// Whether a peer can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The place is nobody's, or its address is unreachable.
    None,
    /// The address handle is being made.
    Asked,
    Known(DestinationId),
}

/// The parts of a port with several peers.
#[derive(Debug)]
pub(crate) struct DatagramsSpec {
    pub(crate) port: u16,
    /// Packets may carry options for their sends.
    pub(crate) asks: bool,
    /// The numbers of destinations that the plan names, and of senders known at once.
    pub(crate) named: usize,
    pub(crate) senders: usize,
    pub(crate) qkey: u32,
    /// The path of answers, without its destination.
    pub(crate) path: AhSpec,
    pub(crate) maker: Option<AhMaker>,
    /// The number of packets that may be pending.
    pub(crate) pending: usize,
}

/// Returns the handle of a port's peer; the `u16::MAX`th place is nobody's.
pub(crate) fn handle(port: u16, place: u16, generation: u32) -> ConnectionId {
    ConnectionId::new(port, place, generation.max(1)).expect("only generation 0 is nobody's")
}

impl Datagrams {
    pub(crate) fn new(spec: DatagramsSpec) -> Datagrams {
        let DatagramsSpec { port, asks, named, senders, qkey, path, maker, pending } = spec;
        let peer = |place: usize| Peer {
            handle: handle(port, place as u16, 1),
            sender: Sender::default(),
            way: Way::None,
            destination: None,
            is_heard: false,
        };
        let [ready, parked, work] = [(); 3].map(|()| Batch::with_capacity(pending));
        Datagrams {
            port,
            asks,
            named,
            peers: (0..named + senders).map(peer).collect(),
            // Twice the room of the most entries at once: removed entries use room until the table
            // is cleaned, which happens in place where half of it is free.
            by_sender: HashMap::with_capacity(4 * senders),
            last: None,
            hand: 0,
            qkey,
            path,
            maker,
            asked: 0,
            ready,
            parked,
            is_made: false,
            work,
        }
    }

    /// Returns the number of places for senders.
    fn senders(&self) -> usize {
        self.peers.len() - self.named
    }

    /// Whether it knows senders, besides the plan's peers.
    pub(crate) fn knows_senders(&self) -> bool {
        self.senders() > 0
    }

    /// Takes the queue pair's destinations that the plan names, in its order. Makes room in the
    /// queue pair for the senders' destinations.
    pub(crate) fn name(&mut self, destinations: &[DestinationId], qp: &mut QueuePair) {
        for (peer, id) in self.peers.iter_mut().zip(destinations) {
            (peer.way, peer.destination) = (Way::Known(*id), Some(*id));
        }
        qp.reserve_destinations(self.senders());
    }

    /// Gives a packet the handle of its sender; without places for senders, does nothing.
    pub(crate) fn know(&mut self, packet: &mut Packet, completion: &Completion, qp: &mut QueuePair) {
        if !self.knows_senders() {
            return;
        }
        let Ok(path) = qp.reply_path(completion, packet) else {
            return packet.set_connection(Some(self.nobody()));
        };
        let sender = Sender { gid: path.gid, lid: path.lid, qpn: completion.src_qp() };
        let handle = match self.last {
            Some((last, handle)) if last == sender => handle,
            _ => self.find(sender, path, qp),
        };
        packet.set_connection(Some(handle));
    }

    fn find(&mut self, sender: Sender, path: AhSpec, qp: &mut QueuePair) -> ConnectionId {
        let place = self.by_sender.get(&sender).map(|place| usize::from(*place));
        let Some(place) = place.or_else(|| self.settle(sender, path, qp)) else { return self.nobody() };
        let peer = &mut self.peers[place];
        peer.is_heard = true;
        self.last = Some((sender, peer.handle));
        peer.handle
    }

    /// Gives a new sender a place, and asks for its address handle. `None`: as many address handles
    /// as there are places are being made, or were replaced and may still be used.
    #[cold]
    fn settle(&mut self, sender: Sender, path: AhSpec, qp: &mut QueuePair) -> Option<usize> {
        let senders = self.senders();
        self.give_back(qp);
        if self.asked + qp.replaced() >= senders {
            return None;
        }
        let mut place = None;
        for _ in 0..LOOKS.min(2 * senders) {
            let at = self.named + self.hand;
            self.hand = (self.hand + 1) % senders;
            match self.peers[at].way {
                // Another sender would get a handle that the place has given before.
                _ if self.peers[at].handle.generation() == u32::MAX => continue,
                Way::Asked => continue,
                Way::Known(_) if std::mem::take(&mut self.peers[at].is_heard) => place = place.or(Some(at)),
                Way::Known(_) | Way::None => {
                    place = Some(at);
                    break;
                }
            }
        }
        let at = place?;
        let peer = &mut self.peers[at];
        if self.by_sender.get(&peer.sender) == Some(&(at as u16)) {
            self.by_sender.remove(&peer.sender);
        }
        let port = peer.handle.port();
        peer.handle = handle(port, at as u16, peer.handle.generation() + 1);
        (peer.sender, peer.way) = (sender, Way::Asked);
        self.asked += 1;
        self.by_sender.insert(sender, at as u16);
        let AhSpec { hop_limit, port, gid_index, .. } = self.path;
        let path = AhSpec { hop_limit, port, gid_index, ..path };
        self.maker.as_ref()?.ask(peer.handle, path);
        Some(at)
    }

    /// Takes the finished address handles.
    #[cold]
    pub(crate) fn take_made(&mut self, qp: &mut QueuePair) {
        while let Some((connection, made)) = self.maker.as_ref().and_then(AhMaker::take) {
            let Some(peer) = self.peers.get_mut(connection.slot()).filter(|peer| peer.handle == connection) else {
                continue;
            };
            let known = made.ok().and_then(|ah| match peer.destination {
                Some(id) => qp.replace_destination(id, &ah, peer.sender.qpn, self.qkey).map(|()| id).ok(),
                None => qp.add_destination(&ah, peer.sender.qpn, self.qkey).ok(),
            });
            self.asked -= 1;
            peer.destination = peer.destination.or(known);
            peer.way = known.map_or(Way::None, Way::Known);
            if known.is_none() {
                self.by_sender.remove(&peer.sender);
                self.last = None;
            }
            self.is_made = true;
        }
        self.give_back(qp);
    }

    /// Sends address handles that no posted send may use any more to the thread that made them,
    /// which destroys them.
    fn give_back(&self, qp: &mut QueuePair) {
        let Some(maker) = &self.maker else { return };
        while let Some(ah) = qp.take_replaced() {
            maker.give_back(ah);
        }
    }

    /// Returns a handle that leads nowhere.
    fn nobody(&self) -> ConnectionId {
        handle(self.port, u16::MAX, u32::MAX)
    }

    /// Returns the packet's way.
    #[inline]
    fn way(&self, packet: &Packet) -> Way {
        let peer = match packet.connection() {
            None => self.peers.first().filter(|_| self.named > 0),
            Some(to) if to.port() == self.port => self.peers.get(to.slot()).filter(|peer| peer.handle == to),
            Some(_) => None,
        };
        peer.map_or(Way::None, |peer| peer.way)
    }

    /// Whether nothing waits to be posted.
    pub(crate) fn is_settled(&self) -> bool {
        self.ready.is_empty() && !self.is_made
    }

    /// Returns the number of packets that wait here.
    pub(crate) fn pending(&self) -> usize {
        self.ready.len() + self.parked.len()
    }
}
