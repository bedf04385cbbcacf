//! Receives that are lists: one message fills several places.

use verbline_verbs::Completion;

use super::*;

/// Waits for a list that was posted for receiving; returns it with its completion's length.
pub(super) fn receive(side: &mut Side) -> (SgList, u32, Status) {
    side.wait_for(WrKind::Recv, |qp, _, completion| {
        (qp.recv_scatter_done(completion).unwrap(), completion.byte_len(), completion.status())
    })
}

#[test]
fn a_message_is_scattered_over_the_parts_of_a_receive() {
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
        let (mut a, mut b) = pair_of(transport, 1, 4);
        let region = b.peer_region(4096, ALL);
        let grh = if transport == Transport::Ud { verbline_verbs::datagram::GRH_BYTES } else { 0 };
        // It fills all parts; it ends within the second; within the first. Packets behind the end
        // are cut.
        for len in [10 + 300 + 5, 10 + 100, 7, 0] {
            region.write_from(0, &[0xee; 400]).unwrap();
            let mut parts =
                vec![b.packet(&[0; 10]).into(), region.slice(50, 300).unwrap().into(), b.packet(&[0; 100]).into()];
            if grh > 0 {
                parts.insert(0, b.packet(&[0; 40]).into());
            }
            b.qp.post_recv_scatter(list(parts)).unwrap();
            assert_eq!(b.qp.recvs_outstanding(), 1);
            let sent = message(len as u32, len);
            a.send(&sent);
            let (parts, byte_len, status) = receive(&mut b);
            assert_eq!((byte_len as usize, status), (grh + len, Status::SUCCESS), "{transport}");
            let parts = &parts.as_slice()[usize::from(grh > 0)..];
            let (to_first, to_region) = (len.min(10), len.saturating_sub(10).min(300));
            assert_eq!(contents(&parts[0]), &sent[..to_first]);
            assert_eq!(bytes(&region, 50, to_region), &sent[to_first..to_first + to_region]);
            assert_eq!(bytes(&region, 50 + to_region, 300 - to_region), vec![0xee; 300 - to_region]);
            assert_eq!(contents(&parts[2]), &sent[to_first + to_region..]);
        }
    }
}

/// The bytes of a WRITE with immediate are elsewhere; its completion has their number.
#[test]
fn a_write_with_immediate_takes_a_list_and_fills_none_of_it() {
    for transport in [Transport::Rc, Transport::Uc] {
        let (mut a, mut b) = pair_of(transport, 1, 2);
        let far = b.peer_region(4096, all());
        for len in [0, 7, 15, 16] {
            b.qp.post_recv_scatter(list([b.packet(&[0; 10]).into(), b.packet(&[0; 5]).into()])).unwrap();
            let (packet, to) = (a.packet(&message(3, len)), far.remote(64));
            let options = SendOptions { imm: Some(9), ..SendOptions::default() };
            match transport {
                Transport::Rc => a.qp.rc().unwrap().write(packet, to, options),
                _ => a.qp.uc().unwrap().write(packet, to, SendOptions { imm: Some(9), ..SendOptions::default() }),
            }
            .unwrap();
            let (parts, byte_len, status) = receive(&mut b);
            assert_eq!((byte_len as usize, status), (len, Status::SUCCESS), "{transport}");
            assert_eq!((parts.len(), parts.len_bytes()), (2, 0), "{transport}, {len} bytes");
            assert_eq!(bytes(&far, 64, len), message(3, len));
            a.poll(hand_back);
        }
    }
}

#[test]
fn receives_that_are_lists_are_nothing_else() {
    let (mut a, mut b) = pair_of(Transport::Rc, 1, 2);
    assert_eq!(b.qp.recv_room(), 16);
    let mut batch = b.batch([&b""[..]]);
    assert_eq!(b.qp.post_recv(&mut batch).stop, Some(PostStop::OtherReceives { lists: true }));
    let alone = b.qp.post_recv_one(batch.pop().unwrap()).unwrap_err();
    assert_eq!(alone.stop, PostStop::OtherReceives { lists: true });
    assert_eq!(
        alone.stop.to_string(),
        "receives here are scatter/gather lists (the QP's max_recv_sge or the SRQ's max_sge is above 1): \
         post_recv_scatter posts them"
    );
    drop(alone);

    let three = list((0..3).map(|_| b.packet(&[0; 4]).into()));
    assert_eq!(reason(b.qp.post_recv_scatter(three)).0, PostStop::TooManySges { sges: 3, max_sge: 2 });
    for _ in 0..16 {
        let two = list([b.packet(&[0; 4]).into(), b.packet(&[0; 4]).into()]);
        b.qp.post_recv_scatter(two).unwrap();
    }
    let (stop, _) = reason(b.qp.post_recv_scatter(SgList::default()));
    assert_eq!((stop, b.qp.recv_room(), b.qp.recvs_outstanding()), (PostStop::Full, 0, 16));

    a.send(b"1234567");
    // As a packet it is not outstanding; as a list it is, once.
    b.wait_for(WrKind::Recv, |qp, _, completion: &Completion| {
        assert!(qp.recv_done(completion).is_err());
        let parts = qp.recv_scatter_done(completion).unwrap();
        assert_eq!([contents(&parts.as_slice()[0]), contents(&parts.as_slice()[1])], [&b"1234"[..], b"567"]);
        assert!(qp.recv_scatter_done(completion).is_err());
        assert_eq!(qp.counters().stale, 2);
    });

    // Flushed lists come back empty, and lists never polled come back with the QP.
    b.qp.to_err().unwrap();
    let (parts, _, status) = receive(&mut b);
    assert_eq!((status, parts.len_bytes()), (Status::WR_FLUSH_ERR, 0));
    drop(parts);
    drop(b.qp);
    b.cache.flush();
    assert_eq!(b.pool.account().held, 0);
}

#[test]
fn reset_and_drop_let_go_of_posted_lists() {
    let (mut a, b) = pair_of(Transport::Rc, 2, 2);
    let near = a.peer_region(4096, ALL);
    let far = b.peer_region(4096, all());
    let parts = |a: &Side| list([a.packet(&[0; 64]).into(), near.slice(0, 64).unwrap().into()]);
    let both = parts(&a);
    a.qp.post_recv_scatter(both).unwrap();
    let both = parts(&a);
    a.qp.rc().unwrap().read(both, far.remote(0), SendOptions::default()).unwrap();
    a.qp.to_reset().unwrap();
    a.assert_all_free();
    assert_eq!(a.qp.recvs_outstanding() + a.qp.sends_outstanding(), 0);
    let both = parts(&a);
    assert!(matches!(reason(a.qp.post_recv_scatter(both)).0, PostStop::NotReady(_)));
    a.qp.to_init(&init_spec()).unwrap();
    let both = parts(&a);
    a.qp.post_recv_scatter(both).unwrap();
    drop(a.qp);
    a.cache.flush();
    assert_eq!(a.pool.account().held, 0);
}
