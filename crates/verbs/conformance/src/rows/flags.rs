//! `send_flags`: FENCE, SIGNALED with `sq_sig_all`, INLINE. SOLICITED is in `notify`.

use super::common::*;
use crate::check::{During, Outcome, ensure, same, same_bytes};
use crate::rig::{Cap, Cq, Link, Op, Qp, QpCap, Rig, Sge, SideSpec, State, Status, Transport, Wr, errno_name};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POST_SEND, says, test);
    vec![
        row(
            "flags/fence-waits-for-reads",
            "FENCE blocks a work request until all RDMA READs before it are complete",
            fence_waits_for_reads,
        ),
        row(
            "flags/fence-waits-for-all-of-them",
            "FENCE blocks a work request until all READs and atomics before it are complete, not only the last",
            fence_waits_for_all,
        )
        .needs(Cap::Atomics),
        row(
            "flags/fence-waits-for-atomics",
            "FENCE blocks a work request until all atomics before it are complete",
            fence_waits_for_atomics,
        )
        .needs(Cap::Atomics),
        row(
            "flags/fence-is-for-rc",
            "FENCE is valid for RC only: UC and UD refuse it, or send as if it weren't there",
            fence_is_for_rc,
        ),
        row(
            "flags/unsignaled-completes-silently",
            "Without SIGNALED (and sq_sig_all 0) a success makes no completion",
            unsignaled_completes_silently,
        ),
        row(
            "flags/unsignaled-failure-is-reported",
            "A failure makes a completion, signaled or not",
            unsignaled_failure_is_reported,
        ),
        row(
            "flags/sig-all-signals-everything",
            "With sq_sig_all 1 every work request makes a completion, whatever SIGNALED says",
            sig_all_signals_everything,
        ),
        row(
            "flags/inline-needs-no-registration",
            "INLINE data is read by the CPU: the lkey isn't looked at",
            inline_needs_no_registration,
        ),
        row(
            "flags/inline-buffer-is-free-at-once",
            "INLINE data was copied when the call returned: the buffer can be changed",
            inline_buffer_is_free_at_once,
        ),
        row("flags/inline-gathers", "INLINE data may come from several scatter/gather entries", inline_gathers),
        row(
            "flags/inline-up-to-what-was-granted",
            "INLINE takes up to the max_inline_data that creation returned; more is EINVAL",
            inline_up_to_what_was_granted,
        ),
        row("flags/inline-of-no-bytes", "INLINE with no data is a message of no bytes", inline_of_no_bytes),
        row(
            "flags/inline-on-every-opcode-that-sends",
            "INLINE is valid for SEND and RDMA WRITE, with and without immediate data",
            inline_on_every_opcode_that_sends,
        ),
        row("flags/inline-on-uc-and-ud", "INLINE is the sender's business: UC and UD have it too", inline_on_uc_and_ud),
        row(
            "flags/inline-read-never-works",
            "INLINE is valid for SEND and RDMA WRITE only: a READ with it is refused or fails",
            inline_read_never_works,
        ),
        row(
            "flags/inline-atomic-never-works",
            "INLINE is valid for SEND and RDMA WRITE only: an atomic with it is refused or fails, and changes nothing",
            inline_atomic_never_works,
        )
        .needs(Cap::Atomics)
        .rxe(
            "the peer's memory",
            "the atomic is carried out at the peer, and then fails locally",
            "rxe's user library writes the data over the list, which the completer looks at when the answer comes",
        ),
        row(
            "flags/inline-looks-the-same-to-the-peer",
            "INLINE is how the device gets the data: the receiver's completion and memory are as without it",
            inline_looks_the_same,
        ),
        Row::new(
            "flags/inline-asked-too-much-is-refused",
            page::CREATE_QP,
            "A max_inline_data that is more than the device has fails creation; asked less and less, it is granted",
            inline_asked_too_much_is_refused,
        ),
    ]
}

