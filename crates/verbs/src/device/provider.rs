//! The implementation of verbs behind a context, chosen once when a device is opened.
//!
//! Only the control path asks: libibverbs' control verbs follow private pointers that the software
//! RNIC's contexts lack. The data path goes through `ibv_context.ops` and is the same code for
//! both.

use std::fmt;

/// The implementation that a device belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// libibverbs: an RNIC, or the kernel's rdma_rxe.
    Kernel,
    /// The software RNIC of this process.
    Soft,
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Provider::Kernel => "kernel",
            Provider::Soft => "soft",
        })
    }
}

/// Calls a control verb of the provider: `verb!(provider, ibv_alloc_pd(context))`. Both have the
/// signatures of libibverbs.
macro_rules! verb {
    ($provider:expr, $name:ident($($arg:expr),* $(,)?)) => {
        match $provider {
            $crate::Provider::Kernel => rdma_sys::$name($($arg),*),
            $crate::Provider::Soft => verbline_softnic::provider::$name($($arg),*),
        }
    };
}
pub(crate) use verb;
