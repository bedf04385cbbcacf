//! Page sizes, and the words for what to do when a size cannot be had.

use std::fmt;

use crate::facts::{FactsError, HugepageFacts};

/// The page sizes that a region can lie on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PageSize {
    /// The base page of x86-64.
    Small4K,
    /// The hugepage of one page-directory entry.
    Huge2M,
    /// The hugepage of one page-directory-pointer entry.
    Huge1G,
}

impl PageSize {
    /// Size of one page, bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Small4K => 4 << 10,
            Self::Huge2M => 2 << 20,
            Self::Huge1G => 1 << 30,
        }
    }

    /// The size of that many bytes, if it is one of ours.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            0x1000 => Some(Self::Small4K),
            0x20_0000 => Some(Self::Huge2M),
            0x4000_0000 => Some(Self::Huge1G),
            _ => None,
        }
    }

    /// A page that needs a reservation in the kernel's hugepage pool.
    #[must_use]
    pub const fn is_huge(self) -> bool {
        !matches!(self, Self::Small4K)
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small4K => "4 KiB",
            Self::Huge2M => "2 MiB",
            Self::Huge1G => "1 GiB",
        })
    }
}

/// Which pages a region asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageChoice {
    /// The machine's default hugepage; 4 KiB pages where none can be had, announced by
    /// [`Region::fallback`](crate::Region::fallback).
    Auto,
    /// This size or an error.
    Exactly(PageSize),
    /// 4 KiB pages, each of which comes when it is touched first: nothing is prefaulted, and
    /// nothing locked, whatever [`RegionSpec::lock`](crate::RegionSpec::lock) says.
    OnDemand,
}

/// Hugepages that are wanted and not to be had: what is missing, and the command that mends it.
/// `Display` says both in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The size that is wanted.
    pub page: PageSize,
    /// How many pages are wanted.
    pub pages: u64,
    /// What is missing, and why.
    pub why: String,
    /// The command that makes it available.
    pub remedy: String,
}

impl Shortage {
    /// Finds out why `pages` more hugepages of this size can't be had. Reads the machine's counts
    /// anew.
    #[must_use]
    pub fn of(page: PageSize, pages: u64) -> Self {
        let (why, remedy) = shortage(page, pages, &HugepageFacts::read());
        Self { page, pages, why, remedy }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; to have hugepages: {}", self.why, self.remedy)
    }
}

/// Why a region lies on 4 KiB pages although hugepages were wanted, and what to do about it.
/// `Display` says both in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The region's name.
    pub region: String,
    /// The hugepages that are missing.
    pub shortage: Shortage,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region `{}` is on 4 KiB pages: {}", self.region, self.shortage)
    }
}

fn shortage(page: PageSize, pages: u64, facts: &Result<HugepageFacts, FactsError>) -> (String, String) {
    let facts = match facts {
        Ok(facts) => facts,
        Err(error) => return (error.to_string(), "make those files readable, then start again".into()),
    };
    let Some(count) = facts.size(page.bytes() as u64) else {
        return (format!("the kernel names no hugepages of {page}"), unsupported_remedy(page));
    };
    let noun = if pages == 1 { "hugepage" } else { "hugepages" };
    let why = format!("{pages} {noun} of {page} needed, {} of {} available", count.available(), count.total);
    let wanted_total = count.total - count.available().min(count.total) + pages;
    (why, reserve_remedy(page, wanted_total, facts.default_bytes == Some(page.bytes() as u64)))
}

fn reserve_remedy(page: PageSize, total: u64, is_default: bool) -> String {
    let kib = page.bytes() >> 10;
    let command = if is_default {
        format!("sysctl -w vm.nr_hugepages={total}")
    } else {
        format!("echo {total} > /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages")
    };
    let boot = match page {
        PageSize::Huge1G => {
            format!("; if memory is too fragmented for that, boot with `hugepagesz=1G hugepages={total}`")
        }
        _ => String::new(),
    };
    format!("run `{command}` as root{boot}")
}

fn unsupported_remedy(page: PageSize) -> String {
    match page {
        PageSize::Huge1G => "use 2 MiB pages, or a CPU with pdpe1gb in /proc/cpuinfo".into(),
        _ => "run a kernel with CONFIG_HUGETLBFS, with /sys/kernel/mm visible in the container".into(),
    }
}
