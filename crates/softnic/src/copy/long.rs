//! Methods to copy 65 bytes or more; [`crate::copy::tuning`] chooses the one for this CPU.
//!
//! Guarantees, as [`super`]: the last 64 bytes are stored last. The first moves align the target to
//! their width: stores that straddle lines cost two cycles (Zen 4, 4 KiB: 117 GB/s instead of 83).

use super::x86::{pair, string};
use std::arch::asm;

/// From here on `rep movsb`, where it is chosen. Shorter copies often have both ends in the first
/// cache, where moves are faster.
pub(crate) const STRING_BYTES_MIN: usize = 8 << 10;

/// Moves of 32 bytes.
///
/// # Safety
/// The contract of [`super::copy`]; `len` > 64; the CPU has AVX.
#[target_feature(enable = "avx")]
pub(crate) unsafe fn by_32(to: *mut u8, from: *const u8, len: usize) {
    debug_assert!(len > 64);
    // SAFETY: each move lies inside 0..len, the ranges of the contract, which also names the
    // instructions of this CPU.
    unsafe {
        let mut at = to.addr().wrapping_neg() % 32;
        if at > 0 {
            pair(to, from);
        }
        let blocks = (len - at) / 256;
        if blocks > 0 {
            blocks_by_32(to.add(at), from.add(at), blocks);
            at += 256 * blocks;
        }
        while at + 64 <= len {
            two_of_32(to.add(at), from.add(at));
            at += 64;
        }
        if at < len {
            two_of_32(to.add(len - 64), from.add(len - 64));
        }
        // Without it, SSE code that follows may wait for the upper halves.
        asm!("vzeroupper", options(nomem, nostack, preserves_flags), clobber_abi("C"));
    }
}

/// Moves of 64 bytes.
///
/// # Safety
/// The contract of [`super::copy`]; `len` > 64; the CPU has AVX-512F.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn by_64(to: *mut u8, from: *const u8, len: usize) {
    debug_assert!(len > 64);
    // SAFETY: each move lies inside 0..len, the ranges of the contract, which also names the
    // instructions of this CPU.
    unsafe {
        let mut at = to.addr().wrapping_neg() % 64;
        if at > 0 {
            one_of_64(to, from);
        }
        let blocks = (len - at) / 256;
        if blocks > 0 {
            blocks_by_64(to.add(at), from.add(at), blocks);
            at += 256 * blocks;
        }
        while at + 64 <= len {
            one_of_64(to.add(at), from.add(at));
            at += 64;
        }
        if at < len {
            one_of_64(to.add(len - 64), from.add(len - 64));
        }
    }
}

/// Moves of 32 bytes, from [`STRING_BYTES_MIN`] on `rep movsb`.
///
/// # Safety
/// The contract of [`by_32`].
#[target_feature(enable = "avx")]
pub(crate) unsafe fn by_32_then_string(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the same ranges and CPU as in the contract.
    unsafe { if len < STRING_BYTES_MIN { by_32(to, from, len) } else { by_string(to, from, len) } }
}

/// Moves of 64 bytes, from [`STRING_BYTES_MIN`] on `rep movsb`.
///
/// # Safety
/// The contract of [`by_64`].
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn by_64_then_string(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the same ranges and CPU as in the contract.
    unsafe { if len < STRING_BYTES_MIN { by_64(to, from, len) } else { by_string(to, from, len) } }
}

/// # Safety
/// The contract of [`super::copy`]; `len` > 128.
unsafe fn by_string(to: *mut u8, from: *const u8, len: usize) {
    let at = to.addr().wrapping_neg() % 64;
    // SAFETY: at < 64, and more than 64 bytes follow it: all inside the ranges of the contract.
    unsafe {
        if at > 0 {
            pair(to, from);
            pair(to.add(32), from.add(32));
        }
        string(to.add(at), from.add(at), len - 64 - at);
        pair(to.add(len - 64), from.add(len - 64));
        pair(to.add(len - 32), from.add(len - 32));
    }
}

