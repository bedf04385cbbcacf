//! Receive credit: the receiver starts a sender again that ran out of it.
//!
//! The receiver publishes its count of posted receives; the sender reads that count only when its
//! last value is used up. A sender without credit sets [`WAITING`] and looks once more; the
//! receiver looks for it after each publish.
//!
//! Guarantees: of a sender that ran out and a receiver that posts, at least one sees the other, so
//! no message stays pending beside a posted receive. The receiver pays no fence for it: the
//! sender's heavy fence pays for both, on a path that is slow anyway. The same pair of fences
//! orders a move to the error state against a concurrent post: [`FLUSHING`] is set, then the count
//! is read; the poster publishes, then reads the word.

use crate::primitives::{AtomicU32, AtomicU64, Ordering};
use verbline_ring::fence;

/// A sender has messages pending for this receive queue.
pub const WAITING: u32 = 1;
/// The queue pair is in the error state: a thread that posts flushes.
pub const FLUSHING: u32 = 2;

/// The receiver's side: its own cache line, written at each post and read by the sender once in a
/// queue's length.
#[derive(Debug, Default)]
pub struct Posted(AtomicU64);

/// Conditions that a receiver must look at after posting. On a line that is hardly ever written.
#[derive(Debug, Default)]
pub struct Attention(AtomicU32);

impl Posted {
    /// A count of zero receives.
    pub fn new() -> Self {
        Posted(AtomicU64::new(0))
    }

    /// Receiver: receives up to `posted` are posted. Returns the flags to attend to, or 0.
    #[inline(always)]
    pub fn publish(&self, posted: u64, attention: &Attention) -> u32 {
        // Release pairs with the Acquire in `read`: the work requests are written before they are
        // counted.
        self.0.store(posted, Ordering::Release);
        // Pairs with the heavy fence in `Attention::raise`: it reads this count, or we read its
        // flag.
        fence::light();
        // Acquire pairs with the Release in `raise` and `lower`: earlier writes of the raising
        // thread are seen.
        attention.0.load(Ordering::Acquire)
    }

    /// Sender: the count.
    #[inline(always)]
    pub fn read(&self) -> u64 {
        // Acquire pairs with the Release in `publish`.
        self.0.load(Ordering::Acquire)
    }

    /// Control path, with no other thread there.
    pub fn reset(&self, posted: u64) {
        // Relaxed: ordered by the quiescence that the caller waited for.
        self.0.store(posted, Ordering::Relaxed);
    }
}

impl Attention {
    /// No flag set.
    pub fn new() -> Self {
        Attention(AtomicU32::new(0))
    }

    /// Sets `flag`. Returns true if it was not set before: then call [`settle`](Self::settle) and
    /// look at the count again.
    pub fn raise(&self, flag: u32) -> bool {
        // Release pairs with the Acquire in `publish`; Acquire with other raisers.
        self.0.fetch_or(flag, Ordering::AcqRel) & flag == 0
    }

    /// Called after `raise`: from here on, either the count that we read is fresh, or the receiver
    /// sees the flag.
    pub fn settle() {
        // Pairs with the light fence in `Posted::publish`.
        fence::heavy();
    }

    /// Clears `flag`.
    pub fn lower(&self, flag: u32) {
        // Release: earlier writes under the flag are seen.
        self.0.fetch_and(!flag, Ordering::AcqRel);
    }

    /// The flags.
    pub fn read(&self) -> u32 {
        // Acquire pairs with the Release in `raise`.
        self.0.load(Ordering::Acquire)
    }
}
