//! Posts packets to a queue pair, as sends or as receives, for ports with one queue pair or a
//! thousand.

use verbline_mem::{Batch, Packet, PoolCache};
use verbline_verbs::rdma::{NoFence, OnAny};
use verbline_verbs::{PostStop, RecvOutcome, SendOptions, SendOutcome};

use crate::connection::port_qp::PortQp;
use crate::operations::queue::sends::refusal;
use crate::stats::counters::PortStats;
use crate::stats::drop_reason::DropReason;

/// How long an lcore may sleep while a receive queue waits for its pool, and how long it waits
/// before it asks a device that has refused receives again. Packets that return to a pool ring no
/// doorbell.
pub(crate) const STARVED_RETRY_NS: u64 = 1_000_000;

/// Posts packets as one list where it fits, and counts the posted ones. `signal_ends`: the list's
/// last send is signaled.
// Always inlined into its callers, the two kinds of port: a call of its own costs 40 instructions
// per post.
#[inline(always)]
pub(super) fn send(qp: &mut PortQp, batch: &mut Batch, signal_ends: bool, stats: &PortStats) -> SendOutcome {
    let before = batch.len();
    let bytes = match batch.as_slice() {
        [only] => only.len() as u64,
        _ => bytes_of(batch),
    };
    let outcome = match signal_ends {
        false => qp.post_send(batch),
        true => {
            qp.post_send_with(batch, |index, _| SendOptions { signaled: index + 1 == before, ..SendOptions::default() })
        }
    };
    count_sent(qp, batch, [before, outcome.posted], bytes, signal_ends, stats);
    outcome
}

/// Like [`send`]; `options` returns the send options of each packet.
pub(super) fn send_with(
    qp: &mut PortQp,
    batch: &mut Batch,
    signal_ends: bool,
    stats: &PortStats,
    options: impl Fn(&Packet) -> SendOptions,
) -> SendOutcome {
    let (before, bytes) = (batch.len(), bytes_of(batch));
    let asked = |index: usize, packet: &Packet| {
        let options = options(packet);
        SendOptions { signaled: options.signaled || signal_ends && index + 1 == before, ..options }
    };
    let outcome = match qp.rc() {
        Ok(mut rc) => rc.post_send_with(batch, asked),
        Err(_) => qp.post_send_with(batch, |index, packet| without_fence(asked(index, packet))),
    };
    count_sent(qp, batch, [before, outcome.posted], bytes, signal_ends, stats);
    outcome
}

/// Counts the posted packets of a batch, and their bytes.
#[inline(always)]
fn count_sent(
    qp: &mut PortQp,
    batch: &Batch,
    [before, posted]: [usize; 2],
    bytes: u64,
    signal_ends: bool,
    stats: &PortStats,
) {
    if posted > 0 {
        qp.end_signaled = signal_ends && posted == before;
        stats.tx_posts.add(1);
        stats.tx_packets.add(posted as u64);
        stats.tx_bytes.add(bytes - bytes_of(batch));
    }
}

/// Removes the fence: only RC has READs and atomics to wait for.
fn without_fence(options: SendOptions) -> SendOptions<OnAny> {
    let SendOptions { imm, solicited, fence: _, signaled, destination, comes_back } = options;
    SendOptions { imm, solicited, fence: NoFence, signaled, destination, comes_back }
}

/// Drops the first packet if only it cannot be sent, or all packets if none can.
#[cold]
pub(super) fn refuse(batch: &mut Batch, stop: PostStop, port: &str, stats: &PortStats) {
    refuse_each(batch, stop, port, stats, |packet, _| drop(packet));
}

/// Like [`refuse`]; `end` takes each packet.
#[cold]
pub(super) fn refuse_each(
    batch: &mut Batch,
    stop: PostStop,
    port: &str,
    stats: &PortStats,
    mut end: impl FnMut(Packet, DropReason),
) {
    let (reason, count) = match stop {
        PostStop::Full => (DropReason::TxFull, batch.len()),
        PostStop::NotReady(_) => (DropReason::PortDown, batch.len()),
        stop => (refusal(stop), 1),
    };
    // Once per port, not once per packet: the rest is in the counters.
    if stats.drops.count(reason) == 0 && !stop.is_backpressure() {
        tracing::error!(%port, %stop, "a packet cannot be sent");
    }
    batch.drain_front(count).for_each(|packet| end(packet, reason));
    stats.drops.add(reason, count as u64);
}

fn bytes_of(batch: &Batch) -> u64 {
    batch.iter().map(|packet| packet.len() as u64).sum()
}

/// The result of a refill.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refilled {
    /// The packets taken from the pool; fewer than were wanted if the pool is empty.
    pub(super) taken: usize,
    pub(super) is_starved: bool,
    pub(super) posted: usize,
    pub(super) stop: Option<PostStop>,
}

/// Takes packets from a pool and posts them to a receive queue that lacks `missing`: as many as
/// `refill` holds at once. Packets that the queue refuses stay there, and count as missing.
#[inline]
pub(super) fn refill(
    cache: &PoolCache,
    refill: &mut Batch,
    missing: usize,
    post: impl FnOnce(&mut Batch) -> RecvOutcome,
) -> Refilled {
    let wanted = missing.min(refill.capacity()) - refill.len().min(missing);
    // As their last holders left them: posting resets them.
    let taken = cache.get_bulk_unreset(refill, wanted);
    let RecvOutcome { posted, stop } = post(refill);
    Refilled { taken, is_starved: taken < wanted, posted, stop }
}

#[cfg(test)]
mod tests {
    use verbline_verbs::QpState;

    use super::*;
    use crate::rig::Rig;
    use crate::stats::counter::shared;

    #[test]
    fn a_packet_at_fault_is_dropped_alone_and_all_are_where_none_can_go() {
        let (too_long, rig) = (PostStop::TooLong { len_bytes: 9, max_bytes: 8 }, Rig::new(3));
        for (stop, reason, count) in [
            (PostStop::Full, DropReason::TxFull, 3),
            (PostStop::NotReady(QpState::Err), DropReason::PortDown, 3),
            (PostStop::NotRegistered { packet_pd: 0, qp_pd: 1 }, DropReason::SendError, 1),
            (too_long, DropReason::TooLong, 1),
        ] {
            let (stats, mut batch) = (shared::<PortStats>(), Batch::with_capacity(3));
            assert_eq!(rig.pool.cache(0).get_bulk(&mut batch, 3), 3);
            let mut ended = Vec::new();
            refuse_each(&mut batch, stop, "port", &stats, |_, reason| ended.push(reason));
            assert_eq!((ended, batch.len()), (vec![reason; count], 3 - count), "{stop}");
            assert_eq!(stats.drops.count(reason), count as u64, "{stop}");
        }
    }
}
