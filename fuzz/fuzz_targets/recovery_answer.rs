//! The packets that a follower gets while a message is missing: of the stream, repeated messages,
//! and snapshots. It takes those that it asked for and counts the rest, and each message is counted
//! as exactly one outcome.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use tick_to_trade::mold::Packet;
use tick_to_trade::recovery::{Answered, Follower, Service};

#[path = "common/feed.rs"]
mod feed;
use feed::{ANSWER_LEN_BYTES, Feed};

const PACKETS: usize = 16;
/// Steps with true answers, after the false ones: more than any recovery takes.
const STEPS: usize = 400;
const STEP_NS: u64 = 1_000;

thread_local! {
    static FEED: RefCell<Feed> = RefCell::new(Feed::new());
}

fuzz_target!(|bytes: &[u8]| FEED.with_borrow(|feed| {
    let mut follower = feed.behind_a_gap();
    let mut now_ns = 1;
    let mut rest = bytes;
    for _ in 0..PACKETS {
        // A byte gives the sender, another the length.
        let [kind, len_bytes, behind @ ..] = rest else { break };
        let (packet, behind) = behind.split_at(usize::from(*len_bytes).min(behind.len()));
        rest = behind;
        now_ns += u64::from(*kind >> 4) * STEP_NS;
        take(&mut follower, *kind, packet, now_ns);
        judge(&follower);
    }
    recover(feed, &mut follower, now_ns);
}));

fn take(follower: &mut Follower, kind: u8, packet: &[u8], now_ns: u64) {
    let mut told = |_: &_, _, _, _| {};
    if let Ok(packet) = Packet::parse(packet) {
        match kind % 3 {
            0 => follower.take(&packet, 0, now_ns, &mut told),
            1 => follower.take_again(&packet, now_ns, &mut told),
            _ => follower.take_snapshot(&packet, now_ns, &mut told),
        }
    }
    follower.poll(now_ns, &mut told);
    while follower.next_request(now_ns).is_some() {}
}

/// The invariants at any moment.
fn judge(follower: &Follower) {
    let counts = follower.counts();
    assert!(counts.retransmitted <= counts.missing, "{counts:?}");
    assert!(counts.rebuilt + counts.snapshots_refused + counts.snapshots_late <= counts.snapshots, "{counts:?}");
    assert!(follower.deadline_ns(1).is_some() != follower.is_live());
}

/// The server answers from here on. If that recovers everything, each message that came is counted
/// as exactly one outcome.
fn recover(feed: &Feed, follower: &mut Follower, mut now_ns: u64) {
    let mut services = feed.services();
    let mut told = |_: &_, _, _, _| {};
    for _ in 0..STEPS {
        if follower.is_live() {
            break;
        }
        now_ns += STEP_NS;
        follower.poll(now_ns, &mut told);
        while let Some((service, request)) = follower.next_request(now_ns) {
            let mut out = [0; ANSWER_LEN_BYTES];
            let request = request.to_bytes();
            let answered = match service {
                Service::Retransmission => services.send_again(&request, &feed.generator, &mut out),
                Service::Snapshot => services.send_snapshot(None, &request, &feed.generator, &mut out),
            };
            let Answered::Bytes(len_bytes) = answered else { continue };
            let packet = Packet::parse(&out[..len_bytes]).expect("an answer is MoldUDP64");
            match service {
                Service::Retransmission => follower.take_again(&packet, now_ns, &mut told),
                Service::Snapshot => follower.take_snapshot(&packet, now_ns, &mut told),
            }
        }
    }
    judge(follower);
    if follower.is_live() {
        assert!(follower.counts().adds_up(), "{:?}", follower.counts());
    }
}
