//! Compiles the exchange's template file into programs that the decoder runs.
//!
//! Supported constructs are those of the FORTS templates: integers, strings and plain decimals,
//! sequences, and the operators constant, default, copy, increment and delta (of integers). Any
//! other construct in a template file is an error that names it. So a newer file fails when it is
//! loaded, not when a datagram arrives.

use std::collections::HashMap;

use roxmltree::{Document, Node};

use super::message::{MessageKind, Text};

/// Why a template file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It is not XML.
    #[error("the template file is not XML: {0}")]
    Xml(String),
    /// A construct that the decoder has no program for.
    #[error(
        "line {line}, template {template}: {what}; the decoder knows the subset of FAST 1.1 that the 2013 FORTS \
         templates use"
    )]
    Unsupported {
        /// The line, from 1.
        line: u32,
        /// The template's name.
        template: String,
        /// The construct.
        what: String,
    },
    /// Two templates with one id.
    #[error("line {line}: template id {id} is given twice")]
    Duplicate {
        /// The line, from 1.
        line: u32,
        /// The id.
        id: u32,
    },
}

/// Field types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Uint32,
    Uint64,
    Int32,
    Int64,
    Decimal,
    Ascii,
    /// Unicode strings and byte vectors.
    Blob,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    None,
    Constant,
    Default,
    Copy,
    Increment,
    Delta,
}

/// A field's value, read or in a dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Uint(u64),
    Int(i64),
    Decimal(super::Decimal),
    Text(Text),
}

/// The message field that a value is stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Nothing,
    MsgSeqNum,
    SendingTime,
    RptSeq,
    LastMsgSeqNumProcessed,
    SecurityId,
    NewSeqNum,
    SessionStatus,
    TradingStatus,
    EntryAction,
    EntryType,
    EntrySecurityId,
    EntryRptSeq,
    EntryMarketDepth,
    EntryLevel,
    EntryPrice,
    EntrySize,
    EntryTime,
    EntrySessionId,
}

#[derive(Debug, Clone)]
pub(super) struct Field {
    /// The FIX tag.
    pub(super) id: u32,
    pub(super) ty: Type,
    pub(super) optional: bool,
    pub(super) operator: Operator,
    pub(super) initial: Option<Value>,
    /// The slot of the dictionary entry, for operators with one.
    pub(super) slot: u16,
    pub(super) target: Target,
}

#[derive(Debug, Clone)]
pub(super) struct Sequence {
    pub(super) length: Field,
    pub(super) items: Vec<Instruction>,
    pub(super) has_presence_map: bool,
    /// The items are kept as entries.
    pub(super) is_entries: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Instruction {
    Field(Field),
    Sequence(Sequence),
}

#[derive(Debug)]
pub(super) struct Template {
    pub(super) id: u32,
    pub(super) kind: MessageKind,
    /// The template resets the dictionaries (`scp:reset`).
    pub(super) is_reset: bool,
    pub(super) instructions: Vec<Instruction>,
}

/// A compiled template file.
#[derive(Debug)]
pub struct Templates {
    /// Sorted by id.
    pub(super) templates: Vec<Template>,
    pub(super) slots: usize,
}

impl Templates {
    /// Compiles a template file.
    ///
    /// # Errors
    /// The file is not XML, or uses a construct that the decoder does not support.
    pub fn from_xml(text: &str) -> Result<Self, TemplateError> {
        let document = Document::parse(text).map_err(|e| TemplateError::Xml(e.to_string()))?;
        let mut compiler = Compiler { slots: HashMap::new(), template: String::new(), dictionary: String::new() };
        let mut templates: Vec<Template> = Vec::new();
        for node in document.root_element().children().filter(|n| is_named(*n, "template")) {
            let template = compiler.template(node)?;
            if templates.iter().any(|t| t.id == template.id) {
                return Err(TemplateError::Duplicate { line: line(node), id: template.id });
            }
            templates.push(template);
        }
        templates.sort_by_key(|t| t.id);
        Ok(Self { templates, slots: compiler.slots.len() })
    }

    /// The ids of all templates, ascending.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.templates.iter().map(|t| t.id)
    }
}

struct Compiler {
    /// Slots by dictionary and key.
    slots: HashMap<(String, String), u16>,
    template: String,
    dictionary: String,
}

