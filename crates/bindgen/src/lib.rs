//! Stands in for bindgen 0.59.2, which rdma-sys 0.3.0 asks for, and which panics on the types that
//! libclang 16 and later describe. `[patch.crates-io]` puts this crate in its place; rdma-sys stays
//! as it is published.
//!
//! Its `Builder` has the methods that rdma-sys calls, no others, and hands each on to a current
//! bindgen. Bindings are made anew when the headers change, as when the distribution brings a newer
//! rdma-core: bindgen 0.59 left that out.
//!
//! It may go when rdma-sys asks for a bindgen of 0.62 or later.

use std::{io, path::Path};

/// What the bindings are made of.
pub struct Builder(newer::Builder);

/// Bindings that were made.
pub struct Bindings(newer::Bindings);

/// Why there are none, by libclang's own words.
pub use newer::BindgenError;

impl Default for Builder {
    fn default() -> Builder {
        let headers_change = Box::new(newer::CargoCallbacks::new());
        // rdma-sys asks for rustfmt, which a machine that only builds need not have. Nobody reads
        // the file.
        Builder(newer::Builder::default().parse_callbacks(headers_change).formatter(newer::Formatter::None))
    }
}

/// Methods that take a pattern or a file name.
macro_rules! named {
    ($($method:ident)*) => { $(
        #[doc = concat!("[`newer::Builder::", stringify!($method), "`]")]
        #[must_use]
        pub fn $method(self, name: &str) -> Builder {
            Builder(self.0.$method(name))
        }
    )* };
}

/// Methods that switch something on or off.
macro_rules! switches {
    ($($method:ident)*) => { $(
        #[doc = concat!("[`newer::Builder::", stringify!($method), "`]")]
        #[must_use]
        pub fn $method(self, on: bool) -> Builder {
            Builder(self.0.$method(on))
        }
    )* };
}

impl Builder {
    named! { header allowlist_function allowlist_type blocklist_type opaque_type }
    named! { bitfield_enum constified_enum_module rustified_enum }
    switches! { derive_copy derive_debug derive_default generate_comments prepend_enum_name size_t_is_usize }

    /// [`newer::Builder::clang_args`]
    #[must_use]
    pub fn clang_args(self, args: impl IntoIterator<Item = String>) -> Builder {
        Builder(self.0.clang_args(args))
    }

    /// [`newer::Builder::disable_untagged_union`]
    #[must_use]
    pub fn disable_untagged_union(self) -> Builder {
        Builder(self.0.disable_untagged_union())
    }

    /// Does nothing: the bindings stay unformatted.
    #[must_use]
    pub fn rustfmt_bindings(self, _: bool) -> Builder {
        self
    }

    /// [`newer::Builder::generate`]
    ///
    /// # Errors
    /// A header is missing, or libclang does not understand one.
    pub fn generate(self) -> Result<Bindings, BindgenError> {
        self.0.generate().map(Bindings)
    }
}

impl Bindings {
    /// [`newer::Bindings::write_to_file`]
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write_to_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.write_to_file(path)
    }
}
