//! A run's report: the ticks, the orders, the latency with the share of each step, and failures.

mod books;
mod by_stage;
mod ticks;

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use verbline::cli::{count, duration, percent};
use verbline::prelude::*;

use crate::risk::Refusal;
use crate::stages::{ExchangeTally, FortsTally, STEPS, StrategyTally, Tallies};

use by_stage::{each, only};

/// The live line.
pub fn live(report: &Report) -> String {
    let sum = |name| -> u64 { report.stages.iter().filter_map(|stage| stage.counter(name)).sum() };
    let is_exchange = |stage: &&verbline::engine::StageReport| stage.counter("ticks").is_some();
    // A trader alone counts what it receives and sends.
    let has_exchange = report.stages.iter().any(|stage| is_exchange(&stage));
    // The exchange and the strategy both count orders; the exchange's are the ones that arrived.
    let orders = report.stages.iter().filter(|stage| is_exchange(stage) == has_exchange);
    let orders: u64 = orders.filter_map(|stage| stage.counter("orders")).sum();
    let ticks = sum(if has_exchange { "ticks" } else { "received" });
    let per_second = ticks as f64 * 1e9 / report.elapsed_ns.max(1) as f64;
    let (ticks, gaps) = (count(ticks), count(sum("gaps")));
    let stale = match sum("stale_books") {
        0 => String::new(),
        stale => format!(", {} books not right", count(stale)),
    };
    format!("{ticks} ticks ({}/s), {} orders, {gaps} gaps{stale}", count(per_second as u64), count(orders))
}

/// The app's part of the report.
pub fn outcome(report: &Report, tallies: &Tallies) -> Outcome {
    let mut outcome = Outcome::default();
    ticks::ticks(report, tallies, &mut outcome);
    // If the trader is another process, two clocks time the steps.
    let has_steps = !tallies.arbiters.is_empty();
    each(&tallies.exchanges, &mut outcome, |exchange, outcome| latency(exchange, has_steps, outcome));
    // With several exchanges, the one behind a book is unknown.
    let origin = only(&tallies.origins);
    each(&tallies.itch, &mut outcome, |itch, outcome| {
        books::itch(report, itch, origin, outcome);
        told(itch.untold, outcome);
    });
    if tallies.itch.is_empty() || origin.is_none() {
        each(&tallies.origins, &mut outcome, |origin, outcome| books::served(&origin.services, outcome));
    }
    each(&tallies.forts, &mut outcome, |forts, outcome| {
        forts_books(forts, outcome);
        told(forts.untold, outcome);
    });
    each(&tallies.strategies, &mut outcome, orders);
    outcome
}

fn latency(exchange: &ExchangeTally, has_steps: bool, outcome: &mut Outcome) {
    let times = &exchange.tick_to_trade_ns;
    let (p50, p99, p999) =
        (times.value_at_quantile(0.5), times.value_at_quantile(0.99), times.value_at_quantile(0.999));
    let whole = exchange.steps_ns.into_iter().fold(0, u64::saturating_add);
    let share = |part: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let mean = |part: u64| part / times.len().max(1);
    let steps = STEPS.iter().zip(exchange.steps_ns).filter(|_| has_steps);
    let json_steps: Vec<Value> =
        steps.clone().map(|(name, sum)| json!({ "step": name, "mean_ns": mean(sum), "share": share(sum) })).collect();
    let mut json = Map::new();
    for (name, value) in [("p50", p50), ("p99", p99), ("p999", p999), ("max", times.max()), ("min", times.min())] {
        json.insert(name.to_owned(), json!(value));
    }
    outcome.json.insert("tick_to_trade_ns".into(), Value::Object(json));
    outcome.json.insert("steps".into(), json!(json_steps));
    if exchange.unknown_ticks > 0 {
        let _ = writeln!(
            outcome.text,
            "latency  {} orders for ticks that are not known: not measured",
            count(exchange.unknown_ticks)
        );
    }
    if exchange.malformed_orders > 0 {
        let _ = writeln!(
            outcome.text,
            "latency  {} messages were no orders; see whether their senders are traders of this\n         version",
            count(exchange.malformed_orders)
        );
    }
    if times.is_empty() {
        let _ = writeln!(outcome.text, "latency  no order arrived: nothing to measure");
        return;
    }
    let _ = writeln!(
        outcome.text,
        "latency  from the scheduled time of a tick to the arrival of its order:\n         \
         p50 {}  p99 {}  p99.9 {}  max {}",
        duration(p50),
        duration(p99),
        duration(p999),
        duration(times.max()),
    );
    let shares: Vec<_> =
        steps.map(|(name, sum)| format!("{name} {} ({})", duration(mean(sum)), percent(share(sum)))).collect();
    if has_steps {
        let _ = writeln!(outcome.text, "         mean of each step: {},", shares[..2].join(", "));
        let _ = writeln!(outcome.text, "         {}", shares[2..].join(", "));
    }
}

