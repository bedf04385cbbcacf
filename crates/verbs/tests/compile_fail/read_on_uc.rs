//! UC carries no READ, UD no WRITE.

use verbline_verbs::{QueuePair, SendOptions, rdma::{Buffer, Remote}};

fn read(qp: &mut QueuePair, at: Remote) {
    let _ = qp.uc().unwrap().read(Buffer::Empty, at, SendOptions::default());
    let _ = qp.ud().unwrap().write(Buffer::Empty, at, SendOptions::default());
}

fn main() {}
