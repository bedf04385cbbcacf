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
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        let Tally { opened, closed, failed, unanswered, rejected, received, lost, echoed, dropped } = other;
        (self.opened, self.closed, self.failed) = (self.opened + opened, self.closed + closed, self.failed + failed);
        (self.unanswered, self.rejected) = (self.unanswered + unanswered, self.rejected + rejected);
        (self.received, self.lost) = (self.received + received, self.lost + lost);
        (self.echoed, self.dropped) = (self.echoed + echoed, self.dropped + dropped);
    }
}
