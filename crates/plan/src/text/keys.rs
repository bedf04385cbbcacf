//! The keys that an app reads of a plan: each declared once, with its type, unit, default, bounds
//! and meaning. What reads a table ([`Params::read`](crate::Params::read)) takes defaults and
//! bounds from the declaration, and the command line and the documents take their words from it.

use std::ops::RangeInclusive;

use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// A table of the plan as an app's own type: a section, or the `params` of a kind of stage.
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
    /// Its keys: exactly the type's fields, which registering it checks. A default stands here, and
    /// not in the type.
    const KEYS: &'static [AppKey];
}

/// One key of an app's table. It must be given, unless it says otherwise ([`AppKey::or`],
/// [`AppKey::optional`]).
#[derive(Clone, Copy, Debug)]
pub struct AppKey {
    pub(crate) name: &'static str,
    pub(crate) takes: AppTakes,
    pub(crate) unit: &'static str,
    pub(crate) left_out: AppDefault,
    pub(crate) meaning: &'static str,
}

/// Which values a key takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AppTakes {
    Integer(u64, u64),
    Real(f64, f64),
    /// A part of a whole.
    Share,
    Flag,
    /// In words, which the app checks.
    Text(&'static str),
    Texts(&'static str),
    Choice(&'static [&'static str]),
    /// Strings by names that the plan's author chooses.
    Map(&'static str),
    /// Tables by such names, with these keys each.
    Tables(&'static str, &'static [AppKey]),
}

/// What a table without the key means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AppDefault {
    Refused,
    /// In words.
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

    /// An integer; another than `bounds` has is an error at its line and column.
    pub const fn integer(name: &'static str, bounds: RangeInclusive<u64>, meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Integer(*bounds.start(), *bounds.end()), meaning)
    }

    /// A number within bounds, which need not be whole.
    pub const fn real(name: &'static str, bounds: RangeInclusive<f64>, meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Real(*bounds.start(), *bounds.end()), meaning)
    }

    /// A part of a whole, from 0 to 1.
    pub const fn share(name: &'static str, meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Share, meaning)
    }

    /// `true` or `false`.
    pub const fn flag(name: &'static str, meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Flag, meaning)
    }

    /// A string; `bounds` says in words which, and the app checks it.
    pub const fn text(name: &'static str, bounds: &'static str, meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Text(bounds), meaning)
    }

    /// An array of strings; none, if it is left out.
    pub const fn texts(name: &'static str, bounds: &'static str, meaning: &'static str) -> AppKey {
        AppKey { left_out: AppDefault::Open("none"), ..AppKey::new(name, AppTakes::Texts(bounds), meaning) }
    }

    /// One of several words.
    pub const fn choice(name: &'static str, words: &'static [&'static str], meaning: &'static str) -> AppKey {
        AppKey::new(name, AppTakes::Choice(words), meaning)
    }

    /// A table of strings, by names that are the plan's; none, if it is left out.
    pub const fn map(name: &'static str, bounds: &'static str, meaning: &'static str) -> AppKey {
        AppKey { left_out: AppDefault::Open("none"), ..AppKey::new(name, AppTakes::Map(bounds), meaning) }
    }

    /// A table of tables with these keys each, by names that are the plan's; none, if it is left
    /// out.
    pub const fn tables(
        name: &'static str,
        bounds: &'static str,
        keys: &'static [AppKey],
        meaning: &'static str,
    ) -> AppKey {
        AppKey { left_out: AppDefault::Open("none"), ..AppKey::new(name, AppTakes::Tables(bounds, keys), meaning) }
    }

    /// What a number counts.
    pub const fn unit(self, unit: &'static str) -> AppKey {
        AppKey { unit, ..self }
    }

    /// May be left out; `words` says what that means. The type's field is an `Option`.
    pub const fn optional(self, words: &'static str) -> AppKey {
        AppKey { left_out: AppDefault::Open(words), ..self }
    }

    /// May be left out, and is this number then.
    pub const fn or(self, default: u64) -> AppKey {
        AppKey { left_out: AppDefault::Integer(default), ..self }
    }

    /// May be left out, and is this number then.
    pub const fn or_real(self, default: f64) -> AppKey {
        AppKey { left_out: AppDefault::Real(default), ..self }
    }

    /// May be left out, and is this then.
    pub const fn or_flag(self, default: bool) -> AppKey {
        AppKey { left_out: AppDefault::Flag(default), ..self }
    }

    /// May be left out, and is this then.
    pub const fn or_text(self, default: &'static str) -> AppKey {
        AppKey { left_out: AppDefault::Text(default), ..self }
    }

    /// The key, as the plan writes it.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// Keys that a type reads and does not declare, or declares and does not read.
pub fn undeclared<T: Keys>() -> Vec<&'static str> {
    let fields = fields::<T>();
    let declared = || T::KEYS.iter().map(|key| key.name);
    let unread = declared().filter(|name| !fields.contains(name));
    fields.iter().copied().filter(|field| declared().all(|name| name != *field)).chain(unread).collect()
}

/// The fields of a type, as `Deserialize` asks for them.
fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // It is given nothing but the question, and so fails.
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
