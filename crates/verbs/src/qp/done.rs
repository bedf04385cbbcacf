//! Completions taken back: the packets and the memory that come with them.

use verbline_mem::{Batch, Packet};

use super::QueuePair;
use crate::cq::completion::{Completion, Stale};
use crate::wr::buffer::OpDone;
use crate::wr::sg_list::SgList;
use crate::wr_id::WrKind;

impl QueuePair {
    /// The packet that a receive completion filled. Its length is what came; on UD the GRH is taken
    /// off. It is empty when the receive failed, and when an RDMA WRITE with immediate put its
    /// bytes elsewhere.
    #[inline]
    pub fn recv_done(&mut self, completion: &Completion) -> Result<Packet, Stale> {
        // The number of another kind of work request is none of the queue's.
        self.recv.complete(completion).inspect_err(|_| self.counters.stale += 1)
    }

    /// Takes the receive completions at the front, as long as they are this QP's, in the order that
    /// it posted them in, and brought a message: their packets go to the end of `packets`, as far
    /// as there is room, just as [`QueuePair::recv_done`] gives them. Gives how many; 0 says that
    /// the first is something else, and `recv_done` says what.
    ///
    /// What a poll found is mostly runs of one QP's receives, and a run takes half of what as many
    /// calls of `recv_done` do.
    #[inline(always)]
    pub fn recv_run(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        match completions {
            // A lone one is part of the caller, which spares saving registers around a call.
            [completion] if !packets.is_full() => {
                let packet = self.recv.complete_one(completion);
                packet.map_or(0, |packet| packets.push_iter([packet]))
            }
            _ => self.recv.complete_run(completions, packets),
        }
    }

    /// The packet of a completion: [`QueuePair::recv_run`] of this one. `None`, and nothing done,
    /// where that gives none.
    #[inline(always)]
    pub fn recv_one(&mut self, completion: &Completion) -> Option<Packet> {
        self.recv.complete_one(completion)
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

    /// Takes a send's completion: the packets of all sends up to it go to `freed`, or to their
    /// pools when it is full; the last is the completion's own, if it was not inline. Gives how
    /// many work requests are done by it. Hand completions in the order that they were polled in;
    /// one that is overtaken is stale.
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
