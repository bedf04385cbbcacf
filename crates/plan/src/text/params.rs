//! A table of the plan that a stage's factory, or the reader of an app's section, parses into its
//! own type.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::de::DeserializeOwned;

use crate::diag::diagnostics::{Diagnostic, Severity};
use crate::diag::source::{Location, Sources, Span};
use crate::text::de::{self, DeFault};
use crate::text::keys::{AppDefault, AppKey, AppTakes, Keys};
use crate::text::tree::{KeyValue, Node, Table, Value};

/// A stage's `params` or an application's section. Cheap to pass by reference; holds its own copy
/// of the values.
#[derive(Debug, Clone)]
pub struct Params {
    sources: Sources,
    /// The path in the file's notation, e.g. `stage.book.params`.
    path: String,
    /// The place of its key; if absent, that of the enclosing table's key.
    head: Span,
    node: Node,
    present: bool,
    /// Whether its values were read; its clones share this.
    asked: Arc<AtomicBool>,
}

impl Params {
    pub(crate) fn new(sources: &Sources, path: String, head: Span, node: Node) -> Self {
        Params { sources: sources.clone(), path, head, node, present: true, asked: Arc::default() }
    }

    pub(crate) fn absent(sources: &Sources, path: String, head: Span) -> Self {
        let node = Node { span: head, value: Value::Table(Table::default()) };
        Params { sources: sources.clone(), path, head, node, present: false, asked: Arc::default() }
    }

    /// Returns it with `asked` as the flag that its values were read.
    pub(crate) fn sharing(self, asked: &Arc<AtomicBool>) -> Self {
        Params { asked: Arc::clone(asked), ..self }
    }

    /// Whether the file has the table. An absent one parses as an empty table.
    pub fn is_present(&self) -> bool {
        self.note_asked();
        self.present
    }

    /// The path in the file's notation, e.g. `stage.book.params` or `feed`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its start, or the place where it should have been.
    pub fn location(&self) -> Location {
        self.sources.locate(self.head)
    }

