//! The plan's sum of memory includes the target's, and is proved before anything is mapped.

use nvme_target::NvmeTarget;
use verbline::cli::App;
use verbline::engine::Registry;
use verbline::plan::{Hugepages, Inspection, Loader, Machine, Sum};

use verbline_tests::assert_within_memory_sum;

use crate::command::{has_verified, shipped};
use crate::common::plan;

fn inspect(text: &str, memory_bytes: u64) -> Inspection {
    let mut registry = Registry::new("nvme-target");
    NvmeTarget::default().register(&mut registry);
    let machine = Machine {
        page_bytes: 4096,
        huge_2m: Hugepages::Absent,
        memory_bytes,
        memory_grant: None,
        address_space_bytes: None,
        data_bytes: None,
        ..Machine::detect()
    };
    Loader::new(registry.catalog(), machine).inspect_str("target.toml", text)
}

/// The sum of memory on ordinary pages.
fn sum(text: &str) -> Sum {
    let Inspection { sums, diagnostics, .. } = inspect(text, 1 << 40);
    let found = sums.into_iter().find(|sum| sum.of == "memory on pages of 4 KiB");
    found.unwrap_or_else(|| panic!("no sum:\n{diagnostics}"))
}

fn term(sum: &Sum, what: &str, how: &str) -> u64 {
    let found = sum.terms.iter().find(|term| term.what == what && term.how == how);
    found.unwrap_or_else(|| panic!("no {what} ({how}): {sum:#?}")).value
}

#[test]
fn the_memory_of_namespaces_is_in_the_sum() {
    let with = |more: &str| sum(&plan(7947, &format!("commands_max = 1024\n{more}")));
    let own = with("");
    assert_eq!(term(&own, "region.disk", ""), 1 << 20, "the blocks");
    let beside = |sum: &Sum| term(sum, "stage.target", "namespaces, beside their blocks");
    // Each has room for 1,024 requests at its store.
    let null = |nsid| format!("[nvme.namespace.{nsid}]\nnull_bytes = 4096\n");
    let many = with(&(3..=102).map(null).collect::<String>());
    let each = (beside(&many) - beside(&own)) / 100;
    assert!((1024 * 16..1024 * 256).contains(&each), "{each}");
    assert_eq!(many.needed - own.needed, 100 * each, "{many:#?}");
    assert!(term(&own, "stage.target", "commands under way") > 1024 * 64, "{own:#?}");
}

#[test]
fn a_plan_whose_blocks_do_not_fit_is_refused_with_the_sum() {
    let text = plan(7947, "commands_max = 64");
    let needed = sum(&text).needed;
    assert!(inspect(&text, needed).plan.is_some(), "just enough");
    let Inspection { plan, diagnostics, .. } = inspect(&text, needed - 1);
    assert!(plan.is_none() && diagnostics.to_string().contains("region.disk"), "{diagnostics}");
    assert!(diagnostics.errors().any(|fault| fault.code() == "too-much-memory"), "{diagnostics}");
}

#[test]
fn two_lcores_stay_within_the_sum_of_memory() {
    let Some(run) = shipped(&[]) else { return };
    assert_within_memory_sum(&run, has_verified);
}
