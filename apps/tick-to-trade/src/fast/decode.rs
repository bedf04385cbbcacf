//! Runs a compiled template over one datagram.
//!
//! FORTS makes every datagram decodable by itself: it starts with a reset (template 120) that
//! empties the dictionaries. So the decoder's state lives for one datagram, and the loss of one
//! harms no other.

use super::error::{Cause, DecodeError};
use super::message::{Action, Decimal, ENTRIES_MAX, Entry, EntryType, Message};
use super::template::{Field, Instruction, Operator, Sequence, Target, Template, Templates, Type, Value};
use super::wire::{PresenceMap, Reader};

/// A dictionary entry. Its value counts only in the epoch that set it, so that a reset is one
/// increment.
#[derive(Clone, Copy)]
struct Slot {
    epoch: u64,
    /// `None` is "empty", which is not "undefined".
    value: Option<Value>,
}

/// Decodes datagrams; allocates nothing after construction.
pub struct Decoder {
    templates: Templates,
    slots: Box<[Slot]>,
    epoch: u64,
    /// For errors: the current template and field.
    template_id: Option<u32>,
    field_id: Option<u32>,
}

impl Decoder {
    /// Takes over compiled templates.
    pub fn new(templates: Templates) -> Self {
        let slots = vec![Slot { epoch: 0, value: None }; templates.slots].into_boxed_slice();
        Self { templates, slots, epoch: 0, template_id: None, field_id: None }
    }

    /// Decodes a datagram: a reset and one message, nothing else.
    ///
    /// # Errors
    /// The cause and the place; `message` is then in an unspecified state.
    #[inline]
    pub fn decode(&mut self, datagram: &[u8], message: &mut Message) -> Result<(), DecodeError> {
        let consumed = self.decode_front(datagram, message)?;
        if consumed < datagram.len() {
            return Err(self.error(consumed, Cause::Trailing(datagram.len() - consumed)));
        }
        Ok(())
    }

    /// Decodes the reset and message at the front of `bytes` and returns their length in bytes.
    ///
    /// # Errors
    /// The cause and the place; `message` is then in an unspecified state.
    pub fn decode_front(&mut self, bytes: &[u8], message: &mut Message) -> Result<usize, DecodeError> {
        let mut reader = Reader::new(bytes);
        self.run(&mut reader, message, false).map_err(|cause| self.error(reader.at(), cause))?;
        Ok(reader.at())
    }

    /// The `MsgSeqNum` of a datagram, for an arbiter: decodes up to that field only.
    ///
    /// # Errors
    /// The bytes up to that field are invalid; the rest is not read.
    pub fn peek_sequence(&mut self, datagram: &[u8], scratch: &mut Message) -> Result<u32, DecodeError> {
        let mut reader = Reader::new(datagram);
        self.run(&mut reader, scratch, true).map_err(|cause| self.error(reader.at(), cause))?;
        Ok(scratch.msg_seq_num)
    }

    #[cold]
    fn error(&self, offset_bytes: usize, cause: Cause) -> DecodeError {
        DecodeError { offset_bytes, template_id: self.template_id, field_id: self.field_id, cause }
    }

    fn run(&mut self, reader: &mut Reader<'_>, message: &mut Message, header_only: bool) -> Result<(), Cause> {
        message.clear();
        self.epoch += 1;
        (self.template_id, self.field_id) = (None, None);
        if reader.remaining() == 0 {
            return Err(Cause::NoMessage);
        }
        // The template id is a copy field of its own. A reset empties it, so every message of a
        // datagram carries it.
        let index = loop {
            let mut map = reader.presence_map()?;
            if !map.next() {
                return Err(Cause::NoTemplateId);
            }
            let index = self.template(reader.uint()?)?;
            if !self.templates.templates[index].is_reset {
                break self.body(index, map, reader, message, header_only).map(|()| index)?;
            }
            if reader.remaining() == 0 {
                return Err(Cause::NoMessage);
            }
        };
        message.kind = self.templates.templates[index].kind;
        message.template_id = self.templates.templates[index].id;
        Ok(())
    }

    fn template(&mut self, id: u64) -> Result<usize, Cause> {
        let index = self.templates.templates.iter().position(|t| u64::from(t.id) == id);
        let index = index.ok_or(Cause::UnknownTemplate(id))?;
        self.template_id = Some(self.templates.templates[index].id);
        Ok(index)
    }

