//! The drawings of plans in documents are the output of `graph`.

use std::fs;

use verbline::prelude::*;
use verbline_tests::root;

use crate::keys::apps;

#[test]
fn a_documents_drawing_is_what_graph_draws() {
    for app in ["kv", "nvme-target"] {
        let (_, registry) = apps().into_iter().find(|(known, _)| *known == app).expect("an app");
        let machine =
            Machine { cpus: (0..8).collect(), memlock_bytes: None, memory_bytes: 64 << 30, ..Machine::detect() };
        let loader = Loader::new(registry.catalog(), machine);
        let plan = loader.load_path(root().join(format!("config/{app}.toml"))).expect("a plan");
        let page = fs::read_to_string(root().join(format!("docs/{app}.md"))).expect("a page");
        let shown = page.split_once("```mermaid\n").and_then(|(_, behind)| behind.split_once("```\n"));
        assert_eq!(shown.map(|(drawing, _)| drawing), Some(plan.to_mermaid().as_str()), "{app}");
    }
}
