//! Receivers that are not ready and peers that do not answer: how often, and how long, a sender
//! retries.
//!
//! Rows check the time in one direction only: a required wait must not end early. How much later it
//! ends depends on the machine.

use super::common::*;
use crate::check::{During, Failure, Outcome, same};
use crate::rig::{Link, Op, Pair, Rig, SideSpec, State, Status, Wr};
use crate::suite::Row;
use std::time::{Duration, Instant};

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::MODIFY_QP, says, test);
    vec![
        row(
            "errors/rnr-retry-0-fails-at-once",
            "With rnr_retry 0 a SEND that finds no receive is RNR_RETRY_EXC_ERR",
            rnr_retry_0,
        ),
        row(
            "errors/rnr-retry-counts",
            "With rnr_retry 2 it is tried again twice: it finds a receive that comes meanwhile, and fails without one",
            rnr_retry_counts,
        ),
        row(
            "errors/rnr-retry-7-is-for-ever",
            "With rnr_retry 7 a SEND waits for its receive for as long as it takes",
            rnr_retry_7,
        ),
        row(
            "errors/min-rnr-timer-is-waited",
            "Between two tries lies what the receiver's min_rnr_timer stands for, not the sender's",
            min_rnr_timer_is_waited,
        ),
        Row::new(
            "errors/rnr-of-write-with-imm",
            page::POST_SEND,
            "RDMA WRITE WITH IMMEDIATE needs a receive, too: without one it is RNR_RETRY_EXC_ERR",
            rnr_of_write_with_imm,
        ),
        row(
            "errors/peer-gone-is-retry-exc",
            "A destroyed peer doesn't answer: RETRY_EXC_ERR after retry_cnt time-outs",
            |rig| unanswered(rig, |pair| Ok(pair.b.qp.try_destroy()?)),
        ),
        row(
            "errors/timeout-is-waited",
            "The first try takes the time-out, and so does each of retry_cnt more",
            timeout_is_waited,
        ),
        row(
            "errors/timeout-0-is-for-ever",
            "With timeout 0 an answer is waited for without end; ERR ends it",
            timeout_0,
        ),
        row("errors/peer-in-reset-is-retry-exc", "A peer in RESET doesn't answer", |rig| {
            unanswered(rig, |pair| Ok(pair.b.qp.to_reset()?))
        }),
        row("errors/peer-in-err-is-retry-exc", "A peer in ERR doesn't answer", |rig| {
            unanswered(rig, |pair| Ok(pair.b.qp.to_err()?))
        }),
        row("errors/peer-in-init-is-retry-exc", "A peer in INIT doesn't answer yet", |rig| {
            unanswered(rig, |pair| {
                pair.b.qp.to_reset()?;
                pair.b.to_init(&Link::default())
            })
        }),
    ]
}

fn rnr_pair(rig: &Rig, rnr_retry: u8, min_rnr_timer: u8) -> Outcome<Pair> {
    rig.pair_with(RC, SideSpec::default(), Link { rnr_retry, min_rnr_timer, ..Link::default() })
}

/// `min_rnr_timer` for 0.01 ms, so that retries are over soon.
const SHORT: u8 = 1;
/// `min_rnr_timer` for 40.96 ms, and for 163.84 ms.
const LONG: u8 = 24;
const LONGER: u8 = 28;

/// The least time that `waits` waits of `wait_ms` milliseconds take on a device whose clock ticks
/// every 4 ms.
fn at_least(waits: u32, wait_ms: u64) -> Duration {
    waits * Duration::from_millis(wait_ms - 5)
}

/// Checks that `once` takes at least `waits` waits of `wait_ms` milliseconds.
///
/// A kernel sets a timer by its count of ticks. If its CPU was kept from running, the count is
/// behind, and the timer early by the same time: one of three tries is enough. A device that waits
/// too short does so every time.
fn waits_for(waits: u32, wait_ms: u64, mut once: impl FnMut() -> Outcome<Duration>) -> Outcome {
    const TIMES: usize = 3;
    let mut most = Duration::ZERO;
    for _ in 0..TIMES {
        most = most.max(once()?);
        if most >= at_least(waits, wait_ms) {
            return Ok(());
        }
    }
    Err(Failure::new(format!("it waits {waits} times for {wait_ms} ms, not {most:?} in all at most, {TIMES} times")))
}

/// Posts a work request that finds no receive; returns the time until it failed.
fn rnr_fails(pair: &Pair, wr: Wr) -> Outcome<Duration> {
    let start = Instant::now();
    pair.a.qp.send(wr)?;
    same("the status", pair.a.scq.wait_one()?.status, Status::RNR_RETRY_EXC_ERR)?;
    let took = start.elapsed();
    pair.a.qp.expect_state(State::Err)?;
    // The receiver did nothing wrong.
    pair.b.qp.expect_state(State::Rts)?;
    Ok(took)
}

