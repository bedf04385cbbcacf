//! A kernel without io_uring, and a process that may not use it: by a seccomp filter on a thread.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use verbline_store::{FileError, FileSpec, FileStore};

/// What opening a store says where io_uring_setup(2) ends with this number.
fn refused_with(errno: i32) -> FileError {
    const IO_URING_SETUP: i64 = 425;
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let rules = BTreeMap::from([(IO_URING_SETUP, Vec::new())]);
    let refuse = SeccompAction::Errno(errno as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into().unwrap());
    let filter: BpfProgram = filter.unwrap().try_into().unwrap();
    let opened = std::thread::spawn(move || {
        apply_filter(&filter).unwrap();
        FileStore::open(&FileSpec::new(file.path(), 4096, 8)).map(drop)
    });
    opened.join().unwrap().unwrap_err()
}

#[test]
fn a_kernel_without_io_uring_is_named_as_such() {
    let text = refused_with(rustix::io::Errno::NOSYS.raw_os_error()).to_string();
    assert!(text.contains("this kernel has no io_uring") && text.contains("Linux 5.6"), "{text}");
}

#[test]
fn a_filter_or_sysctl_that_forbids_it_is_named_with_what_to_do() {
    let text = refused_with(rustix::io::Errno::PERM.raw_os_error()).to_string();
    for part in ["may not use io_uring", "kernel.io_uring_disabled is ", "seccomp", "--security-opt"] {
        assert!(text.contains(part), "no {part:?}: {text}");
    }
}
