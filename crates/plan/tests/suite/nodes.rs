//! NUMA nodes: the home of memory, the lcores far from it, and the values of `node`.

use std::collections::{BTreeMap, BTreeSet};

use verbline_plan::{Diagnostics, Lack, Loader, Machine, Numa, Plan};

use crate::common::{GOOD, catalog, machine};

/// CPUs 0 and 1 and `mlx5_0` on node 0, CPUs 2 and 3 and `mlx5_1` on node 1.
fn two_sockets() -> Machine {
    let cpus = |cpus: [u32; 2]| BTreeSet::from(cpus);
    let devices = [("mlx5_0", 0), ("mlx5_1", 1)].map(|(name, node)| (name.to_owned(), node));
    let nodes = BTreeMap::from([(0, cpus([0, 1])), (1, cpus([2, 3]))]);
    Machine { numa: Numa { nodes, devices: devices.into() }, ..machine() }
}

fn load_on(machine: Machine, text: &str) -> Result<Plan, Diagnostics> {
    Loader::new(catalog(), machine).load_str("nodes.toml", text)
}

fn load(text: &str) -> Plan {
    load_on(two_sockets(), text).unwrap_or_else(|faults| panic!("{faults}"))
}

/// The good plan, with a region of stage `sign` on CPU 2, on a kernel device of this name.
fn on_card(name: &str) -> String {
    let text = with_region("");
    text.replace("provider = \"soft\"\nname = \"soft0\"", &format!("provider = \"kernel\"\n{name}"))
}

fn with_region(keys: &str) -> String {
    let region = format!("[region.table]\ndevice = \"nic0\"\nbytes = 4096\n{keys}\n\n[stage.sign]");
    let text = GOOD.replace("[stage.sign]", &region);
    text.replace("lcore = \"gateway\"\nout = {", "lcore = \"gateway\"\nregions = [\"table\"]\nout = {")
}

fn homes(plan: &Plan, opened: &[&str]) -> Vec<(String, u32, String)> {
    let nodes = plan.nodes(opened);
    nodes.homes(plan).map(|(name, home)| (name, home.node, home.why.clone())).collect()
}

fn of_both(node: u32, why: &str) -> Vec<(String, u32, String)> {
    ["pool.packets", "region.table"].map(|name| (name.to_owned(), node, why.to_owned())).into()
}

#[test]
fn memory_is_near_its_device() {
    for (name, node) in [("mlx5_0", 0), ("mlx5_1", 1)] {
        let plan = load(&on_card(&format!("name = \"{name}\"")));
        assert_eq!(homes(&plan, &[]), of_both(node, "device.nic0 is there"));
    }
}

/// The card is known once it is open.
#[test]
fn memory_of_a_device_without_a_name_is_near_the_one_that_was_opened() {
    let plan = load(&on_card(""));
    assert_eq!(homes(&plan, &["mlx5_1"]), of_both(1, "device.nic0 is there"));
    assert_eq!(homes(&plan, &["rxe0"])[0].2, "CPU 0 of lcore.exchange is there", "a device without a node");
    assert_eq!(homes(&plan, &[])[0].2, "CPU 0 of lcore.exchange is there", "either card");
    let mut machine = two_sockets();
    machine.numa.devices.remove("mlx5_0");
    let plan = load_on(machine, &on_card("")).unwrap();
    assert_eq!(homes(&plan, &[]), of_both(1, "device.nic0 is there"), "the only card");
}

#[test]
fn memory_without_a_card_is_near_the_lcore_that_uses_it() {
    let expected = [
        ("pool.packets", 0, "CPU 0 of lcore.exchange is there"),
        ("region.table", 1, "CPU 2 of lcore.gateway is there"),
    ];
    let expected = expected.map(|(name, node, why)| (name.to_owned(), node, why.to_owned()));
    assert_eq!(homes(&load(&with_region("")), &[]), expected);
}

#[test]
fn what_the_plan_says_comes_first() {
    let text = on_card("name = \"mlx5_1\"").replace("bytes = 4096", "bytes = 4096\nnode = 0");
    let text = text.replace("data_bytes = 2048", "data_bytes = 2048\nnode = 0");
    assert_eq!(homes(&load(&text), &[]), of_both(0, "its `node` says so"));
}

#[test]
fn on_one_node_or_without_sys_nothing_changes() {
    let mut one = two_sockets();
    one.numa.nodes.remove(&1);
    one.numa.devices.remove("mlx5_1");
    for machine in [one, machine()] {
        let plan = load_on(machine, &on_card("name = \"mlx5_0\"")).unwrap();
        assert_eq!(homes(&plan, &[]), []);
        assert!(plan.notes().is_empty() && plan.nodes(&["mlx5_0"]).far(&plan).is_none());
    }
}

#[test]
fn an_lcore_far_from_its_device_and_memory_is_told_where_to_go() {
    let text = on_card("name = \"mlx5_1\"");
    let notes: Vec<String> = load(&text).notes().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(notes.join("\n"));
    let narrow = Machine { cpus: BTreeSet::from([0, 1, 2]), ..two_sockets() };
    let plan = load_on(narrow, &text).unwrap();
    let [note] = plan.notes() else { panic!("{:?}", plan.notes()) };
    assert_eq!(note.lack, Lack::FarApart);
    assert!(note.remedy.contains("`taskset -c 2-3`"), "{note}");
}

#[test]
fn a_node_that_is_not_there_is_refused_where_it_is_named() {
    let text = with_region("node = 3").replace("data_bytes = 2048", "data_bytes = 2048\nnode = 1024");
    let faults = load_on(two_sockets(), &text).unwrap_err();
    insta::assert_snapshot!(faults.to_string());
}

#[test]
fn a_node_on_a_machine_that_tells_none_is_noted() {
    let plan = load_on(machine(), &with_region("node = 1")).unwrap();
    let [note] = plan.notes() else { panic!("{:?}", plan.notes()) };
    assert_eq!(note.lack, Lack::NodesUnknown);
    assert!(note.message.starts_with("`node` of region.table has no effect"), "{note}");
}
