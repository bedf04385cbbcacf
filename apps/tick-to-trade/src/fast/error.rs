//! Errors of FAST bytes, with their place.

/// The defect of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The datagram ends within a field.
    #[error("the bytes end within a field: the datagram or the file was cut")]
    Truncated,
    /// An integer exceeds its type.
    #[error("an integer exceeds its type: the bytes are corrupt")]
    Overflow,
    /// A string with a leading zero byte.
    #[error("a string is encoded overlong: the bytes are corrupt")]
    Overlong,
    /// A presence map of more than 63 bits.
    #[error("a presence map exceeds 63 bits: the bytes are corrupt, or do not start at a message")]
    PresenceMap,
    /// A template id that the file does not have.
    #[error("template {0} is not in the template file: the bytes are corrupt, or the file is of another version")]
    UnknownTemplate(u64),
    /// No template id at the start of a message.
    #[error("a message without a template id: it does not start at the reset (template 120)")]
    NoTemplateId,
    /// A mandatory field without a value.
    #[error(
        "a mandatory field has neither a value nor a previous one: the bytes are corrupt, or do not start at a reset"
    )]
    NoValue,
    /// More items than bytes, or entries than [`ENTRIES_MAX`](super::ENTRIES_MAX).
    #[error("a sequence announces {0} items, more than the datagram can hold: the bytes are corrupt")]
    TooManyItems(u64),
    /// The datagram has only a reset, or nothing.
    #[error("there is no message after the reset")]
    NoMessage,
    /// Bytes follow the message.
    #[error("{0} bytes follow the message: a datagram holds a reset and one message")]
    Trailing(usize),
}

/// The defect of a datagram, with its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset_bytes}, {}: {cause}", place(.template_id, .field_id))]
pub struct DecodeError {
    /// Where decoding stopped, in the datagram or file.
    pub offset_bytes: usize,
    /// The template, once it is known.
    pub template_id: Option<u32>,
    /// The field's FIX tag, if it was in a field.
    pub field_id: Option<u32>,
    /// The defect.
    pub cause: Cause,
}

fn place(template: &Option<u32>, field: &Option<u32>) -> String {
    match (template, field) {
        (None, _) => "before a template id".to_string(),
        (Some(t), None) => format!("template {t}"),
        (Some(t), Some(f)) => format!("template {t}, field {f}"),
    }
}
