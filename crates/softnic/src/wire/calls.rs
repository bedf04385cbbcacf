//! The system calls of a turn.
//!
//! They avoid the C library's functions of these names: those are cancellation points
//! (pthreads(7)), for which each makes two locked operations in a process of several threads. A
//! poll that finds nothing is little more than one such call.

use std::ffi::c_long;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `recvfrom(2)`, without waiting.
///
/// # Safety
/// The name has that many writable bytes.
pub(super) unsafe fn recvfrom(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    name: *mut libc::sockaddr,
    name_bytes: usize,
) -> c_long {
    let (first, len) = (bytes.as_mut_ptr(), bytes.len());
    let mut name_bytes = name_bytes as libc::socklen_t;
    let len_of_name = &raw mut name_bytes;
    // SAFETY: the arguments of recvfrom(2); the caller guarantees the rest.
    unsafe { libc::syscall(libc::SYS_recvfrom, number(socket), first, len, FLAGS, name, len_of_name) }
}

/// `recvmsg(2)`, without waiting.
///
/// # Safety
/// The header points to writable memory, with its lengths.
pub(super) unsafe fn recvmsg(socket: BorrowedFd<'_>, header: *mut libc::msghdr) -> c_long {
    // SAFETY: the arguments of recvmsg(2); the caller guarantees the rest.
    unsafe { libc::syscall(libc::SYS_recvmsg, number(socket), header, FLAGS) }
}

/// `recvmmsg(2)`, without waiting.
///
/// # Safety
/// Every header points to writable memory, with its lengths.
pub(super) unsafe fn recvmmsg(socket: BorrowedFd<'_>, headers: &mut [libc::mmsghdr]) -> c_long {
    let no_timeout = std::ptr::null_mut::<libc::timespec>();
    let (first, count) = (headers.as_mut_ptr(), headers.len() as c_long);
    // SAFETY: the arguments of recvmmsg(2); the caller guarantees the rest.
    unsafe { libc::syscall(libc::SYS_recvmmsg, number(socket), first, count, FLAGS, no_timeout) }
}

/// `sendto(2)`, if there is room.
///
/// # Safety
/// The name has that many bytes.
pub(super) unsafe fn sendto(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    name: *const libc::sockaddr,
    name_bytes: libc::socklen_t,
) -> c_long {
    let (first, len) = (bytes.as_ptr(), bytes.len());
    // SAFETY: the arguments of sendto(2); the caller guarantees the rest.
    unsafe { libc::syscall(libc::SYS_sendto, number(socket), first, len, FLAGS, name, name_bytes as c_long) }
}

/// `sendmsg(2)`, if there is room.
///
/// # Safety
/// The header points to readable memory, with its lengths.
pub(super) unsafe fn sendmsg(socket: BorrowedFd<'_>, header: *const libc::msghdr) -> c_long {
    // SAFETY: the arguments of sendmsg(2); the caller guarantees the rest.
    unsafe { libc::syscall(libc::SYS_sendmsg, number(socket), header, FLAGS) }
}

const FLAGS: c_long = libc::MSG_DONTWAIT as c_long;

fn number(socket: BorrowedFd<'_>) -> c_long {
    socket.as_raw_fd().into()
}
