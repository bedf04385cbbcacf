//! Scatter/gather lists: sends and WRITEs from several places, READs into several, and refusals.

mod listed;
mod oracle;
mod receives;

use verbline_verbs::{
    Access, PostStop, QpError, QpSpec, SendOptions, Status, Transport, WrKind,
    expert::{SgEntry, SgList},
    rdma::{Buffer, PeerMr, Refused},
};

use crate::common::{
    Options, PATIENCE, Side, assert_arrived, bytes, connect, hand_back, init_spec, message, open, pair, spec,
};

const ALL: Access = Access::LOCAL_WRITE;

fn all() -> Access {
    ALL | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// Two sides whose sends take lists of `max_send_sge` parts, and whose receives are lists of
/// `max_recv_sge` if that is above 1.
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

/// Polls both sides until a's work request is done; returns its memory and its status.
fn finish(a: &mut Side, b: &mut Side) -> (Buffer, Status) {
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut done = None;
    while done.is_none() {
        assert!(std::time::Instant::now() < deadline, "the work request completes");
        b.poll(hand_back);
        a.poll(|qp, freed, completion| match completion.kind() {
            WrKind::Op => done = Some((qp.op_done(completion, freed).unwrap().into_buffer(), completion.status())),
            _ => hand_back(qp, freed, completion),
        });
    }
    done.unwrap()
}

fn contents(entry: &SgEntry) -> &[u8] {
    entry.as_packet().expect("a packet").data()
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
                // Inline parts must be short.
                let header = parts.drain().next().unwrap();
                parts = list([header, a.packet(&message(9, 60)).into()]);
                expected = [message(1, 42), message(9, 60)].concat();
            }
            match (transport, inline) {
                (Transport::Rc, false) => a.qp.rc().unwrap().send(parts, SendOptions::default()),
                (Transport::Rc, true) => a.qp.rc().unwrap().send_inline(parts, SendOptions::default()),
                (Transport::Uc, false) => a.qp.uc().unwrap().send(parts, SendOptions::default()),
                (Transport::Uc, true) => a.qp.uc().unwrap().send_inline(parts, SendOptions::default()),
                (Transport::Ud, false) => a.qp.ud().unwrap().send(parts, SendOptions::default()),
                (Transport::Ud, true) => a.qp.ud().unwrap().send_inline(parts, SendOptions::default()),
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

    // Two packets of different lengths, and two slices in another order than in memory.
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
    assert_arrived(Transport::Uc, &far, 0, &expected);
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
        "the scatter/gather list has 3 parts with bytes and a work request here takes 2: as many as the QP's \
         max_send_sge, for receives its max_recv_sge or the SRQ's max_sge"
    );
    assert_eq!((parts.len(), a.qp.sends_outstanding(), a.qp.max_send_sge()), (3, 0, 2));

    // Each part is checked: the second is of another PD.
    parts.clear();
    parts.push(a.packet(b"ours")).unwrap();
    parts.push(far.slice(0, 8).unwrap()).unwrap();
    let (stop, _) = reason(a.qp.rc().unwrap().send(parts, options));
    let (packet_pd, qp_pd) = (b.pd.id(), a.pd.id());
    assert_eq!(stop, PostStop::NotRegistered { packet_pd, qp_pd });

    // The total length counts for inline data and datagrams.
    let most = a.qp.max_inline_bytes();
    let long = list([a.packet(&[1; 200]).into(), a.packet(&[2; 200]).into()]);
    let (stop, _) = reason(a.qp.rc().unwrap().write_inline(long, far.remote(0), options));
    assert_eq!(stop, PostStop::NotInline { len_bytes: 400, max_bytes: most });
    let (mut c, _d) = pair_of(Transport::Ud, 2, 1);
    let most = c.qp.max_message_bytes();
    let region = c.peer_region(65536, ALL);
    let half = || region.slice(0, most / 2 + 1).unwrap().into();
    let (stop, _) = reason(c.qp.ud().unwrap().send(list([half(), half()]), SendOptions::default()));
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
        "receives here are packets; a max_recv_sge of the QP, or a max_sge of the SRQ, above 1 makes them \
         scatter/gather lists"
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
