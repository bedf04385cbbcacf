//! Merges two redundant channels into one stream: each sequence number once and in order, or named in a gap.
//!
//! The item is the caller's (a packet, an index, bytes); the arbiter holds it only while something before it is missing, in a
//! window allocated up front. An item may stand for several consecutive sequence numbers, as a MoldUDP64 packet does.
//!
//! **When a gap is known.** A hole is declared a gap when both channels have passed it (their highest sequence number lies
//! beyond), when it has been known for the time-out, or when the window has no room to wait any longer. What arrives for it
//! afterwards is late: counted and handed back, never delivered out of order.
//!
//! **Use.** [`Arbiter::offer`] each item, then [`Arbiter::pop`] until `None`; call `pop` at [`Arbiter::deadline_ns`] too.

/// Which of the redundant channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The first.
    A = 0,
    /// The second.
    B = 1,
}

/// Bounds and policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArbiterSpec {
    /// How many sequence numbers beyond a hole may be held; rounded up to a power of two.
    pub window: u32,
    /// How long a hole is waited for when one channel only has passed it, in nanoseconds.
    pub timeout_ns: u64,
    /// The first sequence number expected; `None` takes that of the first item.
    pub first: Option<u64>,
    /// An item this far ahead of the stream is refused: after so long an outage one must resume, and a corrupt sequence
    /// number must not declare all that is to come lost.
    pub jump_max: u64,
}

impl Default for ArbiterSpec {
    fn default() -> Self {
        Self { window: 1024, timeout_ns: 1_000_000, first: None, jump_max: 1 << 32 }
    }
}

/// What became of an offered item.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Offer<T> {
    /// It is next: take it now. Its first `skip` messages were delivered or given up before.
    Ready {
        /// The item.
        item: T,
        /// Messages at its start to pass over.
        skip: u32,
    },
    /// It is ahead of a hole and is held.
    Held,
    /// All of it was delivered or given up before.
    Old(T),
    /// It is further ahead than `jump_max`, wraps around 64 bits, or `pop` was not called until `None`.
    Refused(T),
}

/// What the stream brings next.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// A held item whose turn has come.
    Message {
        /// The item.
        item: T,
        /// The sequence number of its first message that counts.
        sequence: u64,
        /// Messages at its start to pass over.
        skip: u32,
    },
    /// These sequence numbers will not come.
    Gap {
        /// The first of them.
        first: u64,
        /// How many.
        count: u64,
        /// Why they were given up.
        cause: GapCause,
    },
}

/// Why a hole was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapCause {
    /// Both channels have passed it.
    BothPassed,
    /// One channel has passed it and the time-out has too.
    TimedOut,
    /// The window was full.
    WindowFull,
}

/// Totals since construction, in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArbiterCounts {
    /// Received on A and on B.
    pub received: [u64; 2],
    /// Handed to the caller.
    pub delivered: u64,
    /// Received again after they were delivered or while they were held.
    pub duplicates: u64,
    /// Received after they were given up.
    pub late: u64,
    /// Refused.
    pub refused: u64,
    /// Passed over by [`Arbiter::resume_at`].
    pub skipped: u64,
    /// Given up.
    pub lost: u64,
    /// Gaps that these were in.
    pub gaps: u64,
}

struct Held<T> {
    start: u64,
    end: u64,
    at_ns: u64,
    item: T,
}

/// Gaps remembered to tell a late message from a duplicate; older ones count as duplicates.
const GAPS_KEPT: usize = 16;

/// The merger. See the module.
pub struct Arbiter<T> {
    /// The next sequence number to deliver; `None` before the first item.
    next: Option<u64>,
    /// A held item lives in the slot of its first sequence number that is not yet delivered, modulo the length.
    window: Box<[Option<Held<T>>]>,
    held: usize,
    /// An item beyond the window; `pop` moves the window up to it.
    beyond: Option<Held<T>>,
    /// One past the highest sequence number of each channel.
    passed: [u64; 2],
    /// Since when the hole at `next` is known, once it was looked at.
    hole_since_ns: Option<u64>,
    recent_gaps: [(u64, u64); GAPS_KEPT],
    counts: ArbiterCounts,
    timeout_ns: u64,
    jump_max: u64,
}

