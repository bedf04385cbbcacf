//! Limits of this process rather than the machine: a cgroup's memory and hugepages, RLIMIT_AS,
//! RLIMIT_DATA and RLIMIT_NOFILE. Each is checked against the plan's sums, and the fault names the
//! limit and its owner.

use crate::common::{GOOD, catalog, loader, machine};
use verbline_plan::{Diagnostics, Hugepages, Inspection, Loader, Machine, MemoryGrant, OpensBeside, Sum, Term};

fn inspect(machine: Machine) -> Inspection {
    Loader::new(catalog(), machine).inspect_str("good.toml", GOOD)
}

fn refused(machine: Machine, code: &str) -> Diagnostics {
    let Inspection { diagnostics, plan, .. } = inspect(machine);
    assert!(plan.is_none(), "it is refused");
    assert!(diagnostics.errors().all(|fault| fault.code() == code), "{diagnostics}");
    diagnostics
}

fn sum(of: &str, machine: Machine) -> Sum {
    let sums = inspect(machine).sums;
    sums.into_iter().find(|sum| sum.of.starts_with(of)).unwrap_or_else(|| panic!("no sum of {of}"))
}

fn grant(bytes: u64) -> MemoryGrant {
    MemoryGrant { bytes, limit_bytes: 100 << 20, remedy: "`echo max > /sys/fs/cgroup/a/memory.max`".to_owned() }
}

#[test]
fn a_cgroup_that_grants_less_memory_than_the_machine_has_is_named() {
    let small = Machine { huge_2m: Hugepages::Absent, huge_default_bytes: None, ..machine() };
    let needed = sum("memory on pages of 4 KiB", small.clone()).needed;
    let granted = |bytes| Machine { memory_grant: Some(grant(bytes)), ..small.clone() };
    assert!(inspect(granted(needed)).plan.is_some(), "just enough");
    let said = refused(granted(needed - 1), "too-much-memory").to_string();
    assert!(said.contains(&format!("{} bytes are available, of 104857600 that a cgroup grants", needed - 1)), "{said}");
    assert!(said.contains("lift the limit: `echo max > /sys/fs/cgroup/a/memory.max`"), "{said}");
}

/// A thousand connections take more than the packets do. They are in all sums of memory.
#[test]
fn queue_pairs_count_and_are_blamed_where_they_are_the_most() {
    let many = "\n[port.many]\nlcore = \"gateway\"\ndevice = \"nic0\"\ntransport = \"rc\"\nlisten = \"10.9.9.9:1\"\n\
                connections_max = 1000\ntx_depth_wr = 64\ntx_shared_wr = 64\n";
    let text = GOOD.to_owned() + many;
    let limited = Machine { address_space_bytes: Some(u64::MAX), data_bytes: Some(u64::MAX), ..machine() };
    let sums = Loader::new(catalog(), limited).inspect_str("good.toml", &text).sums;
    for of in ["memory on pages of 4 KiB", "address space", "data"] {
        let sum = sums.iter().find(|sum| sum.of == of).unwrap_or_else(|| panic!("no sum of {of}"));
        let term = |name: &str, how: &str| sum.terms.iter().find(|term| term.what == name && term.how == how);
        assert!(term("port.many", "1000 queue pairs").is_some_and(|term| term.value > 16 << 20), "{sum:#?}");
        assert!(term("lcore.gateway", "its completion queue").is_some(), "{sum:#?}");
        assert_eq!(term("port.many", "its thread").is_some(), !of.starts_with("memory"), "stacks are mapped: {sum:#?}");
    }
    let small = Machine { memory_grant: Some(grant(16 << 20)), ..machine() };
    let said = Loader::new(catalog(), small).load_str("good.toml", &text).expect_err("they are too many").to_string();
    assert!(said.contains("its queue pairs take the most"), "{said}");
    assert!(said.contains("allow fewer connections, or make their queues shorter"), "{said}");
}

/// The metadata of small packets is larger than the packets.
#[test]
fn what_packets_need_beside_their_data_counts_wherever_those_are() {
    let limited = Machine { address_space_bytes: Some(u64::MAX), ..machine() };
    let whole = |of: &str, packets: u64| {
        let loader = Loader::new(catalog(), limited.clone()).sets([format!("pool.packets.packets={packets}")]);
        let sums = loader.inspect_str("good.toml", GOOD).sums;
        let sum = sums.into_iter().find(|sum| sum.of.starts_with(of)).unwrap_or_else(|| panic!("no sum of {of}"));
        sum.terms.iter().filter(|term| term.how == "its packets' metadata").map(|term| term.value).sum::<u64>()
    };
    // The packets themselves are on hugepages.
    assert_eq!(whole("memory on pages of 4 KiB", 8192), 8192 * 128);
    // A block of lines is a power of two in length, and is mapped twice.
    assert_eq!(whole("address space", 8193), 2 * 16384 * 64 + 8193 * 64);
}

