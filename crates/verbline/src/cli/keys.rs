//! `keys`: prints the keys of a plan, table by table: the engine's tables, and those that the app
//! declares. `docs/plan.md` and `docs/keys.md` show the same. Editors get them as a JSON schema.

use std::process::ExitCode;

use verbline_engine::Registry;
use verbline_plan::{TableReference, app_reference, reference, schema};

use super::args::KeysOptions;
use super::output::{document, result};

/// Prints the keys of every table, or of one; or all as a schema.
pub(super) fn keys(registry: &Registry, options: &KeysOptions) -> ExitCode {
    if options.schema {
        return document(&schema(&registry.catalog()), ExitCode::SUCCESS, None);
    }
    let wanted = |table: &TableReference| options.table.as_deref().is_none_or(|sort| sort == table.sort);
    let tables: Vec<String> = tables(registry).into_iter().filter(wanted).map(|table| show(&table)).collect();
    result(&tables.join("\n"), ExitCode::SUCCESS, None)
}

fn tables(registry: &Registry) -> Vec<TableReference> {
    let mut tables = reference();
    tables.extend(app_reference(&registry.catalog()));
    tables
}

/// The names that `keys` accepts: the sorts of tables, the app's sections, and the kinds whose
/// `params` it declares.
pub(super) fn names(registry: &Registry) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for name in tables(registry).into_iter().map(|table| table.sort).filter(|sort| !sort.is_empty()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn show(table: &TableReference) -> String {
    match table.header.as_str() {
        "" => format!("above all tables: {}\n{table}", table.meaning),
        header => format!("{header}: {}\n{table}", table.meaning),
    }
}
