//! Datagrams: the GRH, Q_Keys, addresses, and dropped datagrams.

use super::common::*;
use crate::check::{Failure, Outcome, ensure, one_of, same, same_bytes};
use crate::rig::{Ah, Attr, Cap, Flaw, Link, Pair, QUIET, Recv, Rig, SideSpec, State, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POST_SEND, says, test);
    vec![
        row(
            "ud/grh-in-front",
            "A received datagram has 40 bytes for the GRH in front, and byte_len counts them",
            grh_in_front,
        ),
        row(
            "ud/completion-names-the-sender",
            "The completion has IBV_WC_GRH and the sender's number",
            names_the_sender,
        ),
        row("ud/mtu-fits", "A datagram may be as long as the path MTU", mtu_fits),
        row(
            "ud/longer-than-mtu-never-arrives",
            "A datagram longer than the path MTU is refused, fails, or is lost: it never arrives",
            longer_than_mtu,
        ),
        row("ud/wrong-qkey-is-dropped", "A datagram with another Q_Key than the receiver's is dropped", wrong_qkey),
        row(
            "ud/high-bit-sends-own-qkey",
            "A remote_qkey with the highest bit set stands for the sender's own Q_Key",
            high_bit_sends_own_qkey,
        )
        .rxe(
            "not within",
            "the number is sent as it is",
            "rxe_requester() puts remote_qkey into the DETH unless the queue pair is QP1",
        ),
        row(
            "ud/no-receive-is-dropped",
            "A datagram for which no receive is posted is dropped, and the sender doesn't hear of it",
            no_receive_is_dropped,
        ),
        row(
            "ud/nobody-is-no-error",
            "A datagram to a number that nobody has completes: it is lost",
            nobody_is_no_error,
        ),
        row(
            "ud/one-to-many",
            "One queue pair sends to any number of others: each work request names its own",
            one_to_many,
        ),
        row("ud/to-itself", "A queue pair may send to itself", to_itself),
        row("ud/rc-gets-no-datagrams", "A datagram to an RC queue pair is dropped", rc_gets_no_datagrams),
        row("ud/not-before-rtr", "A datagram to a queue pair in INIT is dropped", not_before_rtr),
        row(
            "ud/receive-too-short",
            "A datagram that doesn't fit its receive is dropped, or an error; the memory behind is not touched",
            receive_too_short,
        ),
        row("ud/one-handle-many-sends", "An address handle serves any number of work requests", one_handle_many_sends),
        Row::new(
            "ud/reply-by-completion",
            page::AH_FROM_WC,
            "The way back can be made from a completion and its GRH",
            reply,
        ),
        Row::new(
            "ud/handle-of-no-port",
            page::CREATE_AH,
            "An address with a port that isn't there is refused",
            |rig| flawed(rig, Flaw::Port),
        ),
        Row::new(
            "ud/handle-of-no-gid",
            page::CREATE_AH,
            "An address with an entry beyond the GID table is refused",
            |rig| flawed(rig, Flaw::GidIndex),
        ),
        Row::new(
            "ud/handle-without-grh",
            page::CREATE_AH,
            "Where the port requires a GRH, an address without is refused",
            |rig| flawed(rig, Flaw::NoGrh),
        )
        .needs(Cap::GrhRequired),
        Row::new(
            "ud/handle-by-lid",
            page::CREATE_AH,
            "Where the port has LIDs, an address may do without a GRH",
            by_lid,
        )
        .needs(Cap::Lids),
    ]
}

fn grh_in_front(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    pair.a.mr.put(0, b"datagram");
    let wc = deliver(&pair, small(&pair, 1))?;
    same("byte_len", wc.bytes, 48)?;
    same_bytes("the datagram", &pair.b.mr.take(40, 8), b"datagram")?;
    let grh = pair.b.mr.take(0, 40);
    // An IPv6-like header, or an IPv4 one in its last 20 bytes (RoCEv2): either ends with the
    // destination.
    let gid = rig.far().port().gid;
    match gid.as_ipv4() {
        Some(ip) if grh[20] == 0x45 => same_bytes("the IPv4 destination", &grh[36..], &ip.octets()),
        _ => same_bytes("the destination GID", &grh[24..], &gid.0),
    }
}

