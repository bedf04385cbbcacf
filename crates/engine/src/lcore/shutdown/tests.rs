//! An lcore that reads of its end late.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use verbline_plan::IdlePolicy;

use crate::api::stage::Stage;
use crate::control::notice::Notice;
use crate::control::run_control::{Control, Phase};
use crate::idle::policy::Budget;
use crate::rig::{Parts, Rig};

struct Silent;

impl Stage for Silent {}

/// The owner has gone from the drain to the end before the lcore looked. Without time for a drain,
/// the lcore tells its stages nothing more.
#[test]
fn an_lcore_without_a_drain_that_hears_of_the_end_first_ends() {
    const POLLS_MAX: usize = 1_000;
    let rig = Rig::new(64);
    let (waker, doorbell) = verbline_ring::doorbell().unwrap();
    let control = Arc::new(Control::new(vec![waker]));
    let budget = Budget::none(IdlePolicy::Poll);
    let (source, stage) = (Some(rig.source()), Box::new(Silent));
    let parts = Parts { budget, ports: vec![], sinks: vec![], stage, source, doorbell, burst: 4 };
    let (mut lcore, _) = rig.lcore(&control, parts);
    lcore.drain_ns = 0;
    control.advance(Phase::Draining);
    control.advance(Phase::Ending);
    let polls = Arc::new(AtomicUsize::new(0));
    let (counted, ends) = (Arc::clone(&polls), Arc::clone(&control));
    rig.script.on_poll(move |_| {
        // Relaxed: this thread alone counts. An lcore that would go on for ever is sent a notice.
        if counted.fetch_add(1, Ordering::Relaxed) == POLLS_MAX {
            ends.notify(0, Notice::LetGo);
        }
    });
    lcore.run().unwrap();
    assert!(polls.load(Ordering::Relaxed) < POLLS_MAX, "it went on");
    lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
}
