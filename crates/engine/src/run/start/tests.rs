//! Runs with possibly more lcores than the machine has CPUs: their threads are not pinned, and
//! sleep without work. Plans that fan out and in.

mod attributes;
mod changing;
mod draining;
mod full;
mod retries;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::Deserialize;
use verbline_mem::Batch;
use verbline_plan::{Loader, Location, Machine, StageSpec};

use super::{Place, STOP_LIMIT, pin, start_with};
use crate::api::context::StageContext;
use crate::api::outputs::{OutId, Outputs};
use crate::api::registry::Registry;
use crate::api::spread::place_of_key;
use crate::api::stage::{Next, Stage};
use crate::errors::error::StageError;
use crate::run::stop::RunningInner;
use crate::setup::assemble::build;
use crate::stats::clock::Tick;
use crate::stats::counter::Counter;
use crate::stats::report::Report;

const OUT: OutId = OutId(0);

/// A source's number, above the numbers of its packets.
const SOURCE_SHIFT: u32 = 48;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceParams {
    count: u64,
    /// The source's number: 0 to 7.
    id: u64,
    /// The sleep between two batches.
    #[serde(default)]
    gap_us: u64,
    /// Sends in batches, and keeps refused packets.
    #[serde(default)]
    patient: bool,
}

/// Sends packets marked with their source and a number.
struct Source {
    params: SourceParams,
    burst: usize,
    made: Counter,
    refused: Counter,
    kept: Batch,
    next_ns: Tick,
}

impl Source {
    fn new(context: &StageContext<'_>) -> Result<Source, StageError> {
        let (made, refused) = (context.counter("made"), context.counter("refused"));
        let (params, burst) = (context.params()?, context.burst());
        Ok(Source { params, burst, made, refused, kept: Batch::with_capacity(burst), next_ns: 0 })
    }
}

impl Stage for Source {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let left = usize::try_from(self.params.count - self.made.value()).unwrap_or(usize::MAX);
        let fresh = if self.kept.is_empty() { out.alloc_bulk(&mut self.kept, left.min(self.burst)) } else { 0 };
        let first = self.kept.len() - fresh;
        for packet in &mut self.kept.as_mut_slice()[first..] {
            packet.set_mark(self.params.id << SOURCE_SHIFT | self.made.value());
            assert!(packet.fill(&packet.mark().to_le_bytes()));
            self.made.add(1);
        }
        match self.params.patient {
            true => _ = out.send_batch(OUT, &mut self.kept),
            false => {
                let sent = self.kept.drain_front(self.burst).map(|packet| out.send(OUT, packet));
                self.refused.add(sent.filter(|sent| !sent).count() as u64);
            }
        }
        if self.made.value() == self.params.count && self.kept.is_empty() {
            return Next::Done;
        }
        self.next_ns = self.next_ns.max(out.now_ns()) + self.params.gap_us * 1000;
        if self.params.gap_us > 0 { Next::At(self.next_ns) } else { Next::Busy }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct EndParams {
    /// Its index among the stages that share the packets by key, and their number.
    place: usize,
    places: usize,
    /// The time that it takes for each batch.
    work_us: u64,
}

/// Takes packets, those of each source in order, and counts them by source.
struct End {
    params: EndParams,
    seen: Vec<Counter>,
    next: [u64; 8],
    misplaced: Counter,
    /// The greatest number so far.
    last: Counter,
}

impl End {
    fn new(context: &StageContext<'_>) -> Result<End, StageError> {
        let seen = (0..8).map(|id| context.counter(format!("seen_{id}"))).collect();
        Ok(End {
            params: context.params()?,
            seen,
            next: [0; 8],
            misplaced: context.counter("misplaced"),
            last: context.counter("last"),
        })
    }
}

impl Stage for End {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            let (id, number) = ((packet.mark() >> SOURCE_SHIFT) as usize, packet.mark() & ((1 << SOURCE_SHIFT) - 1));
            assert_eq!(packet.data(), packet.mark().to_le_bytes());
            assert!(number >= self.next[id], "source {id}: {number} after {}", self.next[id]);
            self.next[id] = number + 1;
            self.seen[id].add(1);
            self.last.set(number);
            let places = self.params.places;
            let is_misplaced = places > 0 && place_of_key(packet.mark(), places) != self.params.place;
            self.misplaced.add(is_misplaced.into());
        }
        if self.params.work_us > 0 {
            std::thread::sleep(Duration::from_micros(self.params.work_us));
        }
    }
}

/// Sends everything on.
struct Forward;

