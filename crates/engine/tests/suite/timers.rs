//! Stages' timers: due at their tick and never before, in order, each once, as many as the plan
//! allows; and a sleeping lcore wakes for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{OUT, assert_clean, fed, one_lcore, plan, registry, run, run_for, until};
use verbline_engine::{
    DueTimer, Next, Outputs, Registry, Report, Runtime, Stage, StageContext, StageSpec, Tick, TimerId,
};
use verbline_mem::Batch;

const MS: Tick = 1_000_000;

/// A registry with the stage kind `armer`, built by `make`.
fn armer<S: Stage + 'static>(source: bool, make: impl Fn(&StageContext<'_>) -> S + Send + Sync + 'static) -> Registry {
    let mut registry = registry();
    let spec = StageSpec { source, outputs: &[], summary: "arms timers", ..StageSpec::default() };
    registry.stage("armer", spec, move |context| Ok(Box::new(make(context))));
    registry
}

fn source(timers_max: u32) -> String {
    format!("[stage.armer]\nuse = \"armer\"\nlcore = \"only\"\ntimers_max = {timers_max}\n")
}

/// A generator of pseudo-random numbers (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The due timers: tag, tick, and the time when it was handed to the stage.
type Seen = Arc<Mutex<Vec<(u64, Tick, Tick)>>>;

/// Arms, moves and cancels timers by seed, and keeps an account of those that must be due.
struct Account {
    random: Random,
    armed: BTreeMap<u64, (TimerId, Tick)>,
    next_tag: u64,
    most: u64,
    seen: Seen,
}

impl Account {
    /// A server's step: a request with a time-out, an answer, a keep-alive.
    fn step(&mut self, out: &mut Outputs<'_>) {
        let at_ns = out.now_ns() + self.random.below(300 * MS);
        let any = self.armed.keys().copied().nth(self.random.below(self.armed.len().max(1) as u64) as usize % 64);
        match (self.random.below(8), any) {
            (0, Some(tag)) => {
                let (id, _) = self.armed.remove(&tag).unwrap();
                assert!(out.cancel_timer(id));
                assert!(!out.cancel_timer(id) && !out.rearm_timer(id, at_ns), "it is gone");
            }
            (1, Some(tag)) => {
                let (id, known_ns) = self.armed.get_mut(&tag).unwrap();
                assert!(out.rearm_timer(*id, at_ns));
                *known_ns = at_ns;
            }
            _ => {
                let id = out.arm_timer(at_ns, self.next_tag).expect("fewer are armed than the plan allows");
                self.armed.insert(self.next_tag, (id, at_ns));
                self.next_tag += 1;
            }
        }
    }
}

impl Stage for Account {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        for _ in 0..100 {
            if self.next_tag < self.most {
                self.step(out);
            }
        }
        if self.next_tag < self.most { Next::Busy } else { Next::Done }
    }

    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        let now_ns = out.now_ns();
        let mut seen = self.seen.lock().unwrap();
        for timer in due {
            let (id, at_ns) = self.armed.remove(&timer.tag).expect("it is armed, and due once");
            assert_eq!((timer.id, timer.at_ns), (id, at_ns));
            assert!(!out.cancel_timer(id), "what is due is no longer armed");
            seen.push((timer.tag, at_ns, now_ns));
        }
    }
}

fn account(idle: &str, most: u64) -> (Report, Vec<(u64, Tick, Tick)>) {
    let seen = Seen::default();
    let shared = Arc::clone(&seen);
    let registry = armer(true, move |context| {
        assert_eq!(context.timers_max(), 10_000);
        let (random, seen) = (Random(0x9E37_79B9_7F4A_7C15), Arc::clone(&shared));
        Account { random, armed: BTreeMap::new(), next_tag: 0, most, seen }
    });
    let report = run(&registry, &one_lcore(idle, &source(10_000))).unwrap();
    assert_clean(&report);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (report, seen)
}

