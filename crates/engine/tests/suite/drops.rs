//! Values that panic as they are dropped: stages, acceptors, and the payloads of other panics. Each
//! panic is reported, and takes nothing else with it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, desk, fed, lacks_cpus, one_lcore, plan, plan_on, registry, run};
use verbline_engine::{
    Acceptor, Answer, ConnectionRequest, Ended, EngineError, Outputs, Registry, Report, Runtime, Stage, StageSpec,
};
use verbline_mem::Batch;
use verbline_plan::Machine;

/// A lock shared by several stages, which each unwraps: as it is called, and as it is dropped.
struct Sharing(Arc<Mutex<u64>>);

impl Stage for Sharing {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        let mut seen = self.0.lock().unwrap();
        *seen += input.len() as u64;
        assert!(*seen < 10, "too many");
        input.clear();
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

/// Panics as it is dropped, with a payload that does the same.
#[derive(Clone)]
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Bomb(self.0 - 1));
        }
    }
}

impl Stage for Bomb {}

impl Acceptor for Bomb {
    fn decide(&mut self, _: &ConnectionRequest<'_>) -> Answer {
        Answer::accept()
    }
}

/// Panics with a payload that panics as it is dropped.
struct Rude;

impl Stage for Rude {
    fn process(&mut self, _: &mut Batch, _: &mut Outputs<'_>) {
        std::panic::panic_any(Bomb(3));
    }
}

/// An app with `sharing`, `bomb` and `rude`.
fn app() -> Registry {
    let (mut registry, shared) = (registry(), Arc::<Mutex<u64>>::default());
    let spec = StageSpec { outputs: &["out"], summary: "as it is called", ..StageSpec::default() };
    registry.stage("sharing", spec, move |_| Ok(Box::new(Sharing(Arc::clone(&shared)))));
    registry.stage("bomb", spec, |_| Ok(Box::new(Bomb(2))));
    registry.stage("rude", spec, |_| Ok(Box::new(Rude)));
    registry.acceptor("bomb", |_| Ok(Box::new(Bomb(2))));
    registry
}

/// Three stages on one lcore that share a lock.
fn sharing() -> String {
    let stage = |name: &str, to: &str| {
        format!("[stage.{name}]\nuse = \"sharing\"\nlcore = \"only\"\nout = {{ out = \"{to}\" }}\n")
    };
    let next = "use = \"sharing\"\nout = { out = \"stage.second\" }\n".to_owned();
    let behind = stage("second", "stage.third") + &stage("third", "drop");
    one_lcore("event", &fed("count = 100, polite = true", &(next + &behind)))
}

fn failures(report: &Report) -> Vec<(Option<&str>, &str)> {
    report.failures.iter().map(|it| (it.stage.as_deref(), it.message.as_str())).collect()
}

// Regression: when all were dropped in one go, the second one aborted the process.
#[test]
fn stages_that_panic_as_they_are_dropped_are_each_told_and_every_packet_is_back() {
    let error = run(&app(), &sharing()).unwrap_err();
    let EngineError::Panicked { stage, message, report, .. } = &error else { panic!("{error}") };
    assert_eq!((stage.as_deref(), message.as_str()), (Some("next"), "too many"));
    assert_eq!(report.packets.held, 0, "{:?}", report.packets);
    let told: Vec<_> = failures(report).into_iter().skip(1).collect();
    let mut stages: Vec<_> = told.iter().filter_map(|(stage, _)| *stage).collect();
    stages.sort_unstable();
    assert_eq!(stages, ["next", "second", "third"]);
    for (_, message) in told {
        assert!(message.starts_with("as it was dropped: ") && message.contains("PoisonError"), "{message}");
    }
}

// Regression: the panic ended the thread before it had reported its failure: the other lcore ran
// on.
#[test]
fn two_lcores_end_though_what_a_panic_carries_panics_as_it_is_dropped() {
    if lacks_cpus(2) {
        return;
    }
    let text =
        one_lcore("event", &fed("count = 100, polite = true, gap_us = 10", "use = \"rude\"\nout = { out = \"drop\" }"))
            + "[lcore.other]\ncpu = \"allowed:1\"\n[stage.more]\nuse = \"generator\"\nlcore = \"other\"\npool = \"p\"\n\
           out = { out = \"drop\" }\nparams = { count = 1000000000, gap_us = 1000 }\n";
    let registry = app();
    let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
    assert_eq!(running.wait(Some(PATIENCE)), Ended::Failed);
    let error = running.stop().unwrap_err();
    let EngineError::Panicked { report, .. } = &error else { panic!("{error}") };
    assert_eq!(failures(report), [(Some("next"), "a panic without a message")]);
    assert_eq!(report.packets.held, 0, "{:?}", report.packets);
    let next = report.stage("next").unwrap();
    assert_eq!(next.packets_in, report.dropped("stopped"), "what it had is accounted for");
}

// Regression: it waited for ever: the lcore was dropped before it was counted as refused.
#[test]
fn a_start_fails_though_a_stage_of_an_lcore_that_cannot_be_pinned_panics_as_it_is_dropped() {
    let mut machine = Machine::detect();
    machine.cpus.insert(999);
    let registry = app();
    let text = one_lcore("poll", &fed("count = 1", "use = \"bomb\"\nout = { out = \"drop\" }"));
    let plan = plan_on(&registry, &text.replace("cpu = \"allowed:0\"", "cpu = 999"), machine);
    let began = Instant::now();
    let error = Runtime::build(&plan, &registry).unwrap().start().unwrap_err();
    assert!(matches!(error, EngineError::Pin { cpu: 999, .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_runtime_that_never_starts_drops_all_its_stages() {
    let registry = app();
    let bombs = "use = \"bomb\"\nout = { out = \"stage.second\" }\n\
                 [stage.second]\nuse = \"bomb\"\nlcore = \"only\"\nout = { out = \"drop\" }\n";
    let plan = plan(&registry, &one_lcore("event", &fed("count = 1", bombs)));
    drop(Runtime::build(&plan, &registry).unwrap());
    assert!(Runtime::check(&plan, &registry).is_ok());
}

/// A check describes each stage and opens none: it drops the descriptions.
#[test]
fn a_description_that_panics_as_it_is_dropped_ends_no_check_and_takes_no_other_with_it() {
    let mut registry = app();
    let spec = StageSpec { outputs: &["out"], summary: "opens", ..StageSpec::default() };
    registry.opening_stage("opens", spec, |_| Ok(Bomb(3)), |bomb, _| Ok(Box::new(bomb)));
    let opens = "use = \"opens\"\nout = { out = \"stage.second\" }\n\
                 [stage.second]\nuse = \"opens\"\nlcore = \"only\"\nout = { out = \"drop\" }\n";
    let plan = plan(&registry, &one_lcore("event", &fed("count = 1", opens)));
    assert!(Runtime::check(&plan, &registry).is_ok());
    drop(Runtime::build(&plan, &registry).unwrap());
}

#[test]
fn an_acceptor_that_panics_as_it_is_dropped_is_told() {
    let text = desk::server(7391, "acceptor = \"bomb\"\nconnections_max = 2\nrx_shared_wr = 64\ntx_depth_wr = 16\n");
    let mut registry = app();
    let spec = StageSpec { outputs: &["out"], summary: "answers", ..StageSpec::default() };
    registry.stage("desk", spec, |_| Ok(Box::new(Bomb(0))));
    let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
    let error = running.stop().unwrap_err();
    let EngineError::Failed { message, .. } = &error else { panic!("{error}") };
    let said = "acceptor `bomb` of port.door panicked as it was dropped: a panic without a message";
    assert_eq!(message, said);
}
