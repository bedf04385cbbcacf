//! Every plan of `config/` with hostile parameters: each packet and each message that enters a
//! shipped stage leaves it, is dropped for a reason, is used up and counted, or is held.

use std::time::{Duration, Instant};

use nvme_target::NvmeTarget;
use pingpong::PingPong;
use tick_to_trade::arbitration::BEYOND_ITEMS;
use tick_to_trade::recovery::FollowerCounts;
use tick_to_trade::stages::{self, Tallies, Tally};
use verbline::plan::{Loader, Machine};
use verbline::prelude::*;
use verbline_tests::{config, recording, two_lcores};

/// The most packets that the arbiter holds.
const ARBITER_HOLDS: u64 = 256 + BEYOND_ITEMS as u64 + 1;

/// Runs a shipped plan with these settings for a while, or until its sources are done.
fn run(registry: &Registry, stem: &str, lcores: [&str; 2], sets: &[&str], time: Duration) -> Option<Report> {
    run_until(registry, stem, lcores, sets, |_, elapsed| elapsed >= time)
}

/// Runs a shipped plan with these settings until its report and its time satisfy `is_so`, or until
/// its sources are done.
fn run_until(
    registry: &Registry,
    stem: &str,
    lcores: [&str; 2],
    sets: &[&str],
    is_so: impl Fn(&Report, Duration) -> bool,
) -> Option<Report> {
    let place = two_lcores(lcores)?.into_iter().filter(|argument| argument != "--set");
    let all = place.chain(sets.iter().map(|set| (*set).to_owned()));
    let loader = Loader::new(registry.catalog(), Machine::detect()).sets(all);
    let plan = loader.load_path(config(stem)).unwrap_or_else(|faults| panic!("{faults}"));
    let running = Runtime::build(&plan, registry).and_then(Runtime::start).unwrap_or_else(|error| panic!("{error}"));
    let (begun, patience) = (Instant::now(), Duration::from_secs(60));
    while !is_so(&running.snapshot(), begun.elapsed()) && begun.elapsed() < patience {
        if running.wait(Some(Duration::from_millis(50))) != Ended::TimedOut {
            break;
        }
    }
    let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
    assert!(report.drained, "{stem} {sets:?}: packets are on their way after a minute");
    let packets = &report.packets;
    assert_eq!((packets.held, packets.taken), (0, packets.returned), "{stem} {sets:?}");
    Some(report)
}

fn dropped_at(report: &Report, place: &str) -> u64 {
    report.drops.iter().filter(|drop| drop.place == place).map(|drop| drop.packets).sum()
}

/// Runs a plan with a feed and a trader, whichever feed it is.
fn trade(stem: &str, sets: &[&str], time: Duration) -> Option<(Report, Tally)> {
    let tally = Tally::default();
    let mut registry = Registry::new("tick-to-trade");
    stages::register(&mut registry, &tally);
    let report = run(&registry, stem, ["exchange", "trader"], sets, time)?;
    accounts(&report, &tally.lock(), &format!("{stem} {sets:?}"));
    Some((report, tally))
}

/// Every message that came to the books, or was found missing, has one outcome, or is still held.
fn follows(counts: &FollowerCounts, of: &str) {
    let taken = counts.applied + counts.malformed + counts.contradictions + counts.unfollowed;
    let passed_over = counts.skipped + counts.abandoned + counts.duplicates;
    assert!(taken + passed_over <= counts.received + counts.missing, "{of}");
    assert!(counts.retransmitted <= counts.missing, "{of}");
}