#[test]
fn ten_thousand_timers_are_due_once_each_in_order_and_never_early() {
    for idle in ["poll", "event", "adaptive"] {
        let (report, seen) = account(idle, 10_000);
        let stage = report.stage("armer").unwrap();
        // The source finished only after its last timer.
        assert_eq!(stage.timers_armed, 10_000);
        assert_eq!(stage.timers_due + stage.timers_canceled, 10_000, "{stage:?}");
        assert_eq!((stage.timers_due, stage.timers_refused), (seen.len() as u64, 0));
        assert!(stage.timers_canceled > 500, "{stage:?}");
        assert!(seen.iter().all(|(_, at_ns, now_ns)| at_ns <= now_ns), "one was early");
        // The ticks of timers that were due together ascend; later batches come later.
        assert!(seen.is_sorted_by_key(|(_, _, now_ns)| *now_ns));
        for same in seen.chunk_by(|one, other| one.2 == other.2) {
            assert!(same.is_sorted_by_key(|(_, at_ns, _)| *at_ns), "{idle}: {same:?}");
        }
    }
}

/// Arms one timer after the other, some milliseconds apart.
struct Ticker {
    left: u32,
    late_ns: Arc<Mutex<Vec<Tick>>>,
}

impl Stage for Ticker {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        out.arm_timer(out.now_ns() + 5 * MS, 0).unwrap();
        Next::Done
    }

    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        self.late_ns.lock().unwrap().push(out.fresh_ns() - due[0].at_ns);
        self.left -= 1;
        if self.left > 0 {
            out.arm_timer(due[0].at_ns + 5 * MS, 0).unwrap();
        }
    }
}

#[test]
fn an_lcore_that_sleeps_wakes_for_a_timer_in_time() {
    let late_ns = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&late_ns);
    let registry = armer(true, move |_| Ticker { left: 60, late_ns: Arc::clone(&shared) });
    let report = run(&registry, &one_lcore("event", &source(1))).unwrap();
    assert_clean(&report);
    let lcore = report.lcore("only").unwrap();
    let mut late_ns = late_ns.lock().unwrap().clone();
    late_ns.sort_unstable();
    // No sleep precedes a timer that is already due, since the machine did not run the lcore.
    let late = late_ns.iter().filter(|late_ns| **late_ns >= 2 * MS).count() as u64;
    assert!(lcore.woken_by("timer") + late >= 50 && lcore.woken_by("timeout") == 0, "{late} late: {lcore:?}");
    assert!(lcore.asleep_ns > 100 * MS, "it slept between them: {lcore:?}");
    // Without the timer it would have slept for a second.
    assert!(late_ns[30] < 2 * MS, "{late_ns:?}");
}

/// Returns `Idle` from every poll, and so would sleep until something arrives.
struct Idler(u32);

impl Stage for Idler {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.0 == 0 {
            out.arm_timer(out.now_ns() + 20 * MS, 0).unwrap();
        }
        self.0 += 1;
        Next::Idle
    }

    fn timers(&mut self, _: &[DueTimer], out: &mut Outputs<'_>) {
        out.arm_timer(out.now_ns() + 20 * MS, 0).unwrap();
    }
}

#[test]
fn a_timer_ends_the_sleep_of_a_stage_that_waits_for_nothing_else() {
    let report =
        run_for(&armer(true, |_| Idler(0)), &one_lcore("event", &source(1)), Duration::from_millis(300)).unwrap();
    assert_clean(&report);
    let (lcore, stage) = (report.lcore("only").unwrap(), report.stage("armer").unwrap());
    assert!(stage.timers_due >= 5, "{stage:?}");
    assert!(lcore.woken_by("timer") >= 5 && lcore.woken_by("timeout") == 0, "{lcore:?}");
}

/// Gives each packet a time-out, and moves one keep-alive with each batch.
struct Requests {
    alive: Option<TimerId>,
    pending: Vec<TimerId>,
}

impl Stage for Requests {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let now_ns = out.now_ns();
        for _ in input.drain_front(input.len()) {
            self.pending.extend(out.arm_timer(now_ns + 4000 * MS, 7));
        }
        match self.alive {
            Some(id) => assert!(out.rearm_timer(id, now_ns + 100 * MS)),
            None => self.alive = out.arm_timer(now_ns + 100 * MS, 1),
        }
        // All packets but the last are answered.
        let last = self.pending.pop();
        assert!(self.pending.drain(..).all(|id| out.cancel_timer(id)));
        self.pending.extend(last);
    }

    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        assert_eq!((due.len(), due[0].tag, Some(due[0].id)), (1, 1, self.alive), "the keep-alive alone is due");
        self.alive = None;
        assert!(out.arm_timer(out.now_ns() + 3000 * MS, 2).is_some());
    }
}

