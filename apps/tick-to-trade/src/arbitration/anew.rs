//! Whether the feed has begun anew: its exchange has started again, in another session or with
//! numbers that begin again.
//!
//! A frame of another session, or one behind what its channel has sent before, is a claim, and
//! moves nothing. It is borne out by frames that go on from each other, nothing of the stream that
//! is followed between them: two on each channel, or, where one channel alone brings any, two that
//! are a second apart from the first.

use super::{Arbiter, Channel};
use crate::mold::Session;

/// How long one channel alone must say so.
const ALONE_NS: u64 = 1_000_000_000;

/// Frames in a row that each channel must bring.
const FRAMES: u32 = 2;

/// The next frame of a channel begins no further on than this, in messages.
const NEAR: u64 = 1 << 16;

/// What the channels claim.
#[derive(Debug, Default)]
pub struct Anew {
    claim: Option<Claim>,
}

#[derive(Debug)]
struct Claim {
    session: Session,
    /// Where the stream stood that is followed. If it moves on, the claim is void.
    stood_at: Option<u64>,
    since_ns: u64,
    /// One past the last number of each channel's last frame, and how many frames in a row led to
    /// it.
    channels: [(u64, u32); 2],
}

impl Anew {
    /// A channel has brought `count` messages that are of another session, or from before what it
    /// has brought already. `stands_at` is the next number of the stream that is followed. True
    /// once it is borne out that the feed goes on from these.
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

    /// Something of the stream that is followed has come.
    pub fn refute(&mut self) {
        self.claim = None;
    }
}

impl<T> Arbiter<T> {
    /// One past the highest sequence number that a channel is known to have sent.
    #[inline]
    pub fn heard(&self, channel: Channel) -> u64 {
        self.heard[channel as usize]
    }

    /// The feed begins anew with this number: what was before is forgotten, and what is held is
    /// dropped and counts as refused.
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

    /// After it has begun anew an arbiter delivers what it would have taken for old, and nothing
    /// that it held before.
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
