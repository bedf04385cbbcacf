//! The ends of runs: in order with packets in flight, by a panic, by a budget; and the fate of
//! every packet.

use std::time::{Duration, Instant};

use crate::common::{
    assert_clean, fed, lacks_cpus, one_lcore, plan, registry, run, run_for, two_lcores, tx_to_rx, wait_for,
};
use verbline_engine::{Ended, EngineError, Next, Outputs, Runtime, Stage, StageSpec};
use verbline_mem::Batch;

/// A generator that never ends, over RC from one lcore to the other.
fn stream(generator: &str, sink: &str, drain: &str) -> String {
    let lcore = format!("idle = \"adaptive\"\ndrain = \"{drain}\"");
    let ports = tx_to_rx("a", 64, "next = \"drop\"");
    let rest = format!(
        r#"
        {ports}
        [stage.gen]
        use = "generator"
        lcore = "a"
        pool = "p"
        out = {{ out = "port.tx" }}
        params = {{ count = 1000000000, {generator} }}
        [stage.sink]
        use = "sink"
        lcore = "b"
        params = {{ {sink} }}
        "#
    );
    two_lcores([&lcore; 2], [4096, 512], &rest)
}

#[test]
fn two_lcores_stop_with_packets_in_flight_and_lose_none() {
    if lacks_cpus(2) {
        return;
    }
    let text = stream("polite = true, size_bytes = 300", "", "5s");
    let report = run_for(&registry(), &text, Duration::from_millis(200)).unwrap();
    assert_clean(&report);
    let (made, seen) = (report.stage("gen").unwrap().counter("made"), report.stage("sink").unwrap().counter("seen"));
    assert!(made > Some(100), "{made:?}");
    assert_eq!(made, seen, "what was sent is delivered before the queue pairs go");
    assert!(report.drops.is_empty(), "{:?}", report.drops);
}

#[test]
fn two_lcores_count_what_a_full_send_queue_refuses() {
    if lacks_cpus(2) {
        return;
    }
    let text = stream("size_bytes = 300", "work_us = 100", "5s");
    let registry = registry();
    let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
    // On a busy machine the queue takes its time to fill.
    wait_for(&running, "a full queue refuses", |report| report.dropped("tx_full") > 0);
    let report = running.stop().unwrap();
    assert_clean(&report);
    let made = report.stage("gen").unwrap().counter("made").unwrap();
    let seen = report.stage("sink").unwrap().counter("seen").unwrap();
    assert!(report.dropped("tx_full") > 0, "{report:#?}");
    assert_eq!(made, seen + report.dropped("tx_full"), "{report:#?}");
}

// Send completions unpolled while idle: the pool runs dry and everything stalls
// (NVIDIA/daqiri#207).
#[test]
fn two_lcores_reap_send_completions_while_idle() {
    if lacks_cpus(2) {
        return;
    }
    // When the queue is full this source reports that it is idle; only a send completion can wake
    // its lcore.
    let text = stream("polite = true, patient = true, size_bytes = 300", "work_us = 200", "5s")
        .replace("\"adaptive\"", "\"event\"")
        .replace("count = 1000000000", "count = 3000");
    let report = run(&registry(), &text).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("sink").unwrap().counter("seen"), Some(3000), "{report:#?}");
    assert!(report.lcore("a").unwrap().woken_by("completion") > 0, "{report:#?}");
}

