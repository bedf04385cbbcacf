//! Windows and invalidation on transports other than RC: UC has all of it, UD none.

use super::common::*;
use crate::check::{During, Outcome, same, same_bytes};
use crate::rig::{Access, Cap, Kind, Link, Mw, MwType, Op, Pair, Rig, SendOp, SideSpec, Status, Transport, Window, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| {
        Row::new(rule, page::POST_SEND, says, test).needs(Cap::MemoryWindowsType2).needs(Cap::MemoryExtensions)
    };
    vec![
        row(
            "mw/uc-bind-mw-opens-the-window",
            "UC has BIND_MW: it lets a peer's WRITE in by the key that it gives, and keeps others out",
            uc_bind,
        ),
        row("mw/uc-local-inv-closes-the-window", "UC has LOCAL_INV: a WRITE by a void key is dropped", uc_local_inv)
            .rxe(
                "LOCAL_INV: expected 1 successful completions",
                "it completes with LOC_QP_OP_ERR",
                "rxe_wr_opcode_info[] has IB_WR_LOCAL_INV for RC only",
            ),
        row(
            "mw/uc-send-with-inv-closes-the-window",
            "UC has SEND_WITH_INV: it arrives as a SEND, and voids the receiver's key",
            uc_send_with_inv,
        )
        .rxe(
            "SEND_WITH_INV: expected 1 successful completions",
            "it completes with LOC_QP_OP_ERR",
            "no UC packet has an R_Key to invalidate, so next_opcode_uc() finds none",
        )
        .differs(
            Kind::SoftUdp,
            "ibv_post_send answered EINVAL",
            "it is refused as it is posted",
            "no UC packet has an R_Key to invalidate",
        ),
        row("mw/ud-has-no-bind-mw", "UD has no BIND_MW: it is refused or LOC_QP_OP_ERR", |rig| {
            ud_has_not(rig, Op::BindMw)
        }),
        row("mw/ud-has-no-local-inv", "UD has no LOCAL_INV: it is refused or LOC_QP_OP_ERR", |rig| {
            ud_has_not(rig, Op::LocalInv)
        }),
        row("mw/ud-has-no-send-with-inv", "UD has no SEND_WITH_INV: it is refused or LOC_QP_OP_ERR", |rig| {
            ud_has_not(rig, Op::SendInv)
        }),
    ]
}

/// A pair whose `b` has memory that windows can be bound to.
fn pair(rig: &Rig, transport: Transport) -> Outcome<Pair> {
    let spec = SideSpec { mr_access: Access::ALL | Access::MW_BIND, ..SideSpec::default() };
    rig.pair_with(transport, spec, Link::default())
}

/// `b` opens bytes 1024 to 2048 of its memory; returns the window and its key.
fn opened(rig: &Rig, pair: &Pair) -> Outcome<(Mw, u32)> {
    let mw = Mw::alloc(rig.far().pd(), MwType::Two)?;
    let rkey = mw.next_rkey();
    let window = Window { mr: pair.b.mr.clone(), range: 1024..2048, access: Access::REMOTE_WRITE };
    pair.b.qp.send(Wr::bind(1, &mw, rkey, &window))?;
    same("the bind's opcode", pair.b.scq.wait_ok().during("BIND_MW")?.opcode, SendOp::BIND_MW)?;
    mw.set_rkey(rkey);
    Ok((mw, rkey))
}

/// `a` writes by this key. UC does not report the outcome; the message after it shows that the
/// write is over.
fn write(pair: &Pair, rkey: u32, text: &[u8; 8]) -> Outcome {
    pair.a.mr.put(100, text);
    pair.a.qp.send(Wr::write(2, pair.remote(1024).with_rkey(rkey)).sge(pair.a.mr.sge(100..108)))?;
    pair.a.scq.wait_ok().during("RDMA WRITE")?;
    pair.exchange()
}

fn holds(pair: &Pair, text: &[u8; 8]) -> Outcome {
    same_bytes("in the window", &pair.b.mr.take(1024, 8), text)
}

fn uc_bind(rig: &Rig) -> Outcome {
    let pair = pair(rig, UC)?;
    let (mw, rkey) = opened(rig, &pair)?;
    write(&pair, rkey, b"a window")?;
    holds(&pair, b"a window")?;
    write(&pair, rkey ^ 1, b"too late")?;
    holds(&pair, b"a window")?;
    Ok(mw.try_dealloc()?)
}

fn uc_local_inv(rig: &Rig) -> Outcome {
    let pair = pair(rig, UC)?;
    let (_mw, rkey) = opened(rig, &pair)?;
    write(&pair, rkey, b"a window")?;
    pair.b.qp.send(Wr::local_inv(3, rkey))?;
    same("LOCAL_INV's opcode", pair.b.scq.wait_ok().during("LOCAL_INV")?.opcode, SendOp::LOCAL_INV)?;
    write(&pair, rkey, b"too late")?;
    holds(&pair, b"a window")
}

fn uc_send_with_inv(rig: &Rig) -> Outcome {
    let pair = pair(rig, UC)?;
    let (_mw, rkey) = opened(rig, &pair)?;
    write(&pair, rkey, b"a window")?;
    pair.b.recv(4)?;
    pair.a.qp.send(small(&pair, 5).invalidate(rkey))?;
    pair.a.scq.wait_ok().during("SEND_WITH_INV")?;
    let received = pair.b.rcq.wait_ok()?;
    write(&pair, rkey, b"too late")?;
    holds(&pair, b"a window")?;
    same("the invalidated key in the completion", received.invalidated_rkey, Some(rkey))
}

fn ud_has_not(rig: &Rig, op: Op) -> Outcome {
    let pair = pair(rig, UD)?;
    let mw = Mw::alloc(rig.far().pd(), MwType::Two)?;
    let window = Window { mr: pair.a.mr.clone(), range: 0..8, access: Access::REMOTE_WRITE };
    let wr = match op {
        Op::BindMw => Wr::bind(1, &mw, mw.next_rkey(), &window),
        // Addressed, since a driver may copy the address of every work request on a UD queue pair.
        Op::LocalInv => pair.addressed(Wr::local_inv(1, mw.rkey())),
        _ => pair.any(1, Op::SendInv),
    };
    pair.b.recv(2)?;
    never_works(&pair, wr, &[Status::LOC_QP_OP_ERR])?;
    pair.b.rcq.quiet()
}
