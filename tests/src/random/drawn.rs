//! Structs of drawn numbers.

use std::fmt::Debug;

use proptest::prelude::*;

/// A struct of numbers, and its strategy, which draws the fields in their order. It is boxed: that
/// of a whole plan would not fit on the stack of a test's thread.
macro_rules! drawn {
    ($(#[$about:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty = $strategy:expr,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        $vis struct $name {
            $($(#[$doc])* pub(super) $field: $type,)+
        }

        impl $name {
            pub(super) fn strategy() -> BoxedStrategy<Self> {
                drawn!(@nest $(($strategy))+).prop_map(|drawn!(@nest $($field)+)| Self { $($field),+ }).boxed()
            }
        }
    };
    (@nest $last:tt) => { $last };
    (@nest $first:tt $($rest:tt)+) => { ($first, drawn!(@nest $($rest)+)) };
}
pub(super) use drawn;

/// Nothing `none` times as often as a value.
pub(super) fn maybe<T: Clone + Debug>(none: u32, some: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop_oneof![none => Just(None), 1 => some.prop_map(Some)]
}

/// Zero `zero` times as often as another number.
pub(super) fn zero_or<T: From<u8> + Clone + Debug>(
    zero: u32,
    other: impl Strategy<Value = T>,
) -> impl Strategy<Value = T> {
    prop_oneof![zero => Just(T::from(0)), 1 => other]
}

/// True once in four.
pub(super) fn seldom() -> impl Strategy<Value = bool> {
    prop_oneof![3 => Just(false), 1 => Just(true)]
}
