//! NASDAQ TotalView-ITCH 5.0 messages, read in place.
//!
//! [`parse`] looks at the type byte and the length and returns a view that borrows the caller's
//! bytes: nothing is copied and a field is decoded when it is asked for. Every length is the fixed
//! one of the specification (4. Message Formats of the "Nasdaq TotalView-ITCH 5.0" document);
//! `parse` checks it, so that no accessor can be out of bounds. Integers are big-endian; prices are
//! in 1/10 000 of a dollar (`price_e4`); times are nanoseconds since midnight.

pub mod encode;
mod order;
mod view;

use std::fmt;

pub use order::{OrderAction, OrderMessage, parse_order};
pub use view::{
    AddOrder, AddOrderMpid, BrokenTrade, CrossTrade, Imbalance, OrderCancel, OrderDelete, OrderExecuted,
    OrderExecutedWithPrice, OrderReplace, Other, StockDirectory, SystemEvent, Trade, TradingAction,
};

/// The longest message of the protocol, in bytes: the imbalance indicator, type `I`.
pub const MESSAGE_LEN_BYTES_MAX: usize = 50;

/// The shortest, in bytes: the system event, type `S`, and the circuit breaker's status, type `W`.
pub const MESSAGE_LEN_BYTES_MIN: usize = 12;

/// The length of each message type in bytes, 0 for a byte that is no type.
pub const LEN_BYTES: [u8; 256] = lengths();

