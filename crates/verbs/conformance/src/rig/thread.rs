//! The kernel's data on a thread.

/// How often the calling thread has given up its CPU to wait.
pub(crate) fn waits_of_this_thread() -> i64 {
    // SAFETY: integers only.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` may be written.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw
}

/// The calling thread's number.
pub(super) fn own_id() -> i32 {
    // SAFETY: takes nothing and can't fail.
    unsafe { libc::gettid() }
}

/// Whether a thread of this process sleeps in a system call.
pub(super) fn sleeps(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).unwrap_or_default();
    // The state follows the name, which is in brackets and may have spaces.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
}
