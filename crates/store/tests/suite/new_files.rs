//! A file made by a store: its blocks and its name are durable before it is opened, or the file is
//! not there.

use std::collections::BTreeMap;

use rustix::fs::OFlags;
use rustix::io::Errno;
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule, apply_filter};
use verbline_store::{FileSpec, FileStore};

use crate::common::failing;

/// The opening of a folder.
fn opening_of_a_folder() -> BTreeMap<i64, Vec<SeccompRule>> {
    let flag = u64::from(OFlags::DIRECTORY.bits());
    let of_flags = |argument| {
        let asks = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag);
        vec![SeccompRule::new(vec![asks.unwrap()]).unwrap()]
    };
    let mut calls = BTreeMap::from([(libc::SYS_openat, of_flags(2))]);
    #[cfg(target_arch = "x86_64")]
    calls.insert(libc::SYS_open, of_flags(1));
    calls
}

/// A crash right after the first acknowledged write would leave a file without a name.
#[test]
fn a_file_whose_blocks_or_name_can_not_be_synced_is_not_made() {
    let cases = [
        ("fsync(2)", failing([(libc::SYS_fsync, Vec::new())], Errno::IO)),
        ("open(2) of its folder, to sync that", failing(opening_of_a_folder(), Errno::IO)),
    ];
    for (what, filter) in cases {
        let folder = tempfile::tempdir().unwrap();
        let spec = FileSpec { create_bytes: Some(1 << 20), ..FileSpec::new(folder.path().join("new"), 4096, 8) };
        let opened = std::thread::spawn(move || {
            apply_filter(&filter).unwrap();
            FileStore::open(&spec).map(drop)
        });
        let error = opened.join().unwrap().expect_err(what).to_string();
        assert!(error.contains("Input/output error"), "{what}: {error}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "{what}: nothing is left");
    }
}