fn accounts(report: &Report, tallies: &Tallies, of: &str) {
    let arbiter = &tallies.arbiters.get("arbiter").expect("the arbiter ends").counts;
    let exchange = tallies.exchanges.get("exchange").expect("the exchange ends");
    let strategy = tallies.strategies.get("strategy").expect("the strategy ends");
    let of = format!("{of}: {arbiter:?} {:?} {strategy:?} {:?} {:?}", tallies.itch, tallies.forts, report.drops);

    // Packets through the arbiter.
    let stage = report.stage("arbiter").expect("it is in the plan");
    let counter = |name| stage.counter(name).expect("the arbiter counts it");
    let heartbeats = counter("heartbeats") - counter("heartbeats_forwarded");
    let used = counter("duplicates") + heartbeats + dropped_at(report, "stage.arbiter");
    let held = stage.packets_in - stage.packets_out - used;
    assert!(held <= ARBITER_HOLDS, "{held} packets held: {of}");

    // Messages through it.
    let received: u64 = arbiter.received.iter().sum();
    let accounted = arbiter.delivered + arbiter.duplicates + arbiter.late + arbiter.refused;
    assert!(accounted <= received && (held > 0 || accounted == received), "{held} packets held: {of}");
    for (channel, received) in arbiter.received.into_iter().enumerate() {
        assert!(received <= exchange.published - exchange.dropped[channel], "{of}");
    }
    assert!(arbiter.delivered + arbiter.lost <= exchange.published, "{of}");

    // From the arbiter to the book, and from the book to the strategy.
    assert_eq!(report.dropped("stage_full"), 0, "{of}");
    let book = report.stage("book").expect("it is in the plan");
    let (applied, [changes, told, overtaken, untold]) = match (tallies.itch.get("book"), tallies.forts.get("book")) {
        (Some(itch), _) => {
            follows(&itch.follower, &of);
            (itch.follower.received, [itch.changes - itch.taken_back, itch.told, itch.overtaken, itch.untold])
        }
        (_, Some(forts)) => (forts.increments, [forts.changes, forts.told, forts.overtaken, forts.untold]),
        _ => panic!("the plan has no book"),
    };
    assert_eq!(arbiter.delivered, applied + dropped_at(report, "stage.book"), "{of}");
    assert_eq!((told, untold, changes), (strategy.updates, 0, told + overtaken), "{of}");
    assert!(book.packets_in >= stage.packets_out, "{of}");

    // Orders.
    let refused: u64 = strategy.risk.refused.iter().sum();
    assert_eq!(strategy.intents, strategy.orders + strategy.unsent + refused, "{of}");
    let lost_orders = dropped_at(report, "port.orders");
    assert!(strategy.orders - lost_orders.min(strategy.orders) <= exchange.orders + exchange.malformed_orders, "{of}");
    assert!(exchange.orders + exchange.malformed_orders <= strategy.orders, "{of}");
    let lost_reports = dropped_at(report, "port.gateway");
    assert_eq!(exchange.orders, strategy.reports + exchange.unanswered.max(lost_reports), "{of}");
}

const SOON: Duration = Duration::from_millis(400);

#[test]
fn two_lcores_of_the_generated_feed_account_for_all() {
    let eager = ["trigger.imbalance=0.05", "trigger.cooldown_us=0", "risk.burst_orders=1000000"];
    let cases: [&[&str]; 8] = [
        &[],
        &["feed.drop_a=0.4", "feed.drop_b=0.4", "stage.arbiter.params.timeout_us=0"],
        // More changes in a frame than its packet holds: the books spread them over packets.
        &["feed.messages_per_frame=12", "feed.instruments=500"],
        // One message a frame and one update a packet is all that fits.
        &["pool.packets.data_bytes=128", "feed.messages_per_frame=64", "feed.instruments=100"],
        &["lcore.trader.burst=1", "lcore.exchange.burst=1", "feed.messages_per_frame=8"],
        // More than the receive queues hold: packets that the network drops are not counted, all
        // others are.
        &["feed.ticks_per_second=0", "port.md_a.rx_depth_wr=64", "port.md_b.rx_depth_wr=48"],
        &["risk.orders_per_second=0", "feed.drop_a=1.0"],
        &["port.orders.tx_depth_wr=1", "port.orders.signal_every_wr=1", "port.gateway.rx_depth_wr=1"],
    ];
    for case in cases {
        let sets: Vec<_> = case.iter().chain(&eager).copied().collect();
        let Some((report, tally)) = trade("tick-to-trade", &sets, SOON) else { return };
        let tallies = tally.lock();
        let itch = tallies.itch.get("book").expect("the book ends");
        assert!(itch.follower.applied > 0 && itch.follower.malformed == 0, "{sets:?}: {itch:?}");
        assert_eq!(report.stage("exchange").map(|stage| stage.alloc_failed), Some(0), "{sets:?}");
    }
}

