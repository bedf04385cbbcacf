//! The shape of a stage in the file, with the targets of its outputs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::diag::source::Span;
use crate::limits::{LISTED_MAX, TIMERS_MAX};
use crate::read::raw_port::read_params;
use crate::read::reader::{Field, Reader, TableHeader};
use crate::text::tree::{Node, Value};

#[derive(Debug)]
pub(crate) struct RawStage {
    pub(crate) head: TableHeader,
    pub(crate) kind: Option<Field<String>>,
    pub(crate) lcore: Option<Field<String>>,
    pub(crate) pool: Option<Field<String>>,
    pub(crate) timers_max: Field<u32>,
    pub(crate) regions: Vec<Field<String>>,
    /// The name of each output, its place, and its target's name.
    pub(crate) out: Vec<(String, Span, Option<Field<String>>)>,
    pub(crate) params: Option<(Span, Node)>,
    /// Whether the kind has read its `params`, for its needs or later.
    pub(crate) params_asked: Arc<AtomicBool>,
}

impl RawStage {
    pub(crate) fn read(head: TableHeader, reader: &mut Reader<'_>) -> RawStage {
        RawStage {
            head,
            kind: reader.text("use", "\"KIND\", one that the application registered"),
            lcore: reader.text("lcore", "\"NAME\", the lcore that runs it"),
            pool: reader.optional_text("pool"),
            timers_max: reader.number_or("timers_max", 0..=TIMERS_MAX, 0),
            regions: reader.texts("regions", LISTED_MAX),
            out: read_outputs(reader),
            params: read_params(reader, "params", "stage.NAME.params"),
            params_asked: Arc::default(),
        }
    }
}

/// Reads the name of each output, its place, and its target's name.
fn read_outputs(reader: &mut Reader<'_>) -> Vec<(String, Span, Option<Field<String>>)> {
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
