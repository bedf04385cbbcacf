//! The view of a packet that has just been taken from its pool, in the form in which it is stored.
//!
//! The compiler stores a `View` field by field, in four or five stores. As two vectors it takes two
//! stores, which a loop over many packets keeps in registers.

use crate::shared::View;

#[cfg(target_arch = "x86_64")]
pub(crate) use vectors::Fresh;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use fields::Fresh;

#[cfg(target_arch = "x86_64")]
mod vectors {
    use std::arch::x86_64::{__m128i, _mm_or_si128, _mm_set_epi32, _mm_store_si128};
    use std::mem::offset_of;

    use super::View;

    /// A whole view without data.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Fresh([__m128i; 2]);

    const _: () = assert!(size_of::<View>() == size_of::<Fresh>() && align_of::<View>() == align_of::<Fresh>());
    // `with_len` sets the second word.
    const _: () = assert!(offset_of!(View, len) == 4);

    impl Fresh {
        pub(crate) fn new(view: View) -> Self {
            debug_assert_eq!(view.len, 0);
            // SAFETY: a view is 32 bytes of integers without a gap, and any bytes are words.
            Self(unsafe { std::mem::transmute::<View, [__m128i; 2]>(view) })
        }

        /// The same with data.
        #[inline]
        pub(crate) fn with_len(self, len: u32) -> Self {
            // SAFETY: SSE2 is part of x86-64.
            let low = unsafe { _mm_or_si128(self.0[0], _mm_set_epi32(0, 0, len.cast_signed(), 0)) };
            Self([low, self.0[1]])
        }

        #[inline]
        pub(crate) fn write(self, to: &mut View) {
            let to: *mut __m128i = (&raw mut *to).cast();
            // SAFETY: a view is as long as two vectors and aligned as they are; what they hold came
            // from one.
            unsafe {
                _mm_store_si128(to, self.0[0]);
                _mm_store_si128(to.add(1), self.0[1]);
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod fields {
    use super::View;

    /// A whole view without data.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Fresh(View);

    impl Fresh {
        pub(crate) fn new(view: View) -> Self {
            Self(view)
        }

        /// The same with data.
        #[inline]
        pub(crate) fn with_len(self, len: u32) -> Self {
            Self(View { len, ..self.0 })
        }

        #[inline]
        pub(crate) fn write(self, to: &mut View) {
            *to = self.0;
        }
    }
}