#[test]
fn two_lcores_of_the_recorded_feed_account_for_all() {
    let Some(dir) = recording() else { return };
    let dir = format!("feed.dir={}", dir.display());
    let cases: [&[&str]; 3] = [
        &["feed.speed=2000"],
        &["feed.speed=1000", "feed.drop_a=0.3", "feed.drop_b=0.3", "stage.arbiter.params.timeout_us=0"],
        &["feed.speed=1000000", "lcore.trader.burst=2", "port.md_a.rx_depth_wr=64"],
    ];
    for case in cases {
        let sets: Vec<_> = case.iter().copied().chain([dir.as_str()]).collect();
        if trade("moex-replay", &sets, Duration::from_millis(700)).is_none() {
            return;
        }
    }
}

#[test]
fn two_lcores_of_pingpong_account_for_all() {
    for sets in [&[][..], &["pingpong.window=1000"], &["pingpong.size_bytes=8", "lcore.pong.burst=1"]] {
        let mut registry = Registry::new("pingpong");
        PingPong::default().register(&mut registry);
        let Some(report) = run(&registry, "pingpong", ["ping", "pong"], sets, SOON) else { return };
        let stage = |kind: &str| report.stages.iter().find(|stage| stage.kind == kind).expect("it is in the plan");
        let (client, echo) = (stage("client"), stage("echo"));
        assert_eq!(client.counter("answered"), Some(client.packets_in), "{sets:?}");
        let lost = dropped_at(&report, &format!("stage.{}", echo.name));
        assert_eq!(echo.packets_in, echo.packets_out + lost, "{sets:?}: {:?}", report.drops);
        assert!(client.packets_out >= echo.packets_in, "{sets:?}");
    }
}

/// The target answers all commands of the hosts: in capsules, by operations, and through a store
/// that is not memory.
#[test]
fn two_lcores_of_the_nvme_target_account_for_all() {
    let cases: [&[&str]; 4] = [
        &[],
        &["load.in_capsule=false", "load.depth=60"],
        &["load.block_bytes=32768", "load.depth=7", "load.read_share=0.3"],
        // Less room for operations than the queues ask for: commands wait.
        &["port.hosts.connections_max=12", "port.hosts.ops_depth_wr=8", "port.hosts.ops_shared_wr=24"],
    ];
    for sets in cases {
        let mut registry = Registry::new("nvme-target");
        let app = NvmeTarget::default();
        app.register(&mut registry);
        // Every block is written once before anything is measured.
        let has_measured = |report: &Report, _| {
            let histograms = report.stage("load").into_iter().flat_map(|load| &load.histograms);
            histograms.map(|histogram| histogram.times.count).sum::<u64>() >= 1000
        };
        let lcores = ["target", "load"];
        let Some(report) = run_until(&registry, "nvme-target", lcores, sets, has_measured) else { return };
        let (target, load) = (report.stage("target").expect("a target"), report.stage("load").expect("a load"));
        assert_eq!(target.packets_in, target.counter("commands").unwrap_or(0), "{sets:?}: {:?}", report.drops);
        assert_eq!((target.counter("failed"), dropped_at(&report, "stage.target")), (Some(0), 0), "{sets:?}");
        let outcome = app.outcome(&report);
        assert_eq!(
            (outcome.json["balance"].as_i64(), outcome.json["mismatches"].as_i64()),
            (Some(0), Some(0)),
            "{sets:?}"
        );
        assert!(load.counter("answered") > Some(0) && outcome.failures.is_empty(), "{sets:?}: {:?}", outcome.failures);
    }
}
