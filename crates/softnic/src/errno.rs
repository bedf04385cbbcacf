//! `errno`, the error code of verbs that return a pointer or -1.

use std::ffi::c_int;
use std::ptr::null_mut;

/// Sets `errno` and returns a null pointer.
pub(crate) fn null<T>(code: c_int) -> *mut T {
    set(code);
    null_mut()
}

/// Sets `errno` and returns -1.
pub(crate) fn minus_one(code: c_int) -> c_int {
    set(code);
    -1
}

fn set(code: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = code };
}

/// The current `errno`.
pub(crate) fn last() -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}
