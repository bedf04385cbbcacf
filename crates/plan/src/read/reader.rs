//! Typed access to one table of the tree. Reports every fault of a key's presence, type or range.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::choices::Cpu;
use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::diag::suggestions;
use crate::text::tree::{KeyValue, Table, Value};

/// A value and its place, which sums and diagnostics cite.
#[derive(Debug, Clone)]
pub(crate) struct Field<T> {
    pub(crate) value: T,
    /// The place of the value; the table's header if the file leaves it out.
    pub(crate) span: Span,
    /// Whether the file or a flag gives it.
    pub(crate) given: bool,
}

/// The first of some texts stands for all where one is needed.
#[derive(Debug, Default)]
pub(crate) struct OneOrMore {
    pub(crate) first: Option<Field<String>>,
    pub(crate) more: Vec<Field<String>>,
}

/// The name of a table, and its place.
#[derive(Debug, Clone)]
pub(crate) struct TableHeader {
    pub(crate) name: String,
    pub(crate) span: Span,
}

/// One key that a reader asked its table for: a part of the table's schema.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) takes: Takes,
    pub(crate) left_out: LeftOut,
}

/// The form of a key's value.
#[derive(Debug, Clone)]
pub(crate) enum Takes {
    Text,
    Texts,
    /// One text, or a list of them.
    TextOrTexts,
    Number(RangeInclusive<u64>),
    /// A number from 0 to 1.
    Share,
    Choice(Vec<&'static str>),
    /// A number up to this bound, or a place.
    Cpu(u32),
    Flag,
    /// At most this long.
    Duration(Duration),
    Table,
}

/// A number of a plan: 32 bits, or 64 where it counts memory.
pub(crate) trait Number: Copy + PartialOrd + Display + Into<u64> + TryFrom<i128> {}

impl Number for u32 {}
impl Number for u64 {}

fn takes<N: Number>(range: &RangeInclusive<N>) -> Takes {
    Takes::Number((*range.start()).into()..=(*range.end()).into())
}

/// The meaning of an absent key.
#[derive(Debug, Clone)]
pub(crate) enum LeftOut {
    Refused,
    /// The checks work out a value, if there is one.
    Open,
    Default(String),
}

/// Reads the keys of one table, and finds the keys that were not asked for.
pub(crate) struct Reader<'a> {
    pub(crate) sink: &'a mut Sink,
    table: &'a Table,
    /// The path in the file's notation, e.g. `port.orders`; empty at the top.
    path: String,
    head: Span,
    known: Vec<Key>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(table: &'a Table, path: impl Into<String>, head: Span, sink: &'a mut Sink) -> Self {
        Reader { sink, table, path: path.into(), head, known: Vec::new() }
    }

