//! Signature pipelining: cancels posted work requests, and detects whether the QP has stopped.

use verbline_softnic::mlx5dv::mlx5dv_qp_cancel_posted_send_wrs;

use super::{QpError, QueuePair};
use crate::device::provider::Provider;
use crate::errno::{Errno, VerbError};
use crate::qp::attr::{AttrMask, QpState};
use crate::signature::BlockFault;
use crate::wr::kept::KeptKey;
use crate::wr_id::{WrKind, WrNumber};

impl QueuePair {
    /// The last posted work request of any kind, unless all are known to be done.
    /// [`QueuePair::cancel_posted_sends`] takes the number; the work request's completion carries
    /// it ([`Completion::number`](crate::Completion::number)).
    pub fn last_posted(&self) -> Option<WrNumber> {
        self.last_posted_list(1).next()
    }

    /// The last `count` posted work requests that are not known to be done, newest first: those of
    /// a transaction, to be cancelled together.
    pub fn last_posted_list(&self, count: u32) -> impl Iterator<Item = WrNumber> + use<'_> {
        (1..=count.min(self.send.outstanding())).map(|ago| WrNumber::of(self.send.taken(ago)))
    }

    /// Whether the device has stopped the send queue, i.e. the QP is in SQD. The state is recorded,
    /// so that [`QueuePair::resume`] is possible.
    pub fn is_stopped(&mut self) -> Result<bool, QpError> {
        Ok(self.query(AttrMask::STATE)?.state == QpState::Sqd)
    }

    /// Cancels posted work requests that have not been carried out: they do nothing and complete as
    /// if they had been carried out, or are flushed in ERR. A cancelled bind or configuration
    /// leaves the window or signature key as it was. Returns the number of cancelled ones; work
    /// requests that were already carried out stay so. Refused outside SQD, and while work requests
    /// begun before SQD are unfinished; EOPNOTSUPP on devices without signature offload, and for a
    /// queue pair of the software RNIC whose peer is in another process.
    ///
    /// mlx5dv_qp_cancel_posted_send_wrs(3) cancels all work requests with one `wr_id`. Here every
    /// `wr_id` is unique, so work requests that belong together are named one by one.
    pub fn cancel_posted_sends(&mut self, numbers: impl IntoIterator<Item = WrNumber>) -> Result<u32, QpError> {
        let mut cancelled = 0;
        for number in numbers {
            // Operations and lists have another kind in their `wr_id` than sends.
            cancelled += match self.cancel_wr_id(number.wr_id(WrKind::Op))? {
                0 => self.cancel_wr_id(number.wr_id(WrKind::Send))?,
                some => some,
            };
        }
        Ok(cancelled)
    }

    /// Whether the QP is in SQD, and drained.
    fn is_held(&mut self) -> Result<bool, QpError> {
        let attr = self.query(AttrMask::STATE)?;
        Ok(attr.state == QpState::Sqd && !attr.sq_draining)
    }

    /// Returns 1 if it cancelled a waiting work request with this `wr_id`; 0 if none has it, or it
    /// was cancelled before.
    fn cancel_wr_id(&mut self, wr_id: u64) -> Result<u32, QpError> {
        let call = "mlx5dv_qp_cancel_posted_send_wrs";
        let count = match (&self.keep().extended, self.keep().pd.provider()) {
            // SAFETY: the QP is live.
            (Some(extended), _) => unsafe { extended.cancel(wr_id) },
            // SAFETY: the QP is live, and the software RNIC's.
            (None, Provider::Soft) => unsafe { mlx5dv_qp_cancel_posted_send_wrs(self.raw.as_ptr(), wr_id) },
            (None, Provider::Kernel) => -libc::EOPNOTSUPP,
        };
        if count > 0 {
            self.send.cancelled(wr_id);
        }
        // If the queue is drained, a card answers EINVAL for a work request that does nothing
        // already.
        if count == -libc::EINVAL && self.is_held()? {
            return Ok(0);
        }
        // A card makes several entries of a work request that configures a key.
        u32::try_from(count.min(1)).map_err(|_| {
            let error = VerbError::new(call, self.describe(), Errno::new(-count));
            if -count == libc::EOPNOTSUPP {
                return error.into();
            }
            error.advise("only in SQD, once it is drained, can sends be cancelled: wait for the event SqDrained").into()
        })
    }

    /// Cancels responses ([`Operation::Respond`](crate::rdma::Operation::Respond)) that wait for
    /// bad blocks. Call it when the device has stopped the send queue, and its completion queue has
    /// given nothing since. `each` receives the key of each fault, and the fault. Returns how many
    /// responses had gone out before, which is the device's mistake. Then the queue may go on:
    /// [`QueuePair::resume`].
    pub fn cancel_responses(&mut self, mut each: impl FnMut(KeptKey, &BlockFault)) -> Result<u32, QpError> {
        let mut gone = 0;
        for place in 0..self.keep().memory.keys.len() {
            let Some(fault) = self.keep().memory.keys[place].key().check()? else { continue };
            let kept = &mut self.keep_mut().memory.keys[place];
            kept.found(&fault);
            // A response not posted yet is refused when it is posted.
            if let Some(number) = kept.response() {
                gone += 1 - self.cancel_wr_id(number)?;
            }
            each(KeptKey(place as u16), &fault);
        }
        Ok(gone)
    }
}