#[test]
fn time_outs_of_packets_are_armed_and_canceled_and_what_is_armed_at_the_end_keeps_nothing_up() {
    for idle in ["poll", "event", "adaptive"] {
        let registry = armer(false, |_| Requests { alive: None, pending: Vec::new() });
        let stages = fed("count = 400, gap_us = 50", "use = \"armer\"\ntimers_max = 64");
        let running = Runtime::build(&plan(&registry, &one_lcore(idle, &stages)), &registry).unwrap().start().unwrap();
        until(&running, |report| report.stage("next").is_some_and(|stage| stage.timers_due == 1));
        let report = running.stop().unwrap();
        assert_clean(&report);
        let stage = report.stage("next").unwrap();
        assert_eq!((stage.packets_in, stage.timers_due, stage.timers_refused), (400, 1, 0), "{stage:?}");
        // A time-out per packet and the keep-alive, which is due once; the last time-out and the
        // timer it armed are left.
        assert_eq!((stage.timers_armed, stage.timers_canceled), (402, 399), "{stage:?}");
        assert!(report.elapsed_ns < 2500 * MS);
    }
}

/// Asks for one timer more than there are.
struct Greedy {
    wanted: u64,
    refused: Arc<Mutex<u64>>,
}

impl Stage for Greedy {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let got = (0..self.wanted).filter_map(|tag| out.arm_timer(out.now_ns() + tag, tag)).count() as u64;
        *self.refused.lock().unwrap() += self.wanted - got;
        Next::Done
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        assert_eq!(out.arm_timer(0, 0), None, "a source that is stopped is not told any more");
        *self.refused.lock().unwrap() += 1;
    }
}

#[test]
fn a_timer_beyond_those_of_the_plan_is_refused_and_counted() {
    for (timers_max, refused) in [(0, 4), (2, 2), (3, 1)] {
        let all = Arc::new(Mutex::new(0));
        let shared = Arc::clone(&all);
        let registry = armer(true, move |_| Greedy { wanted: 3, refused: Arc::clone(&shared) });
        let report = run(&registry, &one_lcore("event", &source(timers_max))).unwrap();
        assert_clean(&report);
        let stage = report.stage("armer").unwrap();
        assert_eq!((stage.timers_refused, *all.lock().unwrap()), (refused, refused));
        assert_eq!((stage.timers_armed, stage.timers_due), (4 - refused, 4 - refused));
    }
}

/// Sends its packets a while after the stop.
struct Late {
    held: Batch,
}

impl Stage for Late {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        self.held.append(input);
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        assert!(out.arm_timer(0, 0).is_some());
    }

    fn timers(&mut self, _: &[DueTimer], out: &mut Outputs<'_>) {
        out.send_batch(OUT, &mut self.held);
    }
}

#[test]
fn a_timer_that_is_armed_as_the_run_stops_is_due_while_it_drains() {
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], holds_packets: 64, summary: "sends late", ..StageSpec::default() };
    registry.stage("late", spec, |_| Ok(Box::new(Late { held: Batch::with_capacity(64) })));
    let stages = fed("count = 40", "use = \"late\"\ntimers_max = 1\nout = { out = \"stage.sink\" }");
    let sink = "[stage.sink]\nuse = \"sink\"\nlcore = \"only\"\n";
    for idle in ["poll", "event"] {
        let report = run(&registry, &one_lcore(idle, &format!("{stages}{sink}"))).unwrap();
        assert_clean(&report);
        assert_eq!(report.stage("sink").unwrap().packets_in, 40);
    }
}

/// A heartbeat without an end, which sends nothing.
struct Heartbeat;

impl Stage for Heartbeat {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        input.clear();
        let _ = out.arm_timer(0, 0);
    }

    fn timers(&mut self, _: &[DueTimer], out: &mut Outputs<'_>) {
        assert!(out.arm_timer(out.now_ns() + MS / 50, 0).is_some());
    }
}

// Regression: each of its timers was taken for work under way: the run drained for as long as its
// plan allows.
#[test]
fn a_heartbeat_does_not_hold_up_the_drain() {
    for idle in ["poll", "event"] {
        let registry = armer(false, |_| Heartbeat);
        let stages = fed("count = 1", "use = \"armer\"\ntimers_max = 1");
        let text = one_lcore(idle, &stages).replace("idle =", "drain = \"20s\"\nidle =");
        let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
        until(&running, |report| report.stage("next").is_some_and(|stage| stage.timers_due > 10));
        let began = Instant::now();
        let report = running.stop().unwrap();
        assert_clean(&report);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
