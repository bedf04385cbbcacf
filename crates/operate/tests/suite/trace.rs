//! Traces: their content, refusals, and ends.

use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use verbline_engine::{TraceEvent, TraceKind};
use verbline_operate::client::{Client, ClientError};
use verbline_operate::trace::events::Events;
use verbline_operate::trace::summary::Summary;
use verbline_operate::trace::{Analysis, Wanted};
use verbline_operate::{FilterAsk, TraceAsk};

use crate::common::{IS_AWAITED, IS_OPEN, PATIENCE, Served, once_free};

const WANTED: Wanted = Wanted { at: None, above_ns: 0, packets: u64::MAX, first: 1000, slowest: 3, last_ns: None };

fn begun(served: &Served, ask: TraceAsk) -> (Analysis, Events) {
    let (head, events) = Client::connect(&served.socket()).unwrap().trace(ask).unwrap();
    (Analysis::new(head, WANTED), events)
}

/// Takes events until there are this many packets, and ends the trace.
fn taken(mut analysis: Analysis, mut events: Events, packets: u64) -> Summary {
    let (deadline, mut has_ended) = (Instant::now() + PATIENCE, false);
    loop {
        match events.take(Duration::from_millis(50), |lcore, event| analysis.add(lcore, event, &mut ())) {
            Ok(()) => assert!(Instant::now() < deadline, "{} packets have come", analysis.packets()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
                return analysis.finish(&mut ());
            }
        }
        if analysis.packets() >= packets && !std::mem::replace(&mut has_ended, true) {
            events.end();
        }
    }
}

#[test]
fn every_packet_is_followed_from_its_source_to_its_end() {
    let served = Served::new("");
    let (analysis, events) = begun(&served, TraceAsk::default());
    let summary = taken(analysis, events, 400);
    let ways: Vec<(Vec<&str>, &str)> =
        summary.paths.iter().map(|way| (way.path.iter().map(String::as_str).collect(), &*way.ended)).collect();
    let [sent, received] =
        [(vec!["stage.source", "port.out"], "posted"), (vec!["port.in", "stage.sink"], "ends there")];
    assert!(ways.len() == 2 && ways.contains(&sent) && ways.contains(&received), "{ways:?}");
    assert!(summary.packets >= 400 && summary.lost_turns["main"] == 0, "{summary:?}");
    for packet in &summary.first {
        let sum: u64 = packet.steps.iter().map(|step| step.took_ns).sum();
        assert_eq!(sum, packet.took_ns + packet.waited_ns, "the parts are the whole: {packet:?}");
    }
    assert!(!summary.turns.is_empty() && summary.turns[0].took_ns >= summary.turns[1].took_ns);
    served.assert_undisturbed();
}

/// The stage does not return before the end of the trace.
#[test]
fn a_turn_that_stands_at_the_end_of_a_trace_is_told_with_its_stage() {
    let gate = "\n[injector.hand]\nto = \"stage.gate\"\npool = \"packets\"\ndepth = 8\n\
                [stage.gate]\nuse = \"gate\"\nlcore = \"main\"\n";
    let (mut served, runtime) = Served::starting(gate);
    let hand = runtime.injector("hand").unwrap();
    served.run(runtime);
    let (mut analysis, mut events) = begun(&served, TraceAsk::default());
    // Once packets are followed, the lcore has noticed the trace.
    while analysis.packets() == 0 {
        events.take(Duration::from_millis(50), |lcore, event| analysis.add(lcore, event, &mut ())).unwrap();
    }
    hand.try_push(b"knock").unwrap();
    // Relaxed: the flags carry no data.
    while !IS_AWAITED.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    events.end();
    let summary = taken(analysis, events, u64::MAX);
    IS_OPEN.store(true, Ordering::Relaxed);
    let longest = &summary.turns[0];
    assert!(longest.did[0].did == "stage.gate" && longest.took_ns >= longest.did[0].ns, "{:?}", summary.turns);
    assert!(longest.did[0].ns >= 1_000_000_000, "it was waited for: {longest:?}");
    served.assert_undisturbed();
}

#[test]
fn a_filter_marks_packets_by_their_bytes() {
    let served = Served::new("");
    let filter = Some(FilterAsk { offset: 0, hex: "2A".into() });
    let (analysis, events) = begun(&served, TraceAsk { filter, ..TraceAsk::default() });
    let summary = taken(analysis, events, 4);
    let all: u64 = summary.paths.iter().map(|way| way.packets).sum();
    assert!(all == summary.packets && (4..40).contains(&all), "one number of 256 has the byte: {summary:?}");
    served.assert_undisturbed();
}