/// It said "1 pages".
#[test]
fn one_page_that_is_missing_is_one_page() {
    let none = Machine { huge_1g: Hugepages::Counted { total: 1, free: 0 }, ..machine() };
    let insists = GOOD.replace("packets = 8192", "packets = 8192\npages = \"1GiB\"");
    let faults = Loader::new(catalog(), none).load_str("good.toml", &insists).unwrap_err();
    assert!(faults.to_string().contains("needs 1 page of 1 GiB; 0 are free for it"), "{faults}");
}

#[test]
fn a_cgroup_that_grants_fewer_hugepages_is_blamed_for_it() {
    let few = Machine {
        huge_2m: Hugepages::Counted { total: 64, free: 1 },
        hugepage_grants: vec![(2 << 20, grant(2 << 20))],
        ..machine()
    };
    let note = &inspect(few.clone()).notes[0];
    assert!(note.remedy.contains("a cgroup grants no more: `echo max >") && !note.remedy.contains("sysctl"), "{note}");
    let insists = GOOD.replace("packets = 8192", "packets = 8192\npages = \"2MiB\"");
    let faults = Loader::new(catalog(), few).load_str("good.toml", &insists).expect_err("it insists").to_string();
    assert!(faults.contains("a cgroup grants no more: `echo max >"), "{faults}");
}

#[test]
fn all_that_is_mapped_counts_against_the_address_space() {
    let limited = |bytes| Machine { address_space_bytes: Some(bytes), ..machine() };
    let whole = sum("address space", limited(u64::MAX));
    let mapped = |name: &str| whole.terms.iter().any(|term| term.what == name);
    assert!(mapped("pool.packets") && mapped("lcore.trader") && whole.holds(), "{whole:#?}");
    assert!(inspect(limited(whole.needed)).plan.is_some(), "just enough");
    let said = refused(limited(whole.needed - 1), "too-much-memory").to_string();
    assert!(said.contains("RLIMIT_AS bounds it") && said.contains("`ulimit -v unlimited`"), "{said}");
    assert!(inspect(machine()).sums.iter().all(|sum| sum.of != "address space"), "nothing limits it");
}

// Regression: past the limit a run ended at the first mapping or thread that it could not make.
#[test]
fn all_that_is_private_and_writable_counts_against_the_limit_of_data() {
    let limited = |bytes| Machine { data_bytes: Some(bytes), ..machine() };
    let whole = sum("data", limited(u64::MAX));
    let mapped = |name: &str| whole.terms.iter().any(|term| term.what == name);
    assert!(mapped("pool.packets") && mapped("lcore.trader") && whole.holds(), "{whole:#?}");
    assert!(inspect(limited(whole.needed)).plan.is_some(), "just enough");
    let said = refused(limited(whole.needed - 1), "too-much-memory").to_string();
    assert!(said.contains("RLIMIT_DATA bounds it") && said.contains("`ulimit -d unlimited`"), "{said}");
    let both = format!("maps {} bytes of data, and this process may map {} more", whole.needed, whole.needed - 1);
    assert!(said.split_whitespace().collect::<Vec<_>>().join(" ").contains(&both), "{said}");
    assert!(inspect(machine()).sums.iter().all(|sum| sum.of != "data"), "nothing limits it");
    // A thread per port by address, whose stack is data.
    let door = "\n[port.door]\nlcore = \"gateway\"\ndevice = \"nic0\"\ntransport = \"rc\"\nlisten = \"10.9.9.9:1\"\n\
                tx_depth_wr = 64\n";
    let sums = Loader::new(catalog(), limited(u64::MAX)).inspect_str("good.toml", &(GOOD.to_owned() + door)).sums;
    let data = sums.iter().find(|sum| sum.of == "data").unwrap();
    let threads: Vec<_> = data.terms.iter().filter(|term| term.how == "its thread").map(|term| &term.what).collect();
    assert_eq!(threads, ["lcore.exchange", "lcore.trader", "lcore.gateway", "port.door"]);
}

