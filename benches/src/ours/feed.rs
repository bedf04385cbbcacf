//! The ITCH feed that ours and the other parsers read: generated once, framed as Nasdaq's recorded files are, each
//! message after its length in two big-endian bytes.

use tick_to_trade::generator::{Generator, GeneratorSpec};
use tick_to_trade::itch::MESSAGE_LEN_BYTES_MAX;

/// What the feed is made with.
pub const SPEC: GeneratorSpec = GeneratorSpec { seed: 1, instruments: 8, live_orders: 2_000 };
/// Messages in it.
pub const MESSAGES: usize = 2_000_000;

/// The feed's bytes; the same for everyone.
pub fn generate(messages: usize) -> Vec<u8> {
    let mut generator = Generator::new(SPEC);
    let mut bytes = Vec::with_capacity(messages * 36);
    let mut message = [0; MESSAGE_LEN_BYTES_MAX];
    for number in 0..messages {
        let len = generator.next_message(number as u64 * 1000, &mut message);
        bytes.extend_from_slice(&(len as u16).to_be_bytes());
        bytes.extend_from_slice(&message[..len]);
    }
    bytes
}

/// The messages of such bytes, in order.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = bytes.split_first_chunk::<2>()?;
        let (message, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        bytes = rest;
        Some(message)
    })
}
