//! Checks of a message before it is read: its type, its length, its side.

use super::view::{LENGTHS, SIDES};

/// The longest message of the protocol, in bytes: the imbalance indicator, type `I`.
pub const MESSAGE_LEN_BYTES_MAX: usize = 50;

/// The shortest, in bytes: the system event, type `S`, and the circuit breaker's status, type `W`.
pub const MESSAGE_LEN_BYTES_MIN: usize = 12;

/// The length of each message type in bytes; 0 for bytes that are no type.
pub const LEN_BYTES: [u8; 256] = with_lengths(with_lengths([0; 256], LENGTHS), &ADMINISTRATIVE);

/// The type byte and length of messages without a view.
const ADMINISTRATIVE: [(u8, usize); 8] = [
    (b'Y', 20), // Reg SHO restriction
    (b'L', 26), // market participant position
    (b'V', 35), // market-wide circuit breaker decline levels
    (b'W', 12), // market-wide circuit breaker status
    (b'K', 28), // IPO quoting period
    (b'J', 35), // limit up/limit down auction collar
    (b'N', 20), // retail price improvement
    (b'O', 48), // direct listing with capital raise
];

const fn with_lengths(mut table: [u8; 256], known: &[(u8, usize)]) -> [u8; 256] {
    let mut i = 0;
    while i < known.len() {
        assert!(MESSAGE_LEN_BYTES_MIN <= known[i].1 && known[i].1 <= MESSAGE_LEN_BYTES_MAX);
        table[known[i].0 as usize] = known[i].1 as u8;
        i += 1;
    }
    table
}

/// Why some bytes are not an ITCH 5.0 message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ItchError {
    /// The message is empty.
    #[error("an ITCH message of 0 bytes has no type; the framing around it is broken")]
    Empty,
    /// The type byte is not one of ITCH 5.0.
    #[error("{:?} (0x{tag:02x}) is not a message type of ITCH 5.0; is the feed of another version?", *.tag as char)]
    UnknownType {
        /// The first byte of the message.
        tag: u8,
    },
    /// The message is shorter or longer than its type.
    #[error(
        "a message of type {:?} has {expected_bytes} bytes, not {actual_bytes}; it was cut, or the feed is of another \
         version",
        *.tag as char
    )]
    Length {
        /// The first byte of the message.
        tag: u8,
        /// The length in the specification.
        expected_bytes: usize,
        /// The message's length.
        actual_bytes: usize,
    },
    /// The buy/sell indicator is neither `B` nor `S`.
    #[error(
        "a message of type {:?} has the buy/sell indicator 0x{value:02x}, neither B nor S; it is corrupt",
        *.tag as char
    )]
    Side {
        /// The first byte of the message.
        tag: u8,
        /// The byte found.
        value: u8,
    },
}

/// Checks that the type is known, the length right, and the side valid if the type has one. Returns
/// the type.
#[inline(always)]
pub(super) fn check(bytes: &[u8]) -> Result<u8, ItchError> {
    let Some(&tag) = bytes.first() else { return Err(ItchError::Empty) };
    let shape = SHAPES[usize::from(tag)];
    if usize::from(shape.len_bytes) != bytes.len() {
        return Err(wrong_length(tag, bytes.len()));
    }
    // For a type without a side, this loads the type byte, and any value is right. One branch,
    // never taken: comparisons with `B` and `S` in turn would compile to branches as random as the
    // types, mispredicted on two messages of three.
    let side = bytes[usize::from(shape.side_at)];
    if IS_SIDE[usize::from(side)] | shape.sideless == 0 {
        return Err(wrong_side(tag, side));
    }
    Ok(tag)
}

/// The facts of a type that `check` needs, in one place, so that they cost one load.
#[derive(Clone, Copy)]
struct Shape {
    len_bytes: u8,
    /// The offset of the buy/sell indicator; 0 for none.
    side_at: u8,
    /// 1 for types without a side.
    sideless: u8,
}

const SHAPES: [Shape; 256] = {
    let mut table = [Shape { len_bytes: 0, side_at: 0, sideless: 1 }; 256];
    let mut tag = 0;
    while tag < table.len() {
        table[tag].len_bytes = LEN_BYTES[tag];
        tag += 1;
    }
    let mut i = 0;
    while i < SIDES.len() {
        let shape = &mut table[SIDES[i].0 as usize];
        (shape.side_at, shape.sideless) = (SIDES[i].1, 0);
        i += 1;
    }
    table
};

/// 1 for `B` and `S`.
const IS_SIDE: [u8; 256] = {
    let mut table = [0; 256];
    (table[b'B' as usize], table[b'S' as usize]) = (1, 1);
    table
};

#[cold]
fn wrong_length(tag: u8, actual_bytes: usize) -> ItchError {
    match LEN_BYTES[usize::from(tag)] {
        0 => ItchError::UnknownType { tag },
        expected => ItchError::Length { tag, expected_bytes: usize::from(expected), actual_bytes },
    }
}

#[cold]
fn wrong_side(tag: u8, value: u8) -> ItchError {
    ItchError::Side { tag, value }
}
