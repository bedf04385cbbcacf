//! `without WHAT… -- COMMAND…`: runs a command from which a seccomp filter takes system calls, as a
//! container's profile does.
//!
//! WHAT is `membarrier`, `mlock` (and mlock2), `hugepages` (mmap(2) with MAP_HUGETLB, which then
//! finds no memory), `threads` (clone3(2), as where a limit of threads is reached), `pinning`
//! (sched_setaffinity(2)), `ppoll`, or `epoll_pwait2` (which Linux before 5.11 lacks).
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut parts = arguments.splitn(2, |argument| argument == "--");
    let (what, command) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Some((program, rest)) = command.split_first().filter(|_| !what.is_empty()) else {
        eprintln!("without: without WHAT… -- COMMAND…");
        return ExitCode::from(125);
    };
    if let Err(error) = what.iter().try_for_each(|what| refuse(what)) {
        eprintln!("without: {error}");
        return ExitCode::from(125);
    }
    let error = Command::new(program).args(rest).exec();
    eprintln!("without: {program}: {error}");
    ExitCode::from(126)
}

fn refuse(what: &str) -> Result<(), Box<dyn Error>> {
    let whole = |calls: &[i64]| calls.iter().map(|call| (*call, Vec::new())).collect::<Rules>();
    let (rules, errno) = match what {
        "membarrier" => (whole(&[libc::SYS_membarrier]), libc::EPERM),
        "mlock" => (whole(&[libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_mlockall]), libc::EPERM),
        "hugepages" => {
            let flag = libc::MAP_HUGETLB as u64;
            // The flags are the fourth argument of mmap(2).
            let is_huge = SeccompCondition::new(3, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)?;
            (Rules::from([(libc::SYS_mmap, vec![SeccompRule::new(vec![is_huge])?])]), libc::ENOMEM)
        }
        "eventfd" => (whole(&[libc::SYS_eventfd2]), libc::EPERM),
        "pinning" => (whole(&[libc::SYS_sched_setaffinity]), libc::EPERM),
        "ppoll" => (whole(&[libc::SYS_ppoll]), libc::EPERM),
        "epoll_pwait2" => (whole(&[libc::SYS_epoll_pwait2]), libc::ENOSYS),
        // The C library uses it for a thread, but not to start a program.
        "threads" => (whole(&[libc::SYS_clone3]), libc::EAGAIN),
        other => return Err(format!("cannot take away `{other}`").into()),
    };
    let refusal = SeccompAction::Errno(errno as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, std::env::consts::ARCH.try_into()?)?;
    Ok(seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?)
}
