//! Operations with their extension headers, and their opcodes.

use crate::wire::extension::{AtomicExtension, AtomicOp, Deth, Reader, Reth, Syndrome, Writer};

/// A packet's operation, by the transport of its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// On a reliable connection.
    Rc(Rc),
    /// On an unreliable connection.
    Uc(Uc),
    /// A whole datagram, perhaps with immediate data.
    Ud(Deth, Option<u32>),
}

/// A request or a response of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rc {
    /// A part of a SEND.
    Send {
        /// It begins the message.
        first: bool,
        /// It ends the message.
        last: Option<SendEnd>,
    },
    /// A part of a WRITE.
    Write {
        /// It begins the message.
        first: Option<Reth>,
        /// It ends the message.
        last: Option<WriteEnd>,
    },
    /// Requests the bytes of a READ.
    ReadRequest(Reth),
    /// A part of a READ's data.
    ReadResponse(ReadPart),
    /// Acknowledges or refuses a request.
    Acknowledge(Syndrome),
    /// The old value of an atomic's word.
    AtomicResponse(Syndrome, u64),
    /// Requests an atomic.
    Atomic(AtomicExtension),
}

/// A request of an unreliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uc {
    /// A part of a SEND.
    Send {
        /// It begins the message.
        first: bool,
        /// It ends the message.
        last: Option<WriteEnd>,
    },
    /// A part of a WRITE.
    Write {
        /// It begins the message.
        first: Option<Reth>,
        /// It ends the message.
        last: Option<WriteEnd>,
    },
}

/// The end of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd {
    /// Without further data.
    Plain,
    /// With four bytes for the completion.
    Immediate(u32),
    /// With a key of the receiver to be invalidated.
    Invalidate(u32),
}

/// The end of a message that can't invalidate a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// Without further data.
    Plain,
    /// With four bytes for the completion.
    Immediate(u32),
}

/// The part of a READ's response in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPart {
    /// The first of several packets.
    First(Syndrome),
    /// A packet in the middle.
    Middle,
    /// The last of several packets.
    Last(Syndrome),
    /// The only packet.
    Only(Syndrome),
}

const UC: u8 = 0x20;
const UD: u8 = 0x60;
const SEND: u8 = 0x00;
const SEND_INVALIDATE: u8 = 0x16;
const WRITE: u8 = 0x06;

/// The opcode of a part: `base` is the first of its six, in the order that SEND and WRITE share.
fn part(base: u8, first: bool, last: Option<bool>) -> u8 {
    base + match (first, last) {
        (true, None) => 0,
        (false, None) => 1,
        (false, Some(immediate)) => 2 + u8::from(immediate),
        (true, Some(immediate)) => 4 + u8::from(immediate),
    }
}

/// The inverse of [`part`], from the distance to `base`: begins, ends, has immediate data.
fn parts(distance: u8) -> (bool, bool, bool) {
    (matches!(distance, 0 | 4 | 5), distance >= 2, matches!(distance, 3 | 5))
}

impl WriteEnd {
    fn has_immediate(self) -> bool {
        matches!(self, WriteEnd::Immediate(_))
    }

    fn read(ends: bool, has_immediate: bool, reader: &mut Reader<'_>) -> Option<Option<WriteEnd>> {
        match (ends, has_immediate) {
            (false, _) => Some(None),
            (true, false) => Some(Some(WriteEnd::Plain)),
            (true, true) => Some(Some(WriteEnd::Immediate(reader.word()?))),
        }
    }

    fn write(last: Option<WriteEnd>, writer: &mut Writer<'_>) {
        if let Some(WriteEnd::Immediate(immediate)) = last {
            writer.word(immediate);
        }
    }
}

impl Segment {
    /// The opcode, with the transport's bits.
    pub fn opcode(&self) -> u8 {
        match *self {
            Segment::Rc(rc) => rc.opcode(),
            Segment::Uc(Uc::Send { first, last }) => UC + part(SEND, first, last.map(WriteEnd::has_immediate)),
            Segment::Uc(Uc::Write { first, last }) => {
                UC + part(WRITE, first.is_some(), last.map(WriteEnd::has_immediate))
            }
            Segment::Ud(_, immediate) => UD + part(SEND, true, Some(immediate.is_some())),
        }
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        match *self {
            Segment::Rc(rc) => rc.write(writer),
            Segment::Uc(Uc::Send { last, .. }) => WriteEnd::write(last, writer),
            Segment::Uc(Uc::Write { first, last }) => {
                first.iter().for_each(|reth| writer.reth(reth));
                WriteEnd::write(last, writer);
            }
            Segment::Ud(deth, immediate) => {
                writer.deth(&deth);
                immediate.into_iter().for_each(|word| writer.word(word));
            }
        }
    }