impl Stage for Forward {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        out.send_batch(OUT, input);
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new("test");
    let spec = StageSpec { outputs: &["out"], ..StageSpec::default() };
    registry.stage("forward", spec, |_| Ok(Box::new(Forward)));
    let spec = StageSpec { outputs: &["out"], source: true, holds_packets: 8, ..StageSpec::default() };
    registry.stage("source", spec, |context| Ok(Box::new(Source::new(context)?)));
    registry.stage("end", StageSpec::default(), |context| Ok(Box::new(End::new(context)?)));
    registry
}

/// Lcores `a` to `d` and a pool, before the tables that a test adds.
const COMMON: &str = r#"
[device.nic0]
provider = "soft"
name = "soft0"
[pool.p]
device = "nic0"
packets = 4096
data_bytes = 64
pages = "4KiB"
cache_packets = 16
"#;

fn lcores(names: &[&str], idle: &str) -> String {
    // All may share one CPU with other programs, and the last packets wait for their turn then.
    let lcore = |(cpu, name): (usize, &&str)| {
        format!("[lcore.{name}]\ncpu = {cpu}\nburst = 8\nidle = \"{idle}\"\ndrain = \"20s\"\n")
    };
    names.iter().enumerate().map(lcore).collect()
}

fn source(name: &str, lcore: &str, out: &str, params: &str) -> String {
    format!(
        "[stage.{name}]\nuse = \"source\"\nlcore = \"{lcore}\"\npool = \"p\"\nout = {{ out = \"{out}\" }}\n\
         params = {{ {params} }}\n"
    )
}

fn end(name: &str, lcore: &str, params: &str) -> String {
    format!("[stage.{name}]\nuse = \"end\"\nlcore = \"{lcore}\"\nparams = {{ {params} }}\n")
}

/// Runs a plan until its sources have finished.
#[track_caller]
fn run(text: &str) -> Report {
    let registry = registry();
    let machine = Machine { cpus: BTreeSet::from([0, 1, 2, 3]), ..Machine::detect() };
    let loaded = Loader::new(registry.catalog(), machine).load_str("test.toml", &(COMMON.to_owned() + text));
    let plan = loaded.unwrap_or_else(|faults| panic!("{faults}"));
    let mut running = start_with(build(&plan, &registry).unwrap(), |_, _, _| Ok(())).unwrap();
    running.wait(Some(Duration::from_secs(20)));
    let report = running.stop(STOP_LIMIT).unwrap();
    assert_eq!((report.packets.held, report.packets.taken), (0, report.packets.returned), "{report:#?}");
    assert!(report.drained && report.lcores.iter().all(|lcore| lcore.rescues == 0), "{report:#?}");
    report
}

