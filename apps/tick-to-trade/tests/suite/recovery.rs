//! Recovery against an oracle. Frames, requests and answers are lost, doubled, late or out of
//! order, and the stream may bring false messages: the strategy still never gets a best level that
//! is not the exchange's, and in the end every book equals the exchange's.

mod world;

use proptest::prelude::*;
use tick_to_trade::generator::{Generator, GeneratorSpec};
use tick_to_trade::mold::Packet;
use tick_to_trade::recovery::{Answered, FollowerSpec, Request, Services, ServicesSpec, SnapshotName, read_end};
use verbline::mem::ConnectionId;

use world::{BOOKS, FAIR, INSTRUMENTS, Weather, World};

pub(crate) const SPEC: FollowerSpec = FollowerSpec {
    books: BOOKS,
    first: Some(1),
    held_messages: 256,
    request_messages: 4,
    retransmits: true,
    snapshots: true,
    gap_messages_max: 64,
    timeout_ns: 100,
    tries: 4,
    snapshot_timeout_ns: 400,
    rebuild_pause_ns: 500,
};

fn weather() -> impl Strategy<Value = Weather> {
    // Some delays exceed any time-out: such an answer comes after the request was repeated.
    let delay = || prop_oneof![3 => 0u64..150, 1 => 150u64..1_500];
    let rare = || prop_oneof![2 => Just(0u32), 2 => 1u32..5, 1 => 5u32..40];
    let often = prop_oneof![1 => Just(0u32), 1 => 1u32..100];
    (rare(), prop_oneof![3 => Just(0u32), 1 => 1u32..4], 1u32..120, often, rare(), rare(), delay(), rare()).prop_map(
        |(lost_frames, bursts, burst_frames, late_frames, lost, doubled, delay, false_frames)| Weather {
            lost_frames,
            bursts,
            burst_frames,
            late_frames,
            lost,
            doubled,
            delay,
            false_frames: false_frames.min(10),
        },
    )
}

