//! Transfers through indirect keys: `indirect` does the work of `message` and `one_sided`, between
//! two scatter/gather lists of `indirect_sge`; `configure` carries out configurations; `cancel`
//! stops behind a failed check, and cancels the work requests posted behind it.

pub(crate) mod cancel;
pub(crate) mod configure;
pub(crate) mod indirect;
pub(crate) mod indirect_sge;
