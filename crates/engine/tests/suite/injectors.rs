//! Injectors: messages from the embedder's threads reach the stage once and in order, wake its
//! lcore, and are refused with a reason if they can't be taken; and every packet comes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, assert_clean, one_lcore, plan, registry, until};
use verbline_engine::{
    Ended, EngineError, Injector, Outputs, Refused, Registry, Runtime, Stage, StageContext, StageSpec,
};
use verbline_mem::Batch;

/// Checks that each thread's messages come in order: the thread's number and the message's, in 8
/// bytes each.
struct Taker {
    next: [u64; 2],
    seen: verbline_engine::Counter,
    /// When the last message came, by the runtime's clock.
    last_ns: verbline_engine::Counter,
}

impl Stage for Taker {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            let word = |at: usize| u64::from_le_bytes(packet.data()[at..at + 8].try_into().expect("8 bytes"));
            let next = &mut self.next[word(0) as usize];
            assert_eq!(word(8), *next, "thread {}", word(0));
            *next += 1;
            self.seen.add(1);
        }
        self.last_ns.set(out.fresh_ns());
    }
}

/// Keeps everything, although its kind does not declare that.
struct Keeper(Batch);

impl Stage for Keeper {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        self.0.append(input);
    }
}

fn takers() -> Registry {
    let mut registry = registry();
    let spec = StageSpec { summary: "takes messages", ..StageSpec::default() };
    registry.stage("taker", spec, |context: &StageContext<'_>| {
        let (seen, last_ns) = (context.counter("seen"), context.counter("last_ns"));
        Ok(Box::new(Taker { next: [0; 2], seen, last_ns }))
    });
    registry.stage("keeper", spec, |_| Ok(Box::new(Keeper(Batch::with_capacity(4096)))));
    registry
}

fn text(idle: &str, kind: &str, depth: u32) -> String {
    let stages = format!(
        r#"
        [stage.taker]
        use = "{kind}"
        lcore = "only"
        [injector.orders]
        to = "stage.taker"
        pool = "p"
        depth = {depth}
        "#
    );
    one_lcore(idle, &stages)
}

fn message(thread: u64, number: u64) -> [u8; 16] {
    let mut message = [0; 16];
    message[..8].copy_from_slice(&thread.to_le_bytes());
    message[8..].copy_from_slice(&number.to_le_bytes());
    message
}

/// Pushes messages one by one or in batches until all are taken or the run stops; returns the
/// number taken, and how often the injector was full.
fn push_all(injector: &Injector, thread: u64, count: u64, batch: u64) -> (u64, u64) {
    let (mut taken, mut full) = (0, 0);
    while taken < count {
        let messages: Vec<_> = (taken..count.min(taken + batch)).map(|number| message(thread, number)).collect();
        let slices: Vec<&[u8]> = messages.iter().map(|message| &message[..]).collect();
        let (pushed, refused) = injector.try_push_all(&slices);
        taken += pushed as u64;
        match refused {
            None => assert_eq!(pushed, slices.len()),
            Some(Refused::Full) => {
                full += 1;
                std::thread::yield_now();
            }
            Some(Refused::Stopped) => break,
            Some(other) => panic!("{other}"),
        }
    }
    (taken, full)
}

#[test]
fn what_two_threads_push_comes_once_and_in_order() {
    const COUNT: u64 = 20_000;
    let registry = takers();
    for idle in ["poll", "event", "adaptive"] {
        let runtime = Runtime::build(&plan(&registry, &text(idle, "taker", 64)), &registry).unwrap();
        let injector = runtime.injector("orders").unwrap();
        let running = runtime.start().unwrap();
        let full = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for (thread, batch) in [(0, 1), (1, 7)] {
                let (injector, full) = (injector.clone(), &full);
                scope.spawn(move || {
                    let (taken, found_full) = push_all(&injector, thread, COUNT, batch);
                    assert_eq!(taken, COUNT);
                    // Relaxed: a sum alone.
                    full.fetch_add(found_full, Ordering::Relaxed);
                });
            }
        });
        let report = running.stop().unwrap();
        assert_clean(&report);
        let orders = report.injector("orders").unwrap();
        assert_eq!((orders.pushed, orders.popped), (2 * COUNT, 2 * COUNT));
        assert_eq!(orders.refused_full, full.into_inner(), "{orders:?}");
        assert_eq!(report.stage("taker").unwrap().counter("seen"), Some(2 * COUNT));
        assert_eq!(report.packets.taken, 2 * COUNT);
        assert_eq!(injector.try_push(&message(0, COUNT)), Err(Refused::Stopped));
    }
}

#[test]
fn a_push_wakes_an_lcore_that_sleeps() {
    const WAKES: u64 = 20;
    let registry = takers();
    let runtime = Runtime::build(&plan(&registry, &text("event", "taker", 8)), &registry).unwrap();
    let running = runtime.start().unwrap();
    let injector = running.injector("orders").unwrap();
    let (began, mut number) = (Instant::now(), 0);
    while running.snapshot().lcore("only").unwrap().woken_by("ring") < WAKES {
        assert!(began.elapsed() < PATIENCE, "{:?}", running.snapshot());
        // Long enough for the lcore to fall asleep, unless the machine is busy.
        std::thread::sleep(Duration::from_millis(3));
        injector.try_push(&message(0, number)).unwrap();
        number += 1;
        until(&running, |report| report.stage("taker").unwrap().counter("seen") == Some(number));
    }
    let report = running.stop().unwrap();
    assert_clean(&report);
    // Of the safety time-out, which is a second, there was no need.
    assert_eq!(report.lcore("only").unwrap().woken_by("timeout"), 0, "{report:?}");
    assert!(report.injector("orders").unwrap().bells >= WAKES, "{report:?}");
}

