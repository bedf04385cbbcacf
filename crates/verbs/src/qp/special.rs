//! The typed handles of each transport, and what is posted through them: one-sided and special work
//! requests.

use super::{QpError, QueuePair};
use crate::memory::mr::Access;
use crate::memory::peer::{PeerSlice, Remote};
use crate::memory::window::MemoryWindow;
use crate::qp::endpoint::Transport;
use crate::wr::buffer::{Buffer, Refused};
use crate::wr::one_sided::{Op, RcQp, UcQp, UdQp};
use crate::wr::post::{PostStop, SendOptions, SendOutcome};
use crate::wr::send::Direction;

impl QueuePair {
    /// The work requests of RC.
    pub fn rc(&mut self) -> Result<RcQp<'_>, QpError> {
        self.check_transport(Transport::Rc)?;
        Ok(RcQp::new(self))
    }

    /// The work requests of UC.
    pub fn uc(&mut self) -> Result<UcQp<'_>, QpError> {
        self.check_transport(Transport::Uc)?;
        Ok(UcQp::new(self))
    }

    /// The work requests of UD.
    pub fn ud(&mut self) -> Result<UdQp<'_>, QpError> {
        self.check_transport(Transport::Ud)?;
        Ok(UdQp::new(self))
    }

    pub(crate) fn post_op(&mut self, op: &Op, buffer: Buffer) -> Result<(), Refused> {
        if !self.may_send() {
            return Err(Refused { buffer, reason: PostStop::NotReady(self.state) });
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let posted = unsafe { self.send.post_op(self.post_send, op, buffer) };
        posted.inspect_err(|refused| self.count_refusal(Some(refused.reason)))
    }

    #[inline]
    pub(crate) fn post_transfers<'a>(
        &mut self,
        direction: Direction,
        options: &SendOptions,
        transfers: impl Iterator<Item = (&'a PeerSlice, Remote)>,
    ) -> SendOutcome {
        if !self.may_send() {
            return SendOutcome { stop: Some(PostStop::NotReady(self.state)), ..SendOutcome::default() };
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let outcome = unsafe { self.send.post_transfers(self.post_send, direction, options, transfers) };
        self.count_refusal(outcome.stop);
        outcome
    }

    pub(crate) fn bind_window(
        &mut self,
        window: &mut MemoryWindow,
        slice: PeerSlice,
        access: Access,
        options: SendOptions,
    ) -> Result<(), Refused> {
        let options = SendOptions { imm: None, ..options };
        if !self.may_send() {
            return Err(Refused { buffer: slice.into(), reason: PostStop::NotReady(self.state) });
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let posted = unsafe { self.send.bind_window(self.post_send, window, slice, access, options) };
        posted.inspect_err(|refused| self.count_refusal(Some(refused.reason)))
    }
}
