//! Encodes ITCH 5.0 messages, for the generator and for tests.
//!
//! Each function fills the front of `out` and returns the message's length, or `None` if `out` is
//! too short, which then is unchanged. Fields that a generated feed does not use are spaces or
//! zeros, as the specification pads them.

use super::{
    AddOrder, AddOrderMpid, BrokenTrade, CrossTrade, Imbalance, OperationalHalt, OrderCancel, OrderDelete,
    OrderExecuted, OrderExecutedWithPrice, OrderReplace, Side, StockDirectory, Symbol, SystemEvent, Trade,
    TradingAction,
};

/// The common header of all messages, after the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The instrument's locate code, 0 for none.
    pub stock_locate: u16,
    /// Any number.
    pub tracking_number: u16,
    /// Nanoseconds since midnight; the low 48 bits are written.
    pub timestamp_ns: u64,
}

/// `S`.
pub fn system_event(out: &mut [u8], header: Header, event_code: u8) -> Option<usize> {
    let m = start::<{ SystemEvent::LEN_BYTES }>(out, SystemEvent::TAG, header)?;
    m[11] = event_code;
    Some(m.len())
}

/// `R`: a live instrument traded in lots of 100.
pub fn stock_directory(out: &mut [u8], header: Header, stock: Symbol) -> Option<usize> {
    let m = start::<{ StockDirectory::LEN_BYTES }>(out, StockDirectory::TAG, header)?;
    put(m, 11, stock.0);
    put(m, 19, *b"QN");
    put(m, 21, 100u32.to_be_bytes());
    put(m, 25, *b"NCZ PN 1N");
    put(m, 34, 0u32.to_be_bytes());
    m[38] = b'N';
    Some(m.len())
}

/// `H`.
pub fn trading_action(out: &mut [u8], header: Header, stock: Symbol, trading_state: u8) -> Option<usize> {
    let m = start::<{ TradingAction::LEN_BYTES }>(out, TradingAction::TAG, header)?;
    put(m, 11, stock.0);
    m[19] = trading_state;
    put(m, 20, *b"     ");
    Some(m.len())
}

/// `h`.
pub fn operational_halt(out: &mut [u8], header: Header, stock: Symbol, market: u8, action: u8) -> Option<usize> {
    let m = start::<{ OperationalHalt::LEN_BYTES }>(out, OperationalHalt::TAG, header)?;
    put(m, 11, stock.0);
    (m[19], m[20]) = (market, action);
    Some(m.len())
}

/// A new order, for `A`, `F` and `P`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewOrder {
    /// The order's reference number.
    pub reference: u64,
    /// Its side.
    pub side: Side,
    /// Its shares.
    pub shares: u32,
    /// Its instrument.
    pub stock: Symbol,
    /// Its price in 1/10 000 dollar.
    pub price_e4: u32,
}

/// `A`.
pub fn add_order(out: &mut [u8], header: Header, order: NewOrder) -> Option<usize> {
    let m = start::<{ AddOrder::LEN_BYTES }>(out, AddOrder::TAG, header)?;
    put_order(m, order);
    Some(m.len())
}

/// `F`.
pub fn add_order_mpid(out: &mut [u8], header: Header, order: NewOrder, attribution: [u8; 4]) -> Option<usize> {
    let m = start::<{ AddOrderMpid::LEN_BYTES }>(out, AddOrderMpid::TAG, header)?;
    put_order(m, order);
    put(m, 36, attribution);
    Some(m.len())
}

/// `E`.
pub fn order_executed(out: &mut [u8], h: Header, reference: u64, shares: u32, match_number: u64) -> Option<usize> {
    let m = start::<{ OrderExecuted::LEN_BYTES }>(out, OrderExecuted::TAG, h)?;
    put(m, 11, reference.to_be_bytes());
    put(m, 19, shares.to_be_bytes());
    put(m, 23, match_number.to_be_bytes());
    Some(m.len())
}

