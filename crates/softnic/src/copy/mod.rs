//! Copies between user buffers, and between a user buffer and a ring.
//!
//! What it guarantees: bytes are moved in ascending order as far as a poller can tell (the last 64
//! are stored last), and no Rust reference to user memory is made, nor any access that the compiler
//! may assume to be free of races: a peer's program may read or write the same bytes at the same
//! time, as it may while a device does DMA. On x86-64 the accesses are assembly, elsewhere and
//! under a sanitizer (which must see them) they are relaxed atomics, byte by byte.

#[cfg(all(target_arch = "x86_64", not(portable_copy)))]
pub(crate) mod long;
pub mod tuning;

#[cfg(all(target_arch = "x86_64", not(portable_copy)))]
pub(crate) use x86::{copy, copy_8, copy_32, copy_small, narrow};

#[cfg(not(all(target_arch = "x86_64", not(portable_copy))))]
pub(crate) use portable::{copy, copy as copy_small, copy_8, copy_32};

#[cfg(all(target_arch = "x86_64", not(portable_copy)))]
mod x86 {
    use crate::copy::tuning;
    use std::arch::asm;

    /// Below this, moves of 16 bytes beat `rep movsb`, whose start-up is some 30 cycles on Zen 4.
    const STRING_BYTES_MIN: usize = 512;

