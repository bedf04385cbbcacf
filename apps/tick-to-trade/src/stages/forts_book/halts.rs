//! The halted instruments that have no book.

/// More instruments than the market lists.
const ABSENT_MAX: usize = 1 << 16;

/// The halted instruments that have no book: a book of theirs must be known as halted from its
/// first entry. Their places are not those of books, since most of them never have one.
pub(super) struct Halts {
    /// In order.
    absent: Vec<u64>,
    /// Some found no place: each new book counts as halted until its instrument has a status.
    is_full: bool,
    /// Books that were looked up here.
    pub(super) met: usize,
}

impl Halts {
    /// Memory that [`Halts::new`] allocates, in bytes.
    pub(super) const MEMORY_BYTES: u64 = (ABSENT_MAX * size_of::<u64>()) as u64;

    pub(super) fn new() -> Halts {
        Halts { absent: Vec::with_capacity(ABSENT_MAX), is_full: false, met: 0 }
    }

    /// Takes the status of an instrument without a book.
    pub(super) fn put(&mut self, security_id: u64, is_halted: bool) {
        match (self.absent.binary_search(&security_id), is_halted) {
            (Ok(at), false) => _ = self.absent.remove(at),
            (Err(at), true) if self.absent.len() < ABSENT_MAX => self.absent.insert(at, security_id),
            (Err(_), true) => self.fill(),
            (Ok(_), true) | (Err(_), false) => {}
        }
    }

    fn fill(&mut self) {
        if !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!("over {ABSENT_MAX} instruments are halted: a new one is not traded without a status");
        }
    }

    /// Whether the instrument of a new book is halted.
    pub(super) fn take(&mut self, security_id: u64) -> bool {
        let found = self.absent.binary_search(&security_id).map(|at| self.absent.remove(at));
        found.is_ok() || self.is_full
    }
}