    fn body(
        &mut self,
        index: usize,
        mut map: PresenceMap,
        reader: &mut Reader<'_>,
        message: &mut Message,
        header_only: bool,
    ) -> Result<(), Cause> {
        let Template { instructions, .. } = &self.templates.templates[index];
        let mut run = Run { slots: &mut self.slots, epoch: self.epoch, field_id: &mut self.field_id, reader, message };
        for instruction in instructions {
            run.instruction(instruction, &mut map)?;
            let is_sequence_number = matches!(instruction, Instruction::Field(f) if f.target == Target::MsgSeqNum);
            if header_only && is_sequence_number {
                return Ok(());
            }
        }
        *run.field_id = None;
        Ok(())
    }
}

/// One message being decoded.
struct Run<'a, 'b> {
    slots: &'a mut [Slot],
    epoch: u64,
    field_id: &'a mut Option<u32>,
    reader: &'a mut Reader<'b>,
    message: &'a mut Message,
}

impl Run<'_, '_> {
    #[inline]
    fn instruction(&mut self, instruction: &Instruction, map: &mut PresenceMap) -> Result<(), Cause> {
        match instruction {
            Instruction::Field(field) => {
                let value = self.field(field, map)?;
                if field.target != Target::Nothing
                    && let Some(value) = value
                {
                    store(self.message, field.target, value);
                }
                Ok(())
            }
            Instruction::Sequence(sequence) => self.sequence(sequence, map),
        }
    }

    fn sequence(&mut self, sequence: &Sequence, map: &mut PresenceMap) -> Result<(), Cause> {
        let Some(Value::Uint(items)) = self.field(&sequence.length, map)? else { return Ok(()) };
        // An item takes at least a byte.
        let bound = if sequence.is_entries { ENTRIES_MAX } else { usize::MAX };
        if items > self.reader.remaining().min(bound) as u64 {
            return Err(Cause::TooManyItems(items));
        }
        for _ in 0..items {
            if sequence.is_entries {
                self.message.entries.push(Entry::default());
            }
            let mut own_map = if sequence.has_presence_map { Some(self.reader.presence_map()?) } else { None };
            for item in &sequence.items {
                self.instruction(item, own_map.as_mut().unwrap_or(map))?;
            }
        }
        Ok(())
    }

    /// A field's value by its operator (FAST 1.1, section 6.3).
    #[inline]
    fn field(&mut self, field: &Field, map: &mut PresenceMap) -> Result<Option<Value>, Cause> {
        *self.field_id = Some(field.id);
        match field.operator {
            Operator::None => self.read(field),
            Operator::Constant => Ok(if !field.optional || map.next() { field.initial } else { None }),
            Operator::Default if map.next() => self.read(field),
            Operator::Default => require(field, field.initial),
            Operator::Copy | Operator::Increment if map.next() => {
                let value = self.read(field)?;
                Ok(self.remember(field, value))
            }
            Operator::Copy => match self.previous(field) {
                Some(previous) => require(field, previous),
                None => require(field, field.initial).map(|value| self.remember(field, value)),
            },
            Operator::Increment => match self.previous(field) {
                Some(None) => require(field, None),
                Some(Some(previous)) => {
                    let value = add(field.ty, previous, 1)?;
                    Ok(self.remember(field, Some(value)))
                }
                None => require(field, field.initial).map(|value| self.remember(field, value)),
            },
            Operator::Delta => {
                let delta = if field.optional { self.reader.int_nullable()? } else { Some(self.reader.int()?) };
                let Some(delta) = delta else { return Ok(None) };
                let base = match self.previous(field) {
                    Some(Some(previous)) => previous,
                    Some(None) => return Err(Cause::NoValue),
                    None => field.initial.unwrap_or(zero(field.ty)),
                };
                let value = add(field.ty, base, delta)?;
                Ok(self.remember(field, Some(value)))
            }
        }
    }

    #[inline]
    fn previous(&self, field: &Field) -> Option<Option<Value>> {
        let slot = &self.slots[usize::from(field.slot)];
        (slot.epoch == self.epoch).then_some(slot.value)
    }

    #[inline]
    fn remember(&mut self, field: &Field, value: Option<Value>) -> Option<Value> {
        self.slots[usize::from(field.slot)] = Slot { epoch: self.epoch, value };
        value
    }

