//! A peer that falls silent while nothing is outstanding: one that comes back is still connected,
//! one that was killed is detected all the same.

use std::time::{Duration, Instant};

use verbline_verbs::event::AsyncEventKind;
use verbline_verbs::{Status, WrKind};

use crate::common;
use crate::other::Other;
use crate::{connect, own, side};

/// Longer than a peer may be silent before it is probed, and shorter than until it is given up.
const PAUSE: Duration = Duration::from_secs(13);
/// Ten seconds of silence, ten probes, and a busy machine.
const MISSED_WITHIN: Duration = Duration::from_secs(60);

/// Polls, and returns the failed completions.
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

/// One of two peers is stopped for a while, as the other is killed.
#[test]
fn a_silent_peer_that_is_gone_is_missed_and_one_that_pauses_is_not() {
    let mut peers = [Other::start("wait"), Other::start("wait")];
    let mut sides = [side(own(), false), side(own(), false)];
    let [_with_paused, with_gone] = [0, 1].map(|at| {
        let connection = connect(&mut sides[at], peers[at].listens(), 4);
        peers[at].says("region");
        connection
    });
    let ([paused, gone], [beside_paused, beside_gone]) = (&mut peers, &mut sides);
    paused.stops();
    gone.child.kill().unwrap();
    gone.child.wait().unwrap();

    let began = Instant::now();
    let (mut all, mut is_stopped) = (Vec::new(), true);
    while all.len() < 4 {
        assert!(began.elapsed() < MISSED_WITHIN, "nobody misses it: {all:?}");
        if is_stopped && began.elapsed() >= PAUSE {
            paused.goes_on();
            is_stopped = false;
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(failed(beside_paused), []);
        all.extend(failed(beside_gone));
    }
    assert_eq!(all, [(WrKind::Recv, Status::WR_FLUSH_ERR); 4]);
    let counted = with_gone.incidents().expect("it goes over UDP").values();
    assert_eq!((counted.timeouts, counted.retransmitted), (1, 0), "{counted:?}");
    // A side without posted work requests has no completion to tell.
    let mut events = std::iter::from_fn(|| beside_gone.context.async_events().try_next().unwrap());
    assert!(events.any(|event| event.kind == AsyncEventKind::QpFatal), "an event tells of it");
    beside_gone.assert_all_free();

    // The stopped one could have been given up by now, too.
    std::thread::sleep((PAUSE + Duration::from_secs(2)).saturating_sub(began.elapsed()));
    assert!(!is_stopped, "it went on before the other was missed");
    assert_eq!(failed(beside_paused), []);
}
