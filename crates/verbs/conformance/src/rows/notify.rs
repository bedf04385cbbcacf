//! `ibv_req_notify_cq`: completions that raise an event, how often, and those that do not.

mod failures;
mod next;
mod polling;
mod requests;
mod solicited;
mod wired;

use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    [next::rows(), solicited::rows(), failures::rows(), requests::rows(), polling::rows()].concat()
}
