//! Stages that need time as a run stops.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use verbline_mem::Batch;
use verbline_plan::{Loader, Machine, StageSpec};

use super::{COMMON, OUT, STOP_LIMIT, end, registry, seen, source, start_with, wait_for};
use crate::api::outputs::Outputs;
use crate::api::registry::Registry;
use crate::api::stage::{Next, Stage};
use crate::run::stop::RunningInner;
use crate::setup::assemble::build;
use crate::stats::counter::Counter;

/// Waits for answers of a slow peer.
struct Expects {
    stopped: Option<Instant>,
    got: Counter,
}

const ANSWERED: Duration = Duration::from_millis(150);

impl Stage for Expects {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.stopped = Some(Instant::now());
    }

    fn awaits_packets(&self) -> bool {
        let has_come = self.stopped.is_some_and(|stopped| stopped.elapsed() >= ANSWERED);
        self.got.set(has_come.into());
        !has_come
    }
}

/// Sends as many packets as it may in one turn, and keeps a batch for the next one, or for the
/// stop.
struct Keeper {
    kept: Batch,
    made: Counter,
}

impl Stage for Keeper {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        // Sends the kept batch and a further one; keeps another.
        for _ in 0..2 {
            out.send_batch(OUT, &mut self.kept);
            assert_eq!(out.alloc_bulk(&mut self.kept, 8), 8, "all were sent");
            for packet in self.kept.as_mut_slice() {
                packet.set_mark(self.made.value());
                assert!(packet.fill(&packet.mark().to_le_bytes()));
                self.made.add(1);
            }
        }
        Next::Busy
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        out.send_batch(OUT, &mut self.kept);
    }
}

fn stages() -> Registry {
    let mut registry = registry();
    registry.stage("expects", StageSpec::default(), |context| {
        Ok(Box::new(Expects { stopped: None, got: context.counter("got") }))
    });
    let spec = StageSpec { outputs: &["out"], source: true, holds_packets: 8, ..StageSpec::default() };
    registry.stage("keeper", spec, |context| {
        Ok(Box::new(Keeper { kept: Batch::with_capacity(8), made: context.counter("made") }))
    });
    registry
}

#[track_caller]
fn started(text: &str) -> RunningInner {
    let registry = stages();
    let machine = Machine { cpus: BTreeSet::from([0, 1, 2, 3]), ..Machine::detect() };
    let loaded = Loader::new(registry.catalog(), machine).load_str("test.toml", &(COMMON.to_owned() + text));
    let plan = loaded.unwrap_or_else(|faults| panic!("{faults}"));
    start_with(build(&plan, &registry).unwrap(), |_, _, _| Ok(())).unwrap()
}

fn lcore(name: &str, cpu: u32, drain: &str) -> String {
    format!("[lcore.{name}]\ncpu = {cpu}\nburst = 8\nidle = \"event\"\ndrain = \"{drain}\"\n")
}

#[test]
fn an_lcore_has_its_own_budget_whatever_others_have() {
    let text = lcore("a", 0, "0s")
        + &lcore("b", 1, "20s")
        + &source("one", "a", "stage.end", "id = 0, count = 1")
        + &end("end", "a", "")
        + &source("two", "b", "stage.expects", "id = 1, count = 1")
        + "[stage.expects]\nuse = \"expects\"\nlcore = \"b\"\n";
    let mut running = started(&text);
    let began = Instant::now();
    let report = running.stop(STOP_LIMIT).unwrap();
    assert_eq!(report.stage("expects").unwrap().counter("got"), Some(1), "{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(10) && report.drained);
}

#[test]
fn what_a_stage_keeps_until_the_run_stops_is_held_back_like_the_rest() {
    let text = lcore("a", 0, "20s")
        + &lcore("b", 1, "20s")
        + "[stage.keeper]\nuse = \"keeper\"\nlcore = \"a\"\npool = \"p\"\nout = { out = \"ring.slow\" }\n"
        + "[ring.slow]\nto = \"stage.end\"\ndepth = 8\nfull = \"hold\"\n"
        + &end("end", "b", "work_us = 300");
    let mut running = started(&text);
    wait_for(&running, |report| report.ring("slow").unwrap().full > 0);
    let report = running.stop(STOP_LIMIT).unwrap();
    let made = report.stage("keeper").unwrap().counter("made").unwrap();
    assert_eq!((seen(&report, "end", 0), report.drained), (made, true), "{:?}", report.drops);
}
