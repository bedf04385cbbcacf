//! Completions of a port by status, for the report.

use serde::Serialize;
use verbline_verbs::Status;

/// Completions with one error status.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StatusReport {
    /// As in verbs.h, without `IBV_WC_`.
    pub status: String,
    /// How many.
    pub count: u64,
}

impl StatusReport {
    /// Counts of an `ibv_wc_status`.
    pub(crate) fn new(status: u32, count: u64) -> StatusReport {
        StatusReport { status: Status::from_raw(status).name().to_owned(), count }
    }
}
