//! The strategy alone: the test is its book, and the exchange that reports to it.

use std::time::Duration;

use verbline::cli::App;
use verbline::testing::StageTest;

use super::*;
use crate::TickToTrade;
use crate::itch::{Side, Symbol};
use crate::risk::{OrderView, Quote, Top};
use crate::stages::alone::alone;

/// A strategy that orders 100 at once, and may hold 100.
struct Rig {
    app: TickToTrade,
    strategy: StageTest,
}

impl Rig {
    fn new() -> Rig {
        let app = TickToTrade::default();
        let strategy = alone(&app, "strategy", &["trigger.quantity=100", "risk.position_max=100"]);
        Rig { app, strategy }
    }

    /// Tilts the book of an instrument to a side. Returns the order that comes of it, if one does.
    fn order(&mut self, side: Side) -> Option<ExecutionReport> {
        self.strategy.advance(Duration::from_millis(10));
        let (bid, ask) = if side == Side::Buy { (80, 10) } else { (10, 80) };
        let quote = |price, size| Quote { price, size };
        let top = Top { bid: quote(10_000, bid), ask: quote(10_001, ask) };
        let symbol = Symbol::new("TEST").expect("a symbol");
        let update = Update { instrument: 3, reset: true, number: 7, symbol, tick: 1, top, last: 0 };
        let packet = self.strategy.packet("port.md_a", &update.to_bytes());
        self.strategy.process([packet]);
        let sent = self.strategy.sent("order");
        let order = sent.first().map(|packet| {
            let order = OrderView::parse(&packet.data()[..ORDER_LEN_BYTES]).expect("an order");
            assert_eq!((order.side(), order.quantity()), (side, 100));
            ExecutionReport { order_id: order.id(), side, filled: 100, cancelled: 0 }
        });
        assert!(sent.len() <= 1);
        order
    }

    fn report(&mut self, report: ExecutionReport) {
        let packet = self.strategy.packet("port.orders", &report.to_bytes());
        self.strategy.process([packet]);
    }

    /// Orders a side, and has it filled. Returns the report.
    #[track_caller]
    fn fill(&mut self, side: Side) -> ExecutionReport {
        let report = self.order(side).expect("an order within the limits");
        self.report(report);
        report
    }

    /// The failures at the end, and what the report says of the strategy.
    fn end(self) -> (Vec<String>, serde_json::Value) {
        let report = self.strategy.finish();
        let outcome = self.app.outcome(&report);
        (outcome.failures, outcome.json["strategy"].clone())
    }
}

/// Regression: each report changed the position, also one that came twice or was of no order of
/// ours, so that the position could exceed its limit.
#[test]
fn a_report_settles_an_order_once() {
    let mut rig = Rig::new();
    let sold = rig.fill(Side::Sell);
    // The same again, one of an order that was never sent, and ones that do not fit the order.
    rig.report(sold);
    rig.report(ExecutionReport { order_id: sold.order_id + (1 << 16), ..sold });
    rig.report(ExecutionReport { order_id: sold.order_id + 1, ..sold });
    // Long again, by two orders: the limit is reached.
    rig.fill(Side::Buy);
    let bought = rig.order(Side::Buy).expect("an order within the limits");
    rig.report(ExecutionReport { side: Side::Sell, ..bought });
    rig.report(ExecutionReport { cancelled: 1, ..bought });
    rig.report(bought);
    assert_eq!(rig.order(Side::Buy), None, "100 are held");
    let (failures, strategy) = rig.end();
    assert_eq!((&strategy["orders_sent"], &strategy["reports"]), (&3.into(), &3.into()), "{strategy}");
    assert_eq!((&strategy["reports_unmatched"], &strategy["filled"]), (&5.into(), &3.into()), "{strategy}");
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert!(failure.contains("5 reports of the exchange match no open order"), "{failure}");
}

/// Regression: a stopped trader sent orders until the drain was over, which waited for no report.
#[test]
fn a_stopped_strategy_sends_no_order_and_waits_for_its_reports() {
    let mut rig = Rig::new();
    let order = rig.order(Side::Buy).expect("an order");
    rig.strategy.stop();
    assert!(rig.strategy.awaits_packets(), "the report");
    rig.report(ExecutionReport { filled: 60, ..order });
    assert!(rig.strategy.awaits_packets(), "the rest of it");
    assert_eq!(rig.order(Side::Sell), None, "the run is stopped");
    rig.report(ExecutionReport { filled: 0, cancelled: 40, ..order });
    assert!(!rig.strategy.awaits_packets());
    let (failures, strategy) = rig.end();
    assert_eq!((&strategy["orders_sent"], &strategy["reports"]), (&1.into(), &1.into()), "{strategy}");
    assert_eq!(failures, [""; 0]);
}

/// An order may be filled in parts, each with a report, and the rest of it be cancelled.
#[test]
fn an_order_is_settled_by_several_reports() {
    let mut rig = Rig::new();
    let order = rig.order(Side::Buy).expect("an order");
    rig.report(ExecutionReport { filled: 30, ..order });
    rig.report(ExecutionReport { filled: 20, ..order });
    assert_eq!(rig.order(Side::Buy), None, "the rest of it is reserved");
    rig.report(ExecutionReport { filled: 0, cancelled: 50, ..order });
    rig.report(ExecutionReport { filled: 1, ..order });
    // 50 are held: 100 more are too many, 100 less are not.
    assert_eq!(rig.order(Side::Buy), None);
    rig.fill(Side::Sell);
    let (_, strategy) = rig.end();
    assert_eq!((&strategy["orders_sent"], &strategy["reports"]), (&2.into(), &2.into()), "{strategy}");
    assert_eq!(strategy["reports_unmatched"], 1, "{strategy}");
}
