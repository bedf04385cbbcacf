//! Memory, as the transport reaches it: by key and address, and by copies.
//!
//! The transport never holds a reference to memory that a peer may write at the same time: it asks
//! for bytes to be copied out, or in. So an implementation over raw pointers keeps its `unsafe` to
//! itself, and this crate has none.

use crate::wire::{AtomicOp, Qpn};

/// What an access needs of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// The owner's own reading.
    LocalRead,
    /// The owner's own writing: a receive's buffer, what a READ brings.
    LocalWrite,
    /// A peer's READ.
    RemoteRead,
    /// A peer's WRITE.
    RemoteWrite,
    /// A peer's atomic.
    RemoteAtomic,
}

/// For which queue pair an access is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The number of its protection domain.
    pub domain: u32,
    /// Its own number, to which keys may be bound.
    pub qpn: Qpn,
}

/// An address under a key, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// For whom.
    pub owner: Owner,
    /// The local or the remote key.
    pub key: u32,
    /// What is done there.
    pub right: Right,
    /// The first byte.
    pub addr: u64,
}

/// The key doesn't grant the access: it is unknown or another domain's, the range is outside, or a
/// right is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key doesn't grant the access")]
pub struct Denied;

/// What the transport asks of its surroundings.
///
/// Each call checks the key again: it may have been invalidated since the last one. None may block.
pub trait Memory {
    /// Copies bytes out.
    fn read(&mut self, from: Place, out: &mut [u8]) -> Result<(), Denied>;

    /// Copies bytes in. A message's bytes come in order; those of one call may be seen in any.
    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), Denied>;

    /// Whether `len` bytes can be accessed: asked before the first byte of a WRITE or a READ moves.
    fn check(&mut self, at: Place, len: u64) -> Result<(), Denied>;

    /// Carries out an atomic on eight bytes, whose address is a multiple of eight; gives what was
    /// there before. Atomic to every other one, of all queue pairs.
    fn atomic(&mut self, at: Place, op: AtomicOp) -> Result<u64, Denied>;

    /// Makes a remote key invalid, as a peer asked by a SEND.
    fn invalidate(&mut self, owner: Owner, rkey: u32) -> Result<(), Denied>;

    /// Carries out send work request `id`, an [`Operation::Local`](crate::Operation::Local), once.
    fn carry_out(&mut self, owner: Owner, id: u64) -> Result<(), Denied> {
        let _ = (owner, id);
        Err(Denied)
    }

    /// Takes the next receive of shared queue `queue` into `receive`; false if none is posted. A
    /// queue pair with a receive queue of its own never asks.
    fn take_shared_receive(&mut self, queue: u32, receive: &mut Receive) -> bool {
        let _ = (queue, receive);
        false
    }
}

/// A piece of the owner's memory, for data to come from or go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// The first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// The local key.
    pub key: u32,
}

/// A receive that was taken from its queue.
#[derive(Debug)]
pub struct Receive {
    id: u64,
    count: usize,
    sges: Box<[Sge]>,
}

impl Receive {
    /// Room for `sges` pieces.
    pub(crate) fn new(sges: usize) -> Receive {
        Receive { id: 0, count: 0, sges: vec![Sge::default(); sges].into() }
    }

    /// Sets what was taken; false, and nothing is set, if there are more pieces than room.
    pub fn set(&mut self, id: u64, sges: &[Sge]) -> bool {
        let room = self.sges.get_mut(..sges.len());
        let Some(room) = room else { return false };
        room.copy_from_slice(sges);
        (self.id, self.count) = (id, sges.len());
        true
    }

    /// The program's number for it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where its bytes go.
    pub fn sges(&self) -> &[Sge] {
        &self.sges[..self.count]
    }
}

/// The bytes of a list.
pub(crate) fn list_bytes(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.len)).sum()
}

/// The pieces of `len` bytes of a list, from `offset` on: address, key and the range of the bytes.
pub(crate) fn pieces(
    sges: &[Sge],
    offset: u64,
    len: usize,
) -> impl Iterator<Item = (u64, u32, std::ops::Range<usize>)> + '_ {
    let (mut skip, mut at) = (offset, 0);
    sges.iter().filter_map(move |sge| {
        let skipped = skip.min(u64::from(sge.len));
        skip -= skipped;
        let here = ((u64::from(sge.len) - skipped) as usize).min(len - at);
        let range = at..at + here;
        at += here;
        (here > 0).then_some((sge.addr.wrapping_add(skipped), sge.key, range))
    })
}