    /// Copies `len` bytes: up to 64 of them here, more by the method that is best on this CPU (see
    /// [`tuning`]).
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `len` bytes; the ranges don't overlap.
    #[inline(always)]
    pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
        // SAFETY: the ranges are the contract; only a method that this CPU has is ever chosen
        // (`tuning`).
        unsafe {
            if len <= 64 {
                copy_small(to, from, len);
            } else {
                tuning::long_copy()(to, from, len);
            }
        }
    }

    /// Copies 65 bytes or more, without AVX.
    ///
    /// # Safety
    /// As [`copy`].
    pub(crate) unsafe fn narrow(to: *mut u8, from: *const u8, len: usize) {
        debug_assert!(len > 64);
        // SAFETY: each part lies inside the ranges that the contract names.
        unsafe {
            if len < STRING_BYTES_MIN {
                blocks(to, from, len - 32);
                pair(to.add(len - 32), from.add(len - 32));
            } else {
                string(to, from, len - 64);
                pair(to.add(len - 64), from.add(len - 64));
                pair(to.add(len - 32), from.add(len - 32));
            }
        }
    }

    /// Copies up to 64 bytes, by moves that overlap in the middle.
    ///
    /// # Safety
    /// As [`copy`]; `len` ≤ 64.
    #[inline(always)]
    pub(crate) unsafe fn copy_small(to: *mut u8, from: *const u8, len: usize) {
        debug_assert!(len <= 64);
        // SAFETY: each move stays inside 0..len, the ranges that the contract names.
        unsafe {
            if len >= 32 {
                pair(to, from);
                if len > 32 {
                    pair(to.add(len - 32), from.add(len - 32));
                }
            } else if len >= 16 {
                two_of_16(to, from, len - 16);
            } else if len >= 8 {
                two_of_8(to, from, len - 8);
            } else if len >= 4 {
                two_of_4(to, from, len - 4);
            } else if len > 0 {
                up_to_3(to, from, len);
            }
        }
    }

    /// Copies 32 bytes.
    ///
    /// # Safety
    /// As [`copy`], for 32 bytes.
    #[inline(always)]
    pub(crate) unsafe fn copy_32(to: *mut u8, from: *const u8) {
        // SAFETY: 32 bytes are read and written, which the contract names, and no other memory.
        unsafe { pair(to, from) };
    }

    /// Copies 8 bytes.
    ///
    /// # Safety
    /// As [`copy`], for 8 bytes.
    #[inline(always)]
    pub(crate) unsafe fn copy_8(to: *mut u8, from: *const u8) {
        // SAFETY: 8 bytes are read and written, which the contract names, and no other memory.
        unsafe {
            asm!(
                "mov {a}, [{from}]",
                "mov [{to}], {a}",
                a = out(reg) _, from = in(reg) from, to = in(reg) to,
                options(nostack, preserves_flags),
            );
        }
    }

    /// `len` bytes rounded up to 32, which the caller has beyond it.
    ///
    /// # Safety
    /// As [`copy`], for `len` rounded up to a multiple of 32.
    #[inline]
    unsafe fn blocks(to: *mut u8, from: *const u8, len: usize) {
        let mut at = 0;
        while at < len {
            // SAFETY: at + 32 ≤ len rounded up.
            unsafe { pair(to.add(at), from.add(at)) };
            at += 32;
        }
    }

    /// # Safety
    /// 32 bytes of each.
    #[inline(always)]
    pub(super) unsafe fn pair(to: *mut u8, from: *const u8) {
        // SAFETY: 32 bytes are read and written, which the contract names, and no other memory.
        unsafe {
            asm!(
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                a = out(xmm_reg) _, b = out(xmm_reg) _, from = in(reg) from, to = in(reg) to,
                options(nostack, preserves_flags),
            );
        }
    }

    /// # Safety
    /// `second` + 16 bytes of each.
    #[inline(always)]
    unsafe fn two_of_16(to: *mut u8, from: *const u8, second: usize) {
        // SAFETY: `second` + 16 bytes are read and written, which the contract names, and no other
        // memory.
        unsafe {
            asm!(
                "movups {a}, [{from}]",
                "movups {b}, [{from} + {second}]",
                "movups [{to}], {a}",
                "movups [{to} + {second}], {b}",
                a = out(xmm_reg) _, b = out(xmm_reg) _, from = in(reg) from, to = in(reg) to, second = in(reg) second,
                options(nostack, preserves_flags),
            );
        }
    }

    /// # Safety
    /// `second` + 8 bytes of each.
    #[inline(always)]
    unsafe fn two_of_8(to: *mut u8, from: *const u8, second: usize) {
        // SAFETY: `second` + 8 bytes are read and written, which the contract names, and no other
        // memory.
        unsafe {
            asm!(
                "mov {a}, [{from}]",
                "mov {b}, [{from} + {second}]",
                "mov [{to}], {a}",
                "mov [{to} + {second}], {b}",
                a = out(reg) _, b = out(reg) _, from = in(reg) from, to = in(reg) to, second = in(reg) second,
                options(nostack, preserves_flags),
            );
        }
    }

    /// # Safety
    /// `second` + 4 bytes of each.
    #[inline(always)]
    unsafe fn two_of_4(to: *mut u8, from: *const u8, second: usize) {
        // SAFETY: `second` + 4 bytes are read and written, which the contract names, and no other
        // memory.
        unsafe {
            asm!(
                "mov {a:e}, [{from}]",
                "mov {b:e}, [{from} + {second}]",
                "mov [{to}], {a:e}",
                "mov [{to} + {second}], {b:e}",
                a = out(reg) _, b = out(reg) _, from = in(reg) from, to = in(reg) to, second = in(reg) second,
                options(nostack, preserves_flags),
            );
        }
    }

    /// # Safety
    /// `len` bytes of each.
    #[inline]
    unsafe fn up_to_3(to: *mut u8, from: *const u8, len: usize) {
        for at in 0..len {
            // SAFETY: `len` bytes are read and written, which the contract names, and no other
            // memory.
            unsafe {
                asm!(
                    "movzx {a:e}, byte ptr [{from}]",
                    "mov byte ptr [{to}], {a:l}",
                    a = out(reg_abcd) _, from = in(reg) from.add(at), to = in(reg) to.add(at),
                    options(nostack, preserves_flags),
                );
            }
        }
    }

    /// # Safety
    /// `len` bytes of each.
    #[inline(always)]
    pub(super) unsafe fn string(to: *mut u8, from: *const u8, len: usize) {
        // SAFETY: `len` bytes are read and written, which the contract names; the direction flag is
        // clear by the ABI.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") len => _, inout("rsi") from => _, inout("rdi") to => _,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(any(test, not(all(target_arch = "x86_64", not(portable_copy)))))]
mod portable {
    use std::sync::atomic::{AtomicU8, Ordering};

    /// Copies `len` bytes.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `len` bytes; the ranges don't overlap.
    pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
        for at in 0..len {
            // SAFETY: inside the ranges that the contract names. Atomic, since a peer may access
            // the same byte; never written through `from`.
            let (from, to) = unsafe { (AtomicU8::from_ptr(from.add(at).cast_mut()), AtomicU8::from_ptr(to.add(at))) };
            // Relaxed: as DMA, ordered only by the completion that follows.
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Copies 32 bytes.
    ///
    /// # Safety
    /// As [`copy`], for 32 bytes.
    pub(crate) unsafe fn copy_32(to: *mut u8, from: *const u8) {
        // SAFETY: 32 bytes are read and written, which the contract names, and no other memory.
        unsafe { copy(to, from, 32) };
    }

    /// Copies 8 bytes.
    ///
    /// # Safety
    /// As [`copy`], for 8 bytes.
    pub(crate) unsafe fn copy_8(to: *mut u8, from: *const u8) {
        // SAFETY: 8 bytes are read and written, which the contract names, and no other memory.
        unsafe { copy(to, from, 8) };
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
                // SAFETY: both buffers have `from + len` and `to + len` bytes, and are two.
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