fn told(untold: u64, outcome: &mut Outcome) {
    if untold > 0 {
        outcome.failures.push(format!(
            "the strategy was not told of {} changes: no packet was free for them, or none of its 1,024 instruments \
             changed",
            count(untold)
        ));
    }
}

fn forts_books(forts: &FortsTally, outcome: &mut Outcome) {
    let books = &forts.books;
    outcome.json.insert(
        "forts".into(),
        json!({ "increments": forts.increments, "entries": forts.entries, "rpt_seq_breaks": books.breaks,
                "snapshots": forts.snapshots, "snapshots_equal": forts.equal_of_changing,
                "snapshots_compared": forts.equal_of_changing + books.different,
                "snapshots_different": books.different,
                "snapshots_equal_without_changes": books.equal - forts.equal_of_changing,
                "books_recovered": books.recovered, "entries_held": books.held, "told": forts.told,
                "untold": forts.untold, "contradictions": forts.contradictions, "malformed": forts.malformed }),
    );
    let _ = writeln!(
        outcome.text,
        "books    {} increments with {} entries, {} RptSeq breaks\n         \
         {} of {} book snapshots equal; {} brought a book back",
        count(forts.increments),
        count(forts.entries),
        count(books.breaks),
        count(forts.equal_of_changing),
        count(forts.equal_of_changing + books.different),
        count(books.recovered),
    );
    if books.different > 0 {
        outcome.failures.push(format!("{} snapshots differ from a book that was held to be right", books.different));
    }
}

