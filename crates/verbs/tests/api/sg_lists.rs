//! Scatter/gather lists: what is sent and written from several places, and what a READ or a message brings to several.

use proptest::prelude::*;
use verbline_mem::Packet;
use verbline_verbs::{
    Access, Buffer, Completion, PeerMr, PostStop, QpError, QpSpec, Refused, SendOptions, SgEntry, SgList, Status,
    Transport, WrKind,
};

use crate::common::{Options, PATIENCE, Side, connect, hand_back, init_spec, message, open, pair, spec};

const ALL: Access = Access::LOCAL_WRITE;

fn all() -> Access {
    ALL | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// Two sides whose sends take lists of so many parts, and whose receives are lists of so many if that is above 1.
fn pair_of(transport: Transport, max_send_sge: u32, max_recv_sge: u32) -> (Side, Side) {
    let options = Options { inline_bytes: 256, ..Options::new(transport) };
    let side = |device, tag| {
        let mut side = Side::new(device, &options, tag);
        let spec = QpSpec { max_send_sge, max_recv_sge, ..spec(&options, &side.cq, tag) };
        side.qp = side.pd.create_qp(&spec).unwrap();
        side.qp.to_init(&verbline_verbs::InitSpec { access: options.access, ..init_spec() }).unwrap();
        side
    };
    let (mut a, mut b) = (side("soft0", 0xa), side("soft1", 0xb));
    connect(&mut a, &mut b, &options);
    (a, b)
}

fn list(entries: impl IntoIterator<Item = SgEntry>) -> SgList {
    entries.into_iter().collect()
}

/// A header in a packet, a block in a region, and a trailer in another packet.
fn three_parts(side: &Side, region: &PeerMr) -> (SgList, Vec<u8>) {
    let (header, block, trailer) = (message(1, 42), message(2, 900), message(3, 5));
    region.write_from(100, &block).unwrap();
    let parts =
        list([side.packet(&header).into(), region.slice(100, 900).unwrap().into(), side.packet(&trailer).into()]);
    (parts, [header, block, trailer].concat())
}

/// Polls both sides until a's work request is done; gives its memory and its status.
fn finish(a: &mut Side, b: &mut Side) -> (Buffer, Status) {
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut done = None;
    while done.is_none() {
        assert!(std::time::Instant::now() < deadline, "the work request completes");
        b.poll(hand_back);
        a.poll(|qp, freed, completion| match completion.kind() {
            WrKind::Op => done = Some((qp.op_done(completion, freed).unwrap(), completion.status())),
            _ => hand_back(qp, freed, completion),
        });
    }
    done.unwrap()
}

fn bytes(mr: &PeerMr, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    mr.read_into(offset, &mut bytes).unwrap();
    bytes
}

fn contents(entry: &SgEntry) -> &[u8] {
    entry.as_packet().expect("a packet").data()
}

/// Waits for a list that was posted for receiving; gives it with its completion's length.
fn receive(side: &mut Side) -> (SgList, u32, Status) {
    side.wait_for(WrKind::Recv, |qp, _, completion| {
        (qp.recv_scatter_done(completion).unwrap(), completion.byte_len(), completion.status())
    })
}

#[test]
fn a_send_gathers_a_header_a_block_and_a_trailer_on_every_transport() {
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
        let (mut a, mut b) = pair_of(transport, 3, 1);
        let region = a.peer_region(4096, ALL);
        for inline in [false, true] {
            assert_eq!(b.post_recvs(1), 1);
            let (mut parts, mut expected) = three_parts(&a, &region);
            if inline {
                // What goes inline is short.
                let header = parts.drain().next().unwrap();
                parts = list([header, a.packet(&message(9, 60)).into()]);
                expected = [message(1, 42), message(9, 60)].concat();
            }
            let options = SendOptions::default();
            match (transport, inline) {
                (Transport::Rc, false) => a.qp.rc().unwrap().send(parts, options),
                (Transport::Rc, true) => a.qp.rc().unwrap().send_inline(parts, options),
                (Transport::Uc, false) => a.qp.uc().unwrap().send(parts, options),
                (Transport::Uc, true) => a.qp.uc().unwrap().send_inline(parts, options),
                (Transport::Ud, false) => a.qp.ud().unwrap().send(parts, options),
                (Transport::Ud, true) => a.qp.ud().unwrap().send_inline(parts, options),
                (Transport::RawPacket, _) => unreachable!("not among the transports above"),
            }
            .unwrap();
            let got = b.receive(1);
            assert_eq!(got[0].data(), expected, "{transport}, inline: {inline}");
            let (buffer, status) = finish(&mut a, &mut b);
            let parts = buffer.into_list().expect("the list that was posted");
            assert_eq!((status, parts.len_bytes()), (Status::SUCCESS, expected.len()));
        }
        drop(region);
        a.assert_all_free();
    }
}

