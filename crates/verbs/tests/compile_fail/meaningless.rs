//! Combinations without a meaning.

use verbline_mem::Packet;
use verbline_verbs::rdma::{Atomic, KeptKey, KeyPart, Local, OnRc, Operation, Remote, WorkList};
use verbline_verbs::signature::{BlockSignature, KeyRange};
use verbline_verbs::{QueuePair, SendOptions};

/// The range of a key has no address that the CPU could copy from.
fn inline_through_a_key(qp: &mut QueuePair, range: KeyRange, to: Remote) {
    let _ = qp.rc().unwrap().send_inline(range.clone(), SendOptions::default());
    let _ = qp.rc().unwrap().write_inline(range, to, SendOptions::default());
}

/// The memory of a key must stay when the work request is done.
fn sign_a_packet(key: KeptKey, packet: Packet, blocks: BlockSignature) -> Operation {
    Operation::Sign { key, part: Local::Packet(packet), blocks, on: OnRc }
}

/// The result of an atomic is eight bytes, and a key stands for whole blocks.
fn atomic_into_a_key(key: KeyPart, at: Remote) -> Operation {
    Operation::Atomic { atomic: Atomic::FetchAdd { at, add: 1 }, into: Local::Key(key, OnRc), on: OnRc }
}

/// No listed work request has a datagram's destination.
fn list_of_datagrams(qp: &mut QueuePair, works: &mut WorkList) {
    let _ = qp.ud().unwrap().post_works(works);
}

fn main() {}