/// Copies `blocks` times 256 bytes. Few instructions and few turns, so that the CPU begins the code
/// behind it while the stores are in flight, and predicts the end of the loop.
///
/// # Safety
/// The contract of [`super::copy`], for `blocks` blocks; the CPU has AVX; `blocks` isn't 0.
#[inline]
#[target_feature(enable = "avx")]
unsafe fn blocks_by_32(to: *mut u8, from: *const u8, blocks: usize) {
    // SAFETY: reads and writes exactly the bytes of the contract, which also names the CPU.
    unsafe {
        asm!(
            "2:",
            "vmovups {a}, [{from}]",
            "vmovups {b}, [{from} + 32]",
            "vmovups {c}, [{from} + 64]",
            "vmovups {d}, [{from} + 96]",
            "vmovups [{to}], {a}",
            "vmovups [{to} + 32], {b}",
            "vmovups [{to} + 64], {c}",
            "vmovups [{to} + 96], {d}",
            "vmovups {a}, [{from} + 128]",
            "vmovups {b}, [{from} + 160]",
            "vmovups {c}, [{from} + 192]",
            "vmovups {d}, [{from} + 224]",
            "vmovups [{to} + 128], {a}",
            "vmovups [{to} + 160], {b}",
            "vmovups [{to} + 192], {c}",
            "vmovups [{to} + 224], {d}",
            "add {from}, 256",
            "add {to}, 256",
            "dec {blocks}",
            "jnz 2b",
            a = out(ymm_reg) _, b = out(ymm_reg) _, c = out(ymm_reg) _, d = out(ymm_reg) _,
            from = inout(reg) from => _, to = inout(reg) to => _, blocks = inout(reg) blocks => _,
            options(nostack),
        );
    }
}

/// Like [`blocks_by_32`], in moves of 64. SSE does not know the lower halves of registers from 16
/// on, so nothing has to be cleared afterwards.
///
/// # Safety
/// The contract of [`super::copy`], for `blocks` blocks; the CPU has AVX-512F; `blocks` isn't 0.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn blocks_by_64(to: *mut u8, from: *const u8, blocks: usize) {
    // SAFETY: reads and writes exactly the bytes of the contract, which also names the CPU.
    unsafe {
        asm!(
            "2:",
            "vmovups zmm16, [{from}]",
            "vmovups zmm17, [{from} + 64]",
            "vmovups zmm18, [{from} + 128]",
            "vmovups zmm19, [{from} + 192]",
            "vmovups [{to}], zmm16",
            "vmovups [{to} + 64], zmm17",
            "vmovups [{to} + 128], zmm18",
            "vmovups [{to} + 192], zmm19",
            "add {from}, 256",
            "add {to}, 256",
            "dec {blocks}",
            "jnz 2b",
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            from = inout(reg) from => _, to = inout(reg) to => _, blocks = inout(reg) blocks => _,
            options(nostack),
        );
    }
}

/// # Safety
/// 64 bytes of each; the CPU has AVX.
#[inline]
#[target_feature(enable = "avx")]
unsafe fn two_of_32(to: *mut u8, from: *const u8) {
    // SAFETY: reads and writes the 64 bytes of the contract, which also names the CPU.
    unsafe {
        asm!(
            "vmovups {a}, [{from}]",
            "vmovups {b}, [{from} + 32]",
            "vmovups [{to}], {a}",
            "vmovups [{to} + 32], {b}",
            a = out(ymm_reg) _, b = out(ymm_reg) _, from = in(reg) from, to = in(reg) to,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// 64 bytes of each; the CPU has AVX-512F.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn one_of_64(to: *mut u8, from: *const u8) {
    // SAFETY: reads and writes the 64 bytes of the contract, which also names the CPU.
    unsafe {
        asm!(
            "vmovups zmm16, [{from}]",
            "vmovups [{to}], zmm16",
            out("zmm16") _, from = in(reg) from, to = in(reg) to,
            options(nostack, preserves_flags),
        );
    }
}
