//! Shared by the tests of this crate: a catalog, a machine and a good plan.

use std::collections::BTreeSet;

use verbline_plan::{Catalog, Hugepages, Loader, Machine, Numa, Plan, StageKind, StageSpec};

/// The kinds and sections of the plans under test.
pub(crate) fn catalog() -> Catalog {
    let kind = |name, outputs, source, holds_packets| StageKind {
        name,
        spec: StageSpec { outputs, source, holds_packets, ..StageSpec::default() },
        needs: None,
    };
    Catalog {
        app: Some("tick-to-trade"),
        kinds: vec![
            kind("publish", &["a", "b"], true, 0),
            kind("arbiter", &["merged", "late"], false, 64),
            kind("book", &["changed"], false, 0),
            kind("sign", &["signed"], false, 0),
            kind("sink", &[], false, 0),
        ],
        acceptors: vec!["porter"],
        sections: vec!["feed", "risk"],
        tables: Vec::new(),
    }
}

/// Like [`catalog`], for plans that name no app, with these kinds besides.
pub(crate) fn catalog_with(kinds: impl IntoIterator<Item = StageKind>) -> Catalog {
    let mut catalog = Catalog { app: None, ..catalog() };
    catalog.kinds.extend(kinds);
    catalog
}

/// Four CPUs, plenty of hugepages, no limits on locked memory.
pub(crate) fn machine() -> Machine {
    Machine {
        cpus: BTreeSet::from([0, 1, 2, 3]),
        cpu_quota: None,
        huge_2m: Hugepages::Counted { total: 64, free: 64 },
        huge_1g: Hugepages::Absent,
        huge_default_bytes: Some(2 << 20),
        page_bytes: 4096,
        memlock_bytes: None,
        memory_bytes: 8 << 30,
        memory_grant: None,
        hugepage_grants: Vec::new(),
        address_space_bytes: None,
        data_bytes: None,
        descriptors_max: None,
        descriptors_open: 3,
        numa: Numa::default(),
    }
}

pub(crate) fn loader() -> Loader {
    Loader::new(catalog(), machine())
}

/// A plan that passes every check without a warning.
pub(crate) const GOOD: &str = include_str!("../good.toml");

/// That plan, loaded.
pub(crate) fn good() -> Plan {
    loader().load_str("good.toml", GOOD).unwrap_or_else(|faults| panic!("{faults}"))
}
