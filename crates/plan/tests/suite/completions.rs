//! The sum of completions of an lcore's queue: `--explain` shows it, the queue gets this depth, and
//! a depth in the plan is checked against it.

use crate::common::{catalog_with, machine};
use verbline_plan::{Loader, Plan};

/// A port of each kind, alone on its lcore, and the number of completions in its queue.
const PORTS: [(&str, u32); 7] = [
    // Two queue pairs that are each other's peers.
    ("peer = \"port.back\"\nrx_depth_wr = 20\ntx_depth_wr = 7", 27),
    // A queue pair whose connection is lost ends with a work request of its own.
    ("listen = \"10.9.9.1:1\"\nrx_depth_wr = 20\ntx_depth_wr = 7\nreconnect = false", 28),
    ("listen = \"10.9.9.1:1\"\nrx_depth_wr = 20\ntx_depth_wr = 7", 28),
    ("connect = \"10.9.9.1:1\"\nrx_depth_wr = 20\ntx_depth_wr = 7\nops_depth_wr = 5", 33),
    // So does each of many connections, and each bad block that a key found may wait to be
    // reported.
    ("listen = \"10.9.9.1:1\"\nconnections_max = 3\nrx_shared_wr = 20\ntx_depth_wr = 7", 44),
    ("listen = \"10.9.9.1:1\"\nconnections_max = 3\nrx_shared_wr = 20\ntx_depth_wr = 7\nreconnect = false", 44),
    (
        "connect = \"10.9.9.1:1\"\nconnections = 3\nrx_shared_wr = 20\ntx_depth_wr = 7\ntx_shared_wr = 9\n\
         ops_depth_wr = 4\nsignature_keys = 2",
        20 + 9 + 12 + 3 + 6,
    ),
];

fn text(port: &str) -> String {
    let back = "[port.back]\nlcore = \"two\"\ndevice = \"nic\"\npool = \"p\"\ntransport = \"rc\"\npeer = \
                \"port.one\"\nrx_depth_wr = 1\ntx_depth_wr = 1\nnext = \"port.back\"\n[lcore.two]\ncpu = 1\n";
    let back = if port.starts_with("peer") { back } else { "" };
    format!(
        "[device.nic]\nprovider = \"soft\"\n[pool.p]\ndevice = \"nic\"\npackets = 4096\ndata_bytes = 64\n[lcore.one]\n\
         cpu = 0\n[port.one]\nlcore = \"one\"\ndevice = \"nic\"\npool = \"p\"\ntransport = \"rc\"\nnext = \
         \"port.one\"\n{port}\n{back}"
    )
}

fn load(port: &str, depth: Option<u32>) -> Result<Plan, verbline_plan::Diagnostics> {
    let sets = depth.map(|depth| format!("lcore.one.cq_depth_wc={depth}"));
    Loader::new(catalog_with([]), machine()).sets(sets).load_str("plan.toml", &text(port))
}

#[test]
fn the_sum_is_the_depth_and_the_limit() {
    for (port, expected) in PORTS {
        let plan = load(port, None).unwrap_or_else(|faults| panic!("{port}: {faults}"));
        let sum = plan.sums().iter().find(|sum| sum.of == "lcore.one completion queue").expect("its sum");
        assert_eq!((sum.needed, plan.lcores()[0].cq_depth_wc), (expected.into(), expected), "{port}: {sum:#?}");
        let plan = load(port, Some(expected)).unwrap_or_else(|faults| panic!("{port}: {faults}"));
        assert_eq!(plan.lcores()[0].cq_depth_wc, expected, "{port}");
        let faults = load(port, Some(expected - 1)).expect_err("one too few");
        assert!(faults.errors().all(|fault| fault.code() == "cq-too-small"), "{port}: {faults}");
    }
}
