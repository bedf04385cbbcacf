//! The requester's reactions to acknowledged, missing and overdue packets.

use crate::transport::configuration::rnr_timer_ns;
use crate::transport::counters::Discard;
use crate::transport::repair::Repair;
use crate::transport::requester::Requester;
use crate::transport::send_queue::SendQueue;
use crate::work::Status;

/// Why a packet of the peer is not simply taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// It is discarded.
    Discard(Discard),
    /// The work request at the front fails, and the queue pair with it.
    Fail(Status),
}

/// The value of verbs' `rnr_retry` that stands for forever.
const FOR_EVER: u8 = 7;

impl Requester {
    /// Handles the acknowledgement of all packets before `through`. Returns false if that includes
    /// a READ or an atomic whose answer was lost; then only the requests before it complete.
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

    /// After a change of `una`: skips acknowledged packets, which need not be sent again.
    pub(crate) fn keep_up(&mut self, sends: &SendQueue) {
        if self.cursor <= self.una {
            self.go_back(sends);
        }
    }

    /// If more is acknowledged than `before`, restores the retries.
    pub(crate) fn note_progress(&mut self, now_ns: u64, before: u64) {
        if self.una > before {
            self.retries_left = self.retries.retry_count;
            self.rnr_left = self.retries.rnr_retry;
            self.repaired = None;
            // The packet that had no receive has one by now.
            self.rnr_until_ns = None;
            self.window.grow(self.una - before);
            self.probe.progress(now_ns, self.una);
            self.restart_timer(now_ns);
        }
    }

    /// Goes back to the first packet that is not acknowledged.
    pub(crate) fn go_back(&mut self, sends: &SendQueue) {
        self.cursor = self.una;
        self.cursor_index = sends.front();
        self.reads_out = 0;
        self.asking.go_back(self.una);
        if self.una < self.top {
            self.probe.go_back();
        }
    }

    /// Repeats everything from the front on, at the cost of a retry: the packet at the front is
    /// missing at the peer, or its answer here. Further reports may be of packets sent before the
    /// repetition.
    fn repair(&mut self, sends: &SendQueue) -> Result<(), Stop> {
        self.window.shrink();
        let room_to = self.una + u64::from(self.window.packets());
        self.repaired = Some(Repair::new(self.cursor.min(room_to)));
        self.use_up_retry()?;
        self.go_back(sends);
        Ok(())
    }

    /// Handles an answer to packet `number`, ahead of the one to the READ or atomic at the front,
    /// which was lost. If the peer answers the repetition, and that answer was lost too, it is
    /// asked once more.
    pub(crate) fn repair_unanswered(&mut self, sends: &SendQueue, number: u64) -> Result<(), Stop> {
        let is_repeated = self.cursor > self.una;
        match &mut self.repaired {
            Some(repair) => {
                if repair.is_answered_again(number) && is_repeated {
                    repair.ask_again();
                    self.repair_again(sends);
                }
                Ok(())
            }
            None => {
                self.repair(sends)?;
                self.repaired.iter_mut().for_each(|repair| _ = repair.is_answered_again(number));
                Ok(())
            }
        }
    }

    /// Handles a NAK for the packet at the front, or a probe's answer that says the same. A further
    /// NAK after the repetition may be for the repetition: it is believed once, and after that the
    /// time-out decides.
    pub(crate) fn repair_asked(&mut self, sends: &SendQueue) -> Result<(), Stop> {
        match &mut self.repaired {
            // Nothing has been repeated yet: it is a duplicate of the same NAK.
            Some(_) if self.cursor == self.una => Ok(()),
            Some(repair) => {
                repair.ask_again();
                self.repair_again(sends);
                Ok(())
            }
            None => self.repair(sends),
        }
    }

    /// Begins a repetition once more, if requested and due.
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

    /// Handles an RNR NAK: the peer has no receive for the packet at the front.
    pub(crate) fn wait_for_receive(&mut self, now_ns: u64, sends: &SendQueue, timer: u8) -> Result<(), Stop> {
        // This NAK is for a packet that was under way when the first RNR NAK came.
        if self.rnr_until_ns.is_some() {
            return Ok(());
        }
        if self.retries.rnr_retry < FOR_EVER {
            self.rnr_left = self.rnr_left.checked_sub(1).ok_or(Stop::Fail(Status::RnrRetryExceeded))?;
        }
        self.rnr_until_ns = Some(now_ns.saturating_add(rnr_timer_ns(timer)));
        // The retries are for a peer that doesn't answer.
        self.retries_left = self.retries.retry_count;
        // No answer is overdue while no packet is sent.
        self.overdue_ns = None;
        self.go_back(sends);
        self.probe.pause();
        Ok(())
    }

    /// Lets time pass. Returns whether an answer was overdue.
    pub(crate) fn advance(&mut self, now_ns: u64, sends: &SendQueue) -> Result<bool, Stop> {
        self.asking.advance(now_ns);
        self.probe.advance(now_ns);
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
