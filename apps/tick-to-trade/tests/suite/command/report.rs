//! `run --json`: one document with every key that scripts rely on, in which every tick and every
//! packet is accounted for.

use serde_json::Value;
use verbline_tests::{Finished, Program, assert_report_holds, two_lcores};

use crate::command::{PATIENT, app, generated};

/// The report of a run without failures.
#[track_caller]
fn report(program: &Program) -> Value {
    let shown = program.with(["--json"]).run().exited(0);
    let json = shown.json();
    assert_accounted(&json, &shown);
    json
}

/// Asserts that no tick and no packet is lost silently.
#[track_caller]
pub(crate) fn assert_accounted(json: &Value, shown: &Finished) {
    assert_report_holds(json);
    let [published, received, late] = ["ticks_published", "ticks_received", "late"].map(|key| number(json, key));
    let dropped = |channel: &str| number(&json["dropped_on_purpose"], channel);
    assert_eq!(published, received + late + dropped("both"), "{shown}");
    assert_eq!(number(json, "ticks_unaccounted"), 0, "{shown}");
    assert_eq!(number(json, "received_a"), published - dropped("a"), "{shown}");
    assert_eq!(number(json, "received_b"), published - dropped("b"), "{shown}");
    assert_eq!(
        number(json, "received_a") + number(json, "received_b"),
        received + number(json, "duplicates"),
        "{shown}"
    );

    let packets = &json["packets"];
    assert_eq!(number(packets, "held"), 0, "{shown}");
    assert_eq!(number(packets, "taken"), number(packets, "returned"), "{shown}");
    assert!(number(packets, "taken") > 0, "{shown}");
    assert_eq!((&json["failures"], &json["drained"]), (&Value::Array(Vec::new()), &true.into()), "{shown}");
    for lcore in list(&json["lcores"]) {
        assert_eq!((number(lcore, "rescues"), number(lcore, "strays")), (0, 0), "{shown}");
    }
}

/// The value of a whole-number key.
#[track_caller]
pub(crate) fn number(json: &Value, key: &str) -> u64 {
    json[key].as_u64().unwrap_or_else(|| panic!("{key} is {}", json[key]))
}

#[track_caller]
fn list(json: &Value) -> &[Value] {
    json.as_array().map_or_else(|| panic!("no list: {json}"), Vec::as_slice)
}

fn lcore<'a>(json: &'a Value, name: &str) -> &'a Value {
    let found = list(&json["lcores"]).iter().find(|lcore| lcore["name"] == name);
    found.unwrap_or_else(|| panic!("no lcore {name}"))
}

/// Two strategies get the updates of the same books, and each has its part under its stage's name.
#[test]
fn two_lcores_tell_every_strategy_of_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/tick-to-trade.toml");
    let text = std::fs::read_to_string(shipped).unwrap();
    let text = text.replace("changed = \"stage.strategy\"", "changed = \"spread.both\"");
    let second = "[stage.second]\nuse = \"strategy\"\nlcore = \"trader\"\nout = { order = \"drop\" }\n";
    let both = "[spread.both]\nby = \"copy\"\nto = [\"stage.strategy\", \"stage.second\"]\n";
    std::fs::write(&plan, format!("{text}\n{both}{second}")).unwrap();
    let Some(lcores) = two_lcores(["exchange", "trader"]) else { return };
    let run = app().with(["run", &plan.display().to_string(), "--for", "2s", "--json"]).with(lcores);
    let shown = run.with(["--set", "feed.ticks_per_second=2000", "--set", PATIENT]).run().exited(0);
    let json = shown.json();
    assert_accounted(&json, &shown);
    for stage in ["strategy", "second"] {
        assert!(number(&json["by_stage"][stage]["strategy"], "intents") > 0, "{stage}: {shown}");
    }
    assert!(json["strategy"].is_null() && number(&json, "orders") > 0, "{shown}");
}

#[test]
fn two_lcores_give_one_document_with_every_key() {
    let Some(run) = generated("2s", &["feed.drop_a=0.1", "feed.drop_b=0.1"]) else { return };
    let json = report(&run);
    for reason in ["on_purpose_a", "on_purpose_b"] {
        let dropped = list(&json["drops"]).iter().find(|drop| drop["reason"] == reason);
        assert!(dropped.is_some_and(|drop| number(drop, "packets") > 0), "{reason}: {json:#}");
    }
    for key in ["ticks_published", "ticks_received", "duplicates", "gaps", "orders"] {
        assert!(number(&json, key) > 0, "{key}: {json:#}");
    }
    let latency = &json["tick_to_trade_ns"];
    let [p50, p99, p999, max] = ["p50", "p99", "p999", "max"].map(|key| number(latency, key));
    assert!(0 < p50 && p50 <= p99 && p99 <= p999 && p999 <= max, "{latency:#}");
    // The same times as a live view of the run shows, to a quarter.
    let exchange = list(&json["stages"]).iter().find(|stage| stage["name"] == "exchange").unwrap();
    let seen = &exchange["histograms"][0]["times"];
    assert_eq!(number(seen, "count"), number(&json, "orders"), "{exchange:#}");
    let seen_p99 = number(seen, "p99_ns");
    assert!(p99 * 9 / 10 <= seen_p99 && seen_p99 <= p99 * 4 / 3, "{p99} and {seen_p99}: {exchange:#}");
    let steps = list(&json["steps"]);
    let whole: f64 = steps.iter().filter_map(|step| step["share"].as_f64()).sum();
    assert!((0.999..1.001).contains(&whole), "the steps' shares are of one whole: {steps:#?}");

    assert_eq!(list(&json["lcores"]).len(), 2);
    for (name, stages) in [("exchange", &["exchange"][..]), ("trader", &["arbiter", "book", "strategy"])] {
        let lcore = lcore(&json, name);
        assert!(number(lcore, "busy_ns") > 0, "{lcore:#}");
        let of_lcore: Vec<_> = list(&json["stages"]).iter().filter(|stage| stage["lcore"] == name).collect();
        let found: Vec<_> = of_lcore.iter().map(|stage| &stage["name"]).collect();
        assert_eq!(found, stages, "{lcore:#}");
        for stage in of_lcore {
            for key in ["calls", "packets_in", "packets_out", "busy_ns", "batch_max"] {
                number(stage, key);
            }
            assert!(stage["ns_per_packet"].as_f64() > Some(0.0), "{stage:#}");
        }
    }
}

