//! Scatter/gather lists: many regions in one message, their limits, and keys that do not fit.

use super::common::*;
use crate::check::{During, Outcome, ensure, one_of, same, same_bytes};
use crate::rig::{Access, Link, Op, Pair, QpCap, Recv, Rig, SideSpec, State, Status, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POST_SEND, says, test);
    vec![
        row(
            "sge/gathers-from-several-regions",
            "The entries of a list may be in different memory regions; the message is their sum",
            gathers_from_several_regions,
        ),
        row(
            "sge/as-many-as-granted",
            "A list may have as many entries as the queue pair was created for; one more is EINVAL",
            as_many_as_granted,
        ),
        row("sge/whole-region-fits", "An entry may reach to the last byte of its region", whole_region_fits),
        row("sge/one-byte-too-far", "An entry that leaves its region by a byte is LOC_PROT_ERR", one_byte_too_far),
        row("sge/starts-before-the-region", "An entry that starts before its region is LOC_PROT_ERR", starts_before),
        bad_key_row(row("sge/wrong-lkey", "An lkey that no region has is LOC_PROT_ERR", wrong_lkey)),
        row("sge/second-entry-is-checked-too", "Each entry of a list is checked", second_entry_is_checked),
        bad_key_row(row(
            "sge/region-of-another-pd",
            "A region of another protection domain than the queue pair's is LOC_PROT_ERR",
            region_of_another_pd,
        )),
        bad_key_row(row(
            "sge/deregistered-lkey",
            "The lkey of a region that was deregistered is nobody's: LOC_PROT_ERR",
            deregistered_lkey,
        )),
        row(
            "sge/read-into-read-only-memory",
            "RDMA READ writes local memory: without LOCAL_WRITE it fails locally",
            read_into_read_only_memory,
        ),
        row(
            "sge/send-from-read-only-memory",
            "Sending reads local memory, which needs no access flag",
            send_from_read_only_memory,
        ),
        row(
            "sge/uc-and-ud-check-too",
            "An entry that leaves its region is LOC_PROT_ERR on UC and UD as well",
            uc_and_ud_check_too,
        ),
        row(
            "sge/gathers-the-same-memory-twice",
            "The message is the sum of the entries, also of entries that overlap",
            gathers_the_same_memory_twice,
        ),
        row(
            "sge/overlapping-entries-of-a-receive",
            "What entries that overlap are filled with is undefined where they overlap, and only there",
            overlapping_entries_of_a_receive,
        ),
        Row::new(
            "sge/scatters",
            page::POST_RECV,
            "A message fills the entries of a receive one after the other",
            scatters,
        ),
        Row::new(
            "sge/receive-of-exactly-the-message",
            page::POST_RECV,
            "A receive of exactly the message's length takes it",
            receive_of_exactly,
        ),
        Row::new(
            "sge/receive-too-short",
            page::POST_RECV,
            "A receive that is too short for the message is LOC_LEN_ERR, and REM_INV_REQ_ERR for the sender; both are \
             in ERR",
            receive_too_short,
        )
        .rxe(
            "expected REM_INV_REQ_ERR, got REM_OP_ERR",
            "the sender gets REM_OP_ERR, the receiver LOC_QP_OP_ERR",
            "rxe's copy_data() doesn't tell a list that is too short from a malformed work request",
        ),
        bad_key_row(Row::new(
            "sge/receive-with-wrong-lkey",
            page::POST_RECV,
            "A receive whose lkey no region has is LOC_PROT_ERR, and REM_OP_ERR for the sender",
            receive_with_wrong_lkey,
        )),
        bad_key_row(Row::new(
            "sge/receive-with-deregistered-lkey",
            page::POST_RECV,
            "A posted receive whose region is deregistered meanwhile is LOC_PROT_ERR, and REM_OP_ERR for the sender",
            receive_with_deregistered_lkey,
        )),
        bad_key_row(Row::new(
            "sge/receive-into-read-only-memory",
            page::POST_RECV,
            "A receive into memory without LOCAL_WRITE fails: LOC_PROT_ERR, or LOC_ACCESS_ERR",
            receive_into_read_only_memory,
        )),
        Row::new(
            "sge/receive-entries-as-many-as-granted",
            page::POST_RECV,
            "A receive may have as many entries as the queue pair was created for; one more is EINVAL",
            receive_entries,
        ),
        Row::new(
            "sge/receive-not-touched-beyond-the-message",
            page::POST_RECV,
            "A message shorter than the receive leaves the rest of its memory alone",
            rest_is_left_alone,
        ),
    ]
}

