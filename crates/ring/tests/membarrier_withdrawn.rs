//! A seccomp filter that comes after the first sleep is reported, since wake-ups could be lost from
//! here on. A file of its own: fences are chosen once per process.
#![cfg(not(loom))]

mod seccomp;

use verbline_ring::doorbell;
use verbline_ring::fence::{Mechanism, mechanism};

#[test]
#[should_panic(expected = "allow it in the seccomp filter, or install the filter before the first lcore starts")]
fn arming_panics_and_says_what_to_do() {
    let (_waker, mut sleeper) = doorbell().expect("an eventfd");
    // Linux has it since 4.14; a machine without it can't run this test.
    assert_eq!(mechanism(), Mechanism::Membarrier);
    let armed = sleeper.arm();
    sleeper.disarm(armed);
    seccomp::refuse_membarrier();
    let _armed = sleeper.arm();
}
