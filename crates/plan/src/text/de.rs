//! serde's view of a [`Node`]: any type that derives `Deserialize` reads from the tree, and errors
//! carry their places.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::de::{Unexpected, VariantAccess};
use serde::forward_to_deserialize_any;

use crate::diag::source::Span;
use crate::text::tree::{KeyValue, Node, Value};

/// An error message, and its place if known yet.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) span: Option<Span>,
    pub(crate) fault: DeFault,
}

#[derive(Debug)]
pub(crate) enum DeFault {
    UnknownKey { key: String, known: &'static [&'static str] },
    UnknownVariant { name: String, known: &'static [&'static str] },
    MissingKey { key: &'static str },
    Type { found: String, expected: String },
    Other(String),
}

impl Error {
    /// Sets the place if no deeper one is known.
    fn at(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }

    /// [`Error::at`] for the value of `entry`; a key missing inside it is reported at the entry's
    /// own key.
    fn inside(self, entry: &KeyValue) -> Self {
        let missing = matches!(self.fault, DeFault::MissingKey { .. });
        self.at(if missing { entry.key_span } else { entry.node.span })
    }

    fn new(fault: DeFault) -> Self {
        Error { span: None, fault }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.fault)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Error::new(DeFault::Other(message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Error::new(DeFault::Type { found: found.to_string(), expected: expected.to_string() })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Error::new(DeFault::Other(format!("{found} does not fit: expected {expected}")))
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Error::new(DeFault::UnknownKey { key: key.to_owned(), known })
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Error::new(DeFault::UnknownVariant { name: name.to_owned(), known })
    }

    fn missing_field(key: &'static str) -> Self {
        Error::new(DeFault::MissingKey { key })
    }
}

pub(crate) struct NodeDeserializer<'a>(pub(crate) &'a Node);

impl<'de> Deserializer<'de> for NodeDeserializer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0.value {
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(value), _) => visitor.visit_i64(value),
                (_, Ok(value)) => visitor.visit_u64(value),
                _ => visitor.visit_i128(*value),
            },
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Str(text) | Value::Datetime(text) => visitor.visit_str(text),
            Value::Array(items) => visitor.visit_seq(Items(items.iter())),
            Value::Table(table) => visitor.visit_map(Entries { rest: table.entries.iter(), current: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.0.value {
            Value::Str(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            Value::Table(table) if table.entries.len() == 1 => visitor.visit_enum(Variant(&table.entries[0])),
            Value::Table(_) => Err(de::Error::custom("expected one choice: a string, or a table with one key")),
            _ => Err(Error::new(DeFault::Type { found: self.0.kind().to_owned(), expected: "a string".to_owned() })),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Items<'a>(std::slice::Iter<'a, Node>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(node) = self.0.next() else { return Ok(None) };
        seed.deserialize(NodeDeserializer(node)).map(Some).map_err(|error| error.at(node.span))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Entries<'a> {
    rest: std::slice::Iter<'a, KeyValue>,
    current: Option<&'a KeyValue>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(entry) = self.rest.next() else { return Ok(None) };
        self.current = Some(entry);
        seed.deserialize(entry.key.as_str().into_deserializer())
            .map(Some)
            .map_err(|error: Error| error.at(entry.key_span))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let entry = self.current.take().ok_or_else(|| de::Error::custom("a value was asked for before its key"))?;
        seed.deserialize(NodeDeserializer(&entry.node)).map_err(|error| error.inside(entry))
    }
}

/// `{ variant = content }`.
struct Variant<'a>(&'a KeyValue);

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Error;
    type Variant = Content<'a>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Content<'a>), Error> {
        let entry = self.0;
        let name: Result<_, Error> = seed.deserialize(entry.key.as_str().into_deserializer());
        Ok((name.map_err(|error| error.at(entry.key_span))?, Content(entry)))
    }
}

struct Content<'a>(&'a KeyValue);

impl<'de> VariantAccess<'de> for Content<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Err(Error::new(DeFault::Other(format!("`{0}` takes no value: write \"{0}\"", self.0.key))).at(self.0.node.span))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(NodeDeserializer(&self.0.node)).map_err(|error| error.inside(self.0))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        NodeDeserializer(&self.0.node).deserialize_any(visitor).map_err(|error| error.inside(self.0))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        NodeDeserializer(&self.0.node).deserialize_any(visitor).map_err(|error| error.inside(self.0))
    }
}
