//! Exchange and trader as two processes, each with a software device of its own address: the feed
//! by multicast over UDP, orders and snapshots by connections, and requests by datagrams whose
//! answers go to their sender.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use verbline_tests::{Program, counted, own_address, two_lcores, unwrapped};

/// A command of the app whose runs listen in `folder`.
fn app(folder: &Path, words: &[&str]) -> Program {
    Program::new(env!("CARGO_BIN_EXE_tick-to-trade")).with(words).listening_in(folder)
}

/// Both halves. Their addresses and groups contain the process id, so that no other test uses them
/// at the same time.
fn halves(folder: &Path) -> [Program; 2] {
    let pid = std::process::id();
    let (high, low) = ((pid >> 8) as u8, pid as u8);
    let group = |last: u8| format!("239.{high}.{low}.{last}");
    let exchange = [
        format!("device.nic0.address={}", own_address(1)),
        format!("port.gateway.listen={}:4431", own_address(1)),
        format!("port.snapshot_server.listen={}:4432", own_address(1)),
        format!("port.feed_a.send_to={}", group(1)),
        format!("port.feed_b.send_to={}", group(2)),
        format!("port.rerequests.join=[\"{}\"]", group(3)),
        // Enough for both channels to lose the same frame soon.
        "feed.drop_a=0.1".to_owned(),
        "feed.drop_b=0.1".to_owned(),
        // No lost answers: the trader would wait for them as long as its books hold messages.
        "feed.drop_answers=0.0".to_owned(),
    ];
    let trader = [
        format!("device.nic0.address={}", own_address(2)),
        format!("port.orders.connect={}:4431", own_address(1)),
        format!("port.snapshots.connect={}:4432", own_address(1)),
        format!("port.md_a.join=[\"{}\"]", group(1)),
        format!("port.md_b.join=[\"{}\"]", group(2)),
        format!("port.recovery.send_to={}", group(3)),
        // Longer than an answer takes on a busy machine: nothing is requested twice.
        "stage.book.params.timeout_us=1_000_000".to_owned(),
    ];
    [("exchange", exchange.to_vec()), ("trader", trader.to_vec())].map(|(half, sets)| {
        let plan = format!("config/two-processes/tick-to-trade-{half}.toml");
        let sets = sets.into_iter().chain([format!("lcore.{half}.drain=60s")]);
        app(folder, &["run", &plan, "--json", "--quiet"]).with(sets.flat_map(|set| ["--set".to_owned(), set]))
    })
}

/// Both halves, with their folder; `None` if there are too few CPUs.
fn both() -> Option<(TempDir, [Program; 2])> {
    two_lcores(["exchange", "trader"])?;
    let folder = tempfile::tempdir().unwrap();
    let halves = halves(folder.path());
    Some((folder, halves))
}

/// Waits until a counter of the trader has reached `least`.
#[track_caller]
fn await_count(folder: &Path, stage: &str, counter: &str, least: u64) {
    let has_them = |report: &Value| counted(report, stage, counter) >= least;
    app(folder, &[]).await_live(Some("tick-to-trade-trader"), &format!("{counter} of {stage}"), has_them);
}

/// The exchange restarts under a running trader: its books become those of the new exchange, and it
/// trades on.
#[test]
fn two_lcores_of_a_trader_outlive_their_exchange() {
    let Some((folder, [exchange, trader])) = both() else { return };
    let first = exchange.start();
    let trader = trader.start();
    await_count(folder.path(), "book", "rebuilt", 8);
    await_count(folder.path(), "strategy", "orders", 10);
    first.end_whole(0);
    let second = exchange.start();
    await_count(folder.path(), "arbiter", "begun_anew", 1);
    let trades = |report: &Value| counted(report, "exchange", "orders") >= 10;
    app(folder.path(), &[]).await_live(Some("tick-to-trade-exchange"), "orders of the trader", trades);
    let trader = trader.end_whole(0);
    let second = second.end_whole(0);
    let json = trader.json();
    assert_eq!((&json["books"]["known"], &json["books"]["stale"]), (&8.into(), &0.into()), "{trader}");
    assert_eq!(json["recovery"]["begun_anew"], 1, "{trader}");
    assert!(trader.stderr.contains("the feed begins anew"), "{trader}");
    assert!(second.json()["orders"].as_u64() >= Some(10), "{second}");
}

