//! `keys`: prints what a plan can say, table by table; `docs/plan.md` shows the same.

use std::process::ExitCode;

use verbline_plan::{TableReference, reference};

use super::args::KeysOptions;
use super::output::result;

/// Prints every table's keys, or one's.
pub(super) fn keys(options: &KeysOptions) -> ExitCode {
    let wanted = |table: &TableReference| options.table.as_deref().is_none_or(|sort| sort == table.sort);
    let tables: Vec<String> = reference().into_iter().filter(wanted).map(|table| show(&table)).collect();
    result(&tables.join("\n"), ExitCode::SUCCESS, None)
}

fn show(table: &TableReference) -> String {
    match table.header().as_str() {
        "" => format!("above all tables: {}\n{table}", table.meaning),
        header => format!("{header}: {}\n{table}", table.meaning),
    }
}
