//! Datagrams to several receivers, and answers to their senders.

use crate::common::{Options, Side, pair};
use verbline_mem::Batch;
use verbline_verbs::{
    Gid, PostStop, RtrSpec, SendOptions, Status, Transport, WcOpcode, WrKind,
    datagram::{AhSpec, DestinationId, Grh, MULTICAST_QPN, ReplyError},
};

/// Every posting function of a UD QP takes immediate data (ibv_post_send(3), table of opcodes).
#[test]
fn a_datagram_carries_immediate_data_however_it_is_posted() {
    let options = Options::new(Transport::Ud);
    let (mut a, mut b) = pair(&options);
    assert_eq!(b.post_recvs(3), 3);
    let with_imm = |imm| SendOptions { imm: Some(imm), ..SendOptions::default() };
    let [alone, copied] = [&b"alone"[..], &b"copied"[..]].map(|bytes| a.packet(bytes));
    a.qp.ud().unwrap().send(alone, with_imm(1)).unwrap();
    a.qp.ud().unwrap().send_inline(copied, with_imm(2)).unwrap();
    let outcome =
        a.qp.post_send_with(&mut a.batch([&b"batch"[..]]), |_, _| SendOptions { imm: Some(3), ..Default::default() });
    assert_eq!((outcome.posted, outcome.stop), (1, None));
    let mut came = Vec::new();
    while came.len() < 3 {
        b.poll(|qp, _, completion| came.push((completion.imm(), qp.recv_done(completion).unwrap().data().to_vec())));
    }
    let expected = [(1, &b"alone"[..]), (2, b"copied"), (3, b"batch")].map(|(imm, text)| (Some(imm), text.to_vec()));
    assert_eq!(came, expected);
}

/// A replaced destination takes effect for later sends; the old address handle is returned once the
/// last send that may use it is done, and not before.
#[test]
fn a_destination_is_replaced_and_its_address_stays_while_it_is_used() {
    let options = Options { signal_every_wr: 1, ..Options::new(Transport::Ud) };
    let (mut a, mut b) = pair(&options);
    let mut c = Side::new("soft1", &options, 0xc);
    crate::common::bring_up(&mut c, &a.qp.endpoint(), &options);
    let [ah, other] =
        [b.qp.endpoint(), c.qp.endpoint()].map(|to| a.pd.create_ah(&crate::common::to_gid(to.gid)).unwrap());
    let (to_b, to_c) = (b.qp.endpoint(), c.qp.endpoint());
    let id = a.qp.add_destination(&ah, to_b.qpn, to_b.qkey).unwrap();
    drop(ah);
    let send = |a: &mut Side, text: &'static [u8]| {
        let mut batch = a.batch([text]);
        let outcome = a.qp.post_send_with(&mut batch, |_, _| SendOptions { destination: id, ..SendOptions::default() });
        assert_eq!((outcome.posted, outcome.stop), (1, None));
    };
    assert_eq!((b.post_recvs(1), c.post_recvs(1)), (1, 1));
    send(&mut a, b"to b");
    a.qp.replace_destination(id, &other, to_c.qpn, to_c.qkey).unwrap();
    send(&mut a, b"to c");
    assert!(a.qp.take_replaced().is_none(), "a send that is not known to be done may use it");
    assert_eq!(a.qp.replaced(), 1);
    assert_eq!((b.receive(1)[0].data(), c.receive(1)[0].data()), (&b"to b"[..], &b"to c"[..]));
    while a.qp.sends_outstanding() > 0 {
        a.poll(crate::common::hand_back);
    }
    assert!(a.qp.take_replaced().is_some() && a.qp.take_replaced().is_none());
    assert_eq!(a.qp.replaced(), 0);
    // With nothing posted it is returned at once.
    a.qp.replace_destination(id, &other, to_c.qpn, to_c.qkey).unwrap();
    assert!(a.qp.take_replaced().is_some());
    let (mut stranger, _) = pair(&options);
    let far = (0..300)
        .map(|_| {
            stranger
                .qp
                .add_destination(&stranger.pd.create_ah(&crate::common::to_gid(to_c.gid)).unwrap(), 1, 1)
                .unwrap()
        })
        .last()
        .unwrap();
    assert!(a.qp.replace_destination(far, &other, 1, 1).is_err(), "it has no such destination");
}