fn names_the_sender(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    let wc = deliver(&pair, small(&pair, 1))?;
    ensure(wc.has_grh, "the completion has IBV_WC_GRH")?;
    same("src_qp", wc.src_qpn, pair.a.qp.number())?;
    same("qp_num", wc.qpn, pair.b.qp.number())
}

fn mtu_fits(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    let mtu = rig.port().attr.mtu_bytes();
    pair.a.mr.put(0, &pattern(mtu));
    same("byte_len", deliver(&pair, pair.send(1).sge(pair.a.mr.sge(0..mtu)))?.bytes as usize, mtu + 40)?;
    same_bytes("received", &pair.b.mr.take(40, mtu), &pattern(mtu))
}

fn longer_than_mtu(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    let mtu = rig.port().attr.mtu_bytes();
    pair.b.recv(1)?;
    let wr = pair.send(2).sge(pair.a.mr.sge(0..mtu + 1));
    match pair.a.qp.send(wr) {
        Err(refused) => one_of("errno", refused.errno, &[libc::EINVAL, libc::EMSGSIZE])?,
        // Whatever its status: only that nothing arrives counts.
        Ok(()) => drop(pair.a.scq.poll(1)?),
    }
    pair.b.rcq.quiet()
}

/// `a` sends and completes, but nothing arrives. Then a proper datagram does.
fn is_dropped(pair: &Pair, wr: Wr) -> Outcome {
    pair.b.recv(1)?;
    pair.a.qp.send(wr)?;
    pair.a.scq.wait_ok()?;
    pair.b.rcq.quiet()?;
    pair.a.qp.send(small(pair, 9).imm(9))?;
    pair.a.scq.wait_ok()?;
    let wc = pair.b.rcq.wait_ok()?;
    same("what arrived", (wc.id, wc.imm), (1, Some(9)))
}

fn wrong_qkey(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    is_dropped(&pair, Wr::send(2).to(&rig.ah()?, pair.b.qp.number(), Attr::QKEY ^ 1))
}

fn high_bit_sends_own_qkey(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    pair.b.recv(1)?;
    pair.a.qp.send(Wr::send(2).to(&rig.ah()?, pair.b.qp.number(), 0x8000_0000))?;
    pair.a.scq.wait_ok()?;
    same("the receive", pair.b.rcq.wait_for(1, crate::rig::SOON)?[0].id, 1)
}

fn no_receive_is_dropped(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    pair.a.qp.send(small(&pair, 1))?;
    pair.a.scq.wait_ok()?;
    rig.settle();
    pair.b.recv(2)?;
    pair.b.rcq.quiet()?;
    pair.a.qp.send(small(&pair, 3).imm(3))?;
    same("what arrived", pair.b.rcq.wait_ok()?.imm, Some(3))?;
    pair.a.scq.wait_ok().map(drop)
}

fn nobody_is_no_error(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    let nobody = rig.far().side(UD, SideSpec::default())?;
    let number = nobody.qp.number();
    nobody.qp.try_destroy()?;
    pair.a.qp.send(Wr::send(1).to(&rig.ah()?, number, Attr::QKEY))?;
    pair.a.scq.wait_ok()?;
    pair.exchange()
}

fn one_to_many(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    let (third, link) = (rig.far().side(UD, SideSpec::default())?, Link::default());
    third.to_init(&link)?;
    third.to_rtr(0, &link)?;
    third.recv(3)?;
    pair.b.recv(2)?;
    let ah = rig.ah()?;
    let to_third = Wr::send(11).imm(3).to(&ah, third.qp.number(), Attr::QKEY);
    pair.a.qp.post_send(&[small(&pair, 10).imm(2), to_third])?;
    pair.a.scq.wait_all_ok::<2>()?;
    same("at the second", pair.b.rcq.wait_ok()?.imm, Some(2))?;
    same("at the third", third.rcq.wait_ok()?.imm, Some(3))
}

fn to_itself(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    pair.a.recv(1)?;
    let ah = Ah::create(rig.pd(), rig.port(), &rig.port().gid)?;
    pair.a.qp.send(Wr::send(2).imm(7).to(&ah, pair.a.qp.number(), Attr::QKEY))?;
    pair.a.scq.wait_ok()?;
    let wc = pair.a.rcq.wait_ok()?;
    same("what arrived", (wc.imm, wc.src_qpn), (Some(7), pair.a.qp.number()))
}

