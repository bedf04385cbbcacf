//! Requests for messages and for snapshots: each is counted, and answered by at most one packet,
//! which holds the requested messages or snapshot. A client asks several times, as one that fetches
//! a snapshot does.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use tick_to_trade::itch;
use tick_to_trade::mold::Packet;
use tick_to_trade::recovery::{Answered, REQUEST_LEN_BYTES, Request, Services, SnapshotName, read_end};

#[path = "common/feed.rs"]
mod feed;
use feed::{ANSWER_LEN_BYTES, Feed};

/// A byte gives the addressee.
const ASKED_LEN_BYTES: usize = 1 + REQUEST_LEN_BYTES;
const REQUESTS: usize = 8;

thread_local! {
    static FEED: RefCell<Feed> = RefCell::new(Feed::new());
}

fuzz_target!(|bytes: &[u8]| FEED.with_borrow(|feed| {
    let mut services = feed.services();
    for asked in bytes.chunks(ASKED_LEN_BYTES).take(REQUESTS) {
        let (&whom, request) = asked.split_first().expect("a chunk is not empty");
        match whom % 2 {
            0 => again(feed, &mut services, request),
            _ => snapshot(feed, &mut services, request),
        }
    }
}));

/// The answer, and the request that it is for: only a request is answered.
fn answer<'a>(request: &[u8], answered: Answered, out: &'a [u8]) -> Option<(Request, Packet<'a>)> {
    let Answered::Bytes(len_bytes) = answered else { return None };
    let request = Request::parse(request).expect("only a request is answered");
    let packet = Packet::parse(&out[..len_bytes]).expect("an answer is MoldUDP64");
    assert_eq!((packet.session(), packet.sequence()), (&request.session, request.sequence));
    assert!(packet.count() <= request.count);
    Some((request, packet))
}

fn again(feed: &Feed, services: &mut Services, request: &[u8]) {
    let mut out = [0; ANSWER_LEN_BYTES];
    let sum = |services: &Services| {
        let counts = services.counts();
        counts.answered + counts.not_kept + counts.refused
    };
    let before = sum(services);
    let answered = services.send_again(request, &feed.generator, &mut out);
    assert_eq!(sum(services), before + 1, "each request becomes one thing");
    let Some((request, packet)) = answer(request, answered, &out) else { return };
    for (message, sequence) in packet.messages().zip(request.sequence..) {
        assert_eq!(Some(message), feed.message(sequence), "{sequence}");
    }
    // The answer stops before a message that does not fit, or does not exist.
    let next = feed.message(request.sequence + u64::from(packet.count()));
    let has_room = |message: &[u8]| answered_bytes(&packet) + 2 + message.len() <= ANSWER_LEN_BYTES;
    assert!(packet.count() == request.count || !next.is_some_and(has_room), "there was more");
}

fn answered_bytes(packet: &Packet<'_>) -> usize {
    20 + packet.messages().map(|message| 2 + message.len()).sum::<usize>()
}

fn snapshot(feed: &Feed, services: &mut Services, request: &[u8]) {
    let mut out = [0; ANSWER_LEN_BYTES];
    let answered = services.send_snapshot(None, request, &feed.generator, &mut out);
    let Some((request, packet)) = answer(request, answered, &out) else { return };
    let name = SnapshotName::of(&request.session).expect("only a snapshot is answered");
    for message in packet.messages() {
        if let Some(sequence) = read_end(message) {
            assert_eq!(sequence, feed.generator.sequence(), "the stream goes on there");
            continue;
        }
        let locate = itch::parse(message).expect("a snapshot is ITCH").stock_locate();
        assert!(name.locate == 0 || name.locate == locate, "{locate} in a snapshot of {}", name.locate);
    }
}
