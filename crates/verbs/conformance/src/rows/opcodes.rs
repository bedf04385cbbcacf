//! The opcode table: the effect of each opcode on each transport that has it, and the refusal on
//! the others.

use super::common::*;
use crate::check::{During, Outcome, same, same_bytes};
use crate::rig::{Cap, Link, Op, Pair, RecvOp, Remote, Rig, SendOp, SideSpec, State, Status, Transport, Wr};
use crate::suite::Row;

/// The page's table: the transports of each opcode.
const TABLE: [(Op, &str, &[Transport], &[Transport]); 7] = [
    (Op::Send, "send", &[RC, UC, UD], &[]),
    (Op::SendImm, "send-with-imm", &[RC, UC, UD], &[]),
    (Op::Write, "rdma-write", &[RC, UC], &[UD]),
    (Op::WriteImm, "rdma-write-with-imm", &[RC, UC], &[UD]),
    (Op::Read, "rdma-read", &[RC], &[UC, UD]),
    (Op::CmpSwap, "atomic-cmp-and-swp", &[RC], &[UC, UD]),
    (Op::FetchAdd, "atomic-fetch-and-add", &[RC], &[UC, UD]),
];

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (op, label, has, lacks) in TABLE {
        rows.extend(has.iter().map(|&transport| works_row(op, label, transport)));
        rows.extend(lacks.iter().map(|&transport| refused_row(op, label, transport)));
    }
    for transport in [RC, UC, UD] {
        for (op, label, has, _) in TABLE.into_iter().filter(|(op, ..)| !is_atomic(*op)) {
            if has.contains(&transport) {
                rows.push(zero_length_row(op, label, transport));
            }
        }
    }
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POST_SEND, says, test);
    rows.extend([
        row("opcodes/rc-send-of-many-packets", "A SEND may be longer than the path MTU", rc_send_of_many_packets),
        row(
            "opcodes/rc-write-of-many-packets",
            "An RDMA WRITE may be longer than the path MTU",
            rc_write_of_many_packets,
        ),
        row("opcodes/rc-read-of-many-packets", "An RDMA READ may be longer than the path MTU", rc_read_of_many_packets),
        row("opcodes/uc-send-of-many-packets", "A UC SEND may be longer than the path MTU", uc_send_of_many_packets),
        row(
            "opcodes/uc-write-of-many-packets",
            "A UC RDMA WRITE may be longer than the path MTU",
            uc_write_of_many_packets,
        ),
        row(
            "opcodes/uc-write-with-imm-of-many-packets",
            "A UC RDMA WRITE WITH IMMEDIATE may be longer than the path MTU: its receive completes behind all of it",
            uc_write_with_imm_of_many_packets,
        ),
        row(
            "opcodes/send-takes-receives-in-order",
            "A SEND consumes the receive request at the head of the receive queue",
            send_takes_receives_in_order,
        ),
        row(
            "opcodes/imm-is-in-network-order",
            "The 32 bits of immediate data arrive unchanged in the completion, not in memory",
            imm_is_in_network_order,
        ),
        row(
            "opcodes/write-lands-anywhere-in-the-region",
            "RDMA WRITE places at the remote address, and nowhere else",
            write_lands_anywhere,
        ),
        row(
            "opcodes/read-takes-from-anywhere-in-the-region",
            "RDMA READ takes from the remote address into the local list",
            read_takes_from_anywhere,
        ),
        row(
            "opcodes/remote-address-means-nothing-to-a-send",
            "wr.rdma is relevant for RDMA operations only: a SEND doesn't look at it",
            remote_address_means_nothing_to_a_send,
        ),
        row(
            "opcodes/imm-data-means-nothing-without-imm",
            "imm_data is relevant for opcodes WITH_IMM only: SEND and RDMA WRITE don't bring it",
            imm_data_means_nothing_without_imm,
        ),
        row(
            "opcodes/sge-length-0-means-2-31",
            "A scatter/gather entry of length 0 stands for 2^31 bytes, so it can't lie in a small region",
            sge_length_0_means_2_31,
        )
        .rxe("got SUCCESS", "length 0 is no bytes", "rxe_requester() adds the lengths up as they are"),
        row(
            "opcodes/message-is-at-most-2-31",
            "A message of more than 2^31 bytes is refused or fails",
            message_is_at_most_2_31,
        ),
    ]);
    rows
}

fn is_atomic(op: Op) -> bool {
    matches!(op, Op::CmpSwap | Op::FetchAdd)
}