fn rnr_retry_0(rig: &Rig) -> Outcome {
    let pair = rnr_pair(rig, 0, SHORT)?;
    rnr_fails(&pair, small(&pair, 1)).map(drop)
}

fn rnr_retry_counts(rig: &Rig) -> Outcome {
    finds_its_receive(rig)?;
    waits_for(2, 40, || {
        let pair = rnr_pair(rig, 2, LONG)?;
        rnr_fails(&pair, small(&pair, 1))
    })
}

/// A receive posted before the second try is found. If this program was held up for longer, the row
/// tries once more.
fn finds_its_receive(rig: &Rig) -> Outcome {
    const HELD_UP: usize = 10;
    for _ in 0..HELD_UP {
        let pair = rnr_pair(rig, 2, LONG)?;
        let start = Instant::now();
        pair.a.qp.send(small(&pair, 1))?;
        let quiet = pair.a.scq.quiet();
        pair.b.recv(2)?;
        if start.elapsed() > at_least(2, 40) {
            continue;
        }
        quiet.during("before the second try")?;
        same("the send", pair.a.scq.wait_ok().during("a receive came in time")?.id, 1)?;
        return same("the receive", pair.b.rcq.wait_ok()?.id, 2);
    }
    Err(Failure::new(format!("this machine is too busy: it took longer than two waits, {HELD_UP} times")))
}

fn rnr_retry_7(rig: &Rig) -> Outcome {
    let pair = rnr_pair(rig, 7, SHORT)?;
    pair.a.qp.send(small(&pair, 1))?;
    // Far more than seven times 0.01 ms.
    pair.a.scq.quiet()?;
    pair.a.qp.expect_state(State::Rts)?;
    pair.b.recv(2)?;
    same("the send", pair.a.scq.wait_ok()?.id, 1)?;
    same("the receive", pair.b.rcq.wait_ok()?.id, 2)
}

fn min_rnr_timer_is_waited(rig: &Rig) -> Outcome {
    for (timer, wait_ms) in [(LONG, 40), (LONGER, 163)] {
        waits_for(1, wait_ms, || {
            let pair = rig.unconnected(RC, SideSpec::default())?;
            for (side, peer, min_rnr_timer) in [(&pair.a, &pair.b, SHORT), (&pair.b, &pair.a, timer)] {
                let link = Link { rnr_retry: 1, min_rnr_timer, ..Link::default() };
                side.to_init(&link)?;
                side.to_rtr(peer.qp.number(), &link)?;
                side.to_rts(&link)?;
            }
            rnr_fails(&pair, small(&pair, 1))
        })?;
    }
    Ok(())
}

fn rnr_of_write_with_imm(rig: &Rig) -> Outcome {
    let pair = rnr_pair(rig, 0, SHORT)?;
    rnr_fails(&pair, pair.any(1, Op::WriteImm)).map(drop)
}

/// Posts a work request on `a` that is never answered; returns the time until it failed.
fn gives_up(pair: &Pair) -> Outcome<Duration> {
    let start = Instant::now();
    pair.a.qp.send(small(pair, 1))?;
    same("the status", pair.a.scq.wait_one()?.status, Status::RETRY_EXC_ERR)?;
    let took = start.elapsed();
    pair.a.qp.expect_state(State::Err)?;
    Ok(took)
}

/// `silence` makes `b` stop answering; `a` gives up after two time-outs of 1 ms.
fn unanswered(rig: &Rig, silence: fn(&Pair) -> Outcome) -> Outcome {
    let link = Link { timeout: 8, retry_cnt: 1, ..Link::default() };
    let pair = rig.pair_with(RC, SideSpec::default(), link)?;
    silence(&pair)?;
    gives_up(&pair).map(drop)
}

fn timeout_is_waited(rig: &Rig) -> Outcome {
    // 4.096 us << 13 is 33.6 ms.
    for (retry_cnt, waits) in [(0, 1), (3, 4)] {
        let link = Link { timeout: 13, retry_cnt, ..Link::default() };
        waits_for(waits, 33, || {
            let pair = rig.pair_with(RC, SideSpec::default(), link)?;
            pair.b.qp.try_destroy()?;
            gives_up(&pair)
        })?;
    }
    Ok(())
}

fn timeout_0(rig: &Rig) -> Outcome {
    let link = Link { timeout: 0, retry_cnt: 0, ..Link::default() };
    let pair = rig.pair_with(RC, SideSpec::default(), link)?;
    pair.b.qp.try_destroy()?;
    pair.a.qp.send(small(&pair, 1))?;
    pair.a.scq.quiet()?;
    pair.a.qp.expect_state(State::Rts)?;
    pair.a.qp.to_err()?;
    flushed(&pair.a.scq.wait(1)?, &[1])
}
