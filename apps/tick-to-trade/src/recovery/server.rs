//! The exchange's half: sends messages again, and makes snapshots.
//!
//! Each request is answered by one packet, with the requested messages that exist and fit; requests
//! for others are counted, and not answered. So no client gets more than it asks for. The server
//! keeps no state of clients but their snapshots, [`SNAPSHOTS`] of all clients together. A further
//! snapshot replaces the least recently used one of the client that has the most; that client must
//! request it anew.

use std::cmp::Reverse;

use super::request::Request;
use super::ring::MessageRing;
use super::snapshot::{SnapshotName, end_of_snapshot};
use crate::generator::{Generator, LiveOrder};
use crate::itch::encode::{self, Header, NewOrder};
use crate::itch::{MESSAGE_LEN_BYTES_MAX, Symbol};
use crate::mold::{Packet, Writer};
use verbline::mem::ConnectionId;

/// Snapshots kept at a time.
const SNAPSHOTS: usize = 4;

/// The bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServicesSpec {
    /// The last messages, kept to be sent again; rounded up to a power of two.
    pub kept_messages: u32,
    /// Live orders of one instrument.
    pub orders_max: u32,
}

impl ServicesSpec {
    /// Memory that [`Services::new`] allocates, in bytes.
    pub fn memory_bytes(self) -> u64 {
        let image = u64::from(self.orders_max) * size_of::<LiveOrder>() as u64;
        MessageRing::memory_bytes(self.kept_messages) + SNAPSHOTS as u64 * image
    }
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// The answer has this many bytes.
    Bytes(usize),
    /// There is no answer; the request was counted.
    Nothing,
}

/// Totals since construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServicesCounts {
    /// Requests for messages that were answered.
    pub answered: u64,
    /// The messages in the answers.
    pub messages: u64,
    /// Requests for messages that are no longer kept, or not yet sent.
    pub not_kept: u64,
    /// Requests of another session, for a snapshot that is no longer kept, or malformed.
    pub refused: u64,
    /// Snapshots opened.
    pub snapshots: u64,
}

/// A snapshot as taken.
struct Image {
    /// `None` before the first snapshot.
    name: Option<SnapshotName>,
    /// The client; clients choose names independently, and may choose the same.
    client: Option<ConnectionId>,
    symbol: Symbol,
    /// The number with which the stream goes on.
    sequence: u64,
    orders: Vec<LiveOrder>,
    /// The count of requests when it was last used.
    used: u64,
}

/// The messages that can be sent again, and the snapshots being fetched.
pub struct Services {
    ring: MessageRing,
    images: [Image; SNAPSHOTS],
    requests: u64,
    counts: ServicesCounts,
}

impl Services {
    /// Allocates all memory that serving will ever use.
    pub fn new(spec: ServicesSpec) -> Services {
        let image = || Image {
            name: None,
            client: None,
            symbol: Symbol([b' '; 8]),
            sequence: 0,
            orders: Vec::with_capacity(spec.orders_max as usize),
            used: 0,
        };
        Services {
            ring: MessageRing::new(spec.kept_messages),
            images: std::array::from_fn(|_| image()),
            requests: 0,
            counts: ServicesCounts::default(),
        }
    }

    /// Totals since construction.
    pub fn counts(&self) -> &ServicesCounts {
        &self.counts
    }

    /// Keeps the messages of an outgoing packet.
    #[inline]
    pub fn keep(&mut self, packet: &Packet<'_>) {
        for (index, message) in packet.messages().enumerate() {
            self.ring.put(packet.sequence() + index as u64, message);
        }
    }

    /// Answers a request for messages of the stream, into `out`.
    pub fn send_again(&mut self, request: &[u8], generator: &Generator, out: &mut [u8]) -> Answered {
        let request = Request::parse(request).ok().filter(|request| request.session == *generator.session());
        let Some(Request { session, sequence, count }) = request else { return self.refuse() };
        if !self.ring.has(sequence) {
            self.counts.not_kept += 1;
            return Answered::Nothing;
        }
        let Ok(mut writer) = Writer::new(out, &session, sequence) else { return self.refuse() };
        for sequence in sequence..sequence + u64::from(count) {
            let Some(message) = self.ring.get(sequence) else { break };
            if writer.push(message).is_err() {
                break;
            }
        }
        self.counts.answered += 1;
        self.counts.messages += u64::from(writer.count());
        Answered::Bytes(writer.finish())
    }