#[test]
fn one_ud_qp_talks_to_many_and_replies_to_whoever_sent() {
    let options = Options::new(Transport::Ud);
    let (mut a, mut b) = pair(&options);
    let mut c = Side::new("soft1", &options, 0xc);
    crate::common::bring_up(&mut c, &a.qp.endpoint(), &options);
    let to_c = c.qp.endpoint();
    let ah = a.pd.create_ah(&crate::common::to_gid(to_c.gid)).unwrap();
    let second = a.qp.add_destination(&ah, to_c.qpn, to_c.qkey).unwrap();
    drop(ah);
    assert_eq!((b.post_recvs(1), c.post_recvs(1)), (1, 1));
    let mut batch = a.batch([&b"to b"[..], &b"to c"[..]]);
    let outcome = a.qp.post_send_with(&mut batch, |at, _| SendOptions {
        destination: if at == 0 { DestinationId::default() } else { second },
        ..SendOptions::default()
    });
    assert_eq!((outcome.posted, outcome.stop), (2, None));
    let a_qpn = a.qp.qpn();
    for (side, text) in [(&mut b, &b"to b"[..]), (&mut c, &b"to c"[..])] {
        side.wait_for(WrKind::Recv, |qp, _, completion| {
            assert_eq!(completion.src_qp(), a_qpn);
            assert_eq!(qp.recv_done(completion).unwrap().data(), text);
        });
    }

    // A server without any destination before the first message comes.
    for headroom_bytes in [0, 64] {
        let mut server = unconnected(&Options { headroom_bytes, ..options });
        assert_eq!((server.post_recvs(8), b.post_recvs(2), c.post_recvs(2)), (8, 2, 2));
        let ours = server.qp.endpoint();
        let first = server.packet(b"to whom?");
        assert_eq!(server.qp.post_send_one(first).unwrap_err().stop, PostStop::NoDestination(0));
        for (of_b, text) in [(true, &b"I am b"[..]), (false, &b"I am c"[..]), (true, &b"b again"[..])] {
            let client = if of_b { &mut b } else { &mut c };
            let ah = client.pd.create_ah(&crate::common::to_gid(ours.gid)).unwrap();
            client.qp.set_destination(&ah, ours.qpn, ours.qkey).unwrap();
            client.send(text);
            let theirs = client.qp.endpoint();
            let (to, answer) = server.wait_for(WrKind::Recv, |qp, _, completion| {
                let packet = qp.recv_done(completion).unwrap();
                let to = qp.reply_path(completion, &packet).unwrap();
                assert_eq!((to.gid, to.gid_index), (Some(theirs.gid), crate::common::GID_INDEX));
                assert_eq!(Grh::before(&packet).unwrap().destination, ours.gid);
                let ah = qp.pd().create_ah(&to).unwrap();
                assert_eq!(completion.src_qp(), theirs.qpn);
                (qp.add_destination(&ah, completion.src_qp(), theirs.qkey).unwrap(), packet)
            });
            let mut answers = Batch::with_capacity(1);
            answers.push(answer).unwrap();
            let outcome = server
                .qp
                .post_send_with(&mut answers, |_, _| SendOptions { destination: to, ..SendOptions::default() });
            assert_eq!((outcome.posted, outcome.stop), (1, None));
            assert_eq!(client.receive(1)[0].data(), text, "each gets its own message back");
        }
    }
}

/// A datagram server without a destination.
fn unconnected(options: &Options) -> Side {
    let mut server = Side::new("soft0", options, 0x5e);
    server.qp.to_rtr(&RtrSpec::datagram()).unwrap();
    server.qp.to_rts(&options.rts).unwrap();
    server
}

#[test]
fn whoever_sent_to_a_group_can_be_answered() {
    let options = Options::new(Transport::Ud);
    let (mut sender, mut member) = (unconnected(&options), Side::new("soft1", &options, 1));
    member.qp.to_rtr(&RtrSpec::datagram()).unwrap();
    member.qp.to_rts(&options.rts).unwrap();
    let group: Gid = "239.7.7.9".parse().unwrap();
    member.qp.attach_mcast(group, 0).unwrap();
    assert_eq!((member.post_recvs(1), sender.post_recvs(1)), (1, 1));
    let to_group = AhSpec { traffic_class: 0xb8, ..crate::common::to_gid(group) };
    let ah = sender.pd.create_ah(&to_group).unwrap();
    let ours = sender.qp.endpoint();
    sender.qp.set_destination(&ah, MULTICAST_QPN, ours.qkey).unwrap();
    sender.send(b"number 7");
    member.wait_for(WrKind::Recv, |qp, _, completion| {
        let packet = qp.recv_done(completion).unwrap();
        let came = Grh::before(&packet).unwrap();
        assert_eq!((came.source, came.destination), (ours.gid, group));
        let to = qp.reply_path(completion, &packet).unwrap();
        assert_eq!((to.gid, to.traffic_class), (Some(ours.gid), 0xb8));
        let ah = qp.pd().create_ah(&to).unwrap();
        qp.set_destination(&ah, completion.src_qp(), ours.qkey).unwrap();
    });
    member.send(b"where is number 6?");
    assert_eq!(sender.receive(1)[0].data(), b"where is number 6?");
}

#[test]
fn what_cannot_be_answered_says_why() {
    let (mut a, mut b) = pair(&Options { signal_every_wr: 1, ..Options::new(Transport::Ud) });
    assert_eq!(b.post_recvs(1), 1);
    a.send(b"question");
    let packet = a.packet(b"");
    a.wait_for(WrKind::Send, |qp, freed, completion| {
        let error = AhSpec::reply(completion, &packet).unwrap_err();
        assert!(matches!(error, ReplyError::NotReceived { opcode: WcOpcode::Send, .. }), "{error}");
        qp.send_done(completion, freed).unwrap();
    });
    b.wait_for(WrKind::Recv, |qp, _, completion| {
        let mut packet = qp.recv_done(completion).unwrap();
        packet.prepend(40).unwrap();
        let error = qp.reply_path(completion, &packet).unwrap_err();
        assert_eq!(error, ReplyError::NoHeader { headroom_bytes: 24 });
        assert_eq!(
            error.to_string(),
            "the packet has 24 bytes before its data, too few for the GRH: ask before anything is put in front, and \
             with the packet of this completion"
        );
        packet.data_mut()[..40].fill(0);
        assert!(packet.trim_front(40));
        assert_eq!(qp.reply_path(completion, &packet), Err(ReplyError::Unreadable));
    });
    let packet = b.packet(b"");
    assert_eq!(b.post_recvs(1), 1);
    b.qp.to_err().unwrap();
    b.wait_for(WrKind::Recv, |_, _, completion| {
        let error = AhSpec::reply(completion, &packet).unwrap_err();
        assert!(matches!(error, ReplyError::NotReceived { status: Status::WR_FLUSH_ERR, .. }), "{error}");
    });
}
