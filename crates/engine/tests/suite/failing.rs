//! Stages that end the run as failed, in order: with their own message, and nothing left behind.

use std::time::Duration;

use crate::common::{OUT, PATIENCE, assert_clean, fed, lacks_cpus, one_lcore, plan, registry};
use verbline_engine::{Counter, Ended, EngineError, Outputs, Registry, Report, Running, Runtime, Stage, StageSpec};
use verbline_mem::{Batch, Packet};

/// Sends its packets on, and fails at each from the tenth on.
struct Judge {
    seen: Counter,
}

impl Stage for Judge {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            self.seen.add(1);
            if self.seen.value() >= 10 {
                out.fail(format!("packet {} contradicts those before it", self.seen.value()));
            }
            assert!(out.send(OUT, packet));
        }
    }
}

/// Fails as the run stops.
struct Last;

impl Stage for Last {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        out.fail("the last block is not durable");
    }
}

/// Leaks two packets of each batch.
struct Forgetful;

impl Stage for Forgetful {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.drain_front(2).for_each(std::mem::forget::<Packet>);
        input.clear();
    }
}

fn judges() -> Registry {
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], summary: "judges", ..StageSpec::default() };
    registry.stage("judge", spec, |context| Ok(Box::new(Judge { seen: context.counter("seen") })));
    registry.stage("last", StageSpec::default(), |_| Ok(Box::new(Last)));
    registry.stage("forgetful", StageSpec::default(), |_| Ok(Box::new(Forgetful)));
    registry
}

/// Starts a run of these stages, whose lcores drain for as long as they may.
fn start(registry: &Registry, text: &str) -> Running {
    let text = text.replace("idle =", "drain = \"20s\"\nidle =");
    Runtime::build(&plan(registry, &text), registry).unwrap().start().unwrap()
}

fn failed(error: &EngineError) -> (&str, Option<&str>, &str, &Report) {
    let EngineError::Failed { lcore, stage, message, report } = error else { panic!("{error}") };
    (lcore, stage.as_deref(), message, report)
}

#[test]
fn a_stage_that_fails_ends_the_run_in_order_with_its_words() {
    let judge = "use = \"judge\"\nout = { out = \"stage.sink\" }\n[stage.sink]\nuse = \"sink\"\nlcore = \"only\"\n";
    let registry = judges();
    for idle in ["poll", "event"] {
        let text = one_lcore(idle, &fed("count = 1000000000, polite = true, gap_us = 20", judge));
        let running = start(&registry, &text);
        assert_eq!(running.wait(Some(PATIENCE)), Ended::Failed);
        let error = running.stop().unwrap_err();
        let words = "packet 10 contradicts those before it";
        assert_eq!(error.to_string(), format!("lcore.only: stage.next failed: {words}"));
        let (lcore, stage, message, report) = failed(&error);
        assert_eq!((lcore, stage, message), ("only", Some("next"), words));
        // Reported at each packet until the end of the drain, and told once.
        assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
        assert!(!report.failures[0].panicked);
        assert_clean(report);
        assert!(report.drops.is_empty(), "{:?}", report.drops);
        let passed = report.stage("next").unwrap().counter("seen");
        assert_eq!(passed, report.stage("sink").map(|sink| sink.packets_in));
    }
}

#[test]
fn two_lcores_drain_when_a_stage_of_one_fails() {
    if lacks_cpus(2) {
        return;
    }
    let judge = "use = \"judge\"\nout = { out = \"ring.far\" }\n[stage.sink]\nuse = \"sink\"\nlcore = \"far\"\n\
                 [ring.far]\nto = \"stage.sink\"\ndepth = 64\n[lcore.far]\ncpu = \"allowed:1\"\n";
    let registry = judges();
    let text = one_lcore("event", &fed("count = 1000000000, polite = true, gap_us = 100", judge));
    let running = start(&registry, &text);
    assert_eq!(running.wait(Some(PATIENCE)), Ended::Failed);
    let error = running.stop().unwrap_err();
    let (_, stage, _, report) = failed(&error);
    assert_eq!((stage, report.packets.held), (Some("next"), 0));
    let passed = report.stage("next").unwrap().counter("seen").unwrap();
    let far = report.stage("sink").unwrap().packets_in;
    assert_eq!(passed, far + report.dropped("ring_full"), "{report:#?}");
}

#[test]
fn a_stage_may_fail_as_the_run_stops() {
    let registry = judges();
    let text = one_lcore("event", &fed("count = 5", "use = \"last\""));
    let running = start(&registry, &text);
    assert_eq!(running.wait(Some(PATIENCE)), Ended::SourcesDone);
    let error = running.stop().unwrap_err();
    let (_, stage, message, report) = failed(&error);
    assert_eq!((stage, message), (Some("next"), "the last block is not durable"));
    assert_eq!((report.stage("next").unwrap().packets_in, report.packets.held), (5, 0));
}

// Regression: the run ended well, and the pool was leaked without a word.
#[test]
fn packets_that_are_never_given_back_are_warned_of() {
    let registry = judges();
    let text = one_lcore("event", &fed("count = 2", "use = \"forgetful\""));
    let running = start(&registry, &text);
    running.wait(Some(Duration::from_secs(20)));
    let live = running.snapshot().warnings();
    assert!(live.iter().all(|warning| warning.code != "packets-held"), "a stage may yet send them: {live:?}");
    let report = running.stop().unwrap();
    let held: Vec<_> = report.warnings().into_iter().filter(|warning| warning.code == "packets-held").collect();
    let [warning] = &held[..] else { panic!("{report:#?}") };
    let says = "2 packets of pool p were not given back as the run ended: its memory is never freed";
    assert_eq!(warning.message, says);
}
