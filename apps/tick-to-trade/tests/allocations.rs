//! No thread allocates after start: not in an undisturbed run, not during retransmissions, and not
//! while books are rebuilt from snapshots.
//!
//! A program of its own, since every allocation of the process counts.

use std::alloc::System;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};
use tick_to_trade::stages::{self, Tally};
use verbline::prelude::*;
use verbline_tests::{config, two_lcores};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Long enough to run every path once: books are announced, and the first gaps closed.
const WARM_UP: Duration = Duration::from_millis(800);
const COUNTED: Duration = Duration::from_millis(1500);
/// On a busy machine, a run gets less done in a stretch.
const STRETCHES_MAX: usize = 20;

/// The allocations in stretches of a run with these keys set, until the book stage has counted at
/// least `least` since the warm-up. Returns them and those counts: retransmitted messages, rebuilt
/// books.
fn allocated(sets: &[&str], least: [u64; 2]) -> Option<([usize; 3], [u64; 2])> {
    let mut settings = two_lcores(["exchange", "trader"])?;
    settings.retain(|setting| setting != "--set");
    settings.extend(sets.iter().map(|set| (*set).to_owned()));
    let mut registry = Registry::new("tick-to-trade");
    stages::register(&mut registry, &Tally::default());
    let loader = Loader::new(registry.catalog(), Machine::detect()).sets(&settings);
    let plan = loader.load_path(config("tick-to-trade")).unwrap_or_else(|faults| panic!("{faults}"));
    let running = Runtime::build(&plan, &registry).and_then(Runtime::start).unwrap_or_else(|error| panic!("{error}"));
    running.wait(Some(WARM_UP));
    let before = recovered(&running.snapshot());
    let (mut touched, mut more) = ([0; 3], [0; 2]);
    for _ in 0..STRETCHES_MAX {
        let counting = Region::new(ALLOCATOR);
        running.wait(Some(COUNTED));
        let Stats { allocations, reallocations, deallocations, .. } = counting.change();
        touched = [touched[0] + allocations, touched[1] + reallocations, touched[2] + deallocations];
        let after = recovered(&running.snapshot());
        more = [after[0] - before[0], after[1] - before[1]];
        if more[0] >= least[0] && more[1] >= least[1] {
            break;
        }
    }
    running.stop().unwrap_or_else(|error| panic!("{error}"));
    Some((touched, more))
}

fn recovered(report: &Report) -> [u64; 2] {
    let book = report.stage("book").expect("it is in the plan");
    ["retransmitted", "rebuilt"].map(|name| book.counter(name).expect("the stage counts it"))
}

#[test]
fn two_lcores_allocate_nothing_after_start_whatever_is_recovered() {
    let lossy = ["feed.drop_a=0.15", "feed.drop_b=0.15", "feed.drop_answers=0.2", "feed.ticks_per_second=10000"];
    let snapshots = ["feed.kept_messages=2", "stage.book.params.tries=2"];
    for (sets, what, least) in [
        (vec![], "nothing", [0, 0]),
        (lossy.to_vec(), "messages sent again", [10, 0]),
        ([&lossy[..], &snapshots].concat(), "books rebuilt", [0, 5]),
    ] {
        let Some((touched, recovered)) = allocated(&sets, least) else { return };
        assert!(recovered[0] >= least[0] && recovered[1] >= least[1], "{what}: only {recovered:?}");
        assert_eq!(touched, [0; 3], "{what}: allocations, reallocations, deallocations");
    }
}
