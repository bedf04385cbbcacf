//! Notices to threads that run a loop: one word that every reader loads in each turn, and a box of
//! notices for each reader.
//!
//! A reader keeps the [`Word`] up to which it has read. As long as the word is the same, there is
//! nothing for the reader, and that costs one relaxed load of a line that is hardly ever written.
//! The word also carries a phase that only moves forward, so that a loop asks with the same load
//! whether to go on and whether it has notices.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The phase is in the two highest bits of the word; below it is how often something was posted
/// since the phase began.
const PHASE_SHIFT: u32 = 62;
/// The highest phase.
const PHASE_MAX: u8 = 3;

/// What a reader listened at, and compares with what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// Of notices that are new, with nothing in them.
    pub const FIRST: Word = Word(0);

    /// The phase, 0 to 3.
    #[inline]
    pub fn phase(self) -> u8 {
        (self.0 >> PHASE_SHIFT) as u8
    }
}

/// Notices for a fixed number of readers.
///
/// Guarantees: a reader that hears whenever the word isn't the one that it last got from
/// [`Notices::hear`] gets every notice that was posted to it, once, and sees every phase. Posting
/// doesn't wake anybody: ring the reader's [`Waker`](crate::Waker) after it.
#[derive(Debug)]
pub struct Notices<T> {
    word: CachePadded<AtomicU64>,
    boxes: Vec<Mutex<Vec<T>>>,
}

impl<T> Notices<T> {
    /// Notices for `readers`. Each box has room for `room` notices between two reads; more of them
    /// allocate.
    pub fn new(readers: usize, room: usize) -> Notices<T> {
        let boxes = (0..readers).map(|_| Mutex::new(Vec::with_capacity(room))).collect();
        Notices { word: CachePadded::new(AtomicU64::new(Word::FIRST.0)), boxes }
    }

    /// Whether a reader looks is decided by this: it hears if the word isn't the one that it heard
    /// last.
    #[inline]
    pub fn word(&self) -> Word {
        // Relaxed: a reader that sees another word takes the notices by `hear`.
        Word(self.word.load(Ordering::Relaxed))
    }

    /// Moves on to `phase`, if it is a later one (3 at most).
    pub fn advance(&self, phase: u8) {
        // Release: pairs with the Acquire in `hear`, for what was written before the phase was
        // entered.
        self.word.fetch_max(u64::from(phase.min(PHASE_MAX)) << PHASE_SHIFT, Ordering::Release);
    }

    /// Posts notices, each to its reader. All of them are in their boxes before the first reader
    /// can see that there are any.
    ///
    /// # Panics
    /// There is no such reader.
    pub fn post(&self, notices: impl IntoIterator<Item = (usize, T)>) {
        for (reader, notice) in notices {
            self.open(reader).push(notice);
        }
        // Release: pairs with the Acquire in `hear`.
        self.word.fetch_add(1, Ordering::Release);
    }

    /// Puts what was posted to `reader` into `notices`, which should be empty and is left in the
    /// box's place; gives the word that this is up to.
    ///
    /// # Panics
    /// There is no such reader.
    pub fn hear(&self, reader: usize, notices: &mut Vec<T>) -> Word {
        // First the word, then the box: what is posted in between is taken now, and its word is
        // news once more, with nothing behind it. Acquire: pairs with the Release in `post` and
        // `advance`.
        let word = Word(self.word.load(Ordering::Acquire));
        std::mem::swap(&mut *self.open(reader), notices);
        word
    }

    /// [`Notices::hear`] in the wrong order.
    #[cfg(loom)]
    #[doc(hidden)]
    pub fn hear_box_first(&self, reader: usize, notices: &mut Vec<T>) -> Word {
        std::mem::swap(&mut *self.open(reader), notices);
        Word(self.word.load(Ordering::Acquire))
    }

    /// A thread that panicked with the lock held (a push that could not allocate) leaves a whole
    /// vector behind.
    fn open(&self, reader: usize) -> MutexGuard<'_, Vec<T>> {
        self.boxes[reader].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn phases_move_forward_only_and_notices_leave_them_alone() {
        let notices = Notices::new(1, 4);
        assert_eq!((notices.word(), notices.word().phase()), (Word::FIRST, 0));
        notices.advance(1);
        notices.post([(0, 'a')]);
        assert_eq!(notices.word().phase(), 1);
        notices.advance(2);
        notices.advance(1);
        notices.post([(0, 'b')]);
        assert_eq!(notices.word().phase(), 2);
        notices.advance(200);
        assert_eq!(notices.word().phase(), 3);
    }

    #[test]
    fn a_notice_is_news_until_its_reader_has_heard_it() {
        let notices = Notices::new(2, 4);
        notices.post([(1, 'a'), (1, 'b')]);
        let mut heard = Vec::new();
        assert_eq!((notices.hear(0, &mut heard), heard.len()), (notices.word(), 0), "they are for the other one");
        assert_ne!(notices.word(), Word::FIRST);
        assert_eq!(notices.hear(1, &mut heard), notices.word());
        assert_eq!(heard, ['a', 'b']);
    }
}
