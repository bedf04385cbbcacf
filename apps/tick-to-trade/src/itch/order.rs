//! Messages about orders, read by tables: one shape for all seven types, and no branch on the type.
//!
//! Types come at random, so a jump on the type is mispredicted every other time, and costs more
//! than all there is to read. Here the type picks a row of a table, which tells where each field
//! is; a field that the type does not have is masked to 0.

use super::check::check;
use super::{
    AddOrder, AddOrderMpid, ItchError, LEN_BYTES, OrderCancel, OrderDelete, OrderExecuted, OrderExecutedWithPrice,
    OrderReplace, Side,
};

/// What a message does to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum OrderAction {
    /// `A`, `F`: it comes.
    Add,
    /// `D`: it goes.
    Delete,
    /// `X`: some of its shares go.
    Cancel,
    /// `E`: some of its shares are executed at its own price.
    Execute,
    /// `C`: some of its shares are executed at another price.
    ExecuteAtPrice,
    /// `U`: another comes in its place.
    Replace,
}

/// A message about an order. A field that its type does not have is 0, or [`Side::Buy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderMessage {
    /// What it does.
    pub action: OrderAction,
    /// The order's side, when it comes.
    pub side: Side,
    /// The instrument's locate code of the day.
    pub stock_locate: u16,
    /// Nanoseconds since midnight.
    pub timestamp_ns: u64,
    /// The order; in a replace, the one that goes.
    pub reference: u64,
    /// In a replace, the order that comes.
    pub new_reference: u64,
    /// Shares that come with it, or that it loses.
    pub shares: u32,
    /// In 1/10 000 dollar: of the order that comes, or of the execution.
    pub price_e4: u32,
}

/// Reads one message, which must be all of `bytes`. `None` when it is not about an order in the
/// book.
///
/// # Errors
/// Like [`super::parse`].
#[inline(always)]
pub fn parse_order(bytes: &[u8]) -> Result<Option<OrderMessage>, ItchError> {
    check(bytes)?;
    Ok(read(bytes))
}

/// Where the fields are; an offset of a field that is not there is any within the message, and its
/// mask 0.
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
    side_at: u8,
    side_mask: u8,
}

/// `bytes` have passed [`check`].
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
        // `B` is 0x42, `S` 0x53, and `check` has let no other through.
        side: [Side::Buy, Side::Sell][usize::from(bytes.get(usize::from(layout.side_at))? & layout.side_mask)],
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
        side_at: 0,
        side_mask: 0,
    };
    /// A type, what it does, and where its shares, its price and its new reference are; 0 where it
    /// has none.
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
        let is_add = matches!(action, OrderAction::Add);
        table[tag as usize] = Layout {
            new_mask: if new_at == 0 { 0 } else { u64::MAX },
            shares_mask: if shares_at == 0 { 0 } else { u32::MAX },
            price_mask: if price_at == 0 { 0 } else { u32::MAX },
            action: Some(action),
            new_at,
            shares_at,
            price_at,
            side_at: if is_add { AddOrder::SIDE_AT } else { 0 },
            side_mask: is_add as u8,
        };
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::super::{Message, parse};
    use super::*;
    use proptest::prelude::*;

    /// The same by the views.
    fn by_view(message: &Message<'_>) -> Option<OrderMessage> {
        let empty = OrderMessage {
            action: OrderAction::Add,
            side: Side::Buy,
            stock_locate: message.stock_locate(),
            timestamp_ns: 0,
            reference: 0,
            new_reference: 0,
            shares: 0,
            price_e4: 0,
        };
        Some(match message {
            Message::AddOrder(m) => OrderMessage {
                side: m.side(),
                timestamp_ns: m.timestamp_ns(),
                reference: m.order_reference(),
                shares: m.shares(),
                price_e4: m.price_e4(),
                ..empty
            },
            Message::AddOrderMpid(m) => OrderMessage {
                side: m.side(),
                timestamp_ns: m.timestamp_ns(),
                reference: m.order_reference(),
                shares: m.shares(),
                price_e4: m.price_e4(),
                ..empty
            },
            Message::OrderDelete(m) => OrderMessage {
                action: OrderAction::Delete,
                timestamp_ns: m.timestamp_ns(),
                reference: m.order_reference(),
                ..empty
            },
            Message::OrderCancel(m) => OrderMessage {
                action: OrderAction::Cancel,
                timestamp_ns: m.timestamp_ns(),
                reference: m.order_reference(),
                shares: m.cancelled_shares(),
                ..empty
            },
            Message::OrderExecuted(m) => OrderMessage {
                action: OrderAction::Execute,
                timestamp_ns: m.timestamp_ns(),
                reference: m.order_reference(),
                shares: m.executed_shares(),
                ..empty
            },
            Message::OrderExecutedWithPrice(m) => OrderMessage {
                action: OrderAction::ExecuteAtPrice,
                timestamp_ns: m.timestamp_ns(),
                reference: m.order_reference(),
                shares: m.executed_shares(),
                price_e4: m.execution_price_e4(),
                ..empty
            },
            Message::OrderReplace(m) => OrderMessage {
                action: OrderAction::Replace,
                timestamp_ns: m.timestamp_ns(),
                reference: m.original_reference(),
                new_reference: m.new_reference(),
                shares: m.shares(),
                price_e4: m.price_e4(),
                ..empty
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
            cut in prop::bool::weighted(0.1),
        ) {
            bytes[0] = tag;
            bytes[19] = if sells { b'S' } else { b'B' };
            bytes.truncate(usize::from(LEN_BYTES[usize::from(tag)]).saturating_sub(usize::from(cut)));
            match parse(&bytes) {
                Ok(message) => prop_assert_eq!(parse_order(&bytes), Ok(by_view(&message))),
                Err(error) => prop_assert_eq!(parse_order(&bytes), Err(error)),
            }
        }
    }
}
