//! The ticks in the report: published, received, dropped on purpose and lost, in a run with both
//! halves or with one.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use verbline::cli::{count, duration};
use verbline::prelude::*;

use crate::arbitration::ArbiterCounts;
use crate::stages::{ArbiterTally, ExchangeTally, Tallies};

use super::by_stage::{each, only};

/// Reports the halves that the plan has; if it has both, compares them.
pub(super) fn ticks(report: &Report, tallies: &Tallies, outcome: &mut Outcome) {
    let (exchanges, arbiters) = (&tallies.exchanges, &tallies.arbiters);
    each(exchanges, outcome, |exchange, outcome| published(exchange, &mut outcome.json));
    each(arbiters, outcome, |arbiter, outcome| received(&arbiter.counts, &mut outcome.json));
    match only(exchanges) {
        Some(exchange) if !arbiters.is_empty() => {
            each(arbiters, outcome, |arbiter, outcome| both(report, exchange, &arbiter.counts, outcome));
        }
        // With several exchanges, the one of an arbiter is unknown.
        _ => {
            each(exchanges, outcome, |exchange, outcome| of_exchange(exchange, &mut outcome.text));
            each(arbiters, outcome, |arbiter, outcome| {
                of_trader(report, &arbiter.counts, outcome);
                silent(arbiter, outcome);
            });
        }
    }
    if exchanges.is_empty() && arbiters.is_empty() && report.failures.is_empty() {
        outcome.failures.push("the plan has no exchange and no arbiter, so there is nothing to report".to_owned());
    }
    each(&tallies.origins, outcome, |origin, outcome| pauses(origin.skipped_ns, outcome));
}

fn published(exchange: &ExchangeTally, json: &mut Map<String, Value>) {
    let [dropped_a, dropped_b] = exchange.dropped;
    json.insert("ticks_published".into(), json!(exchange.published));
    json.insert("dropped_on_purpose".into(), json!({ "a": dropped_a, "b": dropped_b, "both": exchange.dropped_both }));
    json.insert("orders".into(), json!(exchange.orders));
    json.insert("orders_of_unknown_ticks".into(), json!(exchange.unknown_ticks));
    json.insert("orders_unanswered".into(), json!(exchange.unanswered));
}

fn received(arbiter: &ArbiterCounts, json: &mut Map<String, Value>) {
    let [received_a, received_b] = arbiter.received;
    json.insert("ticks_received".into(), json!(arbiter.delivered));
    json.insert("received_a".into(), json!(received_a));
    json.insert("received_b".into(), json!(received_b));
    json.insert("duplicates".into(), json!(arbiter.duplicates));
    json.insert("late".into(), json!(arbiter.late));
    json.insert("gaps".into(), json!(arbiter.gaps));
    json.insert("ticks_missing".into(), json!(arbiter.lost));
}

fn of_exchange(exchange: &ExchangeTally, text: &mut String) {
    let [dropped_a, dropped_b] = exchange.dropped;
    let _ = writeln!(
        text,
        "ticks    {} published; dropped on purpose: {} on channel A, {} on B,\n         \
         {} on both",
        count(exchange.published),
        count(dropped_a),
        count(dropped_b),
        count(exchange.dropped_both),
    );
}

fn of_trader(report: &Report, arbiter: &ArbiterCounts, outcome: &mut Outcome) {
    let [received_a, received_b] = arbiter.received;
    let _ = writeln!(
        outcome.text,
        "ticks    {} received, {} of them twice; {} by channel A, {} by B",
        count(arbiter.delivered),
        count(arbiter.duplicates),
        count(received_a),
        count(received_b),
    );
    gaps(arbiter, &mut outcome.text);
    if arbiter.delivered == 0
        && let Some(why) = of_another_session(report)
    {
        outcome.failures.push(format!("no tick was received: {why}"));
    }
}

