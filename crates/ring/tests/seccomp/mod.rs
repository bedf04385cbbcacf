//! Takes membarrier(2) away from the calling thread and the threads that it starts, like a
//! container's filter.

/// Makes membarrier(2) fail with `ENOSYS` in this thread from now on.
pub(crate) fn refuse_membarrier() {
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let instruction = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    // The number of the system call is the first word of seccomp_data (seccomp(2)).
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_membarrier as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, REFUSE),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: takes no pointers.
    let quiet = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(quiet, 0, "prctl: {}", std::io::Error::last_os_error());
    // SAFETY: `program` and the `filter` it points to live through the call, which copies them.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(set, 0, "seccomp filter: {}", std::io::Error::last_os_error());
}
