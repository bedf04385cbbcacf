//! Sleeping uses up the right to sleep.

use verbline_verbs::{CompletionChannel, CompletionQueue, Notify};

fn sleep_twice(cq: &mut CompletionQueue, channel: &mut CompletionChannel) {
    let armed = cq.arm(Notify::Next).unwrap();
    let _ = channel.wait(armed, None);
    let _ = channel.wait(armed, None);
}

fn main() {}
