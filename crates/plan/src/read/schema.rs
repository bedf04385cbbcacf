//! The JSON schema of an app's plans, for editors that complete keys and underline faults as a plan
//! is written.
//!
//! Guarantees: the schema is made of the declarations that the reader of a plan uses, and is no
//! stricter than the reader: a plan that the schema refuses, a check refuses too. It covers keys,
//! types, bounds, words, kinds, outputs and `params`. Only a check knows the rules that span
//! several tables (references, sums, keys that go together), the lengths of lists, and the bounds
//! of durations.

use serde_json::{Map, Value, json};

use crate::catalog::{AppTable, Catalog, StageKind};
use crate::read::raw;
use crate::read::reader::{Key, LeftOut, Takes};
use crate::read::reference::{KeyReference, TableReference, explain_app_key, reference};
use crate::text::keys::{AppDefault, AppKey, AppTakes};

/// The pattern of tables' names.
const NAME: &str = "^[A-Za-z0-9_-]{1,64}$";

/// A duration, with every unit.
const DURATION: &str = "^\\s*([0-9]+(\\.[0-9]+)?\\s*(nanos|nsec|ns|usec|us|µs|millis|msec|ms|seconds|second|secs|sec|\
    s|minutes|minute|mins|min|m|hours|hour|hrs|hr|h|days|day|d|weeks|week|wks|wk|w|months|month|M|years|year|yrs|yr|y)\
    \\s*)+$|^0$";

/// The JSON schema (draft 7) of the plans of an app that has registered this catalog.
pub fn schema(catalog: &Catalog) -> Value {
    let mut properties = Map::new();
    for ((sort, keys), table) in raw::keys().into_iter().zip(reference()) {
        let object = engine_table(&keys, &table, catalog);
        match sort {
            // The keys above all tables.
            "" => properties.extend(object["properties"].as_object().cloned().unwrap_or_default()),
            _ => _ = properties.insert(sort.to_owned(), named(object, table.meaning, Some(NAME))),
        }
    }
    for section in &catalog.sections {
        let known: Vec<&AppTable> =
            catalog.tables.iter().filter(|table| !table.is_params && table.name == *section).collect();
        properties.insert((*section).to_owned(), app_tables(&known));
    }
    let app = catalog.app.unwrap_or("any app");
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": format!("A plan of {app}"),
        "type": "object",
        "properties": properties,
        "required": ["lcore"],
        "additionalProperties": false,
    })
}

/// A table of tables, whose names the plan's author chooses.
fn named(object: Value, meaning: &str, names: Option<&str>) -> Value {
    let mut tables = json!({ "type": "object", "description": meaning, "additionalProperties": object });
    if let Some(names) = names {
        tables["propertyNames"] = json!({ "pattern": names });
    }
    tables
}

fn object(properties: Map<String, Value>, required: Vec<&str>) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// One of the engine's tables.
fn engine_table(keys: &[Key], table: &TableReference, catalog: &Catalog) -> Value {
    let mut properties = Map::new();
    for (key, words) in keys.iter().zip(&table.keys) {
        let mut value = engine_value(key);
        match (table.sort, key.name) {
            ("", "app") => value = catalog.app.map_or(value, |app| json!({ "const": app })),
            ("port", "acceptor") => value = one_of(&catalog.acceptors),
            ("stage", "use") => value = one_of(&catalog.kinds.iter().map(|kind| kind.name).collect::<Vec<_>>()),
            _ => {}
        }
        explain(&mut value, words);
        properties.insert(key.name.to_owned(), value);
    }
    let is_required = |key: &&Key| matches!(key.left_out, LeftOut::Refused);
    let mut table_of = object(properties, keys.iter().filter(is_required).map(|key| key.name).collect());
    if table.sort == "stage" {
        table_of["allOf"] = catalog.kinds.iter().map(|kind| of_kind(kind, catalog)).collect();
    }
    table_of
}

