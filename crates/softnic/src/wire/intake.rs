//! Delivers a received datagram to a queue pair, to connection management, or to another process of
//! the address.
//!
//! Guarantees: a datagram that another process passed on is not passed on again.

use crate::data_path::arrival;
use crate::data_path::datagram::{self, Incoming, Receiver, Unreached};
use crate::data_path::errors::Errors;
use crate::objects::device::Device;
use crate::objects::fabric::{self, slice_of};
use crate::objects::guards::Pinned;
use crate::wire::management::{Management, Whose};
use crate::wire::memory::Keys;
use crate::wire::neighbours::Neighbours;
use crate::wire::transports::Transports;
use std::net::{IpAddr, SocketAddr};
use verbline_roce::transport::{Arrival, Discard, Icrc};
use verbline_roce::wire::{Addresses, Qpn, Route, ip};
use verbline_roce::{Datagram, Received};

/// Takes in datagrams to a wire's own address.
pub(super) struct Intake<'a> {
    pub(super) device: &'static Device,
    pub(super) now_ns: u64,
    pub(super) pinned: Pinned<'a>,
    pub(super) queue_pairs: &'a mut Transports,
    pub(super) management: &'a mut Management,
}

impl Intake<'_> {
    /// Takes in a datagram. Datagrams for other processes of the address are passed on, unless one
    /// of them passed this one on.
    pub(super) fn take(
        &mut self,
        from: SocketAddr,
        arrived: Arrival,
        bytes: &[u8],
        others: Option<&mut Neighbours>,
        errors: &mut Errors,
    ) {
        match self.queue_pairs.engine.receive(self.now_ns, arrived, bytes, &mut Keys(self.pinned)) {
            Received::Management(said) => {
                let is_passed = others.is_some_and(|others| match self.management.whose(&said) {
                    Whose::Own => false,
                    Whose::Slice(slice) => others.pass(self.now_ns, slice, from, bytes),
                    Whose::Listener(service) => others.offer(service, from, bytes),
                });
                if !is_passed && !self.management.receive(self.now_ns, from.ip(), &said) {
                    self.discard(1, Discard::Malformed);
                }
            }
            Received::Taken { qpn, is_first: true } => {
                self.management.hear(self.now_ns, qpn.number());
                if let Some(qp) = fabric::lookup(self.pinned, qpn.number()) {
                    arrival::establish(qp);
                }
            }
            Received::Elsewhere(qpn) => {
                let of_nobody = others.map_or(1, |others| others.add(self.now_ns, slice_of(qpn.number()), from, bytes));
                self.discard(of_nobody, Discard::NoQueuePair);
            }
            // Datagrams to groups come by the groups' sockets.
            Received::Datagram(came) if came.to != Qpn::MULTICAST => {
                let to = Receiver::QueuePair(came.to.number());
                let came = incoming(to, &arrived.route, bytes.len(), &came);
                if let Err(why) = datagram::arrive(self.device, self.pinned, &came, errors) {
                    self.discard(1, why.into());
                }
            }
            Received::Datagram(_) => self.discard(1, Discard::NoQueuePair),
            Received::Taken { .. } | Received::Discarded(_) => {}
        }
        // At once: the transport has room for few completions, and takes no message without room.
        self.queue_pairs.complete(self.pinned, errors);
    }

    /// Counts discarded datagrams.
    pub(super) fn discard(&mut self, datagrams: u64, why: Discard) {
        (0..datagrams).for_each(|_| self.queue_pairs.engine.count_discarded(why));
    }
}

impl From<Unreached> for Discard {
    fn from(why: Unreached) -> Discard {
        match why {
            Unreached::NoQueuePair => Discard::NoQueuePair,
            Unreached::NotReady => Discard::NotReady,
        }
    }
}

/// The arrival of a datagram from `from` at `to`; `None` if its sender is of another family.
pub(super) fn arrived(from: SocketAddr, to: IpAddr) -> Option<Arrival> {
    let route = Route { addresses: Addresses::new(from.ip(), to)?, source_port: from.port(), traffic_class: 0 };
    // For IPv4 a socket doesn't report the identification, which the checksum covers.
    Some(Arrival { route, icrc: if to.is_ipv6() { Icrc::IpId(0) } else { Icrc::Unknown } })
}

/// A datagram of `len` bytes that came by a route.
pub(super) fn incoming<'a>(to: Receiver, route: &Route, len: usize, came: &Datagram<'a>) -> Incoming<'a> {
    Incoming {
        to,
        from: came.from.number(),
        qkey: came.qkey,
        immediate: came.immediate,
        solicited: came.solicited,
        header: ip::before_message(route, len),
        payload: came.payload,
    }
}