#[test]
fn a_trace_has_its_turns_whole_and_its_lcore_asleep_between_them() {
    let served = Served::new("");
    let (_, mut events) = begun(&served, TraceAsk::default());
    let mut all: Vec<TraceEvent> = Vec::new();
    // On a machine with busy CPUs there are few sleeps among as many events.
    let has_slept =
        |all: &[TraceEvent]| all.iter().filter(|event| event.kind() == Some(TraceKind::Asleep)).count() > 20;
    while all.len() < 2_000 || !has_slept(&all) {
        events
            .take(PATIENCE, |lcore, event| {
                assert_eq!(lcore, 0);
                all.push(event);
            })
            .unwrap();
    }
    let count = |kind| all.iter().filter(|event| event.kind() == Some(kind)).count();
    let (mut is_in_turn, mut last_ns) = (false, 0);
    for event in all.iter().filter(|event| event.kind() != Some(TraceKind::Now)) {
        assert!(event.at_ns >= last_ns, "in the order of their times: {event:?}");
        last_ns = event.at_ns;
        match event.kind().unwrap() {
            TraceKind::Turn => assert!(!std::mem::replace(&mut is_in_turn, true), "a turn in a turn"),
            TraceKind::TurnEnd => is_in_turn = false,
            TraceKind::Asleep | TraceKind::Stolen | TraceKind::Lost => assert!(!is_in_turn),
            kind => assert!(is_in_turn, "{kind:?}"),
        }
    }
    let counts = [TraceKind::Turn, TraceKind::Process, TraceKind::Asleep].map(count);
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    drop(events);
    served.assert_undisturbed();
}

/// The source sends every millisecond. Each window has some whole packets, and no packet is made of
/// two that had the same buffer in different windows.
#[test]
fn a_trace_of_some_milliseconds_has_whole_packets_of_them_and_nothing_between() {
    let served = Served::new("");
    let ask = TraceAsk { one_in: NonZeroU32::new(8), ..TraceAsk::default() };
    let (mut analysis, mut events) = begun(&served, ask.clone());
    let (mut recorded_ns, mut windows, mut first_ns, mut begun_ns) = (0, 0, None, None);
    let mut last_ns = 0;
    while windows < 40 {
        let taken = events.take(PATIENCE, |lcore, event| {
            match event.kind().unwrap() {
                TraceKind::Turn => _ = begun_ns.get_or_insert(event.at_ns),
                TraceKind::Rests => {
                    windows += 1;
                    recorded_ns += begun_ns.take().map_or(0, |from_ns| event.at_ns - from_ns);
                }
                _ => {}
            }
            first_ns.get_or_insert(event.at_ns);
            last_ns = event.at_ns;
            analysis.add(lcore, event, &mut ());
        });
        taken.unwrap();
    }
    let summary = taken(analysis, events, 0);
    assert_eq!(summary.one_in, ask.one_in);
    let share = recorded_ns as f64 / (last_ns - first_ns.unwrap()) as f64;
    assert!(share < 0.5, "{windows} windows of {recorded_ns} ns are {share} of the time");
    let ways = summary.paths.iter().map(|way| (way.path.last().map(String::as_str), &*way.ended));
    assert!(ways.clone().all(|way| matches!(way, (Some("port.out"), "posted") | (Some("stage.sink"), "ends there"))));
    assert!(summary.packets >= 40, "{summary:?}");
    served.assert_undisturbed();
}

#[test]
fn a_run_has_one_trace_at_a_time_beside_its_capture_and_both_end() {
    let (mut served, runtime) = Served::starting("");
    let refused = |served: &Served, ask: TraceAsk| match Client::connect(&served.socket()).unwrap().trace(ask) {
        Err(ClientError::Refused(why)) => why.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&served, TraceAsk::default()), "starting");
    served.run(runtime);
    let odd = Some(FilterAsk { offset: 0, hex: "080".into() });
    assert_eq!(refused(&served, TraceAsk { filter: odd, ..TraceAsk::default() }), "invalid");
    let (analysis, events) = begun(&served, TraceAsk::default());
    assert_eq!(refused(&served, TraceAsk::default()), "busy");
    let capture = Client::connect(&served.socket()).unwrap().capture(Default::default()).unwrap();
    assert!(taken(analysis, events, 40).packets >= 40);
    drop(capture);
    // A client that goes away ends its trace, and has done so when it is gone.
    drop(await_trace(&served));
    (0..20).for_each(|_| drop(begun(&served, TraceAsk::default())));
    served.assert_undisturbed();
}

/// Begins a trace as soon as the one before has ended.
fn await_trace(served: &Served) -> Events {
    once_free(|| Client::connect(&served.socket()).unwrap().trace(TraceAsk::default())).1
}

#[test]
fn a_trace_ends_with_its_run_and_a_client_that_takes_nothing_keeps_nobody() {
    let mut served = Served::new("");
    let (analysis, events) = begun(&served, TraceAsk::default());
    std::thread::sleep(Duration::from_millis(50));
    served.running.take().unwrap().stop().unwrap();
    let summary = taken(analysis, events, u64::MAX);
    assert!(summary.packets > 0 && summary.lost_turns["main"] == 0, "{summary:?}");
    drop(served);

    let served = Served::new("");
    let (_, stalled) = begun(&served, TraceAsk::default());
    served.assert_ends_beside(stalled);
}
