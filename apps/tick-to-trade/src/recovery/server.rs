//! The exchange's half: sends messages again, and makes snapshots.
//!
//! Each request is answered by one packet with as many messages as were asked for, as fit, and as
//! there are; what there is not is counted, and not answered. So a client gets no more than it asks
//! for, whatever it asks, and nothing of it is remembered but its snapshots, [`SNAPSHOTS`] of all
//! clients together. A further one takes the place of one that the client with the most of them has
//! not asked for the longest: that client asks anew.

use std::cmp::Reverse;

use super::request::Request;
use super::ring::MessageRing;
use super::snapshot::{SnapshotName, end_of_snapshot};
use crate::generator::{Generator, LiveOrder};
use crate::itch::encode::{self, Header, NewOrder};
use crate::itch::{MESSAGE_LEN_BYTES_MAX, Symbol};
use crate::mold::{Packet, Writer};
use verbline::mem::ConnectionId;

/// Snapshots that are kept at once.
const SNAPSHOTS: usize = 4;

/// How much there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServicesSpec {
    /// The last messages, which can be sent again; rounded up to a power of two.
    pub kept_messages: u32,
    /// Live orders of one instrument.
    pub orders_max: u32,
}

impl ServicesSpec {
    /// What [`Services::new`] allocates, in bytes.
    pub fn memory_bytes(self) -> u64 {
        let image = u64::from(self.orders_max) * size_of::<LiveOrder>() as u64;
        MessageRing::memory_bytes(self.kept_messages) + SNAPSHOTS as u64 * image
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// The answer has this many bytes.
    Bytes(usize),
    /// There is nothing to answer, and it was counted.
    Nothing,
}

/// Totals since construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServicesCounts {
    /// Requests for messages that were answered.
    pub answered: u64,
    /// The messages in them.
    pub messages: u64,
    /// Requests for messages that are kept no longer, or not sent yet.
    pub not_kept: u64,
    /// Requests of another session, or of a snapshot that is kept no longer, or that are none.
    pub refused: u64,
    /// Snapshots that were opened.
    pub snapshots: u64,
}

/// A snapshot as it was taken.
struct Image {
    /// `None`: there is none yet.
    name: Option<SnapshotName>,
    /// Who asked for it: clients choose their names by themselves, and may choose the same.
    client: Option<ConnectionId>,
    symbol: Symbol,
    /// The stream goes on with this number.
    sequence: u64,
    orders: Vec<LiveOrder>,
    /// When it was last asked for, in requests.
    used: u64,
}

/// The messages that can be sent again, and the snapshots that are being fetched.
pub struct Services {
    ring: MessageRing,
    images: [Image; SNAPSHOTS],
    requests: u64,
    counts: ServicesCounts,
}

impl Services {
    /// Allocates all that serving will ever use.
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

    /// Keeps the messages of a packet that goes out.
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

    /// Answers a client's request for a part of a snapshot, into `out`. One for its first message
    /// takes the snapshot. `None` is the one client of a service that has no other.
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

    /// A place that is free, or the one used the longest ago of the client that has the most, the
    /// new one counted: who opens many takes only its own.
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

    /// Takes a snapshot of a book as it is now: some 15 µs at 2,000 orders, in which nothing is
    /// published.
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
    /// Writes the message of this number, from 1; `None` behind the last one.
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
