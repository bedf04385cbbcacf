//! One mapping: pages from hugepage-rs or memmap2, unmapped on drop.
//!
//! Nothing here touches a page: all of them are still to come.

use std::alloc::Layout;
use std::io;
use std::ptr::NonNull;

use memmap2::{MmapOptions, MmapRaw};

use crate::pages::PageSize;

/// Where the pages come from, and so how they go.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// From hugepage-rs, with the layout it was asked for.
    Default { base: NonNull<u8>, layout: Layout },
    /// From memmap2.
    Chosen(MmapRaw),
}

#[derive(Clone, Copy)]
pub(crate) enum PageSource {
    Default,
    Chosen,
    /// Nothing is set aside for what is not touched.
    Sparse,
}

impl PageSource {
    /// `len` is above 0 and a multiple of the page.
    pub(crate) fn map(self, page: PageSize, len: usize) -> io::Result<Mapping> {
        match self {
            Self::Default => map_default(page, len),
            Self::Chosen => map_chosen(page, len, MmapOptions::new()),
            Self::Sparse => map_chosen(page, len, MmapOptions::new().no_reserve_swap().to_owned()),
        }
    }
}

impl Mapping {
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        match self {
            Mapping::Default { base, .. } => base.as_ptr(),
            Mapping::Chosen(map) => map.as_mut_ptr(),
        }
    }

    pub(crate) fn len_bytes(&self) -> usize {
        match self {
            Mapping::Default { layout, .. } => layout.size(),
            Mapping::Chosen(map) => map.len(),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Mapping::Default { base, layout } = self {
            // SAFETY: `base` came from hugepage_rs::alloc with this very layout and is freed here
            // only; the types on top of a region free it only when nothing points into it any more.
            unsafe { hugepage_rs::dealloc(base.as_ptr(), *layout) };
        }
    }
}

fn map_default(page: PageSize, len: usize) -> io::Result<Mapping> {
    let layout = Layout::from_size_align(len, page.bytes()).map_err(io::Error::other)?;
    assert!(len > 0, "a mapping of nothing");
    // SAFETY: the layout's size is not zero, as was just looked. hugepage-rs panics where
    // /proc/meminfo has no Hugepagesize: the caller has seen it.
    let base = unsafe { hugepage_rs::alloc(layout) };
    match NonNull::new(base) {
        Some(base) => Ok(Mapping::Default { base, layout }),
        // The crate gives NULL and leaves mmap's errno as it was.
        None => Err(io::Error::last_os_error()),
    }
}

fn map_chosen(page: PageSize, len: usize, mut options: MmapOptions) -> io::Result<Mapping> {
    options.len(len);
    if page.is_huge() {
        options.huge(Some(page.bytes().trailing_zeros() as u8));
    }
    Ok(Mapping::Chosen(MmapRaw::from(options.map_anon()?)))
}