#[test]
fn a_write_gathers_and_a_read_scatters() {
    let (mut a, mut b) = pair_of(Transport::Rc, 4, 1);
    let (near, far) = (a.peer_region(8192, all()), b.peer_region(8192, all()));
    let (parts, expected) = three_parts(&a, &near);
    a.qp.rc().unwrap().write(parts, far.remote(64), SendOptions::default()).unwrap();
    let (buffer, status) = finish(&mut a, &mut b);
    assert_eq!((status, buffer.into_list().unwrap().len()), (Status::SUCCESS, 3));
    assert_eq!(bytes(&far, 64, expected.len()), expected);
    assert_eq!(bytes(&far, 64 + expected.len(), 8), [0; 8]);

    // Two packets of other lengths, and two slices that stand in another order than in memory.
    let parts = list([
        a.packet(&[0; 10]).into(),
        near.slice(4000, 500).unwrap().into(),
        near.slice(2000, 400).unwrap().into(),
        a.packet(&[0; 37]).into(),
    ]);
    a.qp.rc().unwrap().read(parts, far.remote(64), SendOptions::default()).unwrap();
    let (buffer, status) = finish(&mut a, &mut b);
    assert_eq!(status, Status::SUCCESS);
    let parts = buffer.into_list().unwrap();
    assert_eq!(contents(&parts.as_slice()[0]), &expected[..10]);
    assert_eq!(bytes(&near, 4000, 500), &expected[10..510]);
    assert_eq!(bytes(&near, 2000, 400), &expected[510..910]);
    assert_eq!(contents(&parts.as_slice()[3]), &expected[910..]);
}

#[test]
fn an_atomic_brings_back_what_was_there_in_two_halves() {
    let (mut a, mut b) = pair_of(Transport::Rc, 2, 1);
    let counter = b.peer_region(4096, all());
    let before = 0x0102_0304_0506_0708;
    counter.store_u64(8, before).unwrap();
    let halves = list([a.packet(&[0; 3]).into(), a.packet(&[0; 5]).into()]);
    a.qp.rc().unwrap().fetch_add(halves, counter.remote(8), 5, SendOptions::default()).unwrap();
    let (buffer, status) = finish(&mut a, &mut b);
    let halves = buffer.into_list().unwrap();
    let got = [contents(&halves.as_slice()[0]), contents(&halves.as_slice()[1])].concat();
    assert_eq!((status, u64::from_ne_bytes(got.try_into().unwrap())), (Status::SUCCESS, before));
    assert_eq!(counter.load_u64(8).unwrap(), before + 5);
}

#[test]
fn uc_gathers_writes_too() {
    let (mut a, mut b) = pair_of(Transport::Uc, 3, 1);
    let (near, far) = (a.peer_region(4096, all()), b.peer_region(4096, all()));
    let (parts, expected) = three_parts(&a, &near);
    a.qp.uc().unwrap().write(parts, far.remote(0), SendOptions::default()).unwrap();
    assert_eq!(finish(&mut a, &mut b).1, Status::SUCCESS);
    let deadline = std::time::Instant::now() + PATIENCE;
    // UC's completion says that the message has left.
    while bytes(&far, 0, expected.len()) != expected {
        assert!(std::time::Instant::now() < deadline, "the message arrives");
    }
}

