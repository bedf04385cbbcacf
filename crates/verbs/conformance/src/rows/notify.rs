//! `ibv_req_notify_cq`: what raises an event, how often, and what doesn't.

mod next;
mod polling;
mod requests;
mod solicited;

use super::common::*;
use crate::check::Outcome;
use crate::rig::{Channel, Link, Pair, Rig, SideSpec, Transport, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    [next::rows(), solicited::rows(), requests::rows(), polling::rows()].concat()
}

/// A rule that holds for each transport on its own.
fn each(transport: Transport, rule: &str, says: &str, test: fn(&Rig, Transport) -> Outcome) -> Row {
    let rule = format!("notify/{}-{rule}", name(transport));
    Row::new(rule, page::NOTIFY, says, move |rig: &Rig| test(rig, transport))
}

/// A pair whose four completion queues are on the channel.
fn wired(rig: &Rig, transport: Transport) -> Outcome<(Channel, Pair)> {
    let channel = rig.channel()?;
    let spec = SideSpec { channel: Some(&channel), ..SideSpec::default() };
    let pair = rig.pair_with(transport, spec, Link::default())?;
    Ok((channel, pair))
}

/// A message from `a` whose completions stay unpolled at `b`.
fn leave_one(pair: &Pair, wr: Wr) -> Outcome {
    pair.b.recv(1)?;
    pair.a.qp.send(wr)?;
    pair.a.scq.wait_ok()?;
    // The receive completes before the sender hears of it on RC, which is what these rows use.
    Ok(())
}
