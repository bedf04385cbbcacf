//! The file behind a shared region: memory without a name in any folder, whose length is sealed.

use std::fs::File;
use std::io;

use rustix::fs::{MemfdFlags, SealFlags};

use crate::pages::PageSize;

/// Makes a memfd of `len` bytes on pages of that size (memfd_create(2)), sealed against shrinking and growing: a page that is mapped stays there,
/// whatever another holder of the file does.
pub(crate) fn create(name: &str, page: PageSize, len: usize) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | huge_flags(page);
    // The name only shows in /proc/self/fd; memfd_create takes no NUL and at most 249 bytes.
    let label: String = name.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
    let file = File::from(rustix::fs::memfd_create(format!("verbline:{label}"), flags)?);
    file.set_len(len as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

fn huge_flags(page: PageSize) -> MemfdFlags {
    match page {
        PageSize::Small4K => MemfdFlags::empty(),
        PageSize::Huge2M => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        PageSize::Huge1G => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
    }
}
