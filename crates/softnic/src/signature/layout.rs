//! The layout of an indirect key: a list of parts, passed once or, with gaps, several times.
//!
//! Guarantees: a [`Cursor`] returns each byte of a range once, in order, in as few pieces as
//! possible.

use crate::signature::configuration::LayoutPart;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Layout {
    /// Never more than its initial capacity.
    entries: Vec<LayoutPart>,
    repeat: u32,
    /// Bytes of one round.
    round_bytes: u64,
}

/// A piece of memory, by its region's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    pub(crate) lkey: u32,
}

/// A position in a layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    round: u64,
    entry: usize,
    /// Bytes of that entry before the position.
    within: u64,
}

impl Layout {
    pub(crate) fn with_capacity(entries: usize) -> Layout {
        Layout { entries: Vec::with_capacity(entries), repeat: 0, round_bytes: 0 }
    }

    /// Replaces the layout. No more entries than it has room for.
    pub(crate) fn set(&mut self, repeat: u32, entries: impl Iterator<Item = LayoutPart>) {
        let room = self.entries.capacity();
        self.entries.clear();
        self.entries.extend(entries.take(room));
        self.repeat = repeat;
        self.round_bytes = self.entries.iter().map(|entry| u64::from(entry.bytes)).sum();
    }

    /// Replaces it by a copy of another, which has no more entries than this has room for.
    pub(crate) fn copy_from(&mut self, other: &Layout) {
        self.entries.clone_from(&other.entries);
        (self.repeat, self.round_bytes) = (other.repeat, other.round_bytes);
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        // Below 2^16 entries of less than 2^32 bytes each, and 2^32 rounds: the product may exceed
        // 64 bits, and then other things limit ranges.
        self.round_bytes.saturating_mul(u64::from(self.repeat))
    }

    /// A cursor at that byte, which is inside or at the end.
    pub(crate) fn at(&self, offset: u64) -> Cursor {
        let (round, mut within) = match self.round_bytes {
            0 => (0, 0),
            round_bytes => (offset / round_bytes, offset % round_bytes),
        };
        let mut entry = 0;
        while let Some(here) = self.entries.get(entry)
            && within >= u64::from(here.bytes)
        {
            within -= u64::from(here.bytes);
            entry += 1;
        }
        Cursor { round, entry, within }
    }

    /// The next piece, of at most `most` bytes; `None` at the end, or behind the last address.
    pub(crate) fn next(&self, cursor: &mut Cursor, most: u64) -> Option<Piece> {
        loop {
            if cursor.round >= u64::from(self.repeat) || self.round_bytes == 0 {
                return None;
            }
            let Some(entry) = self.entries.get(cursor.entry) else {
                (cursor.round, cursor.entry, cursor.within) = (cursor.round + 1, 0, 0);
                continue;
            };
            let left = u64::from(entry.bytes) - cursor.within;
            if left == 0 {
                (cursor.entry, cursor.within) = (cursor.entry + 1, 0);
                continue;
            }
            let bytes = left.min(most);
            let stride = u64::from(entry.bytes) + u64::from(entry.skip);
            // Behind the last address there is no memory: rounds that would reach there must not
            // wrap to the front of the address space, where the layout has nothing.
            let addr = stride.checked_mul(cursor.round)?.checked_add(cursor.within)?.checked_add(entry.addr)?;
            cursor.within += bytes;
            return Some(Piece { addr, bytes, lkey: entry.lkey });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(repeat: u32, parts: &[(u64, u32, u32)]) -> Layout {
        let mut layout = Layout::with_capacity(parts.len());
        let entries = parts.iter().map(|&(addr, bytes, skip)| LayoutPart { addr, bytes, skip, lkey: 7, reserved: 0 });
        layout.set(repeat, entries);
        layout
    }

    proptest! {
        #[test]
        fn a_range_has_each_of_its_bytes_once(
            parts in prop::collection::vec((0u32..20, 0u32..5), 1..5),
            repeat in 0u32..5,
            range in any::<[prop::sample::Index; 2]>(),
            most in 1u64..30,
        ) {
            let parts: Vec<_> =
                parts.iter().enumerate().map(|(at, &(bytes, skip))| (1000 * at as u64, bytes, skip)).collect();
            let layout = layout(repeat, &parts);
            let mut all = Vec::new();
            for round in 0..u64::from(repeat) {
                for &(addr, bytes, skip) in &parts {
                    let start = addr + round * u64::from(bytes + skip);
                    all.extend(start..start + u64::from(bytes));
                }
            }
            prop_assert_eq!(layout.bytes(), all.len() as u64);
            let [from, to] = range.map(|index| index.index(all.len() + 1));
            let (from, to) = (from.min(to), from.max(to));
            let (mut cursor, mut got, mut left) = (layout.at(from as u64), Vec::new(), (to - from) as u64);
            while left > 0 {
                let piece = layout.next(&mut cursor, most.min(left)).expect("inside");
                got.extend(piece.addr..piece.addr + piece.bytes);
                left -= piece.bytes;
            }
            prop_assert_eq!(got, &all[from..to]);
        }
    }
}
