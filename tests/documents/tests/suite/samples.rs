//! The parts of plans in documents: each is TOML, and the schema of one of the shipped apps knows
//! all its tables, keys and values. Whole plans of other apps are run by tests of their own
//! (`first_stage`, `embedding`).

use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use serde_json::Value;
use verbline_tests::root;

/// All documents, including those of the crates, except the tutorial.
fn documents() -> Vec<PathBuf> {
    let of_crates = fs::read_dir(root().join("crates")).expect("crates/").flatten();
    let of_crates = of_crates.map(|folder| folder.path().join("README.md")).filter(|path| path.is_file());
    let documents = crate::documents().into_iter().filter(|path| !path.ends_with("first-stage.md"));
    documents.chain(of_crates).collect()
}

/// The blocks of TOML that a document shows, with their lines: fenced ones, and indented ones that
/// begin with the header of a table.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let (mut blocks, mut open) = (Vec::new(), None::<(usize, String)>);
    let mut is_fenced = false;
    for (index, line) in text.lines().enumerate() {
        let indented = line.strip_prefix("    ").filter(|_| !is_fenced);
        match (&mut open, indented) {
            (Some((_, block)), _) if is_fenced && line != "```" => *block += &format!("{line}\n"),
            (Some((_, block)), Some(inner)) => *block += &format!("{inner}\n"),
            (Some((_, block)), None) if !is_fenced && line.is_empty() => block.push('\n'),
            (Some(_), _) => {
                blocks.extend(open.take());
                is_fenced = false;
            }
            (None, Some(inner)) if inner.starts_with('[') && inner.ends_with(']') => {
                open = Some((index + 1, format!("{inner}\n")));
            }
            (None, _) if line == "```toml" => (is_fenced, open) = (true, Some((index + 2, String::new()))),
            _ => {}
        }
    }
    blocks.extend(open);
    blocks
}

/// The schemas of the shipped apps, for a part of a plan: nothing is required.
fn schemas() -> Vec<(String, Validator)> {
    let files = fs::read_dir(root().join("docs/schema")).expect("schemas").flatten();
    let of = |path: &Path| {
        let mut schema: Value = serde_json::from_str(&fs::read_to_string(path).expect("a schema")).expect("JSON");
        require_nothing(&mut schema);
        jsonschema::draft7::new(&schema).expect("a schema")
    };
    files.map(|file| (file.file_name().to_string_lossy().into_owned(), of(&file.path()))).collect()
}

fn require_nothing(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.retain(|key, value| key != "required" || !value.is_array());
            object.values_mut().for_each(require_nothing);
        }
        Value::Array(values) => values.iter_mut().for_each(require_nothing),
        _ => {}
    }
}

/// Why no app's schema accepts the block; `None`: one does.
fn fault(block: &str, schemas: &[(String, Validator)]) -> Option<String> {
    let part: Value = match toml::from_str(block) {
        Ok(part) => part,
        Err(error) => return Some(error.to_string()),
    };
    let is_cargos = part.get("dependencies").is_some();
    let is_others =
        part["app"].as_str().is_some_and(|app| schemas.iter().all(|(name, _)| *name != format!("{app}.json")));
    let fault_of = |(name, schema): &(String, Validator)| {
        let faults = schema.iter_errors(&part).map(|fault| format!("{}: {fault}", fault.instance_path()));
        (name.clone(), faults.collect::<Vec<_>>().join("; "))
    };
    let faults: Vec<_> = schemas.iter().map(fault_of).collect();
    let is_known = is_cargos || is_others || faults.iter().any(|(_, faults)| faults.is_empty());
    (!is_known).then(|| format!("{faults:#?}"))
}

#[test]
fn every_part_of_a_plan_in_a_document_is_known() {
    let (schemas, mut seen, mut faults) = (schemas(), 0, Vec::new());
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap_or_else(|error| panic!("{}: {error}", document.display()));
        for (line, block) in blocks(&text) {
            seen += 1;
            faults.extend(fault(&block, &schemas).map(|why| format!("{}:{line}: {why}", document.display())));
        }
    }
    assert!(seen >= 5, "{seen} parts of plans");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_part_with_an_unknown_key_or_a_wrong_value_is_named() {
    let text =
        "a\n\n    [port.a]\n    deep = 1\n\nb\n```toml\n[port.b]\ntx_depth_wr = \"8\"\n```\n```toml\n[port.c]\n```\n";
    let blocks = blocks(text);
    let at: Vec<usize> = blocks.iter().map(|(line, _)| *line).collect();
    assert_eq!(at, [3, 8, 12], "{blocks:?}");
    let schemas = schemas();
    let faults: Vec<bool> = blocks.iter().map(|(_, block)| fault(block, &schemas).is_some()).collect();
    assert_eq!(faults, [true, true, false]);
}
