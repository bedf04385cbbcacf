//! Moves for every x86-64.

use std::arch::asm;

/// Below this, moves of 16 bytes beat `rep movsb`, whose start-up is some 30 cycles on Zen 4.
const STRING_BYTES_MIN: usize = 512;

/// Copies 65 bytes or more, without AVX.
///
/// # Safety
/// The contract of [`copy`](crate::copy::copy).
pub(crate) unsafe fn narrow(to: *mut u8, from: *const u8, len: usize) {
    debug_assert!(len > 64);
    // SAFETY: each part lies inside the ranges of the contract.
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
/// The contract of [`copy`](crate::copy::copy); `len` ≤ 64.
#[inline(always)]
pub(crate) unsafe fn copy_small(to: *mut u8, from: *const u8, len: usize) {
    debug_assert!(len <= 64);
    // SAFETY: each move stays inside 0..len, the ranges of the contract.
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
/// The contract of [`copy`](crate::copy::copy), for 32 bytes.
#[inline(always)]
pub(crate) unsafe fn copy_32(to: *mut u8, from: *const u8) {
    // SAFETY: reads and writes the 32 bytes of the contract, and no other memory.
    unsafe { pair(to, from) };
}

/// Copies 8 bytes.
///
/// # Safety
/// The contract of [`copy`](crate::copy::copy), for 8 bytes.
#[inline(always)]
pub(crate) unsafe fn copy_8(to: *mut u8, from: *const u8) {
    // SAFETY: reads and writes the 8 bytes of the contract, and no other memory.
    unsafe {
        asm!(
            "mov {a}, [{from}]",
            "mov [{to}], {a}",
            a = out(reg) _, from = in(reg) from, to = in(reg) to,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies `len` bytes, rounded up to a multiple of 32; the caller has the bytes beyond `len`.
///
/// # Safety
/// The contract of [`copy`](crate::copy::copy), for `len` rounded up to a multiple of 32.
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
    // SAFETY: reads and writes the 32 bytes of the contract, and no other memory.
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
    // SAFETY: reads and writes the `second` + 16 bytes of the contract, and no other memory.
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
    // SAFETY: reads and writes the `second` + 8 bytes of the contract, and no other memory.
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
    // SAFETY: reads and writes the `second` + 4 bytes of the contract, and no other memory.
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
        // SAFETY: reads and writes the `len` bytes of the contract, and no other memory.
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
    // SAFETY: reads and writes the `len` bytes of the contract; the direction flag is clear by the
    // ABI.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") len => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}
