//! Regions and operations: the owners of memory, and the terms of the sums.

use crate::common::{GOOD, loader};
use verbline_plan::{Pages, Plan, Rights};

/// The good plan, whose stage `sign` owns a region and may have 16 operations under way.
fn with_region(region: &str) -> String {
    let text = GOOD.replace("[stage.sign]", &format!("[region.table]\ndevice = \"nic0\"\n{region}\n\n[stage.sign]"));
    let text = text.replace("lcore = \"gateway\"\nout = {", "lcore = \"gateway\"\nregions = [\"table\"]\nout = {");
    text.replace("[port.orders]", "[port.orders]\nops_depth_wr = 16")
}

fn load(text: &str) -> Plan {
    loader().load_str("regions.toml", text).unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn a_region_has_an_owner_and_operations_are_counted_wherever_they_own_something() {
    let before = load(GOOD);
    let plan = load(&with_region("bytes = 5000\nrights = [\"local-write\", \"remote-read\"]"));
    let region = &plan.regions()[0];
    assert_eq!((region.len_bytes, region.pages, region.name.as_str()), (5000, Pages::Auto, "table"));
    assert_eq!(region.rights, Rights::LOCAL_WRITE | Rights::REMOTE_READ);
    let sign = plan.stages().iter().find(|stage| stage.name == "sign").unwrap();
    assert_eq!((region.owner, sign.regions.as_slice()), (Some(sign.id), &[region.id][..]));
    let orders = plan.ports().iter().find(|port| port.name == "orders").unwrap();
    assert_eq!((orders.ops_depth_wr, orders.immediates), (16, false));
    let needed = |plan: &Plan, of: &str| plan.sums().iter().find(|sum| sum.of == of).unwrap().needed;
    let more = |of| needed(&plan, of) - needed(&before, of);
    assert_eq!(more("lcore.gateway completion queue"), 16);
    assert_eq!(more("pool.packets"), 32, "owned by operations, and waiting to be sent when all come back at once");
    assert_eq!(more("hugepages of 2 MiB"), 2 << 20);
    let explained = plan.explain();
    for line in ["operations of port.orders", "operations of stage.sign", "region.table"] {
        assert!(explained.contains(line), "{line}:\n{explained}");
    }
    assert!(plan.warnings().is_empty(), "{}", plan.warnings());
    assert!(plan.to_dot().contains("region.table"));
}

#[test]
fn a_region_without_an_owner_is_a_warning_and_is_not_counted() {
    let text = with_region("bytes = 4096").replace("regions = [\"table\"]\n", "");
    let plan = load(&text);
    insta::assert_snapshot!(plan.warnings().to_string());
    assert!(!plan.explain().contains("region.table"), "{}", plan.explain());
}

/// For a port with many connections `ops_depth_wr` is the depth of one, and `ops_shared_wr` that of
/// all.
#[test]
fn operations_of_many_connections_are_counted_for_all_of_them() {
    let many = |keys: &str| {
        format!(
            "[device.nic0]\nprovider = \"soft\"\n[pool.p]\ndevice = \"nic0\"\npackets = 4096\ndata_bytes = 64\n\
             [lcore.a]\ncpu = 1\n[port.door]\nlcore = \"a\"\ndevice = \"nic0\"\ntransport = \"rc\"\npool = \"p\"\n\
             listen = \"10.0.0.1:1\"\nconnections_max = 8\nrx_shared_wr = 8\ntx_depth_wr = 2\n{keys}\n\
             next = \"stage.s\"\n[stage.s]\nuse = \"sign\"\nlcore = \"a\"\nout = {{ signed = \"port.door\" }}\n"
        )
    };
    let terms = |keys: &str| -> Vec<(String, u64)> {
        let plan = load(&many(keys));
        let terms = plan.sums().iter().flat_map(|sum| sum.terms.clone());
        let operations = terms.filter(|term| term.what.starts_with("operations"));
        operations.map(|term| (format!("{} {}", term.what, term.how).trim().to_owned(), term.value)).collect()
    };
    let (stage, port) = ("operations of stage.s".to_owned(), "operations of port.door");
    assert_eq!(terms("ops_depth_wr = 4"), [(stage.clone(), 32), (format!("{port} 8 x 4"), 32)]);
    assert_eq!(terms("ops_depth_wr = 4\nops_shared_wr = 6\nwindows = 1"), [(stage, 6), (format!("{port} shared"), 6)]);
    let warned = load(&many("ops_depth_wr = 4\nops_shared_wr = 33")).warnings().to_string();
    assert!(warned.contains("`ops_shared_wr` bounds nothing: all queues together have 32"), "{warned}");
    let alone = many("ops_shared_wr = 6\nops_depth_wr = 4").replace("connections_max = 8\nrx_shared_wr", "rx_depth_wr");
    let error = loader().load_str("regions.toml", &alone).unwrap_err().to_string();
    assert!(error.contains("`ops_shared_wr` is for many connections; port.door has one"), "{error}");
}
