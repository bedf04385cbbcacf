//! Signature pipelining: the stop in SQD behind a transfer whose check failed, and cancelling.

use super::common::*;
use super::sig_keys::{list, pair, set, signing};
use super::sig_transfers::{memory, protected, t10};
use crate::check::{Outcome, ensure, same, same_bytes};
use crate::rig::*;
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::CANCEL, says, test).needs(Cap::Signatures);
    vec![
        row("sig_pipelining/good-goes-through", "Good transfers and their responses go through", good),
        row("sig_pipelining/bad-stops-in-sqd", "A failed check moves the queue pair to SQD", stops_in_sqd),
        row("sig_pipelining/event", "IBV_EVENT_SQ_DRAINED tells of the stop, and of which queue pair", event),
        row("sig_pipelining/before-the-fence", "It stops between the transfer and the next fenced request", fence),
        row("sig_pipelining/data-has-moved", "What failed has moved; the transfer completes as it was to", data_moved),
        row("sig_pipelining/check-names-the-bad", "Of the open transactions, the keys tell which is bad", names_bad),
        row("sig_pipelining/without-the-flag", "A queue pair without SIG_PIPELINING doesn't stop", without_flag),
        row("sig_pipelining/cancelled-is-not-sent", "A cancelled request does nothing", not_sent),
        row("sig_pipelining/counts", "Cancelling gives how many were; what was carried out doesn't count", counts),
        row("sig_pipelining/several-of-one-wr-id", "All that have the wr_id are cancelled", several),
        row("sig_pipelining/signaled-completes", "A cancelled request that is signaled completes well", signaled),
        row("sig_pipelining/unsignaled-is-silent", "One that isn't completes without a word", unsignaled),
        // The page says "NOPs" and leaves the opcode open. rdma-core's providers/mlx5/qp.c reports
        // the posted opcode in the completion, whatever it puts into the queue.
        row(
            "sig_pipelining/keeps-its-opcode",
            "The completion has the opcode that was posted (mlx5dv_qp_cancel_wr() in rdma-core)",
            opcode,
        ),
        row("sig_pipelining/flushed-in-err", "In ERR a cancelled request is flushed", flushed_in_err),
        row("sig_pipelining/not-outside-sqd", "Outside SQD cancelling is -EINVAL", not_outside),
        row("sig_pipelining/not-while-draining", "Nor may it be while the queue drains", not_draining),
        row("sig_pipelining/nothing-to-cancel", "A wr_id that nothing has is 0", nothing),
        row("sig_pipelining/posted-again-in-sqd", "Another response may be posted in SQD, and goes in RTS", again),
        row(
            "sig_pipelining/two-bad-before-one-fence",
            "More than one may be bad by the time it stops: none of their responses goes out, and each is told",
            two_bad,
        ),
        row(
            "sig_pipelining/cancelled-unsignaled-is-flushed",
            "In ERR a cancelled request is flushed, also one that is unsignaled",
            unsignaled_flushed,
        ),
        // The page requires the flag, and rdma-core's mlx5dv_qp_cancel_posted_send_wrs() requires
        // SQD.
        row(
            "sig_pipelining/without-the-flag-cancels",
            "On a queue pair without SIG_PIPELINING, brought to SQD, requests are cancelled too",
            without_flag_cancels,
        ),
        row("sig_pipelining/several-bad", "Several may be bad: each is told, and the queue goes on", several_bad),
        row("sig_pipelining/resumes-to-rts", "SQD to RTS takes STATE and CUR_STATE, and the rest goes on", resumes),
    ]
}

/// A target that answers: `a` has protected blocks, one per transaction, and a key for each.
struct Target {
    pair: Pair,
    keys: Vec<Key>,
}

const GOOD: &[u8] = b"good";
const RESPONSE: usize = 12_000;

impl Target {
    fn new(rig: &Rig, bad: &[bool]) -> Outcome<Target> {
        Target::with(rig, bad, qp_create_flags::SIG_PIPELINING)
    }