/// The schema of the stages of one kind: all its outputs have targets, and its `params`.
fn of_kind(kind: &StageKind, catalog: &Catalog) -> Value {
    let outputs: Map<String, Value> =
        kind.spec.outputs.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect();
    let mut then = json!({ "properties": { "out": object(outputs, kind.spec.outputs.to_vec()) } });
    if !kind.spec.outputs.is_empty() {
        then["required"] = json!(["out"]);
    }
    let params: Vec<&AppTable> =
        catalog.tables.iter().filter(|table| table.is_params && table.name == kind.name).collect();
    if !params.is_empty() {
        then["properties"]["params"] = app_tables(&params);
    }
    json!({ "if": { "properties": { "use": { "const": kind.name } }, "required": ["use"] }, "then": then })
}

fn one_of(words: &[&str]) -> Value {
    if words.is_empty() { json!({ "not": {} }) } else { json!({ "type": "string", "enum": words }) }
}

/// The schema of a value of the engine's.
fn engine_value(key: &Key) -> Value {
    // A required list has at least one entry.
    let least = u8::from(matches!(key.left_out, LeftOut::Refused));
    let mut value = match &key.takes {
        Takes::Text => json!({ "type": "string" }),
        Takes::Texts => json!({ "type": "array", "items": { "type": "string" }, "minItems": least }),
        Takes::TextOrTexts => json!({ "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" }, "minItems": 1 },
        ] }),
        Takes::Number(range) => json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() }),
        Takes::Share => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Takes::Choice(words) => json!({ "type": "string", "enum": words }),
        Takes::Cpu(max) => json!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": max },
            { "type": "string", "pattern": "^allowed:[0-9]+$" },
        ] }),
        Takes::Flag => json!({ "type": "boolean" }),
        Takes::Duration(_) => json!({ "type": "string", "pattern": DURATION }),
        Takes::Table => json!({ "type": "object" }),
    };
    if let LeftOut::Default(default) = &key.left_out {
        value["default"] = serde_json::from_str(default).unwrap_or_else(|_| json!(default));
    }
    value
}

/// The schema of an app's table: its declaration, one of several if it has more than one, and any
/// table if it has none.
fn app_tables(tables: &[&AppTable]) -> Value {
    let of = |table: &&AppTable| {
        let mut object = app_object(table.keys);
        object["description"] = json!(table.meaning);
        object
    };
    match tables {
        [] => json!({ "type": "object" }),
        [table] => of(table),
        several => json!({ "type": "object", "anyOf": several.iter().map(of).collect::<Vec<_>>() }),
    }
}

fn app_object(keys: &[AppKey]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut value = app_value(key);
        explain(&mut value, &explain_app_key(key));
        properties.insert(key.name.to_owned(), value);
    }
    let is_required = |key: &&AppKey| matches!(key.left_out, AppDefault::Refused);
    object(properties, keys.iter().filter(is_required).map(|key| key.name).collect())
}

fn app_value(key: &AppKey) -> Value {
    let mut value = match key.takes {
        AppTakes::Integer(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        AppTakes::Real(least, most) => json!({ "type": "number", "minimum": least, "maximum": most }),
        AppTakes::Share => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        AppTakes::Flag => json!({ "type": "boolean" }),
        AppTakes::Text(_) => json!({ "type": "string" }),
        AppTakes::Texts(_) => json!({ "type": "array", "items": { "type": "string" } }),
        AppTakes::Choice(words) => one_of(words),
        AppTakes::Map(_) => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        AppTakes::Tables(_, keys) => named(app_object(keys), key.meaning, None),
    };
    match key.left_out {
        AppDefault::Refused | AppDefault::Open(_) => {}
        AppDefault::Integer(default) => value["default"] = json!(default),
        AppDefault::Real(default) => value["default"] = json!(default),
        AppDefault::Flag(default) => value["default"] = json!(default),
        AppDefault::Text(default) => value["default"] = json!(default),
    }
    value
}

/// Adds the text that an editor shows beside a key.
fn explain(value: &mut Value, words: &KeyReference) {
    let mut text = words.meaning.to_owned();
    for (name, said) in [("unit", words.unit), ("default", words.default.as_str()), ("bounds", words.bounds.as_str())] {
        if !said.is_empty() {
            text += &format!("\n{name}: {said}");
        }
    }
    value["description"] = json!(text);
}
