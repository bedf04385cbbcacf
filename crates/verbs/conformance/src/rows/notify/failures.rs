//! Every unsuccessful completion counts as solicited, of either queue and on each transport; and
//! the peer of a one-sided operation gets no event.

use super::super::common::*;
use super::wired::{each, wired};
use crate::check::{During, Outcome, same};
use crate::rig::{Cap, Notify, Op, Rig, Status, Transport};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let no_send_error: (&str, &str, &str) = (
        "expected a completion event, got none",
        "a failed send raises no solicited event",
        "rxe_completer() posts send completions with solicited 0, whatever their status",
    );
    let mut rows = Vec::new();
    for transport in [RC, UC, UD] {
        let flushed = each(
            transport,
            "flushed-send-counts-as-solicited",
            "A flushed send raises a solicited event: it is unsuccessful",
            flushed_send,
        );
        rows.push(flushed.rxe(no_send_error.0, no_send_error.1, no_send_error.2));
    }
    for transport in [UC, UD] {
        let failed = each(
            transport,
            "failed-send-counts-as-solicited",
            "An unsuccessful send completion raises a solicited event",
            failed_send,
        );
        rows.push(failed.rxe(no_send_error.0, no_send_error.1, no_send_error.2));
    }
    rows.push(
        Row::new(
            "notify/peer-is-told-nothing-of-one-sided-operations",
            page::POST_SEND,
            "The remote side isn't aware of RDMA operations in its memory: no completion queue of it raises an event",
            peer_is_told_nothing,
        )
        .needs(Cap::Atomics),
    );
    rows
}

/// Held in SQD, so that it can be flushed on every transport.
fn flushed_send(rig: &Rig, transport: Transport) -> Outcome {
    let (channel, pair) = wired(rig, transport)?;
    to_sqd(&pair.a.qp)?;
    pair.a.qp.send(small(&pair, 1))?;
    pair.a.scq.arm(Notify::Solicited)?;
    pair.a.qp.to_err()?;
    flushed(&pair.a.scq.wait(1)?, &[1])?;
    channel.wait_soon(&pair.a.scq)
}

pub(super) fn failed_send(rig: &Rig, transport: Transport) -> Outcome {
    let (channel, pair) = wired(rig, transport)?;
    pair.a.scq.arm(Notify::Solicited)?;
    pair.a.qp.send(failing(&pair, 1))?;
    same("the completion", pair.a.scq.wait_one()?.status, Status::LOC_PROT_ERR)?;
    channel.wait_soon(&pair.a.scq)
}

fn peer_is_told_nothing(rig: &Rig) -> Outcome {
    for op in [Op::Write, Op::Read, Op::FetchAdd, Op::CmpSwap] {
        let (channel, pair) = wired(rig, RC)?;
        pair.b.recv(1)?;
        pair.b.rcq.arm(Notify::Next)?;
        pair.b.scq.arm(Notify::Next)?;
        pair.a.qp.send(pair.any(2, op))?;
        pair.a.scq.wait_ok()?;
        channel.quiet().during(format_args!("{op:?}"))?;
        pair.b.rcq.quiet()?;
        pair.b.scq.quiet()?;
    }
    Ok(())
}
