//! What an lcore does for its stores in one turn.

/// Bytes that stores are asked for in one turn of the lcore, by all commands together: a store in
/// memory moves them there and then.
const TURN_BYTES: u64 = 256 << 10;
/// What a request counts as that moves nothing, or less.
const LEAST_BYTES: u64 = 4 << 10;
/// Requests that are asked in a turn, at most.
pub(crate) const TURN_REQUESTS: usize = (TURN_BYTES / LEAST_BYTES) as usize;

/// What is left of a turn, bytes.
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

    /// Takes the `bytes` of a request from what is left.
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes.max(LEAST_BYTES));
    }
}
