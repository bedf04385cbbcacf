//! A queue pair that the device stopped behind a bad block: what waits for bad blocks is cancelled,
//! and the rest goes on.
//!
//! Guarantee: when the queue pair goes on, every response of it that waits for a block known to be
//! bad is cancelled, or is refused once it is to be posted.

use verbline_verbs::QueuePair;
use verbline_verbs::signature::BadBlock;

use super::{Named, OperationQueue};
use crate::errors::error::Cause;
use crate::operations::operation::OperationKind;

impl OperationQueue {
    /// A lane's queue pair may have stopped, and its completion queue was empty since. An error: it
    /// can't go on.
    #[cold]
    pub(crate) fn settle_stop(&mut self, lane: usize, qp: &mut QueuePair) -> Result<(), Cause> {
        if !qp.is_stopped()? {
            // Of a stop before, or of another queue pair that had the number.
            return Ok(());
        }
        let (accepted, stats) = (&mut self.accepted, &self.stats);
        let gone = qp.cancel_responses(|key, fault| {
            tracing::info!(?key, ?fault, "a block is bad: its response is cancelled");
            stats.bad_blocks.add(1);
            let bad = BadBlock { part: fault.part, offset: fault.offset as u32 };
            accepted.each_mut(lane, |what| {
                if what.kind == OperationKind::Respond && what.named == Named::Key(key) {
                    what.named = Named::Bad(bad);
                }
            });
        })?;
        if gone > 0 {
            return Err(format!("{gone} responses had gone out before their blocks were checked").into());
        }
        self.stats.stops.add(1);
        Ok(qp.resume()?)
    }
}
