//! The state of each book: the sequence number from which it takes the stream's messages, and the
//! updates that the strategy still waits for.

/// The book is or may be wrong: it takes nothing until it is rebuilt.
const STALE: u64 = u64::MAX;

#[derive(Clone, Copy, Default)]
struct Book {
    /// The first message that it takes; [`STALE`] for none.
    from: u64,
    /// Stale, and without any order.
    is_empty: bool,
    /// When it may be rebuilt again, after a recent doubt.
    rests_until_ns: u64,
    waits: Waits,
}

/// The update of a book that waits for the strategy.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waits {
    /// Nothing.
    #[default]
    Nothing,
    /// Its best levels changed.
    Change,
    /// They changed while the book was behind, or it was rebuilt: conclusions from earlier updates
    /// are void.
    Recovery,
}

/// The states of all books, by their indices.
pub(super) struct Standing {
    books: Box<[Book]>,
    /// Books with a waiting update, each once.
    waiting: Vec<u16>,
    stale: usize,
    /// The greatest `from` of a book that is not stale.
    ahead_to: u64,
    /// The book picked last.
    picked: u16,
}

impl Standing {
    pub(super) fn memory_bytes(books: u16) -> u64 {
        u64::from(books) * (size_of::<Book>() + size_of::<u16>()) as u64
    }

    pub(super) fn new(books: u16) -> Standing {
        Standing {
            books: vec![Book::default(); usize::from(books)].into_boxed_slice(),
            waiting: Vec::with_capacity(usize::from(books)),
            stale: 0,
            ahead_to: 0,
            picked: 0,
        }
    }

    /// Restores the initial state.
    pub(super) fn clear(&mut self) {
        self.books.fill(Book::default());
        self.waiting.clear();
        (self.stale, self.ahead_to, self.picked) = (0, 0, 0);
    }

    fn book(&mut self, book: u16) -> &mut Book {
        &mut self.books[usize::from(book)]
    }

    /// Whether a book takes the message with this number.
    #[inline]
    pub(super) fn takes(&self, book: u16, sequence: u64) -> bool {
        self.books[usize::from(book)].from <= sequence
    }

    pub(super) fn is_stale(&self, book: u16) -> bool {
        self.books[usize::from(book)].from == STALE
    }

    /// Whether a book is stale and still has orders to remove.
    pub(super) fn is_to_be_emptied(&self, book: u16) -> bool {
        let book = &self.books[usize::from(book)];
        book.from == STALE && !book.is_empty
    }

    pub(super) fn stale(&self) -> usize {
        self.stale
    }

    /// Whether every book takes the message with this number.
    pub(super) fn all_take(&self, sequence: u64) -> bool {
        self.stale == 0 && self.ahead_to <= sequence
    }

    /// The end of the stream that the latest snapshot implies.
    pub(super) fn ahead_to(&self) -> u64 {
        self.ahead_to
    }

    /// Whether some stale book still has orders.
    pub(super) fn some_to_be_emptied(&self) -> bool {
        self.stale > 0 && self.books.iter().any(|book| book.from == STALE && !book.is_empty)
    }

    /// Makes the book stale: it takes nothing from here on.
    pub(super) fn spoil(&mut self, book: u16, is_empty: bool) {
        let place = self.book(book);
        let was_stale = place.from == STALE;
        (place.from, place.is_empty) = (STALE, is_empty);
        self.stale += usize::from(!was_stale);
    }

    /// Moves the stream to `to`: all of the first `known` books become stale, except those with a
    /// later snapshot.
    pub(super) fn spoil_before(&mut self, to: u64, known: usize) {
        for place in self.books[..known].iter_mut().filter(|place| place.from < to) {
            self.stale += usize::from(place.from != STALE);
            (place.from, place.is_empty) = (STALE, false);
        }
    }

    /// Notes whether a stale book has no orders.
    pub(super) fn set_empty(&mut self, book: u16, is_empty: bool) {
        self.book(book).is_empty = is_empty;
    }

    /// Notes that a stale book was rebuilt, and takes messages from this number on.
    pub(super) fn rebuild(&mut self, book: u16, from: u64, rests_until_ns: u64) {
        self.stale -= usize::from(self.is_stale(book));
        let place = self.book(book);
        (place.from, place.rests_until_ns) = (from, rests_until_ns);
        self.ahead_to = self.ahead_to.max(from);
        self.wait(book, Waits::Recovery);
    }

    /// The next stale book to rebuild, in turn.
    pub(super) fn pick(&mut self, now_ns: u64) -> Option<u16> {
        if self.stale == 0 {
            return None;
        }
        let may = |book: &u16| {
            let place = &self.books[usize::from(*book)];
            place.from == STALE && place.is_empty && now_ns >= place.rests_until_ns
        };
        let last = self.books.len() as u16;
        let found = (self.picked + 1..last).chain(0..(self.picked + 1).min(last)).find(may)?;
        self.picked = found;
        Some(found)
    }

    /// Notes an update of a book for the strategy.
    pub(super) fn wait(&mut self, book: u16, what: Waits) {
        let place = &mut self.books[usize::from(book)];
        if place.waits == Waits::Nothing {
            self.waiting.push(book);
        }
        place.waits = place.waits.max(what);
    }

    /// Takes a waiting update of a book that is right up to `next`. Updates of stale books are
    /// dropped: a rebuilt book gets a new one.
    pub(super) fn take_waiting(&mut self, next: u64) -> Option<(u16, Waits)> {
        let mut at = 0;
        while let Some(&book) = self.waiting.get(at) {
            let place = &mut self.books[usize::from(book)];
            if place.from > next && place.from != STALE {
                at += 1;
                continue;
            }
            self.waiting.swap_remove(at);
            let what = std::mem::take(&mut place.waits);
            if place.from != STALE {
                return Some((book, what));
            }
        }
        None
    }
}
