//! TOML text as a tree in which every key and value has its place.
//!
//! The parser recovers from syntax errors, so that the text behind one is still checked. Tables
//! keep the order of the file; only `--set` changes them.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error as TomlError};

use crate::diag::source::Span;

/// A value and its place.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Datetime(String),
    Array(Vec<Node>),
    Table(Table),
}

/// Keys in the order of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<KeyValue>,
}

#[derive(Debug, Clone)]
pub(crate) struct KeyValue {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) node: Node,
}

impl Table {
    pub(crate) fn find(&self, key: &str) -> Option<&KeyValue> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub(crate) fn find_mut(&mut self, key: &str) -> Option<&mut KeyValue> {
        self.entries.iter_mut().find(|entry| entry.key == key)
    }
}

impl Node {
    pub(crate) fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The type's name, for "expected …, found …".
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Str(_) => "a string",
            Value::Datetime(_) => "a date or time",
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
        }
    }
}

/// A fault of the text itself.
pub(crate) struct SyntaxError {
    pub(crate) message: String,
    pub(crate) range: Range<usize>,
}

impl From<TomlError> for SyntaxError {
    fn from(error: TomlError) -> Self {
        SyntaxError { message: error.message().to_owned(), range: error.span().unwrap_or(0..0) }
    }
}

/// Reads a whole text. Returns the readable part even if there are errors.
pub(crate) fn parse_document(text: &str, source: u32) -> (Table, Vec<SyntaxError>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut errors: Vec<SyntaxError> = errors.into_iter().map(SyntaxError::from).collect();
    let table = Convert { source, offset: 0, errors: &mut errors }.table(table.into_inner());
    (table, errors)
}

/// Reads one value of `source`, which starts `offset` bytes into it. `None`: the text is not TOML.
///
/// # Errors
/// The text is a number that does not fit.
pub(crate) fn parse_value(text: &str, source: u32, offset: usize) -> Result<Option<Node>, SyntaxError> {
    let Ok(value) = DeValue::parse(text) else { return Ok(None) };
    let mut errors = Vec::new();
    let node = Convert { source, offset, errors: &mut errors }.node(value);
    match errors.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(Some(node)),
    }
}

struct Convert<'a> {
    source: u32,
    offset: usize,
    errors: &'a mut Vec<SyntaxError>,
}

impl Convert<'_> {
    fn span(&self, range: Range<usize>) -> Span {
        Span::new(self.source, range.start + self.offset..range.end + self.offset)
    }

    fn table(&mut self, table: DeTable<'_>) -> Table {
        let mut entries: Vec<KeyValue> = Vec::with_capacity(table.len());
        for (key, value) in table {
            let key_span = self.span(key.span());
            entries.push(KeyValue { key: key.into_inner().into_owned(), key_span, node: self.node(value) });
        }
        entries.sort_by_key(|entry| entry.key_span);
        Table { entries }
    }

    fn node(&mut self, value: Spanned<DeValue<'_>>) -> Node {
        let range = value.span();
        let span = self.span(range.clone());
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Str(text.into_owned()),
            DeValue::Boolean(value) => Value::Bool(value),
            DeValue::Datetime(value) => Value::Datetime(value.to_string()),
            DeValue::Integer(digits) => match i128::from_str_radix(digits.as_str(), digits.radix()) {
                Ok(value) => Value::Int(value),
                Err(_) => self.refuse(range, "the integer has too many digits", Value::Int(0)),
            },
            DeValue::Float(digits) => match digits.as_str().parse() {
                Ok(value) => Value::Float(value),
                Err(_) => self.refuse(range, "not a number", Value::Float(0.0)),
            },
            DeValue::Array(items) => Value::Array(items.into_iter().map(|item| self.node(item)).collect()),
            DeValue::Table(table) => Value::Table(self.table(table)),
        };
        Node { span, value }
    }

    /// Records an error; `stand_in` takes the value's place.
    fn refuse(&mut self, range: Range<usize>, message: &str, stand_in: Value) -> Value {
        self.errors.push(SyntaxError { message: message.to_owned(), range });
        stand_in
    }
}
