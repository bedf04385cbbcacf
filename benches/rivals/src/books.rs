//! Books of another crate, fed by the fastest of the other parsers.
//!
//! hftbacktest's depth by order, in its fastest form: a vector over a range of prices. Changes
//! without a call of their own are composed: a reduced order is looked up and modified, a replaced
//! one deleted and added.

use std::ops::ControlFlow;

use hftbacktest::depth::{INVALID_MAX, INVALID_MIN, L3MarketDepth, MarketDepth, ROIVectorMarketDepth};
use hftbacktest::types::Side;
use itch5::messages as m;

/// A cent, the price step of the feed.
const TICK: f64 = 0.01;
const TICK_E4: u64 = 100;
/// The range of prices in dollars. The feed stays within it.
const PRICES: [f64; 2] = [0.01, 600.0];

/// Reads a feed by itch5 into one book per instrument. Returns the number of messages, and the sum
/// of the best prices.
pub fn hftbacktest(feed: &[u8]) -> (u64, u64) {
    let mut books = Books::default();
    itch5::Parser::new(feed).parse_stream(&mut books).expect("messages of ITCH 5.0");
    let best = |book: &ROIVectorMarketDepth| {
        let ticks = [book.best_bid_tick(), book.best_ask_tick()];
        ticks
            .into_iter()
            .filter(|tick| ![INVALID_MIN, INVALID_MAX].contains(tick))
            .map(|tick| tick as u64 * TICK_E4)
            .sum::<u64>()
    };
    (books.count, books.by_locate.iter().map(best).sum())
}

#[derive(Default)]
struct Books {
    by_locate: Vec<ROIVectorMarketDepth>,
    count: u64,
}

impl Books {
    fn add(&mut self, locate: u16, reference: u64, side: Side, shares: u32, price_e4: u32) {
        let book = &mut self.by_locate[usize::from(locate)];
        let (price, shares) = (f64::from(price_e4) / 10_000.0, f64::from(shares));
        let change = match side {
            Side::Buy => book.add_buy_order(reference, price, shares, 0),
            _ => book.add_sell_order(reference, price, shares, 0),
        };
        std::hint::black_box(change.expect("a new order"));
    }

    fn take_out(&mut self, locate: u16, reference: u64) -> Side {
        let book = &mut self.by_locate[usize::from(locate)];
        std::hint::black_box(book.delete_order(reference, 0)).expect("an order that was added").0
    }

    fn reduce(&mut self, locate: u16, reference: u64, shares: u32) {
        let book = &mut self.by_locate[usize::from(locate)];
        let order = book.orders().get(&reference).expect("an order that was added");
        let (left, price) = (order.qty - f64::from(shares), order.price_tick as f64 * TICK);
        if left > 0.0 {
            std::hint::black_box(book.modify_order(reference, price, left, 0).expect("an order that was added"));
        } else {
            self.take_out(locate, reference);
        }
    }

    fn done(&mut self) -> ControlFlow<()> {
        self.count += 1;
        ControlFlow::Continue(())
    }
}

/// Messages that change no book.
macro_rules! others {
    ($($method:ident: $message:ident),* $(,)?) => {
        $(fn $method(&mut self, _: &m::$message) -> ControlFlow<()> {
            self.done()
        })*
    };
}

macro_rules! adds {
    ($($method:ident: $message:ident),* $(,)?) => {
        $(fn $method(&mut self, m: &m::$message) -> ControlFlow<()> {
            let side = match m.buy_sell_indicator() {
                m::BuySellIndicator::Buy => Side::Buy,
                _ => Side::Sell,
            };
            self.add(m.stock_locate(), m.order_reference_number(), side, m.shares(), m.price().into_u32());
            self.done()
        })*
    };
}

impl itch5::MessageHandler for Books {
    others! {
        on_system_event: SystemEvent, on_stock_trading_action: StockTradingAction,
        on_reg_sho_restriction: RegSHORestriction, on_market_participant_position: MarketParticipantPosition,
        on_mwcb_decline_level: MWCBDeclineLevel, on_mwcb_status: MWCBStatus,
        on_quoting_period_update: QuotingPeriodUpdate, on_luld_auction_collar: LULDAuctionCollar,
        on_operational_halt: OperationalHalt, on_trade: Trade, on_cross_trade: CrossTrade,
        on_broken_trade: BrokenTrade, on_net_order_imbalance_indicator: NetOrderImbalanceIndicator,
        on_retail_price_improvement_indicator: RetailPriceImprovementIndicator,
        on_direct_listing_with_capital_raise_price_discovery: DirectListingwithCapitalRaisePriceDiscovery,
    }

    adds! {
        on_add_order_no_mpid_attribution: AddOrderNoMPIDAttribution,
        on_add_order_with_mpid_attribution: AddOrderWithMPIDAttribution,
    }

    fn on_stock_directory(&mut self, m: &m::StockDirectory) -> ControlFlow<()> {
        let books = usize::from(m.stock_locate()) + 1;
        let more = books.saturating_sub(self.by_locate.len());
        let book = || ROIVectorMarketDepth::new(TICK, 1.0, PRICES[0], PRICES[1]);
        self.by_locate.extend((0..more).map(|_| book()));
        self.done()
    }

    fn on_order_executed(&mut self, m: &m::OrderExecuted) -> ControlFlow<()> {
        self.reduce(m.stock_locate(), m.order_reference_number(), m.executed_shares());
        self.done()
    }

    fn on_order_executed_with_price(&mut self, m: &m::OrderExecutedWithPrice) -> ControlFlow<()> {
        self.reduce(m.stock_locate(), m.order_reference_number(), m.executed_shares());
        self.done()
    }

    fn on_order_cancel(&mut self, m: &m::OrderCancel) -> ControlFlow<()> {
        self.reduce(m.stock_locate(), m.order_reference_number(), m.cancelled_shares());
        self.done()
    }

    fn on_order_delete(&mut self, m: &m::OrderDelete) -> ControlFlow<()> {
        self.take_out(m.stock_locate(), m.order_reference_number());
        self.done()
    }

    fn on_order_replace(&mut self, m: &m::OrderReplace) -> ControlFlow<()> {
        let side = self.take_out(m.stock_locate(), m.original_order_reference_number());
        let (shares, price_e4) = (m.shares(), m.price().into_u32());
        self.add(m.stock_locate(), m.new_order_reference_number(), side, shares, price_e4);
        self.done()
    }
}