    fn with(rig: &Rig, bad: &[bool], create_flags: u32) -> Outcome<Target> {
        let pair = pair(rig, create_flags)?;
        pair.a.mr.put(RESPONSE, GOOD);
        let mut keys = Vec::new();
        for (at, bad) in bad.iter().enumerate() {
            let (key, start) = (signing(rig)?, 520 * at);
            pair.a.mr.put(start, &protected(&pattern(512), 1, at as u32));
            if *bad {
                pair.a.mr.put(start + 5, &[0xfe]);
            }
            set(&pair.a, &key, &[list(&[pair.a.mr.sge(start..start + 520)]), memory(t10(1, at as u32))])?;
            keys.push(key);
        }
        Ok(Target { pair, keys })
    }

    fn data(&self, at: usize) -> Wr {
        let remote = self.pair.remote(512 * at);
        Wr::write(at as u64, remote).sge(self.keys[at].sge(0, 512)).unsignaled()
    }

    fn response(&self, id: u64) -> Wr {
        Wr::send(id).sge(self.pair.a.mr.sge(RESPONSE..RESPONSE + GOOD.len())).fenced()
    }

    /// Posts data and response, both with the transaction's number, as one list.
    fn answer(&self, at: usize) -> Outcome {
        self.pair.b.qp.recv(Recv::new(at as u64).sge(self.pair.b.mr.sge(RESPONSE..RESPONSE + 64)))?;
        Ok(self.pair.a.qp.post_send(&[self.data(at), self.response(at as u64)])?)
    }

    fn resume(&self) -> Outcome {
        let qp = &self.pair.a.qp;
        Ok(qp.modify(&qp.attr(0).to(State::Rts).cur_state(State::Sqd))?)
    }

    /// Completions of `a`: number, status, opcode.
    fn sent(&self) -> Outcome<Vec<(u64, Status, u32)>> {
        let all = self.pair.a.scq.poll_to_0()?;
        Ok(all.iter().map(|wc| (wc.id, wc.status, wc.opcode)).collect())
    }

    fn received(&self) -> Outcome<usize> {
        Ok(self.pair.b.rcq.poll_to_0()?.len())
    }

    fn kinds(&self) -> Outcome<Vec<u32>> {
        self.keys.iter().map(|key| Ok(key.check()?.err_type)).collect()
    }

    fn wait_for_stop(&self, rig: &Rig) -> Outcome {
        rig.context().wait_async(AsyncKind::SQ_DRAINED, Element::Qp(&self.pair.a.qp)).map(drop)
    }
}

fn good(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[false; 3])?;
    (0..3).try_for_each(|at| target.answer(at))?;
    target.pair.a.scq.wait_all_ok::<3>()?;
    same("responses", target.received()?, 3)?;
    same_bytes("data", &target.pair.b.mr.take(512, 512), &pattern(512))?;
    target.pair.a.qp.expect_state(State::Rts)
}

fn stops_in_sqd(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    target.answer(0)?;
    target.wait_for_stop(rig)?;
    target.pair.a.qp.expect_state(State::Sqd)?;
    ensure(!target.pair.a.qp.query()?.sq_draining(), "it is drained")
}

fn event(rig: &Rig) -> Outcome {
    let (target, _other) = (Target::new(rig, &[false, true])?, pair(rig, qp_create_flags::SIG_PIPELINING)?);
    target.answer(0)?;
    target.answer(1)?;
    target.wait_for_stop(rig)?;
    rig.context().no_async(AsyncKind::SQ_DRAINED)
}

fn fence(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    target.answer(0)?;
    target.wait_for_stop(rig)?;
    same("completions", target.sent()?, vec![])?;
    same("responses", target.received()?, 0)
}

fn data_moved(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    let data = Wr::write(9, target.pair.remote(0)).sge(target.keys[0].sge(0, 512));
    target.pair.a.qp.post_send(&[data, target.response(1)])?;
    target.wait_for_stop(rig)?;
    same("completions", target.sent()?, vec![(9, Status::SUCCESS, SendOp::RDMA_WRITE)])?;
    same_bytes("data", &target.pair.b.mr.take(6, 506), &pattern(512)[6..])
}

fn names_bad(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[false, true, false])?;
    (0..3).try_for_each(|at| target.answer(at))?;
    target.wait_for_stop(rig)?;
    same("completions", target.sent()?, vec![(0, Status::SUCCESS, SendOp::SEND)])?;
    let none = mkey_err_type::NO_ERR;
    same("the keys", target.kinds()?, vec![none, mkey_err_type::BAD_GUARD, none])
}

