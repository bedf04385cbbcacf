//! Changes the attributes of a port's queue pair while the port runs: some at once, most while its
//! send queue is drained (SQD).
//!
//! A port that drains is up. Packets sent meanwhile are posted and wait in the send queue, and go
//! on in order once the queue pair is back in RTS. The lcore does not wait: it looks when the
//! device reports that the queue is drained (IBV_EVENT_SQ_DRAINED), and when the change is
//! requested again.
//!
//! Each step is a system call on a kernel device. The lcore makes it, since nobody else may use its
//! queue pair. It does so where it reads notices, after a change of the plan, and never in a burst.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use verbline_verbs::expert::{AttrMask, QpAttr};
use verbline_verbs::{QpError, QpState};

use crate::control::change::{Asked, Change, ChangeOutcome, Changing, PathChange};
use crate::ports::single_port::{Health, Port};
use crate::stats::clock::Tick;

impl Port {
    /// Starts a change, or continues it.
    #[cold]
    pub(crate) fn change(&mut self, change: Arc<Change>, now_ns: Tick) {
        match &self.changing {
            Some(changing) if Arc::ptr_eq(&changing.change, &change) => return self.go_on_changing(now_ns),
            Some(_) => return change.refuse("its send queue is still being drained for a change before this one"),
            // The request was repeated as the change ended.
            None if change.is_over() => return,
            None if self.health != Health::Up => {
                self.is_paused &= !matches!(change.asked, Asked::Resume);
                return change.refuse("its queue pair is down");
            }
            None => {}
        }
        let done = match &change.asked {
            Asked::Destination { ah, qpn, qkey } => self.qp.set_destination(ah, *qpn, *qkey),
            Asked::Attributes { drains: false, attr, mask, .. } => self.qp.modify(attr, *mask),
            Asked::Attributes { attr, mask, path, .. } if self.is_paused => self.tell_drained(attr, *mask, *path),
            Asked::Pause if self.is_paused => return change.refuse("it is paused already"),
            Asked::Resume => self.resume(),
            Asked::Attributes { .. } | Asked::Pause => match self.qp.to_sqd(true) {
                Ok(()) => {
                    self.changing = Some(Changing { change, since_ns: now_ns });
                    return self.go_on_changing(now_ns);
                }
                Err(error) => Err(error),
            },
        };
        match done {
            Ok(()) => change.end(ChangeOutcome::Taken { held: Duration::ZERO }),
            Err(error) => change.refuse(error),
        }
    }

    /// Completes the change if the send queue is drained by now, and resumes the queue pair.
    #[cold]
    pub(crate) fn go_on_changing(&mut self, now_ns: Tick) {
        let Some(Changing { change, since_ns }) = self.changing.take() else { return };
        let now = match self.qp.query(AttrMask::STATE) {
            Ok(now) => now,
            Err(error) => return change.refuse(error),
        };
        if now.state != QpState::Sqd {
            let state = now.state;
            return change.refuse(format_args!("its queue pair went to {state} while its send queue was drained"));
        }
        if now.sq_draining {
            self.changing = Some(Changing { change, since_ns });
            return;
        }
        let held = Duration::from_nanos(now_ns.saturating_sub(since_ns));
        let told = match &change.asked {
            Asked::Attributes { attr, mask, path, .. } => self.tell_drained(attr, *mask, *path),
            _ => {
                self.is_paused = change.begin_pause(held);
                Ok(())
            }
        };
        if self.is_paused {
            return;
        }
        match self.resume().and(told) {
            Ok(()) => change.end(ChangeOutcome::Taken { held }),
            Err(error) => {
                // The requester was told that the queue pair will have it soon.
                if let Asked::Attributes { mask, path, .. } = &change.asked
                    && change.is_abandoned()
                {
                    tracing::error!(port = %self.name, attributes = ?mask, ?path, %error, "what the plan that was read \
                        again says is refused, now that the send queue is drained: the queue pair is as it was");
                }
                change.refuse(error);
            }
        }
    }

    /// The port goes down: refuses the change under way.
    pub(in crate::ports) fn end_changing(&mut self) {
        if let Some(Changing { change, .. }) = self.changing.take() {
            change.refuse("its queue pair went down while its send queue was drained");
        }
    }

    /// The port has another queue pair: pauses it if the one before was paused.
    pub(in crate::ports) fn pause_again(&mut self) {
        if self.is_paused
            && let Err(error) = self.qp.to_sqd(false)
        {
            self.is_paused = false;
            tracing::error!(port = %self.name, %error, "the port was paused, and sends again by its new queue pair");
        }
    }

    /// Resumes a paused queue pair. If that fails, the port goes down.
    fn resume(&mut self) -> Result<(), QpError> {
        self.is_paused = false;
        self.qp.resume().inspect_err(|error| {
            tracing::error!(port = %self.name, %error, "the send queue is drained, and cannot go on");
            self.break_off();
        })
    }

    /// Changes the attributes of a queue pair in SQD.
    fn tell_drained(&mut self, attr: &QpAttr, mask: AttrMask, path: PathChange) -> Result<(), QpError> {
        let now = self.qp.query(AttrMask::AV)?;
        match path.of(now.ah) {
            Some(ah) => self.qp.modify(&QpAttr { ah, ..*attr }, mask | AttrMask::AV)?,
            None => self.qp.modify(attr, mask)?,
        }
        self.path_changed()
    }
}
