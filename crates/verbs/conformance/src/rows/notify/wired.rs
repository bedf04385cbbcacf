//! Helpers of the rows about notification: pairs whose queues are wired to a channel.

use super::super::common::*;
use crate::check::Outcome;
use crate::rig::{Channel, Link, Pair, Rig, SideSpec, Transport, Wr};
use crate::suite::Row;

/// A rule that holds for each transport on its own.
pub(super) fn each(transport: Transport, rule: &str, says: &str, test: fn(&Rig, Transport) -> Outcome) -> Row {
    let rule = format!("notify/{}-{rule}", name(transport));
    Row::new(rule, page::NOTIFY, says, move |rig: &Rig| test(rig, transport))
}

/// A pair whose four completion queues are on the channel; of two devices, `b`'s are.
pub(super) fn wired(rig: &Rig, transport: Transport) -> Outcome<(Channel, Pair)> {
    let channel = rig.far().channel()?;
    let spec = SideSpec { channel: Some(&channel), ..SideSpec::default() };
    let pair = rig.pair_with(transport, spec, Link::default())?;
    Ok((channel, pair))
}

/// A message from `a` whose completions stay unpolled at `b`.
pub(super) fn leave_one(pair: &Pair, wr: Wr) -> Outcome {
    pair.b.recv(1)?;
    pair.a.qp.send(wr)?;
    pair.a.scq.wait_ok()?;
    // On RC, which these rows use, the receive completes before the sender's completion.
    Ok(())
}
