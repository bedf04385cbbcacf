//! Datagrams to be sent, combined into runs that leave by one system call each.
//!
//! Guarantees: datagrams to one address stay in their order. All datagrams of a run have one
//! traffic class, which the kernel is told per run. Each has the checksum for its place in its run,
//! since the kernel gives the segments of a run the IPv4 identifications 0, 1, 2 and so on, which
//! the checksum covers.

use crate::wire::socket::{DATAGRAM_BYTES_MAX, Link, Run};
use std::net::SocketAddr;
use verbline_roce::wire::icrc::ICRC_BYTES;
use verbline_roce::wire::{Route, seal};

/// The most bytes that wait before they are sent.
const BYTES: usize = 1 << 18;

pub(crate) struct Outbox {
    bytes: Box<[u8]>,
    used: usize,
    runs: Vec<Pending>,
    port: u16,
}

/// A run: its destination, and its place in the bytes.
#[derive(Clone, Copy, Debug)]
struct Pending {
    to: SocketAddr,
    traffic_class: u8,
    first: usize,
    segments: usize,
    segment_bytes: usize,
    /// Whether its last segment is shorter: it takes no more.
    is_closed: bool,
}

impl Outbox {
    pub(crate) fn new(port: u16) -> Outbox {
        Outbox { bytes: vec![0; BYTES].into(), used: 0, runs: Vec::with_capacity(BYTES / 64), port }
    }

    /// Room for a datagram, and its identification as the next of the last run, or 0 if that takes
    /// no more.
    pub(crate) fn room(&mut self) -> Option<(&mut [u8], u16)> {
        let ip_id = self.runs.last().filter(|run| run.goes_on(self.used)).map_or(0, |run| run.segments as u16);
        let is_full = self.runs.len() == self.runs.capacity();
        let room = self.bytes.get_mut(self.used..self.used + DATAGRAM_BYTES_MAX).filter(|_| !is_full)?;
        Some((room, ip_id))
    }

    /// Like [`room`](Self::room), but sends the waiting datagrams if there is none.
    pub(crate) fn made_room(&mut self, link: &Link) -> Option<(&mut [u8], u16)> {
        if self.room().is_none() {
            self.flush(link);
        }
        self.room()
    }

    /// Adds the datagram of `len` bytes that was written to the room.
    pub(crate) fn add(&mut self, route: &Route, len: usize) {
        let (first, to) = (self.used, SocketAddr::new(route.addresses.destination(), self.port));
        self.used += len;
        if let Some(run) = self.runs.last_mut()
            && run.takes((to, route.traffic_class), len, first)
        {
            run.segments += 1;
            run.is_closed = len < run.segment_bytes;
            return;
        }
        if self.runs.last().is_some_and(|run| run.goes_on(first)) {
            // It was sealed as the next of the last run.
            seal(&mut self.bytes[first..], len - ICRC_BYTES, route, 0);
        }
        let traffic_class = route.traffic_class;
        self.runs.push(Pending { to, traffic_class, first, segments: 1, segment_bytes: len, is_closed: false });
    }

    /// Whether the last run takes no more. Sent now, it leaves while the next is written, to memory
    /// that is still in the caches.
    pub(crate) fn has_whole_run(&self) -> bool {
        self.runs.last().is_some_and(|run| !run.goes_on(self.used))
    }

    /// Sends all datagrams.
    pub(crate) fn flush(&mut self, link: &Link) {
        for (at, run) in self.runs.iter().enumerate() {
            let end = self.runs.get(at + 1).map_or(self.used, |next| next.first);
            let bytes = &self.bytes[run.first..end];
            let Pending { to, traffic_class, segment_bytes, .. } = *run;
            link.send(&Run { to, traffic_class, bytes, segment_bytes });
        }
        self.runs.clear();
        self.used = 0;
    }
}

impl Pending {
    /// Whether it takes one more of its length; `used` is its end.
    fn goes_on(&self, used: usize) -> bool {
        !self.is_closed && Link::may_add(self.segments, used - self.first, self.segment_bytes)
    }

    fn takes(&self, (to, traffic_class): (SocketAddr, u8), len: usize, used: usize) -> bool {
        let goes_along = self.to == to && self.traffic_class == traffic_class;
        goes_along && len <= self.segment_bytes && self.goes_on(used)
    }
}