#[test]
fn a_list_comes_back_and_is_used_again_without_being_made_anew() {
    let (mut a, mut b) = pair_of(Transport::Rc, 2, 1);
    let far = b.peer_region(4096, all());
    let mut parts = SgList::with_capacity(2);
    let storage = parts.as_slice().as_ptr();
    for round in 0..5 {
        let (one, two) = (message(round, 8), message(round + 100, 16));
        parts.push(a.packet(&one)).unwrap();
        parts.push(a.packet(&two)).unwrap();
        let full = parts.push(a.packet(b"third")).unwrap_err();
        assert_eq!(full.to_string(), "the scatter/gather list is full: it was made for 2 parts");
        assert_eq!(full.entry.into_packet().unwrap().data(), b"third");
        a.qp.rc().unwrap().write(parts, far.remote(0), SendOptions::default()).unwrap();
        parts = finish(&mut a, &mut b).0.into_list().unwrap();
        assert_eq!(bytes(&far, 0, 24), [one, two].concat());
        assert_eq!((parts.as_slice().as_ptr(), parts.capacity()), (storage, 2));
        parts.clear();
        a.assert_all_free();
    }
}

#[test]
fn parts_without_bytes_take_no_place() {
    let (mut a, mut b) = pair_of(Transport::Rc, 2, 1);
    let near = a.peer_region(4096, ALL);
    assert_eq!(b.post_recvs(3), 3);
    let empty = || a.packet(&[]).into();
    let lists = [
        list([empty(), a.packet(b"head").into(), near.slice(9, 0).unwrap().into(), a.packet(b"tail").into(), empty()]),
        list([empty(), empty(), empty()]),
        SgList::default(),
    ];
    for parts in lists {
        a.qp.rc().unwrap().send(parts, SendOptions::default()).unwrap();
    }
    let got: Vec<_> = b.receive(3).iter().map(|packet| packet.data().to_vec()).collect();
    assert_eq!(got, [&b"headtail"[..], b"", b""]);
}

fn reason(refused: Result<(), Refused>) -> (PostStop, SgList) {
    let Refused { buffer, reason } = refused.unwrap_err();
    (reason, buffer.into_list().expect("the list comes back"))
}

#[test]
fn a_list_that_cannot_be_posted_comes_back_with_the_reason() {
    let (mut a, b) = pair_of(Transport::Rc, 2, 1);
    let far = b.peer_region(4096, all());
    let near = a.peer_region(4096, ALL);
    let options = SendOptions::default();
    let (parts, _) = three_parts(&a, &near);
    let (stop, mut parts) = reason(a.qp.rc().unwrap().write(parts, far.remote(0), options));
    assert_eq!(stop, PostStop::TooManySges { sges: 3, max_sge: 2 });
    assert_eq!(
        stop.to_string(),
        "the scatter/gather list has 3 parts with bytes and a work request here takes 2: as many as the QP's max_send_sge, \
         for receives its max_recv_sge or the SRQ's max_sge"
    );
    assert_eq!((parts.len(), a.qp.sends_outstanding(), a.qp.max_send_sge()), (3, 0, 2));

    // Each part is looked at: the second is another PD's.
    parts.clear();
    parts.push(a.packet(b"ours")).unwrap();
    parts.push(far.slice(0, 8).unwrap()).unwrap();
    let (stop, _) = reason(a.qp.rc().unwrap().send(parts, options));
    let (packet_pd, qp_pd) = (b.pd.id(), a.pd.id());
    assert_eq!(stop, PostStop::NotRegistered { packet_pd, qp_pd });

    // The sum counts where something goes inline, and in a datagram.
    let most = a.qp.max_inline_bytes();
    let long = list([a.packet(&[1; 200]).into(), a.packet(&[2; 200]).into()]);
    let (stop, _) = reason(a.qp.rc().unwrap().write_inline(long, far.remote(0), options));
    assert_eq!(stop, PostStop::NotInline { len_bytes: 400, max_bytes: most });
    let (mut c, _d) = pair_of(Transport::Ud, 2, 1);
    let most = c.qp.max_message_bytes();
    let region = c.peer_region(65536, ALL);
    let half = || region.slice(0, most / 2 + 1).unwrap().into();
    let (stop, _) = reason(c.qp.ud().unwrap().send(list([half(), half()]), options));
    assert_eq!(stop, PostStop::TooLong { len_bytes: 2 * (most as usize / 2 + 1), max_bytes: most });

    let nine = list([a.packet(&[0; 4]).into(), a.packet(&[0; 5]).into()]);
    let (stop, parts) = reason(a.qp.rc().unwrap().fetch_add(nine, far.remote(0), 1, options));
    assert_eq!((stop, parts.len()), (PostStop::NotEightBytes(9), 2));
}