/// Waits until the report so far satisfies `is_so`.
#[track_caller]
fn wait_for(running: &RunningInner, is_so: impl Fn(&Report) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so(&running.snapshot()) {
        assert!(Instant::now() < deadline, "{:#?}", running.snapshot());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn seen(report: &Report, stage: &str, id: usize) -> u64 {
    report.stage(stage).unwrap().counter(&format!("seen_{id}")).unwrap()
}

#[test]
fn two_lcores_fill_one_ring_and_wake_who_empties_it() {
    let params = |id| format!("id = {id}, count = 800, gap_us = 100, patient = true");
    let text = lcores(&["a", "b", "c"], "event")
        + &source("one", "a", "ring.jobs", &params(0))
        + &source("two", "b", "ring.jobs", &params(1))
        + &source("three", "b", "ring.jobs", &params(2))
        + "[ring.jobs]\nto = \"stage.end\"\ndepth = 16\n"
        + &end("end", "c", "");
    let report = run(&text);
    assert_eq!([0, 1, 2].map(|id| seen(&report, "end", id)), [800; 3]);
    assert!(report.drops.is_empty(), "{:?}", report.drops);
    let ring = report.ring("jobs").unwrap();
    assert_eq!((ring.pushed, ring.popped, ring.producer.as_str()), (2400, 2400, "a, b"));
    let lanes: Vec<_> = ring.lanes.iter().map(|lane| (lane.producer.as_str(), lane.pushed, lane.popped)).collect();
    assert_eq!(lanes, [("a", 800, 800), ("b", 1600, 1600)]);
    assert!(report.lcore("c").unwrap().woken_by("ring") > 0, "{report:#?}");
}

#[test]
fn packets_go_by_their_keys_and_stay_in_order() {
    for patient in [true, false] {
        let text = lcores(&["a", "b", "c"], "event")
            + &source("one", "a", "spread.all", &format!("id = 3, count = 3000, gap_us = 20, patient = {patient}"))
            + "[spread.all]\nby = \"key\"\nto = [\"ring.b\", \"stage.near\", \"ring.c\"]\n"
            + "[ring.b]\nto = \"stage.b\"\ndepth = 64\n[ring.c]\nto = \"stage.c\"\ndepth = 64\n"
            + &end("near", "a", "place = 1, places = 3")
            + &end("b", "b", "place = 0, places = 3")
            + &end("c", "c", "place = 2, places = 3");
        let report = run(&text);
        let got = ["b", "near", "c"].map(|stage| seen(&report, stage, 3));
        let refused = report.stage("one").unwrap().counter("refused").unwrap();
        assert_eq!(got.iter().sum::<u64>() + refused, 3000);
        assert_eq!(refused, report.dropped("ring_full"));
        assert_eq!(report.stage("one").unwrap().packets_out, 3000 - refused);
        let keys = (0..3000).map(|number| 3 << SOURCE_SHIFT | number);
        let expected = keys.fold([0; 3], |mut counts, key| {
            counts[place_of_key(key, 3)] += 1;
            counts
        });
        if patient {
            assert_eq!((got, refused), (expected, 0));
        }
        let misplaced = ["b", "near", "c"].map(|stage| report.stage(stage).unwrap().counter("misplaced").unwrap());
        assert_eq!(misplaced, [0; 3]);
    }
}

#[test]
fn a_full_place_holds_up_only_its_own_packets() {
    // Nothing empties `ring.slow` while its first batch is processed.
    let text = lcores(&["a", "b"], "event")
        + &source("one", "a", "spread.all", "id = 0, count = 400, gap_us = 50, patient = true")
        + "[spread.all]\nby = \"key\"\nto = [\"ring.slow\", \"stage.near\"]\n"
        + "[ring.slow]\nto = \"stage.slow\"\ndepth = 2\n"
        + &end("near", "a", "place = 1, places = 2")
        + &end("slow", "b", "place = 0, places = 2, work_us = 500");
    let report = run(&text);
    assert_eq!(seen(&report, "near", 0) + seen(&report, "slow", 0), 400);
    assert!(report.drops.is_empty() && report.ring("slow").unwrap().full > 0, "{report:#?}");
}

#[test]
fn in_turn_each_place_gets_as_many() {
    for patient in [true, false] {
        let text = lcores(&["a", "b"], "event")
            + &source("one", "a", "spread.all", &format!("id = 1, count = 3000, gap_us = 50, patient = {patient}"))
            + "[spread.all]\nby = \"round-robin\"\nto = [\"stage.x\", \"stage.y\", \"ring.b\"]\n"
            + "[ring.b]\nto = \"stage.b\"\ndepth = 2048\n"
            + &end("x", "a", "")
            + &end("y", "a", "")
            + &end("b", "b", "");
        let report = run(&text);
        assert_eq!(["x", "y", "b"].map(|stage| seen(&report, stage, 1)), [1000; 3]);
        assert!(report.drops.is_empty(), "{:?}", report.drops);
    }
}

#[test]
fn in_turn_goes_past_a_place_that_is_full() {
    let text = lcores(&["a", "b"], "event")
        + &source("one", "a", "spread.all", "id = 1, count = 300, gap_us = 50")
        + "[spread.all]\nby = \"round-robin\"\nto = [\"ring.slow\", \"stage.near\"]\n"
        + "[ring.slow]\nto = \"stage.slow\"\ndepth = 1\n"
        + &end("near", "a", "")
        + &end("slow", "b", "work_us = 2000");
    let report = run(&text);
    assert_eq!(seen(&report, "near", 1) + seen(&report, "slow", 1), 300);
    assert!(report.drops.is_empty(), "{:?}", report.drops);
    assert!(seen(&report, "near", 1) > seen(&report, "slow", 1), "{report:#?}");
}

#[test]
fn copies_reach_every_place_and_what_the_pool_lacks_is_counted() {
    for patient in [true, false] {
        let text = lcores(&["a", "b"], "event")
            + &source("one", "a", "spread.all", &format!("id = 2, count = 1000, gap_us = 50, patient = {patient}"))
            + "[spread.all]\nby = \"copy\"\nto = [\"stage.near\", \"ring.b\"]\n"
            + "[ring.b]\nto = \"stage.b\"\ndepth = 2048\n"
            + &end("near", "a", "")
            + &end("b", "b", "");
        let report = run(&text);
        let one = report.stage("one").unwrap();
        let (near, far) = (seen(&report, "near", 2), seen(&report, "b", 2));
        assert_eq!((near, far, one.alloc_failed), (1000, 1000, 0));
        assert_eq!((one.packets_out, report.packets.taken), (2000, 2000));
    }
}

/// The kernel's set of CPUs, of 1,024, has no place for the second one.
#[test]
fn a_cpu_that_this_process_has_not_is_refused() {
    for cpu in [1_023, 60_000] {
        let at = Place::new(Location { file: "test.toml".into(), line: 1, column: 1 });
        let refused = pin("a", cpu, at).unwrap_err().to_string();
        assert!(refused.contains(&cpu.to_string()), "{refused}");
    }
}
