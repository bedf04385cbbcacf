//! Merges two redundant channels into one stream: each sequence number is delivered once and in
//! order, or reported in a gap.
//!
//! The item is the caller's (a packet, an index, bytes). The arbiter holds it only while an earlier
//! one is missing, in a window allocated up front. An item may stand for several consecutive
//! sequence numbers, as a MoldUDP64 packet does.
//!
//! **Trust.** An item is *in line* if it starts no later than the known end of its channel; such an
//! item is taken at once. An item that jumps ahead of its own channel is a claim: the channel lost
//! something, or the sequence number is corrupt or forged. A claim is held and moves nothing. It is
//! believed as far as a second item confirms it: the next one of the same channel, or the last one
//! of the other. Of two claims the lesser counts. So one false claim never moves the stream,
//! however far ahead it is, and a true item replaces a false one in its slot.
//!
//! **Gaps.** A hole is declared a gap when both channels are known to have passed it, when it has
//! been known for the time-out, or when a believed item finds no room in the window. Messages that
//! arrive for it afterwards are late: counted and handed back, never delivered out of order.
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
    /// Sequence numbers beyond a hole that may be held; rounded up to a power of two.
    pub window: u32,
    /// How long to wait for a hole that only one channel has passed, in nanoseconds.
    pub timeout_ns: u64,
    /// The first sequence number expected; `None` takes it from the first two items that are near
    /// each other.
    pub first: Option<u64>,
    /// An item this far ahead of the stream is refused, even if confirmed: after such an outage the
    /// stream has to be resumed.
    pub jump_max: u64,
}

impl Default for ArbiterSpec {
    fn default() -> Self {
        Self { window: 1024, timeout_ns: 1_000_000, first: None, jump_max: 1 << 32 }
    }
}

/// The result of offering an item.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Offer<T> {
    /// The item is next: take it now. Its first `skip` messages were delivered or given up before.
    Ready {
        /// The item.
        item: T,
        /// Messages to skip at its start.
        skip: u32,
    },
    /// The item is ahead of a hole, or of its own channel, and is held.
    Held,
    /// All messages of an item were delivered, given up, or are held in another item. This is the
    /// offered item, or the held one that it replaced.
    Old(T),
    /// The item is further ahead than `jump_max`, or its numbers exceed 64 bits; or this is the
    /// oldest of too many items beyond the window.
    Refused(T),
}

/// The next event of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// A held item whose turn has come.
    Message {
        /// The item.
        item: T,
        /// The sequence number of its first message that is not skipped.
        sequence: u64,
        /// Messages to skip at its start.
        skip: u32,
    },
    /// These sequence numbers will not come.
    Gap {
        /// The first one.
        first: u64,
        /// Their number.
        count: u64,
        /// Why the arbiter gave them up.
        cause: GapCause,
    },
}

/// Why the arbiter gave up a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapCause {
    /// Both channels have passed it.
    BothPassed,
    /// One channel has passed it, and the time-out has expired.
    TimedOut,
    /// The window was full.
    WindowFull,
}

/// Totals since construction, in messages unless noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArbiterCounts {
    /// Received on A and on B.
    pub received: [u64; 2],
    /// Handed to the caller.
    pub delivered: u64,
    /// Received again after delivery or while held.
    pub duplicates: u64,
    /// Received after the arbiter gave them up.
    pub late: u64,
    /// Refused.
    pub refused: u64,
    /// Given up.
    pub lost: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// Held *items* that the arbiter dropped, as all their messages came in other items.
    pub dropped_items: u64,
}

/// Gaps remembered to tell late messages from duplicates; messages of older gaps count as
/// duplicates.
const GAPS_KEPT: usize = 16;

/// The merger. See the [module](self).
pub struct Arbiter<T> {
    /// The next sequence number to deliver; `None` before the stream is known.
    next: Option<u64>,
    window: Window<T>,
    /// One past the highest sequence number known to be sent on each channel.
    heard: [u64; 2],
    /// One past the last sequence number of each channel's last item. May be false.
    said: [u64; 2],
    /// When the hole at `next` became known; `None` before a `pop` has seen it.
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

    /// Takes an item with the messages `sequence .. sequence + count`. An item without messages
    /// only counts as a [`Arbiter::heartbeat`] and comes back as old.
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

    /// Takes a channel's announcement that its next message is `sequence`.
    pub fn heartbeat(&mut self, channel: Channel, sequence: u64) {
        let next = self.next.unwrap_or(sequence);
        if sequence.saturating_sub(next) < self.jump_max {
            self.hear(channel, sequence, sequence);
        }
    }

    /// The next event in order, if one is due.
    #[inline]
    #[must_use = "it is told once"]
    pub fn pop(&mut self, now_ns: u64) -> Option<Event<T>> {
        let next = self.next?;
        if self.known() <= next {
            return None;
        }
        self.pop_at_hole(next, now_ns)
    }

    /// When the hole at the front of the stream times out; `None` while no `pop` has seen one.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.hole_since_ns.map(|since| since.saturating_add(self.timeout_ns))
    }

    /// Notes the range that a channel sent, and returns whether it starts within the channel's
    /// known range.
    ///
    /// At most one of two items in a row is false, so the lesser of their ends is true, or below
    /// the truth.
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

    /// One past the highest sequence number known to be sent on any channel.
    #[inline]
    fn known(&self) -> u64 {
        self.heard[0].max(self.heard[1]).max(self.both_say())
    }

    /// The lesser of the two channels' last ends: at most one of them is false.
    #[inline]
    fn both_say(&self) -> u64 {
        self.said[0].min(self.said[1])
    }

    /// Whether an item may be delivered in its turn: it is in line, or confirmed. A better copy may
    /// still come.
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

    /// Holds items until one is near another, which starts the stream.
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

    /// Delivers the item held for `next`.
    fn deliver(&mut self, next: u64) -> Option<Event<T>> {
        let held = self.window.take_first()?;
        self.counts.delivered += held.end - next;
        self.counts.duplicates += self.advance(held.end);
        Some(Event::Message { item: held.item, sequence: next, skip: (next - held.start) as u32 })
    }

    /// Stops waiting for a better copy: delivers the item held for `next`, or declares a gap.
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

    /// Moves the stream and the window on. Returns how many held messages became superfluous.
    #[inline]
    fn advance(&mut self, to: u64) -> u64 {
        self.next = Some(to);
        self.hole_since_ns = None;
        let moved = self.window.advance(to);
        self.counts.dropped_items += moved.items;
        self.counts.refused += moved.displaced;
        moved.messages
    }

    /// Counts messages before `next` that came again: late ones if they were given up, else
    /// duplicates.
    fn count_old(&mut self, start: u64, end: u64) {
        let late: u64 =
            self.recent_gaps.iter().map(|&(first, upto)| upto.min(end).saturating_sub(first.max(start))).sum();
        self.counts.late += late;
        self.counts.duplicates += (end - start) - late;
    }
}

#[cfg(test)]
mod tests;
