//! Cancelling by `wr_id` on a queue pair that was moved to SQD. The memory is plain, so that no
//! check has failed.

use super::common::*;
use crate::check::{Failure, Outcome, same, same_bytes};
use crate::rig::{Cap, Pair, Rig, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::CANCEL, says, test).needs(Cap::Signatures);
    vec![
        row(
            "sig_pipelining/every-kind-is-cancelled",
            "All pending send work requests with the wr_id are cancelled, whatever they are, and no other one",
            every_kind,
        ),
        row(
            "sig_pipelining/cancelled-counts-once",
            "It returns the number that were cancelled: what is a NOP already isn't cancelled again",
            counts_once,
        ),
    ]
}

/// Plain memory without a signature, so that a device can refuse only the call itself.
fn held(rig: &Rig, list: impl FnOnce(&Pair) -> Vec<Wr>) -> Outcome<Pair> {
    let pair = rig.pair(RC)?;
    pair.a.mr.fill(0x5a);
    to_sqd(&pair.a.qp)?;
    pair.a.qp.post_send(&list(&pair))?;
    Ok(pair)
}

fn cancel(pair: &Pair, wr_id: u64) -> Outcome<i32> {
    match pair.a.qp.cancel(wr_id) {
        code if code == -libc::EOPNOTSUPP => Err(Failure::new("cancelling is EOPNOTSUPP")),
        count => Ok(count),
    }
}

fn every_kind(rig: &Rig) -> Outcome {
    let pair = held(rig, |pair| {
        let (remote, sge) = (pair.remote(4096), pair.a.mr.sge(0..8));
        vec![
            small(pair, 5),
            small(pair, 5).imm(1).inline(),
            sized(pair, 5, 5000).solicited(),
            pair.send(5),
            Wr::write(5, remote).sge(sge),
            Wr::write(6, pair.remote(4104)).sge(sge),
            Wr::read(5, remote).sge(pair.a.mr.sge(8000..8008)),
            Wr::fetch_add(5, remote, 1).sge(pair.a.mr.sge(8000..8008)),
        ]
    })?;
    pair.b.recv(7)?;
    same("cancelled", cancel(&pair, 5)?, 7)?;
    to_rts_again(&pair.a.qp)?;
    let ids = pair.a.scq.wait_all_ok::<8>()?.map(|wc| wc.id);
    same("completions", ids, [5, 5, 5, 5, 5, 6, 5, 5])?;
    pair.b.rcq.quiet()?;
    same_bytes("what was written to the peer", &pair.b.mr.take(4096, 16), &[[0; 8], [0x5a; 8]].concat())?;
    same_bytes("what was read", &pair.a.mr.take(8000, 8), &[0x5a; 8])
}

fn counts_once(rig: &Rig) -> Outcome {
    let pair = held(rig, |pair| vec![small(pair, 5), small(pair, 6), small(pair, 5)])?;
    same("cancelled at first", cancel(&pair, 5)?, 2)?;
    same("cancelled after that", cancel(&pair, 5)?, 0)?;
    // A work request posted later has not been cancelled.
    pair.a.qp.send(small(&pair, 5))?;
    same("cancelled of what was posted later", cancel(&pair, 5)?, 1)?;
    pair.b.recv(7)?;
    to_rts_again(&pair.a.qp)?;
    same("completions", pair.a.scq.wait_all_ok::<4>()?.map(|wc| wc.id), [5, 6, 5, 5])?;
    same("the receive", pair.b.rcq.wait_ok()?.id, 7)
}
