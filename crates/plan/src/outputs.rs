//! Reads the `out` of a stage: which target each of its outputs names.

use crate::limits::LISTED_MAX;
use crate::read::{Field, Reader};
use crate::source::Span;
use crate::tree::Value;

/// Output name, its place, and the target that it names.
pub(crate) fn read(reader: &mut Reader<'_>) -> Vec<(String, Span, Option<Field<String>>)> {
    let Some(entry) = reader.table("out") else { return Vec::new() };
    let Value::Table(table) = &entry.node.value else {
        let message = format!("`out` must be a table, not {}", entry.node.kind());
        reader.sink.error("wrong-type", entry.node.span, message).help("write `out = { OUTPUT = \"stage.NAME\" }`");
        return Vec::new();
    };
    if table.entries.len() > LISTED_MAX {
        let message = format!("a stage has {LISTED_MAX} outputs at most, not {}", table.entries.len());
        reader.sink.error("bad-value", entry.key_span, message);
        return Vec::new();
    }
    let mut list = Vec::with_capacity(table.entries.len());
    for entry in &table.entries {
        let target = match &entry.node.value {
            Value::Str(text) => Some(Field { value: text.clone(), span: entry.node.span, given: true }),
            _ => {
                let message = format!("output `{}` must name one target, not {}", entry.key, entry.node.kind());
                reader.sink.error("wrong-type", entry.node.span, message).label("expected a string").help(
                    "write \"stage.NAME\", \"port.NAME\", \"ring.NAME\", \"drop\", or \"spread.NAME\" for several",
                );
                None
            }
        };
        list.push((entry.key.clone(), entry.key_span, target));
    }
    list
}
