//! Copies between user buffers, and between a user buffer and a ring.
//!
//! Guarantees: a poller sees the bytes arrive in ascending order (the last 64 are stored last). No
//! Rust reference to user memory is made, nor any access that the compiler may assume to be free of
//! races: a peer's program may read or write the same bytes at the same time, as it may while a
//! device does DMA. On x86-64 the accesses are assembly. Elsewhere, and under a sanitizer (which
//! must see them), they are relaxed atomics, byte by byte.

#[cfg(all(target_arch = "x86_64", not(portable_copy)))]
mod long;
#[cfg(any(test, not(all(target_arch = "x86_64", not(portable_copy)))))]
mod portable;
pub mod tuning;
#[cfg(all(target_arch = "x86_64", not(portable_copy)))]
mod x86;

#[cfg(all(target_arch = "x86_64", not(portable_copy)))]
pub(crate) use x86::{copy_8, copy_32, copy_small};

#[cfg(not(all(target_arch = "x86_64", not(portable_copy))))]
pub(crate) use portable::{copy, copy as copy_small, copy_8, copy_32};

/// Copies `len` bytes: up to 64 here, more by the best method for this CPU (see [`tuning`]). Ranges
/// may overlap, as a WRITE's into its own region do: then the contents of `to` are undefined, and
/// nothing beside it is written.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes.
#[cfg(all(target_arch = "x86_64", not(portable_copy)))]
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the ranges are the contract's; `tuning` chooses only methods that this CPU has.
    unsafe {
        if len <= 64 {
            copy_small(to, from, len);
        } else {
            tuning::long_copy()(to, from, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::portable;

    /// Every length around the borders between methods, at several alignments, with sentinels
    /// around the target.
    #[test]
    fn copies_exactly_the_range() {
        let source: Vec<u8> = (0..36_864u32).map(|i| (i * 7 + i / 256) as u8 | 1).collect();
        for len in (0..700).chain([1000, 2047, 2048, 3000, 8191, 8192, 8193, 32 << 10, (32 << 10) + 1]) {
            for (from, to) in [(0, 0), (1, 3), (8, 5), (15, 16), (64, 63)] {
                let mut target = vec![0u8; source.len()];
                // SAFETY: both ranges are inside their vectors.
                unsafe { super::copy(target.as_mut_ptr().add(to), source.as_ptr().add(from), len) };
                assert_eq!(&target[to..to + len], &source[from..from + len], "len {len}");
                assert!(target[..to].iter().chain(&target[to + len..]).all(|byte| *byte == 0), "len {len} strays");

                #[cfg(all(target_arch = "x86_64", not(portable_copy)))]
                for (name, method) in crate::copy::tuning::methods().filter(|_| len > 64) {
                    let mut so = vec![0u8; source.len()];
                    // SAFETY: as above; this CPU has the method.
                    unsafe { method(so.as_mut_ptr().add(to), source.as_ptr().add(from), len) };
                    assert_eq!(so, target, "{name}, len {len}");
                }

                let mut portably = vec![0u8; source.len()];
                // SAFETY: both buffers have `from + len` and `to + len` bytes, and are distinct.
                unsafe { portable::copy(portably.as_mut_ptr().add(to), source.as_ptr().add(from), len) };
                assert_eq!(portably, target);
            }
        }
    }

    #[test]
    fn copies_32_and_8_bytes() {
        let source: Vec<u8> = (1..=40).collect();
        type Copy = unsafe fn(*mut u8, *const u8);
        let all: [(Copy, usize); 4] =
            [(super::copy_32, 32), (portable::copy_32, 32), (super::copy_8, 8), (portable::copy_8, 8)];
        for (copy, bytes) in all {
            let (mut target, mut wanted) = ([0u8; 40], [0u8; 40]);
            wanted[3..3 + bytes].copy_from_slice(&source[1..1 + bytes]);
            // SAFETY: both ranges are inside their arrays.
            unsafe { copy(target.as_mut_ptr().add(3), source.as_ptr().add(1)) };
            assert_eq!(target, wanted);
        }
    }
}
