//! The values of a table's keys, read as the type that a key has. Each fault is reported.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::diag::suggestions;
use crate::read::reader::{Field, Number, Reader};
use crate::text::duration;
use crate::text::tree::{KeyValue, Node, Value};

const DURATION_HELP: &str = "write a number with a unit, e.g. \"50us\", \"20ms\", \"1s\"";

impl Reader<'_> {
    pub(super) fn as_text(&mut self, entry: &KeyValue) -> Option<Field<String>> {
        self.node_text(&entry.node, &entry.key)
    }

    fn node_text(&mut self, node: &Node, key: &str) -> Option<Field<String>> {
        let Value::Str(text) = &node.value else {
            self.wrong_type(node, key, "a string");
            return None;
        };
        Some(Field { value: text.clone(), span: node.span, given: true })
    }

    pub(super) fn as_number<N: Number>(&mut self, entry: &KeyValue, range: RangeInclusive<N>) -> Option<Field<N>> {
        let Value::Int(number) = entry.node.value else {
            self.wrong_type(&entry.node, &entry.key, "an integer");
            return None;
        };
        let value = N::try_from(number).ok().filter(|value| range.contains(value));
        if value.is_none() {
            let message = format!("`{}` is {number}, which is out of range", entry.key);
            let label = format!("from {} to {}", range.start(), range.end());
            self.sink.error("bad-value", entry.node.span, message).label(label);
        }
        value.map(|value| Field { value, span: entry.node.span, given: true })
    }

    pub(super) fn as_flag(&mut self, entry: &KeyValue) -> Option<Field<bool>> {
        let Value::Bool(value) = entry.node.value else {
            self.wrong_type(&entry.node, &entry.key, "true or false");
            return None;
        };
        Some(Field { value, span: entry.node.span, given: true })
    }

    pub(super) fn as_real(&mut self, entry: &KeyValue, range: RangeInclusive<f64>) -> Option<Field<f64>> {
        let value = match entry.node.value {
            Value::Float(value) => value,
            Value::Int(value) => value as f64,
            _ => {
                self.wrong_type(&entry.node, &entry.key, "a number");
                return None;
            }
        };
        if !range.contains(&value) {
            let message = format!("`{}` is {value}, which is out of range", entry.key);
            let label = format!("from {} to {}", range.start(), range.end());
            self.sink.error("bad-value", entry.node.span, message).label(label);
            return None;
        }
        Some(Field { value, span: entry.node.span, given: true })
    }

    pub(super) fn as_choice<T: Copy>(&mut self, entry: &KeyValue, choices: &[(&'static str, T)]) -> Option<Field<T>> {
        let text = self.as_text(entry)?;
        let found = choices.iter().find(|(word, _)| *word == text.value);
        if found.is_none() {
            let message = format!("`{}` is not a choice for `{}`", text.value, entry.key);
            let words = choices.iter().map(|(word, _)| *word);
            let help = suggestions::suggest(&text.value, words, "the choices are");
            self.sink.error("bad-value", text.span, message).help(help);
        }
        found.map(|(_, value)| Field { value: *value, span: text.span, given: true })
    }

    pub(super) fn as_duration(&mut self, entry: &KeyValue, max: Duration) -> Option<Field<Duration>> {
        let key = &entry.key;
        let (span, Value::Str(text)) = (entry.node.span, &entry.node.value) else {
            self.wrong_type(&entry.node, key, "a duration");
            return None;
        };
        let refused = match duration::parse(text) {
            Ok(value) if value <= max => return Some(Field { value, span, given: true }),
            Ok(_) => format!("`{key}` is longer than {}", humantime::format_duration(max)),
            Err(refused) => refused,
        };
        self.sink.error("bad-value", span, refused).help(DURATION_HELP);
        None
    }

    pub(super) fn as_texts(&mut self, entry: &KeyValue, max: usize) -> Vec<Field<String>> {
        let key = &entry.key;
        let Value::Array(items) = &entry.node.value else {
            self.wrong_type(&entry.node, key, "an array of strings");
            return Vec::new();
        };
        if items.len() > max {
            let message = format!("`{key}` has {} entries; it may have {max}", items.len());
            self.sink.error("bad-value", entry.node.span, message);
            return Vec::new();
        }
        items.iter().filter_map(|item| self.node_text(item, key)).collect()
    }

    fn wrong_type(&mut self, node: &Node, key: &str, expected: &str) {
        let message = format!("`{key}` must be {expected}, not {}", node.kind());
        let one = self.sink.error("wrong-type", node.span, message);
        one.label(format!("expected {expected}"));
        let is_one = |text: &str| match expected {
            "an integer" => text.parse::<i64>().is_ok(),
            "a number" => text.parse::<f64>().is_ok(),
            "true or false" => ["true", "false"].contains(&text),
            _ => false,
        };
        match (&node.value, expected) {
            (Value::Str(text), _) if is_one(text) => _ = one.help(format!("write it without quotes: {text}")),
            (_, "a duration") => _ = one.help(DURATION_HELP),
            (Value::Str(text), "an array of strings") => {
                _ = one.help(format!("write it in brackets: {key} = [\"{text}\"]"));
            }
            _ => {}
        }
    }
}
