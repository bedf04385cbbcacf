//! A peer that falls silent while nothing is under way: one that comes back is still connected, one
//! that was killed is missed all the same.

use std::time::{Duration, Instant};

use verbline_verbs::event::AsyncEventKind;
use verbline_verbs::{Status, WrKind};

use crate::common;
use crate::other::Other;
use crate::{connect, own, side};

/// Longer than a peer may be silent before it is asked, and shorter than until it is given up.
const PAUSE: Duration = Duration::from_secs(13);
/// Ten seconds of silence, ten questions, and a busy machine.
const MISSED_WITHIN: Duration = Duration::from_secs(60);

/// Polls, and gives what has failed.
fn failed(side: &mut common::Side) -> Vec<(WrKind, Status)> {
    let mut failed = Vec::new();
    side.poll(|qp, freed, completion| {
        if completion.status() != Status::SUCCESS {
            failed.push((completion.kind(), completion.status()));
        }
        common::hand_back(qp, freed, completion);
    });
    failed
}

#[test]
fn a_silent_peer_that_is_gone_is_missed_and_one_that_pauses_is_not() {
    let mut other = Other::start("wait");
    let mut side = side(own(), false);
    let connection = connect(&mut side, other.listens(), 4);
    other.says("region");
    other.stops();
    std::thread::sleep(PAUSE);
    assert_eq!(failed(&mut side), []);
    other.goes_on();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(failed(&mut side), []);

    other.child.kill().unwrap();
    other.child.wait().unwrap();
    let began = Instant::now();
    let mut all = Vec::new();
    while all.len() < 4 {
        assert!(began.elapsed() < MISSED_WITHIN, "nobody misses it: {all:?}");
        std::thread::sleep(Duration::from_millis(20));
        all.extend(failed(&mut side));
    }
    assert_eq!(all, [(WrKind::Recv, Status::WR_FLUSH_ERR); 4]);
    let counted = connection.incidents().expect("it goes over UDP").values();
    assert_eq!((counted.timeouts, counted.retransmitted), (1, 0), "{counted:?}");
    // Who has posted nothing has no completion that tells of it.
    let mut events = std::iter::from_fn(|| side.context.async_events().try_next().unwrap());
    assert!(events.any(|event| event.kind == AsyncEventKind::QpFatal), "an event tells of it");
    side.assert_all_free();
}