#[test]
fn two_lcores_end_though_one_never_drains() {
    if lacks_cpus(2) {
        return;
    }
    // A stage that is always busy holds up the drain, and the budget bounds that.
    let mut registry = registry();
    struct Restless;
    impl Stage for Restless {
        fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
            Next::Busy
        }
    }
    let spec = StageSpec { source: false, summary: "never rests", ..StageSpec::default() };
    registry.stage("restless", spec, |_| Ok(Box::new(Restless)));
    let text = stream("polite = true", "", "100ms").replace("next = \"drop\"", "next = \"stage.restless\"")
        + "[stage.restless]\nuse = \"restless\"\nlcore = \"a\"\n";
    let began = Instant::now();
    let report = run_for(&registry, &text, Duration::from_millis(50)).unwrap();
    assert!(!report.drained);
    assert_eq!(report.packets.held, 0, "{:?}", report.packets);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn two_lcores_end_in_order_when_a_stage_panics() {
    if lacks_cpus(2) {
        return;
    }
    let text = stream("polite = true", "panic_at = 500", "500ms");
    let error = run_for(&registry(), &text, Duration::from_secs(20)).unwrap_err();
    let EngineError::Panicked { lcore, stage, message, report } = &error else { panic!("{error}") };
    assert_eq!((lcore.as_str(), stage.as_deref()), ("b", Some("sink")));
    assert!(message.contains("as asked"), "{message}");
    assert!(error.to_string().starts_with("lcore.b: stage.sink panicked: "), "{error}");
    assert_eq!(report.packets.held, 0, "{:?}", report.packets);
    assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
}

/// A source of a hundred packets, on the same lcore as the stage `next`, which it feeds.
fn hundred(next: &str) -> String {
    one_lcore("event", &fed("count = 100, polite = true", next))
}

#[test]
fn one_lcore_counts_every_drop_by_place_and_reason() {
    let dropped = |rest: &str| {
        let report = run(&registry(), &hundred(rest)).unwrap();
        assert_clean(&report);
        let drops = report.drops.iter().map(|drop| (drop.place.clone(), drop.reason.clone(), drop.packets));
        drops.collect::<Vec<_>>()
    };
    let at = |reason: &str, packets| vec![("stage.next".to_owned(), reason.to_owned(), packets)];
    assert_eq!(dropped("use = \"sink\""), []);
    assert_eq!(dropped("use = \"sink\"\nparams = { lazy = true }"), at("unclaimed", 100));
    assert_eq!(dropped("use = \"sink\"\nparams = { drop_odd = true }"), at("odd", 50));
    assert_eq!(dropped("use = \"sink\"\nparams = { astray = true }"), at("no_output", 100));
    assert_eq!(dropped("use = \"forward\"\nout = { out = \"drop\" }"), at("planned", 100));
}

#[test]
fn one_lcore_counts_what_a_stage_that_panicked_had_not_taken() {
    struct Fussy;
    impl Stage for Fussy {
        fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
            assert!(input.len() < 10, "too many at once");
        }
    }
    let mut registry = registry();
    registry.stage("fussy", StageSpec { summary: "panics", ..StageSpec::default() }, |_| Ok(Box::new(Fussy)));
    let error = run(&registry, &hundred("use = \"fussy\"")).unwrap_err();
    let EngineError::Panicked { report, .. } = error else { panic!("{error}") };
    let (made, fussy) = (report.stage("gen").unwrap().counter("made"), report.stage("next").unwrap());
    assert_eq!((made, fussy.packets_in, fussy.calls), (Some(fussy.packets_in), report.dropped("stopped"), 1));
    assert!(fussy.packets_in >= 10 && report.packets.held == 0, "{report:#?}");
}

#[test]
fn one_lcore_gets_back_what_a_stage_held() {
    let text = hundred(
        "use = \"holder\"\nout = { out = \"stage.sink\" }\n\
         [stage.sink]\nuse = \"sink\"\nlcore = \"only\"\nparams = { any_order = true }\n",
    );
    let registry = registry();
    let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
    assert_eq!(running.wait(Some(Duration::from_secs(10))), Ended::SourcesDone);
    // The source is done before its last packets have gone through.
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut live = running.snapshot();
    while live.packets.held != 32 && Instant::now() < deadline {
        live = running.snapshot();
    }
    assert!(!live.ended && live.packets.held == 32, "{:?}", live.packets);
    assert_eq!(live.packets.holders[0].place, "elsewhere");
    let report = running.stop().unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("next").unwrap().packets_out, 100);
    assert_eq!(report.stage("sink").unwrap().counter("seen"), Some(100), "what was held came at the stop");
}

