//! Peers: the number of the peer's queue pair, and the first packet sequence numbers of both ends.

use super::common::*;
use crate::check::{During, Outcome, same, same_bytes};
use crate::rig::{Attr, Kind, Link, Op, Pair, Rig, SideSpec, State, Status, Transport, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::MODIFY_QP, says, test);
    vec![
        row(
            "modify_rc/dest-qp-num-is-who-gets-it",
            "dest_qp_num says whose messages these are: of several queue pairs at one address that one gets them",
            |rig| goes_to_its_peer(rig, RC),
        ),
        row(
            "modify_rc/dest-qp-num-is-who-is-heard",
            "A queue pair takes messages from its peer only: another one that is connected to it isn't answered",
            stranger_is_not_answered,
        )
        .rxe(
            "expected no completion, got",
            "the message is taken; its answer goes to the peer, so the other one's time-outs run out",
            "a packet doesn't name the queue pair that sent it: check_addr() looks at the IP addresses, which are the \
             same here, and the PSNs are, too",
        )
        .differs(
            Kind::SoftUdp,
            "expected no completion, got",
            "the message is taken; its answer goes to the peer, so the other one's time-outs run out",
            "a packet doesn't name the queue pair that sent it: the addresses are the same here, and the PSNs are, too",
        ),
        row(
            "modify_rc/psns-must-agree",
            "sq_psn is what the peer's rq_psn says: a message from further on isn't answered, and RETRY_EXC_ERR at \
             last",
            |rig| psn_is_not_expected(rig, Attr::PSN + 100),
        ),
        row(
            "modify_rc/psn-behind-is-never-delivered",
            "A message whose sq_psn is behind the peer's rq_psn is taken for one that came before: it isn't delivered",
            |rig| psn_is_not_expected(rig, Attr::PSN - 100),
        )
        .may_lack(
            Kind::Rxe,
            "expected RETRY_EXC_ERR, got SUCCESS",
            "a peer that answers it, as one that came before, completes it",
            "rxe's check_psn() takes an answer to a later packet for one to all before",
        ),
        row(
            "modify_rc/psns-agree-again-after-both-reset",
            "Two ends that were reset both start from the numbers that they are given then",
            psns_after_reset,
        ),
        row(
            "modify_uc/dest-qp-num-is-who-gets-it",
            "dest_qp_num says whose messages these are: of several queue pairs at one address that one gets them",
            |rig| goes_to_its_peer(rig, UC),
        ),
        row(
            "modify_uc/a-new-message-starts-from-any-psn",
            "UC: a message whose sq_psn isn't the peer's rq_psn is taken: with it the peer counts from there",
            uc_starts_anywhere,
        ),
    ]
}

fn goes_to_its_peer(rig: &Rig, transport: Transport) -> Outcome {
    let pairs = [rig.pair(transport)?, rig.pair(transport)?, rig.pair(transport)?];
    for pair in &pairs {
        pair.b.recv(1)?;
    }
    for (at, pair) in pairs.iter().enumerate() {
        pair.a.mr.put(0, &[at as u8 + 1; 8]);
        pair.a.qp.send(small(pair, 2))?;
        pair.a.scq.wait_ok()?;
        same("qp_num", pair.b.rcq.wait_ok()?.qpn, pair.b.qp.number())?;
        same_bytes("what arrived", &pair.b.mr.take(0, 8), &[at as u8 + 1; 8])?;
        pairs[at + 1..].iter().try_for_each(|other| other.b.rcq.quiet())?;
    }
    Ok(())
}

fn stranger_is_not_answered(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let link = Link { timeout: 8, retry_cnt: 1, ..Link::default() };
    let stranger = rig.side(RC, SideSpec::default())?;
    stranger.to_init(&link)?;
    stranger.to_rtr(pair.b.qp.number(), &link)?;
    stranger.to_rts(&link)?;
    pair.b.recv(1)?;
    stranger.qp.send(Wr::send(2).sge(stranger.mr.sge(0..8)))?;
    same("the stranger's send", stranger.scq.wait_one()?.status, Status::RETRY_EXC_ERR)?;
    pair.b.rcq.quiet()?;
    // The receive posted for the peer's message is still there for it.
    pair.a.qp.send(small(&pair, 3))?;
    pair.a.scq.wait_ok()?;
    same("the receive", pair.b.rcq.wait_ok()?.id, 1)
}

fn numbered(rig: &Rig, transport: Transport, sq_psn: u32) -> Outcome<Pair> {
    rig.pair_with(transport, SideSpec::default(), Link { timeout: 8, retry_cnt: 1, sq_psn, ..Link::default() })
}

fn psn_is_not_expected(rig: &Rig, sq_psn: u32) -> Outcome {
    for op in [Op::Send, Op::Write] {
        let pair = numbered(rig, RC, sq_psn)?;
        pair.a.mr.put(0, b"ABCDEFGH");
        pair.b.recv(1)?;
        pair.a.qp.send(pair.any(2, op))?;
        same("the status", pair.a.scq.wait_one()?.status, Status::RETRY_EXC_ERR).during(format_args!("{op:?}"))?;
        pair.b.rcq.quiet()?;
        same_bytes("the peer's memory", &pair.b.mr.take(0, 8), &[0; 8])?;
        pair.a.qp.expect_state(State::Err)?;
        pair.b.qp.expect_state(State::Rts)?;
    }
    Ok(())
}

fn psns_after_reset(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    for _ in 0..3 {
        pair.exchange()?;
        pair.a.qp.to_reset()?;
        pair.b.qp.to_reset()?;
        pair.connect()?;
    }
    pair.exchange()
}

fn uc_starts_anywhere(rig: &Rig) -> Outcome {
    for sq_psn in [Attr::PSN + 100, Attr::PSN - 100] {
        numbered(rig, UC, sq_psn)?.exchange().during(format_args!("sq_psn {sq_psn:#x}"))?;
    }
    Ok(())
}