    /// Complains about every key that was not asked for. `more`: keys that are read elsewhere.
    pub(crate) fn finish(self, code: &'static str, more: &[&'static str]) {
        let known: Vec<&str> = self.known.iter().map(|key| key.name).chain(more.iter().copied()).collect();
        for entry in &self.table.entries {
            if known.contains(&entry.key.as_str()) || self.sink.only_counts_error() {
                continue;
            }
            let message = match self.path.as_str() {
                "" => format!("the plan has no key or table `{}`", entry.key),
                path => format!("[{path}] has no key `{}`", entry.key),
            };
            let help = suggestions::suggest(&entry.key, known.iter().copied(), "the keys here are");
            self.sink.error(code, entry.key_span, message).help(help);
        }
    }

    /// Every key that was asked for, in order.
    pub(crate) fn into_keys(self) -> Vec<Key> {
        self.known
    }

    /// The place of a key that is read elsewhere.
    pub(crate) fn place(&self, key: &'static str) -> Option<&'a KeyValue> {
        self.table.find(key)
    }

    /// A table within this one; the caller reads it.
    pub(crate) fn table(&mut self, key: &'static str) -> Option<&'a KeyValue> {
        self.entry(key, Takes::Table, LeftOut::Open)
    }

    fn entry(&mut self, name: &'static str, takes: Takes, left_out: LeftOut) -> Option<&'a KeyValue> {
        self.known.push(Key { name, takes, left_out });
        self.table.find(name)
    }

    /// A required text.
    pub(crate) fn text(&mut self, key: &'static str, example: &str) -> Option<Field<String>> {
        let entry = self.entry(key, Takes::Text, LeftOut::Refused);
        self.need(entry, key, example)?;
        self.as_text(entry?)
    }

    pub(crate) fn optional_text(&mut self, key: &'static str) -> Option<Field<String>> {
        let entry = self.entry(key, Takes::Text, LeftOut::Open)?;
        self.as_text(entry)
    }

    /// A list of at most `max` texts, empty if left out.
    pub(crate) fn texts(&mut self, key: &'static str, max: usize) -> Vec<Field<String>> {
        let entry = self.entry(key, Takes::Texts, LeftOut::Open);
        entry.map_or(Vec::new(), |entry| self.as_texts(entry, max))
    }

    /// A required list of 1 to `max` texts.
    pub(crate) fn some_texts(&mut self, key: &'static str, max: usize, example: &str) -> Vec<Field<String>> {
        let entry = self.entry(key, Takes::Texts, LeftOut::Refused);
        if self.need(entry, key, example).is_none() {
            return Vec::new();
        }
        let Some(entry) = entry else { return Vec::new() };
        if matches!(&entry.node.value, Value::Array(items) if items.is_empty()) {
            self.sink
                .error("bad-value", entry.node.span, format!("`{key}` is empty"))
                .help(format!("write `{key} = {example}`"));
        }
        self.as_texts(entry, max)
    }

    /// One text, or a list of 1 to `max`.
    pub(crate) fn one_or_more(&mut self, key: &'static str, max: usize) -> OneOrMore {
        let Some(entry) = self.entry(key, Takes::TextOrTexts, LeftOut::Open) else { return OneOrMore::default() };
        let mut more = match &entry.node.value {
            Value::Array(items) if items.is_empty() => {
                self.sink
                    .error("bad-value", entry.node.span, format!("`{key}` is empty"))
                    .help("name one at least, or remove it");
                Vec::new()
            }
            Value::Array(_) => self.as_texts(entry, max),
            _ => self.as_text(entry).into_iter().collect(),
        };
        OneOrMore { first: (!more.is_empty()).then(|| more.remove(0)), more }
    }

    /// A required number.
    pub(crate) fn number<N: Number>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<N>,
        example: &str,
    ) -> Option<Field<N>> {
        let entry = self.entry(key, takes(&range), LeftOut::Refused);
        self.need(entry, key, example)?;
        self.as_number(entry?, range)
    }

    /// A number that may be left out; a bad one counts as left out, after the complaint.
    pub(crate) fn number_or(&mut self, key: &'static str, range: RangeInclusive<u32>, default: u32) -> Field<u32> {
        let entry = self.entry(key, takes(&range), LeftOut::Default(default.to_string()));
        let read = entry.and_then(|entry| self.as_number(entry, range));
        read.unwrap_or(Field { value: default, span: self.head, given: false })
    }

    /// A required CPU: a number, or a place such as "allowed:0".
    pub(crate) fn cpu(&mut self, key: &'static str, max: u32) -> Option<Field<Cpu>> {
        let entry = self.entry(key, Takes::Cpu(max), LeftOut::Refused);
        self.need(entry, key, "\"allowed:0\"")?;
        let entry = entry?;
        let text = match &entry.node.value {
            Value::Str(text) if text.parse::<i64>().is_err() => text,
            _ => {
                let number = self.as_number(entry, 0..=max)?;
                return Some(Field { value: Cpu::Number(number.value), span: number.span, given: true });
            }
        };
        let found = Cpu::parse(text).filter(|cpu| matches!(cpu, Cpu::Allowed(place) if *place <= max));
        if found.is_none() {
            self.sink
                .error("bad-value", entry.node.span, format!("`{text}` is not a CPU"))
                .help("write \"allowed:0\", the first that this process may run on, or \"allowed:1\", the next")
                .help("or write the kernel's number of a CPU, without quotes");
        }
        found.map(|value| Field { value, span: entry.node.span, given: true })
    }

    /// A boolean, which may be left out.
    pub(crate) fn flag_or(&mut self, key: &'static str, default: bool) -> Field<bool> {
        let left_out = Field { value: default, span: self.head, given: false };
        let Some(entry) = self.entry(key, Takes::Flag, LeftOut::Default(default.to_string())) else { return left_out };
        self.as_flag(entry).unwrap_or(left_out)
    }

    pub(crate) fn optional_number(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Option<Field<u32>> {
        let entry = self.entry(key, takes(&range), LeftOut::Open)?;
        self.as_number(entry, range)
    }

    /// A share, from 0 to 1.
    pub(crate) fn optional_share(&mut self, key: &'static str) -> Option<Field<f64>> {
        let entry = self.entry(key, Takes::Share, LeftOut::Open)?;
        self.as_real(entry, 0.0..=1.0)
    }

    /// One of several words, required.
    pub(crate) fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&'static str, T)]) -> Option<Field<T>> {
        let entry = self.entry(key, choice_of(choices), LeftOut::Refused);
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        self.need(entry, key, &words.join(" | "))?;
        self.as_choice(entry?, choices)
    }

    /// One of several words, the first by default.
    pub(crate) fn choice_or_first<T: Copy>(&mut self, key: &'static str, choices: &[(&'static str, T)]) -> Field<T> {
        let entry = self.entry(key, choice_of(choices), LeftOut::Default(choices[0].0.to_owned()));
        let read = entry.and_then(|entry| self.as_choice(entry, choices));
        read.unwrap_or(Field { value: choices[0].1, span: self.head, given: false })
    }

    /// A duration such as "50us".
    pub(crate) fn optional_duration(&mut self, key: &'static str, max: Duration) -> Option<Field<Duration>> {
        let entry = self.entry(key, Takes::Duration(max), LeftOut::Open)?;
        self.as_duration(entry, max)
    }

    /// A duration that may be left out; a bad one counts as left out, after the complaint.
    pub(crate) fn duration_or(&mut self, key: &'static str, max: Duration, default: Duration) -> Field<Duration> {
        let words = LeftOut::Default(humantime::format_duration(default).to_string());
        let entry = self.entry(key, Takes::Duration(max), words);
        let read = entry.and_then(|entry| self.as_duration(entry, max));
        read.unwrap_or(Field { value: default, span: self.head, given: false })
    }

    /// Complains if `entry` is absent.
    pub(super) fn need(&mut self, entry: Option<&KeyValue>, key: &str, example: &str) -> Option<()> {
        if entry.is_none() {
            let message = format!("[{}] needs `{key}`", self.path);
            self.sink.error("missing-key", self.head, message).help(format!("add `{key} = {example}`"));
        }
        entry.map(|_| ())
    }
}

fn choice_of<T>(choices: &[(&'static str, T)]) -> Takes {
    Takes::Choice(choices.iter().map(|(word, _)| *word).collect())
}

/// An entry as a table; `path` shows how to write it.
pub(crate) fn table_of<'a>(entry: &'a KeyValue, path: &str, sink: &mut Sink) -> Option<&'a Table> {
    let table = entry.node.as_table();
    if table.is_none() {
        sink.error("wrong-type", entry.key_span, format!("`{}` must be a table, not {}", entry.key, entry.node.kind()))
            .help(format!("write it as a table with the header [{path}]"));
    }
    table
}
