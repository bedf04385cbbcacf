//! Numbers that no run can have are refused before it starts, each at its key; and what a stage allocates is in the plan's sums.

use verbline_tests::{Finished, recording, unwrapped};

use crate::app;

fn check(plan: &str, set: &str) -> Finished {
    let recorded = (plan == "moex-replay").then(recording).flatten();
    let dir = recorded.map(|dir| format!("feed.dir={}", dir.display()));
    let check = app().with(["check", &format!("config/{plan}.toml"), "--set", set]);
    check.with(dir.iter().flat_map(|dir| ["--set", dir])).run()
}

#[test]
fn every_number_of_a_plan_has_bounds() {
    let refused = [
        "feed.instruments=0",
        "feed.instruments=10000",
        "feed.live_orders=0",
        "feed.live_orders=1000001",
        "feed.live_orders=2863311531",
        "feed.live_orders=3000000000",
        "feed.live_orders=4294967295",
        "feed.ticks_per_second=1000000001",
        "feed.ticks_per_second=18446744073709551615",
        "feed.messages_per_frame=0",
        "feed.messages_per_frame=65",
        "feed.drop_a=1.5",
        "feed.drop_b=-0.1",
        "trigger.imbalance=-1.0",
        "trigger.move_min=-1",
        "trigger.quantity=0",
        "trigger.quantity=4294967295",
        "trigger.cooldown_us=18446744073709551615",
        "risk.quantity_max=0",
        "risk.notional_max=-5",
        "risk.notional_max=0",
        "risk.collar_bps=4294967295",
        "risk.orders_per_second=4294967295",
        "risk.burst_orders=0",
        "risk.burst_orders=4294967295",
        "risk.position_max=4294967295",
        "stage.arbiter.params.timeout_us=18446744073709551615",
        "stage.arbiter.params.session=ELEVENCHARS",
        "stage.arbiter.params.a=nobody",
    ];
    for set in refused {
        let shown = check("tick-to-trade", set).exited(2);
        assert!(shown.stderr.contains(&format!("--set {set}")) && shown.stderr.contains("1 error"), "{set}: {shown}");
    }
    for speed in ["0.0", "-1.0", "1e-300", "1e300", "inf", "nan"] {
        let shown = check("moex-replay", &format!("feed.speed={speed}")).exited(2);
        assert!(shown.stderr.contains(&format!("--set feed.speed={speed}")), "{shown}");
    }
}

#[test]
fn what_stages_allocate_is_in_the_sum_of_memory() {
    let shown = app().with(["check", "config/tick-to-trade.toml", "--explain"]).run().exited(0);
    for term in ["stage.exchange (live_orders of each book)", "stage.book (books)"] {
        assert!(shown.stdout.contains(term), "{term}: {shown}");
    }
    // Six hundred gigabytes.
    let huge = ["--set", "feed.live_orders=1000000", "--set", "feed.instruments=9999"];
    let shown = app().with(["check", "config/tick-to-trade.toml"]).with(huge).run().exited(2);
    let said = unwrapped(&shown.stderr);
    assert!(said.contains("error[too-much-memory]: the stages need 6") && said.contains("stage.exchange"), "{shown}");
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
