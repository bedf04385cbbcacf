//! The keys of a plan: their reading into raw shapes, their explanations, and their schema for
//! editors.

use crate::diag::source::Span;
use crate::read::reader::Field;

/// Declares the shape of a table (with `head`), or of some of its keys, and how each key is read:
/// by a method of [`Reader`](reader::Reader), or by a function that takes one.
///
/// `given PREFIX` also makes the list of the keys that a plan gives: the fields' names behind the
/// prefix.
macro_rules! raw_table {
    (given $prefix:literal $(#[$doc:meta])* $name:ident {
        $($(#[$note:meta])* $field:ident: $kind:ty = $($read:ident)::+($($arg:expr),*),)*
    }) => {
        raw_table! {
            $(#[$doc])* $name { $($(#[$note])* $field: $kind = $($read)::+($($arg),*),)* }
        }

        impl $name {
            /// The keys that the plan gives, and their places.
            pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, $crate::diag::source::Span)> {
                use $crate::read::Given;
                let all = [$((concat!($prefix, stringify!($field)), self.$field.place())),*];
                all.into_iter().filter_map(|(key, place)| Some((key, place?)))
            }
        }
    };
    ($(#[$doc:meta])* $name:ident $($head:ident)? {
        $($(#[$note:meta])* $field:ident: $kind:ty = $($read:ident)::+($($arg:expr),*),)*
    }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name {
            $(pub(crate) $head: TableHeader,)?
            $($(#[$note])* pub(crate) $field: $kind,)*
        }

        impl $name {
            pub(crate) fn read($($head: TableHeader,)? reader: &mut Reader<'_>) -> $name {
                $name { $($head,)? $($field: $($read)::+(reader $(, $arg)*),)* }
            }
        }
    };
}

pub(crate) mod declared;
pub(crate) mod raw;
pub(crate) mod raw_port;
pub(crate) mod raw_stage;
pub(crate) mod reader;
pub(crate) mod reference;
pub(crate) mod schema;
mod values;

/// The place of a key that the plan gives.
trait Given {
    fn place(&self) -> Option<Span>;
}

impl<T> Given for Field<T> {
    fn place(&self) -> Option<Span> {
        self.given.then_some(self.span)
    }
}

impl<T> Given for Option<Field<T>> {
    fn place(&self) -> Option<Span> {
        self.as_ref().map(|field| field.span)
    }
}
