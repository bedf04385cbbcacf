//! A queue of receives, for a queue pair of its own or for several to share.

use crate::memory::{Receive, Sge};
use crate::work::PostError;

/// Receives in the order in which they are taken. Nothing is allocated after it is made.
#[derive(Debug)]
pub struct ReceiveQueue {
    /// The number and the count of pieces of each.
    heads: Box<[(u64, usize)]>,
    sges: Box<[Sge]>,
    sges_max: usize,
    posted: usize,
    taken: usize,
}

impl ReceiveQueue {
    /// Room for `depth` receives of `sges_max` pieces each.
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

    /// How many there is room for.
    pub fn depth(&self) -> usize {
        self.heads.len()
    }

    /// The receives that are posted and not taken.
    pub fn len(&self) -> usize {
        self.posted.wrapping_sub(self.taken)
    }

    /// Whether there are none.
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

    /// Takes the next one; false if there is none.
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

    /// Takes the next one without a look at its pieces.
    pub(crate) fn skip(&mut self) -> Option<u64> {
        (!self.is_empty()).then(|| {
            let (id, _) = self.heads[self.taken % self.depth()];
            self.taken += 1;
            id
        })
    }
}
