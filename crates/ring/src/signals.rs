//! Which signals a thread hears.
//!
//! A signal to a process goes to any thread that does not block it. In a thread that polls, its
//! handler would run in the middle of a turn, and a sleep would end early.
#![allow(unsafe_code, reason = "signal masks are pthread_sigmask(3)'s, which no safe wrapper here has")]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// What a thread raises itself, by a fault in its own code; and what profilers count its time by.
const HEARD: [libc::c_int; 9] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGPROF,
    libc::SIGVTALRM,
];

/// Has the calling thread, and the threads that it starts from now on, hear no signal but those of
/// its own faults and of profilers. Another thread of the process hears the others.
///
/// # Errors
/// The kernel refused, e.g. by a seccomp filter.
pub fn block() -> io::Result<()> {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset(3) writes the whole set, before anything reads it; `blocked` is this
    // function's own.
    let mut blocked = unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        blocked.assume_init()
    };
    for signal in HEARD {
        // SAFETY: the set was written whole above, and the signal is a valid number of the C
        // library's.
        unsafe { libc::sigdelset(&raw mut blocked, signal) };
    }
    // SAFETY: the set is written whole, and the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn mask() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    #[test]
    fn a_thread_hears_only_its_own_faults_and_profilers() {
        let others = mask();
        let within = std::thread::spawn(|| {
            block().unwrap();
            mask()
        });
        let within = within.join().unwrap();
        let is_blocked = |signal: libc::c_int| within & (1 << (signal - 1)) != 0;
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD, libc::SIGALRM] {
            assert!(is_blocked(signal), "{signal}: {within:x}");
        }
        assert!(HEARD.iter().all(|signal| !is_blocked(*signal)), "{within:x}");
        assert_eq!(mask(), others, "of this thread alone");
    }
}
