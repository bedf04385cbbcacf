//! Reads messages about orders by tables: one shape for all seven types, and no branch on the type.
//!
//! Types come at random, so a jump on the type is mispredicted every other time, and costs more
//! than all the reading. Here the type picks a row of a table with the offset of each field; a
//! field that the type does not have is masked to 0.

use super::check::check;
use super::view::SIDES;
use super::{
    AddOrder, AddOrderMpid, ItchError, LEN_BYTES, OrderCancel, OrderDelete, OrderExecuted, OrderExecutedWithPrice,
    OrderReplace, Side,
};

/// The effect of a message on an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum OrderAction {
    /// `A`, `F`: the order is added.
    Add,
    /// `D`: the order is deleted.
    Delete,
    /// `X`: some of its shares are cancelled.
    Cancel,
    /// `E`: some of its shares are executed at its own price.
    Execute,
    /// `C`: some of its shares are executed at another price.
    ExecuteAtPrice,
    /// `U`: a new order replaces it.
    Replace,
}

/// A message about an order. A field that its type does not have is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderMessage {
    /// The effect.
    pub action: OrderAction,
    /// Of an added order whether it sells, of `C` whether it is printable: a type has one of them.
    indicator: bool,
    /// The instrument's locate code of the day.
    pub stock_locate: u16,
    /// Nanoseconds since midnight.
    pub timestamp_ns: u64,
    /// The order; in a replace, the one replaced.
    pub reference: u64,
    /// In a replace, the new order.
    pub new_reference: u64,
    /// Shares of the new order, or shares that the order loses.
    pub shares: u32,
    /// The price of the new order or of the execution, in 1/10 000 dollar.
    pub price_e4: u32,
}

impl OrderMessage {
    /// The side of an added order; [`Side::Buy`] for other messages.
    #[inline(always)]
    pub fn side(&self) -> Side {
        if self.indicator && self.action == OrderAction::Add { Side::Sell } else { Side::Buy }
    }

    /// Whether an execution counts as a trade of its own; false for one that another message
    /// reports in bulk, as of a cross. True for messages other than `C`.
    #[inline(always)]
    pub fn is_printable(&self) -> bool {
        self.indicator || self.action != OrderAction::ExecuteAtPrice
    }
}

/// Reads one message, which must fill `bytes`. Returns `None` if it is not about an order in the
/// book.
///
/// # Errors
/// Like [`super::parse`].
#[inline(always)]
pub fn parse_order(bytes: &[u8]) -> Result<Option<OrderMessage>, ItchError> {
    check(bytes)?;
    Ok(read(bytes))
}

/// The offsets of the fields. An absent field has any offset within the message, and a mask of 0.
#[derive(Clone, Copy)]
struct Layout {
    new_mask: u64,
    shares_mask: u32,
    price_mask: u32,
    /// `None` for types that are not about an order.
    action: Option<OrderAction>,
    new_at: u8,
    shares_at: u8,
    price_at: u8,
    indicator_at: u8,
    indicator_mask: u8,
}

/// Reads a message that has passed [`check`].
#[inline(always)]
pub(super) fn read(bytes: &[u8]) -> Option<OrderMessage> {
    let layout = &LAYOUTS[usize::from(*bytes.first()?)];
    let action = layout.action?;
    let head: &[u8; OrderDelete::LEN_BYTES] = bytes.first_chunk()?;
    let four = |at: u8| bytes.get(usize::from(at)..)?.first_chunk().map(|b| u32::from_be_bytes(*b));
    let eight = |at: u8| bytes.get(usize::from(at)..)?.first_chunk().map(|b| u64::from_be_bytes(*b));
    let [_, l0, l1, _, _, t0, t1, t2, t3, t4, t5, r0, r1, r2, r3, r4, r5, r6, r7] = *head;
    Some(OrderMessage {
        action,
        // Sides: `B` is 0x42, `S` 0x53, and `check` admits no other value. Printable: `Y` is 0x59,
        // `N` 0x4E.
        indicator: bytes.get(usize::from(layout.indicator_at))? & layout.indicator_mask != 0,
        stock_locate: u16::from_be_bytes([l0, l1]),
        timestamp_ns: u64::from_be_bytes([0, 0, t0, t1, t2, t3, t4, t5]),
        reference: u64::from_be_bytes([r0, r1, r2, r3, r4, r5, r6, r7]),
        new_reference: eight(layout.new_at)? & layout.new_mask,
        shares: four(layout.shares_at)? & layout.shares_mask,
        price_e4: four(layout.price_at)? & layout.price_mask,
    })
}

