//! A packet that was pushed to a batch for posting cannot be posted again.

use verbline_mem::{Batch, Packet};
use verbline_verbs::QueuePair;

fn twice(qp: &mut QueuePair, packet: Packet, batch: &mut Batch) {
    let _ = batch.push(packet);
    let _ = qp.post_send(batch);
    let _ = batch.push(packet);
}

fn main() {}
