//! Memory of a one-sided work request has moved into the QP: nobody reads it until it completes.

use verbline_mem::Packet;
use verbline_verbs::{QueuePair, SendOptions, rdma::Remote};

fn read_while_posted(qp: &mut QueuePair, packet: Packet, from: Remote) -> u8 {
    let _ = qp.rc().unwrap().read(packet, from, SendOptions::default());
    packet.data()[0]
}

fn main() {}
