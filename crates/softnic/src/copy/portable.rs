//! Copies byte by byte, by atomics: for other CPUs, and for sanitizers, which must see the
//! accesses.

use std::sync::atomic::{AtomicU8, Ordering};

/// Copies `len` bytes.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    for at in 0..len {
        // SAFETY: inside the ranges of the contract. Atomic, since a peer may access the same byte;
        // never written through `from`.
        let (from, to) = unsafe { (AtomicU8::from_ptr(from.add(at).cast_mut()), AtomicU8::from_ptr(to.add(at))) };
        // Relaxed: like DMA, ordered only by the completion that follows.
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Copies 32 bytes.
///
/// # Safety
/// The contract of [`copy`], for 32 bytes.
pub(crate) unsafe fn copy_32(to: *mut u8, from: *const u8) {
    // SAFETY: reads and writes the 32 bytes of the contract, and no other memory.
    unsafe { copy(to, from, 32) };
}

/// Copies 8 bytes.
///
/// # Safety
/// The contract of [`copy`], for 8 bytes.
pub(crate) unsafe fn copy_8(to: *mut u8, from: *const u8) {
    // SAFETY: reads and writes the 8 bytes of the contract, and no other memory.
    unsafe { copy(to, from, 8) };
}