/// `C`, printable.
pub fn order_executed_with_price(
    out: &mut [u8],
    header: Header,
    reference: u64,
    shares: u32,
    match_number: u64,
    price_e4: u32,
) -> Option<usize> {
    let m = start::<{ OrderExecutedWithPrice::LEN_BYTES }>(out, OrderExecutedWithPrice::TAG, header)?;
    put(m, 11, reference.to_be_bytes());
    put(m, 19, shares.to_be_bytes());
    put(m, 23, match_number.to_be_bytes());
    m[31] = b'Y';
    put(m, 32, price_e4.to_be_bytes());
    Some(m.len())
}

/// `X`.
pub fn order_cancel(out: &mut [u8], header: Header, reference: u64, shares: u32) -> Option<usize> {
    let m = start::<{ OrderCancel::LEN_BYTES }>(out, OrderCancel::TAG, header)?;
    put(m, 11, reference.to_be_bytes());
    put(m, 19, shares.to_be_bytes());
    Some(m.len())
}

/// `D`.
pub fn order_delete(out: &mut [u8], header: Header, reference: u64) -> Option<usize> {
    let m = start::<{ OrderDelete::LEN_BYTES }>(out, OrderDelete::TAG, header)?;
    put(m, 11, reference.to_be_bytes());
    Some(m.len())
}

/// `U`.
pub fn order_replace(out: &mut [u8], h: Header, original: u64, new: u64, shares: u32, price_e4: u32) -> Option<usize> {
    let m = start::<{ OrderReplace::LEN_BYTES }>(out, OrderReplace::TAG, h)?;
    put(m, 11, original.to_be_bytes());
    put(m, 19, new.to_be_bytes());
    put(m, 27, shares.to_be_bytes());
    put(m, 31, price_e4.to_be_bytes());
    Some(m.len())
}

/// `P`: the order's reference number is 0, as Nasdaq sends it.
pub fn trade(out: &mut [u8], header: Header, order: NewOrder, match_number: u64) -> Option<usize> {
    let m = start::<{ Trade::LEN_BYTES }>(out, Trade::TAG, header)?;
    put_order(m, order);
    put(m, 36, match_number.to_be_bytes());
    Some(m.len())
}

/// `Q`.
pub fn cross_trade(
    out: &mut [u8],
    header: Header,
    stock: Symbol,
    shares: u64,
    price_e4: u32,
    match_number: u64,
    cross_type: u8,
) -> Option<usize> {
    let m = start::<{ CrossTrade::LEN_BYTES }>(out, CrossTrade::TAG, header)?;
    put(m, 11, shares.to_be_bytes());
    put(m, 19, stock.0);
    put(m, 27, price_e4.to_be_bytes());
    put(m, 31, match_number.to_be_bytes());
    m[39] = cross_type;
    Some(m.len())
}

/// `B`.
pub fn broken_trade(out: &mut [u8], header: Header, match_number: u64) -> Option<usize> {
    let m = start::<{ BrokenTrade::LEN_BYTES }>(out, BrokenTrade::TAG, header)?;
    put(m, 11, match_number.to_be_bytes());
    Some(m.len())
}

/// `I`, with the three prices alike.
pub fn imbalance(
    out: &mut [u8],
    header: Header,
    stock: Symbol,
    paired_shares: u64,
    imbalance_shares: u64,
    direction: u8,
    price_e4: u32,
) -> Option<usize> {
    let m = start::<{ Imbalance::LEN_BYTES }>(out, Imbalance::TAG, header)?;
    put(m, 11, paired_shares.to_be_bytes());
    put(m, 19, imbalance_shares.to_be_bytes());
    m[27] = direction;
    put(m, 28, stock.0);
    for at in [36, 40, 44] {
        put(m, at, price_e4.to_be_bytes());
    }
    put(m, 48, *b"O ");
    Some(m.len())
}

fn start<const N: usize>(out: &mut [u8], tag: u8, header: Header) -> Option<&mut [u8; N]> {
    let m = out.first_chunk_mut::<N>()?;
    m[0] = tag;
    m[1..3].copy_from_slice(&header.stock_locate.to_be_bytes());
    m[3..5].copy_from_slice(&header.tracking_number.to_be_bytes());
    m[5..11].copy_from_slice(&header.timestamp_ns.to_be_bytes()[2..]);
    Some(m)
}

