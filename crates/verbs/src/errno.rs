//! What a failed verb says: which verb, on what, the errno by name, and what to do about it.
//!
//! libibverbs reports failure in three ways: NULL with `errno` set, an errno returned, or -1 with `errno` set
//! (man pages of each verb). All three end here, so that a message never depends on which one it was.

use std::borrow::Cow;
use std::fmt;

/// An errno value, printed by its name and the system's description of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// The value as `errno.h` numbers it.
    pub fn raw(self) -> i32 {
        self.0
    }

    pub(crate) fn new(raw: i32) -> Errno {
        Errno(raw)
    }

    /// The calling thread's `errno`, as the last failed call left it.
    pub(crate) fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// What a verb that returns an `int` meant: `None` on success. Some verbs return the errno, some -1 with `errno`
    /// set, and a few drivers the errno negated.
    pub(crate) fn of_return(ret: libc::c_int) -> Option<Errno> {
        match ret {
            0 => None,
            -1 => Some(Errno::last()),
            ret => Some(Errno(ret.wrapping_abs())),
        }
    }

    fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            libc::EPERM => "EPERM",
            libc::ENOENT => "ENOENT",
            libc::EINTR => "EINTR",
            libc::EIO => "EIO",
            libc::ENXIO => "ENXIO",
            libc::EAGAIN => "EAGAIN",
            libc::ENOMEM => "ENOMEM",
            libc::EACCES => "EACCES",
            libc::EFAULT => "EFAULT",
            libc::EBUSY => "EBUSY",
            libc::EEXIST => "EEXIST",
            libc::ENODEV => "ENODEV",
            libc::EINVAL => "EINVAL",
            libc::ENFILE => "ENFILE",
            libc::EMFILE => "EMFILE",
            libc::ENOSPC => "ENOSPC",
            libc::ENOSYS => "ENOSYS",
            libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            libc::EADDRINUSE => "EADDRINUSE",
            libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
            libc::ENETUNREACH => "ENETUNREACH",
            libc::ECONNREFUSED => "ECONNREFUSED",
            libc::ECONNRESET => "ECONNRESET",
            libc::EHOSTUNREACH => "EHOSTUNREACH",
            libc::ETIMEDOUT => "ETIMEDOUT",
            _ => return None,
        })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        let text = text.split(" (os error").next().unwrap_or(&text);
        match self.name() {
            Some(name) => write!(f, "{name} ({text})"),
            None => write!(f, "errno {} ({text})", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A verb that the device or the kernel refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{verb} of {object}: {errno}{}{advice}", if advice.is_empty() { "" } else { "; " })]
pub struct VerbError {
    /// The verb, as libibverbs names it.
    pub verb: &'static str,
    /// What it was called for: names and the values that were asked.
    pub object: String,
    /// What it answered.
    pub errno: Errno,
    /// What usually helps; empty when nothing is known.
    pub advice: Cow<'static, str>,
}

impl VerbError {
    pub(crate) fn new(verb: &'static str, object: impl Into<String>, errno: Errno) -> VerbError {
        VerbError { verb, object: object.into(), errno, advice: advice(verb, errno) }
    }

    /// The error of a verb that returned NULL (or -1) and left the reason in `errno`. Call it before anything else can
    /// change `errno`: the object is formatted after `errno` is read.
    pub(crate) fn last<S: Into<String>>(verb: &'static str, object: impl FnOnce() -> S) -> VerbError {
        let errno = Errno::last();
        VerbError::new(verb, object(), errno)
    }

    /// `Ok` when the verb's `int` says success.
    pub(crate) fn check<S: Into<String>>(
        verb: &'static str,
        ret: libc::c_int,
        object: impl FnOnce() -> S,
    ) -> Result<(), VerbError> {
        match Errno::of_return(ret) {
            None => Ok(()),
            Some(errno) => Err(VerbError::new(verb, object(), errno)),
        }
    }

    pub(crate) fn advise(mut self, advice: impl Into<Cow<'static, str>>) -> VerbError {
        self.advice = advice.into();
        self
    }
}

fn advice(verb: &'static str, errno: Errno) -> Cow<'static, str> {
    match errno.raw() {
        libc::EMFILE => "too many open files: raise the limit with `ulimit -n`".into(),
        libc::ENODEV | libc::ENXIO => {
            "the device is gone or its driver is not loaded: see `rdma link` and `dmesg`".into()
        }
        libc::EACCES | libc::EPERM if verb == "ibv_open_device" => {
            "opening /dev/infiniband/uverbs* needs read and write permission: join the group that owns it, or run as root"
                .into()
        }
        libc::EOPNOTSUPP | libc::ENOSYS => "this device does not offer it".into(),
        _ => "".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_is_printed_by_name_and_meaning() {
        assert_eq!(Errno::new(libc::ENOMEM).to_string(), "ENOMEM (Cannot allocate memory)");
        assert_eq!(Errno::new(libc::EXDEV).to_string(), "errno 18 (Invalid cross-device link)");
    }

    #[test]
    fn a_message_names_verb_object_value_and_remedy() {
        let error = VerbError::new("ibv_open_device", "mlx5_0", Errno::new(libc::EACCES));
        assert_eq!(
            error.to_string(),
            "ibv_open_device of mlx5_0: EACCES (Permission denied); opening /dev/infiniband/uverbs* needs read and \
             write permission: join the group that owns it, or run as root"
        );
        let plain = VerbError::new("ibv_destroy_qp", "QP 0x11", Errno::new(libc::EBUSY));
        assert_eq!(plain.to_string(), "ibv_destroy_qp of QP 0x11: EBUSY (Device or resource busy)");
    }

    #[test]
    fn each_convention_of_failure_is_understood() {
        assert_eq!(Errno::of_return(0), None);
        assert_eq!(Errno::of_return(libc::EINVAL), Some(Errno(libc::EINVAL)));
        assert_eq!(Errno::of_return(-libc::EINVAL), Some(Errno(libc::EINVAL)));
    }
}