fn bad_key_row(row: Row) -> Row {
    let (seen, does, why) = RXE_BAD_KEY;
    row.rxe(seen, does, why)
}

fn gathers_from_several_regions(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let pair = rig.pair(transport)?;
        let (one, two) = (rig.mr(4096)?, rig.mr(4096)?);
        one.put(4090, b"one...");
        two.put(0, b"two");
        pair.a.mr.put(7, b"three");
        let wr = pair.send(1).sge(two.sge(0..3)).sge(one.sge(4090..4096)).sge(pair.a.mr.sge(7..12));
        let wc = deliver(&pair, wr)?;
        same("byte_len", wc.bytes as usize, pair.header() + 14).during(transport)?;
        same_bytes(transport, &pair.b.mr.take(pair.header(), 14), b"twoone...three")?;
    }
    Ok(())
}

fn as_many_as_granted(rig: &Rig) -> Outcome {
    let cap = QpCap { send_sge: 5, ..QpCap::default() };
    let pair = rig.pair_with(RC, SideSpec { cap, ..SideSpec::default() }, Link::default())?;
    let granted = pair.a.qp.granted().send_sge as usize;
    ensure(granted >= 5, format_args!("5 entries were granted, not {granted}"))?;
    pair.a.mr.put(0, &pattern(granted));
    let list = |count: usize| (0..count).fold(pair.send(1), |wr, at| wr.sge(pair.a.mr.sge(at..at + 1)));
    deliver(&pair, list(granted))?;
    same_bytes("received", &pair.b.mr.take(0, granted), &pattern(granted))?;
    refused_at(pair.a.qp.send(list(granted + 1)), libc::EINVAL, 0)
}

fn whole_region_fits(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    // Not a whole number of pages: the end is in the middle of one.
    let memory = rig.memory(8192);
    let mr = rig.pd().reg(&memory, 100..5000, Access::LOCAL_WRITE)?;
    mr.put(0, &pattern(4900));
    deliver(&pair, pair.send(1).sge(mr.all()))?;
    same_bytes("received", &pair.b.mr.take(0, 4900), &pattern(4900))
}

/// Checks a send by `a` with this entry: it fails with LOC_PROT_ERR, nothing arrives, and the queue
/// pair is in ERR.
fn is_protected(pair: &Pair, sge: crate::rig::Sge) -> Outcome {
    pair.b.recv(1)?;
    pair.a.qp.send(pair.send(2).sge(sge))?;
    let wc = pair.a.scq.wait_one()?;
    same("the completion", (wc.id, wc.status), (2, Status::LOC_PROT_ERR))?;
    pair.b.rcq.quiet()?;
    pair.a.qp.expect_state(State::Err)
}

/// Like [`is_protected`], for messages of several lengths, each on a pair of its own.
fn is_protected_at_any_length(rig: &Rig, sge: impl Fn(&Pair, usize) -> Outcome<crate::rig::Sge>) -> Outcome {
    each_length(rig, RC)?
        .into_iter()
        .try_for_each(|(bytes, pair)| is_protected(&pair, sge(&pair, bytes)?).during(format_args!("{bytes} bytes")))
}

fn one_byte_too_far(rig: &Rig) -> Outcome {
    let memory = rig.memory(16 << 10);
    let mr = rig.pd().reg(&memory, 0..9001, Access::ALL)?;
    is_protected_at_any_length(rig, |_, bytes| Ok(mr.sge(9001 - (bytes - 1)..9001).with_length(bytes as u32)))
}

fn starts_before(rig: &Rig) -> Outcome {
    let memory = rig.memory(16 << 10);
    let mr = rig.pd().reg(&memory, 100..9001, Access::ALL)?;
    is_protected_at_any_length(rig, |_, bytes| {
        let sge = mr.sge(0..bytes);
        Ok(crate::rig::Sge { addr: sge.addr - 1, ..sge })
    })
}

fn wrong_lkey(rig: &Rig) -> Outcome {
    is_protected_at_any_length(rig, |pair, bytes| Ok(bad_key(pair).with_length(bytes as u32)))
}

fn second_entry_is_checked(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.recv(1)?;
    pair.a.qp.send(pair.send(2).sge(pair.a.mr.sge(0..8)).sge(out_of_bounds(&pair.a.mr)))?;
    same("the completion", pair.a.scq.wait_one()?.status, Status::LOC_PROT_ERR)?;
    pair.b.rcq.quiet()
}

