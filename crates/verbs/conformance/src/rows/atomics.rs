//! ATOMIC_CMP_AND_SWP and ATOMIC_FETCH_AND_ADD.

use super::common::*;
use crate::check::{During, Failure, Outcome, ensure, one_of, same, same_bytes};
use crate::rig::{Cap, Link, Op, Pair, Rig, SideSpec, Status, Wr};
use crate::suite::Row;
use std::sync::{Arc, Barrier};

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POST_SEND, says, test).needs(Cap::Atomics);
    vec![
        row(
            "atomics/cmp-swap-equal-swaps",
            "CMP_AND_SWP writes the swap value when the compared one was there",
            equal_swaps,
        ),
        row("atomics/cmp-swap-unequal-keeps", "CMP_AND_SWP writes nothing when another value was there", unequal_keeps),
        row("atomics/fetch-add-adds", "FETCH_AND_ADD adds and returns what was there", adds),
        row("atomics/fetch-add-wraps", "FETCH_AND_ADD is modulo 2^64: adding 2^64-1 takes 1 away", wraps),
        row(
            "atomics/swap-means-nothing-to-fetch-add",
            "wr.atomic.swap is relevant for CMP_AND_SWP only: FETCH_AND_ADD doesn't look at it",
            swap_means_nothing_to_fetch_add,
        ),
        row(
            "atomics/touches-eight-bytes",
            "An atomic changes eight bytes at either side, no more",
            touches_eight_bytes,
        ),
        row("atomics/each-is-done-once", "A chain of atomics is done in order, each once", each_is_done_once),
        row(
            "atomics/from-two-sides-at-once",
            "Atomics of several queue pairs on one address are atomic to each other: nothing is lost",
            from_two_sides,
        ),
        row(
            "atomics/from-two-threads-at-once",
            "Under contention no FETCH_AND_ADD is lost, and no CMP_AND_SWP swaps what another changed meanwhile",
            from_two_threads,
        ),
        row(
            "atomics/misaligned-never-works",
            "A remote address that isn't a multiple of 8 is refused or REM_INV_REQ_ERR",
            misaligned,
        ),
        row(
            "atomics/local-buffer-is-eight-bytes",
            "A local list shorter than the 8 bytes of the result is refused or fails",
            short_buffer,
        ),
        row(
            "atomics/more-than-may-be-outstanding",
            "More atomics and reads than max_rd_atomic are posted and done, a few at a time",
            more_than_outstanding,
        ),
        row(
            "atomics/result-needs-local-write",
            "The result is written to local memory, which must have LOCAL_WRITE",
            result_needs_local_write,
        ),
    ]
}

/// One atomic by `a` on byte 8 of `b`'s memory, with the result at byte 16 of its own; returns the
/// result.
fn done(pair: &Pair, wr: Wr) -> Outcome<u64> {
    pair.a.qp.send(wr.sge(pair.a.mr.sge(16..24)))?;
    pair.a.scq.wait_ok()?;
    Ok(pair.a.mr.number(16))
}

fn equal_swaps(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.mr.set_number(8, 0x1122_3344_5566_7788);
    let was = done(&pair, Wr::cmp_swap(1, pair.remote(8), 0x1122_3344_5566_7788, u64::MAX - 1))?;
    same("the result", was, 0x1122_3344_5566_7788)?;
    same("the remote value", pair.b.mr.number(8), u64::MAX - 1)
}

fn unequal_keeps(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.mr.set_number(8, 5);
    same("the result", done(&pair, Wr::cmp_swap(1, pair.remote(8), 6, 7))?, 5)?;
    same("the remote value", pair.b.mr.number(8), 5)
}

fn adds(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.mr.set_number(8, 1 << 40);
    same("the result", done(&pair, Wr::fetch_add(1, pair.remote(8), 3))?, 1 << 40)?;
    same("the remote value", pair.b.mr.number(8), (1 << 40) + 3)
}

fn wraps(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.mr.set_number(8, 0);
    same("the result", done(&pair, Wr::fetch_add(1, pair.remote(8), u64::MAX))?, 0)?;
    same("the remote value", pair.b.mr.number(8), u64::MAX)?;
    same("the result", done(&pair, Wr::fetch_add(1, pair.remote(8), 2))?, u64::MAX)?;
    same("the remote value", pair.b.mr.number(8), 1)
}

fn swap_means_nothing_to_fetch_add(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.mr.set_number(8, 40);
    let wr = Wr::cmp_swap(1, pair.remote(8), 2, 99).op(Op::FetchAdd);
    same("what was there", done(&pair, wr)?, 40)?;
    same("what is there", pair.b.mr.number(8), 42)
}

fn touches_eight_bytes(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.a.mr.fill(0x11);
    pair.b.mr.fill(0x22);
    done(&pair, Wr::cmp_swap(1, pair.remote(8), 0x2222_2222_2222_2222, 0))?;
    same_bytes("before, remote", &pair.b.mr.take(0, 8), &[0x22; 8])?;
    same_bytes("swapped, remote", &pair.b.mr.take(8, 8), &[0; 8])?;
    same_bytes("behind, remote", &pair.b.mr.take(16, 8), &[0x22; 8])?;
    same_bytes("before, local", &pair.a.mr.take(8, 8), &[0x11; 8])?;
    same_bytes("behind, local", &pair.a.mr.take(24, 8), &[0x11; 8])
}

