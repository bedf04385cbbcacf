//! Errors of verbs: the verb, its object, the errno by name, and advice.
//!
//! libibverbs reports failure in three ways: NULL with `errno` set, an errno returned, or -1 with
//! `errno` set (man pages of each verb). All three become one error here, so that a message does
//! not depend on the way it was reported.

use std::borrow::Cow;
use std::fmt;

/// An errno value, printed as its name and the system's description.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// The number, as in `errno.h`.
    pub fn raw(self) -> i32 {
        self.0
    }

    pub(crate) fn new(raw: i32) -> Errno {
        Errno(raw)
    }

    /// Returns the calling thread's `errno`, as the last failed call left it.
    pub(crate) fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// Reads the result of a verb that returns an `int`; `None` on success. Some verbs return the
    /// errno, some -1 with `errno` set, and a few drivers the errno negated.
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
    /// The verb's name in libibverbs.
    pub verb: &'static str,
    /// The object of the call: names and requested values.
    pub object: String,
    /// The errno of the call.
    pub errno: Errno,
    /// Advice that usually helps; empty when none is known.
    pub advice: Cow<'static, str>,
}

impl VerbError {
    pub(crate) fn new(verb: &'static str, object: impl Into<String>, errno: Errno) -> VerbError {
        VerbError { verb, object: object.into(), errno, advice: advice(verb, errno) }
    }

    /// The error of a verb that returned NULL (or -1) and left the reason in `errno`. Call it
    /// before anything else can change `errno`: the object is formatted after `errno` is read.
    pub(crate) fn last<S: Into<String>>(verb: &'static str, object: impl FnOnce() -> S) -> VerbError {
        let errno = Errno::last();
        VerbError::new(verb, object(), errno)
    }

    /// Returns `Ok` when the verb's `int` says success.
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

/// Advice that usually helps. Callers that know more about the call replace it
/// ([`VerbError::advise`]).
fn advice(verb: &'static str, errno: Errno) -> Cow<'static, str> {
    let not_offered = matches!(errno.raw(), libc::EOPNOTSUPP | libc::ENOSYS);
    let of_this_verb = match verb {
        "ibv_open_device" => opening(errno),
        "ibv_create_comp_channel" | "eventfd" => making_descriptors(errno),
        "ibv_alloc_td" | "ibv_alloc_parent_domain" if not_offered => {
            "this device has no thread domains: make the QPs on the PD itself, and the driver takes its locks"
        }
        "ibv_alloc_td" | "ibv_alloc_parent_domain" if matches!(errno.raw(), libc::ENOMEM | libc::ENOSPC) => {
            "the device has no more doorbells for thread domains: make the QPs on the PD itself, and the driver takes \
             its locks"
        }
        "ibv_reg_mr" => registering(errno),
        "ibv_rereg_mr" => reregistering(errno),
        "ibv_modify_qp" | "ibv_create_ah" => connecting(errno),
        "ibv_query_port" | "ibv_query_gid" | "ibv_query_gid_ex" | "ibv_query_pkey" if errno.raw() == libc::EINVAL => {
            "there is no such port or entry: `devices` lists what there is"
        }
        _ => "",
    };
    if of_this_verb.is_empty() { of_any_verb(errno) } else { of_this_verb }.into()
}

fn of_any_verb(errno: Errno) -> &'static str {
    match errno.raw() {
        libc::EMFILE => "too many open files: raise the limit with `ulimit -n`",
        libc::ENFILE => "too many open files on this machine: see /proc/sys/fs/file-max",
        libc::ENODEV | libc::ENXIO => "the device is gone or its driver is not loaded: see `rdma link` and `dmesg`",
        libc::EIO => "the device or its driver failed: see `dmesg`",
        libc::EOPNOTSUPP | libc::ENOSYS => "this device does not offer it",
        libc::ENOMEM | libc::ENOSPC => {
            "the machine's memory, the locked memory (`ulimit -l`) or something of the device (limits in DeviceAttr) \
             is used up"
        }
        libc::EBUSY => "what was made from it, or is attached to it, is still there: drop that first",
        libc::EAGAIN | libc::EINTR => "the moment was wrong: try again",
        _ => "",
    }
}

fn opening(errno: Errno) -> &'static str {
    match errno.raw() {
        libc::EACCES | libc::EPERM => {
            "opening /dev/infiniband/uverbs* needs read and write permission: join the group that owns it, or run as \
             root"
        }
        _ => "",
    }
}