fn without_flag(rig: &Rig) -> Outcome {
    let target = Target::with(rig, &[true], 0)?;
    target.answer(0)?;
    target.pair.a.scq.wait_ok()?;
    same("responses", target.received()?, 1)?;
    rig.context().no_async(AsyncKind::SQ_DRAINED)?;
    same("the key", target.kinds()?, vec![mkey_err_type::BAD_GUARD])
}

fn not_sent(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    target.answer(0)?;
    target.wait_for_stop(rig)?;
    same("cancelled", target.pair.a.qp.cancel(0), 1)?;
    target.resume()?;
    target.pair.a.scq.wait_ok()?;
    same("responses", target.received()?, 0)
}

fn counts(rig: &Rig) -> Outcome {
    // Data and response have one wr_id: the data has been carried out.
    let target = Target::new(rig, &[true])?;
    target.answer(0)?;
    target.wait_for_stop(rig)?;
    same("cancelled", target.pair.a.qp.cancel(0), 1)
}

fn several(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    target.answer(0)?;
    target.wait_for_stop(rig)?;
    target.pair.a.qp.post_send(&[target.response(5), target.response(6), target.response(5)])?;
    same("cancelled", [target.pair.a.qp.cancel(5), target.pair.a.qp.cancel(0)], [2, 1])?;
    target.resume()?;
    target.pair.a.scq.wait_all_ok::<4>()?;
    same("responses", target.received()?, 1)
}

fn signaled(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    target.answer(0)?;
    target.wait_for_stop(rig)?;
    same("cancelled", target.pair.a.qp.cancel(0), 1)?;
    same("completions in SQD", target.sent()?, vec![])?;
    target.resume()?;
    same("completions", target.sent()?, vec![(0, Status::SUCCESS, SendOp::SEND)])
}

fn unsignaled(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    target.pair.a.qp.post_send(&[target.data(0), target.response(0).unsignaled()])?;
    target.wait_for_stop(rig)?;
    same("cancelled", target.pair.a.qp.cancel(0), 1)?;
    target.resume()?;
    target.pair.a.scq.quiet()
}

fn opcode(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    let (remote, sge) = (target.pair.remote(4096), target.pair.a.mr.sge(0..8));
    let write = Wr::write(1, remote).sge(sge);
    let read = Wr::read(2, remote).sge(sge);
    target.pair.a.qp.post_send(&[target.data(0), write, read, Wr::fetch_add(3, remote, 1).sge(sge)])?;
    target.wait_for_stop(rig)?;
    same("cancelled", [1, 2, 3].map(|id| target.pair.a.qp.cancel(id)), [1; 3])?;
    target.resume()?;
    let want = [(1, SendOp::RDMA_WRITE), (2, SendOp::RDMA_READ), (3, SendOp::FETCH_ADD)];
    same("completions", target.sent()?, want.map(|(id, opcode)| (id, Status::SUCCESS, opcode)).to_vec())?;
    same_bytes("the peer's memory", &target.pair.b.mr.take(4096, 8), &[0; 8])
}

fn flushed_in_err(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    target.answer(0)?;
    target.wait_for_stop(rig)?;
    same("cancelled", target.pair.a.qp.cancel(0), 1)?;
    target.pair.a.qp.to_err()?;
    flushed(&target.pair.a.scq.wait(1)?, &[0])?;
    same("cancelling in ERR", target.pair.a.qp.cancel(0), -libc::EINVAL)
}

fn not_outside(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[false])?;
    same("in RTS", target.pair.a.qp.cancel(0), -libc::EINVAL)?;
    target.pair.a.qp.to_reset()?;
    same("in RESET", target.pair.a.qp.cancel(0), -libc::EINVAL)
}

fn not_draining(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[false])?;
    // It waits for a receive, so that the move to SQD waits for it.
    target.pair.a.qp.send(target.response(4))?;
    let qp = &target.pair.a.qp;
    qp.modify(&qp.attr(0).to(State::Sqd))?;
    ensure(qp.query()?.sq_draining(), "it drains")?;
    same("while it drains", qp.cancel(4), -libc::EINVAL)?;
    target.pair.b.recv(1)?;
    target.pair.a.scq.wait_ok()?;
    same("after that", qp.cancel(4), 0)
}

