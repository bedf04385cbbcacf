//! Regions and the machine's facts, on this machine's pages.
use std::fs;

use verbline_mem::facts::{FactsError, HugepageCount, HugepageFacts, MemlockLimit};
use verbline_mem::{PageChoice, PageSize, PeerRegion, Region, RegionError, RegionSpec};

fn spec(len_bytes: usize, pages: PageChoice) -> RegionSpec {
    RegionSpec { name: "ticks".into(), len_bytes, pages, lock: false }
}

fn fill_and_check(region: &Region) {
    // SAFETY: the region is this test's alone, mapped, and nobody else writes it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(region.as_ptr(), region.len_bytes()) };
    assert!(bytes.iter().all(|&byte| byte == 0));
    bytes.fill(0xa5);
    assert!(bytes.iter().all(|&byte| byte == 0xa5));
}

#[test]
fn base_pages_are_to_be_had_anywhere() {
    let region = Region::map(&spec(5000, PageChoice::Exactly(PageSize::Small4K))).unwrap();
    assert_eq!((region.len_bytes(), region.page_size()), (8192, PageSize::Small4K));
    assert_eq!(region.as_ptr().addr() % 4096, 0);
    assert!(region.fallback().is_none() && !region.is_locked());
    fill_and_check(&region);
}

/// Longer than the memory of most machines: untouched pages take none.
#[test]
fn pages_on_demand_come_when_they_are_touched() {
    let mut asked = spec(1 << 40, PageChoice::OnDemand);
    asked.lock = true;
    let region = Region::map(&asked).unwrap();
    assert_eq!((region.len_bytes(), region.page_size(), region.is_locked()), (1 << 40, PageSize::Small4K, false));
    let region = PeerRegion::new(region);
    for offset in [0, (4 << 30) + 24, (1 << 40) - 8] {
        assert_eq!(region.load_u64(offset).unwrap(), 0);
        region.store_u64(offset, offset as u64).unwrap();
    }
    let mut bytes = [0; 16];
    region.read_into((4 << 30) + 20, &mut bytes).unwrap();
    assert_eq!(bytes[4..12], ((4_u64 << 30) + 24).to_ne_bytes());
    assert!(region.load_u64(1 << 40).is_err());
}

#[test]
fn auto_is_on_hugepages_or_says_why_not() {
    let region = Region::map(&spec(3 << 20, PageChoice::Auto)).unwrap();
    assert!(region.len_bytes() >= 3 << 20);
    match region.fallback() {
        None => {
            assert!(region.page_size().is_huge() && region.is_locked());
            assert_eq!(region.as_ptr().addr() % region.page_size().bytes(), 0);
        }
        Some(fallback) => {
            println!("on this machine: {fallback}");
            assert_eq!(region.page_size(), PageSize::Small4K);
            let text = fallback.to_string();
            assert!(text.starts_with("region `ticks` is on 4 KiB pages: "), "{text}");
            assert!(text.contains("; to have hugepages: "), "{text}");
        }
    }
    fill_and_check(&region);
}

/// With a kernel that has the size, one page more than it could ever reserve is refused, with the
/// numbers and the command.
#[test]
fn a_size_that_is_not_to_be_had_is_an_error_with_a_remedy() {
    let facts = HugepageFacts::read().unwrap();
    for page in [PageSize::Huge2M, PageSize::Huge1G] {
        let too_many = facts.size(page.bytes() as u64).map_or(1, |count| count.total + (1 << 14)) as usize;
        let error = Region::map(&spec(too_many * page.bytes(), PageChoice::Exactly(page))).unwrap_err();
        let RegionError::NoPages { why, remedy, .. } = &error else { panic!("{error}") };
        if facts.size(page.bytes() as u64).is_none() {
            assert!(why.contains("the kernel names no hugepages of "), "{error}");
            continue;
        }
        assert!(why.starts_with(&format!("{too_many} hugepages of {page} needed, ")), "{error}");
        let is_default = facts.default_bytes == Some(page.bytes() as u64);
        let command = if is_default { "sysctl -w vm.nr_hugepages=" } else { "/nr_hugepages`" };
        assert!(remedy.contains(command) && remedy.contains("as root"), "{error}");
    }
}

#[test]
fn exact_hugepages_where_there_are_some() {
    let available = |count: &HugepageCount| count.available() >= 2;
    let facts = HugepageFacts::read().unwrap();
    for page in [PageSize::Huge2M, PageSize::Huge1G] {
        if !facts.size(page.bytes() as u64).is_some_and(available) {
            println!("skipped: fewer than 2 free {page} hugepages; reserve some to run this");
            continue;
        }
        let region = match Region::map(&spec(1, PageChoice::Exactly(page))) {
            Ok(region) => region,
            // Another process was quicker.
            Err(error) => {
                assert!(matches!(error, RegionError::NoPages { .. }), "{error}");
                continue;
            }
        };
        assert_eq!((region.page_size(), region.len_bytes()), (page, page.bytes()));
        assert!(region.is_locked() && region.fallback().is_none());
        fill_and_check(&region);
    }
}

