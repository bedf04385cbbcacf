//! Refusals of verbs.

use crate::check::Failure;
use std::ffi::c_int;
use std::fmt;

/// The refusal of a verb.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) verb: &'static str,
    pub(crate) errno: i32,
}

impl Refused {
    /// A refusal with the thread's errno.
    pub(super) fn last(verb: &'static str) -> Refused {
        Refused { verb, errno: std::io::Error::last_os_error().raw_os_error().unwrap_or(0) }
    }

    /// Reads a verb's result: 0, an errno, or -1 with errno set.
    pub(super) fn check(verb: &'static str, value: c_int) -> Result<(), Refused> {
        match value {
            0 => Ok(()),
            -1 => Err(Refused::last(verb)),
            errno => Err(Refused { verb, errno }),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {}", self.verb, errno_name(self.errno))
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        Failure::new(refused.to_string())
    }
}

/// A post that was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PostRefused {
    verb: &'static str,
    pub(crate) errno: i32,
    /// The index in the list that `bad_wr` points at; `None` if it points elsewhere.
    pub(crate) bad: Option<usize>,
}

impl PostRefused {
    pub(super) fn check(
        verb: &'static str,
        errno: c_int,
        bad: usize,
        base: usize,
        size: usize,
    ) -> Result<(), PostRefused> {
        if errno == 0 {
            return Ok(());
        }
        let errno = if errno == -1 { Refused::last(verb).errno } else { errno };
        let bad = bad.checked_sub(base).filter(|bytes| bytes % size == 0).map(|bytes| bytes / size);
        Err(PostRefused { verb, errno, bad })
    }
}

impl std::fmt::Debug for PostRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} answered {}, bad_wr ", self.verb, errno_name(self.errno))?;
        match self.bad {
            Some(at) => write!(f, "at entry {at}"),
            None => f.write_str("at none of the list"),
        }
    }
}

impl From<PostRefused> for Failure {
    fn from(refused: PostRefused) -> Failure {
        Failure::new(format!("{refused:?}"))
    }
}

/// `EINVAL` for 22, and so on for the errnos that verbs return.
pub(crate) fn errno_name(errno: i32) -> String {
    let name = match errno {
        0 => "success",
        libc::EINVAL => "EINVAL",
        libc::ENOMEM => "ENOMEM",
        libc::EBUSY => "EBUSY",
        libc::EAGAIN => "EAGAIN",
        libc::EFAULT => "EFAULT",
        libc::EPERM => "EPERM",
        libc::EACCES => "EACCES",
        libc::ENOENT => "ENOENT",
        libc::ENOSYS => "ENOSYS",
        libc::ENOSPC => "ENOSPC",
        libc::ENODEV => "ENODEV",
        libc::EEXIST => "EEXIST",
        libc::EMSGSIZE => "EMSGSIZE",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        libc::ENETUNREACH => "ENETUNREACH",
        other => return format!("errno {other}"),
    };
    name.to_owned()
}
