//! Regions of memory by their keys.

use std::collections::{BTreeMap, VecDeque};

use verbline_roce::wire::AtomicOp;
use verbline_roce::{Denied, Memory, Owner, Place, Receive, Right};

/// A region: bytes at addresses from `base` on.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) domain: u32,
    pub(crate) base: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) rights: Vec<Right>,
}

/// All regions of a host; a key is an index.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    pub(crate) regions: Vec<Option<Region>>,
    /// Posted receives of the shared queue, with their numbers.
    pub(crate) shared: VecDeque<(u64, verbline_roce::Sge)>,
    /// The local operations that were carried out, by queue pair.
    pub(crate) carried_out: BTreeMap<u32, Vec<u64>>,
    /// A local operation to be refused.
    pub(crate) refused: Option<u64>,
}

impl Regions {
    /// Adds a region; returns its key and its first address.
    pub(crate) fn add(&mut self, domain: u32, len: usize, rights: &[Right]) -> (u32, u64) {
        let key = self.regions.len() as u32;
        let base = 0x1_0000_0000 * (u64::from(key) + 1);
        self.regions.push(Some(Region { domain, base, bytes: vec![0; len], rights: rights.to_vec() }));
        (key, base)
    }

    pub(crate) fn bytes(&self, key: u32, addr: u64, len: usize) -> &[u8] {
        let region = self.regions[key as usize].as_ref().expect("a region");
        &region.bytes[(addr - region.base) as usize..][..len]
    }

    pub(crate) fn fill(&mut self, key: u32, addr: u64, bytes: &[u8]) {
        let region = self.regions[key as usize].as_mut().expect("a region");
        region.bytes[(addr - region.base) as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn reach(&mut self, place: Place, len: u64) -> Result<&mut [u8], Denied> {
        let region = self.regions.get_mut(place.key as usize).and_then(Option::as_mut).ok_or(Denied)?;
        let at = place.addr.checked_sub(region.base).ok_or(Denied)?;
        let end = at.checked_add(len).filter(|end| *end <= region.bytes.len() as u64).ok_or(Denied)?;
        if region.domain != place.owner.domain || !region.rights.contains(&place.right) {
            return Err(Denied);
        }
        Ok(&mut region.bytes[at as usize..end as usize])
    }
}

impl Memory for Regions {
    fn read(&mut self, from: Place, out: &mut [u8]) -> Result<(), Denied> {
        out.copy_from_slice(self.reach(from, out.len() as u64)?);
        Ok(())
    }

    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), Denied> {
        self.reach(to, bytes.len() as u64)?.copy_from_slice(bytes);
        Ok(())
    }

    fn check(&mut self, at: Place, len: u64) -> Result<(), Denied> {
        self.reach(at, len).map(|_| ())
    }

    fn atomic(&mut self, at: Place, op: AtomicOp) -> Result<u64, Denied> {
        let word = self.reach(at, 8)?;
        let before = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        let after = match op {
            AtomicOp::CompareSwap { compare, swap } if before == compare => swap,
            AtomicOp::CompareSwap { .. } => before,
            AtomicOp::FetchAdd(add) => before.wrapping_add(add),
        };
        word.copy_from_slice(&after.to_ne_bytes());
        Ok(before)
    }

    fn invalidate(&mut self, owner: Owner, rkey: u32) -> Result<(), Denied> {
        let region = self.regions.get_mut(rkey as usize).ok_or(Denied)?;
        region.take_if(|region| region.domain == owner.domain).map(|_| ()).ok_or(Denied)
    }

    fn carry_out(&mut self, owner: Owner, id: u64) -> Result<(), Denied> {
        let before = self.carried_out.entry(owner.qpn.number()).or_default();
        assert!(before.last().is_none_or(|last| *last < id), "{id} behind {before:?}");
        if self.refused == Some(id) {
            return Err(Denied);
        }
        before.push(id);
        Ok(())
    }

    fn take_shared_receive(&mut self, _: u32, receive: &mut Receive) -> bool {
        self.shared.pop_front().is_some_and(|(id, sge)| receive.set(id, &[sge]))
    }
}
