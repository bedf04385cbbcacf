//! Signature keys by the safe API: their effect on blocks, the objects that they keep, and the stop
//! behind a bad block.

use crate::common::{Options, Side, bring_up, init_spec, only_soft, open, pool, provider, spec};
use verbline_mem::Batch;
use verbline_verbs::attr::Capability;
use verbline_verbs::event::AsyncEventKind;
use verbline_verbs::rdma::{Buffer, OpDone, PeerMr};
use verbline_verbs::signature::{
    BlockSignature, BlockSize, Crc, CrcKind, Domain, KeyConfig, KeyLayout, KeySpec, Mask, Part, QpSignature, Seed,
    SignatureError, SignatureKey, Strip, T10Dif,
};
use verbline_verbs::{
    Access, Completions, InitSpec, PostStop, Provider, QpError, QpSpec, QpState, SendOptions, Status, Transport, WrKind,
};

const DIF: Domain = Domain::T10Dif(BlockSize::B512, T10Dif { ref_increments: true, ..const_type_1(0xabcd, 7) });

const fn const_type_1(app_tag: u16, ref_tag: u32) -> T10Dif {
    use verbline_verbs::signature::{Escape, T10Guard};
    let (guard, seed) = (T10Guard::Crc, Seed::Zeros);
    T10Dif { guard, seed, app_tag, ref_tag, ref_increments: true, escape: Escape::AppTag }
}

fn side(device: &'static str, signature: QpSignature, tag: u16) -> Side {
    let options = Options::new(Transport::Rc);
    let context = open(device);
    let pd = context.alloc_pd().unwrap();
    let pool = pool("signatures", options.packets, options.data_bytes, options.headroom_bytes);
    pd.register_pool(&pool).unwrap();
    let cq = context.create_cq(options.cq_depth_wc, None).unwrap();
    let mut qp = pd.create_qp(&QpSpec { signature, ..spec(&options, &cq, tag) }).unwrap();
    qp.to_init(&InitSpec { access: Access::REMOTE_WRITE | Access::REMOTE_READ, ..init_spec() }).unwrap();
    let (completions, freed) = (Completions::with_capacity(8), Batch::with_capacity(64));
    Side { qp, cq, channel: None, cache: pool.cache(32), pool, pd, context, completions, freed }
}

fn pair(signature: QpSignature) -> (Side, Side) {
    let (mut a, mut b) = (side("soft0", signature, 1), side("soft1", QpSignature::Keys, 2));
    let (to_a, to_b) = (a.qp.endpoint(), b.qp.endpoint());
    bring_up(&mut a, &to_b, &Options::new(Transport::Rc));
    bring_up(&mut b, &to_a, &Options::new(Transport::Rc));
    (a, b)
}

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

fn list(mr: &PeerMr, offset: usize, len: u32) -> KeyLayout {
    KeyLayout::list([mr.slice(offset, len).unwrap()])
}

fn configure(side: &mut Side, key: &mut SignatureKey, config: KeyConfig) -> OpDone {
    side.qp.rc().unwrap().configure_key(key, config, SendOptions::default()).unwrap();
    done(side).1
}

/// The status of the next op, and its returned memory.
fn done(side: &mut Side) -> (Status, OpDone) {
    side.wait_for(WrKind::Op, |qp, freed, completion| (completion.status(), qp.op_done(completion, freed).unwrap()))
}