fn each_is_done_once(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let list: Vec<Wr> = (0..8_usize)
        .map(|at| Wr::fetch_add(at as u64, pair.remote(0), 1).sge(pair.a.mr.sge(at * 8..at * 8 + 8)))
        .collect();
    pair.a.qp.post_send(&list)?;
    pair.a.scq.wait_all_ok::<8>()?;
    let results: Vec<u64> = (0..8).map(|at| pair.a.mr.number(at * 8)).collect();
    same("the results", results, (0..8).collect())?;
    same("the remote value", pair.b.mr.number(0), 8)
}

fn from_two_sides(rig: &Rig) -> Outcome {
    let pairs = [rig.pair(RC)?, rig.pair(RC)?];
    let counter = rig.far().mr(4096)?;
    for round in 0..10_u64 {
        for pair in &pairs {
            let list: Vec<Wr> =
                (0..8).map(|id| Wr::fetch_add(id, counter.remote(0), 1).sge(pair.a.mr.sge(0..8))).collect();
            pair.a.qp.post_send(&list)?;
        }
        for pair in &pairs {
            pair.a.scq.wait_all_ok::<8>()?;
        }
        same("the counter", counter.number(0), (round + 1) * 16)?;
    }
    Ok(())
}

/// Two threads, each with its own open device, on one number.
fn from_two_threads(rig: &Rig) -> Outcome {
    const ROUNDS: u64 = 400;
    let number = rig.shared_mr()?;
    number.set_number(0, 0);
    let (target, start) = (rig.target(), Arc::new(Barrier::new(2)));
    let threads = [(); 2].map(|()| {
        let (target, start) = (target.clone(), start.clone());
        std::thread::spawn(move || {
            let rig = Rig::open(&target);
            start.wait();
            rig.and_then(|rig| count(&rig, ROUNDS))
        })
    });
    for thread in threads {
        thread.join().map_err(|_| Failure::new("a thread panicked"))??;
    }
    same("what all added", number.number(0), 2 * 2 * ROUNDS)
}

/// Adds `rounds` by FETCH_AND_ADD, and the same number by CMP_AND_SWP, each tried until it swaps.
fn count(rig: &Rig, rounds: u64) -> Outcome {
    let (pair, shared) = (rig.pair(RC)?, rig.far().shared_mr()?);
    let mut expected = 0;
    for _ in 0..rounds {
        done(&pair, Wr::fetch_add(1, shared.remote(0), 1))?;
        loop {
            let was = done(&pair, Wr::cmp_swap(2, shared.remote(0), expected, expected + 1))?;
            if was == expected {
                break;
            }
            expected = was;
        }
    }
    Ok(())
}

fn misaligned(rig: &Rig) -> Outcome {
    for offset in [1, 4] {
        let pair = rig.pair(RC)?;
        let wr = Wr::fetch_add(1, pair.remote(offset), 1).sge(pair.a.mr.sge(0..8));
        never_works(&pair, wr, &[Status::REM_INV_REQ_ERR, Status::REM_ACCESS_ERR])?;
        same_bytes("the remote memory", &pair.b.mr.take(0, 16), &[0; 16]).during(offset)?;
    }
    Ok(())
}

fn short_buffer(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.a.mr.fill(0x11);
    pair.b.mr.set_number(0, 9);
    let wr = Wr::fetch_add(1, pair.remote(0), 1).sge(pair.a.mr.sge(0..7));
    never_works(&pair, wr, &[Status::LOC_LEN_ERR, Status::LOC_QP_OP_ERR, Status::LOC_PROT_ERR])?;
    same_bytes("behind the list", &pair.a.mr.take(7, 8), &[0x11; 8])
}

fn more_than_outstanding(rig: &Rig) -> Outcome {
    let link = Link { rd_atomic: 1, dest_rd_atomic: 1, ..Link::default() };
    let pair = rig.pair_with(RC, SideSpec::default(), link)?;
    let list: Vec<Wr> = (0..12)
        .map(|id| {
            let sge = pair.a.mr.sge(0..8);
            if id % 2 == 0 {
                Wr::fetch_add(id, pair.remote(0), 1).sge(sge)
            } else {
                Wr::read(id, pair.remote(0)).sge(sge)
            }
        })
        .collect();
    pair.a.qp.post_send(&list)?;
    same("wr_ids", pair.a.scq.wait_all_ok::<12>()?.map(|wc| wc.id).to_vec(), (0..12).collect())?;
    same("the remote value", pair.b.mr.number(0), 6)
}

fn result_needs_local_write(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let mr = rig.mr_with(4096, crate::rig::Access::NONE)?;
    pair.b.mr.set_number(0, 9);
    pair.a.qp.send(Wr::fetch_add(1, pair.remote(0), 1).sge(mr.sge(0..8)))?;
    let status = pair.a.scq.wait_one()?.status;
    one_of("the status", status, &[Status::LOC_PROT_ERR, Status::LOC_ACCESS_ERR])?;
    ensure(mr.number(0) == 0, "the memory was not written")
}
