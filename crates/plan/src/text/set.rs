//! `--set KEY=VALUE`: overrides, applied to the tree before anything is checked.
//!
//! A key and its value from a flag have the flag as their place, so that later faults of them point
//! there.

use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::diag::suggestions;
use crate::limits::TOP_KEYS;
use crate::text::tree::{self, KeyValue, Node, Table, Value};

/// Applies the flags in order; they are the sources from 1 on.
pub(crate) fn apply(root: &mut Table, flags: &[String], sink: &mut Sink) {
    for (index, flag) in flags.iter().enumerate() {
        let source = u32::try_from(index + 1).expect("a command line has fewer flags");
        if let Err(fault) = parse(flag, source).and_then(|set| insert(root, set)) {
            let one = sink.error("bad-set", fault.span, fault.message);
            one.help(fault.help);
        }
    }
}

struct Set {
    keys: Vec<(String, Span)>,
    value: Node,
}

struct SetFault {
    span: Span,
    message: String,
    help: String,
}

fn parse(flag: &str, source: u32) -> Result<Set, SetFault> {
    let whole = Span::new(source, 0..flag.len());
    let Some((key, value)) = flag.split_once('=') else {
        return Err(SetFault {
            span: whole,
            message: format!("`{flag}` sets nothing: there is no `=`"),
            help: "write --set KEY=VALUE, e.g. --set lcore.trader.idle=poll".to_owned(),
        });
    };
    let keys = parse_key(key, source).ok_or_else(|| SetFault {
        span: Span::new(source, 0..key.len()),
        message: format!("`{key}` is not a dotted key"),
        help: "write the keys with dots between them, e.g. pool.packets.data_bytes".to_owned(),
    })?;
    // Blanks around the value, as a file has them around its `=`, are not a part of it.
    let offset = flag.len() - value.trim_start().len();
    let value = value.trim();
    let span = Span::new(source, offset..offset + value.len());
    match tree::parse_value(value, source, offset) {
        Ok(Some(value)) => Ok(Set { keys, value }),
        Ok(None) => Ok(Set { keys, value: Node { span, value: Value::Str(value.to_owned()) } }),
        Err(error) => Err(SetFault {
            span,
            message: error.message,
            help: "write another number; a text of digits stands in quotes, e.g. --set 'name=\"1\"'".to_owned(),
        }),
    }
}

fn parse_key(key: &str, source: u32) -> Option<Vec<(String, Span)>> {
    // A key with a line break, a `#` or a `[` could smuggle in other keys.
    if key.contains(['\n', '#', '[']) {
        return None;
    }
    let (table, errors) = tree::parse_document(&format!("{key}=0"), source);
    if !errors.is_empty() {
        return None;
    }
    let mut keys = Vec::new();
    let mut rest = Some(table);
    while let Some(table) = rest {
        let entry = table.entries.into_iter().next()?;
        keys.push((entry.key, entry.key_span));
        rest = match entry.node.value {
            Value::Table(inner) => Some(inner),
            _ => None,
        };
    }
    Some(keys)
}

fn insert(root: &mut Table, set: Set) -> Result<(), SetFault> {
    refuse_half_resources(root, &set)?;
    let Some(((last, last_span), parents)) = set.keys.split_last() else { return Ok(()) };
    let mut table = root;
    for (key, span) in parents {
        let at = match table.entries.iter().position(|entry| entry.key == *key) {
            Some(at) => at,
            None => {
                let node = Node { span: *span, value: Value::Table(Table::default()) };
                table.entries.push(KeyValue { key: key.clone(), key_span: *span, node });
                table.entries.len() - 1
            }
        };
        let node = &mut table.entries[at].node;
        let kind = node.kind();
        let Value::Table(inner) = &mut node.value else {
            return Err(SetFault {
                span: *span,
                message: format!("`{key}` is {kind}, so nothing can be set inside it"),
                help: format!("set `{key}` itself"),
            });
        };
        table = inner;
    }
    match table.find_mut(last) {
        Some(entry) => (entry.key_span, entry.node) = (*last_span, set.value),
        None => table.entries.push(KeyValue { key: last.clone(), key_span: *last_span, node: set.value }),
    }
    Ok(())
}

/// `--set pool.tick.packets=1` where there is only `pool.ticks` is an error here, not a pool with
/// one key.
fn refuse_half_resources(root: &Table, set: &Set) -> Result<(), SetFault> {
    let [(sort, _), (name, span), _, ..] = set.keys.as_slice() else { return Ok(()) };
    if !TOP_KEYS.contains(&sort.as_str()) {
        return Ok(());
    }
    let known = root.find(sort).and_then(|entry| entry.node.as_table());
    let names: Vec<&str> = known.into_iter().flat_map(|table| &table.entries).map(|entry| entry.key.as_str()).collect();
    if names.contains(&name.as_str()) {
        return Ok(());
    }
    Err(SetFault {
        span: *span,
        message: format!("the plan has no [{sort}.{name}] to set a key of"),
        help: suggestions::suggest(name, names, &format!("the plan's {sort}s are")),
    })
}
