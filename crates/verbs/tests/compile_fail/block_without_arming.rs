//! Only an armed CQ can be slept on.

use verbline_verbs::CompletionChannel;

fn sleep(channel: &mut CompletionChannel) {
    let _ = channel.wait(None);
}

fn main() {}
