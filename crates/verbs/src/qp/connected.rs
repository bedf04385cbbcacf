//! Sends and operations as one list over a connection, the memory that operations name by a number,
//! and their completions.

use verbline_mem::Batch;
use verbline_softnic::qp_table::Transport;

use super::{QpError, QueuePair};
use crate::cq::completion::{Completion, Stale};
use crate::memory::peer::Remote;
use crate::memory::window::{MemoryWindow, WindowKind};
use crate::signature::{KeptSignatureKey, KeySpec};
use crate::wr::connected::Connected;
use crate::wr::kept::{KeepSpec, KeptMemory, KeptWindow};
use crate::wr::local::WorkMemory;
use crate::wr::post::{PostStop, SendOutcome};
use crate::wr::wr_queue::{WorkList, WorksDone};
use crate::wr_id::WrKind;

impl QueuePair {
    /// Keeps regions registered and mapped, and creates windows and signature keys, for the life of
    /// the QP. Operations name them by numbers, which continue those of the memory kept already.
    /// Refuses regions of another PD than the QP's, and more than 65,535 of a kind; without
    /// signature offload, keys fail with `EOPNOTSUPP`.
    pub fn keep_memory(&mut self, spec: &KeepSpec) -> Result<(), QpError> {
        let pd = self.pd();
        if let Some(region) = spec.regions.iter().flatten().find(|region| region.pd().id != pd.inner.id) {
            let (theirs, ours) = (region.pd().describe(), pd.inner.describe());
            return Err(QpError::Foreign { what: "region", theirs, ours });
        }
        let KeptMemory { regions, windows, keys } = &self.keep().memory;
        for (what, has, asked) in [
            ("regions", regions.len(), spec.regions.len()),
            ("windows", windows.len(), spec.windows.into()),
            ("signature keys", keys.len(), spec.keys.into()),
        ] {
            let max = u16::MAX;
            if has + asked > max.into() {
                return Err(QpError::KeptNumbers { qpn: self.qpn(), what, has, asked, max });
            }
        }
        let windows = (0..spec.windows).map(|_| pd.alloc_mw(WindowKind::Type2)).collect::<Result<Vec<_>, _>>()?;
        let one_entry = KeySpec { max_entries: 1, ..KeySpec::default() };
        let keys = (0..spec.keys).map(|_| pd.create_signature_key(&one_entry).map(KeptSignatureKey::new));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let memory = &mut self.keep_mut().memory;
        memory.regions.extend_from_slice(&spec.regions);
        memory.windows.extend(windows);
        memory.keys.extend(keys);
        Ok(())
    }

    /// The address and key of a window for a peer, valid once the completion of its last bind has
    /// come; `None` before any bind.
    pub fn window_remote(&self, window: KeptWindow) -> Option<Remote> {
        self.keep().memory.windows.get(usize::from(window.0)).and_then(MemoryWindow::remote)
    }

    /// Takes the completion of a listed work request. `each` is called for the operations that it
    /// completes, oldest first: with a number of operations that had no memory to return, or with 1
    /// and the operation's memory; and with whether the completion is this operation's own (the
    /// others succeeded). The packets of sends go to `freed`, or to their pools when it is full.
    #[inline]
    pub fn works_done(
        &mut self,
        completion: &Completion,
        freed: &mut Batch,
        each: impl FnMut(u32, Option<WorkMemory>, bool),
    ) -> Result<WorksDone, Stale> {
        let done = match completion.kind() {
            WrKind::Op => self.send.complete_works(completion, freed, each),
            _ => Err(Stale { wr_id: completion.wr_id() }),
        };
        done.inspect_err(|_| self.counters.stale += 1)
    }

    /// Posts from the front of the list, in order, as linked lists, until the queue is full or a
    /// work request is refused, which is then at the front. Posted memory has moved into the QP, or
    /// back to its pool if it was a send that went inline. A QP of UC refuses work requests that it
    /// does not carry; lists for [`UcQp`](crate::rdma::UcQp) have none of them.
    ///
    /// The last work request of each call completes, and every `signal_every_wr`-th;
    /// [`QueuePair::works_done`] takes all these completions.
    #[inline]
    pub fn post_works(&mut self, works: &mut WorkList) -> SendOutcome {
        match self.transport() {
            Transport::Rc | Transport::Uc => self.post_list(works),
            other => {
                SendOutcome { stop: Some(PostStop::NotOn(other, "lists of work requests")), ..SendOutcome::default() }
            }
        }
    }

    /// Posts a list over a connection.
    #[inline]
    pub(super) fn post_list<T: Connected>(&mut self, works: &mut WorkList<T>) -> SendOutcome {
        if !self.may_send() {
            return SendOutcome { stop: Some(PostStop::NotReady(self.state)), ..SendOutcome::default() };
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue; `keep` goes behind it.
        let outcome = unsafe { self.send.post_works(self.post_send, works, &mut self.keep.memory) };
        self.count_refusal(outcome.stop);
        outcome
    }
}
