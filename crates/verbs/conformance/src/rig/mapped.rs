//! Memory with less behind it than its range: a long range that repeats a few pages; and one page
//! that every thread of the suite reaches.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use crate::check::{Failure, Outcome};

/// The length of the repeated part.
const PERIOD_BYTES: usize = 2 << 20;
/// The end of the range, which differs from the rest.
const TAIL_BYTES: usize = 4096;

/// A page that lives for ever.
#[repr(align(4096))]
struct SharedPage([AtomicU64; 512]);

static SHARED: SharedPage = SharedPage([const { AtomicU64::new(0) }; 512]);

/// The page that all callers share, and its length.
pub(super) fn shared() -> (NonNull<u8>, usize) {
    (NonNull::from(&SHARED.0).cast(), size_of::<SharedPage>())
}

/// Maps a range of `bytes`, a multiple of 2 MiB: the same 2 MiB again and again, except the last
/// page.
pub(super) fn repeated(bytes: usize) -> Outcome<NonNull<u8>> {
    let failed = |what: &str| Failure::new(format!("{what}: {}", std::io::Error::last_os_error()));
    // SAFETY: the name is a string, and the descriptor that comes back is ours.
    let fd = unsafe { libc::memfd_create(c"conformance".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(failed("memfd_create"));
    }
    // SAFETY: just opened, and owned by nobody else.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a descriptor and a number.
    if unsafe { libc::ftruncate(file.as_raw_fd(), (PERIOD_BYTES + TAIL_BYTES) as libc::off_t) } != 0 {
        return Err(failed("ftruncate"));
    }
    let map = |at: *mut libc::c_void, len: usize, flags: i32, fd: i32, offset: usize| {
        let protection = if fd < 0 { libc::PROT_NONE } else { libc::PROT_READ | libc::PROT_WRITE };
        // SAFETY: a new range, or, by MAP_FIXED, a part of the range that this function reserved
        // and has not handed out.
        let mapped = unsafe { libc::mmap(at, len, protection, flags, fd, offset as libc::off_t) };
        if mapped == libc::MAP_FAILED { Err(failed("mmap")) } else { Ok(mapped) }
    };
    let start = map(ptr::null_mut(), bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0)?;
    let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
    for offset in (0..bytes).step_by(PERIOD_BYTES) {
        map(start.wrapping_byte_add(offset), PERIOD_BYTES, fixed, file.as_raw_fd(), 0)?;
    }
    map(start.wrapping_byte_add(bytes - TAIL_BYTES), TAIL_BYTES, fixed, file.as_raw_fd(), PERIOD_BYTES)?;
    Ok(NonNull::new(start.cast()).expect("mmap gives no null"))
}

/// Unmaps a range of [`repeated`].
pub(super) fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller owns the whole range, which `repeated` mapped, and drops it once.
    unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
}