fn rc_gets_no_datagrams(rig: &Rig) -> Outcome {
    let (datagrams, connected) = (rig.pair(UD)?, rig.pair(RC)?);
    connected.b.recv(1)?;
    datagrams.a.qp.send(Wr::send(2).to(&rig.ah()?, connected.b.qp.number(), Attr::QKEY))?;
    datagrams.a.scq.wait_ok()?;
    connected.b.rcq.quiet()?;
    connected.b.qp.expect_state(State::Rts)?;
    connected.a.qp.send(small(&connected, 3))?;
    same("the receive", connected.b.rcq.wait_ok()?.id, 1)
}

fn not_before_rtr(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    let (late, link) = (rig.far().side(UD, SideSpec::default())?, Link::default());
    late.to_init(&link)?;
    late.recv(1)?;
    let ah = rig.ah()?;
    let wr = |id| Wr::send(id).imm(id as u32).to(&ah, late.qp.number(), Attr::QKEY);
    pair.a.qp.send(wr(2))?;
    pair.a.scq.wait_ok()?;
    rig.settle();
    late.rcq.quiet()?;
    late.to_rtr(0, &link)?;
    late.rcq.quiet()?;
    pair.a.qp.send(wr(3))?;
    same("what arrived", late.rcq.wait_ok()?.imm, Some(3))?;
    pair.a.scq.wait_ok().map(drop)
}

fn receive_too_short(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    pair.a.mr.fill(0x77);
    pair.b.qp.recv(Recv::new(1).sge(pair.b.mr.sge(0..47)))?;
    pair.a.qp.send(small(&pair, 2))?;
    pair.a.scq.wait_ok()?;
    match pair.b.rcq.wait_for(1, QUIET) {
        Err(_) => {}
        Ok(wcs) => ensure(!wcs[0].ok(), "the receive fails if it completes at all")?,
    }
    same_bytes("behind the receive", &pair.b.mr.take(47, 16), &[0; 16])
}

fn one_handle_many_sends(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    let ah = rig.ah()?;
    for round in 0..3 {
        for id in 0..4 {
            pair.b.recv(id)?;
        }
        let list: Vec<Wr> = (0..4).map(|id| Wr::send(id).to(&ah, pair.b.qp.number(), Attr::QKEY)).collect();
        pair.a.qp.post_send(&list)?;
        pair.a.scq.wait_all_ok::<4>()?;
        let wcs = pair.b.rcq.wait_all_ok::<4>()?;
        same(format_args!("round {round}"), wcs.map(|wc| wc.id), [0, 1, 2, 3])?;
    }
    Ok(())
}

fn reply(rig: &Rig) -> Outcome {
    let pair = rig.pair(UD)?;
    let inbox = rig.far().memory(4096);
    let mr = rig.far().pd().reg(&inbox, 0..4096, crate::rig::Access::LOCAL_WRITE)?;
    pair.b.qp.recv(Recv::new(1).sge(mr.all()))?;
    pair.a.qp.send(small(&pair, 2))?;
    pair.a.scq.wait_ok()?;
    let wc = pair.b.rcq.wait_ok()?;
    let back = Ah::reply(rig.far().pd(), &wc, &inbox)?;
    pair.a.recv(3)?;
    pair.b.qp.send(Wr::send(4).imm(44).to(&back, wc.src_qpn, Attr::QKEY))?;
    pair.b.scq.wait_ok()?;
    same("the answer", pair.a.rcq.wait_ok()?.imm, Some(44))
}

fn flawed(rig: &Rig, flaw: Flaw) -> Outcome {
    match Ah::create_flawed(rig.pd(), rig.port(), flaw) {
        Ok(_) => Err(Failure::new(format!("expected a refusal of a wrong {flaw:?}, an address handle was created"))),
        Err(_) => Ok(()),
    }
}

fn by_lid(rig: &Rig) -> Outcome {
    rig.is_alone("a LID is a device's of this process")?;
    let ah = Ah::create_flawed(rig.pd(), rig.port(), Flaw::NoGrh)?;
    let pair = rig.pair(UD)?;
    let wc = deliver(&pair, Wr::send(1).to(&ah, pair.b.qp.number(), Attr::QKEY))?;
    same("src_qp", wc.src_qpn, pair.a.qp.number())?;
    same("byte_len: the 40 bytes are there, GRH or not", wc.bytes, 40)
}