fn orders(strategy: &StrategyTally, outcome: &mut Outcome) {
    let refused = Refusal::NAMES.iter().zip(strategy.risk.refused).filter(|(_, refused)| *refused > 0);
    let by_reason: Map<String, Value> =
        refused.clone().map(|(name, refused)| (name.replace(' ', "_"), json!(refused))).collect();
    outcome.json.insert(
        "strategy".into(),
        json!({ "updates": strategy.updates, "crossed": strategy.crossed,
                "intents": strategy.intents, "orders_sent": strategy.orders, "reports": strategy.reports,
                "reports_unmatched": strategy.unmatched,
                "unsent": strategy.unsent, "refused": by_reason, "filled": strategy.filled,
                "cancelled": strategy.cancelled }),
    );
    let _ = writeln!(
        outcome.text,
        "orders   {} sent; {} filled, {} cancelled (in part or whole)",
        count(strategy.orders),
        count(strategy.filled),
        count(strategy.cancelled),
    );
    let _ = writeln!(
        outcome.text,
        "         {} wanted and not sent: another went first, or there was no room",
        count(strategy.unsent)
    );
    let unanswered = strategy.orders.saturating_sub(strategy.reports);
    if unanswered > 0 {
        let _ = writeln!(
            outcome.text,
            "         {} without a report: whether the exchange filled them is unknown",
            count(unanswered)
        );
    }
    if strategy.unmatched > 0 {
        outcome.failures.push(format!(
            "{} reports of the exchange match no open order, and changed no position; compare positions with it",
            count(strategy.unmatched)
        ));
    }
    if strategy.crossed > 0 {
        let _ = writeln!(
            outcome.text,
            "         {} changes of a book that is locked or crossed: nothing comes of them",
            count(strategy.crossed)
        );
    }
    for (name, refused) in refused {
        let _ = writeln!(outcome.text, "         {} refused by the risk limit: {name}", count(refused));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::Histogram;

    use super::*;
    use crate::TickToTrade;
    use crate::stages::alone::alone;

    /// Hands frames of two messages to the arbiter of a trader alone, each after a pause, and
    /// returns the report.
    fn received(app: &TickToTrade, pauses: &[Duration]) -> Report {
        let mut arbiter = alone(app, "arbiter", &["stage.arbiter.params.first=1"]);
        let message = [&[0, 12, b'S'][..], &[0; 11]].concat();
        for (number, pause) in (1_u64..).step_by(2).zip(pauses) {
            arbiter.advance(*pause);
            let frame = [&b"SESSION001"[..], &number.to_be_bytes(), &[0, 2], &message, &message].concat();
            let packet = arbiter.packet("port.md_a", &frame);
            arbiter.process([packet]);
            drop(arbiter.sent("merged"));
        }
        arbiter.stop();
        arbiter.finish()
    }

    /// Regression: the live line of a trader whose exchange is another process stayed at 0 ticks.
    #[test]
    fn the_live_line_of_a_trader_alone_counts_what_it_receives() {
        let line = live(&received(&TickToTrade::default(), &[Duration::ZERO; 2]));
        assert!(line.starts_with("4 ticks ("), "{line}");
    }

    /// Regression: a report said that books were right all the time, though the feed was silent.
    #[test]
    fn a_silence_that_ended_is_told() {
        for (pause_s, told) in [(2, None), (12, Some("the feed was silent for 12.0s in all"))] {
            let app = TickToTrade::default();
            let report = received(&app, &[Duration::ZERO, Duration::from_secs(pause_s)]);
            let outcome = app.outcome(&report);
            assert_eq!(outcome.text.contains("was silent"), told.is_some(), "{}", outcome.text);
            assert!(told.is_none_or(|told| outcome.text.contains(told)), "{}", outcome.text);
            let silent_s = outcome.json["feed_silent_in_all_ns"].as_u64().map(|ns| ns / 1_000_000_000);
            assert_eq!(silent_s, Some(if told.is_some() { pause_s } else { 0 }));
        }
    }

    /// Regression: an exchange to which only another app's peers came said nothing of them.
    #[test]
    fn messages_that_are_no_orders_are_told() {
        let exchange = ExchangeTally {
            published: 0,
            dropped: [0; 2],
            dropped_both: 0,
            orders: 0,
            malformed_orders: 3,
            unknown_ticks: 0,
            unanswered: 0,
            tick_to_trade_ns: Histogram::new(3).expect("three digits"),
            steps_ns: [0; 4],
        };
        let mut outcome = Outcome::default();
        latency(&exchange, false, &mut outcome);
        assert!(outcome.text.starts_with("latency  3 messages were no orders"), "{}", outcome.text);
        assert!(outcome.failures.is_empty() && outcome.text.contains("no order arrived"), "{}", outcome.text);
    }

    /// Regression: nothing said how many orders an exchange that was killed had left unanswered.
    #[test]
    fn orders_without_a_report_are_told() {
        for (reports, told) in [(7, None), (5, Some("2 without a report"))] {
            let (strategy, mut outcome) =
                (StrategyTally { orders: 7, reports, ..StrategyTally::default() }, Outcome::default());
            orders(&strategy, &mut outcome);
            assert_eq!(outcome.text.contains("without a report"), told.is_some(), "{}", outcome.text);
            assert!(told.is_none_or(|told| outcome.text.contains(told)), "{}", outcome.text);
            assert_eq!(outcome.json["strategy"]["reports"], reports);
        }
    }
}
