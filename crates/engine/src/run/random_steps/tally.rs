//! What happened in some runs.

/// What happened, in all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) opened: u64,
    pub(super) closed: u64,
    pub(super) failed: u64,
    pub(super) unanswered: u64,
    pub(super) rejected: u64,
    pub(super) received: u64,
    /// Messages of peers of which no stage has ever heard.
    pub(super) lost: u64,
    pub(super) echoed: u64,
    pub(super) dropped: u64,
    /// Operations that were carried out, those that were not, and those that were not accepted.
    pub(super) operated: u64,
    pub(super) failed_operations: u64,
    pub(super) declined: u64,
    /// Runs that ended with everything under way.
    pub(super) abrupt: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        let Tally { opened, closed, failed, unanswered, rejected, received, lost, echoed, dropped, .. } = other;
        (self.opened, self.closed, self.failed) = (self.opened + opened, self.closed + closed, self.failed + failed);
        (self.unanswered, self.rejected) = (self.unanswered + unanswered, self.rejected + rejected);
        (self.received, self.lost) = (self.received + received, self.lost + lost);
        (self.echoed, self.dropped) = (self.echoed + echoed, self.dropped + dropped);
        self.operated += other.operated;
        self.failed_operations += other.failed_operations;
        (self.declined, self.abrupt) = (self.declined + other.declined, self.abrupt + other.abrupt);
    }
}