fn spec() -> impl Strategy<Value = FollowerSpec> {
    (
        prop_oneof![4 => Just(Some(1)), 1 => Just(None)],
        prop_oneof![Just(64u32), Just(256), Just(4_096)],
        1u16..8,
        any::<bool>(),
        prop_oneof![Just(0u32), Just(8), Just(4_096)],
        1u32..6,
    )
        .prop_map(|(first, held_messages, request_messages, retransmits, gap_messages_max, tries)| FollowerSpec {
            first,
            held_messages,
            request_messages,
            retransmits,
            gap_messages_max,
            tries,
            ..SPEC
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_told_what_is_not_so_and_in_the_end_all_books_are_equal(
        seed in any::<u32>(),
        spec in spec(),
        weather in weather(),
        kept_messages in prop_oneof![Just(16u32), Just(1_024)],
        frames in prop::collection::vec((1u16..6, 0u8..3), 1..400),
    ) {
        let mut world = World::new(seed.into(), spec, kept_messages, weather);
        for (messages, turns) in frames {
            world.publish(messages);
            (0..turns).for_each(|_| world.pass());
        }
        world.end();
        world.assert_recovered();
    }
}

/// A run that publishes frames while time passes.
fn run(spec: FollowerSpec, weather: Weather, frames: usize) -> World {
    let mut world = World::new(7, spec, 1_024, weather);
    for _ in 0..frames {
        world.publish(2);
        world.pass();
    }
    world
}

/// The exchange restarts in any state of the recovery: the books become those of the new one, and
/// no update comes in between.
#[test]
fn the_books_of_an_exchange_that_starts_again_are_rebuilt() {
    for (frames, lost_frames, first) in [(1_000, 0, Some(1)), (1_000, 3, Some(1)), (1_000, 3, None), (2, 0, Some(1))] {
        let weather = Weather { lost_frames, false_frames: 1, delay: 30, ..FAIR };
        let mut world = run(FollowerSpec { first, ..SPEC }, weather, frames);
        let stale = world.follower.books().books().len();
        world.start_again(8, 1_024);
        assert_eq!((world.follower.is_live(), world.follower.stale_books()), (false, stale));
        // The arbiter takes some frames to confirm the restart.
        world.weather.lost_frames = 100;
        (0..3).for_each(|_| world.publish(2));
        world.weather.lost_frames = lost_frames;
        for _ in 0..1_000 {
            world.publish(2);
            world.pass();
        }
        world.end();
        world.assert_recovered();
        let counts = world.follower.counts();
        assert_eq!((counts.begun_anew, world.follower.stale_books()), (1, 0), "{counts:?}");
    }
}

#[test]
fn a_small_gap_is_closed_by_one_request_and_no_snapshot() {
    let mut world = run(SPEC, Weather { lost_frames: 1, ..FAIR }, 3_000);
    world.end();
    world.assert_recovered();
    let counts = *world.follower.counts();
    assert!(counts.gaps > 10 && counts.retransmitted == counts.missing, "{counts:?}");
    assert_eq!((counts.requests_again, counts.snapshots, counts.given_up, counts.contradictions), (0, 0, 0, 0));
    assert_eq!(world.services.counts().messages, counts.retransmitted, "no more is sent than is missing");
}

#[test]
fn what_the_stream_brings_late_is_missing_no_more() {
    let mut world = run(SPEC, Weather { lost_frames: 2, late_frames: 50, delay: 150, ..FAIR }, 3_000);
    world.end();
    world.assert_recovered();
    let counts = *world.follower.counts();
    assert!(counts.late > 10 && counts.retransmitted > 10, "{counts:?}");
    assert_eq!((counts.snapshots, counts.abandoned, counts.contradictions), (0, 0, 0));
}

/// Until the directory has come, messages about instruments contradict no book.
#[test]
fn a_trader_that_comes_late_finds_no_contradiction() {
    let mut world = World::new(7, FollowerSpec { first: None, ..SPEC }, 1_024, Weather { lost_frames: 100, ..FAIR });
    (0..200).for_each(|_| world.publish(2));
    world.weather = Weather { delay: 150, ..FAIR };
    for _ in 0..200 {
        world.publish(2);
        world.pass();
    }
    world.end();
    world.assert_recovered();
    let counts = *world.follower.counts();
    assert_eq!((counts.contradictions, counts.suspected, counts.rebuilt), (0, 0, INSTRUMENTS.into()), "{counts:?}");
    assert!(counts.skipped > 0, "{counts:?}");
}

#[test]
fn orders_can_be_sent_as_often_in_the_end_as_in_the_beginning() {
    let mut world = World::new(3, SPEC, 1_024, Weather { lost_frames: 2, false_frames: 1, lost: 5, delay: 30, ..FAIR });
    let mut told = Vec::new();
    for _ in 0..10 {
        let before = world.told;
        for _ in 0..2_000 {
            world.publish(2);
            (0..3).for_each(|_| world.pass());
        }
        told.push(world.told - before);
    }
    // The first tenth fills the books.
    let (least, most) = (told[1..].iter().min().expect("nine"), told[1..].iter().max().expect("nine"));
    assert!(least * 4 > most * 3, "{told:?} {:?} {:?}", world.follower.counts(), world.services.counts());
}

#[test]
fn what_is_too_large_a_gap_or_too_old_is_left_to_snapshots() {
    for spec in [FollowerSpec { gap_messages_max: 0, ..SPEC }, FollowerSpec { retransmits: false, ..SPEC }] {
        let mut world = run(spec, Weather { lost_frames: 1, ..FAIR }, 2_000);
        world.end();
        world.assert_recovered();
        let counts = *world.follower.counts();
        assert!(counts.rebuilt > 10 && counts.retransmitted == 0, "{counts:?}");
    }
    // The server keeps 16 messages, and the gap has 40.
    let mut world = World::new(7, SPEC, 16, FAIR);
    for frame in 0..1_000 {
        world.weather.lost_frames = if (500..520).contains(&frame) { 100 } else { 0 };
        world.publish(2);
        world.pass();
    }
    world.end();
    world.assert_recovered();
    let counts = *world.follower.counts();
    assert!(counts.given_up == 1 && counts.requests_again > 0 && counts.rebuilt >= 3, "{counts:?}");
    assert!(world.services.counts().not_kept > 0);
}

#[test]
fn without_any_service_nothing_is_told_after_a_gap() {
    let mut world = run(FollowerSpec { retransmits: false, snapshots: false, ..SPEC }, FAIR, 500);
    world.weather.lost_frames = 100;
    world.publish(2);
    world.weather.lost_frames = 0;
    let before = world.told;
    for _ in 0..500 {
        world.publish(2);
        world.pass();
    }
    assert_eq!((world.told, world.follower.stale_books()), (before, usize::from(INSTRUMENTS)));
    assert!(world.follower.counts().skipped > 900);
}

#[test]
fn the_other_books_go_on_while_one_is_rebuilt() {
    let mut world = run(SPEC, FAIR, 500);
    world.weather.false_frames = 100;
    // Not every message is about an order.
    while world.follower.is_live() {
        world.publish(1);
    }
    world.weather = Weather { lost: 100, ..FAIR };
    let stale = world.follower.stale_books();
    assert!((1..usize::from(INSTRUMENTS)).contains(&stale), "{stale} books: {:?}", world.follower.counts());
    let before = world.told;
    for _ in 0..200 {
        world.publish(2);
        world.pass();
    }
    assert!(world.told > before + 20, "no answer comes, and the others are told of");
    world.end();
    world.assert_recovered();
    assert!(world.follower.counts().snapshots_late > 0);
}

#[test]
fn what_was_lost_at_the_end_of_a_silent_stream_is_found_by_a_snapshot() {
    for spec in [SPEC, FollowerSpec { retransmits: false, ..SPEC }, FollowerSpec { gap_messages_max: 4, ..SPEC }] {
        let mut world = run(spec, FAIR, 500);
        world.weather.false_frames = 100;
        while world.follower.is_live() {
            world.publish(1);
        }
        world.weather = Weather { lost_frames: 100, ..FAIR };
        (0..5).for_each(|_| world.publish(2));
        world.fall_silent();
        world.assert_recovered();
        assert_eq!(world.follower.counts().gaps, 1, "{:?}", world.follower.counts());
    }
}

/// The exchange's half, with clients that request snapshots.
struct Server {
    generator: Generator,
    services: Services,
}

impl Server {
    fn new() -> Server {
        let mut generator = Generator::new(GeneratorSpec { seed: 7, instruments: INSTRUMENTS, live_orders: 30 });
        (0..100).for_each(|_| _ = generator.write_frame(4, 0, &mut [0; 1_400]).unwrap());
        Server { generator, services: Services::new(ServicesSpec { kept_messages: 64, orders_max: 64 }) }
    }

    /// The answer to a client's request for up to ten messages of a snapshot, from `sequence` on;
    /// `None` if it is refused.
    fn ask(&mut self, client: u16, name: SnapshotName, sequence: u64) -> Option<Vec<u8>> {
        let client = ConnectionId::new(0, client, 1);
        let request = Request { session: name.session(), sequence, count: 10 }.to_bytes();
        let mut out = [0; 1_400];
        match self.services.send_snapshot(client, &request, &self.generator, &mut out) {
            Answered::Bytes(len_bytes) => Some(out[..len_bytes].to_vec()),
            Answered::Nothing => None,
        }
    }
}

/// A client that opens one snapshot after another replaces only its own.
#[test]
fn a_client_that_opens_many_snapshots_takes_none_of_another() {
    let mut server = Server::new();
    let of_other = SnapshotName { locate: 1, number: 1 };
    for client in [1, 2, 3] {
        assert!(server.ask(client, of_other, 1).is_some());
    }
    for number in 1..100 {
        assert!(server.ask(4, SnapshotName { locate: 2, number }, 1).is_some());
    }
    for client in [1, 2, 3] {
        assert!(server.ask(client, of_other, 11).is_some(), "client {client} goes on");
    }
}

/// Each client numbers its snapshots from 1: two clients with the same name get one each, and the
/// later one has a later state.
#[test]
fn snapshots_of_one_name_are_of_each_client() {
    let mut server = Server::new();
    for client in [1, 2] {
        let directory = server.ask(client, SnapshotName { locate: 0, number: 1 }, 1).unwrap();
        let last = Packet::parse(&directory).unwrap().messages().last().and_then(read_end);
        assert_eq!(last, Some(server.generator.sequence()), "client {client}");
        _ = server.generator.write_frame(4, 0, &mut [0; 1_400]).unwrap();
    }
}
