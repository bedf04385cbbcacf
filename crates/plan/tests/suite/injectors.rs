//! Injectors in a plan: their references, their share of the pool, and their faults.

use crate::common::{GOOD, catalog, machine};
use verbline_plan::{Inspection, Loader};

/// The good plan, with an injector of these keys.
fn inspect(keys: &str) -> Inspection {
    let text = format!("{GOOD}\n[injector.orders]\n{keys}\n");
    Loader::new(catalog(), machine()).inspect_str("plan.toml", &text)
}

fn codes(keys: &str) -> Vec<&'static str> {
    inspect(keys).diagnostics.errors().map(|fault| fault.code()).collect()
}

#[test]
fn an_injector_feeds_a_stage_and_counts_in_the_sum_of_its_pool() {
    let good = "to = \"stage.book\"\npool = \"packets\"\ndepth = 64";
    let inspection = inspect(good);
    let plan = inspection.plan.as_ref().unwrap_or_else(|| panic!("{}", inspection.diagnostics));
    let [injector] = plan.injectors() else { panic!("one injector") };
    assert_eq!((&*injector.name, &*plan[injector.to].name, injector.depth_packets), ("orders", "book", 64));
    assert_eq!(injector.lcore, plan[injector.to].lcore);
    let without = Loader::new(catalog(), machine()).load_str("plan.toml", GOOD).unwrap();
    let needed = |plan: &verbline_plan::Plan| plan.sums().iter().find(|sum| sum.of == "pool.packets").unwrap().needed;
    // Its depth, the message that is being filled, and one more burst in each batch that it leads
    // to.
    assert!(needed(plan) > needed(&without) + 64, "{}", plan.explain());
    assert!(plan.explain().contains("injector.orders"), "{}", plan.explain());
    assert!(plan.to_dot().contains("injector.orders"));
    let (batch, before) = (plan[injector.to].batch_packets, without[injector.to].batch_packets);
    assert_eq!(batch - before, plan[injector.lcore].burst_packets);
}

#[test]
fn what_is_wrong_with_one_is_said() {
    assert_eq!(codes("to = \"stage.boook\"\npool = \"packets\"\ndepth = 64"), ["dangling"]);
    assert_eq!(codes("to = \"port.md_a\"\npool = \"packets\"\ndepth = 64"), ["wrong-sort"]);
    assert_eq!(codes("to = \"stage.book\"\npool = \"tics\"\ndepth = 64"), ["dangling"]);
    assert_eq!(codes("to = \"stage.book\"\ndepth = 64"), ["missing-key"]);
    assert_eq!(codes("to = \"stage.book\"\npool = \"packets\"\ndepth = 0"), ["bad-value"]);
    assert_eq!(codes("to = \"stage.book\"\npool = \"packets\"\ndepth = 1_000_000"), ["pool-too-small"]);
    assert_eq!(codes("to = \"stage.book\"\npool = \"packets\"\ndepth = 64\ndeep = 1"), ["unknown-key"]);
}