    /// Reads a segment. `Some(None)` if no operation has the opcode, `None` if the bytes end within
    /// its headers.
    pub(crate) fn read(opcode: u8, reader: &mut Reader<'_>) -> Option<Option<Segment>> {
        let segment = match opcode {
            0x20..=0x25 => {
                let (first, ends, has_immediate) = parts(opcode - UC - SEND);
                Segment::Uc(Uc::Send { first, last: WriteEnd::read(ends, has_immediate, reader)? })
            }
            0x26..=0x2B => {
                let (begins, ends, has_immediate) = parts(opcode - UC - WRITE);
                let first = if begins { Some(reader.reth()?) } else { None };
                Segment::Uc(Uc::Write { first, last: WriteEnd::read(ends, has_immediate, reader)? })
            }
            0x64 => Segment::Ud(reader.deth()?, None),
            0x65 => Segment::Ud(reader.deth()?, Some(reader.word()?)),
            _ => return Rc::read(opcode, reader).map(|rc| rc.map(Segment::Rc)),
        };
        Some(Some(segment))
    }
}

impl Rc {
    fn opcode(self) -> u8 {
        match self {
            Rc::Send { first, last: Some(SendEnd::Invalidate(_)) } => SEND_INVALIDATE + u8::from(first),
            Rc::Send { first, last } => part(SEND, first, last.map(|last| matches!(last, SendEnd::Immediate(_)))),
            Rc::Write { first, last } => part(WRITE, first.is_some(), last.map(WriteEnd::has_immediate)),
            Rc::ReadRequest(_) => 0x0C,
            Rc::ReadResponse(ReadPart::First(_)) => 0x0D,
            Rc::ReadResponse(ReadPart::Middle) => 0x0E,
            Rc::ReadResponse(ReadPart::Last(_)) => 0x0F,
            Rc::ReadResponse(ReadPart::Only(_)) => 0x10,
            Rc::Acknowledge(_) => 0x11,
            Rc::AtomicResponse(..) => 0x12,
            Rc::Atomic(AtomicExtension { op: AtomicOp::CompareSwap { .. }, .. }) => 0x13,
            Rc::Atomic(AtomicExtension { op: AtomicOp::FetchAdd(_), .. }) => 0x14,
        }
    }

    fn write(self, writer: &mut Writer<'_>) {
        match self {
            Rc::Send { last: Some(SendEnd::Immediate(word) | SendEnd::Invalidate(word)), .. } => writer.word(word),
            Rc::Send { .. } | Rc::ReadResponse(ReadPart::Middle) => {}
            Rc::Write { first, last } => {
                first.iter().for_each(|reth| writer.reth(reth));
                WriteEnd::write(last, writer);
            }
            Rc::ReadRequest(reth) => writer.reth(&reth),
            Rc::ReadResponse(ReadPart::First(said) | ReadPart::Last(said) | ReadPart::Only(said))
            | Rc::Acknowledge(said) => writer.syndrome(said),
            Rc::AtomicResponse(said, original) => {
                writer.syndrome(said);
                writer.long(original);
            }
            Rc::Atomic(atomic) => writer.atomic(&atomic),
        }
    }

    fn read(opcode: u8, reader: &mut Reader<'_>) -> Option<Option<Rc>> {
        let rc = match opcode {
            0x00..=0x05 => {
                let (first, ends, has_immediate) = parts(opcode - SEND);
                let last = match (ends, has_immediate) {
                    (false, _) => None,
                    (true, false) => Some(SendEnd::Plain),
                    (true, true) => Some(SendEnd::Immediate(reader.word()?)),
                };
                Rc::Send { first, last }
            }
            0x06..=0x0B => {
                let (begins, ends, has_immediate) = parts(opcode - WRITE);
                let first = if begins { Some(reader.reth()?) } else { None };
                Rc::Write { first, last: WriteEnd::read(ends, has_immediate, reader)? }
            }
            0x0C => Rc::ReadRequest(reader.reth()?),
            0x0D => Rc::ReadResponse(ReadPart::First(reader.syndrome()?)),
            0x0E => Rc::ReadResponse(ReadPart::Middle),
            0x0F => Rc::ReadResponse(ReadPart::Last(reader.syndrome()?)),
            0x10 => Rc::ReadResponse(ReadPart::Only(reader.syndrome()?)),
            0x11 => Rc::Acknowledge(reader.syndrome()?),
            0x12 => Rc::AtomicResponse(reader.syndrome()?, reader.long()?),
            0x13 | 0x14 => Rc::Atomic(reader.atomic(opcode == 0x13)?),
            0x16 | 0x17 => Rc::Send { first: opcode == 0x17, last: Some(SendEnd::Invalidate(reader.word()?)) },
            _ => return Some(None),
        };
        Some(Some(rc))
    }
}
