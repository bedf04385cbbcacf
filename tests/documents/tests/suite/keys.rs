//! All keys that the apps read of a plan are declared, and docs/keys.md shows them.
//!
//! After a change of one, write the page again:
//! `WRITE=1 cargo test -p document-tests --test suite -- keys`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use verbline::cli::App;
use verbline::plan::{TableReference, app_reference, schema};
use verbline::prelude::*;
use verbline_operate::{MetricsSettings, TraceSettings};
use verbline_tests::root;

const PAGE: &str = "docs/keys.md";

const HEAD: &str = "# The keys of the apps

Beside [the keys that every plan has](plan.md) an app reads some of its own: sections, and the
`params` of its kinds of stages. This page is made of what the apps declare (a test compares them),
and each app prints its own: `tick-to-trade keys feed`, `kv keys shard`.

`keys --schema` prints a JSON schema of the app's plans, with which an editor completes them;
[schema](schema) has those of the apps, and the first line of each shipped plan names its own.

A key is read with its bounds and its default from the declaration. An app of yours declares its
keys in the same way: `Keys` and `AppKey` of `verbline::prelude`, `Registry::section_of` and
`Registry::params_of`.
";

pub(crate) fn apps() -> Vec<(&'static str, Registry)> {
    let apps: [&dyn App; 5] = [
        &kv::KeyValue::default(),
        &nvme_load::NvmeLoad::default(),
        &nvme_target::NvmeTarget::default(),
        &pingpong::PingPong::default(),
        &tick_to_trade::TickToTrade::default(),
    ];
    let registered = |app: &dyn App| {
        let mut registry = Registry::new(app.name());
        app.register(&mut registry);
        (app.name(), registry)
    };
    apps.into_iter().map(registered).collect()
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut shown: Vec<String> = Vec::new();
    let mut any = Registry::new("any app");
    MetricsSettings::register(&mut any);
    TraceSettings::register(&mut any);
    for (app, registry) in [("any app", any)].into_iter().chain(apps()) {
        // An app that contains another shows only its own keys.
        let tables: Vec<TableReference> = app_reference(&registry.catalog());
        let own = tables.iter().filter(|table| !shown.contains(&format!("{}{table}", table.header)));
        let own: Vec<&TableReference> = own.collect();
        let _ = write!(page, "\n## {app}\n");
        for table in own {
            let _ = write!(page, "\n### {}\n\n{}.\n\n", table.header, capital(table.meaning));
            table.to_string().lines().for_each(|line| _ = writeln!(page, "    {line}"));
            shown.push(format!("{}{table}", table.header));
        }
    }
    page
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[test]
fn the_page_of_the_apps_keys_is_what_they_declare() {
    let path = root().join(PAGE);
    if std::env::var_os("WRITE").is_some() {
        fs::write(&path, page()).expect("the page");
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == page(), "{PAGE} is not what the apps declare: write it again with WRITE=1");
    let wide: Vec<&str> = stored.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

/// The page of the target has tables of its own for two sections: every key, with its default.
#[test]
fn the_tables_of_the_targets_page_have_every_key_with_its_default() {
    let page = fs::read_to_string(root().join("docs/nvme-target.md")).expect("the page");
    let (_, registry) = apps().into_iter().find(|(app, _)| *app == "nvme-target").expect("the target");
    let schema = schema(&registry.catalog());
    for section in ["nvme", "load"] {
        let keys = schema["properties"][section]["properties"].as_object().expect("declared keys");
        let (_, behind) = page.split_once(&format!("## `[{section}]`\n\n")).expect("a table");
        let table = behind.lines().map_while(|line| line.strip_prefix("    "));
        // A row that begins with a space goes on with the one before.
        let rows: Vec<Vec<&str>> =
            table.skip(1).filter(|row| !row.starts_with(' ')).map(|row| row.split_whitespace().collect()).collect();
        let named: BTreeSet<&str> = rows.iter().map(|row| row[0].trim_end_matches(".N")).collect();
        assert_eq!(named, keys.keys().map(String::as_str).collect(), "the keys of [{section}]");
        for row in rows {
            let Some(default) = keys.get(row[0]).and_then(|key| key.get("default")) else { continue };
            let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            let shown = row[1].replace(',', "");
            let is_it = shown.strip_prefix('…').map_or(shown == default, |end| default.ends_with(end));
            assert!(is_it, "[{section}] {}: {shown}, and the default is {default}", row[0]);
        }
    }
}

#[test]
fn every_section_and_every_kind_with_params_is_declared() {
    let (mut plans, mut seen) = (Vec::new(), 0);
    for folder in ["config", "config/two-processes", "tests/plans"] {
        let entries = fs::read_dir(root().join(folder)).expect("plans").map(|entry| entry.expect("an entry").path());
        plans.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "toml")));
    }
    for (app, registry) in apps() {
        let catalog = registry.catalog();
        let declares = |name: &str, is_params| {
            catalog.tables.iter().any(|table| (table.name, table.is_params) == (name, is_params))
        };
        let undeclared: Vec<_> = catalog.sections.iter().filter(|section| !declares(section, false)).collect();
        assert!(undeclared.is_empty(), "{app}: {undeclared:?}");
        for plan in &plans {
            // The plans are read but never run, so the CPUs of this test do not matter.
            let machine = Machine { cpus: (0..8).collect(), memlock_bytes: None, ..Machine::detect() };
            let loader = Loader::new(catalog.clone(), machine);
            let Ok(Some(loaded)) = loader.inspect_path(plan).map(|inspected| inspected.plan) else { continue };
            for stage in loaded.stages().iter().filter(|stage| stage.params.is_present()) {
                assert!(declares(&stage.kind, true), "{app}: `{}` of {}", stage.kind, plan.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 5, "{seen} stages with params");
}

/// A table that is read without its declaration could have undeclared keys.
#[test]
fn apps_read_their_keys_by_the_declaration_alone() {
    const OTHER_WAYS: [&str; 4] = ["stage.params()", "stage.section(", "section.parse()", "params().parse"];
    let mut offences = Vec::new();
    for path in sources(&root().join("apps")) {
        let text = fs::read_to_string(&path).expect("a source");
        for (line, number) in text.lines().zip(1..) {
            if OTHER_WAYS.iter().any(|way| line.contains(way)) {
                offences.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    own.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}