fn region_of_another_pd(rig: &Rig) -> Outcome {
    let other = rig.other_pd()?;
    let mr = other.reg(&rig.memory(8192), 0..8192, Access::ALL)?;
    is_protected_at_any_length(rig, |_, bytes| Ok(mr.sge(0..bytes)))
}

fn deregistered_lkey(rig: &Rig) -> Outcome {
    is_protected_at_any_length(rig, |_, bytes| {
        let mr = rig.mr(8192)?;
        let sge = mr.sge(0..bytes);
        mr.deregister()?;
        Ok(sge)
    })
}

fn read_into_read_only_memory(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.mr.fill(0x77);
    let mr = rig.mr_with(4096, Access::NONE)?;
    pair.a.qp.send(Wr::read(1, pair.remote(0)).sge(mr.sge(0..8)))?;
    same("the completion", pair.a.scq.wait_one()?.status, Status::LOC_PROT_ERR)?;
    same_bytes("the memory", &mr.take(0, 8), &[0; 8])?;
    pair.a.qp.expect_state(State::Err)
}

fn send_from_read_only_memory(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let mr = rig.mr_with(4096, Access::NONE)?;
    mr.put(0, b"readable");
    deliver(&pair, pair.send(1).sge(mr.sge(0..8)))?;
    pair.a.qp.send(Wr::write(2, pair.remote(100)).sge(mr.sge(0..8)))?;
    pair.a.scq.wait_ok()?;
    same_bytes("written", &pair.b.mr.take(100, 8), b"readable")
}

fn uc_and_ud_check_too(rig: &Rig) -> Outcome {
    for transport in [UC, UD] {
        let pair = rig.pair(transport)?;
        pair.b.recv(1)?;
        pair.a.qp.send(failing(&pair, 2))?;
        same("the completion", pair.a.scq.wait_one()?.status, Status::LOC_PROT_ERR).during(transport)?;
        pair.b.rcq.quiet()?;
    }
    Ok(())
}

fn gathers_the_same_memory_twice(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.a.mr.put(0, b"abcdef");
    let wr = pair.send(1).sge(pair.a.mr.sge(0..4)).sge(pair.a.mr.sge(2..6)).sge(pair.a.mr.sge(0..4));
    same("byte_len", deliver(&pair, wr)?.bytes, 12)?;
    same_bytes("received", &pair.b.mr.take(0, 12), b"abcdcdefabcd")
}

fn overlapping_entries_of_a_receive(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let to = &pair.b.mr;
    to.fill(0x33);
    pair.a.mr.put(0, b"abcdefgh");
    pair.b.qp.recv(Recv::new(1).sge(to.sge(100..104)).sge(to.sge(102..106)))?;
    pair.a.qp.send(small(&pair, 2))?;
    pair.a.scq.wait_ok()?;
    same("byte_len", pair.b.rcq.wait_ok()?.bytes, 8)?;
    // Bytes 102 and 103 are in both entries: undefined.
    same_bytes("in front of the overlap", &to.take(99, 3), b"\x33ab")?;
    same_bytes("behind the overlap", &to.take(104, 3), b"gh\x33")
}

fn scatters(rig: &Rig) -> Outcome {
    for (bytes, pair) in each_length(rig, RC)? {
        let other = rig.far().mr(4096)?;
        let to = &pair.b.mr;
        pair.b.qp.recv(Recv::new(1).sge(to.sge(6000..6003)).sge(other.sge(0..2)).sge(to.sge(0..bytes)))?;
        let text = pattern(bytes);
        pair.a.mr.put(0, &text);
        pair.a.qp.send(sized(&pair, 2, bytes))?;
        pair.a.scq.wait_ok()?;
        same("byte_len", pair.b.rcq.wait_ok()?.bytes as usize, bytes)?;
        same_bytes("the first entry", &to.take(6000, 4), &[&text[..3], &[0]].concat())?;
        same_bytes("the second entry", &other.take(0, 3), &[&text[3..5], &[0]].concat())?;
        same_bytes("the third entry", &to.take(0, bytes - 4), &[&text[5..], &[0]].concat())?;
    }
    Ok(())
}

fn receive_of_exactly(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        for (bytes, pair) in each_length(rig, transport)? {
            pair.b.qp.recv(Recv::new(1).sge(pair.b.mr.sge(0..pair.header() + bytes)))?;
            pair.a.qp.send(sized(&pair, 2, bytes))?;
            let what = format!("{transport}, {bytes} bytes");
            pair.a.scq.wait_ok().during(&what)?;
            same("byte_len", pair.b.rcq.wait_ok().during(&what)?.bytes as usize, pair.header() + bytes)?;
        }
    }
    Ok(())
}

