//! NASDAQ TotalView-ITCH 5.0 messages, read in place.
//!
//! [`parse`] checks the type byte and the length and returns a view that borrows the caller's
//! bytes: nothing is copied, and a field is decoded when it is read. Every length is the fixed one
//! of the specification (4. Message Formats of the "Nasdaq TotalView-ITCH 5.0" document); `parse`
//! checks it, so that no accessor can be out of bounds. Integers are big-endian; prices are in 1/10
//! 000 of a dollar (`price_e4`); times are nanoseconds since midnight.

mod check;
pub mod encode;
mod fields;
mod order;
mod view;

use check::check;

pub use check::{ItchError, LEN_BYTES, MESSAGE_LEN_BYTES_MAX, MESSAGE_LEN_BYTES_MIN};
pub use fields::{Side, Symbol};
pub use order::{OrderAction, OrderMessage, parse_order};
pub use view::{
    AddOrder, AddOrderMpid, BrokenTrade, CrossTrade, Imbalance, Message, OperationalHalt, OrderCancel, OrderDelete,
    OrderExecuted, OrderExecutedWithPrice, OrderReplace, Other, StockDirectory, SystemEvent, Trade, TradingAction,
};

impl Message<'_> {
    /// The instrument's locate code of the day; 0 if the message concerns no single instrument.
    #[inline]
    pub fn stock_locate(&self) -> u16 {
        let bytes = self.as_bytes();
        u16::from_be_bytes([bytes[1], bytes[2]])
    }

    /// The message as one about an order in the book; `None` if it concerns none.
    #[inline(always)]
    pub fn order(&self) -> Option<OrderMessage> {
        order::read(self.as_bytes())
    }
}

/// Reads one message, which must fill `bytes`.
///
/// Types come at random, so a jump on the type is mispredicted every other time and costs more than
/// all the rest. `parse` has no such jump: one table gives the length, another the variant. A
/// caller that matches on the message pays for the jump, once.
///
/// # Errors
/// The input is empty, ITCH 5.0 lacks the type, the length is not the type's, or the side is
/// neither `B` nor `S`.
#[inline(always)]
pub fn parse(bytes: &[u8]) -> Result<Message<'_>, ItchError> {
    let tag = check(bytes)?;
    Ok(Message::of(tag, bytes))
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
}
