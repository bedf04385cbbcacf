//! Signature pipelining: cancels posted work requests, and tells whether the QP has stopped.

use verbline_softnic::mlx5dv::mlx5dv_qp_cancel_posted_send_wrs;

use super::{QpError, QueuePair};
use crate::device::provider::Provider;
use crate::errno::{Errno, VerbError};
use crate::qp::attr::{AttrMask, QpState};
use crate::signature::SignatureKey;
use crate::signature::{BlockFault, KeyConfig};
use crate::wr::buffer::{Buffer, Refused};
use crate::wr::operation::KeptKey;
use crate::wr::post::{PostStop, SendOptions};
use crate::wr::send::RefusedKey;
use crate::wr_id::WrNumber;

impl QueuePair {
    /// The work request that was posted last, if it was posted by [`QueuePair::rc`]: what
    /// [`QueuePair::cancel_posted_sends`] takes, and its completion's
    /// [`wr_id`](crate::Completion::wr_id).
    pub fn last_posted(&self) -> Option<WrNumber> {
        self.send.last_op().map(WrNumber)
    }

    /// Whether the device has stopped the send queue: it is in SQD. The state is noted, so that
    /// [`QueuePair::resume`] is possible.
    pub fn is_stopped(&mut self) -> Result<bool, QpError> {
        Ok(self.query(AttrMask::STATE)?.state == QpState::Sqd)
    }

    /// Makes a work request that was posted and not carried out do nothing: it completes as if it
    /// had been, or is flushed in ERR. Gives how many that were, 0 or 1; of one that was carried
    /// out already nothing is taken back. Refused outside SQD, and while what was begun before SQD
    /// is not finished; EOPNOTSUPP on devices without signature offload.
    pub fn cancel_posted_sends(&mut self, number: WrNumber) -> Result<u32, QpError> {
        let call = "mlx5dv_qp_cancel_posted_send_wrs";
        let count = match (&self.keep().extended, self.keep().pd.provider()) {
            // SAFETY: the QP is live.
            (Some(extended), _) => unsafe { extended.cancel(number.0) },
            // SAFETY: the QP is live, and the software RNIC's.
            (None, Provider::Soft) => unsafe { mlx5dv_qp_cancel_posted_send_wrs(self.raw.as_ptr(), number.0) },
            (None, Provider::Kernel) => -libc::EOPNOTSUPP,
        };
        // A card makes several of a work request that configures a key.
        u32::try_from(count.min(1)).map_err(|_| {
            let error = VerbError::new(call, self.describe(), Errno::new(-count));
            if -count == libc::EOPNOTSUPP {
                return error.into();
            }
            error.advise("only in SQD, once it is drained, can sends be cancelled: wait for the event SqDrained").into()
        })
    }

    /// The device has stopped the send queue, and its completion queue has given nothing since: the
    /// responses ([`Operation::Respond`](crate::rdma::Operation::Respond)) that wait for bad blocks
    /// will not go out. `each` is told the key of each, and what was wrong. Gives how many had gone
    /// out before, which is the device's mistake. Then the queue may go on:
    /// [`QueuePair::resume`].
    pub fn cancel_responses(&mut self, mut each: impl FnMut(KeptKey, &BlockFault)) -> Result<u32, QpError> {
        let mut gone = 0;
        for place in 0..self.keep().memory.keys.len() {
            let Some(fault) = self.keep().memory.keys[place].key().check()? else { continue };
            let kept = &mut self.keep_mut().memory.keys[place];
            kept.found(&fault);
            // One that is not posted yet is refused when it is to be.
            if let Some(number) = kept.response() {
                gone += 1 - self.cancel_posted_sends(WrNumber(number))?.min(1);
            }
            each(KeptKey(place as u16), &fault);
        }
        Ok(gone)
    }

    pub(crate) fn configure_key(
        &mut self,
        key: &mut SignatureKey,
        config: KeyConfig,
        options: SendOptions,
    ) -> Result<(), RefusedKey> {
        if !self.may_send() {
            return Err(RefusedKey { config, reason: PostStop::NotReady(self.state) });
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let posted = unsafe { self.send.configure_key(self.post_send, key, config, options) };
        posted.inspect_err(|refused| self.count_refusal(Some(refused.reason)))
    }

    pub(crate) fn invalidate_key(&mut self, key: &SignatureKey, options: SendOptions) -> Result<(), Refused> {
        if !self.may_send() {
            return Err(Refused { buffer: Buffer::Empty, reason: PostStop::NotReady(self.state) });
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let posted = unsafe { self.send.invalidate_key(self.post_send, key, options) };
        posted.inspect_err(|refused| self.count_refusal(Some(refused.reason)))
    }
}
