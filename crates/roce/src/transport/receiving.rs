//! The reception of datagrams.
//!
//! Guarantees: nothing is answered unless the queue pair, its peer's address and the packet's
//! number agree. A datagram causes at most one answer; a READ causes all packets of its answer.

use crate::memory::Memory;
use crate::transport::configuration::Peer;
use crate::transport::counters::Discard;
use crate::transport::datagrams::datagram;
use crate::transport::keep_alive::KeepAlive;
use crate::transport::queue_pair::{Mode, QueuePair, State};
use crate::transport::refusal::Halt;
use crate::transport::responder::Serve;
use crate::transport::responses::Completing;
use crate::transport::retransmit::Stop;
use crate::wire::{self, DEFAULT_PKEY, Malformed, Packet, Qpn, Rc, Route, Segment, icrc};

/// The arrival of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The route from its sender to here.
    pub route: Route,
    /// The carrier's knowledge for checking the checksum.
    pub icrc: Icrc,
}

/// Whether the checksum can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icrc {
    /// The carrier doesn't know the IPv4 identification, which the checksum covers: a socket.
    Unknown,
    /// The checksum is to be checked, with this IPv4 identification; 0 for IPv6.
    IpId(u16),
}

/// A datagram read as a packet.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    arrival: Arrival,
    datagram: &'a [u8],
    packet: Packet<'a>,
}

impl<'a> Incoming<'a> {
    /// Reads a datagram.
    pub fn read(arrival: Arrival, datagram: &'a [u8]) -> Result<Incoming<'a>, Malformed> {
        Ok(Incoming { arrival, datagram, packet: wire::read(datagram)? })
    }

    /// The queue pair of its destination.
    pub fn destination(&self) -> Qpn {
        self.packet.bth.destination
    }

    /// Checks everything that does not depend on a queue pair: the partition, and the checksum if
    /// possible.
    pub fn check(&self) -> Result<(), Discard> {
        if self.packet.bth.pkey & FULL_MEMBER_MASK != DEFAULT_PKEY & FULL_MEMBER_MASK {
            return Err(Discard::Key);
        }
        match self.arrival.icrc {
            Icrc::IpId(ip_id) if !icrc::check(self.datagram, &self.arrival.route, ip_id) => Err(Discard::Icrc),
            Icrc::IpId(_) | Icrc::Unknown => Ok(()),
        }
    }

    /// Its packet.
    pub fn packet(&self) -> &Packet<'a> {
        &self.packet
    }

    /// How it arrived.
    pub fn arrival(&self) -> &Arrival {
        &self.arrival
    }
}

/// A partition key without the bit that tells full members from limited ones.
const FULL_MEMBER_MASK: u16 = 0x7FFF;

impl QueuePair {
    /// Takes in a datagram to this queue pair. Answers come out of [`transmit`](Self::transmit),
    /// completions out of [`poll`](Self::poll).
    pub fn receive(&mut self, now_ns: u64, incoming: &Incoming<'_>, memory: &mut impl Memory) -> Result<(), Discard> {
        let taken = self.check(incoming).and_then(|()| self.take_in(now_ns, incoming, memory));
        // The peer knows which number is near; a sender that forges its address has to guess.
        let is_peers = matches!(taken, Ok(()) | Err(Discard::Duplicate | Discard::OutOfOrder | Discard::NoReceive));
        if let Some(keep_alive) = self.keep_alive.as_mut().filter(|_| is_peers) {
            keep_alive.heard_ns = now_ns;
        }
        match taken {
            Ok(()) => self.counters.received += 1,
            Err(why) => self.counters.note(|all| all.discard(why)),
        }
        taken
    }

    /// Checks that the datagram fits the queue pair's transport, and comes from its peer.
    fn check(&self, incoming: &Incoming<'_>) -> Result<(), Discard> {
        if self.state == State::Error {
            return Err(Discard::NotReady);
        }
        let is_from = |peer: &Peer| incoming.arrival.route.addresses == peer.route.addresses.reversed();
        match (&self.mode, &incoming.packet.segment) {
            (Mode::Closed, _) => return Err(Discard::NotReady),
            (Mode::Rc(peer, ..), Segment::Rc(_)) | (Mode::Uc(peer, ..), Segment::Uc(_)) => {
                if !is_from(peer) {
                    return Err(Discard::Stranger);
                }
            }
            (Mode::Ud { .. }, Segment::Ud(..)) => {}
            _ => return Err(Discard::Transport),
        }
        incoming.check()
    }

    fn take_in(&mut self, now_ns: u64, incoming: &Incoming<'_>, memory: &mut impl Memory) -> Result<(), Discard> {
        let Packet { bth, segment, payload } = incoming.packet;
        if let (Segment::Rc(rc), Mode::Rc(..)) = (segment, &self.mode)
            && matches!(rc, Rc::Acknowledge(_) | Rc::ReadResponse(_) | Rc::AtomicResponse(..))
        {
            return self.take_response(now_ns, bth.psn, rc, payload, memory);
        }
        let QueuePair { owner, rights, inbox, counters, mode, .. } = self;
        let mut cx = Serve { owner: *owner, rights: *rights, inbox, memory, counters };
        let taken = match (mode, segment) {
            (Mode::Rc(_, responder, _), Segment::Rc(rc)) => responder.request(&mut cx, &bth, rc, payload),
            (Mode::Uc(_, receiver, _), Segment::Uc(uc)) => receiver.packet(&mut cx, &bth, uc, payload),
            (Mode::Ud { qkey, mtu, .. }, Segment::Ud(deth, immediate)) => {
                let (route, len) = (&incoming.arrival.route, incoming.datagram.len());
                datagram(&mut cx, (*qkey, mtu.bytes()), route, len, &bth, (deth, immediate), payload)
                    .map_err(Halt::Discard)
            }
            _ => Err(Halt::Discard(Discard::Transport)),
        };
        match taken {
            Ok(()) => Ok(()),
            Err(Halt::Discard(why)) => Err(why),
            Err(Halt::Refuse(refusal)) => {
                self.refuse(refusal, None);
                Ok(())
            }
        }
    }

    fn take_response(
        &mut self,
        now_ns: u64,
        psn: wire::Psn,
        rc: Rc,
        payload: &[u8],
        memory: &mut impl Memory,
    ) -> Result<(), Discard> {
        let Mode::Rc(_, _, Some(requester)) = &mut self.mode else { return Err(Discard::NotReady) };
        let is_asked = self.keep_alive.as_ref().is_some_and(KeepAlive::is_asking);
        if is_asked && psn == requester.acknowledged() && matches!(rc, Rc::Acknowledge(_)) {
            return Ok(());
        }
        let mut cx =
            Completing { now_ns, owner: self.owner, sends: &mut self.sends, memory, counters: &mut self.counters };
        let taken = requester.respond(&mut cx, psn, rc, payload);
        self.fail_failing();
        match taken {
            Ok(()) => Ok(()),
            Err(Stop::Discard(why)) => Err(why),
            Err(Stop::Fail(status)) => {
                self.fail_front(status);
                Ok(())
            }
        }
    }
}