/// Clients of a run take descriptors too.
#[test]
fn what_a_process_opens_beside_a_run_counts_where_the_plan_asks_for_it() {
    let beside = |section| OpensBeside { what: "the desk, and who comes to it", section, descriptors: 17 };
    let with = |section| loader().opens([beside(section)]).inspect_str("good.toml", GOOD);
    let sum = |found: Inspection| found.sums.into_iter().find(|sum| sum.of == "file descriptors").unwrap();
    let without = sum(loader().inspect_str("good.toml", GOOD)).needed;
    for (section, more) in [(None, 17), (Some("feed"), 17), (Some("nothing"), 0)] {
        let sum = sum(with(section));
        assert_eq!(sum.needed, without + more, "{section:?}");
        assert_eq!(sum.terms.iter().any(|term| term.what.starts_with("the desk")), more > 0);
    }
}

/// Regression: the network of a device was in no sum, so that a run whose plan had passed could not
/// start.
#[test]
fn a_devices_network_and_the_processes_with_its_address_take_descriptors() {
    let device = "provider = \"soft\"\nname = \"soft0\"\n";
    let at = format!("{device}address = \"127.0.0.1\"\n");
    let door = "\n[port.door]\nlcore = \"gateway\"\ndevice = \"nic0\"\ntransport = \"rc\"\nlisten = \"127.0.0.1:1\"\n\
                tx_depth_wr = 64\n";
    let terms = |text: &str| -> Vec<(String, u64)> {
        let sums = loader().inspect_str("good.toml", &(text.to_owned() + door)).sums;
        let sum = sums.into_iter().find(|sum| sum.of == "file descriptors").unwrap();
        let of_network = |term: &Term| term.how.contains("network") || term.how.contains("address");
        sum.terms.into_iter().filter(of_network).map(|term| (term.what, term.value)).collect()
    };
    assert_eq!(terms(GOOD), []);
    // Its own, the peers', the processes', a socket for each group, the listener's service.
    let of_device = [7, 16, 96].map(|count| ("device.nic0", count));
    let of_ports = [("port.md_a", 1), ("port.md_b", 1), ("port.door", 2)];
    let taken: Vec<_> = of_device.into_iter().chain(of_ports).map(|(what, count)| (what.to_owned(), count)).collect();
    assert_eq!(terms(&GOOD.replace(device, &at)), taken);
}

/// Regression: a run whose plan had passed could not join its groups on a kernel device.
#[test]
fn a_kernel_devices_groups_and_its_connections_by_address_take_descriptors() {
    let text = GOOD.replace("provider = \"soft\"\nname = \"soft0\"\n", "provider = \"kernel\"\n");
    let door = "\n[port.door]\nlcore = \"gateway\"\ndevice = \"nic0\"\ntransport = \"rc\"\nlisten = \"127.0.0.1:1\"\n\
                tx_depth_wr = 64\n";
    let terms = |text: &str| -> Vec<(String, u64)> {
        let sums = loader().inspect_str("good.toml", text).sums;
        let sum = sums.into_iter().find(|sum| sum.of == "file descriptors").unwrap();
        let is_ours = |term: &Term| term.how.contains("network") || term.how.contains("address");
        sum.terms.into_iter().filter(is_ours).map(|term| (term.what, term.value)).collect()
    };
    let groups = [("port.md_a", 1), ("port.md_b", 1)].map(|(what, count)| (what.to_owned(), count));
    assert_eq!(terms(&text), groups);
    let all = [&[("device.nic0".to_owned(), 2)], &groups[..]].concat();
    assert_eq!(terms(&(text + door)), all);
}

#[test]
fn too_few_descriptors_are_refused_with_both_numbers() {
    let limited = |descriptors_max| Machine { descriptors_max, ..machine() };
    let needed = sum("file descriptors", limited(None)).needed;
    assert!(inspect(limited(Some(needed))).plan.is_some(), "just enough");
    let said = refused(limited(Some(needed - 1)), "too-few-descriptors").to_string();
    let both = format!("the run needs {needed} file descriptors, and this process may open {}", needed - 1);
    assert!(said.split_whitespace().collect::<Vec<_>>().join(" ").contains(&both), "{said}");
    assert!(said.contains(&format!("`ulimit -n {needed}`")), "{said}");
    // Descriptors that are open already count.
    let more = Machine { descriptors_open: 103, ..machine() };
    assert_eq!(sum("file descriptors", more).needed, needed + 100);
}
