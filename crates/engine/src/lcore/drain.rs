//! How an lcore drains.

use std::time::Duration;

/// See the top of this file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    pub(crate) budget_ns: u64,
    /// The device of its ports reaches other processes. Their messages may come at any time, also
    /// after the last turn: a feed does not end with this run.
    pub(crate) hears_others: bool,
}

impl Drain {
    pub(crate) fn new(budget: Duration, hears_others: bool) -> Drain {
        Drain { budget_ns: u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX), hears_others }
    }
}