impl Compiler {
    fn template(&mut self, node: Node<'_, '_>) -> Result<Template, TemplateError> {
        self.template = node.attribute("name").unwrap_or("?").to_string();
        self.dictionary = node.attribute("dictionary").unwrap_or("global").to_string();
        let id = self.number(node, "id")?.ok_or_else(|| self.unsupported(node, "it has no id"))?;
        let is_reset = node.attributes().any(|a| a.name() == "reset" && matches!(a.value(), "yes" | "T"));
        let kind = match id {
            74 => MessageKind::Increment,
            75 => MessageKind::Snapshot,
            66 => MessageKind::SessionStatus,
            78 => MessageKind::SecurityStatus,
            49 => MessageKind::SequenceReset,
            44 => MessageKind::Heartbeat,
            _ => MessageKind::Other,
        };
        Ok(Template { id, kind, is_reset, instructions: self.instructions(node, false)? })
    }

    fn instructions(&mut self, node: Node<'_, '_>, entries: bool) -> Result<Vec<Instruction>, TemplateError> {
        let mut instructions = Vec::new();
        for child in node.children().filter(|n| n.is_element() && !is_named(*n, "length")) {
            instructions.push(match child.tag_name().name() {
                "sequence" => Instruction::Sequence(self.sequence(child)?),
                _ => Instruction::Field(self.field(child, entries)?),
            });
        }
        Ok(instructions)
    }

    fn sequence(&mut self, node: Node<'_, '_>) -> Result<Sequence, TemplateError> {
        let optional = node.attribute("presence") == Some("optional");
        let is_entries = node.attribute("name") == Some("MDEntries");
        let length = match node.children().find(|n| is_named(*n, "length")) {
            Some(length) => Field { optional, ..self.field(length, false)? },
            None => Field {
                id: 0,
                ty: Type::Uint32,
                optional,
                operator: Operator::None,
                initial: None,
                slot: 0,
                target: Target::Nothing,
            },
        };
        let items = self.instructions(node, is_entries)?;
        let has_presence_map = items.iter().any(|item| match item {
            Instruction::Field(field) => needs_bit(field),
            Instruction::Sequence(sequence) => needs_bit(&sequence.length),
        });
        Ok(Sequence { length, items, has_presence_map, is_entries })
    }

    fn field(&mut self, node: Node<'_, '_>, in_entries: bool) -> Result<Field, TemplateError> {
        let id = self.number(node, "id")?.unwrap_or(0);
        let is_unicode = node.attribute("charset") == Some("unicode");
        let ty = match node.tag_name().name() {
            "uInt32" | "length" => Type::Uint32,
            "uInt64" => Type::Uint64,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "decimal" => Type::Decimal,
            "string" if is_unicode => Type::Blob,
            "string" => Type::Ascii,
            "byteVector" => Type::Blob,
            other => return Err(self.unsupported(node, &format!("the instruction <{other}>"))),
        };
        let optional = node.attribute("presence") == Some("optional");
        let operator_node = node.children().find(Node::is_element);
        let operator = match operator_node.map(|n| n.tag_name().name()) {
            None => Operator::None,
            Some("constant") => Operator::Constant,
            Some("default") => Operator::Default,
            Some("copy") => Operator::Copy,
            Some("increment") => Operator::Increment,
            Some("delta") => Operator::Delta,
            Some(other) => return Err(self.unsupported(node, &format!("the operator <{other}>"))),
        };
        let is_integer = matches!(ty, Type::Uint32 | Type::Uint64 | Type::Int32 | Type::Int64);
        let fits = match operator {
            Operator::None => true,
            Operator::Increment | Operator::Delta => is_integer,
            Operator::Constant | Operator::Default | Operator::Copy => is_integer || ty == Type::Ascii,
        };
        if !fits {
            return Err(self.unsupported(node, &format!("the operator {operator:?} on a field of type {ty:?}")));
        }
        let initial = match operator_node.and_then(|n| n.attribute("value")) {
            Some(text) => Some(self.initial(node, ty, text)?),
            None => None,
        };
        if operator == Operator::Constant && initial.is_none() {
            return Err(self.unsupported(node, "a constant without a value"));
        }
        let slot = self.slot(node, operator_node)?;
        Ok(Field { id, ty, optional, operator, initial, slot, target: target(id, in_entries) })
    }

