//! A book of another crate, fed by the fastest of the other parsers.
//!
//! lobster's books match orders; those of a recorded feed never cross, so that each add rests where it is put. What it
//! has no call for is made of what it has: a reduced order is cancelled and placed again with what is left.

use std::collections::HashMap;
use std::ops::ControlFlow;

use itch5::messages as m;
use lobster::{OrderBook, OrderType, Side};

/// itch5 into one lobster book an instrument. Gives how many messages there were, and the sum of the best prices.
pub fn lobster(feed: &[u8]) -> (u64, u64) {
    let mut books = Books::default();
    itch5::Parser::new(feed).parse_stream(&mut books).expect("messages of ITCH 5.0");
    let best = |book: &OrderBook| book.max_bid().unwrap_or(0) + book.min_ask().unwrap_or(0);
    (books.count, books.by_locate.iter().map(best).sum())
}

/// What lobster does not tell of an order that rests.
struct Resting {
    locate: u16,
    side: Side,
    shares: u32,
    price: u32,
}

#[derive(Default)]
struct Books {
    by_locate: Vec<OrderBook>,
    resting: HashMap<u64, Resting>,
    count: u64,
}

impl Books {
    fn add(&mut self, reference: u64, order: Resting) {
        let event = OrderType::Limit {
            id: u128::from(reference),
            side: order.side,
            qty: u64::from(order.shares),
            price: u64::from(order.price),
        };
        std::hint::black_box(self.by_locate[usize::from(order.locate)].execute(event));
        self.resting.insert(reference, order);
    }

    fn take_out(&mut self, reference: u64) -> Resting {
        let order = self.resting.remove(&reference).expect("an order that was added");
        let cancel = OrderType::Cancel { id: u128::from(reference) };
        std::hint::black_box(self.by_locate[usize::from(order.locate)].execute(cancel));
        order
    }

    fn reduce(&mut self, reference: u64, shares: u32) {
        let mut order = self.take_out(reference);
        order.shares -= shares;
        if order.shares > 0 {
            self.add(reference, order);
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
                m::BuySellIndicator::Buy => Side::Bid,
                _ => Side::Ask,
            };
            let (locate, shares, price) = (m.stock_locate(), m.shares(), m.price().into_u32());
            self.add(m.order_reference_number(), Resting { locate, side, shares, price });
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
        self.by_locate.extend((0..more).map(|_| OrderBook::default()));
        self.done()
    }

    fn on_order_executed(&mut self, m: &m::OrderExecuted) -> ControlFlow<()> {
        self.reduce(m.order_reference_number(), m.executed_shares());
        self.done()
    }

    fn on_order_executed_with_price(&mut self, m: &m::OrderExecutedWithPrice) -> ControlFlow<()> {
        self.reduce(m.order_reference_number(), m.executed_shares());
        self.done()
    }

    fn on_order_cancel(&mut self, m: &m::OrderCancel) -> ControlFlow<()> {
        self.reduce(m.order_reference_number(), m.cancelled_shares());
        self.done()
    }

    fn on_order_delete(&mut self, m: &m::OrderDelete) -> ControlFlow<()> {
        self.take_out(m.order_reference_number());
        self.done()
    }

    fn on_order_replace(&mut self, m: &m::OrderReplace) -> ControlFlow<()> {
        let old = self.take_out(m.original_order_reference_number());
        let order = Resting { shares: m.shares(), price: m.price().into_u32(), ..old };
        self.add(m.new_order_reference_number(), order);
        self.done()
    }
}
