//! Memory as the transport accesses it: by key and address, and by copies.
//!
//! The transport never holds a reference to memory that a peer may write at the same time: it
//! copies bytes out or in. So an implementation over raw pointers keeps its `unsafe` to itself, and
//! this crate has none.

use crate::wire::{AtomicOp, Qpn};

/// The right that an access needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// The owner reads.
    LocalRead,
    /// The owner writes: a receive's buffer, or the data of a READ.
    LocalWrite,
    /// A peer's READ.
    RemoteRead,
    /// A peer's WRITE.
    RemoteWrite,
    /// A peer's atomic.
    RemoteAtomic,
}

/// The queue pair behind an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The number of its protection domain.
    pub domain: u32,
    /// Its own number; keys may be bound to it.
    pub qpn: Qpn,
}

/// An address under a key, with the right that is used there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The accessing queue pair.
    pub owner: Owner,
    /// The local or the remote key.
    pub key: u32,
    /// The right that the access needs.
    pub right: Right,
    /// The first byte.
    pub addr: u64,
}

/// The key doesn't grant the access: it is unknown or another domain's, the range is outside, or a
/// right is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key doesn't grant the access")]
pub struct Denied;

/// The memory and keys that the transport needs from its caller.
///
/// Each call checks the key again: it may have been invalidated since the last one. None may block.
pub trait Memory {
    /// Copies bytes out of memory.
    fn read(&mut self, from: Place, out: &mut [u8]) -> Result<(), Denied>;

    /// Copies bytes into memory. A message's bytes come in order. The bytes of one call may become
    /// visible in any order.
    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), Denied>;

    /// Checks that `len` bytes can be accessed, before the first byte of a WRITE or a READ moves.
    fn check(&mut self, at: Place, len: u64) -> Result<(), Denied>;

    /// Carries out an atomic on eight bytes, whose address is a multiple of eight. Returns the old
    /// value. Atomic with respect to the atomics of all queue pairs.
    fn atomic(&mut self, at: Place, op: AtomicOp) -> Result<u64, Denied>;

    /// Invalidates a remote key, for a peer's SEND with invalidate.
    fn invalidate(&mut self, owner: Owner, rkey: u32) -> Result<(), Denied>;

    /// Carries out send work request `id`, an [`Operation::Local`](crate::Operation::Local), once.
    fn carry_out(&mut self, owner: Owner, id: u64) -> Result<(), Denied> {
        let _ = (owner, id);
        Err(Denied)
    }

    /// Takes the next receive of shared queue `queue` into `receive`; false if none is posted. Not
    /// called for queue pairs with a receive queue of their own.
    fn take_shared_receive(&mut self, queue: u32, receive: &mut Receive) -> bool {
        let _ = (queue, receive);
        false
    }
}

/// A scatter/gather element: a piece of the owner's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// The first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// The local key.
    pub key: u32,
}

/// A receive taken from its queue.
#[derive(Debug)]
pub struct Receive {
    id: u64,
    count: usize,
    sges: Box<[Sge]>,
}

impl Receive {
    /// An empty one with room for `sges` elements.
    pub(crate) fn new(sges: usize) -> Receive {
        Receive { id: 0, count: 0, sges: vec![Sge::default(); sges].into() }
    }

    /// Sets the taken receive; false, and nothing is set, if it has more elements than there is
    /// room for.
    pub fn set(&mut self, id: u64, sges: &[Sge]) -> bool {
        let room = self.sges.get_mut(..sges.len());
        let Some(room) = room else { return false };
        room.copy_from_slice(sges);
        (self.id, self.count) = (id, sges.len());
        true
    }

    /// The program's number of the work request.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The buffers of its bytes.
    pub fn sges(&self) -> &[Sge] {
        &self.sges[..self.count]
    }
}

/// The total bytes of a list.
pub(crate) fn list_bytes(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.len)).sum()
}

/// The pieces of a list that hold `len` bytes from `offset` on: address, key and the range of the
/// bytes.
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
