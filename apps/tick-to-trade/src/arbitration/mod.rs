//! Merges two redundant channels into one stream: each sequence number once and in order, or named
//! in a gap.
//!
//! The item is the caller's (a packet, an index, bytes); the arbiter holds it only while something
//! before it is missing, in a window allocated up front. An item may stand for several consecutive
//! sequence numbers, as a MoldUDP64 packet does.
//!
//! **Whom it believes.** An item is *in line* if it starts no later than where its channel is known
//! to be; such an item is taken at once. One that jumps ahead of its own channel is a claim: the
//! channel lost something, or the sequence number is corrupt or forged. A claim is held and moves
//! nothing. It is believed as far as a second one bears it out: the next item of the same channel,
//! or the last one of the other. Of two claims the lesser counts, so that one false claim never
//! moves the stream, however far ahead it says to be, and a true item takes the place of a false
//! one that holds its slot.
//!
//! **When a gap is known.** A hole is declared a gap when both channels are known to have passed
//! it, when it has been known for the time-out, or when an item that is believed finds no room in
//! the window. What arrives for it afterwards is late: counted and handed back, never delivered out
//! of order.
//!
//! **Use.** [`Arbiter::offer`] each item, then [`Arbiter::pop`] until `None`; call `pop` at
//! [`Arbiter::deadline_ns`] too.

mod anew;
mod window;

use window::{Held, Window};

pub use anew::Anew;
pub use window::{BEYOND_ITEMS, Channel};

/// Bounds and policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArbiterSpec {
    /// How many sequence numbers beyond a hole may be held; rounded up to a power of two.
    pub window: u32,
    /// How long a hole is waited for when one channel only has passed it, in nanoseconds.
    pub timeout_ns: u64,
    /// The first sequence number expected; `None` takes that of the first two items that are near
    /// each other.
    pub first: Option<u64>,
    /// An item this far ahead of the stream is refused, whatever bears it out: after so long an
    /// outage one must resume.
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
    /// It is ahead of a hole, or of its own channel, and is held.
    Held,
    /// All of it was delivered, given up, or is held from elsewhere. The item that comes back is
    /// this one, or the one whose place it has taken.
    Old(T),
    /// It is further ahead than `jump_max`, or its numbers exceed 64 bits; or the item that comes
    /// back is the oldest of too many beyond the window.
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

/// Totals since construction, in messages unless they say otherwise.
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
    /// Given up.
    pub lost: u64,
    /// Gaps that these were in.
    pub gaps: u64,
    /// Held *items* that the arbiter dropped itself, since all their messages had come otherwise.
    pub dropped_items: u64,
}

/// Gaps remembered to tell a late message from a duplicate; older ones count as duplicates.
const GAPS_KEPT: usize = 16;

/// The merger. See the module.
pub struct Arbiter<T> {
    /// The next sequence number to deliver; `None` before the stream is known.
    next: Option<u64>,
    window: Window<T>,
    /// One past the highest sequence number that each channel is known to have sent.
    heard: [u64; 2],
    /// What each channel said last: one past the last sequence number of its last item. May be
    /// false.
    said: [u64; 2],
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
        Self {
            next: spec.first,
            window: Window::new(spec.window, spec.first.unwrap_or(0)),
            heard: [spec.first.unwrap_or(0); 2],
            said: [0; 2],
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

    /// The next sequence number to deliver; `None` before the stream is known.
    pub fn next_sequence(&self) -> Option<u64> {
        self.next
    }

    /// Items held.
    pub fn held(&self) -> usize {
        self.window.len()
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
        let in_line = self.hear(channel, sequence, end);
        if self.next.is_some() && (end <= next || count == 0) {
            self.count_old(sequence, end);
            return Offer::Old(item);
        }
        if in_line && sequence <= next && self.next.is_some() {
            let skip = (next - sequence) as u32;
            if skip > 0 {
                self.count_old(sequence, next);
            }
            self.counts.delivered += end - next;
            self.counts.duplicates += self.advance(end);
            return Offer::Ready { item, skip };
        }
        self.hold(Held { start: sequence, from: sequence, end, at_ns: now_ns, channel, in_line, item })
    }

    /// A channel says that the next message it will send is `sequence`.
    pub fn heartbeat(&mut self, channel: Channel, sequence: u64) {
        let next = self.next.unwrap_or(sequence);
        if sequence.saturating_sub(next) < self.jump_max {
            self.hear(channel, sequence, sequence);
        }
    }

    /// The next event in order, if there is one by now.
    #[inline]
    #[must_use = "it is told once"]
    pub fn pop(&mut self, now_ns: u64) -> Option<Event<T>> {
        let next = self.next?;
        if self.known() <= next {
            return None;
        }
        self.pop_at_hole(next, now_ns)
    }

    /// When the hole that the stream stands at times out; `None` while there is none that a `pop`
    /// has seen.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.hole_since_ns.map(|since| since.saturating_add(self.timeout_ns))
    }

