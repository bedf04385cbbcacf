//! An lcore's budget for its stores in one turn.

/// Bytes requested from stores in one turn of the lcore, by all commands together: a store in
/// memory moves them at once.
const TURN_BYTES: u64 = 256 << 10;
/// The bytes that a request counts as if it moves fewer, or none.
const LEAST_BYTES: u64 = 4 << 10;
/// The most requests in a turn.
pub(crate) const TURN_REQUESTS: usize = (TURN_BYTES / LEAST_BYTES) as usize;

/// The bytes left of a turn.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    turn: u64,
    pub(crate) left: u64,
}

impl Budget {
    pub(crate) fn renew(&mut self, turn: u64) {
        if self.turn != turn {
            *self = Budget { turn, left: TURN_BYTES };
        }
    }

    /// Subtracts the `bytes` of a request.
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes.max(LEAST_BYTES));
    }
}
