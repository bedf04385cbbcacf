//! `ibv_req_notify_cq`: what raises an event, how often, and what doesn't.

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