    /// Answers a client's request for a part of a snapshot, into `out`. A request for its first
    /// message takes the snapshot. `client` is `None` if the service has only one.
    pub fn send_snapshot(
        &mut self,
        client: Option<ConnectionId>,
        request: &[u8],
        generator: &Generator,
        out: &mut [u8],
    ) -> Answered {
        let Some(request) = Request::parse(request).ok().filter(|request| request.sequence > 0) else {
            return self.refuse();
        };
        let Some(name) = SnapshotName::of(&request.session) else { return self.refuse() };
        self.requests += 1;
        let kept = self.images.iter().position(|image| (image.name, image.client) == (Some(name), client));
        let at = match kept {
            Some(at) => at,
            None if request.sequence == 1 && name.locate <= generator.instruments() => {
                self.open(client, name, generator)
            }
            None => return self.refuse(),
        };
        let image = &mut self.images[at];
        image.used = self.requests;
        let Ok(mut writer) = Writer::new(out, &request.session, request.sequence) else { return self.refuse() };
        let mut scratch = [0; MESSAGE_LEN_BYTES_MAX];
        for number in request.sequence..request.sequence + u64::from(request.count) {
            let Some(len_bytes) = image.write(number, generator, &mut scratch) else { break };
            if writer.push(&scratch[..len_bytes]).is_err() {
                break;
            }
        }
        Answered::Bytes(writer.finish())
    }

    /// A free place, or else the least recently used one of the client that has the most, counting
    /// the new snapshot: a client that opens many replaces only its own.
    fn place_for(&self, client: Option<ConnectionId>) -> usize {
        let of = |client| self.images.iter().filter(|image| image.name.is_some() && image.client == client).count();
        let key = |&at: &usize| {
            let image = &self.images[at];
            let has = of(image.client) + usize::from(image.client == client);
            (image.name.is_some(), Reverse(has), image.used)
        };
        (0..SNAPSHOTS).min_by_key(key).unwrap_or(0)
    }

    fn refuse(&mut self) -> Answered {
        self.counts.refused += 1;
        Answered::Nothing
    }

    /// Takes a snapshot of a book: some 15 µs at 2,000 orders, during which nothing is published.
    fn open(&mut self, client: Option<ConnectionId>, name: SnapshotName, generator: &Generator) -> usize {
        let at = self.place_for(client);
        let image = &mut self.images[at];
        (image.name, image.client, image.sequence) = (Some(name), client, generator.sequence());
        image.symbol = generator.symbol(name.locate).unwrap_or(Symbol([b' '; 8]));
        image.orders.clear();
        image.orders.extend(generator.orders(name.locate));
        self.counts.snapshots += 1;
        at
    }
}

impl Image {
    /// Writes the message with this number, from 1; `None` behind the last one.
    fn write(&self, number: u64, generator: &Generator, out: &mut [u8]) -> Option<usize> {
        let locate = self.name?.locate;
        let header = Header { stock_locate: locate, tracking_number: 0, timestamp_ns: 0 };
        let last = if locate == 0 { generator.instruments().into() } else { self.orders.len() as u64 + 2 };
        let behind = number.checked_sub(last + 1);
        match (behind, number) {
            (Some(0), _) => {
                let end = end_of_snapshot(self.sequence);
                out.get_mut(..end.len())?.copy_from_slice(&end);
                Some(end.len())
            }
            (Some(_), _) => None,
            (None, _) if locate == 0 => {
                let stock_locate = number as u16;
                encode::stock_directory(out, Header { stock_locate, ..header }, generator.symbol(stock_locate)?)
            }
            (None, 1) => encode::stock_directory(out, header, self.symbol),
            (None, 2) => encode::trading_action(out, header, self.symbol, b'T'),
            (None, _) => {
                let LiveOrder { reference, side, price_e4, shares } = self.orders[(number - 3) as usize];
                encode::add_order(out, header, NewOrder { reference, side, shares, stock: self.symbol, price_e4 })
            }
        }
    }
}
