//! The memory of pools beside their packets: for each packet a line of metadata and one of the free
//! list, on ordinary pages.

use crate::diag::sink::Sink;
use crate::read::raw::RawPlan;
use crate::sums::sum::Sum;

const LINE_BYTES: u64 = 64;

/// Adds the touched part, which is resident from the start.
pub(super) fn resident(raw: &RawPlan, sum: &mut Sum, sink: &Sink) {
    add(raw, sum, sink, |packets| 2 * LINE_BYTES * packets);
}

/// Adds the mapped part. The block of lines begins at a multiple of its own size, a power of two,
/// so the allocator maps twice that size.
pub(super) fn mapped(raw: &RawPlan, sum: &mut Sum, sink: &Sink) {
    add(raw, sum, sink, |packets| 2 * (LINE_BYTES * packets).next_power_of_two() + LINE_BYTES * packets);
}

fn add(raw: &RawPlan, sum: &mut Sum, sink: &Sink, bytes: impl Fn(u64) -> u64) {
    for pool in &raw.pools {
        let Some(packets) = &pool.packets else { continue };
        let what = format!("pool.{}", pool.head.name);
        sum.add(&sink.sources, what, "its packets' metadata", bytes(packets.value.into()), packets.span);
    }
}