/// What the software RNIC asks the kernel for when it is opened, and where a queue or a connection
/// gets a descriptor of its own.
pub(crate) fn making_descriptors(errno: Errno) -> &'static str {
    match errno.raw() {
        libc::EACCES | libc::EPERM | libc::ENOSYS => {
            "a seccomp filter refuses eventfd2(2) or epoll_create1(2): allow them (`--security-opt seccomp=PROFILE` of \
             a container, `SystemCallFilter=@io-event` in the systemd unit)"
        }
        _ => of_any_verb(errno),
    }
}

fn registering(errno: Errno) -> &'static str {
    match errno.raw() {
        libc::EINVAL => {
            "the device does not take this access, or a region so long (DeviceAttr::max_mr_bytes): ask for less"
        }
        libc::EFAULT => "the memory is not mapped, or is read-only and shall be written: map it so",
        _ => "",
    }
}

fn reregistering(errno: Errno) -> &'static str {
    match errno.raw() {
        libc::EOPNOTSUPP | libc::ENOSYS => {
            "this device can't change a registration, which is as it was: drop it and register again"
        }
        _ => registering(errno),
    }
}

fn connecting(errno: Errno) -> &'static str {
    match errno.raw() {
        libc::EINVAL => {
            "a value is beyond what the device takes: hold the port, GID and P_Key indexes and the MTU against \
             `devices`, and READs and atomics against DeviceAttr::max_qp_rd_atomic"
        }
        libc::EPERM | libc::EACCES => "Q_Keys from 0x80000000 on take CAP_NET_RAW: take a lower one",
        libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH => {
            "nobody answers at the peer's address: try `ping`, and take the GID index of an address on the peer's \
             network"
        }
        _ => "",
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
        let plain = VerbError::new("ibv_destroy_qp", "QP 0x11", Errno::new(libc::EFAULT));
        assert_eq!(plain.to_string(), "ibv_destroy_qp of QP 0x11: EFAULT (Bad address)");
    }

    #[test]
    fn the_software_rnic_is_refused_descriptors_by_a_filter_and_by_no_file_of_a_card() {
        for verb in ["ibv_create_comp_channel", "eventfd"] {
            let said = VerbError::new(verb, "it", Errno::new(libc::EPERM)).to_string();
            assert!(said.contains("a seccomp filter refuses eventfd2(2)"), "{said}");
        }
        assert!(making_descriptors(Errno::new(libc::EMFILE)).contains("ulimit -n"));
    }

    #[test]
    fn what_the_control_path_meets_comes_with_what_to_do() {
        let met = [
            ("ibv_open_device", libc::EPERM),
            ("ibv_open_device", libc::ENODEV),
            ("ibv_query_device_ex", libc::EIO),
            ("ibv_query_gid", libc::EINVAL),
            ("ibv_alloc_pd", libc::ENOMEM),
            ("ibv_alloc_td", libc::EOPNOTSUPP),
            ("ibv_alloc_td", libc::ENOMEM),
            ("ibv_alloc_parent_domain", libc::ENOSYS),
            ("ibv_reg_mr", libc::EINVAL),
            ("ibv_reg_mr", libc::EFAULT),
            ("ibv_rereg_mr", libc::EOPNOTSUPP),
            ("ibv_rereg_mr", libc::EINVAL),
            ("ibv_rereg_mr", libc::EBUSY),
            ("ibv_modify_qp", libc::EINVAL),
            ("ibv_modify_qp", libc::EPERM),
            ("ibv_modify_qp", libc::ETIMEDOUT),
            ("ibv_modify_qp", libc::EOPNOTSUPP),
            ("ibv_create_ah", libc::EHOSTUNREACH),
            ("ibv_create_comp_channel", libc::EMFILE),
            ("ibv_create_comp_channel", libc::ENFILE),
            ("ibv_modify_srq", libc::ENOSYS),
            ("ibv_resize_cq", libc::EAGAIN),
        ];
        let said = met.map(|(verb, errno)| VerbError::new(verb, "it", Errno::new(errno)));
        assert!(said.iter().all(|error| !error.advice.is_empty()), "{said:#?}");
        let said = said.map(|error| error.to_string());
        let expected = [
            "ibv_open_device of it: EPERM (Operation not permitted); opening /dev/infiniband/uverbs* needs read and \
             write permission: join the group that owns it, or run as root",
            "ibv_open_device of it: ENODEV (No such device); the device is gone or its driver is not loaded: see \
             `rdma link` and `dmesg`",
            "ibv_query_device_ex of it: EIO (Input/output error); the device or its driver failed: see `dmesg`",
            "ibv_query_gid of it: EINVAL (Invalid argument); there is no such port or entry: `devices` lists what \
             there is",
            "ibv_alloc_pd of it: ENOMEM (Cannot allocate memory); the machine's memory, the locked memory (`ulimit \
             -l`) or something of the device (limits in DeviceAttr) is used up",
            "ibv_alloc_td of it: EOPNOTSUPP (Operation not supported); this device has no thread domains: make the \
             QPs on the PD itself, and the driver takes its locks",
            "ibv_alloc_td of it: ENOMEM (Cannot allocate memory); the device has no more doorbells for thread \
             domains: make the QPs on the PD itself, and the driver takes its locks",
            "ibv_alloc_parent_domain of it: ENOSYS (Function not implemented); this device has no thread domains: \
             make the QPs on the PD itself, and the driver takes its locks",
            "ibv_reg_mr of it: EINVAL (Invalid argument); the device does not take this access, or a region so long \
             (DeviceAttr::max_mr_bytes): ask for less",
            "ibv_reg_mr of it: EFAULT (Bad address); the memory is not mapped, or is read-only and shall be written: \
             map it so",
            "ibv_rereg_mr of it: EOPNOTSUPP (Operation not supported); this device can't change a registration, which \
             is as it was: drop it and register again",
            "ibv_rereg_mr of it: EINVAL (Invalid argument); the device does not take this access, or a region so long \
             (DeviceAttr::max_mr_bytes): ask for less",
            "ibv_rereg_mr of it: EBUSY (Device or resource busy); what was made from it, or is attached to it, is \
             still there: drop that first",
            "ibv_modify_qp of it: EINVAL (Invalid argument); a value is beyond what the device takes: hold the port, \
             GID and P_Key indexes and the MTU against `devices`, and READs and atomics against \
             DeviceAttr::max_qp_rd_atomic",
            "ibv_modify_qp of it: EPERM (Operation not permitted); Q_Keys from 0x80000000 on take CAP_NET_RAW: take a \
             lower one",
            "ibv_modify_qp of it: ETIMEDOUT (Connection timed out); nobody answers at the peer's address: try `ping`, \
             and take the GID index of an address on the peer's network",
            "ibv_modify_qp of it: EOPNOTSUPP (Operation not supported); this device does not offer it",
            "ibv_create_ah of it: EHOSTUNREACH (No route to host); nobody answers at the peer's address: try `ping`, \
             and take the GID index of an address on the peer's network",
            "ibv_create_comp_channel of it: EMFILE (Too many open files); too many open files: raise the limit with \
             `ulimit -n`",
            "ibv_create_comp_channel of it: ENFILE (Too many open files in system); too many open files on this \
             machine: see /proc/sys/fs/file-max",
            "ibv_modify_srq of it: ENOSYS (Function not implemented); this device does not offer it",
            "ibv_resize_cq of it: EAGAIN (Resource temporarily unavailable); the moment was wrong: try again",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn each_convention_of_failure_is_understood() {
        assert_eq!(Errno::of_return(0), None);
        assert_eq!(Errno::of_return(libc::EINVAL), Some(Errno(libc::EINVAL)));
        assert_eq!(Errno::of_return(-libc::EINVAL), Some(Errno(libc::EINVAL)));
    }
}
