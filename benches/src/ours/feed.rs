//! The ITCH feeds for our parser and the others: generated once, framed like Nasdaq's recorded
//! files, each message after its length in two big-endian bytes; or in MoldUDP64 packets, as on the
//! wire.

use tick_to_trade::book::BookSpec;
use tick_to_trade::generator::{Generator, GeneratorSpec};
use tick_to_trade::itch::MESSAGE_LEN_BYTES_MAX;
use tick_to_trade::mold::Writer;

/// 10,700 live orders at the end: a book that fits a core's own cache.
pub const SMALL: GeneratorSpec = GeneratorSpec { seed: 1, instruments: 8, live_orders: 2_000 };
/// 221,000 live orders at the end, each equally likely to change next: the worst case for a cache.
/// On an exchange most changes are to recent orders.
pub const LARGE: GeneratorSpec = GeneratorSpec { seed: 1, instruments: 64, live_orders: 8_000 };
/// Messages in a feed.
pub const MESSAGES: usize = 2_000_000;

/// The feed's bytes; the same on every call.
pub fn generate(spec: GeneratorSpec, messages: usize) -> Vec<u8> {
    let mut generator = Generator::new(spec);
    let mut bytes = Vec::with_capacity(messages * 36);
    let mut message = [0; MESSAGE_LEN_BYTES_MAX];
    for number in 0..messages {
        let len = generator.next_message(number as u64 * 1000, &mut message);
        bytes.extend_from_slice(&(len as u16).to_be_bytes());
        bytes.extend_from_slice(&message[..len]);
    }
    bytes
}

/// The bounds of books for such a feed.
pub const fn books(spec: GeneratorSpec) -> BookSpec {
    let orders = spec.instruments as u32 * spec.live_orders * 3 / 2;
    BookSpec { instruments: spec.instruments, orders, levels_per_side: 2_048 }
}

/// The messages in these bytes, in order.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = bytes.split_first_chunk::<2>()?;
        let (message, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        bytes = rest;
        Some(message)
    })
}

/// MoldUDP64 packets, stored consecutively.
pub struct Packets {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Packets {
    /// The messages of a feed's bytes in packets of up to 1,400 bytes.
    pub fn of(bytes: &[u8]) -> Packets {
        let mut packets = Packets { bytes: Vec::with_capacity(bytes.len() * 11 / 10), ends: Vec::new() };
        let mut messages = messages(bytes).peekable();
        let mut sequence = 1;
        while messages.peek().is_some() {
            let mut packet = [0; 1_400];
            let mut writer = Writer::new(&mut packet, b"VERBLINE00", sequence).expect("room for a header");
            while let Some(message) = messages.next_if(|message| message.len() <= writer.room_bytes()) {
                writer.push(message).expect("room for a message");
            }
            sequence += u64::from(writer.count());
            let len = writer.finish();
            packets.bytes.extend_from_slice(&packet[..len]);
            packets.ends.push(packets.bytes.len());
        }
        packets
    }

    /// The packets, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().scan(0, |start, &end| Some(&self.bytes[std::mem::replace(start, end)..end]))
    }
}