fn read(mr: &PeerMr, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    mr.read_into(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_write_through_a_key_gets_protection_information_and_a_read_loses_it() {
    only_soft!("of kernel devices only mlx5 cards have signature offload");
    let (mut a, mut b) = pair(QpSignature::Keys);
    let (ours, theirs) = (a.peer_region(8192, all()), b.peer_region(8192, all()));
    let mut key = a.pd.create_signature_key(&KeySpec::default()).unwrap();
    let signature = BlockSignature::on_the_wire(DIF);
    configure(&mut a, &mut key, KeyConfig::new().access(all()).layout(list(&ours, 0, 1024)).signature(signature));
    ours.write_from(0, &[0x5a; 1024]).unwrap();
    a.qp.rc().unwrap().write(key.range(0, 1024), theirs.remote(0), SendOptions::default()).unwrap();
    let (status, buffer) = done(&mut a);
    let OpDone::Memory(Buffer::Key(range)) = buffer else { panic!("{buffer:?}") };
    assert_eq!((status, range.len()), (Status::SUCCESS, 1024));
    assert_eq!(signature.wire_bytes(1024), Some(1040));
    assert_eq!(read(&theirs, 514, 6), [0xab, 0xcd, 0, 0, 0, 7]);
    assert_eq!(read(&theirs, 520 + 514, 6), [0xab, 0xcd, 0, 0, 0, 8]);
    ours.write_from(0, &[0; 1024]).unwrap();
    a.qp.rc().unwrap().read(key.range(0, 1024), theirs.remote(0), SendOptions::default()).unwrap();
    assert_eq!(done(&mut a).0, Status::SUCCESS);
    assert_eq!((read(&ours, 0, 1024), key.check().unwrap()), (vec![0x5a; 1024], None));
    // A block that is bad on the wire is reported once; then the key must be configured again.
    theirs.write_from(520 + 515, &[0xce]).unwrap();
    a.qp.rc().unwrap().read(key.range(0, 1024), theirs.remote(0), SendOptions::default()).unwrap();
    assert_eq!(done(&mut a).0, Status::SUCCESS);
    let fault = key.check().unwrap().expect("it is wrong");
    assert_eq!((fault.part, fault.expected, fault.actual, fault.offset), (Part::AppTag, 0xabce, 0xabcd, 520));
    assert_eq!(key.check().unwrap(), None);
    configure(&mut a, &mut key, KeyConfig::new());
    a.qp.rc().unwrap().read(key.range(0, 512), theirs.remote(0), SendOptions::default()).unwrap();
    assert_eq!((done(&mut a).0, key.check().unwrap()), (Status::SUCCESS, None));
    drop(b.qp.to_err());
}

#[test]
fn a_peer_reaches_an_interleaved_key_by_its_rkey() {
    only_soft!("of kernel devices only mlx5 cards have signature offload");
    let (mut a, mut b) = pair(QpSignature::Keys);
    let (ours, theirs) = (a.peer_region(8192, all()), b.peer_region(8192, all()));
    let mut key = b.pd.create_signature_key(&KeySpec::default()).unwrap();
    // Data here, and its protection information there.
    let strips = [(0, 512), (4096, 4)].map(|(at, len)| Strip { first: theirs.slice(at, len).unwrap(), skip_bytes: 0 });
    let crc = Domain::Crc(BlockSize::B512, Crc { kind: CrcKind::Crc32c, seed: Seed::Ones });
    let config = KeyConfig::new().access(all()).layout(KeyLayout::interleaved(2, strips));
    configure(&mut b, &mut key, config.signature(BlockSignature::in_memory(crc)));
    ours.write_from(0, &[1; 1024]).unwrap();
    a.qp.rc().unwrap().write(ours.slice(0, 1024).unwrap(), key.remote(0), SendOptions::default()).unwrap();
    assert_eq!(done(&mut a).0, Status::SUCCESS);
    assert_eq!(read(&theirs, 0, 1024), [1; 1024]);
    let guards = read(&theirs, 4096, 8);
    assert_eq!(guards[..4], guards[4..]);
    assert_ne!(guards[..4], [0; 4]);
}

#[test]
fn a_key_keeps_its_regions_until_others_have_taken_their_place() {
    only_soft!("of kernel devices only mlx5 cards have signature offload");
    let (mut a, _b) = pair(QpSignature::Keys);
    let (first, second) = (a.peer_region(4096, all()), a.peer_region(4096, all()));
    let mut key = a.pd.create_signature_key(&KeySpec { signs_blocks: false, ..KeySpec::default() }).unwrap();
    assert!(matches!(
        configure(&mut a, &mut key, KeyConfig::new().layout(list(&first, 0, 64))),
        OpDone::Memory(Buffer::Empty)
    ));
    let mut first = first;
    assert!(first.set_access(Access::LOCAL_WRITE).is_err(), "the key shares it");
    let replaced = configure(&mut a, &mut key, KeyConfig::new().layout(list(&second, 0, 64)));
    assert!(matches!(&replaced, OpDone::Layout(layout) if layout.entries() == 1), "{replaced:?}");
    drop(replaced);
    first.set_access(Access::LOCAL_WRITE).unwrap();
    // Invalidated: the second is free as well.
    a.qp.rc().unwrap().invalidate_key(&key, SendOptions::default()).unwrap();
    drop(done(&mut a));
    let mut second = second;
    second.set_access(Access::LOCAL_WRITE).unwrap();
    // The memory of a work request dropped by a QP's reset is kept until the key is gone.
    let config = KeyConfig::new().layout(list(&second, 0, 64));
    a.qp.rc().unwrap().configure_key(&mut key, config, SendOptions::default()).unwrap();
    a.qp.to_reset().unwrap();
    assert!(second.set_access(Access::LOCAL_WRITE).is_err());
    drop(key);
    second.set_access(Access::LOCAL_WRITE).unwrap();
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    only_soft!("of kernel devices only mlx5 cards have signature offload");
    let (mut a, b) = pair(QpSignature::Keys);
    let (ours, theirs) = (a.peer_region(4096, all()), b.peer_region(4096, all()));
    let plain = KeySpec { max_entries: 1, signs_blocks: false, remote_invalidate: false };
    let mut key = a.pd.create_signature_key(&plain).unwrap();
    let mut refused = |config| a.qp.rc().unwrap().configure_key(&mut key, config, SendOptions::default()).unwrap_err();
    let two = KeyLayout::list([ours.slice(0, 8).unwrap(), ours.slice(8, 8).unwrap()]);
    assert_eq!(
        refused(KeyConfig::new().layout(two)).to_string(),
        "the signature key can't be configured so: the layout has more entries than KeySpec::max_entries"
    );
    assert_eq!(
        refused(KeyConfig::new().signature(BlockSignature::in_memory(DIF))).to_string(),
        "the signature key can't be configured so: the key was made without KeySpec::signs_blocks"
    );
    let foreign = refused(KeyConfig::new().layout(list(&theirs, 0, 8)));
    assert!(matches!(foreign.reason, PostStop::NotRegistered { .. }), "{foreign}");
    assert!(matches!(key.check(), Err(SignatureError::SignsNothing(_))));
    let signature = BlockSignature::on_the_wire(DIF);
    let error = signature.copying(Mask::GUARD).unwrap_err();
    assert!(error.to_string().starts_with("a copy mask needs blocks of the same size and kind"), "{error}");
    assert!(BlockSignature::on_both(DIF, DIF).checking(Mask::NONE).copying(Mask::GUARD.and(Mask::REF_TAG)).is_ok());
    // A QP created without signatures.
    let mut plain = side("soft0", QpSignature::None, 3);
    let to = plain.qp.endpoint();
    bring_up(&mut plain, &to, &Options::new(Transport::Rc));
    let mut key = plain.pd.create_signature_key(&KeySpec::default()).unwrap();
    let refused = plain.qp.rc().unwrap().configure_key(&mut key, KeyConfig::new(), SendOptions::default());
    assert_eq!(
        refused.unwrap_err().to_string(),
        "the signature key can't be configured so: the QP was made without QpSpec::signature"
    );
    let outside_sqd = plain.qp.last_posted();
    assert_eq!(outside_sqd, None);
}

#[test]
fn a_bad_block_stops_the_queue_before_the_response() {
    only_soft!("of kernel devices only mlx5 cards have signature offload");
    let (mut a, mut b) = pair(QpSignature::Pipelined);
    let events = a.context.async_events();
    let (ours, theirs) = (a.peer_region(8192, all()), b.peer_region(8192, all()));
    let mut key = a.pd.create_signature_key(&KeySpec::default()).unwrap();
    ours.write_from(0, &[1]).unwrap();
    let config = KeyConfig::new().layout(list(&ours, 0, 520)).signature(BlockSignature::in_memory(DIF));
    configure(&mut a, &mut key, config);
    assert_eq!(b.post_recvs(2), 2);
    let fenced = SendOptions { fence: true, ..SendOptions::default() };
    a.qp.rc().unwrap().write(key.range(0, 512), theirs.remote(0), SendOptions::default()).unwrap();
    let good = a.packet(b"good");
    a.qp.rc().unwrap().send(good, fenced).unwrap();
    let number = a.qp.last_posted().expect("it was just posted");
    assert_eq!(events.try_next().unwrap().map(|event| event.kind), Some(AsyncEventKind::SqDrained));
    // Until a poll finds nothing.
    assert_eq!(done(&mut a).0, Status::SUCCESS);
    assert_eq!(a.poll(|_, _, completion| panic!("{completion:?}")), 0);
    assert!(key.check().unwrap().is_some_and(|fault| fault.part == Part::Guard));
    assert!(a.qp.is_stopped().unwrap());
    assert_eq!(a.qp.cancel_posted_sends([number]).unwrap(), 1);
    let bad = a.packet(b"bad");
    a.qp.rc().unwrap().send(bad, fenced).unwrap();
    a.qp.resume().unwrap();
    let received = b.receive(1);
    assert_eq!(received[0].data(), b"bad");
    let mut ends = Vec::new();
    while a.qp.sends_outstanding() > 0 {
        a.poll(|qp, freed, completion| {
            ends.push(completion.status());
            drop(qp.op_done(completion, freed).unwrap());
        });
    }
    assert_eq!(ends, [Status::SUCCESS; 2], "the cancelled one too");
    assert_eq!(a.qp.state(), QpState::Rts);
    let error = a.qp.cancel_posted_sends([number]).unwrap_err().to_string();
    assert!(error.contains("EINVAL") && error.contains("wait for the event SqDrained"), "{error}");
}

/// A transaction's answers, posted in the usual ways: by a batch, alone, and by a handle.
#[test]
fn all_of_a_transaction_are_cancelled_however_they_were_posted() {
    only_soft!("of kernel devices only mlx5 cards have signature offload");
    let (mut a, mut b) = pair(QpSignature::Pipelined);
    assert_eq!(b.post_recvs(6), 6);
    a.qp.to_sqd(false).unwrap();
    assert_eq!(a.qp.last_posted(), None);
    let mut batch = a.batch([&b"before"[..], b"one", b"two"]);
    assert_eq!(a.qp.post_send(&mut batch).posted, 3);
    let alone = a.packet(b"three");
    a.qp.post_send_one(alone).unwrap();
    let by_handle = a.packet(b"four");
    a.qp.rc().unwrap().send(by_handle, SendOptions { signaled: true, ..SendOptions::default() }).unwrap();
    let transaction: Vec<_> = a.qp.last_posted_list(4).collect();
    assert_eq!(a.qp.last_posted(), Some(transaction[0]));
    assert_eq!(a.qp.last_posted_list(u32::MAX).count(), 5, "no more than were posted");
    let mut batch = a.batch([&b"behind"[..]]);
    assert_eq!(a.qp.post_send(&mut batch).posted, 1);
    assert_eq!(a.qp.cancel_posted_sends(transaction.iter().copied()).unwrap(), 4);
    a.qp.resume().unwrap();
    let received: Vec<Vec<u8>> = b.receive(2).iter().map(|packet| packet.data().to_vec()).collect();
    assert_eq!(received, [b"before".to_vec(), b"behind".to_vec()]);
    let ended = a.wait_for(WrKind::Op, |qp, freed, completion| {
        drop(qp.op_done(completion, freed).unwrap());
        completion.number()
    });
    assert_eq!(ended, transaction[0], "the cancelled one that was signaled");
}

/// A cancelled configuration completes like one that was carried out, but changes nothing of the
/// key.
#[test]
fn a_configuration_that_was_cancelled_leaves_the_key_as_it_was() {
    only_soft!("of kernel devices only mlx5 cards have signature offload");
    for invalidates in [false, true] {
        let (mut a, b) = pair(QpSignature::Keys);
        let (first, second) = (a.peer_region(4096, all()), a.peer_region(4096, all()));
        let theirs = b.peer_region(4096, all());
        let mut key = a.pd.create_signature_key(&KeySpec::default()).unwrap();
        configure(&mut a, &mut key, KeyConfig::new().layout(list(&first, 0, 64)));
        first.write_from(0, b"as before").unwrap();
        a.qp.to_sqd(false).unwrap();
        if invalidates {
            a.qp.rc().unwrap().invalidate_key(&key, SendOptions::default()).unwrap();
        } else {
            let config = KeyConfig::new().layout(list(&second, 0, 64));
            a.qp.rc().unwrap().configure_key(&mut key, config, SendOptions::default()).unwrap();
        }
        let number = a.qp.last_posted().unwrap();
        assert_eq!(a.qp.cancel_posted_sends([number]).unwrap(), 1);
        a.qp.resume().unwrap();
        let (status, given) = done(&mut a);
        assert_eq!(status, Status::SUCCESS);
        assert!(matches!(given, OpDone::Memory(Buffer::Empty)), "the layout is in force: {given:?}");
        drop(first);
        a.qp.rc().unwrap().write(key.range(0, 64), theirs.remote(0), SendOptions::default()).unwrap();
        assert_eq!(done(&mut a).0, Status::SUCCESS);
        assert_eq!(read(&theirs, 0, 9), b"as before");
    }
}

#[test]
fn devices_without_say_so() {
    let context = open("soft0");
    if provider() == Provider::Soft {
        context.check_signature_offload().unwrap();
        return;
    }
    let lacking = context.check_signature_offload().unwrap_err();
    assert_eq!(lacking.capability, Capability::SignatureOffload);
    // If the library is there, it is asked; without it there can be no card.
    let says = &lacking.says;
    let known =
        says == "it is not an mlx5 device (mlx5dv_is_supported)" || says.starts_with("no libmlx5 can be opened");
    assert!(known, "{lacking}");
    let pd = context.alloc_pd().unwrap();
    assert!(matches!(pd.create_signature_key(&KeySpec::default()), Err(SignatureError::Lacking(_))));
    let cq = context.create_cq(16, None).unwrap();
    let spec = QpSpec { signature: QpSignature::Pipelined, ..QpSpec::new(Transport::Rc, &cq) };
    assert!(matches!(pd.create_qp(&spec), Err(QpError::Lacking(_))));
}
