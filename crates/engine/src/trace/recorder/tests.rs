//! The events of a turn, recorded from a scripted lcore's sinks.

use verbline_mem::PoolCache;

use super::*;
use crate::ports::sink::SinkStats;
use crate::rig::Rig;
use crate::stats::drop_reason::DropReason;

const STAGE: u16 = 0;
const PORT: u16 = 1;
const INPUT: usize = 0;
const OUTPUT: usize = 1;

struct Traced {
    rig: Rig,
    cache: PoolCache,
    recorder: Recorder,
    events: Consumer<TraceEvent>,
    told: Shared<Told>,
    stage: Shared<StageStats>,
    port: Shared<PortStats>,
    lcore: Shared<LcoreStats>,
    sinks: [Sink; 2],
}

impl Traced {
    fn new(filter: Option<CaptureFilter>) -> Traced {
        Traced::sampled(filter, None)
    }

    fn sampled(filter: Option<CaptureFilter>, windows: Option<Arc<Windows>>) -> Traced {
        let (rig, stage, port, lcore) = (Rig::new(64), shared::<StageStats>(), shared::<PortStats>(), shared());
        let sinks = [SinkStats::Stage(Shared::clone(&stage)), SinkStats::Port(Shared::clone(&port))]
            .map(|stats| Sink::new(8, DropReason::StageFull, stats));
        let places = Places { stages: vec![(Shared::clone(&stage), STAGE)], ports_from: PORT, ..Places::default() };
        let pools = std::slice::from_ref(&rig.pool);
        let RecorderEnds { mut recorder, events, told } =
            RecorderEnds::new(places, pools, filter, windows, rig.time.clock());
        recorder.enter(&sinks, &lcore);
        let cache = rig.pool.cache(0);
        Traced { rig, cache, recorder, events, told, stage, port, lcore, sinks }
    }

    fn put(&mut self, sink: usize, bytes: &[u8]) -> u32 {
        let mut packet = self.cache.get().unwrap();
        assert!(packet.fill(bytes));
        packet.set_port(0);
        let number = self.recorder.packets.of(&packet);
        assert!(self.sinks[sink].push(packet));
        number
    }

    fn begin(&mut self) {
        self.rig.time.pass(10);
        self.recorder.begin(&self.sinks, &self.lcore, self.rig.time.now_ns());
    }

    /// Returns the kinds, places and values of the events handed over.
    fn taken(&mut self) -> Vec<(TraceKind, u16, u64)> {
        let events = self.events.pop_iter(RING_EVENTS);
        events.map(|event| (event.kind().unwrap(), event.place(), event.value())).collect()
    }
}

const MARKED: u64 = 1 << 32;

/// Two packets are received, and marked if they begin with 7; the stage sends one on, drops the
/// other, and makes a third; the port posts one and drops one.
#[test]
fn a_turn_is_noted_step_by_step() {
    use TraceKind as Kind;
    let mut traced = Traced::new(Some(CaptureFilter { offset_bytes: 0, bytes: vec![7] }));
    traced.begin();
    let (first, second) = (traced.put(INPUT, &[7]), traced.put(INPUT, &[8]));
    traced.recorder.received(&traced.sinks);
    traced.recorder.received(&traced.sinks);
    let stage = Shared::clone(&traced.stage);
    traced.recorder.entered(&stage, INPUT, &traced.sinks);
    let kept = traced.sinks[INPUT].batch.take_first().unwrap();
    traced.sinks[INPUT].batch.clear();
    assert!(traced.sinks[OUTPUT].push(kept));
    let made = traced.put(OUTPUT, &[7]);
    traced.recorder.returned(&stage, std::iter::once(OUTPUT), &traced.sinks);
    let port = Shared::clone(&traced.port);
    traced.recorder.posts(&port, OUTPUT, &traced.sinks);
    port.tx_packets.add(1);
    traced.sinks[OUTPUT].batch.clear();
    traced.recorder.posted(0, &port, OUTPUT, &traced.sinks);
    assert!(traced.taken().is_empty(), "a turn is handed over as a whole");
    traced.recorder.end(true);
    let [first, second, made] = [first, second, made].map(u64::from);
    let expected = [
        (Kind::Turn, 0, 10),
        (Kind::Received, PORT, first | MARKED),
        (Kind::Received, PORT, second),
        (Kind::Process, STAGE, 2),
        (Kind::Entered, STAGE, first),
        (Kind::Entered, STAGE, second),
        (Kind::Sent, STAGE, first | MARKED),
        (Kind::Sent, STAGE, made | MARKED),
        (Kind::Return, STAGE, 2),
        (Kind::Posted, PORT, first),
        (Kind::Dropped, PORT, made),
        (Kind::TurnEnd, 0, 0),
    ];
    assert_eq!(traced.taken(), expected);
}

#[test]
fn turns_without_work_leave_nothing_but_what_kept_the_lcore_from_them() {
    use TraceKind as Kind;
    let mut traced = Traced::new(None);
    let stage = Shared::clone(&traced.stage);
    traced.begin();
    let began = traced.recorder.polls(&stage);
    traced.recorder.polled(&stage, began, std::iter::once(OUTPUT), &traced.sinks);
    traced.recorder.end(false);
    traced.recorder.sleeps();
    traced.rig.time.pass(500);
    traced.recorder.awoke(WakeCause::Ring);
    traced.lcore.stolen_ns.add(30);
    traced.begin();
    traced.recorder.end(false);
    assert_eq!(traced.taken(), [(Kind::Asleep, WakeCause::Ring as u16, 500), (Kind::Stolen, 0, 30)]);
    // A long poll is worth reporting.
    traced.begin();
    let began = traced.recorder.polls(&stage);
    traced.rig.time.pass(SHORT_POLL_NS);
    traced.recorder.polled(&stage, began, std::iter::once(OUTPUT), &traced.sinks);
    traced.recorder.end(false);
    let kinds: Vec<Kind> = traced.taken().into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(kinds, [Kind::Turn, Kind::Poll, Kind::Return, Kind::TurnEnd]);
}

