//! Polled stages: they are polled whenever they want to be, and their work then is not a lost
//! wake-up.

use std::time::Duration;

use crate::common::{OUT, assert_clean, one_lcore, plan, registry, run_for, until};
use verbline_engine::{Next, Outputs, Registry, Report, Runtime, Stage, StageContext, StageSpec};

/// Returns one poll time after the other, and sends a packet at each poll that `sends` selects.
struct Asker {
    next: fn(u64) -> Next,
    sends: fn(u64) -> bool,
    polls: u64,
}

impl Stage for Asker {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        self.polls += 1;
        if (self.sends)(self.polls) {
            let mut packet = out.alloc().expect("a packet is free");
            assert!(packet.set_len(8));
            packet.data_mut().copy_from_slice(&self.polls.to_le_bytes());
            assert!(out.send(OUT, packet));
        }
        (self.next)(self.polls)
    }
}

fn asker(next: fn(u64) -> Next, sends: fn(u64) -> bool) -> Registry {
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], source: true, summary: "asks to be polled", ..StageSpec::default() };
    let make = move |_: &StageContext<'_>| Ok(Box::new(Asker { next, sends, polls: 0 }) as Box<dyn Stage>);
    registry.stage("asker", spec, make);
    registry
}

const STAGES: &str = r#"
    [stage.asker]
    use = "asker"
    lcore = "only"
    pool = "p"
    out = { out = "stage.sink" }
    [stage.sink]
    use = "sink"
    lcore = "only"
    params = { any_order = true }
    "#;

/// Runs it on one lcore that sleeps as soon as it is idle.
fn run(next: fn(u64) -> Next, sends: fn(u64) -> bool, time: Duration) -> Report {
    let report = run_for(&asker(next, sends), &one_lcore("event", STAGES), time).unwrap();
    assert_clean(&report);
    report
}

#[test]
fn a_stage_that_asks_for_a_tick_that_is_over_is_polled_at_once_even_if_it_is_the_first() {
    for next in [|_| Next::At(0), |_| Next::At(1)] {
        let report = run(next, |polls| polls % 12 == 0, Duration::from_millis(300));
        let (lcore, asker) = (report.lcore("only").unwrap(), report.stage("asker").unwrap());
        assert_eq!((lcore.sleeps, lcore.asleep_ns), (0, 0), "{lcore:?}");
        // A sleeping lcore had two polls per safety time-out.
        assert!(asker.polls > 1000, "{asker:?}");
    }
}

/// On one lcore that is always awake.
#[test]
fn an_lcore_that_waits_for_moments_misses_nothing() {
    for idle in ["poll", "adaptive"] {
        let policy = format!("idle = \"{idle}\"");
        let run = |plan: &str| {
            // Most turns are idle.
            let registry = asker(|polls| if polls == 500 { Next::Done } else { Next::Idle }, |_| true);
            let report = run_for(&registry, plan, Duration::from_secs(60)).unwrap();
            assert_clean(&report);
            assert_eq!(report.stage("sink").unwrap().packets_in, 500);
            report.lcore("only").unwrap().pause
        };
        let plan = one_lcore(idle, STAGES);
        assert_eq!(run(&plan), None);
        let waits = plan.replace(&policy, &format!("{policy}\npause = true"));
        assert_eq!(run(&waits), Some(verbline_ring::Pause::of_this_cpu().word()));
    }
}

#[test]
fn a_stage_that_said_idle_may_send_when_it_is_polled_again() {
    let report = run(|_| Next::Idle, |_| true, Duration::from_millis(100));
    assert!(report.lcore("only").unwrap().sleeps == 0, "it is never without work");
    // The second poll, after the first one in a turn that found nothing, sends nothing; nor does
    // the poll that looks again before the sleep. The next one comes when the safety time-out has
    // ended that sleep.
    let registry = asker(|_| Next::Idle, |polls| polls > 2);
    let plan = plan(&registry, &one_lcore("event", STAGES));
    let running = Runtime::build(&plan, &registry).unwrap().start().unwrap();
    until(&running, |report| report.stage("sink").unwrap().packets_in > 0);
    let report = running.stop().unwrap();
    assert_clean(&report);
    let lcore = report.lcore("only").unwrap();
    assert_eq!((lcore.sleeps, lcore.woken_by("timeout")), (1, 1), "{lcore:?}");
    assert!(report.stage("sink").unwrap().packets_in > 0, "{report:#?}");
}