    /// Parses the values as a `T`. An error tells the key that is wrong, missing or, if `T` denies
    /// unknown fields, unknown, and its place.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Diagnostic> {
        self.note_asked();
        T::deserialize(de::NodeDeserializer(&self.node)).map_err(|error| self.explain(error))
    }

    /// Reads the values as a type that declares its keys: each within its bounds, or its default if
    /// left out. An error tells the wrong key and its place.
    pub fn read<T: Keys>(&self) -> Result<T, Diagnostic> {
        self.note_asked();
        let mut node = self.node.clone();
        self.complete(&mut node, "", T::KEYS)?;
        T::deserialize(de::NodeDeserializer(&node)).map_err(|error| self.explain(error))
    }

    /// Marks its values as read, as reading them does.
    pub fn note_asked(&self) {
        // Relaxed: the flag orders nothing, and is never reset.
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Returns a fault for each of its keys if neither it nor a clone has been read. `reader` is
    /// the expected reader, e.g. ``stage kind `echo` ``.
    pub fn unasked(&self, reader: &str) -> Vec<Diagnostic> {
        // Relaxed: as above.
        if self.asked.load(Ordering::Relaxed) { Vec::new() } else { self.unknown_keys(reader) }
    }

    /// Refuses every key, for a reader that takes none.
    ///
    /// # Errors
    /// The first key.
    pub fn read_none(&self, reader: &str) -> Result<(), Diagnostic> {
        self.note_asked();
        self.unknown_keys(reader).into_iter().next().map_or(Ok(()), Err)
    }

    fn unknown_keys(&self, reader: &str) -> Vec<Diagnostic> {
        let unknown = |entry: &KeyValue| {
            let message = format!("unknown key `{}`", entry.key);
            let mut one = Diagnostic::new(&self.sources, Severity::Error, "unknown-key", entry.key_span, message);
            one.help(format!("{reader} takes no keys: leave it out of [{}]", self.path));
            one
        };
        self.node.as_table().into_iter().flat_map(|table| &table.entries).map(unknown).collect()
    }

    /// Checks a table's values of these keys, and adds the defaults of absent ones.
    fn complete(&self, node: &mut Node, path: &str, keys: &[AppKey]) -> Result<(), Diagnostic> {
        let span = node.span;
        let Value::Table(table) = &mut node.value else { return Ok(()) };
        for key in keys {
            let path = format!("{path}{}", key.name);
            match table.find_mut(key.name) {
                Some(entry) => self.complete_key(&mut entry.node, &path, key)?,
                None => {
                    let value = left_out(key.left_out).map(|value| Node { span, value });
                    let entry = |node| KeyValue { key: key.name.to_owned(), key_span: span, node };
                    table.entries.extend(value.map(entry));
                }
            }
        }
        Ok(())
    }

    fn complete_key(&self, node: &mut Node, path: &str, key: &AppKey) -> Result<(), Diagnostic> {
        let refuse = |what: String, bounds: String| Err(self.refuse(path, format!("{what} is not within {bounds}")));
        match (&mut node.value, key.takes) {
            (Value::Int(value), AppTakes::Integer(least, most)) if !(least.into()..=most.into()).contains(value) => {
                refuse(value.to_string(), format!("{least} to {most}"))
            }
            (Value::Int(value), AppTakes::Share) if !(0..=1).contains(value) => {
                refuse(format!("a share of {value}"), "0 to 1".to_owned())
            }
            (Value::Float(value), AppTakes::Share) if !(0.0..=1.0).contains(value) => {
                refuse(format!("a share of {value}"), "0 to 1".to_owned())
            }
            (Value::Int(value), AppTakes::Real(least, most)) if !(least..=most).contains(&(*value as f64)) => {
                refuse(value.to_string(), format!("{least} to {most}"))
            }
            (Value::Float(value), AppTakes::Real(least, most)) if !(least..=most).contains(value) => {
                refuse(value.to_string(), format!("{least} to {most}"))
            }
            (Value::Table(table), AppTakes::Tables(_, keys)) => {
                let mut entries = table.entries.iter_mut();
                entries.try_for_each(|entry| self.complete(&mut entry.node, &format!("{path}.{}.", entry.key), keys))
            }
            // A value of another type is refused when the values are read.
            _ => Ok(()),
        }
    }

    /// Makes an error about the value of `key` (dotted; empty for the whole table) for a fault that
    /// only the caller can see, e.g. that a file it names is absent. If `--set` has changed the
    /// table it points at the flag, since the file does not show the judged value.
    pub fn refuse(&self, key: &str, message: impl Into<String>) -> Diagnostic {
        let mut span = self.head;
        let mut node = &self.node;
        for part in key.split('.').filter(|part| !part.is_empty()) {
            let Some(entry) = node.as_table().and_then(|table| table.find(part)) else { break };
            node = &entry.node;
            span = node.span;
        }
        let flag = (node.as_table().is_some()).then(|| self.last_flag(node)).flatten();
        let mut one = Diagnostic::new(&self.sources, Severity::Error, "bad-value", flag.unwrap_or(span), message);
        if flag.is_some_and(|flag| flag != span) {
            one.related(span, "the table that it changes");
        }
        one
    }

    /// The last flag that sets a value in a table.
    fn last_flag(&self, node: &Node) -> Option<Span> {
        let is_flag = |span: &Span| self.sources.source(*span).is_flag;
        let Value::Table(table) = &node.value else { return Some(node.span).filter(is_flag) };
        table.entries.iter().filter_map(|entry| self.last_flag(&entry.node)).max()
    }

    fn explain(&self, error: de::Error) -> Diagnostic {
        let span = error.span.unwrap_or(self.head);
        let make = |code, message: String| Diagnostic::new(&self.sources, Severity::Error, code, span, message);
        match error.fault {
            DeFault::UnknownKey { key, known } => {
                let mut one = make("unknown-key", format!("unknown key `{key}`"));
                one.help(crate::diag::suggestions::suggest(&key, known.iter().copied(), "the keys here are"));
                one
            }
            DeFault::UnknownVariant { name, known } => {
                let mut one = make("bad-value", format!("`{name}` is not a choice here"));
                one.help(crate::diag::suggestions::suggest(&name, known.iter().copied(), "the choices are"));
                one
            }
            DeFault::MissingKey { key } => {
                let message = match error.span {
                    None => format!("[{}] needs `{key}`", self.path),
                    Some(_) => format!("`{key}` is missing here"),
                };
                let mut one = make("missing-key", message);
                if !self.present {
                    one.help(format!("there is no [{}] yet: add it, with `{key} = …`", self.path));
                }
                one
            }
            DeFault::Type { found, expected } => {
                let mut one = make("wrong-type", format!("expected {expected}, found {found}"));
                one.label(format!("expected {expected}"));
                one
            }
            DeFault::Other(message) => make("bad-value", message),
        }
    }
}

/// The default of an absent key, if it has one.
fn left_out(default: AppDefault) -> Option<Value> {
    match default {
        AppDefault::Refused | AppDefault::Open(_) => None,
        AppDefault::Integer(value) => Some(Value::Int(value.into())),
        AppDefault::Real(value) => Some(Value::Float(value)),
        AppDefault::Flag(value) => Some(Value::Bool(value)),
        AppDefault::Text(text) => Some(Value::Str(text.to_owned())),
    }
}