#[test]
fn a_qp_takes_one_part_unless_it_was_made_for_more_and_no_more_than_its_device() {
    let (mut a, _b) = pair(&Options::new(Transport::Rc));
    let two = || list([a.packet(b"one").into(), a.packet(b"two").into()]);
    let two = [two(), two()];
    let [sent, received] = two;
    let (stop, _) = reason(a.qp.rc().unwrap().send(sent, SendOptions::default()));
    assert_eq!(stop, PostStop::TooManySges { sges: 2, max_sge: 1 });
    let (stop, received) = reason(a.qp.post_recv_scatter(received));
    assert_eq!(stop, PostStop::OtherReceives { lists: false });
    assert_eq!(
        stop.to_string(),
        "receives here are packets; a max_recv_sge of the QP, or a max_sge of the SRQ, above 1 makes them scatter/gather lists"
    );
    assert_eq!(received.len(), 2);

    let context = open("soft0");
    let most = context.query_device().unwrap().max_sge;
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(64, None).unwrap();
    let made = |max_send_sge, max_recv_sge| {
        pd.create_qp(&QpSpec { max_send_sge, max_recv_sge, ..QpSpec::new(Transport::Rc, &cq) })
    };
    for (send, recv, what) in
        [(most + 1, 1, "max_send_sge"), (1, most + 1, "max_recv_sge"), (2, u32::MAX, "max_recv_sge")]
    {
        let error = made(send, recv).unwrap_err();
        assert!(matches!(error, QpError::Sges { what: named, max, .. } if (named, max) == (what, most)), "{error}");
        let name = context.name();
        assert!(
            error
                .to_string()
                .ends_with(&format!("{name} takes at most {most} entries a work request (DeviceAttr::max_sge)"))
        );
    }
    assert_eq!(made(0, 0).unwrap().max_send_sge(), 1);
    assert_eq!(made(4, 4).unwrap().max_send_sge(), 4);
}

#[test]
fn an_access_that_is_refused_gives_the_list_back_and_changes_nothing() {
    let (mut a, mut b) = pair_of(Transport::Rc, 2, 1);
    let far = b.peer_region(4096, ALL | Access::REMOTE_WRITE);
    let parts = list([a.packet(&[0; 8]).into(), a.packet(&[0; 8]).into()]);
    a.qp.rc().unwrap().read(parts, far.remote(0), SendOptions::default()).unwrap();
    let (buffer, status) = finish(&mut a, &mut b);
    assert_eq!((status, buffer.into_list().unwrap().len()), (Status::REM_ACCESS_ERR, 2));
    a.assert_all_free();
}

