//! `docs/plan.md` agrees with the reader of a plan, key by key.

use std::path::Path;

use verbline_plan::{TableReference, reference};

#[test]
fn the_page_has_every_key_as_it_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plan.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut wrong = Vec::new();
    let mut rest = page.as_str();
    for table in reference() {
        match rest.split_once(&format!("\n## {}\n", title(&table))) {
            Some((_, behind)) => rest = behind,
            None => wrong.push(format!("no heading `## {}`, or not in its place", title(&table))),
        }
        let (section, shown) = (rest.split("\n## ").next().unwrap_or_default(), table.to_string());
        wrong.extend(missing(&table, section));
        let block: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        if block != shown.lines().collect::<Vec<_>>() {
            wrong.push(format!("{} must read, indented by four:\n{shown}", title(&table)));
        }
    }
    assert!(wrong.is_empty(), "docs/plan.md (`keys` prints what belongs there):\n{}", wrong.join("\n"));
}

fn title(table: &TableReference) -> String {
    if table.sort.is_empty() { "Above all tables".to_owned() } else { format!("`{}`", table.header) }
}

/// The keys of the table whose lines the page lacks.
fn missing(table: &TableReference, section: &str) -> Vec<String> {
    let has = |name: &str| {
        section.lines().any(|line| line.strip_prefix("    ").is_some_and(|line| line.split(' ').next() == Some(name)))
    };
    let keys = table.keys.iter().filter(|key| !has(key.name));
    keys.map(|key| format!("{} lacks the key `{}`", title(table), key.name)).collect()
}
