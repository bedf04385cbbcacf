//! A hint to the cache, for code that knows early what it will read.

/// Starts loading the cache line of `place`'s first byte and returns at once. Never blocks, never
/// fails; where the processor has no such instruction it does nothing.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    prefetch_at(place);
}

/// Like [`prefetch`], for memory that the caller may not read yet: the address may be any.
#[inline(always)]
pub(crate) fn prefetch_at<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: PREFETCHT0 reads nothing into the program and faults on no address (Intel SDM
        // volume 2, PREFETCHh).
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