    fn initial(&self, node: Node<'_, '_>, ty: Type, text: &str) -> Result<Value, TemplateError> {
        let value = match ty {
            Type::Uint32 => text.parse::<u32>().ok().map(|v| Value::Uint(v.into())),
            Type::Uint64 => text.parse().ok().map(Value::Uint),
            Type::Int32 => text.parse::<i32>().ok().map(|v| Value::Int(v.into())),
            Type::Int64 => text.parse().ok().map(Value::Int),
            _ => Some(Value::Text(Text::from_bytes(text.as_bytes()))),
        };
        value.ok_or_else(|| self.unsupported(node, &format!("the initial value {text:?} of a field of type {ty:?}")))
    }

    /// The slot of a field's dictionary entry. The operator, the field or the template may name the
    /// dictionary; the key is the operator's or the field's name.
    fn slot(&mut self, node: Node<'_, '_>, operator: Option<Node<'_, '_>>) -> Result<u16, TemplateError> {
        let given = |name| operator.and_then(|n| n.attribute(name)).or_else(|| node.attribute(name));
        let dictionary = match given("dictionary").unwrap_or(&self.dictionary) {
            "template" => format!("template {}", self.template),
            other => other.to_string(),
        };
        let key = given("key").or_else(|| node.attribute("name")).unwrap_or_default().to_string();
        let free = self.slots.len();
        let slot = *self.slots.entry((dictionary, key)).or_insert(free as u16);
        if free > usize::from(u16::MAX) {
            return Err(self.unsupported(node, "more than 65,535 dictionary entries"));
        }
        Ok(slot)
    }

    fn number(&self, node: Node<'_, '_>, name: &str) -> Result<Option<u32>, TemplateError> {
        let Some(text) = node.attribute(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| self.unsupported(node, &format!("{name}={text:?} is no number")))
    }

    fn unsupported(&self, node: Node<'_, '_>, what: &str) -> TemplateError {
        TemplateError::Unsupported { line: line(node), template: self.template.clone(), what: what.to_string() }
    }
}

/// Whether a field has a bit in its segment's presence map (FAST 1.1, section 10.5.1).
fn needs_bit(field: &Field) -> bool {
    match field.operator {
        Operator::None | Operator::Delta => false,
        Operator::Constant => field.optional,
        Operator::Default | Operator::Copy | Operator::Increment => true,
    }
}

fn target(id: u32, in_entries: bool) -> Target {
    match (id, in_entries) {
        (34, false) => Target::MsgSeqNum,
        (52, false) => Target::SendingTime,
        (83, false) => Target::RptSeq,
        (369, false) => Target::LastMsgSeqNumProcessed,
        (48, false) => Target::SecurityId,
        (36, false) => Target::NewSeqNum,
        (340, false) => Target::SessionStatus,
        (326, false) => Target::TradingStatus,
        (279, true) => Target::EntryAction,
        (269, true) => Target::EntryType,
        (48, true) => Target::EntrySecurityId,
        (83, true) => Target::EntryRptSeq,
        (264, true) => Target::EntryMarketDepth,
        (1023, true) => Target::EntryLevel,
        (270, true) => Target::EntryPrice,
        (271, true) => Target::EntrySize,
        (273, true) => Target::EntryTime,
        (5842, true) => Target::EntrySessionId,
        _ => Target::Nothing,
    }
}

fn line(node: Node<'_, '_>) -> u32 {
    node.document().text_pos_at(node.range().start).row
}

/// Compares local names only: templates and operators are in a namespace, which does not matter
/// here.
fn is_named(node: Node<'_, '_>, name: &str) -> bool {
    node.is_element() && node.tag_name().name() == name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_named() {
        let xml =
            "<templates>\n<template name='T' id='1'>\n<string name='S' id='9'><tail/></string></template></templates>";
        assert_eq!(
            Templates::from_xml(xml).unwrap_err().to_string(),
            "line 3, template T: the operator <tail>; the decoder knows the subset of FAST 1.1 that the 2013 FORTS \
             templates use"
        );
        let twice = "<templates><template name='T' id='1'/><template name='U' id='1'/></templates>";
        assert_eq!(Templates::from_xml(twice).unwrap_err(), TemplateError::Duplicate { line: 1, id: 1 });
        assert!(matches!(Templates::from_xml("<templates>"), Err(TemplateError::Xml(_))));
    }
}