fn with_atomics(row: Row, op: Op) -> Row {
    if is_atomic(op) { row.needs(Cap::Atomics) } else { row }
}

fn works_row(op: Op, label: &str, transport: Transport) -> Row {
    let says = format!(
        "{transport} has {op:?}: it does what the page says, completes with its own opcode, and consumes a receive \
         only if it should"
    );
    let rule = format!("opcodes/{}-{label}", name(transport));
    with_atomics(Row::new(rule, page::POST_SEND, says, move |rig| works(rig, transport, op)), op)
}

fn refused_row(op: Op, label: &str, transport: Transport) -> Row {
    let says =
        format!("{transport} has no {op:?}: it is refused or completes with LOC_QP_OP_ERR, and the peer sees nothing");
    let rule = format!("opcodes/{}-has-no-{label}", name(transport));
    Row::new(rule, page::POST_SEND, says, move |rig| has_not(rig, transport, op))
}

fn zero_length_row(op: Op, label: &str, transport: Transport) -> Row {
    let says = format!("{transport} {op:?} with num_sge 0 is a message of no bytes");
    let rule = format!("opcodes/{}-{label}-of-no-bytes", name(transport));
    Row::new(rule, page::POST_SEND, says, move |rig| zero_length(rig, transport, op))
}

/// The opcode of the send queue's completion.
fn send_opcode(op: Op) -> u32 {
    match op {
        Op::Send | Op::SendImm | Op::SendInv => SendOp::SEND,
        Op::Write | Op::WriteImm => SendOp::RDMA_WRITE,
        Op::Read => SendOp::RDMA_READ,
        Op::CmpSwap => SendOp::COMP_SWAP,
        Op::FetchAdd => SendOp::FETCH_ADD,
        Op::LocalInv => SendOp::LOCAL_INV,
        Op::BindMw => SendOp::BIND_MW,
        Op::Nonsense => u32::MAX,
    }
}

fn works(rig: &Rig, transport: Transport, op: Op) -> Outcome {
    let pair = rig.pair(transport)?;
    pair.a.mr.put(0, b"ABCDEFGH");
    if matches!(op, Op::Read | Op::FetchAdd) {
        pair.b.mr.put(0, b"remote!!");
    }
    pair.b.recv(1)?;
    pair.a.qp.send(pair.any(2, op))?;
    let sent = pair.a.scq.wait_ok()?;
    same("the send's wr_id and opcode", (sent.id, sent.opcode), (2, send_opcode(op)))?;
    same("the send's qp_num", sent.qpn, pair.a.qp.number())?;
    match op {
        Op::Send | Op::SendImm => {
            received(&pair, op, RecvOp::RECV, pair.header() + 8)?;
            same_bytes("received", &pair.b.mr.take(pair.header(), 8), b"ABCDEFGH")
        }
        Op::WriteImm => {
            received(&pair, op, RecvOp::RDMA_WITH_IMM, 8)?;
            same_bytes("written", &pair.b.mr.take(0, 8), b"ABCDEFGH")
        }
        Op::Write => {
            pair.is_written(0, b"ABCDEFGH")?;
            no_receive_was_consumed(&pair)
        }
        _ => {
            let was_there = if op == Op::CmpSwap { [0; 8] } else { *b"remote!!" };
            same_bytes("read", &pair.a.mr.take(0, 8), &was_there)?;
            no_receive_was_consumed(&pair)
        }
    }
}

fn received(pair: &Pair, op: Op, opcode: u32, bytes: usize) -> Outcome {
    let wc = pair.b.rcq.wait_ok()?;
    same("the receive's wr_id and opcode", (wc.id, wc.opcode), (1, opcode))?;
    same("byte_len", wc.bytes as usize, bytes)?;
    same("qp_num", wc.qpn, pair.b.qp.number())?;
    let imm = matches!(op, Op::SendImm | Op::WriteImm).then_some(7);
    same("immediate data", wc.imm, imm)
}

/// Checks that the receive with wr_id 1 is still there: a SEND gets it.
fn no_receive_was_consumed(pair: &Pair) -> Outcome {
    pair.b.rcq.quiet()?;
    pair.a.qp.send(pair.send(3).sge(pair.a.mr.sge(0..8)))?;
    pair.a.scq.wait_ok()?;
    same("the receive's wr_id", pair.b.rcq.wait_ok()?.id, 1)
}

