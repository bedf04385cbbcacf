//! Impossible numbers are refused before a run starts, each at its key; and stages' allocations are
//! in the plan's sums.

use std::sync::Mutex;
use std::thread;

use verbline_tests::{Finished, keys_listed, recording, unwrapped};

use crate::command::app;

/// Checks the plan with this setting. One instrument, unless the setting is about instruments:
/// another test covers the amount of memory.
fn check(plan: &str, set: &str) -> Finished {
    let one = (plan == "tick-to-trade" && !set.contains("instruments")).then_some("feed.instruments=1");
    let recorded = (plan == "moex-replay").then(recording).flatten();
    let dir = recorded.map(|dir| format!("feed.dir={}", dir.display()));
    let check = app().with(["check", &format!("config/{plan}.toml"), "--set", set]);
    check.with(dir.iter().map(String::as_str).chain(one).flat_map(|set| ["--set", set])).run()
}

/// A key of a table: an integer with its least and greatest value, a real number with allowed and
/// refused values, or a key without bounds.
enum Key {
    Number(&'static str, i64, i64),
    Real(&'static str, &'static [&'static str], &'static [&'static str]),
    Other(&'static str),
}

use Key::{Number, Other, Real};

impl Key {
    fn name(&self) -> &'static str {
        let (Number(name, ..) | Real(name, ..) | Other(name)) = self;
        name
    }

    /// Allowed and refused values.
    fn values(&self) -> [Vec<String>; 2] {
        let texts = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
        match self {
            Other(_) => [vec![], vec![]],
            Real(_, allowed, refused) => [texts(allowed), texts(refused)],
            Number(_, least, most) => {
                let mut refused = vec![least.checked_sub(1), most.checked_add(1), Some(i64::MIN)];
                refused.extend((*most < i64::MAX).then_some(Some(i64::MAX)));
                let refused = refused.into_iter().flatten().map(|value| value.to_string());
                let beyond = ["18446744073709551615".to_owned()];
                [vec![least.to_string(), most.to_string()], refused.chain(beyond).collect()]
            }
        }
    }
}

const QUANTITY_MAX: i64 = 1_000_000_000;
const fn share(name: &'static str) -> Key {
    Real(name, &["0.0", "1.0"], &["-0.1", "1.5", "nan", "inf"])
}

/// The seed of a generator, within JSON's whole numbers.
const SEED: Key = Number("seed", 0, (1 << 53) - 1);

/// All keys, by table and plan.
fn tables() -> [(&'static str, &'static str, Vec<Key>); 6] {
    let feed = vec![
        SEED,
        Number("instruments", 1, 9_999),
        Number("live_orders", 1, 1_000_000),
        Number("ticks_per_second", 0, 1_000_000_000),
        Number("messages_per_frame", 1, 64),
        share("drop_a"),
        share("drop_b"),
        share("drop_answers"),
        Number("kept_messages", 2, 1 << 20),
    ];
    let trigger = vec![
        Real("imbalance", &["0.0", "2.0"], &["-1.0", "2.1", "nan", "inf"]),
        Number("move_min", 0, i64::MAX),
        Number("quantity", 1, QUANTITY_MAX),
        Number("cooldown_us", 0, 86_400_000_000),
    ];
    let risk = vec![
        Number("quantity_max", 1, QUANTITY_MAX),
        Number("notional_max", 1, i64::MAX),
        Number("collar_bps", 0, 1_000_000),
        Number("orders_per_second", 0, 1_000_000_000),
        Number("burst_orders", 1, 1_000_000),
        Number("position_max", 0, QUANTITY_MAX),
    ];
    let arbiter = vec![
        Other("a"),
        Other("framing"),
        Other("session"),
        Number("first", 0, 1_000_000_000_000_000_000),
        Number("timeout_us", 0, 3_600_000_000),
        Number("silence_ms", 0, 86_400_000),
    ];
    let book = vec![
        Number("first", 0, 1_000_000_000_000_000_000),
        Number("held_messages", 2, 1 << 20),
        Number("gap_messages_max", 0, 1 << 20),
        Number("timeout_us", 1, 60_000_000),
        Number("tries", 1, 32),
        Number("snapshot_timeout_ms", 1, 60_000),
        Number("rebuild_pause_ms", 1, 60_000),
    ];
    let speed = Real("speed", &["0.001", "1e9"], &["0.0", "-1.0", "1e-300", "1e300", "inf", "nan"]);
    let recorded = vec![Other("dir"), speed, SEED, share("drop_a"), share("drop_b")];
    [
        ("tick-to-trade", "feed", feed),
        ("tick-to-trade", "trigger", trigger),
        ("tick-to-trade", "risk", risk),
        ("tick-to-trade", "stage.arbiter.params", arbiter),
        ("tick-to-trade", "stage.book.params", book),
        ("moex-replay", "feed", recorded),
    ]
}

#[track_caller]
fn refused(plan: &str, set: &str) -> Finished {
    let shown = check(plan, set).exited(2);
    assert!(shown.stderr.contains(&format!("--set {set}")) && shown.stderr.contains("1 error"), "{set}: {shown}");
    shown
}

#[test]
fn every_number_of_a_plan_has_bounds() {
    let mut sets = Vec::new();
    for (plan, table, keys) in tables() {
        if plan == "moex-replay" && recording().is_none() {
            continue;
        }
        for key in &keys {
            let set = |value: &String| format!("{table}.{}={value}", key.name());
            let [allowed, not] = key.values();
            sets.extend(allowed.iter().map(|value| (plan, set(value), true)));
            sets.extend(not.iter().map(|value| (plan, set(value), false)));
        }
        // So that a number added to a table later gets bounds here, too.
        let shown = refused(plan, &format!("{table}.zyx=1"));
        let names: Vec<_> = keys.iter().map(Key::name).collect();
        assert_eq!(keys_listed(&shown.stderr), names, "{table} of {plan}: {shown}");
    }
    // Each check is a process of its own that builds all stages.
    let sets = Mutex::new(sets.into_iter());
    let judge = || {
        while let Some((plan, set, allowed)) = { sets.lock().unwrap().next() } {
            if allowed {
                drop(check(plan, &set).exited(0));
            } else {
                drop(refused(plan, &set));
            }
        }
    };
    thread::scope(|scope| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(scope.spawn(judge)))
    });
}

#[test]
fn names_that_cannot_be_are_refused() {
    refused("tick-to-trade", "stage.arbiter.params.session=ELEVENCHARS");
    refused("tick-to-trade", "stage.arbiter.params.a=nobody");
    // Numbers that once panicked a stage, aborted on an allocation, and took half a minute.
    for orders in [2_863_311_531_u64, 4_294_967_295, 3_000_000_000] {
        refused("tick-to-trade", &format!("feed.live_orders={orders}"));
    }
}

#[test]
fn what_stages_allocate_is_in_the_sum_of_memory() {
    let shown = app().with(["check", "config/tick-to-trade.toml", "--explain"]).run().exited(0);
    for term in [
        "stage.exchange (live_orders of each book)",
        "stage.exchange (kept_messages",
        "stage.book (books)",
        "stage.book (held",
    ] {
        assert!(shown.stdout.contains(term), "{term}: {shown}");
    }
    // Six hundred gigabytes.
    let huge = ["--set", "feed.live_orders=1000000", "--set", "feed.instruments=9999"];
    let shown = app().with(["check", "config/tick-to-trade.toml"]).with(huge).run().exited(2);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("error[too-much-memory]: the run needs 6") && said.contains("stage.exchange"), "{shown}");
}

#[test]
fn a_packet_that_is_too_short_for_one_message_is_refused() {
    for (bytes, stages) in [(1, 2), (71, 2), (79, 1)] {
        let shown = check("tick-to-trade", &format!("pool.packets.data_bytes={bytes}")).exited(2);
        let found = shown.stderr.matches("error[packets-too-short]").count();
        assert_eq!(found, stages, "{shown}");
        assert!(unwrapped(&shown.stderr).contains("help: write `data_bytes = 80` or more"), "{shown}");
    }
    check("tick-to-trade", "pool.packets.data_bytes=80").exited(0);
    if recording().is_some() {
        let shown = check("moex-replay", "pool.packets.data_bytes=256").exited(2);
        assert!(unwrapped(&shown.stderr).contains("longest datagram"), "{shown}");
    }
}