#[test]
fn what_cannot_be_taken_is_refused_and_counted() {
    let registry = takers();
    let runtime = Runtime::build(&plan(&registry, &text("event", "taker", 4)), &registry).unwrap();
    let unknown = runtime.injector("order").unwrap_err();
    assert!(matches!(unknown, EngineError::NoInjector { .. }));
    assert_eq!(unknown.to_string(), "the plan has no injector `order`; its injectors are: orders");
    let injector = runtime.injector("orders").unwrap();
    assert_eq!(injector.name(), "orders");
    // Messages pushed before the start wait.
    (0..4).for_each(|number| injector.try_push(&message(0, number)).unwrap());
    assert_eq!(injector.try_push(&message(0, 4)), Err(Refused::Full));
    assert_eq!(injector.try_push(&[0; 65]), Err(Refused::TooLong { len_bytes: 65, room_bytes: 64 }));
    let running = runtime.start().unwrap();
    until(&running, |report| report.stage("taker").unwrap().counter("seen") == Some(4));
    let report = running.stop().unwrap();
    assert_clean(&report);
    assert_eq!(injector.try_push(&message(0, 4)), Err(Refused::Stopped));
    let orders = report.injector("orders").unwrap();
    assert_eq!((orders.pushed, orders.refused_full, orders.refused_too_long), (4, 1, 1));
    assert_eq!((orders.depth, orders.most, &*orders.stage, &*orders.lcore), (4, 4, "taker", "only"));
}

#[test]
fn a_pool_that_a_stage_has_emptied_is_said() {
    let registry = takers();
    let runtime = Runtime::build(&plan(&registry, &text("poll", "keeper", 8)), &registry).unwrap();
    let running = runtime.start().unwrap();
    let injector = running.injector("orders").unwrap();
    let deadline = Instant::now() + crate::common::PATIENCE;
    let mut taken = 0;
    loop {
        match injector.try_push(&message(0, taken)) {
            Ok(()) => taken += 1,
            Err(Refused::Full) => std::thread::yield_now(),
            Err(why) => break assert_eq!(why, Refused::NoPacket),
        }
        assert!(Instant::now() < deadline);
    }
    let report = running.stop().unwrap();
    assert_clean(&report);
    assert_eq!((taken, report.injector("orders").unwrap().refused_no_packet), (1024, 1));
}

/// Messages taken before the run begins to stop arrive.
#[test]
fn what_was_taken_before_the_stop_is_delivered() {
    let registry = takers();
    for idle in ["poll", "event"] {
        for _ in 0..10 {
            let runtime = Runtime::build(&plan(&registry, &text(idle, "taker", 256)), &registry).unwrap();
            let injector = runtime.injector("orders").unwrap();
            let running = runtime.start().unwrap();
            let pusher = std::thread::spawn(move || push_all(&injector, 0, u64::MAX, 3));
            until(&running, |report| report.injector("orders").is_some_and(|orders| orders.pushed > 100));
            let report = running.stop().unwrap();
            let (taken, _) = pusher.join().unwrap();
            assert_clean(&report);
            assert_eq!(report.stage("taker").unwrap().counter("seen"), Some(taken));
            assert_eq!(report.injector("orders").unwrap().pushed, taken);
        }
    }
}

/// Panics at its first message.
struct Breaking;

impl Stage for Breaking {
    fn process(&mut self, _: &mut Batch, _: &mut Outputs<'_>) {
        panic!("as asked");
    }
}

// Regression: later messages were taken and never delivered, and then the ring was reported full: a
// thread that pushes until it has room, or until the run is over, pushed for ever.
#[test]
fn nothing_is_taken_once_the_run_has_failed() {
    let mut registry = takers();
    registry.stage("breaking", StageSpec::default(), |_| Ok(Box::new(Breaking)));
    let running = Runtime::build(&plan(&registry, &text("event", "breaking", 8)), &registry).unwrap().start().unwrap();
    let injector = running.injector("orders").unwrap();
    injector.try_push(&message(0, 0)).unwrap();
    assert_eq!(running.wait(Some(PATIENCE)), Ended::Failed);
    assert!(running.observer().is_stopping());
    assert_eq!([1, 2].map(|number| injector.try_push(&message(0, number))), [Err(Refused::Stopped); 2]);
    let EngineError::Panicked { report, .. } = running.stop().unwrap_err() else { panic!("it panicked") };
    assert_eq!((report.packets.taken, report.packets.held, report.dropped("left_behind")), (1, 0, 0));
    assert_eq!(report.injector("orders").map(|orders| orders.refused_stopped), Some(2));
}

#[test]
fn a_handle_that_outlives_a_runtime_that_never_ran_keeps_nothing() {
    let registry = takers();
    let leaked = verbline_mem::leaked_pools();
    let runtime = Runtime::build(&plan(&registry, &text("event", "taker", 8)), &registry).unwrap();
    let injector = runtime.injector("orders").unwrap();
    injector.try_push(&message(0, 0)).unwrap();
    drop(runtime);
    assert_eq!(injector.try_push(&message(0, 1)), Err(Refused::Stopped));
    assert_eq!(verbline_mem::leaked_pools(), leaked);
}

#[test]
fn a_handle_goes_to_any_thread() {
    fn any_thread<T: Clone + Send + Sync + 'static>() {}
    any_thread::<Injector>();
}