fn fence_waits_for_reads(rig: &Rig) -> Outcome {
    const BYTES: usize = 8 << 10;
    let pair = rig.pair(RC)?;
    let inbox = rig.far().mr(BYTES)?;
    for round in 0..8_u8 {
        let text: Vec<u8> = pattern(BYTES).iter().map(|byte| byte ^ round).collect();
        pair.b.mr.put(0, &text);
        pair.b.qp.recv(crate::rig::Recv::new(9).sge(inbox.all()))?;
        let here = pair.a.mr.sge(0..BYTES);
        // Unfenced, the SEND may leave before the READ has brought the data that it is to carry.
        let list = [Wr::read(1, pair.remote(0)).sge(here), Wr::send(2).sge(here).fenced()];
        pair.a.qp.post_send(&list)?;
        pair.a.scq.wait_all_ok::<2>()?;
        pair.b.rcq.wait_ok()?;
        same_bytes("what came back", &inbox.take(0, BYTES), &text)?;
    }
    Ok(())
}

fn fence_waits_for_atomics(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    for round in 0..8_u64 {
        pair.b.mr.set_number(0, 1000 + round);
        let here = pair.a.mr.sge(0..8);
        let list = [Wr::fetch_add(1, pair.remote(0), 5).sge(here), Wr::write(2, pair.remote(64)).sge(here).fenced()];
        pair.a.qp.post_send(&list)?;
        pair.a.scq.wait_all_ok::<2>()?;
        same("the fenced write brought", pair.b.mr.number(64), 1000 + round)?;
    }
    Ok(())
}

/// On the software RNIC this cannot fail: it carries out work requests one after the other.
fn fence_waits_for_all(rig: &Rig) -> Outcome {
    const BYTES: usize = 2 << 10;
    let pair = rig.pair(RC)?;
    let inbox = rig.far().mr(4 * BYTES)?;
    for round in 0..8_u8 {
        let text: Vec<u8> = pattern(3 * BYTES).iter().map(|byte| byte ^ round).collect();
        pair.b.mr.put(0, &text);
        pair.b.mr.set_number(3 * BYTES, round.into());
        pair.b.qp.recv(crate::rig::Recv::new(9).sge(inbox.all()))?;
        let part = |at: usize| pair.a.mr.sge(at * BYTES..(at + 1) * BYTES);
        let sum = pair.a.mr.sge(3 * BYTES..3 * BYTES + 8);
        let read = |at: usize| Wr::read(at as u64, pair.remote(at * BYTES)).sge(part(at));
        let add = Wr::fetch_add(3, pair.remote(3 * BYTES), 1).sge(sum);
        let all = Wr::send(4).sge(part(0)).sge(part(1)).sge(part(2)).sge(sum).fenced();
        pair.a.qp.post_send(&[read(0), add, read(1), read(2), all])?;
        pair.a.scq.wait_all_ok::<5>()?;
        pair.b.rcq.wait_ok()?;
        same_bytes("what the READs brought", &inbox.take(0, 3 * BYTES), &text)?;
        same("what the atomic brought", inbox.number(3 * BYTES), round.into())?;
    }
    Ok(())
}

fn fence_is_for_rc(rig: &Rig) -> Outcome {
    for transport in [UC, UD] {
        let pair = rig.pair(transport)?;
        pair.a.mr.put(0, b"unfenced");
        pair.b.recv(1)?;
        match pair.a.qp.send(small(&pair, 2).fenced()) {
            Err(refused) => {
                same("errno", errno_name(refused.errno), errno_name(libc::EINVAL)).during(transport)?;
                pair.a.qp.expect_state(State::Rts)?;
            }
            Ok(()) => {
                same("the send's wr_id", pair.a.scq.wait_ok().during(transport)?.id, 2)?;
                pair.b.rcq.wait_ok().during(transport)?;
                same_bytes(transport, &pair.b.mr.take(pair.header(), 8), b"unfenced")?;
            }
        }
    }
    Ok(())
}

