//! An app's keys in a plan: each declared once, with its type, unit, default, bounds and meaning.
//! The reader of a table ([`Params::read`](crate::Params::read)) takes defaults and bounds from the
//! declaration, and the command line and the documents take their words from it.

use std::ops::RangeInclusive;

use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// An app's own type of a table in the plan: a section, or the `params` of a stage kind.
///
/// ```
/// use serde::Deserialize;
/// use verbline_plan::{AppKey, Keys};
///
/// /// `[market]` in the plan.
/// #[derive(Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Market {
///     depth: u32,
///     symbol: String,
/// }
///
/// impl Keys for Market {
///     const KEYS: &'static [AppKey] = &[
///         AppKey::integer("depth", 1..=64, "price levels of a side").or(10).unit("levels"),
///         AppKey::text("symbol", "1 to 8 letters", "the instrument that is followed"),
///     ];
/// }
/// ```
pub trait Keys: DeserializeOwned {
    /// Its keys: exactly the type's fields, which the registration checks. Defaults belong here,
    /// not in the type.
    const KEYS: &'static [AppKey];
}

/// One key of an app's table. It is required, unless made optional ([`AppKey::or`],
/// [`AppKey::optional`]).
#[derive(Clone, Copy, Debug)]
pub struct AppKey {
    pub(crate) name: &'static str,
    pub(crate) takes: AppTakes,
    pub(crate) unit: &'static str,
    pub(crate) left_out: AppDefault,
    pub(crate) meaning: &'static str,
}

/// The values that a key takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AppTakes {
    Integer(u64, u64),
    Real(f64, f64),
    /// A number from 0 to 1.
    Share,
    Flag,
    /// A text; the words describe the valid ones, and the app checks it.
    Text(&'static str),
    Texts(&'static str),
    Choice(&'static [&'static str]),
    /// Strings, whose names the plan's author chooses.
    Map(&'static str),
    /// Tables with these keys each, whose names the plan's author chooses.
    Tables(&'static str, &'static [AppKey]),
}

/// The meaning of an absent key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AppDefault {
    Refused,
    /// Described in words.
    Open(&'static str),
    Integer(u64),
    Real(f64),
    Flag(bool),
    Text(&'static str),
}

impl AppKey {
    const fn new(name: &'static str, takes: AppTakes, meaning: &'static str) -> AppKey {
        AppKey { name, takes, unit: "", left_out: AppDefault::Refused, meaning }
    }

    /// An integer; one outside `bounds` is an error at its line and column.
    pub const fn integer(name: &'static str, bounds: RangeInclusive<u64>, meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Integer(*bounds.start(), *bounds.end()), meaning)
    }

    /// A real number within bounds.
    pub const fn real(name: &'static str, bounds: RangeInclusive<f64>, meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Real(*bounds.start(), *bounds.end()), meaning)
    }

    /// A share, from 0 to 1.
    pub const fn share(name: &'static str, meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Share, meaning)
    }

    /// `true` or `false`.
    pub const fn flag(name: &'static str, meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Flag, meaning)
    }

    /// A string; `bounds` describes the valid ones, and the app checks it.
    pub const fn text(name: &'static str, bounds: &'static str, meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Text(bounds), meaning)
    }

    /// An array of strings; empty if left out.
    pub const fn texts(name: &'static str, bounds: &'static str, meaning: &'static str) -> AppKey {
        AppKey { left_out: AppDefault::Open("none"), ..AppKey::new(name, AppTakes::Texts(bounds), meaning) }
    }

    /// One of several words.
    pub const fn choice(name: &'static str, words: &'static [&'static str], meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Choice(words), meaning)
    }

    /// A table of strings, whose names the plan chooses; empty if left out.
    pub const fn map(name: &'static str, bounds: &'static str, meaning: &'static str) -> AppKey {
        AppKey { left_out: AppDefault::Open("none"), ..AppKey::new(name, AppTakes::Map(bounds), meaning) }
    }

    /// A table of tables with these keys each, whose names the plan chooses; empty if left out.
    pub const fn tables(
        name: &'static str,
        bounds: &'static str,
        keys: &'static [AppKey],
        meaning: &'static str,
    ) -> AppKey {
        AppKey { left_out: AppDefault::Open("none"), ..AppKey::new(name, AppTakes::Tables(bounds, keys), meaning) }
    }

    /// Sets the unit of a number.
    pub const fn unit(self, unit: &'static str) -> AppKey {
        AppKey { unit, ..self }
    }

    /// Makes it optional; `words` describe the meaning of its absence. The type's field is an
    /// `Option`.
    pub const fn optional(self, words: &'static str) -> AppKey {
        AppKey { left_out: AppDefault::Open(words), ..self }
    }

    /// May be left out, and is this whole number then. Keys of other types have
    /// [`or_real`](AppKey::or_real), [`or_flag`](AppKey::or_flag) and [`or_text`](AppKey::or_text).
    pub const fn or(self, whole_number: u64) -> AppKey {
        AppKey { left_out: AppDefault::Integer(whole_number), ..self }
    }

    /// Makes it optional, with this default.
    pub const fn or_real(self, default: f64) -> AppKey {
        AppKey { left_out: AppDefault::Real(default), ..self }
    }

    /// Makes it optional, with this default.
    pub const fn or_flag(self, default: bool) -> AppKey {
        AppKey { left_out: AppDefault::Flag(default), ..self }
    }

    /// Makes it optional, with this default.
    pub const fn or_text(self, default: &'static str) -> AppKey {
        AppKey { left_out: AppDefault::Text(default), ..self }
    }

    /// The key's name in the plan.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// Keys that a type reads without declaring them, or declares without reading them.
pub fn undeclared<T: Keys>() -> Vec<&'static str> {
    let fields = fields::<T>();
    let declared = || T::KEYS.iter().map(|key| key.name);
    let unread = declared().filter(|name| !fields.contains(name));
    fields.iter().copied().filter(|field| declared().all(|name| name != *field)).chain(unread).collect()
}

/// The fields that a type's `Deserialize` asks for.
fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // The deserializer only records the question, and so fails.
    let _ = T::deserialize(Asking(&mut fields));
    fields
}

struct Asking<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Asking<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ValueError> {
        Err(ValueError::custom("only the fields of a struct are asked for"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "its fields are declared and deserialized, and read by nobody")]
    struct Read {
        depth: u32,
        #[serde(rename = "symbol")]
        called: String,
    }

    impl Keys for Read {
        const KEYS: &'static [AppKey] =
            &[AppKey::integer("depth", 1..=64, "levels"), AppKey::flag("is_new", "nothing")];
    }

    #[test]
    fn a_key_that_only_one_side_knows_is_named() {
        assert_eq!(undeclared::<Read>(), ["symbol", "is_new"]);
    }
}