fn put<const N: usize, const M: usize>(m: &mut [u8; N], at: usize, value: [u8; M]) {
    m[at..at + M].copy_from_slice(&value);
}

/// Writes reference to price, at the offsets that `A`, `F` and `P` share.
fn put_order<const N: usize>(m: &mut [u8; N], order: NewOrder) {
    put(m, 11, order.reference.to_be_bytes());
    m[19] = order.side.to_byte();
    put(m, 20, order.shares.to_be_bytes());
    put(m, 24, order.stock.0);
    put(m, 32, order.price_e4.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::{Message, parse};
    use super::*;

    const H: Header = Header { stock_locate: 7, tracking_number: 9, timestamp_ns: 0x1234_5678_9abc };
    const ORDER: NewOrder = NewOrder {
        reference: 0x0102_0304_0506_0708,
        side: Side::Sell,
        shares: 300,
        stock: Symbol(*b"VERB    "),
        price_e4: 1_234_500,
    };

    #[test]
    fn what_is_written_is_read_back() {
        let mut out = [0u8; 50];
        let n = add_order_mpid(&mut out, H, ORDER, *b"ABCD").unwrap();
        let Ok(Message::AddOrderMpid(m)) = parse(&out[..n]) else { panic!() };
        assert_eq!((m.stock_locate(), m.tracking_number(), m.timestamp_ns()), (7, 9, 0x1234_5678_9abc));
        assert_eq!((m.order_reference(), m.side(), m.shares()), (ORDER.reference, Side::Sell, 300));
        assert_eq!((m.stock(), m.price_e4(), m.attribution()), (ORDER.stock, 1_234_500, *b"ABCD"));

        let n = order_replace(&mut out, H, 1, 2, 3, 4).unwrap();
        let Ok(Message::OrderReplace(m)) = parse(&out[..n]) else { panic!() };
        assert_eq!((m.original_reference(), m.new_reference(), m.shares(), m.price_e4()), (1, 2, 3, 4));

        let n = order_executed_with_price(&mut out, H, 1, 2, 3, 4).unwrap();
        let Ok(Message::OrderExecutedWithPrice(m)) = parse(&out[..n]) else { panic!() };
        let read = (m.order_reference(), m.executed_shares(), m.match_number(), m.printable(), m.execution_price_e4());
        assert_eq!(read, (1, 2, 3, b'Y', 4));

        let n = imbalance(&mut out, H, ORDER.stock, 1, 2, b'B', 3).unwrap();
        let Ok(Message::Imbalance(m)) = parse(&out[..n]) else { panic!() };
        assert_eq!((m.paired_shares(), m.imbalance_shares(), m.direction(), m.stock()), (1, 2, b'B', ORDER.stock));
        assert_eq!((m.far_price_e4(), m.near_price_e4(), m.reference_price_e4(), m.cross_type()), (3, 3, 3, b'O'));

        let n = cross_trade(&mut out, H, ORDER.stock, 1 << 40, 5, 6, b'C').unwrap();
        let Ok(Message::CrossTrade(m)) = parse(&out[..n]) else { panic!() };
        let read = (m.shares(), m.stock(), m.cross_price_e4(), m.match_number(), m.cross_type());
        assert_eq!(read, (1 << 40, ORDER.stock, 5, 6, b'C'));

        let n = stock_directory(&mut out, H, ORDER.stock).unwrap();
        let Ok(Message::StockDirectory(m)) = parse(&out[..n]) else { panic!() };
        assert_eq!((m.stock(), m.round_lot_shares(), m.authenticity(), m.inverse()), (ORDER.stock, 100, b'P', b'N'));
    }

    #[test]
    fn a_short_buffer_is_refused_untouched() {
        let mut out = [0xee; 35];
        assert_eq!(add_order(&mut out, H, ORDER), None);
        assert_eq!(out, [0xee; 35]);
    }
}