    /// Takes note of what a channel says of itself, and tells whether it starts where the channel
    /// is known to be.
    ///
    /// At most one of two items in a row is false, so the lesser of their ends is true, or less
    /// than the truth.
    #[inline]
    fn hear(&mut self, channel: Channel, start: u64, end: u64) -> bool {
        let before = std::mem::replace(&mut self.said[channel as usize], end);
        let heard = &mut self.heard[channel as usize];
        *heard = before.min(end).max(*heard);
        let in_line = start <= *heard;
        if in_line {
            *heard = end.max(*heard);
        }
        in_line
    }

    /// One past the highest sequence number that is known to have been sent on a channel.
    #[inline]
    fn known(&self) -> u64 {
        self.heard[0].max(self.heard[1]).max(self.both_say())
    }

    /// The lesser of what the two channels said last: if one of them is false, the other is not.
    #[inline]
    fn both_say(&self) -> u64 {
        self.said[0].min(self.said[1])
    }

    /// Whether an item may be delivered when its turn comes, though a better copy may be on its
    /// way.
    fn believes(&self, held: &Held<T>) -> bool {
        held.in_line || held.end <= self.heard[held.channel as usize].max(self.both_say())
    }

    #[cold]
    fn hold(&mut self, mut held: Held<T>) -> Offer<T> {
        let Some(next) = self.next else { return self.open(held) };
        if held.start < next {
            self.count_old(held.start, next);
            held.from = next;
        }
        self.keep(held)
    }

    fn keep(&mut self, held: Held<T>) -> Offer<T> {
        let put = self.window.put(held);
        self.counts.duplicates += put.duplicates;
        match (put.superfluous, put.displaced) {
            (Some(item), _) => Offer::Old(item),
            (None, Some(displaced)) => self.refuse(displaced),
            (None, None) => Offer::Held,
        }
    }

    fn refuse(&mut self, held: Held<T>) -> Offer<T> {
        self.counts.refused += held.end - held.from;
        Offer::Refused(held.item)
    }

    /// Before the stream is known, items are held until one is near another.
    fn open(&mut self, held: Held<T>) -> Offer<T> {
        if held.start == held.end {
            return Offer::Old(held.item);
        }
        let Some(start) = self.window.nearest(held.start) else {
            return match self.window.put_beyond(held) {
                Some(oldest) => self.refuse(oldest),
                None => Offer::Held,
            };
        };
        let next = start.min(held.start);
        self.heard = self.heard.map(|heard| heard.max(next));
        self.counts.duplicates += self.advance(next);
        self.keep(held)
    }

    #[cold]
    fn pop_at_hole(&mut self, next: u64, now_ns: u64) -> Option<Event<T>> {
        if self.window.first().is_some_and(|held| self.believes(held)) {
            return self.deliver(next);
        }
        if self.heard[0].min(self.heard[1]) > next {
            return self.give_up(next, self.heard[0].min(self.heard[1]), GapCause::BothPassed);
        }
        let waits = self.window.beyond().filter(|held| self.believes(held)).map(|held| held.from).min();
        if let Some(start) = waits {
            return self.give_up(next, start, GapCause::WindowFull);
        }
        let seen_ns = self.window.next_held().filter(|(_, held)| held.in_line).map_or(now_ns, |(_, held)| held.at_ns);
        let since_ns = *self.hole_since_ns.get_or_insert(seen_ns);
        if now_ns.saturating_sub(since_ns) < self.timeout_ns {
            return None;
        }
        self.give_up(next, self.known(), GapCause::TimedOut)
    }

    /// Delivers the item that is held for `next`.
    fn deliver(&mut self, next: u64) -> Option<Event<T>> {
        let held = self.window.take_first()?;
        self.counts.delivered += held.end - next;
        self.counts.duplicates += self.advance(held.end);
        Some(Event::Message { item: held.item, sequence: next, skip: (next - held.start) as u32 })
    }

    /// No better copy of what is missing will come: delivers what is held for it after all, or
    /// declares a gap.
    fn give_up(&mut self, next: u64, upto: u64, cause: GapCause) -> Option<Event<T>> {
        if self.window.first().is_some() {
            return self.deliver(next);
        }
        let upto = self.window.next_held().map_or(upto, |(first, _)| first.min(upto));
        self.recent_gaps[self.counts.gaps as usize % GAPS_KEPT] = (next, upto);
        self.counts.gaps += 1;
        self.counts.lost = self.counts.lost.saturating_add(upto - next);
        self.counts.duplicates += self.advance(upto);
        Some(Event::Gap { first: next, count: upto - next, cause })
    }

    /// Moves the stream on, and what is held with it. Returns how many held messages that made
    /// superfluous.
    #[inline]
    fn advance(&mut self, to: u64) -> u64 {
        self.next = Some(to);
        self.hole_since_ns = None;
        let moved = self.window.advance(to);
        self.counts.dropped_items += moved.items;
        self.counts.refused += moved.displaced;
        moved.messages
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
mod tests;
