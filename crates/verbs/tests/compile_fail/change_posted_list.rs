//! A posted scatter/gather list has moved into the QP with its parts; a list has its packets.

use verbline_mem::Packet;
use verbline_verbs::{QueuePair, SendOptions, rdma::Remote, expert::SgList};

fn reused_while_posted(qp: &mut QueuePair, mut list: SgList, from: Remote) {
    let _ = qp.rc().unwrap().read(list, from, SendOptions::default());
    list.clear();
}

fn posted_beside_its_list(qp: &mut QueuePair, mut list: SgList, packet: Packet) {
    let _ = list.push(packet);
    let _ = qp.post_send_one(packet);
}

fn kept_while_posted(qp: &mut QueuePair, list: SgList) {
    let first = &list.as_slice()[0];
    let _ = qp.post_recv_scatter(list);
    let _ = first.len_bytes();
}

fn main() {}