impl<T> Arbiter<T> {
    /// Allocates the window.
    pub fn new(spec: ArbiterSpec) -> Self {
        let window = spec.window.clamp(2, 1 << 24).next_power_of_two() as usize;
        Self {
            next: spec.first,
            window: (0..window).map(|_| None).collect(),
            held: 0,
            beyond: None,
            passed: [0; 2],
            hole_since_ns: None,
            recent_gaps: [(0, 0); GAPS_KEPT],
            counts: ArbiterCounts::default(),
            timeout_ns: spec.timeout_ns,
            jump_max: spec.jump_max,
        }
    }

    /// Totals since construction.
    pub fn counts(&self) -> &ArbiterCounts {
        &self.counts
    }

    /// The next sequence number to deliver; `None` before the first item.
    pub fn next_sequence(&self) -> Option<u64> {
        self.next
    }

    /// Items held.
    pub fn held(&self) -> usize {
        self.held + usize::from(self.beyond.is_some())
    }

    /// An item with the messages `sequence .. sequence + count` arrived. Without messages
    /// it says no more than a [`Arbiter::heartbeat`] and comes back as old.
    #[inline]
    pub fn offer(&mut self, channel: Channel, sequence: u64, count: u32, item: T, now_ns: u64) -> Offer<T> {
        self.counts.received[channel as usize] += u64::from(count);
        let next = self.next.unwrap_or(sequence);
        let end = sequence.checked_add(u64::from(count));
        let Some(end) = end.filter(|_| sequence.saturating_sub(next) < self.jump_max) else {
            self.counts.refused += u64::from(count);
            return Offer::Refused(item);
        };
        self.next = Some(next);
        let passed = &mut self.passed[channel as usize];
        *passed = end.max(*passed);
        if end <= next || count == 0 {
            self.count_old(sequence, end);
            return Offer::Old(item);
        }
        if sequence <= next {
            let skip = (next - sequence) as u32;
            if skip > 0 {
                self.count_old(sequence, next);
            }
            self.counts.delivered += end - next;
            self.counts.duplicates += self.advance(next, end);
            return Offer::Ready { item, skip };
        }
        self.hold(next, Held { start: sequence, end, at_ns: now_ns, item })
    }

    /// A channel says that the next message it will send is `sequence`.
    pub fn heartbeat(&mut self, channel: Channel, sequence: u64) {
        let next = *self.next.get_or_insert(sequence);
        if sequence.saturating_sub(next) < self.jump_max {
            let passed = &mut self.passed[channel as usize];
            *passed = sequence.max(*passed);
        }
    }

    /// The next event in order, if there is one by now.
    #[inline]
    pub fn pop(&mut self, now_ns: u64) -> Option<Event<T>> {
        let next = self.next?;
        if self.passed[0].max(self.passed[1]) <= next {
            return None;
        }
        self.pop_at_hole(next, now_ns)
    }

