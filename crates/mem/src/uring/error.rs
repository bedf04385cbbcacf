//! Why there is no ring, and what to do about it.

use std::io;

/// Why a ring could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel has no io_uring.
    #[error(
        "this kernel has no io_uring (io_uring_setup(2) says ENOSYS): Linux 5.6 or later is needed, with \
         CONFIG_IO_URING; or a sandbox such as gVisor hides it"
    )]
    NoKernelSupport,
    /// The kernel has it, and this process may not use it.
    #[error(
        "this process may not use io_uring (io_uring_setup(2) says {source}): sysctl kernel.io_uring_disabled is \
         {disabled}{}", mend(.disabled)
    )]
    Forbidden {
        /// The kernel's error.
        source: io::Error,
        /// The value of the sysctl.
        disabled: String,
    },
    /// A depth that no ring has.
    #[error("a ring of depth {depth}: it must be from 1 to 16384")]
    Depth {
        /// The requested depth.
        depth: u32,
    },
    /// Any other call refused.
    #[error("{call} failed for a ring of depth {depth}: {source}; {remedy}")]
    System {
        /// The call.
        call: &'static str,
        /// The ring's depth.
        depth: u32,
        /// The kernel's error.
        source: io::Error,
        /// A hint where to look.
        remedy: &'static str,
    },
}

/// Who forbids it, and how to mend that. With 1, the sysctl forbids it to some users only.
fn mend(disabled: &str) -> &'static str {
    match disabled {
        "0" => {
            ", so a seccomp filter forbids it, as container runtimes do: allow io_uring_setup, io_uring_enter and \
             io_uring_register in its profile (docker: --security-opt seccomp=PROFILE)"
        }
        "2" => ": run `sysctl -w kernel.io_uring_disabled=0` as root",
        _ => {
            ": run `sysctl -w kernel.io_uring_disabled=0` as root; where that is not it, a seccomp filter forbids \
             io_uring, as container runtimes do: allow io_uring_setup, io_uring_enter and io_uring_register in its \
             profile (docker: --security-opt seccomp=PROFILE)"
        }
    }
}

impl RingError {
    /// Makes the error of io_uring_setup(2).
    pub(super) fn of_setup(source: io::Error, depth: u32) -> RingError {
        match source.raw_os_error() {
            Some(libc::ENOSYS) => RingError::NoKernelSupport,
            Some(libc::EPERM | libc::EACCES) => {
                let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
                let disabled = disabled.map_or_else(|_| "not known".to_owned(), |text| text.trim().to_owned());
                RingError::Forbidden { source, disabled }
            }
            Some(libc::ENOMEM) => RingError::System {
                call: "io_uring_setup(2)",
                depth,
                source,
                remedy: "raise `ulimit -l` (memory that may be locked), or ask for less depth",
            },
            _ => RingError::System {
                call: "io_uring_setup(2)",
                depth,
                source,
                remedy: "Linux 5.6 or later is needed, and room for one more open file (`ulimit -n`)",
            },
        }
    }
}