/// The trader comes long after the feed began, and later once more.
#[test]
fn two_lcores_of_two_processes_trade_over_the_network() {
    let Some((folder, [exchange, trader])) = both() else { return };
    let exchange = exchange.start();
    let mut sent = 0;
    for _ in 0..2 {
        let trader = trader.start();
        await_count(folder.path(), "book", "rebuilt", 8);
        await_count(folder.path(), "book", "retransmitted", 10);
        await_count(folder.path(), "strategy", "orders", 10);
        let trader = trader.end_whole(0);
        let json = trader.json();
        assert_eq!((&json["books"]["known"], &json["books"]["stale"]), (&8.into(), &0.into()), "{trader}");
        assert_eq!(json["recovery"]["unasked"], 0, "{trader}");
        assert!(json["ticks_published"].is_null() && json["ticks_received"].as_u64() > Some(0), "{trader}");
        sent += json["strategy"]["orders_sent"].as_u64().unwrap();
    }
    let exchange = exchange.end_whole(0);
    let json = exchange.json();
    let orders = json["orders"].as_u64().unwrap();
    assert!((20..=sent).contains(&orders), "{orders} of {sent} orders arrived: {exchange}");
    let served = &json["recovery"]["served"];
    assert!(served["answers"].as_u64() > Some(0) && served["snapshots"].as_u64() >= Some(16), "{exchange}");
    assert!(json["tick_to_trade_ns"]["p50"].as_u64() > Some(0) && json["steps"] == Value::Array(vec![]), "{exchange}");
    assert_eq!(json["ports"][2]["connections"]["opened"], 2, "{exchange}");
}

/// A killed exchange announces no end: the trader reports the silence, and fails.
///
/// Regression: it waited for the answers to its requests for all of its drain, and then said that
/// the drain was too short.
#[test]
fn two_lcores_of_a_trader_tell_of_an_exchange_that_is_gone() {
    let Some((folder, [exchange, trader])) = both() else { return };
    let exchange = exchange.with(["--set", "feed.drop_answers=1.0"]);
    let trader = trader.with(["--set", "stage.arbiter.params.silence_ms=400"]);
    let mut first = exchange.start();
    let running = trader.start();
    // Snapshots are under way, or a message was lost on both channels and is never sent again.
    await_count(folder.path(), "book", "stale_books", 8);
    first.child().kill().unwrap();
    await_count(folder.path(), "arbiter", "silences", 1);
    let shown = running.end_whole(1);
    assert!(shown.json()["feed_silent_ns"].as_u64() >= Some(400_000_000), "{shown}");
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("the feed has fallen silent") && said.contains("see whether the exchange runs"), "{shown}");
}

/// A trader whose plan has another session than the exchange: it follows nothing, and fails.
#[test]
fn two_lcores_of_a_trader_of_another_session_fail() {
    let Some((folder, [exchange, trader])) = both() else { return };
    let exchange = exchange.start();
    let trader = trader.with(["--set", "stage.arbiter.params.session=NOBODY"]).start();
    let are_dropped = |report: &Value| {
        let drops = report["drops"].as_array().into_iter().flatten();
        drops.filter(|drop| drop["reason"] == "wrong_session").any(|drop| drop["packets"].as_u64() >= Some(100))
    };
    app(folder.path(), &[]).await_live(Some("tick-to-trade-trader"), "frames of another session", are_dropped);
    let trader = trader.end_whole(1);
    assert_eq!(
        (&trader.json()["ticks_received"], &trader.json()["books"]["known"]),
        (&0.into(), &0.into()),
        "{trader}"
    );
    let said = unwrapped(&trader.stderr);
    assert!(said.contains("packets of another session than the one that it follows"), "{trader}");
    exchange.end_whole(0);
}
