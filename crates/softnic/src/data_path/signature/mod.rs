//! Transfers through indirect keys: `indirect` does what `message` and `one_sided` do, between two
//! scatter/gather lists of `indirect_sge`; `configure` carries configurations out; `cancel` stops
//! behind a failed check, and cancels what was posted behind it.

pub(crate) mod cancel;
pub(crate) mod configure;
pub(crate) mod indirect;
pub(crate) mod indirect_sge;
