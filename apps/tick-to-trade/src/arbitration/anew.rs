//! Detects a feed that begins anew: its exchange has restarted, in another session or with numbers
//! from the start.
//!
//! A frame of another session, or one behind the numbers that its channel has sent, is a claim, and
//! moves nothing. Consecutive frames confirm it if no frame of the followed stream comes between
//! them: two on each channel, or, if only one channel brings any, two on that channel, a second or
//! more after the first.

use super::{Arbiter, Channel};
use crate::mold::Session;

/// How long a claim of one channel alone must stand.
const ALONE_NS: u64 = 1_000_000_000;

/// Consecutive frames that each channel must bring.
const FRAMES: u32 = 2;

/// The next frame of a channel begins less than this ahead, in messages.
const NEAR: u64 = 1 << 16;

/// The claims of the channels.
#[derive(Debug, Default)]
pub struct Anew {
    claim: Option<Claim>,
}

#[derive(Debug)]
struct Claim {
    session: Session,
    /// The next number of the followed stream. If it moves on, the claim is void.
    stood_at: Option<u64>,
    since_ns: u64,
    /// One past the last number of each channel's last frame, and the number of consecutive frames
    /// up to it.
    channels: [(u64, u32); 2],
}

impl Anew {
    /// Takes a frame with `count` messages of another session, or from before those that `channel`
    /// has brought. `stands_at` is the next number of the followed stream. True once the claim is
    /// confirmed: the feed goes on from these messages.
    #[cold]
    pub fn is_borne_out(
        &mut self,
        channel: Channel,
        session: &Session,
        (sequence, count): (u64, u32),
        stands_at: Option<u64>,
        now_ns: u64,
    ) -> bool {
        if count == 0 {
            return false;
        }
        let is_of = |claim: &Claim| claim.session == *session && claim.stood_at == stands_at;
        let claim = self.claim.take().filter(is_of);
        let claim = self.claim.insert(claim.unwrap_or(Claim {
            session: *session,
            stood_at: stands_at,
            since_ns: now_ns,
            channels: [(0, 0); 2],
        }));
        let (end, frames) = &mut claim.channels[channel as usize];
        let goes_on = sequence.checked_sub(*end).is_some_and(|ahead| ahead < NEAR);
        *frames = if goes_on { frames.saturating_add(1) } else { 1 };
        *end = sequence.saturating_add(u64::from(count));
        let is_alone = claim.channels.iter().any(|(_, frames)| *frames == 0);
        let may_be_alone = now_ns.saturating_sub(claim.since_ns) >= ALONE_NS;
        let is_enough = |(_, frames): &(u64, u32)| *frames >= FRAMES || is_alone && *frames == 0 && may_be_alone;
        let is_borne_out = claim.channels.iter().all(is_enough);
        if is_borne_out {
            self.claim = None;
        }
        is_borne_out
    }

    /// Drops the claim: the followed stream has moved.
    pub fn refute(&mut self) {
        self.claim = None;
    }
}

impl<T> Arbiter<T> {
    /// One past the highest sequence number known to be sent on a channel.
    #[inline]
    pub fn heard(&self, channel: Channel) -> u64 {
        self.heard[channel as usize]
    }

    /// Restarts the stream at `first`: forgets its past, and drops the held items, which count as
    /// refused.
    #[cold]
    pub fn begin_anew(&mut self, first: u64) {
        let held = self.window.clear(first);
        self.counts.dropped_items += held.items;
        self.counts.refused += held.displaced;
        (self.next, self.heard, self.said) = (Some(first), [first; 2], [0; 2]);
        self.hole_since_ns = None;
        self.recent_gaps.fill((0, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitration::{ArbiterSpec, Offer};

    const OTHER: Session = *b"OTHER     ";

    #[test]
    fn two_frames_of_each_channel_bear_it_out_and_fewer_do_not() {
        let mut anew = Anew::default();
        let mut says = |channel, at| anew.is_borne_out(channel, &OTHER, (at, 2), Some(90), 5);
        assert!(!says(Channel::A, 1) && !says(Channel::A, 3) && !says(Channel::A, 5), "one channel");
        assert!(!says(Channel::B, 3) && !says(Channel::B, 3), "the same once more");
        assert!(!says(Channel::A, 1 << 40) && !says(Channel::B, 5), "A jumped");
        assert!(!says(Channel::A, 7) && says(Channel::A, 9));
        assert!(!says(Channel::A, 11), "it is told once");
    }

    #[test]
    fn what_is_followed_and_comes_meanwhile_refutes_it() {
        let mut anew = Anew::default();
        for round in 0..10 {
            assert!(!anew.is_borne_out(Channel::A, &OTHER, (1, 2), Some(round), 5));
            assert!(!anew.is_borne_out(Channel::A, &OTHER, (3, 2), Some(round), 5));
            assert!(!anew.is_borne_out(Channel::B, &OTHER, (3, 2), Some(round), 5));
        }
        anew.refute();
        assert!(!anew.is_borne_out(Channel::B, &OTHER, (5, 2), Some(9), 5));
        assert!(!anew.is_borne_out(Channel::A, b"ANOTHER   ", (5, 2), Some(9), 5));
    }

    #[test]
    fn one_channel_alone_bears_it_out_after_a_second() {
        let mut anew = Anew::default();
        let mut says = |at, now_ns| anew.is_borne_out(Channel::B, &OTHER, (at, 2), Some(90), now_ns);
        assert!(!says(1, 5) && !says(3, ALONE_NS) && says(5, ALONE_NS + 5));
    }

    /// After `begin_anew` an arbiter delivers numbers that were old before, and nothing that it
    /// held.
    #[test]
    fn an_arbiter_goes_on_with_numbers_that_begin_anew() {
        let mut arbiter = Arbiter::new(ArbiterSpec { window: 8, first: Some(100), ..ArbiterSpec::default() });
        assert_eq!(arbiter.offer(Channel::A, 100, 2, 0, 0), Offer::Ready { item: 0, skip: 0 });
        assert_eq!(arbiter.offer(Channel::A, 104, 2, 1, 0), Offer::Held);
        assert_eq!(arbiter.offer(Channel::B, 900, 1, 2, 0), Offer::Held);
        assert_eq!(arbiter.offer(Channel::A, 5, 2, 3, 0), Offer::Old(3));
        assert!(arbiter.heard(Channel::A) > 7);
        arbiter.begin_anew(7);
        assert_eq!((arbiter.held(), arbiter.next_sequence(), arbiter.pop(u64::MAX)), (0, Some(7), None));
        assert_eq!(arbiter.offer(Channel::A, 7, 2, 4, 0), Offer::Ready { item: 4, skip: 0 });
        assert!(matches!(arbiter.offer(Channel::B, 7, 2, 5, 0), Offer::Old(5)));
        assert_eq!((arbiter.counts().refused, arbiter.counts().dropped_items), (3, 2));
    }
}
