//! Every row, by theme.

use crate::suite::Row;

/// Every row, in the order in which they are printed.
pub(crate) fn all() -> Vec<Row> {
    Vec::new()
}