    /// When the hole that the stream stands at times out; `None` while there is none that a `pop` has seen.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.hole_since_ns.map(|since| since.saturating_add(self.timeout_ns))
    }

    /// The state up to `sequence` came from elsewhere (a snapshot, a retransmission, a sequence reset): go on from there.
    /// What is held before it is dropped. Going back forgets all that is held and what the channels have passed.
    pub fn resume_at(&mut self, sequence: u64) {
        match self.next {
            Some(next) if sequence >= next => {
                self.counts.skipped = self.counts.skipped.saturating_add(sequence - next);
                // What is dropped here was passed over, not received twice.
                let _dropped = self.advance(next, sequence);
            }
            _ => {
                self.window.iter_mut().for_each(|slot| *slot = None);
                self.held = 0;
                self.beyond = None;
                self.passed = [sequence; 2];
                self.hole_since_ns = None;
                self.recent_gaps = [(0, 0); GAPS_KEPT];
            }
        }
        self.next = Some(sequence);
    }

    fn hold(&mut self, next: u64, held: Held<T>) -> Offer<T> {
        if held.start - next >= self.window.len() as u64 {
            if self.beyond.is_some() {
                self.counts.refused += held.end - held.start;
                return Offer::Refused(held.item);
            }
            self.beyond = Some(held);
            return Offer::Held;
        }
        match self.put(held.start, held) {
            Some(shorter) => Offer::Old(shorter.item),
            None => Offer::Held,
        }
    }

    /// Puts an item into the slot of `from`. When one is there already, the one that ends first is a duplicate and comes back.
    fn put(&mut self, from: u64, mut held: Held<T>) -> Option<Held<T>> {
        let slot = from as usize & (self.window.len() - 1);
        match &mut self.window[slot] {
            empty @ None => {
                *empty = Some(held);
                self.held += 1;
                None
            }
            Some(there) => {
                if there.end < held.end {
                    std::mem::swap(there, &mut held);
                }
                self.counts.duplicates += held.end - from;
                Some(held)
            }
        }
    }

    #[cold]
    fn pop_at_hole(&mut self, next: u64, now_ns: u64) -> Option<Event<T>> {
        let slot = next as usize & (self.window.len() - 1);
        if let Some(held) = self.window[slot].take() {
            self.held -= 1;
            return Some(self.deliver(next, held));
        }
        if let Some(held) = self.beyond.take() {
            if held.start <= next {
                self.counts.duplicates += next - held.start;
                return Some(self.deliver(next, held));
            }
            if held.start - next >= self.window.len() as u64 {
                let upto = self.first_held(next).map_or(held.start, |first| first.min(held.start));
                self.beyond = Some(held);
                return Some(self.give_up(next, upto, GapCause::WindowFull));
            }
            // The window has moved far enough; a duplicate of what it holds is dropped here.
            drop(self.put(held.start, held));
        }
        let first_held = self.first_held(next);
        let by_both = self.passed[0].min(self.passed[1]);
        if by_both > next {
            let upto = first_held.map_or(by_both, |first| first.min(by_both));
            return Some(self.give_up(next, upto, GapCause::BothPassed));
        }
        let since_ns = *self.hole_since_ns.get_or_insert_with(|| match first_held {
            Some(first) => self.window[first as usize & (self.window.len() - 1)].as_ref().map_or(now_ns, |h| h.at_ns),
            None => now_ns,
        });
        if now_ns.saturating_sub(since_ns) < self.timeout_ns {
            return None;
        }
        let upto = first_held.unwrap_or(self.passed[0].max(self.passed[1]));
        Some(self.give_up(next, upto, GapCause::TimedOut))
    }

    fn deliver(&mut self, next: u64, held: Held<T>) -> Event<T> {
        self.counts.delivered += held.end - next;
        self.counts.duplicates += self.advance(next, held.end);
        Event::Message { item: held.item, sequence: next, skip: (next - held.start) as u32 }
    }

    fn give_up(&mut self, next: u64, upto: u64, cause: GapCause) -> Event<T> {
        self.recent_gaps[self.counts.gaps as usize % GAPS_KEPT] = (next, upto);
        self.counts.gaps += 1;
        self.counts.lost = self.counts.lost.saturating_add(upto - next);
        let dropped = self.advance(next, upto);
        debug_assert_eq!(dropped, 0, "nothing is held inside a gap");
        Event::Gap { first: next, count: upto - next, cause }
    }

    /// Moves the stream on, and what is held with it: an item that starts before the new place moves to its slot, or is
    /// dropped if it ends before. Returns how many held messages the move made superfluous.
    #[inline]
    fn advance(&mut self, from: u64, to: u64) -> u64 {
        self.next = Some(to);
        self.hole_since_ns = None;
        if self.held() > 0 { self.carry_over(from, to) } else { 0 }
    }

    #[cold]
    fn carry_over(&mut self, from: u64, to: u64) -> u64 {
        let mut dropped = 0;
        if let Some(held) = self.beyond.take_if(|held| held.end <= to) {
            dropped += held.end - held.start;
        }
        let mask = self.window.len() - 1;
        let mut carried: Option<Held<T>> = None;
        for sequence in from..to.min(from.saturating_add(self.window.len() as u64)) {
            let Some(held) = self.window[sequence as usize & mask].take() else { continue };
            self.held -= 1;
            dropped += held.end.min(to) - sequence;
            if held.end <= to {
                continue;
            }
            // Of those that reach beyond, the longest goes on.
            let (short, long) = match carried.take() {
                Some(other) if other.end > held.end => (Some(held), other),
                other => (other, held),
            };
            dropped += short.map_or(0, |short| short.end - to);
            carried = Some(long);
        }
        if let Some(held) = carried {
            drop(self.put(to, held));
        }
        dropped
    }

    fn first_held(&self, next: u64) -> Option<u64> {
        if self.held == 0 {
            return None;
        }
        let mask = self.window.len() - 1;
        (next..next.saturating_add(self.window.len() as u64))
            .find(|&sequence| self.window[sequence as usize & mask].is_some())
    }

    /// Messages before `next` that came once more: late when they were given up, else duplicates.
    fn count_old(&mut self, start: u64, end: u64) {
        let late: u64 =
            self.recent_gaps.iter().map(|&(first, upto)| upto.min(end).saturating_sub(first.max(start))).sum();
        self.counts.late += late;
        self.counts.duplicates += (end - start) - late;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arbiter(window: u32, timeout_ns: u64) -> Arbiter<u64> {
        Arbiter::new(ArbiterSpec { window, timeout_ns, first: Some(1), ..ArbiterSpec::default() })
    }

    #[test]
    fn a_hole_on_one_channel_is_filled_by_the_other() {
        let mut a = arbiter(8, 1000);
        assert_eq!(a.offer(Channel::A, 1, 1, 1, 0), Offer::Ready { item: 1, skip: 0 });
        assert_eq!(a.offer(Channel::A, 3, 1, 3, 0), Offer::Held);
        assert_eq!(a.pop(0), None);
        assert_eq!(a.offer(Channel::B, 1, 1, 1, 0), Offer::Old(1));
        assert_eq!(a.offer(Channel::B, 2, 1, 2, 0), Offer::Ready { item: 2, skip: 0 });
        assert_eq!(a.pop(0), Some(Event::Message { item: 3, sequence: 3, skip: 0 }));
        assert_eq!(a.pop(0), None);
        let counts = ArbiterCounts { received: [2, 2], delivered: 3, duplicates: 1, ..Default::default() };
        assert_eq!(*a.counts(), counts);
    }

    #[test]
    fn what_both_lost_is_a_gap_at_once_and_late_after() {
        let mut a = arbiter(8, u64::MAX);
        assert_eq!(a.offer(Channel::A, 4, 1, 4, 0), Offer::Held);
        assert_eq!(a.pop(0), None);
        assert_eq!(a.offer(Channel::B, 5, 1, 5, 0), Offer::Held);
        assert_eq!(a.pop(0), Some(Event::Gap { first: 1, count: 3, cause: GapCause::BothPassed }));
        assert_eq!(a.pop(0), Some(Event::Message { item: 4, sequence: 4, skip: 0 }));
        assert_eq!(a.pop(0), Some(Event::Message { item: 5, sequence: 5, skip: 0 }));
        assert_eq!(a.offer(Channel::A, 2, 1, 2, 0), Offer::Old(2));
        assert_eq!((a.counts().late, a.counts().lost, a.counts().gaps), (1, 3, 1));
    }

    #[test]
    fn a_hole_times_out_from_when_it_was_seen() {
        let mut a = arbiter(8, 100);
        assert_eq!(a.offer(Channel::A, 2, 1, 2, 50), Offer::Held);
        assert_eq!(a.pop(149), None);
        assert_eq!(a.deadline_ns(), Some(150));
        assert_eq!(a.pop(150), Some(Event::Gap { first: 1, count: 1, cause: GapCause::TimedOut }));
        assert_eq!(a.pop(150), Some(Event::Message { item: 2, sequence: 2, skip: 0 }));
        assert_eq!(a.deadline_ns(), None);
    }

    #[test]
    fn the_window_moves_when_it_must() {
        let mut a = arbiter(4, u64::MAX);
        assert_eq!(a.offer(Channel::A, 3, 1, 3, 0), Offer::Held);
        assert_eq!(a.offer(Channel::A, 9, 1, 9, 0), Offer::Held);
        assert_eq!(a.offer(Channel::A, 10, 1, 10, 0), Offer::Refused(10));
        assert_eq!(a.pop(0), Some(Event::Gap { first: 1, count: 2, cause: GapCause::WindowFull }));
        assert_eq!(a.pop(0), Some(Event::Message { item: 3, sequence: 3, skip: 0 }));
        assert_eq!(a.pop(0), Some(Event::Gap { first: 4, count: 5, cause: GapCause::WindowFull }));
        assert_eq!(a.pop(0), Some(Event::Message { item: 9, sequence: 9, skip: 0 }));
        assert_eq!(a.pop(0), None);
    }

    #[test]
    fn packets_that_overlap_are_delivered_once() {
        let mut a = arbiter(16, u64::MAX);
        assert_eq!(a.offer(Channel::A, 4, 4, 40, 0), Offer::Held);
        assert_eq!(a.offer(Channel::B, 5, 6, 50, 0), Offer::Held);
        assert_eq!(a.offer(Channel::A, 1, 3, 10, 0), Offer::Ready { item: 10, skip: 0 });
        assert_eq!(a.pop(0), Some(Event::Message { item: 40, sequence: 4, skip: 0 }));
        assert_eq!(a.pop(0), Some(Event::Message { item: 50, sequence: 8, skip: 3 }));
        assert_eq!(a.pop(0), None);
        assert_eq!(a.next_sequence(), Some(11));
        assert_eq!((a.counts().delivered, a.counts().duplicates), (10, 3));
    }

    #[test]
    fn it_resumes_forward_and_back() {
        let mut a = arbiter(8, u64::MAX);
        assert_eq!(a.offer(Channel::A, 3, 1, 3, 0), Offer::Held);
        assert_eq!(a.offer(Channel::A, 6, 1, 6, 0), Offer::Held);
        a.resume_at(5);
        assert_eq!((a.held(), a.counts().skipped), (1, 4));
        assert_eq!(a.offer(Channel::B, 5, 1, 5, 0), Offer::Ready { item: 5, skip: 0 });
        assert_eq!(a.pop(0), Some(Event::Message { item: 6, sequence: 6, skip: 0 }));
        a.resume_at(1);
        assert_eq!(a.offer(Channel::B, 1, 1, 1, 0), Offer::Ready { item: 1, skip: 0 });
        assert_eq!(a.pop(0), None);
    }

    #[test]
    fn a_corrupt_sequence_number_ends_nothing() {
        let mut a = arbiter(8, 0);
        assert_eq!(a.offer(Channel::A, u64::MAX, 2, 0, 0), Offer::Refused(0));
        assert_eq!(a.offer(Channel::A, 1 << 40, 1, 0, 0), Offer::Refused(0));
        a.heartbeat(Channel::A, 1 << 50);
        assert_eq!(a.pop(0), None);
        assert_eq!(a.offer(Channel::A, 1, 1, 1, 0), Offer::Ready { item: 1, skip: 0 });
    }
}
