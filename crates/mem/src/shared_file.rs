//! The file behind a shared region: memory without a name in any folder, whose length is sealed at
//! once, and its pages when all have it.

use std::fs::File;
use std::io;

use rustix::fs::{MemfdFlags, SealFlags};

use crate::pages::PageSize;

/// Makes a memfd of `len` bytes on pages of that size (memfd_create(2)), sealed against shrinking
/// and growing: its length stays, so no access to the mapping is beyond its end (SIGBUS). Its pages
/// do not: who may write the file may also punch holes into it (fallocate(2), madvise(2) with
/// `MADV_REMOVE`), until it is [sealed](seal) against that too.
pub(crate) fn create(name: &str, page: PageSize, len: usize) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | huge_flags(page);
    // The name only shows in /proc/self/fd; memfd_create takes no NUL and at most 249 bytes.
    let label: String = name.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
    let file = File::from(rustix::fs::memfd_create(format!("verbline:{label}"), flags)?);
    file.set_len(len as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// No new mapping may write the file from now on, no descriptor either, and nobody punches holes;
/// mappings that are there go on as before (`F_SEAL_FUTURE_WRITE`, Linux 5.1, fcntl(2)). No further
/// seal can be set.
pub(crate) fn seal(file: &File) -> rustix::io::Result<()> {
    rustix::fs::fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
}

/// Whether [`seal`] was done, by whomever.
pub(crate) fn is_sealed(file: &File) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::FUTURE_WRITE))
}

fn huge_flags(page: PageSize) -> MemfdFlags {
    match page {
        PageSize::Small4K => MemfdFlags::empty(),
        PageSize::Huge2M => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        PageSize::Huge1G => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
    }
}