#[test]
fn a_lock_holds_or_fails_with_the_limit() {
    let limit = MemlockLimit::read();
    let mut spec = spec(64 << 10, PageChoice::Exactly(PageSize::Small4K));
    spec.lock = true;
    match Region::map(&spec) {
        Ok(region) => assert!(region.is_locked()),
        Err(error) => {
            assert!(!limit.exempt && limit.soft_bytes.is_some(), "{error}");
            assert!(error.to_string().contains("ulimit -l unlimited"), "{error}");
        }
    }
}

#[test]
fn impossible_lengths_are_errors() {
    let pages = PageChoice::Exactly(PageSize::Small4K);
    let error = Region::map(&spec(0, pages)).unwrap_err();
    assert_eq!(error.to_string(), "region `ticks`: 0 bytes asked; ask for at least 1");
    for pages in [pages, PageChoice::Auto, PageChoice::Exactly(PageSize::Huge1G)] {
        let error = Region::map(&spec(usize::MAX - 5, pages)).unwrap_err();
        assert!(matches!(error, RegionError::TooLong { .. }), "{error}");
        let error = Region::map(&spec(1 << 62, pages)).unwrap_err();
        assert!(matches!(error, RegionError::System { .. } | RegionError::NoPages { .. }), "{error}");
    }
}

/// A machine made of files.
fn machine(meminfo: &str, sizes: &[(u64, [u64; 3])]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("proc")).unwrap();
    fs::write(root.path().join("proc/meminfo"), meminfo).unwrap();
    for (kib, counts) in sizes {
        let folder = root.path().join(format!("sys/kernel/mm/hugepages/hugepages-{kib}kB"));
        fs::create_dir_all(&folder).unwrap();
        for (file, count) in ["nr_hugepages", "free_hugepages", "resv_hugepages"].iter().zip(counts) {
            fs::write(folder.join(file), format!("{count}\n")).unwrap();
        }
    }
    root
}

#[test]
fn facts_are_what_the_kernels_files_say() {
    let root = machine("MemTotal:  8 kB\nHugepagesize:       2048 kB\n", &[(1 << 20, [1, 1, 0]), (2048, [16, 9, 4])]);
    let facts = HugepageFacts::read_under(root.path()).unwrap();
    let small = HugepageCount { size_bytes: 2 << 20, total: 16, free: 9, reserved: 4 };
    let large = HugepageCount { size_bytes: 1 << 30, total: 1, free: 1, reserved: 0 };
    assert_eq!(facts, HugepageFacts { default_bytes: Some(2 << 20), sizes: vec![small, large] });
    assert_eq!((small.available(), facts.size(1 << 30), facts.size(4096)), (5, Some(&large), None));
}

#[test]
fn without_sys_the_default_size_is_counted_in_proc() {
    let counts =
        "HugePages_Total:      16\nHugePages_Free:        9\nHugePages_Rsvd:        4\nHugepagesize:       2048 kB\n";
    let facts = HugepageFacts::read_under(machine(counts, &[]).path()).unwrap();
    let pages = HugepageCount { size_bytes: 2 << 20, total: 16, free: 9, reserved: 4 };
    assert_eq!(facts, HugepageFacts { default_bytes: Some(2 << 20), sizes: vec![pages] });
    // If there is a /sys, it lists the sizes.
    let root = machine(counts, &[(1 << 20, [1, 1, 0])]);
    let sizes = HugepageFacts::read_under(root.path()).unwrap().sizes;
    assert_eq!(sizes.iter().map(|pages| pages.size_bytes).collect::<Vec<_>>(), [1 << 30]);
    let error = HugepageFacts::read_under(machine("Hugepagesize: 2048 kB\n", &[]).path()).unwrap_err();
    assert!(error.to_string().contains("HugePages_Total:"), "{error}");
}

#[test]
fn a_kernel_without_hugepages_has_none_of_them() {
    let none = HugepageFacts { default_bytes: None, sizes: Vec::new() };
    assert_eq!(HugepageFacts::read_under(machine("MemTotal: 8 kB\n", &[]).path()).unwrap(), none);
    assert_eq!(HugepageFacts::read_under(tempfile::tempdir().unwrap().path()).unwrap(), none);
}

#[test]
fn facts_that_make_no_sense_are_errors() {
    for meminfo in
        ["Hugepagesize: many kB", "Hugepagesize:", "Hugepagesize: 3 kB", "Hugepagesize: 99999999999999999 kB"]
    {
        let root = machine(meminfo, &[]);
        let error = HugepageFacts::read_under(root.path()).unwrap_err();
        assert!(matches!(error, FactsError::Parse { .. }) && error.to_string().contains("/proc/meminfo: `"), "{error}");
    }
    let root = machine("", &[(2048, [1, 1, 0])]);
    fs::write(root.path().join("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"), "-1").unwrap();
    let error = HugepageFacts::read_under(root.path()).unwrap_err().to_string();
    assert!(error.contains("free_hugepages: `-1` is not a count"), "{error}");
}

#[test]
fn this_machines_facts_agree_with_each_other() {
    if let Some(default) = HugepageFacts::read().unwrap().default_bytes {
        assert!(default > rustix::param::page_size() as u64);
    }
    let memlock = MemlockLimit::read();
    if let (Some(soft), Some(hard)) = (memlock.soft_bytes, memlock.hard_bytes) {
        assert!(soft <= hard);
    }
    let binding = if memlock.exempt { None } else { memlock.soft_bytes };
    assert_eq!(memlock.effective_bytes(), binding);
}
