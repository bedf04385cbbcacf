//! Sends and operations as one list over a connection, the memory that operations name by a number,
//! and their completions.

use verbline_mem::{Batch, Packet};

use super::{QpError, QueuePair};
use crate::cq::completion::{Completion, Stale};
use crate::memory::pd::ProtectionDomain;
use crate::memory::peer::{PeerMr, Remote};
use crate::memory::window::{MemoryWindow, WindowKind};
use crate::signature::{KeptSignatureKey, KeySpec};
use crate::wr::connected::Connected;
use crate::wr::operation::{KeptKey, KeptRegion, KeptWindow};
use crate::wr::post::{PostStop, SendOutcome};
use crate::wr::wr_queue::{WorkList, WorksDone};
use crate::wr_id::WrKind;

/// Keys that a QP keeps at most: as many as [`KeptKey`] has numbers.
const MAX_KEYS: usize = 1 << 16;

impl QueuePair {
    /// Keeps the region registered and mapped for as long as the QP, so that operations name parts
    /// of it without a count. Refused on another PD than the QP's.
    pub fn keep_region(&mut self, region: &PeerMr) -> Result<KeptRegion, PostStop> {
        let (region_pd, qp_pd) = (region.pd_id(), self.send.pd_id);
        if region_pd != qp_pd {
            return Err(PostStop::NotRegistered { packet_pd: region_pd, qp_pd });
        }
        let regions = &mut self.keep_mut().memory.regions;
        let place = u16::try_from(regions.len()).map_err(|_| PostStop::NotKept("it keeps 65,536 regions"))?;
        regions.push(region.clone());
        Ok(KeptRegion(place))
    }

    /// Keeps a window, of type 2, to be bound by operations. Refused on another PD than the QP's.
    pub fn keep_window(&mut self, window: MemoryWindow) -> Result<KeptWindow, PostStop> {
        let (window_pd, qp_pd) = (window.inner.pd.id, self.send.pd_id);
        if window_pd != qp_pd {
            return Err(PostStop::NotRegistered { packet_pd: window_pd, qp_pd });
        }
        if window.kind() != WindowKind::Type2 {
            return Err(PostStop::NotKept("windows in lists are of type 2"));
        }
        let windows = &mut self.keep_mut().memory.windows;
        let place = u16::try_from(windows.len()).map_err(|_| PostStop::NotKept("it keeps 65,536 windows"))?;
        windows.push(window);
        Ok(KeptWindow(place))
    }

    /// Makes `count` signature keys of the QP's PD, to be named in lists of work requests; each
    /// stands for one part of a region at a time. A QP keeps 65,536 at most. `EOPNOTSUPP` as
    /// [`QpError`] on devices without.
    pub fn keep_keys(&mut self, count: usize) -> Result<Vec<KeptKey>, QpError> {
        let pd = ProtectionDomain { inner: self.keep().pd.clone() };
        let spec = KeySpec { max_entries: 1, ..KeySpec::default() };
        let kept = self.keep().memory.keys.len();
        if count > MAX_KEYS - kept {
            return Err(QpError::Keys { qpn: self.qpn(), kept, asked: count, max: MAX_KEYS });
        }
        // All of them or none: those that nobody was told of would be kept for nothing.
        let keys = (0..count).map(|_| pd.create_signature_key(&spec).map(KeptSignatureKey::new));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        self.keep_mut().memory.keys.extend(keys);
        // No more than `MAX_KEYS`, so that no number is cut short.
        Ok((kept..kept + count).map(|place| KeptKey(place as u16)).collect())
    }

    /// What to tell a peer of a window, once the completion of its last bind has come; `None`
    /// before any.
    pub fn window_remote(&self, window: KeptWindow) -> Option<Remote> {
        self.keep().memory.windows.get(usize::from(window.0)).and_then(MemoryWindow::remote)
    }

    /// Takes the completion of a listed work request: `each` is told of the operations that are
    /// done by it, oldest first. It is called with a number of operations that had no packet, or
    /// with 1 and the operation's packet; and with whether the completion is of this operation: the
    /// others succeeded. The packets of sends go to `freed`, or to their pools when it is full.
    #[inline]
    pub fn works_done(
        &mut self,
        completion: &Completion,
        freed: &mut Batch,
        each: impl FnMut(u32, Option<Packet>, bool),
    ) -> Result<WorksDone, Stale> {
        let done = match completion.kind() {
            WrKind::Op => self.send.complete_works(completion, freed, each),
            _ => Err(Stale { wr_id: completion.wr_id() }),
        };
        done.inspect_err(|_| self.counters.stale += 1)
    }

    /// Posts a list that is of the QP's transport.
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