fn has_not(rig: &Rig, transport: Transport, op: Op) -> Outcome {
    let pair = rig.pair(transport)?;
    pair.a.mr.put(0, b"ABCDEFGH");
    pair.b.recv(1)?;
    never_works(&pair, pair.any(2, op), &[Status::LOC_QP_OP_ERR])?;
    pair.b.rcq.quiet()?;
    same_bytes("the peer's memory", &pair.b.mr.take(0, 64), &[0; 64])?;
    same_bytes("the own memory", &pair.a.mr.take(0, 8), b"ABCDEFGH")
}

fn zero_length(rig: &Rig, transport: Transport, op: Op) -> Outcome {
    let pair = rig.pair(transport)?;
    let remote = pair.remote(0);
    let wr = match op {
        Op::Send => pair.send(2),
        Op::SendImm => pair.send(2).imm(7),
        Op::Write => Wr::write(2, remote),
        Op::WriteImm => Wr::write(2, remote).imm(7),
        _ => Wr::read(2, remote),
    };
    pair.b.mr.fill(0x55);
    pair.b.recv(1)?;
    pair.a.qp.send(wr)?;
    let sent = pair.a.scq.wait_ok()?;
    same("the send's wr_id and opcode", (sent.id, sent.opcode), (2, send_opcode(op)))?;
    match op {
        Op::Send | Op::SendImm => received(&pair, op, RecvOp::RECV, pair.header())?,
        Op::WriteImm => received(&pair, op, RecvOp::RDMA_WITH_IMM, 0)?,
        _ => pair.b.rcq.quiet()?,
    }
    same_bytes("the peer's memory", &pair.b.mr.take(pair.header(), 64), &[0x55; 64])
}

/// Not a multiple of any MTU.
const LONG: usize = (96 << 10) + 13;

fn long_pair(rig: &Rig, transport: Transport) -> Outcome<Pair> {
    let pair = rig.pair_with(transport, SideSpec { mr_bytes: LONG, ..SideSpec::default() }, Link::default())?;
    pair.a.mr.put(0, &pattern(LONG));
    Ok(pair)
}

fn send_of_many_packets(rig: &Rig, transport: Transport) -> Outcome {
    let pair = long_pair(rig, transport)?;
    same("byte_len", deliver(&pair, pair.send(1).sge(pair.a.mr.all()))?.bytes as usize, LONG)?;
    same_bytes("received", &pair.b.mr.take(0, LONG), &pattern(LONG))
}

fn rc_send_of_many_packets(rig: &Rig) -> Outcome {
    send_of_many_packets(rig, RC)
}

fn uc_send_of_many_packets(rig: &Rig) -> Outcome {
    send_of_many_packets(rig, UC)
}

fn rc_write_of_many_packets(rig: &Rig) -> Outcome {
    let pair = long_pair(rig, RC)?;
    pair.a.qp.send(Wr::write(1, pair.remote(0)).sge(pair.a.mr.all()))?;
    pair.a.scq.wait_ok()?;
    same_bytes("written", &pair.b.mr.take(0, LONG), &pattern(LONG))
}

fn uc_write_of_many_packets(rig: &Rig) -> Outcome {
    let pair = long_pair(rig, UC)?;
    pair.b.recv(9)?;
    pair.a.qp.send(Wr::write(1, pair.remote(0)).sge(pair.a.mr.all()))?;
    pair.a.scq.wait_ok()?;
    // UC does not report arrival: the next message shows it.
    pair.a.qp.send(pair.any(2, Op::WriteImm).op(Op::WriteImm))?;
    pair.a.scq.wait_ok()?;
    same("what follows", pair.b.rcq.wait_ok()?.opcode, RecvOp::RDMA_WITH_IMM)?;
    same_bytes("written", &pair.b.mr.take(0, LONG), &pattern(LONG))
}

fn uc_write_with_imm_of_many_packets(rig: &Rig) -> Outcome {
    let pair = long_pair(rig, UC)?;
    let wc = deliver(&pair, Wr::write(1, pair.remote(0)).sge(pair.a.mr.all()).imm(5))?;
    same(
        "opcode, byte_len and immediate data",
        (wc.opcode, wc.bytes as usize, wc.imm),
        (RecvOp::RDMA_WITH_IMM, LONG, Some(5)),
    )?;
    same_bytes("written", &pair.b.mr.take(0, LONG), &pattern(LONG))
}

fn rc_read_of_many_packets(rig: &Rig) -> Outcome {
    let pair = long_pair(rig, RC)?;
    // From a to a's peer and back again.
    pair.b.mr.put(0, &pattern(LONG));
    pair.a.mr.fill(0);
    pair.a.qp.send(Wr::read(1, pair.remote(0)).sge(pair.a.mr.all()))?;
    same("byte_len", pair.a.scq.wait_ok()?.bytes as usize, LONG)?;
    same_bytes("read", &pair.a.mr.take(0, LONG), &pattern(LONG))
}