#[test]
fn one_lcore_can_be_interrupted_and_dropped() {
    let text = hundred("use = \"sink\"").replace("count = 100", "count = 100, gap_us = 60000000");
    let registry = registry();
    let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
    assert_eq!(running.wait(Some(Duration::from_millis(20))), Ended::TimedOut);
    let interrupter = running.interrupter();
    std::thread::spawn(move || interrupter.interrupt()).join().unwrap();
    assert_eq!(running.wait(None), Ended::Interrupted);
    drop(running);
}

#[test]
fn a_report_is_json() {
    let report = run(&registry(), &hundred("use = \"sink\"")).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["stages"][1]["counters"][0]["value"], 100);
    assert_eq!(json["packets"]["held"], 0);
}

/// Awaits a peer's packet that never comes.
struct Awaits;

impl Stage for Awaits {
    fn awaits_packets(&self) -> bool {
        true
    }
}

/// Regression: the run said that it was drained.
#[test]
fn one_lcore_has_not_drained_while_a_stage_awaits_packets() {
    let mut registry = registry();
    registry.stage("awaits", StageSpec::default(), |_| Ok(Box::new(Awaits)));
    let text = hundred("use = \"awaits\"").replace("[lcore.only]", "[lcore.only]\ndrain = \"50ms\"");
    let report = run(&registry, &text).unwrap();
    assert_eq!((report.drained, report.packets.held), (false, 0), "{report:#?}");
}

/// Regression: none of a client's last sends was signaled. Its run said that it was drained while
/// they waited for their peer's receives, and its queue pair took them along.
#[test]
fn two_lcores_wait_for_the_last_sends_though_the_plan_has_none_of_them_signaled() {
    if lacks_cpus(2) {
        return;
    }
    let base = |device: &str, cpu: u32| {
        format!(
            "[lcore.l]\ncpu = \"allowed:{cpu}\"\ndrain = \"20s\"\n[device.nic0]\nprovider = \"soft\"\n\
             name = \"{device}\"\n[pool.p]\ndevice = \"nic0\"\npackets = 1024\ndata_bytes = 512\npages = \"4KiB\"\n\
             [port.end]\nlcore = \"l\"\ndevice = \"nic0\"\npool = \"p\"\ntransport = \"rc\"\n"
        )
    };
    let slow = base("soft1", 1)
        + "listen = \"10.9.9.2:7031\"\nrx_depth_wr = 1\ntx_depth_wr = 0\nnext = \"stage.sink\"\n[stage.sink]\n\
           use = \"sink\"\nlcore = \"l\"\nparams = { work_us = 30000 }\n";
    let sends = base("soft0", 0)
        + "connect = \"10.9.9.2:7031\"\nrx_depth_wr = 1\ntx_depth_wr = 64\nsignal_every_wr = 32\nnext = \"drop\"\n\
           [stage.gen]\nuse = \"generator\"\nlcore = \"l\"\npool = \"p\"\nout = { out = \"port.end\" }\n\
           params = { count = 10 }\n";
    let registry = registry();
    let build = |text: &str| Runtime::build(&plan(&registry, text), &registry).unwrap();
    let server = build(&slow);
    let client = build(&sends);
    let client = std::thread::spawn(move || client.start().unwrap());
    let server = server.start().unwrap();
    let client = client.join().unwrap();
    assert_eq!(client.wait(Some(Duration::from_secs(20))), Ended::SourcesDone);
    let report = client.stop().unwrap();
    assert_eq!((report.drained, report.port("end").unwrap().tx_packets), (true, 10), "{report:#?}");
    wait_for(&server, "the last of them is there", |report| report.stage("sink").unwrap().counter("seen") == Some(10));
    server.stop().unwrap();
}
