//! Messages: their limits of length, the receives that they take, and the regions of their data.

use super::common::*;
use crate::check::{Outcome, same, same_bytes};
use crate::rig::{Cap, Mr, Op, Pair, Recv, RecvOp, Rig, Transport, Wr};
use crate::suite::Row;

/// The longest message of a connection.
const LONGEST: usize = 1 << 31;
/// Before the end, where the memory of these rows differs from the rest.
const END: usize = LONGEST - 64;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POST_SEND, says, test);
    let mut rows = Vec::new();
    for (transport, op, label) in [
        (RC, Op::Send, "send"),
        (RC, Op::Write, "rdma-write"),
        (RC, Op::Read, "rdma-read"),
        (UC, Op::Send, "send"),
        (UC, Op::Write, "rdma-write"),
    ] {
        let says = format!("{transport}: the message of {op:?} may be 2^31 bytes long");
        let rule = format!("messages/{}-{label}-of-2-31", name(transport));
        let row = Row::new(rule, page::POST_SEND, says, move |rig| longest(rig, transport, op, 1 << 31));
        rows.push(row.needs(Cap::LongMessages));
    }
    for transport in [RC, UC] {
        let says = format!("{transport}: RDMA WRITE WITH IMMEDIATE consumes the receive at the head of the queue");
        let rule = format!("messages/{}-write-with-imm-takes-receives-in-order", name(transport));
        rows.push(Row::new(rule, page::POST_SEND, says, move |rig| write_with_imm_in_order(rig, transport)));
    }
    rows.extend([
        row("messages/length-0-is-2-31", "A scatter/gather entry of length 0 is 2^31 bytes", length_0_is_2_31)
            .needs(Cap::LongMessages),
        row(
            "messages/write-gathers-from-several-regions",
            "The entries of an RDMA WRITE may be of different Memory Regions",
            write_gathers,
        ),
        row(
            "messages/read-scatters-over-several-regions",
            "The entries of an RDMA READ may be of different Memory Regions",
            read_scatters,
        ),
    ]);
    rows
}

/// Memory of 2^31 bytes with `mark` at both ends.
fn long(rig: &Rig, mark: &[u8; 8]) -> Outcome<Mr> {
    let mr = rig.repeated_mr(LONGEST)?;
    mr.put(0, mark);
    mr.put(END, mark);
    Ok(mr)
}

/// One message over all of the memory, with one entry of this length.
fn longest(rig: &Rig, transport: Transport, op: Op, length: u32) -> Outcome {
    let pair = rig.pair(transport)?;
    let (here, there) = (long(rig, b"from a..")?, long(rig, b"from b..")?);
    let local = here.all().with_length(length);
    match op {
        Op::Send => {
            pair.b.qp.recv(Recv::new(1).sge(there.all().with_length(length)))?;
            pair.a.qp.send(Wr::send(2).sge(local))?;
            pair.a.scq.wait_ok()?;
            same("byte_len received", pair.b.rcq.wait_ok()?.bytes as usize, LONGEST)?;
        }
        Op::Read => {
            pair.a.qp.send(Wr::read(2, there.remote(0)).sge(local))?;
            same("byte_len", pair.a.scq.wait_ok()?.bytes as usize, LONGEST)?;
        }
        _ => {
            pair.a.qp.send(Wr::write(2, there.remote(0)).sge(local))?;
            pair.a.scq.wait_ok()?;
            // UC does not report arrival: the next message shows it.
            pair.exchange()?;
        }
    }
    let (arrived, want) = if op == Op::Read { (&here, b"from b..") } else { (&there, b"from a..") };
    for at in [0, LONGEST / 2, END] {
        same_bytes(format_args!("at {at}"), &arrived.take(at, 8), want)?;
    }
    Ok(())
}

fn length_0_is_2_31(rig: &Rig) -> Outcome {
    longest(rig, RC, Op::Send, 0)
}

fn write_with_imm_in_order(rig: &Rig, transport: Transport) -> Outcome {
    let pair = rig.pair(transport)?;
    for id in 0..5 {
        pair.b.recv(id)?;
    }
    for id in 0..5_u32 {
        // A SEND between them takes from the same queue.
        let op = if id == 2 { Op::Send } else { Op::WriteImm };
        pair.a.qp.send(pair.any(id.into(), op))?;
        pair.a.scq.wait_ok()?;
        let wc = pair.b.rcq.wait_ok()?;
        let opcode = if id == 2 { RecvOp::RECV } else { RecvOp::RDMA_WITH_IMM };
        same("the receive", (wc.id, wc.opcode), (id.into(), opcode))?;
    }
    pair.b.rcq.quiet()
}

/// Two regions beside the pair's own.
fn regions(rig: &Rig) -> Outcome<(Pair, Mr, Mr)> {
    Ok((rig.pair(RC)?, rig.mr(4096)?, rig.mr(4096)?))
}

fn write_gathers(rig: &Rig) -> Outcome {
    let (pair, one, two) = regions(rig)?;
    one.put(4093, b"one");
    two.put(0, b"two");
    pair.a.mr.put(7, b"three");
    let wr = Wr::write(1, pair.remote(64)).sge(two.sge(0..3)).sge(one.sge(4093..4096)).sge(pair.a.mr.sge(7..12));
    pair.a.qp.send(wr)?;
    pair.a.scq.wait_ok()?;
    same_bytes("written", &pair.b.mr.take(63, 13), b"\0twoonethree\0")
}

fn read_scatters(rig: &Rig) -> Outcome {
    let (pair, one, two) = regions(rig)?;
    pair.b.mr.put(64, b"twoonethree");
    let wr = Wr::read(1, pair.remote(64)).sge(two.sge(0..3)).sge(one.sge(4093..4096)).sge(pair.a.mr.sge(7..12));
    pair.a.qp.send(wr)?;
    same("byte_len", pair.a.scq.wait_ok()?.bytes, 11)?;
    let got = [two.take(0, 4), one.take(4092, 4), pair.a.mr.take(6, 7)].concat();
    same_bytes("read", &got, b"two\0\0one\0three\0")
}