fn unsignaled_completes_silently(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let pair = rig.pair(transport)?;
        for id in 0..4 {
            pair.b.recv(id)?;
        }
        let silent = |id| small(&pair, id).unsignaled();
        pair.a.qp.post_send(&[silent(1), silent(2), silent(3), small(&pair, 4)])?;
        same("the only completion", pair.a.scq.wait_ok()?.id, 4).during(transport)?;
        pair.b.rcq.wait_all_ok::<4>()?;
        pair.a.scq.quiet()?;
    }
    Ok(())
}

fn unsignaled_failure_is_reported(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.a.qp.send(failing(&pair, 7).unsignaled())?;
    let wc = pair.a.scq.wait_one()?;
    same("the completion", (wc.id, wc.status), (7, Status::LOC_PROT_ERR))
}

fn sig_all_signals_everything(rig: &Rig) -> Outcome {
    let pair = rig.pair_with(RC, SideSpec { sig_all: true, ..SideSpec::default() }, Link::default())?;
    ensure(pair.a.qp.query()?.sig_all, "ibv_query_qp tells sq_sig_all")?;
    for id in 0..4 {
        pair.b.recv(id)?;
    }
    let silent = |id| small(&pair, id).unsignaled();
    pair.a.qp.post_send(&[silent(1), small(&pair, 2), silent(3), sized(&pair, 4, 1000).unsignaled()])?;
    same("wr_ids", pair.a.scq.wait_all_ok::<4>()?.map(|wc| wc.id), [1, 2, 3, 4])?;
    pair.a.scq.quiet()
}

/// A part of unregistered memory, with a key of no region.
pub(super) fn unregistered(memory: &crate::rig::Mem, offset: usize, length: u32) -> Sge {
    Sge { addr: memory.addr() + offset as u64, length, lkey: 0xdead_beef }
}

fn inline_needs_no_registration(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let memory = rig.memory(4096);
    memory.put(100, b"not registered");
    deliver(&pair, pair.send(1).sge(unregistered(&memory, 100, 14)).inline())?;
    same_bytes("received", &pair.b.mr.take(0, 14), b"not registered")
}

fn inline_buffer_is_free_at_once(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.a.mr.put(0, b"before");
    to_sqd(&pair.a.qp)?;
    // Held in SQD: nothing can have been sent when the buffer changes.
    pair.a.qp.send(Wr::write(1, pair.remote(0)).sge(pair.a.mr.sge(0..6)).inline())?;
    pair.a.mr.put(0, b"after!");
    to_rts_again(&pair.a.qp)?;
    pair.a.qp.send(Wr::write(2, pair.remote(100)))?;
    pair.a.scq.wait_all_ok::<2>()?;
    same_bytes("written", &pair.b.mr.take(0, 6), b"before")
}

fn inline_gathers(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let memory = rig.memory(4096);
    memory.put(0, b"one");
    memory.put(1000, b"two");
    memory.put(4093, b"end");
    let wr = [(0, 3), (1000, 3), (4093, 3)]
        .into_iter()
        .fold(pair.send(1), |wr, (offset, length)| wr.sge(unregistered(&memory, offset, length)));
    same("byte_len", deliver(&pair, wr.inline())?.bytes, 9)?;
    same_bytes("received", &pair.b.mr.take(0, 9), b"onetwoend")
}

fn inline_up_to_what_was_granted(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let granted = pair.a.qp.granted().inline_bytes;
    ensure(granted >= 64, format_args!("64 inline bytes were granted, not {granted}"))?;
    let memory = rig.memory(granted as usize + 1);
    memory.put(0, &pattern(granted as usize));
    deliver(&pair, pair.send(1).sge(unregistered(&memory, 0, granted)).inline())?;
    same_bytes("received", &pair.b.mr.take(0, granted as usize), &pattern(granted as usize))?;
    let too_long = pair.send(2).sge(unregistered(&memory, 0, granted + 1)).inline();
    refused_at(pair.a.qp.send(too_long), libc::EINVAL, 0)?;
    pair.exchange()
}

