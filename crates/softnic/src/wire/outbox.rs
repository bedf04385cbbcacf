//! Datagrams to be sent, combined into runs that leave by one system call each.
//!
//! Guarantees: datagrams to one address by one socket stay in their order. All datagrams of a run
//! have one traffic class, which the kernel is told per run. Each gets the checksum for its place
//! in its run, since the kernel gives the segments of a run consecutive IPv4 identifications, which
//! the checksum covers: from 0 on, or from the next number of a [peer's
//! socket](crate::wire::peers). Where the kernel takes no runs, each datagram is one.

use crate::wire::peers::Peers;
use crate::wire::run::Run;
use crate::wire::socket::{DATAGRAM_BYTES_MAX, Link};
use std::net::SocketAddr;
use verbline_roce::wire::{Route, seal, sealed_bytes};

/// The most bytes that wait before they are sent.
const BYTES: usize = 1 << 18;

pub(crate) struct Outbox {
    bytes: Box<[u8]>,
    used: usize,
    runs: Vec<Pending>,
    port: u16,
    /// The kernel has refused a run: from then on each datagram leaves by a call of its own.
    is_one_by_one: bool,
    pub(super) peers: Peers,
}

/// A run: its destination, and its place in the bytes.
#[derive(Clone, Copy, Debug)]
struct Pending {
    way: Way,
    first: usize,
    segments: usize,
    segment_bytes: usize,
    /// The IPv4 identification of its first segment.
    ip_id: u16,
    /// Whether its last segment is shorter: it takes no more.
    is_closed: bool,
}

/// What all datagrams of a run have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    to: SocketAddr,
    traffic_class: u8,
    /// The peer's socket; `None`: the link's own.
    socket: Option<usize>,
}

impl Outbox {
    pub(crate) fn new(own: SocketAddr) -> Outbox {
        let runs = Vec::with_capacity(BYTES / 64);
        let (bytes, peers) = (vec![0; BYTES].into(), Peers::new(own));
        Outbox { bytes, used: 0, runs, port: own.port(), is_one_by_one: false, peers }
    }

    /// Room for a datagram.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        let is_full = self.runs.len() == self.runs.capacity();
        self.bytes.get_mut(self.used..self.used + DATAGRAM_BYTES_MAX).filter(|_| !is_full)
    }

    /// Like [`room`](Self::room), but sends the waiting datagrams if there is none.
    pub(crate) fn made_room(&mut self, link: &Link) -> Option<&mut [u8]> {
        if self.room().is_none() {
            self.flush(link);
        }
        self.room()
    }

    /// Adds the datagram whose `len` bytes were written to the room, without pad and checksum.
    pub(crate) fn add(&mut self, route: &Route, len: usize) {
        let (first, bytes) = (self.used, sealed_bytes(len));
        let socket = self.peers.of(route.source_port);
        let to = SocketAddr::new(route.addresses.destination(), self.port);
        let way = Way { to, traffic_class: route.traffic_class, socket };
        let ip_id = match self.runs.last_mut() {
            Some(run) if !self.is_one_by_one && run.takes(way, bytes, first) => {
                let ip_id = run.ip_id.wrapping_add(run.segments as u16);
                run.segments += 1;
                run.is_closed = bytes < run.segment_bytes;
                ip_id
            }
            _ => {
                let ip_id = socket.map_or(0, |at| self.peers.take_number(at));
                self.runs.push(Pending { way, first, segments: 1, segment_bytes: bytes, ip_id, is_closed: false });
                ip_id
            }
        };
        let source_port = if socket.is_some() { route.source_port } else { self.port };
        seal(&mut self.bytes[first..], len, &Route { source_port, ..*route }, ip_id);
        self.used += bytes;
    }

    /// Whether the last run takes no more. Sent now, it leaves while the next is written, to memory
    /// that is still in the caches.
    pub(crate) fn has_whole_run(&self) -> bool {
        self.runs.last().is_some_and(|run| !run.goes_on(self.used))
    }

    /// Whether exactly one datagram waits.
    pub(crate) fn has_one(&self) -> bool {
        matches!(&*self.runs, [run] if run.segments == 1)
    }

    /// Sends all datagrams.
    pub(crate) fn flush(&mut self, link: &Link) {
        for (at, pending) in self.runs.iter().enumerate() {
            let end = self.runs.get(at + 1).map_or(self.used, |next| next.first);
            let bytes = &self.bytes[pending.first..end];
            let Way { to, traffic_class, socket } = pending.way;
            let run = Run { to, traffic_class, bytes, segment_bytes: pending.segment_bytes };
            let sent = match socket {
                None => link.send(&run),
                Some(at) => self.peers.send(at, link, &run, pending.ip_id),
            };
            self.is_one_by_one |= sent.is_err_and(|error| run.is_refused_as_one(&error));
        }
        self.runs.clear();
        self.used = 0;
        self.peers.let_go();
    }
}

impl Pending {
    /// Whether it takes one more of its length; `used` is its end.
    fn goes_on(&self, used: usize) -> bool {
        !self.is_closed && Link::may_add(self.segments, used - self.first, self.segment_bytes)
    }

    fn takes(&self, way: Way, len: usize, used: usize) -> bool {
        self.way == way && len <= self.segment_bytes && self.goes_on(used)
    }
}

#[cfg(test)]
mod tests;
