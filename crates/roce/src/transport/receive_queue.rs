//! A queue of receives, owned by a queue pair or shared by several.

use crate::memory::{Receive, Sge};
use crate::work::PostError;

/// Receives in the order in which they are taken. Nothing is allocated after creation.
#[derive(Debug)]
pub struct ReceiveQueue {
    /// The number of each receive, and its count of scatter/gather elements.
    heads: Box<[(u64, usize)]>,
    sges: Box<[Sge]>,
    sges_max: usize,
    posted: usize,
    taken: usize,
}

impl ReceiveQueue {
    /// Makes room for `depth` receives of `sges_max` elements each.
    pub fn new(depth: usize, sges_max: usize) -> ReceiveQueue {
        let depth = depth.max(1);
        ReceiveQueue {
            heads: vec![(0, 0); depth].into(),
            sges: vec![Sge::default(); depth * sges_max].into(),
            sges_max,
            posted: 0,
            taken: 0,
        }
    }

    /// The number of receives that there is room for.
    pub fn depth(&self) -> usize {
        self.heads.len()
    }

    /// The number of posted receives.
    pub fn len(&self) -> usize {
        self.posted.wrapping_sub(self.taken)
    }

    /// Whether no receive is posted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a receive.
    pub fn post(&mut self, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        if sges.len() > self.sges_max {
            return Err(PostError::TooManySges { sges: sges.len(), max: self.sges_max });
        }
        if self.len() == self.depth() {
            return Err(PostError::Full { depth: self.depth() });
        }
        let slot = self.posted % self.depth();
        self.heads[slot] = (id, sges.len());
        self.sges[slot * self.sges_max..][..sges.len()].copy_from_slice(sges);
        self.posted += 1;
        Ok(())
    }

    /// Takes the next receive; false if there is none.
    pub fn take(&mut self, receive: &mut Receive) -> bool {
        if self.is_empty() {
            return false;
        }
        let slot = self.taken % self.depth();
        let (id, count) = self.heads[slot];
        let fits = receive.set(id, &self.sges[slot * self.sges_max..][..count]);
        self.taken += usize::from(fits);
        fits
    }

    /// Takes the next receive without reading its elements.
    pub(crate) fn skip(&mut self) -> Option<u64> {
        (!self.is_empty()).then(|| {
            let (id, _) = self.heads[self.taken % self.depth()];
            self.taken += 1;
            id
        })
    }
}
