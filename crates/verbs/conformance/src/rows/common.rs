//! Helpers of several themes.

use crate::check::{Failure, Outcome, one_of, same};
use crate::rig::{Link, Mr, Pair, PostRefused, Qp, QpCap, Recv, Refused, Rig, Sge, SideSpec, State, Status, Transport};
use crate::rig::{Wc, Wr, errno_name};
use std::fmt::Display;

/// The pages of the rules. `(3)` is a manual page of rdma-core; the two without are the long
/// descriptions.
pub(super) mod page {
    pub(crate) const POST_SEND: &str = "ibv_post_send";
    pub(crate) const NOTIFY: &str = "ibv_req_notify_cq";
    pub(crate) const MODIFY_QP: &str = "ibv_modify_qp(3)";
    pub(crate) const QUERY_QP: &str = "ibv_query_qp(3)";
    pub(crate) const CREATE_QP: &str = "ibv_create_qp(3)";
    pub(crate) const POST_RECV: &str = "ibv_post_recv(3)";
    pub(crate) const GET_CQ_EVENT: &str = "ibv_get_cq_event(3)";
    pub(crate) const CREATE_CQ: &str = "ibv_create_cq(3)";
    pub(crate) const RESIZE_CQ: &str = "ibv_resize_cq(3)";
    pub(crate) const POLL_CQ: &str = "ibv_poll_cq(3)";
    pub(crate) const CREATE_AH: &str = "ibv_create_ah(3)";
    pub(crate) const AH_FROM_WC: &str = "ibv_create_ah_from_wc(3)";
    pub(crate) const ATTACH: &str = "ibv_attach_mcast(3)";
    pub(crate) const CREATE_SRQ: &str = "ibv_create_srq(3)";
    pub(crate) const MODIFY_SRQ: &str = "ibv_modify_srq(3)";
    pub(crate) const POST_SRQ_RECV: &str = "ibv_post_srq_recv(3)";
    pub(crate) const ALLOC_MW: &str = "ibv_alloc_mw(3)";
    pub(crate) const BIND_MW: &str = "ibv_bind_mw(3)";
    pub(crate) const REG_MR: &str = "ibv_reg_mr(3)";
    pub(crate) const DEREG_MR: &str = "ibv_dereg_mr(3)";
    pub(crate) const REREG_MR: &str = "ibv_rereg_mr(3)";
    pub(crate) const ALLOC_PD: &str = "ibv_alloc_pd(3)";
    pub(crate) const ASYNC_EVENT: &str = "ibv_get_async_event(3)";
    pub(crate) const QUERY_DEVICE: &str = "ibv_query_device(3)";
    pub(crate) const QUERY_PORT: &str = "ibv_query_port(3)";
    pub(crate) const QUERY_GID: &str = "ibv_query_gid(3)";
    pub(crate) const CREATE_MKEY: &str = "mlx5dv_create_mkey(3)";
    pub(crate) const MKEY_CONFIGURE: &str = "mlx5dv_wr_mkey_configure(3)";
    pub(crate) const SIG_BLOCK: &str = "mlx5dv_wr_set_mkey_sig_block(3)";
    pub(crate) const MKEY_CHECK: &str = "mlx5dv_mkey_check(3)";
    pub(crate) const CREATE_MLX5_QP: &str = "mlx5dv_create_qp(3)";
    pub(crate) const CANCEL: &str = "mlx5dv_qp_cancel_posted_send_wrs(3)";
    pub(crate) const QUERY_PKEY: &str = "ibv_query_pkey(3)";
}

pub(super) const RC: Transport = Transport::Rc;
pub(super) const UC: Transport = Transport::Uc;
pub(super) const UD: Transport = Transport::Ud;

/// The transport's name in a rule.
pub(super) fn name(transport: Transport) -> &'static str {
    match transport {
        Transport::Rc => "rc",
        Transport::Uc => "uc",
        Transport::Ud => "ud",
        Transport::RawPacket => "raw",
    }
}

/// Bytes that are different everywhere.
pub(super) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ (at >> 8)) as u8 | 1).collect()
}

/// Posts the work request on `a`, with a receive for it on `b`; both complete. Returns the
/// receive's completion.
pub(super) fn deliver(pair: &Pair, wr: Wr) -> Outcome<Wc> {
    pair.b.recv(0x20)?;
    pair.a.qp.send(wr)?;
    pair.a.scq.wait_ok()?;
    pair.b.rcq.wait_ok()
}

/// Lengths that devices handle differently: in a completion, in a slot, in several packets.
pub(super) const SIZES: [usize; 3] = [8, 300, 5000];

/// Each length that fits one message of the port, with a pair on which nothing was sent yet and one
/// on which something was: the first message of a connection may be handled differently.
pub(super) fn each_length(rig: &Rig, transport: Transport) -> Outcome<Vec<(usize, Pair)>> {
    let mtu_bytes = rig.port().attr.mtu_bytes();
    let mut all = Vec::new();
    for bytes in SIZES.into_iter().filter(|&bytes| transport != UD || bytes <= mtu_bytes) {
        let used = rig.pair(transport)?;
        used.exchange()?;
        used.a.mr.fill(0);
        used.b.mr.fill(0);
        all.extend([(bytes, rig.pair(transport)?), (bytes, used)]);
    }
    Ok(all)
}