fn nothing(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    target.answer(0)?;
    target.wait_for_stop(rig)?;
    same("cancelled", target.pair.a.qp.cancel(77), 0)?;
    target.resume()?;
    target.pair.a.scq.wait_ok()?;
    same("responses", target.received()?, 1)
}

fn again(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    target.answer(0)?;
    target.wait_for_stop(rig)?;
    same("cancelled", target.pair.a.qp.cancel(0), 1)?;
    target.pair.a.mr.put(RESPONSE, b"evil");
    target.pair.a.qp.send(target.response(1))?;
    same("completions in SQD", target.sent()?, vec![])?;
    target.resume()?;
    target.pair.a.scq.wait_all_ok::<2>()?;
    same("responses", target.received()?, 1)?;
    same_bytes("the response", &target.pair.b.mr.take(RESPONSE, 4), b"evil")
}

fn several_bad(rig: &Rig) -> Outcome {
    let bad = [true, false, true, true, false];
    let target = Target::new(rig, &bad)?;
    (0..5).try_for_each(|at| target.answer(at))?;
    let (mut found, mut done) = (vec![false; 5], 0);
    while found != bad {
        target.wait_for_stop(rig)?;
        done += target.sent()?.len();
        for (at, kind) in target.kinds()?.into_iter().enumerate() {
            if kind == mkey_err_type::BAD_GUARD {
                found[at] = true;
                same("cancelled", target.pair.a.qp.cancel(at as u64), 1)?;
            }
        }
        target.resume()?;
    }
    done += target.pair.a.scq.wait(5 - done)?.len();
    same("completions and responses", (done, target.received()?), (5, 2))
}

/// Two transfers in front of one response, both bad. A device stops behind the first, or anywhere
/// up to the fence.
fn two_bad(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true, true])?;
    target.pair.b.recv(9)?;
    target.pair.a.qp.post_send(&[target.data(0), target.data(1), target.response(5)])?;
    target.wait_for_stop(rig)?;
    same("completions at the stop", target.sent()?, vec![])?;
    let mut found = target.kinds()?;
    ensure(found.contains(&mkey_err_type::BAD_GUARD), "one is known to be bad at the first stop")?;
    same("cancelled", target.pair.a.qp.cancel(5), 1)?;
    target.resume()?;
    if target.pair.a.qp.state()? == State::Sqd || found.contains(&mkey_err_type::NO_ERR) {
        target.wait_for_stop(rig)?;
        same("completions at the second stop", target.sent()?, vec![])?;
        for (seen, kind) in found.iter_mut().zip(target.kinds()?) {
            *seen = (*seen).max(kind);
        }
        target.resume()?;
    }
    same("what was bad", found, vec![mkey_err_type::BAD_GUARD; 2])?;
    target.pair.a.scq.wait_ok()?;
    same("responses", target.received()?, 0)
}

fn unsignaled_flushed(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true])?;
    target.pair.a.qp.post_send(&[target.data(0), target.response(4).unsignaled()])?;
    target.wait_for_stop(rig)?;
    same("cancelled", target.pair.a.qp.cancel(4), 1)?;
    target.pair.a.qp.to_err()?;
    flushed(&target.pair.a.scq.wait(1)?, &[4])
}

fn without_flag_cancels(rig: &Rig) -> Outcome {
    let target = Target::with(rig, &[false], 0)?;
    to_sqd(&target.pair.a.qp)?;
    target.answer(0)?;
    same("cancelled, data and response", target.pair.a.qp.cancel(0), 2)?;
    target.resume()?;
    target.pair.a.scq.wait_ok()?;
    same("responses", target.received()?, 0)
}

fn resumes(rig: &Rig) -> Outcome {
    let target = Target::new(rig, &[true, false])?;
    target.answer(0)?;
    target.answer(1)?;
    target.wait_for_stop(rig)?;
    target.resume()?;
    target.pair.a.scq.wait_all_ok::<2>()?;
    same("responses", target.received()?, 2)?;
    target.pair.a.qp.expect_state(State::Rts)
}
