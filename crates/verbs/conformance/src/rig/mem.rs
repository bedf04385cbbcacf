//! Memory that a device may read and write.

use super::mapped;
use crate::check::Outcome;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const PAGE_BYTES: usize = 4096;

/// Zeroed, page-aligned memory. Clones are the same memory.
#[derive(Clone)]
pub(crate) struct Mem(Rc<MemInner>);

pub(super) struct MemInner {
    start: NonNull<u8>,
    /// In bytes; whole pages.
    length: usize,
    origin: Origin,
}

/// The way to free the memory.
enum Origin {
    Heap(Layout),
    Mapped,
    Shared,
}

impl Mem {
    pub(super) fn new(bytes: usize) -> Mem {
        let layout = Layout::from_size_align(bytes.max(1).next_multiple_of(PAGE_BYTES), PAGE_BYTES).expect("a size");
        // SAFETY: the size isn't zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Mem(Rc::new(MemInner { start, length: layout.size(), origin: Origin::Heap(layout) }))
    }

    /// `bytes` of addresses; all but the last page repeat the same 2 MiB.
    pub(super) fn repeated(bytes: usize) -> Outcome<Mem> {
        let start = mapped::repeated(bytes)?;
        Ok(Mem(Rc::new(MemInner { start, length: bytes, origin: Origin::Mapped })))
    }

    /// The page that all rigs and threads share.
    pub(super) fn shared() -> Mem {
        let (start, length) = mapped::shared();
        Mem(Rc::new(MemInner { start, length, origin: Origin::Shared }))
    }

    pub(crate) fn addr(&self) -> u64 {
        self.0.start.as_ptr() as u64
    }

    /// The length in bytes; whole pages.
    pub(crate) fn len(&self) -> usize {
        self.0.length
    }

    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        // Relaxed, here and below: completions order the device's accesses and the program's.
        for (byte, &value) in self.bytes(offset, bytes.len()).iter().zip(bytes) {
            byte.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn take(&self, offset: usize, length: usize) -> Vec<u8> {
        self.bytes(offset, length).iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    /// The host-order number at `offset`, which is a multiple of 8.
    pub(crate) fn number(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    pub(crate) fn set_number(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Relaxed);
    }

    pub(super) fn downgrade(&self) -> Weak<MemInner> {
        Rc::downgrade(&self.0)
    }

    fn bytes(&self, offset: usize, length: usize) -> &[AtomicU8] {
        assert!(offset + length <= self.len(), "bytes {offset}..{} of {}", offset + length, self.len());
        // SAFETY: in bounds by the assertion; initialised when allocated; freed, if at all, when
        // the last clone is dropped; only ever accessed through atomics here, and by devices, which
        // get its address as hardware does.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr().add(offset).cast(), length) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len(), "an aligned word at {offset} of {}", self.len());
        // SAFETY: as `bytes`; aligned because the start is page-aligned and the offset a multiple
        // of 8.
        unsafe { &*self.0.start.as_ptr().add(offset).cast() }
    }
}

impl MemInner {
    pub(super) fn contains(&self, addr: u64, length: usize) -> bool {
        let start = self.start.as_ptr() as u64;
        let end = start + self.length as u64;
        addr >= start && addr.checked_add(length as u64).is_some_and(|last| last <= end)
    }
}

impl Drop for MemInner {
    fn drop(&mut self) {
        // The rig keeps a clone until it is dropped itself, which is after all registrations of
        // this memory.
        match self.origin {
            // SAFETY: allocated with this layout by `Mem::new`, freed once, here.
            Origin::Heap(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            Origin::Mapped => mapped::unmap(self.start, self.length),
            Origin::Shared => {}
        }
    }
}