#[test]
fn a_turn_that_finds_no_room_is_lost_as_a_whole_and_counted() {
    let mut traced = Traced::new(None);
    let turns = RING_EVENTS as u64 / 2 + 3;
    for _ in 0..turns {
        traced.begin();
        traced.recorder.end(true);
    }
    assert_eq!(traced.told.lost.value(), 3);
    let taken = traced.taken();
    assert!(taken.chunks(2).all(|turn| (turn[0].0, turn[1].0) == (TraceKind::Turn, TraceKind::TurnEnd)));
    // A turn longer than any may be is lost as well, and the next one is not.
    traced.begin();
    let stage = Shared::clone(&traced.stage);
    (0..TURN_EVENTS).for_each(|_| traced.recorder.returned(&stage, std::iter::once(OUTPUT), &traced.sinks));
    traced.recorder.end(true);
    assert_eq!((traced.taken().len(), traced.told.lost.value()), (0, 4));
    traced.begin();
    traced.recorder.end(true);
    assert_eq!((traced.taken().len(), traced.told.lost.value()), (2, 4));
}

/// Turns are a tenth of a millisecond apart, so that a window has ten of them.
#[test]
fn between_two_windows_nothing_is_noted_and_the_next_tells_what_was_before_it() {
    use TraceKind as Kind;
    let one_in = std::num::NonZeroU32::new(8).unwrap();
    let mut traced = Traced::sampled(None, Some(Arc::new(Windows::new(one_in))));
    let (mut is_resting, mut recorded, turns) = (false, 0, 8_000);
    for _ in 0..turns {
        traced.rig.time.pass(100_000);
        let changes = traced.recorder.records(is_resting, &traced.lcore) == is_resting;
        is_resting ^= changes;
        if is_resting {
            let rests = changes.then_some((Kind::Rests, 0, 0));
            assert_eq!(traced.taken(), rests.into_iter().collect::<Vec<_>>());
            traced.lcore.stolen_ns.add(7);
            continue;
        }
        traced.recorder.begin(&traced.sinks, &traced.lcore, traced.rig.time.now_ns());
        traced.recorder.end(true);
        // Of the times stolen while nothing was recorded, only the last was just before this turn.
        let stolen = (changes && recorded > 0).then_some((Kind::Stolen, 0, 7));
        let turn = [(Kind::Turn, 0, 100_000), (Kind::TurnEnd, 0, 0)];
        assert_eq!(traced.taken(), stolen.into_iter().chain(turn).collect::<Vec<_>>());
        recorded += 1;
    }
    let share = f64::from(recorded * 8) / f64::from(turns);
    // Each turn waits for as long as all others: half of the windows are opened by late lcores.
    assert!((1.2..1.8).contains(&share), "{recorded} of {turns} turns are one in 8, {share} times");
}

#[test]
fn an_lcore_that_rests_says_so_even_if_there_was_no_room() {
    use TraceKind as Kind;
    let one_in = std::num::NonZeroU32::new(1_000).unwrap();
    let mut traced = Traced::sampled(None, Some(Arc::new(Windows::new(one_in))));
    while traced.recorder.events.room_for(2) == 2 {
        traced.begin();
        traced.recorder.end(true);
    }
    while traced.recorder.records(false, &traced.lcore) {
        traced.rig.time.pass(1_000_000);
    }
    assert!(traced.taken().iter().all(|(kind, ..)| *kind != Kind::Rests), "it had no room");
    while !traced.recorder.records(true, &traced.lcore) {
        traced.rig.time.pass(1_000_000);
        traced.recorder.sleeps();
        traced.recorder.awoke(WakeCause::Timer);
    }
    traced.begin();
    traced.recorder.end(true);
    let kinds: Vec<Kind> = traced.taken().into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(kinds, [Kind::Asleep, Kind::Rests, Kind::Turn, Kind::TurnEnd]);
}

/// Time is stolen for longer than the window lasts, but no longer than happens in practice.
#[test]
fn what_was_stolen_from_the_last_turn_of_a_window_is_told_by_one_turn_more() {
    use TraceKind as Kind;
    let one_in = std::num::NonZeroU32::new(1_000).unwrap();
    let mut traced = Traced::sampled(None, Some(Arc::new(Windows::new(one_in))));
    for (passed_ns, stolen_ns, is_recorded) in
        [(50_000_000, 0, true), (5_000_000, 4_000_000, true), (5_000_000, 0, false)]
    {
        traced.rig.time.pass(passed_ns);
        traced.lcore.stolen_ns.add(stolen_ns);
        assert_eq!(traced.recorder.records(false, &traced.lcore), is_recorded);
        if is_recorded {
            traced.recorder.begin(&traced.sinks, &traced.lcore, traced.rig.time.now_ns());
            traced.recorder.end(true);
        }
    }
    let told = traced.taken();
    assert_eq!(told.iter().filter(|event| **event == (Kind::Stolen, 0, 4_000_000)).count(), 1, "{told:?}");
    assert_eq!(told.last(), Some(&(Kind::Rests, 0, 0)));
}