fn inline_of_no_bytes(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    same("byte_len", deliver(&pair, pair.send(1).inline())?.bytes, 0)
}

fn inline_on_every_opcode_that_sends(rig: &Rig) -> Outcome {
    for op in [Op::Send, Op::SendImm, Op::Write, Op::WriteImm] {
        let pair = rig.pair(RC)?;
        pair.a.mr.put(0, b"ABCDEFGH");
        pair.b.recv(1)?;
        pair.a.qp.send(pair.any(2, op).inline())?;
        pair.a.scq.wait_ok().during(format_args!("{op:?}"))?;
        if op != Op::Write {
            pair.b.rcq.wait_ok()?;
        }
        same_bytes(format_args!("{op:?}"), &pair.b.mr.take(0, 8), b"ABCDEFGH")?;
    }
    Ok(())
}

fn inline_on_uc_and_ud(rig: &Rig) -> Outcome {
    for transport in [UC, UD] {
        let pair = rig.pair(transport)?;
        let memory = rig.memory(64);
        memory.put(0, b"inline");
        deliver(&pair, pair.send(1).sge(unregistered(&memory, 0, 6)).inline())?;
        same_bytes(transport, &pair.b.mr.take(pair.header(), 6), b"inline")?;
    }
    Ok(())
}

fn inline_read_never_works(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.mr.fill(0x77);
    let wr = Wr::read(1, pair.remote(0)).sge(pair.a.mr.sge(0..8)).inline();
    never_works(&pair, wr, &[Status::LOC_PROT_ERR, Status::LOC_QP_OP_ERR, Status::LOC_LEN_ERR])?;
    same_bytes("the own memory", &pair.a.mr.take(0, 8), &[0; 8])
}

fn inline_atomic_never_works(rig: &Rig) -> Outcome {
    for op in [Op::CmpSwap, Op::FetchAdd] {
        let pair = rig.pair(RC)?;
        let statuses = [Status::LOC_PROT_ERR, Status::LOC_QP_OP_ERR, Status::LOC_LEN_ERR];
        never_works(&pair, pair.any(1, op).inline(), &statuses).during(format_args!("{op:?}"))?;
        same_bytes("the own memory", &pair.a.mr.take(0, 8), &[0; 8])?;
        same_bytes("the peer's memory", &pair.b.mr.take(0, 8), &[0; 8]).during(format_args!("{op:?}"))?;
    }
    Ok(())
}

fn inline_looks_the_same(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let pair = rig.pair(transport)?;
        pair.a.mr.put(0, b"the same");
        let facts = |wc: crate::rig::Wc| (wc.status, wc.opcode, wc.bytes, wc.imm, wc.has_grh, wc.src_qpn);
        let plain = facts(deliver(&pair, small(&pair, 1).imm(3))?);
        pair.b.mr.fill(0);
        let inline = facts(deliver(&pair, small(&pair, 2).imm(3).inline())?);
        same("the receiver's completion", inline, plain).during(transport)?;
        same_bytes(transport, &pair.b.mr.take(pair.header(), 9), b"the same\0")?;
    }
    Ok(())
}

fn with_inline(rig: &Rig, cq: &Cq, transport: Transport, bytes: u32) -> Result<Qp, crate::rig::Refused> {
    Qp::on(rig.pd(), transport, cq, QpCap { inline_bytes: bytes, ..QpCap::default() })
}

fn inline_asked_too_much_is_refused(rig: &Rig) -> Outcome {
    let cq = rig.cq(16)?;
    let mut bytes = 1 << 24;
    ensure(with_inline(rig, &cq, RC, bytes).is_err(), "nobody has 16 MiB of inline data")?;
    let granted = loop {
        bytes /= 2;
        match with_inline(rig, &cq, RC, bytes) {
            Ok(qp) => break qp.granted().inline_bytes,
            Err(refused) if bytes == 1 => return Err(refused.into()),
            Err(_) => {}
        }
    };
    ensure(granted >= bytes, format_args!("at least the asked {bytes} bytes are granted, not {granted}"))
}
