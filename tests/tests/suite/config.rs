//! Every shipped plan loads with the catalog of its own app.

use std::collections::BTreeSet;
use std::fs;

use kv::KeyValue;
use nvme_target::NvmeTarget;
use pingpong::PingPong;
use tick_to_trade::stages::{self, Tally};
use verbline::plan::{Hugepages, Lack, Loader, Machine, Numa};
use verbline::prelude::*;
use verbline_tests::root;

/// The apps of this repository.
fn registry(app: &str) -> Registry {
    match app {
        "pingpong" => {
            let mut registry = Registry::new("pingpong");
            PingPong::default().register(&mut registry);
            registry
        }
        "kv" => {
            let mut registry = Registry::new("kv");
            KeyValue::default().register(&mut registry);
            registry
        }
        "nvme-target" => {
            let mut registry = Registry::new("nvme-target");
            NvmeTarget::default().register(&mut registry);
            registry
        }
        "tick-to-trade" => {
            let mut registry = Registry::new("tick-to-trade");
            stages::register(&mut registry, &Tally::default());
            registry
        }
        other => panic!("no app is named `{other}`"),
    }
}

/// A machine with what the README asks for: two CPUs, and nothing else. It has no hugepages, and
/// little memory may be locked.
fn modest() -> Machine {
    Machine {
        cpus: BTreeSet::from([0, 1]),
        cpu_quota: None,
        huge_2m: Hugepages::Absent,
        huge_1g: Hugepages::Absent,
        huge_default_bytes: None,
        page_bytes: 4096,
        memlock_bytes: Some(8 << 20),
        memory_bytes: 1 << 30,
        memory_grant: None,
        hugepage_grants: Vec::new(),
        address_space_bytes: None,
        data_bytes: None,
        descriptors_max: None,
        descriptors_open: 3,
        numa: Numa::default(),
    }
}

fn generous() -> Machine {
    Machine {
        huge_2m: Hugepages::Counted { total: 64, free: 64 },
        huge_default_bytes: Some(2 << 20),
        memlock_bytes: None,
        ..modest()
    }
}

#[test]
fn every_shipped_plan_loads_with_its_apps_catalog() {
    let mut seen = BTreeSet::new();
    let files = |folder: &str| {
        let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
        entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file())
    };
    for path in files("config").chain(files("config/two-processes")) {
        let text = fs::read_to_string(&path).expect("a plan is text");
        let (_, app) = text.split_once("app = \"").unwrap_or_else(|| panic!("{}: for no app", path.display()));
        let app = app.split('"').next().unwrap_or_default();
        let loader = |machine| Loader::new(registry(app).catalog(), machine);

        let plan = loader(generous()).load_path(&path).unwrap_or_else(|faults| panic!("{faults}"));
        assert!(plan.warnings().is_empty() && plan.notes().is_empty(), "{}{:?}", plan.warnings(), plan.notes());
        assert_eq!(plan.app(), Some(app));
        assert_eq!(Some(plan.name()), path.file_stem().and_then(|stem| stem.to_str()));

        let plan = loader(modest()).load_path(&path).unwrap_or_else(|faults| panic!("{faults}"));
        assert!(plan.warnings().is_empty(), "{}", plan.warnings());
        let lacks: Vec<_> = plan.notes().iter().map(|note| note.lack).collect();
        let of_memory = |lack: &Lack| [Lack::Hugepages, Lack::LockedMemory].contains(lack);
        assert!(lacks.contains(&Lack::Hugepages) && lacks.iter().all(of_memory), "{lacks:?}");
        seen.insert(app.to_owned());
    }
    assert_eq!(Vec::from_iter(seen), ["kv", "nvme-target", "pingpong", "tick-to-trade"], "every app has a plan");
}
