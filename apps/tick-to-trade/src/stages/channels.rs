//! The redundant channels A and B of a feed: the same bytes on both, with deliberate drops.

use verbline::prelude::*;

use super::tally::ExchangeTally;

/// The exchange's outputs, in the order of registration.
pub(super) const A: OutId = OutId(0);
pub(super) const B: OutId = OutId(1);
pub(super) const REPORTS: OutId = OutId(2);

/// The exchange's drop reasons.
pub(super) const DROPS: &[&str] =
    &["on_purpose_a", "on_purpose_b", "malformed_order", "no_room", "on_purpose_answer", "not_served"];
const ON_PURPOSE: [DropReason; 2] = [DropReason::Stage(0), DropReason::Stage(1)];
pub(super) const MALFORMED_ORDER: DropReason = DropReason::Stage(2);
/// The packet is too short for the bytes to be written.
pub(super) const NO_ROOM: DropReason = DropReason::Stage(3);
/// An answer to a request.
pub(super) const ON_PURPOSE_ANSWER: DropReason = DropReason::Stage(4);
/// A request that has no answer.
pub(super) const NOT_SERVED: DropReason = DropReason::Stage(5);

/// How often each channel carries a heartbeat or an end of session: the first is a claim, and the
/// second confirms it.
const ANNOUNCEMENTS: usize = 2;

/// The deliberate drops, of frames per channel and of answers: independent, decided by a seed.
#[derive(Debug)]
pub(super) struct Drops {
    /// A draw below 2^32 drops if it is below the threshold.
    thresholds: [u64; 3],
    seeds: [u64; 3],
}

/// The index of answers in both arrays.
const ANSWERS: usize = 2;

/// Whether both channels have room for a frame now.
#[inline]
pub(super) fn has_room(out: &Outputs<'_>) -> bool {
    out.room(A) > 0 && out.room(B) > 0
}

/// Whether both channels have room for an announcement.
pub(super) fn has_room_to_announce(out: &Outputs<'_>) -> bool {
    out.room(A) >= ANNOUNCEMENTS && out.room(B) >= ANNOUNCEMENTS
}

/// Sends bytes on both channels without deliberate drops: heartbeats and the end of a session. A
/// failure is counted where it happens: `alloc_failed` of the stage, `tx_full` of the port,
/// `no_room` here.
pub(super) fn announce(bytes: &[u8], out: &mut Outputs<'_>) {
    for &channel in [[A, B]; ANNOUNCEMENTS].as_flattened() {
        let Some(mut packet) = out.alloc() else { continue };
        match packet.fill(bytes) {
            true => _ = out.send(channel, packet),
            false => out.drop(packet, NO_ROOM),
        }
    }
}

impl Drops {
    /// The shares to drop: of channel A, of channel B, and of answers; and the seed of the draws.
    pub(super) fn new(shares: [f64; 3], seed: u64) -> Drops {
        let thresholds = shares.map(|share| (share * 2f64.powi(32)) as u64);
        Drops { thresholds, seeds: [seed, seed ^ 0x9e37_79b9_7f4a_7c15, seed ^ 0xd1b5_4a32_d192_ed03] }
    }

    /// Draws whether to drop the next answer.
    pub(super) fn drops_answer(&mut self) -> bool {
        self.drops(ANSWERS)
    }

    /// Sends a frame of `messages` messages on a channel (0 is A, 1 is B), or drops it on purpose.
    /// Returns whether it was sent.
    #[inline]
    pub(super) fn send(
        &mut self,
        channel: usize,
        packet: Packet,
        messages: u64,
        tally: &mut ExchangeTally,
        out: &mut Outputs<'_>,
    ) -> bool {
        if self.drops(channel) {
            tally.dropped[channel] += messages;
            out.drop(packet, ON_PURPOSE[channel]);
            return false;
        }
        out.send([A, B][channel], packet)
    }

    /// The next draw of an independent sequence (SplitMix64).
    fn drops(&mut self, channel: usize) -> bool {
        let seed = &mut self.seeds[channel];
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> 32 < self.thresholds[channel]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_drops_its_share_independently() {
        let mut both = Drops::new([0.1, 0.5, 0.0], 7);
        let drops: Vec<_> = (0..100_000).map(|_| [both.drops(0), both.drops(1)]).collect();
        let count = |wanted: fn(&[bool; 2]) -> bool| drops.iter().filter(|both| wanted(both)).count();
        assert!((9_500..10_500).contains(&count(|both| both[0])));
        assert!((49_000..51_000).contains(&count(|both| both[1])));
        assert!((4_600..5_400).contains(&count(|both| both[0] && both[1])));
        let mut never = Drops::new([0.0, 1.0, 1.0], 7);
        assert!((0..1000).all(|_| !never.drops(0) && never.drops(1) && never.drops_answer()));
    }
}