const LAYOUTS: [Layout; 256] = {
    let none = Layout {
        new_mask: 0,
        shares_mask: 0,
        price_mask: 0,
        action: None,
        new_at: 0,
        shares_at: 0,
        price_at: 0,
        indicator_at: 0,
        indicator_mask: 0,
    };
    /// A type, its effect, and the offsets of its shares, its price and its new reference; 0 for
    /// absent fields.
    type Row = (u8, OrderAction, u8, u8, u8);
    let rows: [Row; 7] = [
        (AddOrder::TAG, OrderAction::Add, 20, 32, 0),
        (AddOrderMpid::TAG, OrderAction::Add, 20, 32, 0),
        (OrderDelete::TAG, OrderAction::Delete, 0, 0, 0),
        (OrderCancel::TAG, OrderAction::Cancel, 19, 0, 0),
        (OrderExecuted::TAG, OrderAction::Execute, 19, 0, 0),
        (OrderExecutedWithPrice::TAG, OrderAction::ExecuteAtPrice, 19, 32, 0),
        (OrderReplace::TAG, OrderAction::Replace, 27, 31, 19),
    ];
    let mut table = [none; 256];
    let mut i = 0;
    while i < rows.len() {
        let (tag, action, shares_at, price_at, new_at) = rows[i];
        let len = LEN_BYTES[tag as usize];
        assert!(shares_at + 4 <= len && price_at + 4 <= len && new_at + 8 <= len);
        let indicator_at = match action {
            OrderAction::Add => side_at(tag),
            OrderAction::ExecuteAtPrice => PRINTABLE_AT,
            _ => 0,
        };
        table[tag as usize] = Layout {
            new_mask: if new_at == 0 { 0 } else { u64::MAX },
            shares_mask: if shares_at == 0 { 0 } else { u32::MAX },
            price_mask: if price_at == 0 { 0 } else { u32::MAX },
            action: Some(action),
            new_at,
            shares_at,
            price_at,
            indicator_at,
            indicator_mask: (indicator_at != 0) as u8,
        };
        i += 1;
    }
    table
};

/// The offset of the printable indicator of `C`.
const PRINTABLE_AT: u8 = 31;

/// The offset of the buy/sell indicator of a message with a side; 0 for others.
const fn side_at(tag: u8) -> u8 {
    let mut i = 0;
    while i < SIDES.len() {
        if SIDES[i].0 == tag {
            return SIDES[i].1;
        }
        i += 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::{Message, parse};
    use super::*;
    use proptest::prelude::*;

    /// The expected result, read through the views.
    fn by_view(message: &Message<'_>) -> Option<OrderMessage> {
        let of = |action, timestamp_ns, reference| OrderMessage {
            action,
            indicator: false,
            stock_locate: message.stock_locate(),
            timestamp_ns,
            reference,
            new_reference: 0,
            shares: 0,
            price_e4: 0,
        };
        Some(match message {
            Message::AddOrder(m) => OrderMessage {
                indicator: m.side() == Side::Sell,
                shares: m.shares(),
                price_e4: m.price_e4(),
                ..of(OrderAction::Add, m.timestamp_ns(), m.order_reference())
            },
            Message::AddOrderMpid(m) => OrderMessage {
                indicator: m.side() == Side::Sell,
                shares: m.shares(),
                price_e4: m.price_e4(),
                ..of(OrderAction::Add, m.timestamp_ns(), m.order_reference())
            },
            Message::OrderDelete(m) => of(OrderAction::Delete, m.timestamp_ns(), m.order_reference()),
            Message::OrderCancel(m) => OrderMessage {
                shares: m.cancelled_shares(),
                ..of(OrderAction::Cancel, m.timestamp_ns(), m.order_reference())
            },
            Message::OrderExecuted(m) => OrderMessage {
                shares: m.executed_shares(),
                ..of(OrderAction::Execute, m.timestamp_ns(), m.order_reference())
            },
            Message::OrderExecutedWithPrice(m) => OrderMessage {
                shares: m.executed_shares(),
                price_e4: m.execution_price_e4(),
                indicator: m.printable() == b'Y',
                ..of(OrderAction::ExecuteAtPrice, m.timestamp_ns(), m.order_reference())
            },
            Message::OrderReplace(m) => OrderMessage {
                new_reference: m.new_reference(),
                shares: m.shares(),
                price_e4: m.price_e4(),
                ..of(OrderAction::Replace, m.timestamp_ns(), m.original_reference())
            },
            _ => return None,
        })
    }

    proptest! {
        #[test]
        fn reads_what_the_views_read(
            tag in prop::sample::select(b"SRHAFECXDUPQBIYLVWKJhNO?".to_vec()),
            mut bytes in prop::collection::vec(any::<u8>(), 50),
            sells in any::<bool>(),
            prints in any::<bool>(),
            cut in prop::bool::weighted(0.1),
        ) {
            bytes[0] = tag;
            bytes[19] = if sells { b'S' } else { b'B' };
            if tag == b'C' {
                bytes[31] = if prints { b'Y' } else { b'N' };
            }
            bytes.truncate(usize::from(LEN_BYTES[usize::from(tag)]).saturating_sub(usize::from(cut)));
            match parse(&bytes) {
                Ok(message) => prop_assert_eq!(parse_order(&bytes), Ok(by_view(&message))),
                Err(error) => prop_assert_eq!(parse_order(&bytes), Err(error)),
            }
        }
    }
}