/// A SEND of `bytes` bytes by `a`.
pub(super) fn sized(pair: &Pair, id: u64, bytes: usize) -> Wr {
    pair.send(id).sge(pair.a.mr.sge(0..bytes))
}

/// A SEND of 8 bytes by `a`.
pub(super) fn small(pair: &Pair, id: u64) -> Wr {
    pair.send(id).sge(pair.a.mr.sge(0..8))
}

/// A SEND by `a` that fails at once, locally, with LOC_PROT_ERR: its data is not in its region.
pub(super) fn failing(pair: &Pair, id: u64) -> Wr {
    pair.send(id).sge(out_of_bounds(&pair.a.mr))
}

/// 8 bytes, some of them beyond the region.
pub(super) fn out_of_bounds(mr: &Mr) -> Sge {
    mr.sge(mr.len() - 4..mr.len()).with_length(8)
}

/// 8 bytes with a key of no memory region.
pub(super) fn bad_key(pair: &Pair) -> Sge {
    let sge = pair.a.mr.sge(0..8);
    sge.with_lkey(sge.lkey ^ 0x00ff_ff00)
}

/// Checks that the post is refused with this errno, and that `bad_wr` is at this entry.
pub(super) fn refused_at(outcome: Result<(), PostRefused>, errno: i32, bad: usize) -> Outcome {
    match outcome {
        Ok(()) => Err(Failure::new("expected the post to be refused, it was taken")),
        Err(refused) => {
            same("errno", errno_name(refused.errno), errno_name(errno))?;
            same("bad_wr", refused.bad, Some(bad))
        }
    }
}

/// Checks that a verb refuses `what` with this errno.
pub(super) fn refused_with<T>(what: impl Display, outcome: Result<T, Refused>, errno: i32) -> Outcome {
    match outcome {
        Ok(_) => Err(Failure::new(format!("{what}: expected a refusal, it was done"))),
        Err(refused) => same(what, errno_name(refused.errno), errno_name(errno)),
    }
}

/// Posts an impossible work request on `a`: the post is refused with EINVAL, or it completes with
/// one of `statuses`.
pub(super) fn never_works(pair: &Pair, wr: Wr, statuses: &[Status]) -> Outcome {
    match pair.a.qp.send(wr) {
        Err(refused) => {
            one_of("errno", refused.errno, &[libc::EINVAL, libc::EOPNOTSUPP, libc::EMSGSIZE])?;
            same("bad_wr", refused.bad, Some(0))?;
            pair.a.qp.expect_state(State::Rts)
        }
        Ok(()) => one_of("the completion's status", pair.a.scq.wait_one()?.status, statuses),
    }
}

/// Checks that all of `wcs` are flushed, in this order.
pub(super) fn flushed(wcs: &[Wc], ids: &[u64]) -> Outcome {
    let seen: Vec<(u64, Status)> = wcs.iter().map(|wc| (wc.id, wc.status)).collect();
    let want: Vec<(u64, Status)> = ids.iter().map(|&id| (id, Status::WR_FLUSH_ERR)).collect();
    same("the flushed completions", seen, want)
}

/// Goes to SQD, and waits until all earlier sends are done.
pub(super) fn to_sqd(qp: &Qp) -> Outcome {
    qp.modify(&qp.attr(0).to(State::Sqd))?;
    let mut deadline = crate::rig::Deadline::new("the send queue drained");
    while qp.query()?.sq_draining() {
        deadline.pause(|| "sq_draining is still set".to_owned())?;
    }
    qp.expect_state(State::Sqd)
}

/// Goes from SQD back to RTS.
pub(super) fn to_rts_again(qp: &Qp) -> Outcome {
    Ok(qp.modify(&qp.attr(0).to(State::Rts))?)
}

/// Makes `a`'s send queue fail, which brings UC and UD to SQE; takes the completions.
pub(super) fn to_sqe(pair: &Pair) -> Outcome {
    pair.a.qp.send(failing(pair, 0x5e))?;
    same("the failing send's status", pair.a.scq.wait_one()?.status, Status::LOC_PROT_ERR)?;
    pair.a.qp.expect_state(State::Sqe)
}

/// rdma_rxe's report of an unknown local key.
pub(super) const RXE_BAD_KEY: (&str, &str, &str) = (
    "LOC_QP_OP_ERR",
    "the status is LOC_QP_OP_ERR",
    "rxe's copy_data() doesn't tell a key that it doesn't know from a malformed work request",
);

/// Why SQE rows are lacked on rdma_rxe.
pub(super) const RXE_NO_SQE: (&str, &str, &str) = (
    "expected Sqe, got Err",
    "a failed send moves a UC or UD queue pair to ERR",
    "rxe's requester has no SQE: rxe_completer() ends every failed work request with rxe_qp_error()",
);

/// An RC pair whose second side got more messages than its CQ holds.
pub(super) fn overrunning_pair(rig: &Rig) -> Result<Pair, Failure> {
    let cap = QpCap { recv_wr: 500, send_wr: 500, ..QpCap::default() };
    let pair = rig.pair_with(RC, SideSpec { cap, cq_depth: 2, ..SideSpec::default() }, Link::default())?;
    // A CQ may be deeper than requested.
    for id in 0..500 {
        pair.b.qp.recv(Recv::new(id))?;
    }
    let list: Vec<Wr> = (0..500).map(|id| Wr::send(id).unsignaled()).collect();
    pair.a.qp.post_send(&list)?;
    Ok(pair)
}
