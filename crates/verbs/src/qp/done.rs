//! Completions taken back, with their packets and memory.

use verbline_mem::{Batch, Packet};

use super::QueuePair;
use crate::cq::completion::{Completion, Stale};
use crate::wr::buffer::OpDone;
use crate::wr::sg_list::SgList;
use crate::wr_id::WrKind;

impl QueuePair {
    /// The packet that a receive completion filled, with the length of the message; on UD the GRH
    /// is removed. Empty if the receive failed, or if an RDMA WRITE with immediate put its bytes
    /// elsewhere.
    #[inline]
    pub fn recv_done(&mut self, completion: &Completion) -> Result<Packet, Stale> {
        // The queue has no number of another kind of work request.
        self.recv.complete(completion).inspect_err(|_| self.counters.stale += 1)
    }

    /// Takes the run of receive completions at the front: this QP's, in posting order, each with a
    /// message. Their packets are appended to `packets`, as far as there is space, in the same form
    /// as from [`QueuePair::recv_done`]. Returns how many; 0 means that the first completion is
    /// something else: pass it to `recv_done`.
    ///
    /// A poll mostly finds runs of one QP's receives, and a run takes half as long as the same
    /// number of calls of `recv_done`.
    #[inline(always)]
    pub fn recv_run(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        match completions {
            // A lone completion is handled inline in the caller, which avoids saving registers
            // around a call.
            [completion] if !packets.is_full() => {
                let packet = self.recv.complete_one(completion);
                packet.map_or(0, |packet| packets.push_iter([packet]))
            }
            _ => self.recv.complete_run(completions, packets),
        }
    }

    /// [`QueuePair::recv_run`] for this one completion. Returns `None`, and does nothing, where
    /// `recv_run` returns 0.
    #[inline(always)]
    pub fn recv_one(&mut self, completion: &Completion) -> Option<Packet> {
        self.recv.complete_one(completion)
    }

    /// The list that a receive completion filled. Its packets' lengths are the bytes received into
    /// them; all are empty if the receive failed or an RDMA WRITE with immediate put its bytes
    /// elsewhere. [`Completion::byte_len`] is the length of the whole message.
    pub fn recv_scatter_done(&mut self, completion: &Completion) -> Result<SgList, Stale> {
        let done = match &mut *self.recv_scatter {
            // The queue has no number of another kind of work request.
            Some(lists) => lists.complete(completion),
            None => Err(Stale { wr_id: completion.wr_id() }),
        };
        done.inspect_err(|_| self.counters.stale += 1)
    }

    /// Takes a send's completion: the packets of all sends up to it go to `freed`, or to their
    /// pools when it is full; the last is the completion's own, if it was not inline. Returns the
    /// number of work requests that it completes. Hand completions in in the order of polling; an
    /// overtaken one is stale.
    #[inline]
    pub fn send_done(&mut self, completion: &Completion, freed: &mut Batch) -> Result<usize, Stale> {
        let done = match completion.kind() {
            WrKind::Send => self.send.complete(completion, freed),
            _ => Err(Stale { wr_id: completion.wr_id() }),
        };
        done.inspect_err(|_| self.counters.stale += 1)
    }

    /// Takes the completion of a one-sided or special work request: its memory comes back, and the
    /// packets of all sends up to it go to `freed`, or to their pools when it is full.
    pub fn op_done(&mut self, completion: &Completion, freed: &mut Batch) -> Result<OpDone, Stale> {
        let done = match completion.kind() {
            WrKind::Op => self.send.complete_op(completion, freed),
            _ => Err(Stale { wr_id: completion.wr_id() }),
        };
        done.inspect_err(|_| self.counters.stale += 1)
    }
}