#[test]
fn two_lcores_lose_nothing_in_any_mode() {
    for idle in ["poll", "event", "adaptive"] {
        let sets = [format!("lcore.exchange.idle={idle}"), format!("lcore.trader.idle={idle}")];
        let Some(run) = generated("700ms", &sets.each_ref().map(String::as_str)) else { return };
        let json = report(&run);
        for name in ["exchange", "trader"] {
            let lcore = lcore(&json, name);
            assert_eq!(lcore["policy"], idle);
            let slept = number(lcore, "sleeps") > 0;
            assert!(slept != (idle == "poll"), "{idle}: {lcore:#}");
            // On a busy machine all the time behind a wake-up may be stolen, and that before it.
            let stolen_ns = if slept { number(lcore, "stolen_ns") } else { 0 };
            assert_eq!(number(lcore, "asleep_ns") + stolen_ns > 0, slept, "{lcore:#}");
        }
    }
}

#[test]
fn two_lcores_in_event_mode_sleep_between_ten_ticks_a_second() {
    let slow = ["lcore.exchange.idle=event", "lcore.trader.idle=event", "feed.ticks_per_second=10"];
    let Some(run) = generated("2s", &slow) else { return };
    let json = report(&run.with(["--set", "feed.messages_per_frame=1"]));
    let ticks = number(&json, "ticks_published");
    let most = number(&json, "elapsed_ns") / 100_000_000 + 1;
    assert!((1..=most).contains(&ticks), "{ticks} ticks, and {most} are due");
    for name in ["exchange", "trader"] {
        let lcore = lcore(&json, name);
        // A tick causes one timer of the exchange, two frames and at most one order with its
        // report; the timer of the arbiter and the safety time-out are extra.
        let wakes = 10 * ticks + 20;
        assert!((1..=wakes).contains(&number(lcore, "sleeps")), "{wakes} wake-ups are enough: {lcore:#}");
        assert!(2 * number(lcore, "asleep_ns") > number(&json, "elapsed_ns"), "{lcore:#}");
    }
}

#[test]
fn two_lcores_do_without_one_channel() {
    let Some(run) = generated("700ms", &["feed.drop_a=1.0", "feed.drop_b=0.0"]) else { return };
    let json = report(&run);
    assert_eq!(number(&json, "ticks_received"), number(&json, "ticks_published"));
    assert_eq!(["gaps", "duplicates", "received_a", "late"].map(|key| number(&json, key)), [0; 4], "{json:#}");
}

#[test]
fn two_lcores_see_that_both_channels_lost_everything() {
    let Some(run) = generated("700ms", &["feed.drop_a=1.0", "feed.drop_b=1.0"]) else { return };
    let json = report(&run);
    let published = number(&json, "ticks_published");
    assert!(published > 0);
    // The end of the session carries the next sequence number, which shows that messages are
    // missing.
    let shown = ["ticks_received", "ticks_missing", "gaps"].map(|key| number(&json, key));
    assert_eq!(shown, [0, published, 1], "{json:#}");
    // All of them are sent again.
    assert_eq!(number(&json["recovery"], "retransmitted"), published, "{json:#}");
    assert_eq!(number(&json["books"], "equal"), 8, "{json:#}");
}

#[test]
fn two_lcores_publish_the_same_feed_for_the_same_seed() {
    let drops = ["feed.drop_a=0.3", "feed.drop_b=0.3"];
    let Some(run) = generated("700ms", &drops) else { return };
    let gaps_before = |json: &Value| (number(json, "gaps"), number(&json["itch"], "malformed"));
    let json = report(&run);
    assert!(gaps_before(&json).0 > 0 && gaps_before(&json).1 == 0, "{json:#}");
    assert!(number(&json["itch"], "contradictions") == 0 && number(&json["books"], "equal") == 8, "{json:#}");
    let missing = number(&json, "ticks_missing");
    assert_eq!(missing + number(&json, "late"), number(&json["dropped_on_purpose"], "both"), "{json:#}");
}
