//! The drawings of plans that documents show are those that `graph` makes.

use std::fs;

use verbline::prelude::*;
use verbline_tests::root;

use crate::keys::apps;

#[test]
fn a_documents_drawing_is_what_graph_draws() {
    let (_, kv) = apps().into_iter().find(|(app, _)| *app == "kv").expect("kv");
    let machine = Machine { cpus: (0..8).collect(), memlock_bytes: None, ..Machine::detect() };
    let plan = Loader::new(kv.catalog(), machine).load_path(root().join("config/kv.toml")).expect("a plan");
    let page = fs::read_to_string(root().join("docs/kv.md")).expect("a page");
    let shown = page.split_once("```mermaid\n").and_then(|(_, behind)| behind.split_once("```\n"));
    assert_eq!(shown.map(|(drawing, _)| drawing), Some(plan.to_mermaid().as_str()));
}
