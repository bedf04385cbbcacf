//! Receives into scatter/gather lists, on a QP that was made for them
//! ([`QpSpec::max_recv_sge`](super::QpSpec) above 1).

use super::QueuePair;
use crate::cq::completion::{Completion, Stale};
use crate::qp::attr::QpState;
use crate::wr::buffer::{Buffer, Refused};
use crate::wr::post::PostStop;
use crate::wr::sg_list::SgList;

impl QueuePair {
    /// Posts a list for receiving: a message fills its parts one after the other, each packet up to
    /// its `len()`. On UD the first 40 bytes are the GRH's ([`crate::datagram::Grh`]). A list that
    /// is not posted comes back.
    pub fn post_recv_scatter(&mut self, list: SgList) -> Result<(), Refused> {
        let refused = |list, reason| Err(Refused { buffer: Buffer::List(list), reason });
        if self.state == QpState::Reset {
            return refused(list, PostStop::NotReady(self.state));
        }
        if self.uses_srq() {
            return refused(list, PostStop::UsesSrq);
        }
        let verb = self.post_recv;
        let Some(lists) = &mut *self.recv_scatter else {
            return refused(list, PostStop::OtherReceives { lists: false });
        };
        // SAFETY: the QP is live until drop, and `lists` is its receive queue.
        let posted = unsafe { lists.post(list, |wr, bad| verb.call(wr, bad)) };
        posted.inspect_err(|refused| self.count_refusal(Some(refused.reason)))
    }

    /// The list that a receive completion filled: its packets are as long as what came into them,
    /// all empty when the receive failed or an RDMA WRITE with immediate put its bytes elsewhere.
    /// [`Completion::byte_len`] is the message's whole length.
    pub fn recv_scatter_done(&mut self, completion: &Completion) -> Result<SgList, Stale> {
        let done = match &mut *self.recv_scatter {
            // The number of another kind of work request is none of the queue's.
            Some(lists) => lists.complete(completion),
            None => Err(Stale { wr_id: completion.wr_id() }),
        };
        done.inspect_err(|_| self.counters.stale += 1)
    }

    /// The most parts with bytes that a list may have that is sent, written from or read into.
    pub fn max_send_sge(&self) -> u32 {
        self.send.max_sge()
    }
}
