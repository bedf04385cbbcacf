//! Runs a program that must have no effect outside its process: a seccomp filter kills it at the
//! first system call that would create something, open it for writing, bind or connect it, or write
//! to anything but standard output and standard error.

use std::collections::BTreeMap;
use std::process::Stdio;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::program::{Finished, Program};
use crate::turn::Turn;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Program {
    /// Runs the program to its end under the filter. SIGSYS ends a program that breaks the rule.
    ///
    /// # Panics
    /// If this machine supports no filter.
    pub fn run_without_effects(&self) -> Finished {
        let (turn, mut command) = (Turn::take(), self.command());
        // A filter applies to a thread, and to the processes that it starts.
        let started = std::thread::scope(|scope| {
            let filtered = || {
                filter().and_then(|filter| Ok(seccompiler::apply_filter(&filter)?)).expect("a seccomp filter");
                self.start_in_turn(&mut command, [Stdio::piped(), Stdio::piped()], turn)
            };
            scope.spawn(filtered).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        started.finish()
    }
}

fn filter() -> Result<BpfProgram, Failure> {
    let mut rules: Rules = WHOLE.iter().map(|call| (*call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend(WHOLE_X86.iter().map(|call| (*call, Vec::new())));
    for call in [libc::SYS_write, libc::SYS_writev, libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2] {
        let is_other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Gt, libc::STDERR_FILENO as u64)?;
        rules.insert(call, vec![SeccompRule::new(vec![is_other])?]);
    }
    rules.insert(libc::SYS_openat, opening(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, opening(1)?);
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::KillProcess, arch)?;
    Ok(filter.try_into()?)
}

/// Matches flags of open(2), in the argument of this number, that ask for more than reading.
fn opening(argument: u8) -> Result<Vec<SeccompRule>, Failure> {
    let flags = [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC];
    let rule = |flag: libc::c_int| {
        let (flag, dword) = (flag as u64, SeccompCmpArgLen::Dword);
        let asks = SeccompCondition::new(argument, dword, SeccompCmpOp::MaskedEq(flag), flag)?;
        Ok(SeccompRule::new(vec![asks])?)
    };
    flags.into_iter().map(rule).collect()
}

/// Calls with effects, whatever their arguments, or whose arguments a filter can't see.
const WHOLE: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_copy_file_range,
    libc::SYS_epoll_create1,
    libc::SYS_eventfd2,
    libc::SYS_fallocate,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_ftruncate,
    libc::SYS_inotify_init1,
    libc::SYS_io_uring_setup,
    libc::SYS_linkat,
    libc::SYS_listen,
    libc::SYS_memfd_create,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_openat2,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_shmget,
    libc::SYS_socket,
    libc::SYS_splice,
    libc::SYS_symlinkat,
    libc::SYS_timerfd_create,
    libc::SYS_truncate,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
];

/// Older forms of these calls, which newer architectures lack.
#[cfg(target_arch = "x86_64")]
const WHOLE_X86: &[i64] = &[
    libc::SYS_creat,
    libc::SYS_epoll_create,
    libc::SYS_eventfd,
    libc::SYS_link,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_symlink,
    libc::SYS_unlink,
];
