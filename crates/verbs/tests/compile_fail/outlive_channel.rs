//! A descriptor borrowed from a channel does not outlive it.

use std::os::fd::{AsFd, BorrowedFd};

use verbline_verbs::{CompletionChannel, Context};

fn dangling(context: &Context) -> BorrowedFd<'static> {
    let channel: CompletionChannel = context.create_comp_channel().unwrap();
    channel.as_fd()
}

fn main() {}