    #[inline]
    fn read(&mut self, field: &Field) -> Result<Option<Value>, Cause> {
        let optional = field.optional;
        match field.ty {
            Type::Uint32 | Type::Uint64 => {
                let value = if optional { self.reader.uint_nullable()? } else { Some(self.reader.uint()?) };
                value.map(|v| in_range(field.ty, Value::Uint(v))).transpose()
            }
            Type::Int32 | Type::Int64 => {
                let value = if optional { self.reader.int_nullable()? } else { Some(self.reader.int()?) };
                value.map(|v| in_range(field.ty, Value::Int(v))).transpose()
            }
            Type::Decimal => {
                let exponent = if optional { self.reader.int_nullable()? } else { Some(self.reader.int()?) };
                let Some(exponent) = exponent else { return Ok(None) };
                let exponent = i32::try_from(exponent).map_err(|_| Cause::Overflow)?;
                Ok(Some(Value::Decimal(Decimal { mantissa: self.reader.int()?, exponent })))
            }
            Type::Ascii => Ok(self.reader.ascii(optional)?.map(Value::Text)),
            Type::Blob => {
                Ok(self.reader.blob(optional)?.map(|bytes| Value::Text(super::message::Text::from_bytes(bytes))))
            }
        }
    }
}

#[inline]
fn require(field: &Field, value: Option<Value>) -> Result<Option<Value>, Cause> {
    if value.is_none() && !field.optional { Err(Cause::NoValue) } else { Ok(value) }
}

#[inline]
fn in_range(ty: Type, value: Value) -> Result<Value, Cause> {
    let fits = match (ty, value) {
        (Type::Uint32, Value::Uint(v)) => u32::try_from(v).is_ok(),
        (Type::Int32, Value::Int(v)) => i32::try_from(v).is_ok(),
        _ => true,
    };
    if fits { Ok(value) } else { Err(Cause::Overflow) }
}

fn add(ty: Type, base: Value, delta: i64) -> Result<Value, Cause> {
    let sum = match base {
        Value::Uint(v) => v.checked_add_signed(delta).map(Value::Uint),
        Value::Int(v) => v.checked_add(delta).map(Value::Int),
        // The compiler allows delta and increment on integers only.
        Value::Decimal(_) | Value::Text(_) => None,
    };
    in_range(ty, sum.ok_or(Cause::Overflow)?)
}

fn zero(ty: Type) -> Value {
    match ty {
        Type::Int32 | Type::Int64 => Value::Int(0),
        _ => Value::Uint(0),
    }
}

/// Stores a value in the message. A value of another type than the target's (another template file)
/// is ignored.
#[inline]
fn store(message: &mut Message, target: Target, value: Value) {
    match (target, value) {
        (Target::MsgSeqNum, Value::Uint(v)) => message.msg_seq_num = v as u32,
        (Target::SendingTime, Value::Uint(v)) => message.sending_time = v,
        (Target::RptSeq, Value::Uint(v)) => message.rpt_seq = v as u32,
        (Target::LastMsgSeqNumProcessed, Value::Uint(v)) => message.last_msg_seq_num_processed = v as u32,
        (Target::SecurityId, Value::Uint(v)) => message.security_id = Some(v),
        (Target::NewSeqNum, Value::Uint(v)) => message.new_seq_num = v as u32,
        (Target::SessionStatus, Value::Uint(v)) => message.session_status = v as u32,
        (Target::TradingStatus, Value::Uint(v)) => message.trading_status = Some(v as u32),
        _ => {
            if let Some(entry) = message.entries.last_mut() {
                store_entry(entry, target, value);
            }
        }
    }
}

#[inline]
fn store_entry(entry: &mut Entry, target: Target, value: Value) {
    match (target, value) {
        (Target::EntryAction, Value::Uint(v)) => {
            entry.action = match v as u32 {
                0 => Action::New,
                1 => Action::Change,
                2 => Action::Delete,
                other => Action::Other(other),
            }
        }
        (Target::EntryType, Value::Text(text)) => {
            entry.entry_type = match text.first() {
                b'0' => EntryType::Bid,
                b'1' => EntryType::Offer,
                b'2' => EntryType::Trade,
                b'J' => EntryType::EmptyBook,
                other => EntryType::Other(other),
            }
        }
        (Target::EntrySecurityId, Value::Uint(v)) => entry.security_id = Some(v),
        (Target::EntryRptSeq, Value::Uint(v)) => entry.rpt_seq = v as u32,
        (Target::EntryMarketDepth, Value::Uint(v)) => entry.market_depth = Some(v as u32),
        (Target::EntryLevel, Value::Uint(v)) => entry.level = Some(v as u32),
        (Target::EntryPrice, Value::Decimal(v)) => entry.price = Some(v),
        (Target::EntrySize, Value::Int(v)) => entry.size = Some(v),
        (Target::EntryTime, Value::Uint(v)) => entry.time = v as u32,
        (Target::EntrySessionId, Value::Uint(v)) => entry.session_id = Some(v as u32),
        _ => {}
    }
}
