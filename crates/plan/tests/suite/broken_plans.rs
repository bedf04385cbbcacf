//! Every plan in tests/broken-plans is refused with the errors that its first line names, worded as
//! in the snapshots.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::loader;

/// Fewer plans mean that the folder moved.
const PLANS_MIN: usize = 20;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/broken-plans")
}

#[test]
fn every_broken_plan_is_refused_as_it_says() {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder()).expect("tests/broken-plans").map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    assert!(files.len() >= PLANS_MIN, "only {} plans in {}", files.len(), folder().display());
    let mut wrong = String::new();
    for file in files {
        let stem = file.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let first = text.lines().next().unwrap_or_default();
        let expected =
            first.strip_prefix("# expect: ").unwrap_or_else(|| panic!("{stem}: the first line names no errors"));
        let faults = loader().load_str(&format!("{stem}.toml"), &text).expect_err(stem);
        let codes: Vec<&str> = faults.errors().map(|fault| fault.code()).collect();
        let shown = faults.render(false);
        if codes.join(", ") != expected {
            wrong += &format!("\n{stem}: expected {expected}, found {}\n{shown}", codes.join(", "));
        }
        for line in shown.lines() {
            assert!(line.chars().count() <= 80, "{stem}: wider than 80 columns: {line}");
        }
        insta::with_settings!({ omit_expression => true, snapshot_path => "snapshots/broken" }, {
            insta::assert_snapshot!(stem, shown);
        });
    }
    assert!(wrong.is_empty(), "{wrong}");
}
