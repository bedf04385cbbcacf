//! A plan that passes: what it holds, its sums and its graph.

mod common;

use common::{GOOD, loader};

#[test]
fn explains_its_sums() {
    let plan = loader().load_str("good.toml", GOOD).unwrap_or_else(|faults| panic!("{faults}"));
    insta::assert_snapshot!(plan.explain());
}

#[test]
fn draws_itself() {
    let plan = loader().load_str("good.toml", GOOD).unwrap_or_else(|faults| panic!("{faults}"));
    insta::assert_snapshot!("dot", plan.to_dot());
    insta::assert_snapshot!("mermaid", plan.to_mermaid());
}