const fn lengths() -> [u8; 256] {
    let mut table = [0; 256];
    let known: [(u8, usize); 23] = [
        (SystemEvent::TAG, SystemEvent::LEN_BYTES),
        (StockDirectory::TAG, StockDirectory::LEN_BYTES),
        (TradingAction::TAG, TradingAction::LEN_BYTES),
        (b'Y', 20), // Reg SHO restriction
        (b'L', 26), // market participant position
        (b'V', 35), // market-wide circuit breaker decline levels
        (b'W', 12), // market-wide circuit breaker status
        (b'K', 28), // IPO quoting period
        (b'J', 35), // limit up/limit down auction collar
        (b'h', 21), // operational halt
        (AddOrder::TAG, AddOrder::LEN_BYTES),
        (AddOrderMpid::TAG, AddOrderMpid::LEN_BYTES),
        (OrderExecuted::TAG, OrderExecuted::LEN_BYTES),
        (OrderExecutedWithPrice::TAG, OrderExecutedWithPrice::LEN_BYTES),
        (OrderCancel::TAG, OrderCancel::LEN_BYTES),
        (OrderDelete::TAG, OrderDelete::LEN_BYTES),
        (OrderReplace::TAG, OrderReplace::LEN_BYTES),
        (Trade::TAG, Trade::LEN_BYTES),
        (CrossTrade::TAG, CrossTrade::LEN_BYTES),
        (BrokenTrade::TAG, BrokenTrade::LEN_BYTES),
        (Imbalance::TAG, Imbalance::LEN_BYTES),
        (b'N', 20), // retail price improvement
        (b'O', 48), // direct listing with capital raise
    ];
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
    /// There is no type byte.
    #[error("an ITCH message of 0 bytes has no type; the framing around it is broken")]
    Empty,
    /// The type byte is none of ITCH 5.0.
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
        /// What the specification gives for it.
        expected_bytes: usize,
        /// What there was.
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

/// One message, borrowed from the bytes it was parsed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// `S`: start and end of messages, of system hours, of market hours.
    SystemEvent(SystemEvent<'a>),
    /// `R`: an instrument and its locate code.
    StockDirectory(StockDirectory<'a>),
    /// `H`: an instrument is halted, paused, quoted or traded.
    TradingAction(TradingAction<'a>),
    /// `A`: a new order.
    AddOrder(AddOrder<'a>),
    /// `F`: a new order that names its participant.
    AddOrderMpid(AddOrderMpid<'a>),
    /// `E`: an order was executed at its own price.
    OrderExecuted(OrderExecuted<'a>),
    /// `C`: an order was executed at another price than its own.
    OrderExecutedWithPrice(OrderExecutedWithPrice<'a>),
    /// `X`: part of an order was cancelled.
    OrderCancel(OrderCancel<'a>),
    /// `D`: an order left the book.
    OrderDelete(OrderDelete<'a>),
    /// `U`: an order was replaced by another of the same side and instrument.
    OrderReplace(OrderReplace<'a>),
    /// `P`: a trade against an order that was never displayed.
    Trade(Trade<'a>),
    /// `Q`: the single trade of an auction.
    CrossTrade(CrossTrade<'a>),
    /// `B`: an execution was broken.
    BrokenTrade(BrokenTrade<'a>),
    /// `I`: net order imbalance before an auction.
    Imbalance(Imbalance<'a>),
    /// `Y L V W K J h N O`: administrative; checked for length, not interpreted.
    Other(Other<'a>),
}

impl Message<'_> {
    /// The instrument's locate code of the day; 0 where the message is about no single instrument.
    #[inline]
    pub fn stock_locate(&self) -> u16 {
        let bytes = self.as_bytes();
        u16::from_be_bytes([bytes[1], bytes[2]])
    }

    /// What it says about an order in the book, `None` when it is about none.
    #[inline(always)]
    pub fn order(&self) -> Option<OrderMessage> {
        order::read(self.as_bytes())
    }

    /// The message's bytes, type byte first; never fewer than 12.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Message::SystemEvent(m) => m.as_bytes(),
            Message::StockDirectory(m) => m.as_bytes(),
            Message::TradingAction(m) => m.as_bytes(),
            Message::AddOrder(m) => m.as_bytes(),
            Message::AddOrderMpid(m) => m.as_bytes(),
            Message::OrderExecuted(m) => m.as_bytes(),
            Message::OrderExecutedWithPrice(m) => m.as_bytes(),
            Message::OrderCancel(m) => m.as_bytes(),
            Message::OrderDelete(m) => m.as_bytes(),
            Message::OrderReplace(m) => m.as_bytes(),
            Message::Trade(m) => m.as_bytes(),
            Message::CrossTrade(m) => m.as_bytes(),
            Message::BrokenTrade(m) => m.as_bytes(),
            Message::Imbalance(m) => m.as_bytes(),
            Message::Other(m) => m.as_bytes(),
        }
    }
}

/// Reads one message, which must be all of `bytes`.
///
/// Types come at random, so a jump on the type is mispredicted every other time and costs more than
/// all the rest. There is none here: one table gives the length, another the variant. Whoever
/// matches on the message pays for it, once.
///
/// # Errors
/// Empty input, a type that ITCH 5.0 does not have, a length that is not the type's, a side that is
/// neither.
#[inline(always)]
pub fn parse(bytes: &[u8]) -> Result<Message<'_>, ItchError> {
    let tag = check(bytes)?;
    Ok(match tag {
        SystemEvent::TAG => Message::SystemEvent(SystemEvent::of(bytes)),
        StockDirectory::TAG => Message::StockDirectory(StockDirectory::of(bytes)),
        TradingAction::TAG => Message::TradingAction(TradingAction::of(bytes)),
        AddOrder::TAG => Message::AddOrder(AddOrder::of(bytes)),
        AddOrderMpid::TAG => Message::AddOrderMpid(AddOrderMpid::of(bytes)),
        OrderExecuted::TAG => Message::OrderExecuted(OrderExecuted::of(bytes)),
        OrderExecutedWithPrice::TAG => Message::OrderExecutedWithPrice(OrderExecutedWithPrice::of(bytes)),
        OrderCancel::TAG => Message::OrderCancel(OrderCancel::of(bytes)),
        OrderDelete::TAG => Message::OrderDelete(OrderDelete::of(bytes)),
        OrderReplace::TAG => Message::OrderReplace(OrderReplace::of(bytes)),
        Trade::TAG => Message::Trade(Trade::of(bytes)),
        CrossTrade::TAG => Message::CrossTrade(CrossTrade::of(bytes)),
        BrokenTrade::TAG => Message::BrokenTrade(BrokenTrade::of(bytes)),
        Imbalance::TAG => Message::Imbalance(Imbalance::of(bytes)),
        _ => Message::Other(Other::of(bytes)),
    })
}

/// A known type, its length, a side if it has one. Gives the type.
#[inline(always)]
fn check(bytes: &[u8]) -> Result<u8, ItchError> {
    let Some(&tag) = bytes.first() else { return Err(ItchError::Empty) };
    let shape = SHAPES[usize::from(tag)];
    if usize::from(shape.len_bytes) != bytes.len() {
        return Err(wrong_length(tag, bytes.len()));
    }
    // For a type without a side, the type byte is looked at and anything is right. One branch,
    // never taken: compared with `B` and `S` in turn, the compiler makes branches that are as
    // random as the types, mispredicted on two messages of three.
    let side = bytes[usize::from(shape.side_at)];
    if IS_SIDE[usize::from(side)] | shape.sideless == 0 {
        return Err(wrong_side(tag, side));
    }
    Ok(tag)
}

/// What `check` looks at of a type; in one place, so that it costs one load.
#[derive(Clone, Copy)]
struct Shape {
    len_bytes: u8,
    /// Where the buy/sell indicator is, 0 for none.
    side_at: u8,
    /// 1 for none.
    sideless: u8,
}

const SHAPES: [Shape; 256] = {
    let mut table = [Shape { len_bytes: 0, side_at: 0, sideless: 1 }; 256];
    let mut tag = 0;
    while tag < table.len() {
        table[tag].len_bytes = LEN_BYTES[tag];
        tag += 1;
    }
    let sided =
        [(AddOrder::TAG, AddOrder::SIDE_AT), (AddOrderMpid::TAG, AddOrderMpid::SIDE_AT), (Trade::TAG, Trade::SIDE_AT)];
    let mut i = 0;
    while i < sided.len() {
        let shape = &mut table[sided[i].0 as usize];
        (shape.side_at, shape.sideless) = (sided[i].1, 0);
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

/// Which side of the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Side {
    /// Bids.
    Buy = 0,
    /// Asks.
    Sell = 1,
}

impl Side {
    /// The other side.
    #[inline]
    pub fn opposite(self) -> Side {
        match self {
            Side::Buy => Side::Sell,
            Side::Sell => Side::Buy,
        }
    }

    /// `B` or `S`, as on the wire.
    #[inline]
    pub fn to_byte(self) -> u8 {
        match self {
            Side::Buy => b'B',
            Side::Sell => b'S',
        }
    }
}

/// An instrument's symbol: ASCII, padded with spaces on the right.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Symbol(pub [u8; 8]);

impl Symbol {
    /// Pads `text` with spaces; `None` when it is longer than 8 bytes or not printable ASCII.
    pub fn new(text: &str) -> Option<Self> {
        if text.len() > 8 || !text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            return None;
        }
        let mut padded = [b' '; 8];
        padded[..text.len()].copy_from_slice(text.as_bytes());
        Some(Self(padded))
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().rposition(|&b| b != b' ').map_or(0, |at| at + 1);
        self.0[..end].escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.escape_ascii().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_length_and_no_other() {
        for tag in 0..=u8::MAX {
            let expected = usize::from(LEN_BYTES[usize::from(tag)]);
            for len in 1..=64 {
                let mut bytes = vec![b'B'; len];
                bytes[0] = tag;
                match parse(&bytes) {
                    Ok(message) => {
                        assert_eq!(len, expected);
                        assert_eq!(message.as_bytes(), bytes);
                    }
                    Err(ItchError::UnknownType { tag: t }) => assert_eq!((t, expected), (tag, 0)),
                    Err(ItchError::Length { expected_bytes, actual_bytes, .. }) => {
                        assert_eq!((expected_bytes, actual_bytes), (expected, len));
                        assert_ne!(expected, len);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert_eq!(LEN_BYTES.iter().filter(|&&l| l > 0).count(), 23);
        assert_eq!(parse(&[]), Err(ItchError::Empty));
    }

    #[test]
    fn a_side_that_is_neither_is_refused() {
        for (tag, len) in [(b'A', 36), (b'F', 40), (b'P', 44)] {
            let mut bytes = vec![0; len];
            bytes[0] = tag;
            assert_eq!(parse(&bytes), Err(ItchError::Side { tag, value: 0 }));
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        insta::assert_snapshot!(
            ItchError::UnknownType { tag: b'Z' },
            @"'Z' (0x5a) is not a message type of ITCH 5.0; is the feed of another version?"
        );
        insta::assert_snapshot!(
            parse(b"D12").unwrap_err(),
            @"a message of type 'D' has 19 bytes, not 3; it was cut, or the feed is of another version"
        );
    }

    #[test]
    fn symbols_pad_and_print() {
        assert_eq!(Symbol::new("VERB").map(|s| (s.0, s.to_string())), Some((*b"VERB    ", "VERB".to_string())));
        assert_eq!(Symbol::new("TOOLONGED"), None);
        assert_eq!(Symbol::new("ä"), None);
    }
}