#[test]
fn a_message_is_scattered_over_the_parts_of_a_receive() {
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
        let (mut a, mut b) = pair_of(transport, 1, 4);
        let region = b.peer_region(4096, ALL);
        let grh = if transport == Transport::Ud { verbline_verbs::GRH_BYTES } else { 0 };
        // It fills all, ends within the second, and within the first; what is left is not as long as it was.
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
        "receives here are scatter/gather lists (the QP's max_recv_sge or the SRQ's max_sge is above 1): post_recv_scatter \
         posts them"
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
    // As a packet it is nothing that is outstanding; as a list it is, once.
    b.wait_for(WrKind::Recv, |qp, _, completion: &Completion| {
        assert!(qp.recv_done(completion).is_err());
        let parts = qp.recv_scatter_done(completion).unwrap();
        assert_eq!([contents(&parts.as_slice()[0]), contents(&parts.as_slice()[1])], [&b"1234"[..], b"567"]);
        assert!(qp.recv_scatter_done(completion).is_err());
        assert_eq!(qp.counters().stale, 2);
    });

    // Flushed ones come back empty, and those that nobody polls come back with the QP.
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

/// Where a part lies, and how long it is.
type Part = (bool, usize);

fn part() -> impl Strategy<Value = Part> {
    (any::<bool>(), prop_oneof![1 => Just(0usize), 4 => 1usize..120])
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Send,
    Write,
    Read,
}

/// The parts as memory of this side, holding `content`; slices lie one behind the other, with gaps.
fn parts_of(side: &Side, region: &PeerMr, parts: &[Part], mut content: &[u8]) -> SgList {
    let mut offset = 3;
    let entries = parts.iter().map(|&(in_packet, len)| {
        let (here, rest) = content.split_at(len);
        content = rest;
        offset += len + 5;
        if in_packet {
            return side.packet(here).into();
        }
        region.write_from(offset - len - 5, here).unwrap();
        region.slice(offset - len - 5, len as u32).unwrap().into()
    });
    entries.collect()
}

/// What the parts hold, in their order.
fn content_of(list: &SgList, region: &PeerMr, parts: &[Part]) -> Vec<u8> {
    let mut offset = 3;
    let mut content = Vec::new();
    for (entry, &(_, len)) in list.as_slice().iter().zip(parts) {
        match entry {
            SgEntry::Packet(packet) => content.extend(Packet::data(packet)),
            SgEntry::Peer(_) => content.extend(bytes(region, offset, len)),
        }
        offset += len + 5;
    }
    content
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever the parts on either side: the bytes are the sum of the parts in their order, and a list with more parts with bytes
    /// than were asked for is refused.
    #[test]
    fn bytes_go_from_parts_to_parts_in_their_order(
        max_sge in 1u32..5,
        steps in prop::collection::vec(
            (
                prop_oneof![Just(Verb::Send), Just(Verb::Write), Just(Verb::Read)],
                prop::collection::vec(part(), 0..6),
                prop::collection::vec(part(), 0..4),
            ),
            1..12,
        ),
    ) {
        let (mut a, mut b) = pair_of(Transport::Rc, max_sge, 6);
        let (near, far) = (a.peer_region(4096, all()), b.peer_region(4096, all()));
        for (number, (verb, parts, mut into)) in (0u32..).zip(steps) {
            let len: usize = parts.iter().map(|&(_, len)| len).sum();
            let data = message(number, len);
            let sges = parts.iter().filter(|&&(_, len)| len > 0).count();
            let fits = sges <= max_sge as usize;
            // The receive has room for at least the message.
            into.push((false, len));
            let zeros = vec![0; into.iter().map(|&(_, len)| len).sum()];
            let local = match verb {
                Verb::Send if fits => {
                    let received = parts_of(&b, &far, &into, &zeros);
                    b.qp.post_recv_scatter(received).unwrap();
                    parts_of(&a, &near, &parts, &data)
                }
                Verb::Send | Verb::Write => parts_of(&a, &near, &parts, &data),
                Verb::Read => {
                    far.write_from(64, &data).unwrap();
                    parts_of(&a, &near, &parts, &vec![0; len])
                }
            };
            let options = SendOptions::default();
            let posted = match verb {
                Verb::Send => a.qp.rc().unwrap().send(local, options),
                Verb::Write => a.qp.rc().unwrap().write(local, far.remote(64), options),
                Verb::Read => a.qp.rc().unwrap().read(local, far.remote(64), options),
            };
            if !fits {
                prop_assert_eq!(reason(posted).0, PostStop::TooManySges { sges, max_sge });
                continue;
            }
            posted.unwrap();
            let arrived = matches!(verb, Verb::Send).then(|| receive(&mut b));
            let (buffer, status) = finish(&mut a, &mut b);
            prop_assert_eq!(status, Status::SUCCESS);
            let local = buffer.into_list().unwrap();
            prop_assert_eq!(local.len(), parts.len());
            match (verb, arrived) {
                (Verb::Send, Some((received, byte_len, status))) => {
                    prop_assert_eq!((byte_len as usize, status), (len, Status::SUCCESS));
                    let mut got = content_of(&received, &far, &into);
                    // The slice at the end is longer than what came into it.
                    prop_assert!(got.len() >= len);
                    got.truncate(len);
                    prop_assert_eq!(got, data);
                }
                (Verb::Write, _) => prop_assert_eq!(bytes(&far, 64, len), data),
                _ => prop_assert_eq!(content_of(&local, &near, &parts), data),
            }
        }
        a.assert_all_free();
        b.assert_all_free();
    }
}