fn send_takes_receives_in_order(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let pair = rig.pair(transport)?;
        for id in 0..5 {
            pair.b.recv(id)?;
        }
        for id in 0..5 {
            pair.a.qp.send(small(&pair, id))?;
            same("the receive", pair.b.rcq.wait_ok()?.id, id).during(transport)?;
            pair.a.scq.wait_ok()?;
        }
    }
    Ok(())
}

fn imm_is_in_network_order(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let pair = rig.pair(transport)?;
        let wc = deliver(&pair, pair.send(1).imm(0x1234_abcd))?;
        same("immediate data", wc.imm, Some(0x1234_abcd)).during(transport)?;
        same_bytes("memory", &pair.b.mr.take(pair.header(), 16), &[0; 16])?;
    }
    Ok(())
}

fn write_lands_anywhere(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let bytes = pair.b.mr.len();
    pair.a.mr.put(0, b"xyz");
    let mut want = vec![0; bytes];
    for offset in [0, 4095, bytes - 3] {
        pair.a.qp.send(Wr::write(1, pair.remote(offset)).sge(pair.a.mr.sge(0..3)))?;
        pair.a.scq.wait_ok()?;
        want[offset..offset + 3].copy_from_slice(b"xyz");
    }
    same_bytes("the peer's memory", &pair.b.mr.take(0, bytes), &want)
}

fn read_takes_from_anywhere(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let bytes = pair.b.mr.len();
    pair.b.mr.put(0, &pattern(bytes));
    for offset in [0, 4095, bytes - 3] {
        pair.a.qp.send(Wr::read(1, pair.remote(offset)).sge(pair.a.mr.sge(0..1)).sge(pair.a.mr.sge(8..10)))?;
        pair.a.scq.wait_ok()?;
        let got = [pair.a.mr.take(0, 1), pair.a.mr.take(8, 2)].concat();
        same_bytes("read", &got, &pattern(bytes)[offset..offset + 3])?;
    }
    Ok(())
}

fn remote_address_means_nothing_to_a_send(rig: &Rig) -> Outcome {
    for transport in [RC, UC] {
        let pair = rig.pair(transport)?;
        pair.b.mr.fill(0x66);
        pair.a.mr.put(0, b"ABCDEFGH");
        // The place where the message would land if it were an RDMA WRITE; and no place at all.
        for remote in [pair.remote(4096), Remote { addr: 8, rkey: 0xdead_beef }] {
            let wr = Wr::write(1, remote).op(Op::Send).sge(pair.a.mr.sge(0..8));
            same("opcode", deliver(&pair, wr).during(transport)?.opcode, RecvOp::RECV)?;
            same_bytes("received", &pair.b.mr.take(0, 8), b"ABCDEFGH")?;
            same_bytes("at the remote address", &pair.b.mr.take(4096, 8), &[0x66; 8])?;
        }
    }
    Ok(())
}

fn imm_data_means_nothing_without_imm(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let pair = rig.pair(transport)?;
        let wc = deliver(&pair, small(&pair, 1).imm(0x1234).op(Op::Send))?;
        same("immediate data of a SEND", wc.imm, None).during(transport)?;
        if transport != UD {
            pair.b.recv(2)?;
            pair.a.qp.send(pair.any(3, Op::Write).imm(0x1234).op(Op::Write))?;
            pair.a.scq.wait_ok()?;
            pair.b.rcq.quiet().during("an RDMA WRITE")?;
        }
    }
    Ok(())
}

fn sge_length_0_means_2_31(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.recv(1)?;
    let wr = Wr::send(2).sge(pair.a.mr.sge(0..8).with_length(0));
    never_works(&pair, wr, &[Status::LOC_PROT_ERR, Status::LOC_LEN_ERR])?;
    pair.b.rcq.quiet()
}

fn message_is_at_most_2_31(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let sge = pair.a.mr.sge(0..8);
    let wr = Wr::write(2, pair.remote(0)).sge(sge.with_length(1 << 31)).sge(sge.with_length(1));
    never_works(&pair, wr, &[Status::LOC_PROT_ERR, Status::LOC_LEN_ERR, Status::LOC_QP_OP_ERR])?;
    same_bytes("the peer's memory", &pair.b.mr.take(0, 64), &[0; 64])?;
    match pair.a.qp.state()? {
        State::Rts | State::Err => Ok(()),
        other => same("the state", other, State::Err),
    }
}
