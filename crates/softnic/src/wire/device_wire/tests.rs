//! A wire whose thread is asleep, as far as the wire knows.

use super::*;
use crate::data_path::carrier::Carrier;
use crate::data_path::errors::Errors;
use crate::objects::guards::Pinned;
use crate::wire::management::tests::asking;
use crate::wire::neighbours::claim_slice;
use crate::wire::run::Run;
use crate::wire::socket::tests::address;
use verbline_roce::cm::PortSpace;
use verbline_sync::guard::Guard;

/// Regression: packets taken in by a poll made something due, and the thread slept on: a program
/// that did not poll again kept its peer waiting.
#[test]
fn a_poll_wakes_the_thread_if_something_is_due_sooner_than_it_knows() {
    let (own, peer) = (address(41), address(42));
    let slice = claim_slice(own.ip(), 0).expect("a name").expect("a slice");
    let link = Arc::new(Link::open(own).expect("a free port"));
    let wire = Wire::new(&device::devices()[0], link, slice).expect("descriptors");
    assert!(wire.lock().management.listen((PortSpace::Reliable, 4420), Box::new(|_| true)));
    let asker = Link::open(peer).expect("a free port");
    let guard = Guard::default();
    // An undecided request is given up at some time.
    let poll = || {
        let bytes = asking(peer, (own.ip(), 4420));
        asker.send(&Run { to: own, traffic_class: 0, bytes: &bytes, segment_bytes: bytes.len() });
        let (inside, mut errors) = (guard.enter(), Errors::new());
        wire.poll(Pinned::inside(&inside), &mut errors);
        assert!(wire.lock().deadline_ns().is_some(), "the request has come");
        wire.alarm.was_rung()
    };
    assert!(wire.lock().may_sleep(None));
    assert_eq!([poll(), poll()], [true, false], "once, and not while it is awake");
    // Nor if it wakes in time.
    let due_ns = wire.lock().deadline_ns();
    assert!(wire.lock().may_sleep(due_ns));
    assert!(!poll());
}
