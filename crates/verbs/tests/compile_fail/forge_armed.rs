//! The right to sleep comes from arming alone.

use verbline_verbs::ArmedCq;

fn main() {
    let _ = ArmedCq { cqs: 1 };
}
