//! What the requester does about what is acknowledged, missing or overdue.

use crate::transport::configuration::rnr_timer_ns;
use crate::transport::counters::Discard;
use crate::transport::repair::Repair;
use crate::transport::requester::Requester;
use crate::transport::send_queue::SendQueue;
use crate::work::Status;

/// Why a packet of the peer's is not simply taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// It is discarded.
    Discard(Discard),
    /// The work request at the front fails, and the queue pair with it.
    Fail(Status),
}

/// Verbs' `rnr_retry` that stands for ever.
const FOR_EVER: u8 = 7;

impl Requester {
    /// The peer has all packets before `through`. False if it has answered a READ or an atomic of
    /// these, and the answer got lost: everything before that is completed.
    pub(crate) fn acknowledge(&mut self, sends: &mut SendQueue, through: u64) -> bool {
        let mut is_reached = true;
        while self.una < through {
            let Some(entry) = sends.entry(sends.front()) else { break };
            if entry.is_read() {
                is_reached = false;
                break;
            }
            let end = entry.end();
            self.una = end.min(through);
            if self.una == end {
                sends.complete(Status::Success);
            }
        }
        self.keep_up(sends);
        is_reached
    }

    /// `una` has moved: what was acknowledged needs no sending any more.
    pub(crate) fn keep_up(&mut self, sends: &SendQueue) {
        if self.cursor <= self.una {
            self.go_back(sends);
        }
    }

    /// If more is acknowledged than `before`, there is hope again.
    pub(crate) fn note_progress(&mut self, now_ns: u64, before: u64) {
        if self.una > before {
            self.retries_left = self.retries.retry_count;
            self.rnr_left = self.retries.rnr_retry;
            self.repaired = None;
            self.window.grow(self.una - before);
            self.restart_timer(now_ns);
        }
    }

    /// Everything that is not acknowledged is sent again.
    pub(crate) fn go_back(&mut self, sends: &SendQueue) {
        self.cursor = self.una;
        self.cursor_index = sends.front();
        self.reads_out = 0;
        self.asking.go_back(self.una);
    }

    /// The packet at the front is missing at the peer, or its answer here: everything from there on
    /// is sent again, at the cost of a retry. Once is enough: who says so again may say it of what
    /// was sent before.
    pub(crate) fn repair(&mut self, sends: &SendQueue) -> Result<(), Stop> {
        if self.repaired.is_some_and(|repair| repair.is_from(self.una)) {
            return Ok(());
        }
        self.window.shrink();
        let room_to = self.una + u64::from(self.window.packets());
        self.repaired = Some(Repair::new(self.una, self.cursor.min(room_to)));
        self.use_up_retry()?;
        self.go_back(sends);
        Ok(())
    }

    /// The peer asks for the packet at the front. If it asks again once that was repeated, it may
    /// be for the repetition: that is believed once, and after that the time-out will tell.
    pub(crate) fn repair_asked(&mut self, sends: &SendQueue) -> Result<(), Stop> {
        match self.repaired.as_mut().filter(|repair| repair.is_from(self.una)) {
            // Nothing was repeated yet: it is the same asking, come twice.
            Some(_) if self.cursor == self.una => Ok(()),
            Some(repair) => {
                repair.ask_again();
                self.repair_again(sends);
                Ok(())
            }
            None => self.repair(sends),
        }
    }

    /// Begins a repetition that was asked for again, when it is time.
    pub(crate) fn repair_again(&mut self, sends: &SendQueue) {
        let cursor = self.cursor;
        if self.repaired.as_mut().is_some_and(|repair| repair.begins_again(cursor)) {
            self.window.shrink();
            self.go_back(sends);
        }
    }

    fn use_up_retry(&mut self) -> Result<(), Stop> {
        self.retries_left = self.retries_left.checked_sub(1).ok_or(Stop::Fail(Status::RetryExceeded))?;
        Ok(())
    }

    /// The peer has no receive for the packet at the front.
    pub(crate) fn wait_for_receive(&mut self, now_ns: u64, sends: &SendQueue, timer: u8) -> Result<(), Stop> {
        // Says it of a packet that was on its way when it first did.
        if self.rnr_until_ns.is_some() {
            return Ok(());
        }
        if self.retries.rnr_retry < FOR_EVER {
            self.rnr_left = self.rnr_left.checked_sub(1).ok_or(Stop::Fail(Status::RnrRetryExceeded))?;
        }
        self.rnr_until_ns = Some(now_ns.saturating_add(rnr_timer_ns(timer)));
        // No answer is overdue while nothing is asked.
        self.overdue_ns = None;
        self.go_back(sends);
        Ok(())
    }

    /// Time has passed. Whether an answer was overdue.
    pub(crate) fn advance(&mut self, now_ns: u64, sends: &SendQueue) -> Result<bool, Stop> {
        self.asking.advance(now_ns);
        if self.rnr_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.rnr_until_ns = None;
            self.restart_timer(now_ns);
        }
        if self.overdue_ns.is_none_or(|overdue_ns| overdue_ns > now_ns) {
            return Ok(false);
        }
        self.use_up_retry()?;
        self.repaired = None;
        self.window.shrink();
        self.go_back(sends);
        self.restart_timer(now_ns);
        Ok(true)
    }
}