/// Reports an exchange that was silent, or is gone: the books stay as it left them, and it sent no
/// end of session.
fn silent(arbiter: &ArbiterTally, outcome: &mut Outcome) {
    outcome.json.insert("feed_silent_in_all_ns".into(), json!(arbiter.silent_in_all_ns));
    if arbiter.silent_in_all_ns > 0 {
        let _ = writeln!(
            outcome.text,
            "         the feed was silent for {} in all: no book was known to be right then",
            duration(arbiter.silent_in_all_ns)
        );
    }
    let Some(silent_ns) = arbiter.silent_ns else { return };
    outcome.json.insert("feed_silent_ns".into(), json!(silent_ns));
    outcome.failures.push(format!(
        "the feed had been silent for {} at the end: no book is known to be right; see whether the exchange runs, and \
         what is between",
        duration(silent_ns)
    ));
}

fn gaps(arbiter: &ArbiterCounts, text: &mut String) {
    let _ = writeln!(
        text,
        "         gaps: {}, with {} ticks missing; {} came too late",
        count(arbiter.gaps),
        count(arbiter.lost),
        count(arbiter.late),
    );
}

fn both(report: &Report, exchange: &ExchangeTally, arbiter: &ArbiterCounts, outcome: &mut Outcome) {
    let ([received_a, received_b], [dropped_a, dropped_b]) = (arbiter.received, exchange.dropped);
    // Messages that came by neither channel and were not dropped on purpose: lost for want of a
    // posted receive buffer. And messages that came without having been published.
    let accounted = arbiter.delivered + arbiter.late + exchange.dropped_both;
    let unaccounted = exchange.published.saturating_sub(accounted);
    let surplus = accounted.saturating_sub(exchange.published);
    outcome.json.insert("ticks_unaccounted".into(), json!(unaccounted));
    outcome.json.insert("ticks_surplus".into(), json!(surplus));
    let _ = writeln!(
        outcome.text,
        "ticks    {} published, {} received, {} of them twice\n         \
         channel A: {} received, {} dropped on purpose\n         \
         channel B: {} received, {} dropped on purpose, {} on both",
        count(exchange.published),
        count(arbiter.delivered),
        count(arbiter.duplicates),
        count(received_a),
        count(dropped_a),
        count(received_b),
        count(dropped_b),
        count(exchange.dropped_both),
    );
    gaps(arbiter, &mut outcome.text);
    if unaccounted > 0 {
        outcome.failures.push(format!(
            "{} ticks were neither received nor dropped on purpose: {}",
            count(unaccounted),
            why_unaccounted(report)
        ));
    }
    if surplus > 0 {
        outcome.failures.push(format!(
            "{} ticks more arrived than this exchange published: somebody else sends to its groups, or the exchange \
             counts wrongly",
            count(surplus)
        ));
    }
}

/// Why the arbiter missed ticks that the exchange published, and the remedy.
fn why_unaccounted(report: &Report) -> String {
    of_another_session(report).unwrap_or_else(|| {
        "the trader had no receive buffer posted for them; raise rx_depth_wr of its market-data ports, or lower the \
         rate"
            .to_owned()
    })
}

/// The arbiter's drops of packets of another session, and the remedy; `None` without any.
fn of_another_session(report: &Report) -> Option<String> {
    let drop = report.drops.iter().find(|drop| drop.reason == "wrong_session" && drop.packets > 0)?;
    Some(format!(
        "{} dropped {} packets of another session than the one that it follows; write the feed's `session` in its \
         params, or leave it out",
        drop.place,
        count(drop.packets)
    ))
}

/// The exchange's own pauses: the feed is shorter by them, and nothing of it is lost.
fn pauses(skipped_ns: u64, outcome: &mut Outcome) {
    outcome.json.insert("feed_skipped_ns".into(), json!(skipped_ns));
    if skipped_ns > 0 {
        let _ = writeln!(
            outcome.text,
            "         the exchange did not run for {}, and published nothing then",
            duration(skipped_ns)
        );
    }
}
