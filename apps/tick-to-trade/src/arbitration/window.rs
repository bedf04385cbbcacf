//! The items that the arbiter holds: items ahead of the stream, each in the slot of its first
//! message that still counts, and a few beyond the window.

/// One of the redundant channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The first.
    A = 0,
    /// The second.
    B = 1,
}

/// Items held beyond the window, in addition to those in it.
pub const BEYOND_ITEMS: usize = 8;

/// A held item.
#[derive(Debug)]
pub(super) struct Held<T> {
    /// Its first sequence number.
    pub(super) start: u64,
    /// The first number that counts; earlier ones were delivered, given up, or are held in a better
    /// item.
    pub(super) from: u64,
    /// One past its last.
    pub(super) end: u64,
    pub(super) at_ns: u64,
    pub(super) channel: Channel,
    /// The item started within its channel's known range.
    pub(super) in_line: bool,
    pub(super) item: T,
}

/// The window, starting at the next sequence number, and the items beyond it.
pub(super) struct Window<T> {
    /// An item lives in the slot of `from`, modulo the length.
    slots: Box<[Option<Held<T>>]>,
    /// Items in `slots`.
    held: usize,
    /// In the order of arrival; the capacity is fixed.
    beyond: Vec<Held<T>>,
    /// The stream position at which an item of `beyond` comes into reach.
    beyond_at: u64,
    next: u64,
}

/// The result of putting an item.
pub(super) struct Put<T> {
    /// An item, the new or a held one, all of whose messages are held elsewhere.
    pub(super) superfluous: Option<T>,
    /// The oldest item beyond the window, which had to make room.
    pub(super) displaced: Option<Held<T>>,
    /// Messages held twice.
    pub(super) duplicates: u64,
}

/// The items and messages that a move of the stream made superfluous.
#[derive(Default)]
pub(super) struct Moved {
    pub(super) items: u64,
    pub(super) messages: u64,
    /// Messages that were held nowhere else and found no room.
    pub(super) displaced: u64,
}

impl<T> Window<T> {
    pub(super) fn new(window: u32, next: u64) -> Self {
        let len = window.clamp(2, 1 << 24).next_power_of_two() as usize;
        Self {
            slots: (0..len).map(|_| None).collect(),
            held: 0,
            beyond: Vec::with_capacity(BEYOND_ITEMS + 1),
            beyond_at: u64::MAX,
            next,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.held + self.beyond.len()
    }

    /// The item held for the next sequence number.
    pub(super) fn first(&self) -> Option<&Held<T>> {
        self.slots[self.slot(self.next)].as_ref()
    }

    pub(super) fn take_first(&mut self) -> Option<Held<T>> {
        let slot = self.slot(self.next);
        let held = self.slots[slot].take()?;
        self.held -= 1;
        Some(held)
    }

    /// The first item in the window, and the sequence number that it is held for.
    pub(super) fn next_held(&self) -> Option<(u64, &Held<T>)> {
        if self.held == 0 {
            return None;
        }
        let mut within = self.next..self.next.saturating_add(self.slots.len() as u64);
        within.find_map(|at| Some((at, self.slots[self.slot(at)].as_ref()?)))
    }

    /// Items beyond the window.
    pub(super) fn beyond(&self) -> impl Iterator<Item = &Held<T>> {
        self.beyond.iter()
    }

    /// The lowest start of the items beyond the window that are less than a window's length from
    /// `start`.
    pub(super) fn nearest(&self, start: u64) -> Option<u64> {
        let near = |held: &&Held<T>| held.start.abs_diff(start) < self.slots.len() as u64;
        self.beyond.iter().filter(near).map(|held| held.start).min()
    }

    /// Puts an item into its slot. If two items want the same slot, the one in line goes first, or
    /// else the longer; the other one's further messages go behind it.
    pub(super) fn put(&mut self, mut held: Held<T>) -> Put<T> {
        let mut duplicates = 0;
        loop {
            if !self.reaches(held.from) {
                return Put { superfluous: None, displaced: self.put_beyond(held), duplicates };
            }
            let slot = self.slot(held.from);
            let Some(there) = &mut self.slots[slot] else {
                self.slots[slot] = Some(held);
                self.held += 1;
                return Put { superfluous: None, displaced: None, duplicates };
            };
            if (there.in_line, there.end) < (held.in_line, held.end) {
                std::mem::swap(there, &mut held);
            }
            duplicates += there.end.min(held.end) - held.from;
            if held.end <= there.end {
                return Put { superfluous: Some(held.item), displaced: None, duplicates };
            }
            held.from = there.end;
        }
    }

    /// Moves the window to `to`. An item that starts before `to` moves to its new slot, or is
    /// dropped if it ends there or before.
    #[inline]
    pub(super) fn advance(&mut self, to: u64) -> Moved {
        if self.held > 0 || to >= self.beyond_at {
            return self.carry_over(to);
        }
        self.next = to;
        Moved::default()
    }

    #[cold]
    fn carry_over(&mut self, to: u64) -> Moved {
        let mut moved = Moved::default();
        // While `next` is still `from`, each slot stands for one number only.
        let from = self.next;
        for at in from..to.min(from.saturating_add(self.slots.len() as u64)) {
            let slot = self.slot(at);
            if let Some(held) = self.slots[slot].take() {
                self.held -= 1;
                self.move_up(held, to, &mut moved);
            }
        }
        self.next = to;
        if to >= self.beyond_at {
            self.beyond_at = u64::MAX;
            for _ in 0..self.beyond.len() {
                let held = self.beyond.remove(0);
                self.move_up(held, to, &mut moved);
            }
        }
        moved
    }

    fn move_up(&mut self, mut held: Held<T>, to: u64, moved: &mut Moved) {
        if held.from < to {
            moved.messages += held.end.min(to) - held.from;
            held.from = to;
        }
        if held.end <= to {
            moved.items += 1;
            return;
        }
        let put = self.put(held);
        moved.messages += put.duplicates;
        moved.items += u64::from(put.superfluous.is_some());
        if let Some(displaced) = put.displaced {
            moved.items += 1;
            moved.displaced += displaced.end - displaced.from;
        }
    }

    /// Keeps an item beyond the window. Returns the oldest if there are too many.
    pub(super) fn put_beyond(&mut self, held: Held<T>) -> Option<Held<T>> {
        self.beyond_at = self.beyond_at.min(held.from.saturating_sub(self.slots.len() as u64 - 1));
        self.beyond.push(held);
        // `beyond_at` may be too early from now on, which costs a look.
        (self.beyond.len() > BEYOND_ITEMS).then(|| self.beyond.remove(0))
    }

    /// Drops all held items; the window restarts at `next`.
    pub(super) fn clear(&mut self, next: u64) -> Moved {
        let mut moved = Moved::default();
        for held in self.slots.iter_mut().filter_map(Option::take).chain(self.beyond.drain(..)) {
            moved.items += 1;
            moved.displaced += held.end - held.from;
        }
        (self.held, self.beyond_at, self.next) = (0, u64::MAX, next);
        moved
    }

    fn reaches(&self, at: u64) -> bool {
        at - self.next < self.slots.len() as u64
    }

    #[inline]
    fn slot(&self, at: u64) -> usize {
        at as usize & (self.slots.len() - 1)
    }
}
