//! itchy and itch5, each by the first interface of its documentation.

use std::ops::ControlFlow;

use itch5::messages as m;
use itchy::Body;

/// `MessageStream` over the bytes in memory. Returns the number of messages, and the sum of their
/// fields.
pub fn itchy(feed: &[u8]) -> (u64, u64) {
    let (mut count, mut sum) = (0, 0u64);
    for message in itchy::MessageStream::from_reader(feed) {
        let message = message.expect("a message of ITCH 5.0");
        count += 1;
        sum = sum.wrapping_add(fields_of_itchy(&message));
    }
    (count, sum)
}

fn fields_of_itchy(message: &itchy::Message) -> u64 {
    let time = message.timestamp;
    match &message.body {
        Body::AddOrder(order) => {
            let side = match order.side {
                itchy::Side::Buy => b'B',
                itchy::Side::Sell => b'S',
            };
            order.reference ^ u64::from(side) ^ u64::from(order.shares) ^ u64::from(order.price.raw()) ^ time
        }
        Body::OrderExecuted { reference, executed, .. } => reference ^ u64::from(*executed) ^ time,
        Body::OrderExecutedWithPrice { reference, executed, price, .. } => {
            reference ^ u64::from(*executed) ^ u64::from(price.raw()) ^ time
        }
        Body::OrderCancelled { reference, cancelled } => reference ^ u64::from(*cancelled) ^ time,
        Body::DeleteOrder { reference } => reference ^ time,
        Body::ReplaceOrder(order) => {
            order.old_reference
                ^ order.new_reference.rotate_left(32)
                ^ u64::from(order.shares)
                ^ u64::from(order.price.raw())
                ^ time
        }
        _ => u64::from(message.tag),
    }
}

/// `Parser::parse_stream` with a handler. Returns the same as [`itchy`].
pub fn itch5(feed: &[u8]) -> (u64, u64) {
    let mut reader = Reader::default();
    itch5::Parser::new(feed).parse_stream(&mut reader).expect("messages of ITCH 5.0");
    (reader.count, reader.sum)
}

#[derive(Default)]
struct Reader {
    count: u64,
    sum: u64,
}

impl Reader {
    fn add(&mut self, fields: u64) -> ControlFlow<()> {
        self.count += 1;
        self.sum = self.sum.wrapping_add(fields);
        ControlFlow::Continue(())
    }
}

/// Messages that change no book count by their type.
macro_rules! others {
    ($($method:ident: $message:ident),* $(,)?) => {
        $(fn $method(&mut self, _: &m::$message) -> ControlFlow<()> {
            self.add(u64::from(m::$message::TAG))
        })*
    };
}

impl itch5::MessageHandler for Reader {
    others! {
        on_system_event: SystemEvent, on_stock_directory: StockDirectory, on_stock_trading_action: StockTradingAction,
        on_reg_sho_restriction: RegSHORestriction, on_market_participant_position: MarketParticipantPosition,
        on_mwcb_decline_level: MWCBDeclineLevel, on_mwcb_status: MWCBStatus,
        on_quoting_period_update: QuotingPeriodUpdate, on_luld_auction_collar: LULDAuctionCollar,
        on_operational_halt: OperationalHalt, on_trade: Trade, on_cross_trade: CrossTrade,
        on_broken_trade: BrokenTrade, on_net_order_imbalance_indicator: NetOrderImbalanceIndicator,
        on_retail_price_improvement_indicator: RetailPriceImprovementIndicator,
        on_direct_listing_with_capital_raise_price_discovery: DirectListingwithCapitalRaisePriceDiscovery,
    }

    fn on_add_order_no_mpid_attribution(&mut self, m: &m::AddOrderNoMPIDAttribution) -> ControlFlow<()> {
        self.add(
            m.order_reference_number()
                ^ side(m.buy_sell_indicator())
                ^ u64::from(m.shares())
                ^ u64::from(m.price().into_u32())
                ^ m.timestamp().to_u64(),
        )
    }

    fn on_add_order_with_mpid_attribution(&mut self, m: &m::AddOrderWithMPIDAttribution) -> ControlFlow<()> {
        self.add(
            m.order_reference_number()
                ^ side(m.buy_sell_indicator())
                ^ u64::from(m.shares())
                ^ u64::from(m.price().into_u32())
                ^ m.timestamp().to_u64(),
        )
    }

    fn on_order_executed(&mut self, m: &m::OrderExecuted) -> ControlFlow<()> {
        self.add(m.order_reference_number() ^ u64::from(m.executed_shares()) ^ m.timestamp().to_u64())
    }

    fn on_order_executed_with_price(&mut self, m: &m::OrderExecutedWithPrice) -> ControlFlow<()> {
        self.add(
            m.order_reference_number()
                ^ u64::from(m.executed_shares())
                ^ u64::from(m.execution_price().into_u32())
                ^ m.timestamp().to_u64(),
        )
    }

    fn on_order_cancel(&mut self, m: &m::OrderCancel) -> ControlFlow<()> {
        self.add(m.order_reference_number() ^ u64::from(m.cancelled_shares()) ^ m.timestamp().to_u64())
    }

    fn on_order_delete(&mut self, m: &m::OrderDelete) -> ControlFlow<()> {
        self.add(m.order_reference_number() ^ m.timestamp().to_u64())
    }

    fn on_order_replace(&mut self, m: &m::OrderReplace) -> ControlFlow<()> {
        self.add(
            m.original_order_reference_number()
                ^ m.new_order_reference_number().rotate_left(32)
                ^ u64::from(m.shares())
                ^ u64::from(m.price().into_u32())
                ^ m.timestamp().to_u64(),
        )
    }
}

fn side(side: m::BuySellIndicator) -> u64 {
    u64::from(match side {
        m::BuySellIndicator::Buy => b'B',
        m::BuySellIndicator::Sell => b'S',
        _ => 0,
    })
}
