//! Moves bytes between scatter/gather lists.
//!
//! Guarantees: every byte that is read or written lies in a range that its key granted just before,
//! for the life of the list's [`Pinned`]; or it is inline data, or a local.

use crate::copy::copy;
use crate::key_table::{self, Denied};
use crate::objects::device::SGE_MAX;
use crate::objects::guards::{Held, Pinned};
use crate::objects::qp::Qp;
use crate::queues::wqe::Wqe;
use crate::queues::wr::{SendWr, sge_bytes};
use std::mem::MaybeUninit;

/// Ranges of memory, readable during `'p`, and writable if `WRITABLE`. Filled in place, since it
/// has half a kilobyte: returned by value it cost 60 ns a message.
pub(crate) struct Pieces<'p, const WRITABLE: bool> {
    pieces: [MaybeUninit<(*mut u8, usize)>; SGE_MAX as usize],
    count: usize,
    pinned: Pinned<'p>,
}

/// Ranges to read from.
pub(crate) type Sources<'p> = Pieces<'p, false>;
/// Ranges to write to.
pub(crate) type Targets<'p> = Pieces<'p, true>;

impl<'p, const WRITABLE: bool> Pieces<'p, WRITABLE> {
    /// The right that its own side needs of an L_Key.
    const LOCAL: u32 = if WRITABLE { key_table::LOCAL_WRITE } else { 0 };
    /// The right that a peer needs of an R_Key.
    pub(crate) const REMOTE: u32 = if WRITABLE { key_table::REMOTE_WRITE } else { key_table::REMOTE_READ };

    #[inline(always)]
    pub(crate) fn new(pinned: Pinned<'p>) -> Self {
        Pieces { pieces: [const { MaybeUninit::uninit() }; _], count: 0, pinned }
    }

    #[inline]
    fn push(&mut self, at: *mut u8, len: usize) {
        self.pieces[self.count].write((at, len));
        self.count += 1;
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[(*mut u8, usize)] {
        // SAFETY: `push` has written the first `count` elements.
        unsafe { std::slice::from_raw_parts(self.pieces.as_ptr().cast(), self.count) }
    }

    /// Adds the ranges of a work request's list. Addresses of inline data to read are not checked.
    #[inline]
    pub(crate) fn add_list(&mut self, pd: u32, wr: SendWr<'p>) -> Result<(), Denied> {
        let inline = !WRITABLE && wr.is_inline();
        for sge in wr.sges() {
            let bytes = sge_bytes(sge);
            let at = if inline {
                sge.addr as *mut u8
            } else {
                key_table::check_local(pd, sge.lkey, sge.addr, bytes, Self::LOCAL)?
            };
            self.push(at, bytes as usize);
        }
        Ok(())
    }

    /// Adds a range of the peer's, if the key allows it. Nothing is checked for an empty one (IB
    /// specification, vol. 1, 9.7.4.1.5: a zero-length request's R_Key isn't validated). Returns
    /// the key of the bytes' region.
    pub(crate) fn add_remote(&mut self, peer: &Qp, rkey: u32, addr: u64, bytes: u64) -> Result<u32, Denied> {
        if bytes == 0 {
            return Ok(rkey);
        }
        let (at, region) = key_table::check_remote(peer.pd, peer.qpn, rkey, addr, bytes, Self::REMOTE)?;
        self.push(at, bytes as usize);
        Ok(region)
    }
}

impl<'p> Sources<'p> {
    /// Adds bytes of our own.
    pub(crate) fn add_own(&mut self, bytes: &'p [u8]) {
        self.push(bytes.as_ptr().cast_mut(), bytes.len());
    }
}

impl<'p> Targets<'p> {
    /// Adds bytes of our own.
    pub(crate) fn add_own(&mut self, bytes: &'p mut [u8]) {
        self.push(bytes.as_mut_ptr(), bytes.len());
    }
}

impl Targets<'_> {
    /// Adds `len` bytes of a receive's buffers, behind the first `skip`. The receive has room for
    /// `skip` + `len`.
    #[inline]
    pub(crate) fn add_wqe(&mut self, pd: u32, wqe: Wqe<'_>, mut skip: u64, mut len: u64) -> Result<(), Denied> {
        for sge in wqe.sges() {
            if len == 0 {
                break;
            }
            let bytes = sge_bytes(&sge);
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let take = len.min(bytes - skip);
            // No region reaches beyond the last address.
            let addr = sge.addr.checked_add(skip).ok_or(Denied)?;
            let at = key_table::check_local(pd, sge.lkey, addr, take, Self::LOCAL)?;
            self.push(at, take as usize);
            (skip, len) = (0, len - take);
        }
        Ok(())
    }
}

/// A transfer of this many bytes takes long, some 50 µs: it names the objects that it holds
/// meanwhile.
pub(crate) const LONG_BYTES: u64 = 1 << 20;

/// Like [`move_bytes`]; if `held` returns something, only threads that destroy objects held by a
/// long transfer wait for it.
///
/// # Safety
/// `held` returns `None`, or a value that satisfies [`Pinned::hold`].
#[inline]
pub(crate) unsafe fn move_all(to: &Targets<'_>, from: &Sources<'_>, len: u64, held: impl FnOnce() -> Option<Held>) {
    if len < LONG_BYTES {
        return move_bytes(to, from, len);
    }
    match held() {
        // SAFETY: `held` names all objects in use, as the caller guarantees.
        Some(held) => unsafe { to.pinned.hold(held, || move_bytes(to, from, len)) },
        None => move_bytes(to, from, len),
    }
}

/// Copies `len` bytes from one list to another; both have at least that many. A shorter list would
/// be copied as far as it goes. If ranges overlap, their contents afterwards are undefined.
#[inline]
pub(crate) fn move_bytes(to: &Targets<'_>, from: &Sources<'_>, mut len: u64) {
    let (mut to, mut from) = (to.as_slice().iter().copied(), from.as_slice().iter().copied());
    let (mut target, mut source) = ((std::ptr::null_mut(), 0usize), (std::ptr::null_mut(), 0usize));
    while len > 0 {
        if target.1 == 0 {
            let Some(next) = to.next() else { return };
            target = next;
        }
        if source.1 == 0 {
            let Some(next) = from.next() else { return };
            source = next;
        }
        let step = target.1.min(source.1).min(usize::try_from(len).unwrap_or(usize::MAX));
        // SAFETY: `step` stays inside both ranges, which `Pieces` keeps readable and writable.
        unsafe {
            copy(target.0, source.0, step);
            target = (target.0.add(step), target.1 - step);
            source = (source.0.add(step), source.1 - step);
        }
        len -= step as u64;
    }
}