fn receive_too_short(rig: &Rig) -> Outcome {
    for (bytes, pair) in each_length(rig, RC)? {
        pair.a.mr.fill(0x77);
        pair.b.qp.recv(Recv::new(1).sge(pair.b.mr.sge(0..bytes - 1)))?;
        pair.a.qp.send(sized(&pair, 2, bytes))?;
        same("the sender's status", pair.a.scq.wait_one()?.status, Status::REM_INV_REQ_ERR)?;
        same("the receiver's status", pair.b.rcq.wait_one()?.status, Status::LOC_LEN_ERR)?;
        same_bytes("behind the receive", &pair.b.mr.take(bytes - 1, 8), &[0; 8])?;
        pair.a.qp.expect_state(State::Err)?;
        pair.b.qp.expect_state(State::Err)?;
    }
    Ok(())
}

fn receive_with_wrong_lkey(rig: &Rig) -> Outcome {
    for (bytes, pair) in each_length(rig, RC)? {
        let sge = pair.b.mr.all();
        pair.b.qp.recv(Recv::new(1).sge(sge.with_lkey(sge.lkey ^ 0x00ff_ff00)))?;
        pair.a.qp.send(sized(&pair, 2, bytes))?;
        same("the receiver's status", pair.b.rcq.wait_one()?.status, Status::LOC_PROT_ERR)?;
        same("the sender's status", pair.a.scq.wait_one()?.status, Status::REM_OP_ERR)?;
        pair.b.qp.expect_state(State::Err).during(format_args!("{bytes} bytes"))?;
    }
    Ok(())
}

fn receive_with_deregistered_lkey(rig: &Rig) -> Outcome {
    for in_front in [0, 4] {
        for (bytes, pair) in each_length(rig, RC)? {
            let (mr, gone) = (&pair.b.mr, rig.mr(8192)?);
            let recv = if in_front > 0 { Recv::new(1).sge(mr.sge(0..in_front)) } else { Recv::new(1) };
            pair.b.qp.recv(recv.sge(gone.all()))?;
            gone.deregister()?;
            pair.a.qp.send(sized(&pair, 2, bytes))?;
            same("the receiver's status", pair.b.rcq.wait_one()?.status, Status::LOC_PROT_ERR)?;
            let what = format!("{bytes} bytes, {in_front} of them in another region");
            same("the sender's status", pair.a.scq.wait_one()?.status, Status::REM_OP_ERR).during(&what)?;
            pair.b.qp.expect_state(State::Err).during(&what)?;
        }
    }
    Ok(())
}

fn receive_into_read_only_memory(rig: &Rig) -> Outcome {
    for (bytes, pair) in each_length(rig, RC)? {
        let mr = rig.mr_with(8192, Access::NONE)?;
        pair.b.qp.recv(Recv::new(1).sge(mr.all()))?;
        pair.a.mr.fill(0x77);
        pair.a.qp.send(sized(&pair, 2, bytes))?;
        let status = pair.b.rcq.wait_one()?.status;
        one_of("the receiver's status", status, &[Status::LOC_PROT_ERR, Status::LOC_ACCESS_ERR])?;
        ensure(!pair.a.scq.wait_one()?.ok(), format_args!("the sender hears of it, {bytes} bytes"))?;
        same_bytes("the memory", &mr.take(0, 8), &[0; 8])?;
    }
    Ok(())
}

fn receive_entries(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let granted = pair.b.qp.granted().recv_sge as usize;
    ensure(granted >= 4, format_args!("4 entries were granted, not {granted}"))?;
    let list = |count: usize| (0..count).fold(Recv::new(1), |recv, at| recv.sge(pair.b.mr.sge(at..at + 1)));
    pair.b.qp.recv(list(granted))?;
    pair.a.qp.send(pair.send(2).sge(pair.a.mr.sge(0..granted)))?;
    pair.a.scq.wait_ok()?;
    pair.b.rcq.wait_ok()?;
    refused_at(pair.b.qp.recv(list(granted + 1)), libc::EINVAL, 0)
}

fn rest_is_left_alone(rig: &Rig) -> Outcome {
    for op in [Op::Send, Op::WriteImm] {
        let pair = rig.pair(RC)?;
        pair.b.mr.fill(0x33);
        pair.b.recv(1)?;
        pair.a.qp.send(pair.any(2, op))?;
        pair.a.scq.wait_ok()?;
        pair.b.rcq.wait_ok()?;
        same_bytes(format_args!("{op:?}"), &pair.b.mr.take(8, 100), &[0x33; 100])?;
    }
    Ok(())
}
