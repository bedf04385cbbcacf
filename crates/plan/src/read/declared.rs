//! The tables that an app reads itself, held against its declarations of their keys: all faults of
//! all tables at once, in the words of the plan's own tables.
//!
//! The app reads each table again later ([`Params::read`](crate::Params::read)), and reports the
//! first fault only. A table without a declaration, and rules that no declaration can state, are
//! left to the app.

use crate::catalog::{AppTable, Catalog};
use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::read::raw::RawPlan;
use crate::read::reader::{Reader, table_of};
use crate::text::keys::{AppDefault, AppKey, AppTakes};
use crate::text::tree::{KeyValue, Node, Table};

/// Reports the faults of every declared table that the plan has.
pub(crate) fn check(raw: &RawPlan, catalog: &Catalog, sink: &mut Sink) {
    let declared = |name: &str, is_params| {
        let tables = catalog.tables.iter();
        tables.filter(move |table| (table.name, table.is_params) == (name, is_params)).collect::<Vec<_>>()
    };
    for (name, section) in catalog.sections.iter().zip(&raw.sections) {
        check_table(section.as_ref(), name, &declared(name, false), sink);
    }
    for stage in &raw.stages {
        let Some(kind) = &stage.kind else { continue };
        let path = format!("stage.{}.params", stage.head.name);
        check_table(stage.params.as_ref(), &path, &declared(&kind.value, true), sink);
    }
}

/// Reports the faults of one table. Of several declarations the nearest one is meant: it knows the
/// most of the table's keys, and then finds the fewest faults.
fn check_table(given: Option<&(Span, Node)>, path: &str, declared: &[&AppTable], sink: &mut Sink) {
    let Some((head, node)) = given else { return };
    let Some(table) = node.as_table() else { return };
    let is_unknown = |entry: &&KeyValue, keys: &[AppKey]| keys.iter().all(|key| key.name != entry.key);
    let found = declared.iter().map(|declaration| {
        let mut found = Sink::new(sink.sources.clone());
        read(table, path, *head, declaration.keys, &mut found);
        let unknown = table.entries.iter().filter(|entry| is_unknown(entry, declaration.keys)).count();
        (unknown, found)
    });
    if let Some((_, nearest)) = found.min_by_key(|(unknown, found)| (*unknown, found.errors())) {
        sink.absorb(nearest);
    }
}

fn read(table: &Table, path: &str, head: Span, keys: &[AppKey], sink: &mut Sink) {
    let mut reader = Reader::new(table, path, head, sink);
    for key in keys {
        match reader.place(key.name) {
            Some(entry) => read_key(&mut reader, path, entry, key.takes),
            None if matches!(key.left_out, AppDefault::Refused) => {
                reader.need(None, key.name, example(key.takes));
            }
            None => {}
        }
    }
    let names: Vec<&'static str> = keys.iter().map(AppKey::name).collect();
    reader.finish("unknown-key", &names);
}

/// Reads one key for its faults alone.
fn read_key(reader: &mut Reader<'_>, path: &str, entry: &KeyValue, takes: AppTakes) {
    match takes {
        AppTakes::Integer(least, most) => _ = reader.as_number(entry, least..=most),
        AppTakes::Real(least, most) => _ = reader.as_real(entry, least..=most),
        AppTakes::Share => _ = reader.as_real(entry, 0.0..=1.0),
        AppTakes::Flag => _ = reader.as_flag(entry),
        AppTakes::Text(_) => _ = reader.as_text(entry),
        AppTakes::Texts(_) => _ = reader.as_texts(entry, usize::MAX),
        AppTakes::Choice(words) => {
            let choices: Vec<(&'static str, ())> = words.iter().map(|word| (*word, ())).collect();
            reader.as_choice(entry, &choices);
        }
        AppTakes::Map(_) => {
            let path = format!("{path}.{}", entry.key);
            let table = table_of(entry, &path, reader.sink);
            table.into_iter().flat_map(|table| &table.entries).for_each(|entry| _ = reader.as_text(entry));
        }
        AppTakes::Tables(_, keys) => {
            let path = format!("{path}.{}", entry.key);
            let Some(tables) = table_of(entry, &format!("{path}.NAME"), reader.sink) else { return };
            for entry in &tables.entries {
                let path = format!("{path}.{}", entry.key);
                if let Some(table) = table_of(entry, &path, reader.sink) {
                    read(table, &path, entry.key_span, keys, reader.sink);
                }
            }
        }
    }
}

/// A value as an example.
fn example(takes: AppTakes) -> &'static str {
    match takes {
        AppTakes::Integer(..) | AppTakes::Real(..) | AppTakes::Share => "NUMBER",
        AppTakes::Flag => "true",
        AppTakes::Text(_) | AppTakes::Choice(_) => "\"TEXT\"",
        AppTakes::Texts(_) => "[\"TEXT\"]",
        AppTakes::Map(_) | AppTakes::Tables(..) => "{ … }",
    }
}
