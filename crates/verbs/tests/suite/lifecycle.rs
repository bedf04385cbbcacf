//! Creating and destroying: everything comes back, in whatever order objects are dropped.

use crate::common::{Options, Side, open, pair, pool, region};
use verbline_mem::{Batch, PeerRegion};
use verbline_verbs::{Access, Device, MrError, Provider, QpError, QpSpec, QpState, SrqSpec, Status, Transport, WrKind};

#[test]
fn the_software_rnic_is_always_there() {
    let devices = Device::list(Provider::Soft).unwrap();
    let names: Vec<_> = devices.iter().map(Device::name).collect();
    assert_eq!(names, ["soft0", "soft1"]);
    let context = devices[0].open().unwrap();
    drop(devices);
    let attr = context.query_device().unwrap();
    assert!(attr.max_qp > 0 && attr.max_cqe > 0 && attr.ports >= 1, "{attr:?}");
    let port = context.query_port(1).unwrap();
    assert_eq!(port.state, verbline_verbs::attr::PortState::Active);
    assert!(!context.gids(1).unwrap().is_empty());
    assert_eq!(context.query_pkey(1, 0).unwrap(), 0xffff);
}

#[test]
fn an_unknown_name_is_answered_with_those_there_are() {
    let error = Device::find(Provider::Soft, "soft7").unwrap_err();
    assert_eq!(error.to_string(), "no soft device is named \"soft7\"; there are: soft0, soft1");
}

#[test]
fn a_kernel_without_rdma_has_no_devices_and_says_what_to_do() {
    let devices = Device::list(Provider::Kernel).unwrap();
    let error = Device::find(Provider::Kernel, "no such device").unwrap_err();
    let text = error.to_string();
    if devices.is_empty() {
        assert!(text.contains("modprobe rdma_rxe") && text.contains("\"soft\""), "{text}");
    } else {
        assert!(text.contains(devices[0].name()), "{text}");
    }
}

#[test]
fn dropping_a_qp_returns_every_packet() {
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
        let options = Options { inline_bytes: 0, ..Options::new(transport) };
        let (mut a, mut b) = pair(&options);
        assert_eq!(a.post_recvs(16), 16);
        // On RC the other side has no receive posted: these sends wait.
        let mut batch = a.batch([[9u8; 100]; 10].iter().map(|bytes| &bytes[..]));
        assert_eq!(a.qp.post_send(&mut batch).posted, 10);
        b.poll(|_, _, completion| panic!("{completion:?}"));
        drop((a.qp, batch));
        a.cache.flush();
        assert_eq!(a.pool.account().held, 0, "{transport}");
        assert_eq!(verbline_verbs::expert::leaked_queue_pairs(), 0);
    }
}

#[test]
fn err_flushes_everything_and_a_drain_covers_unsignaled_sends() {
    for signal_every_wr in [1, 3, 16] {
        let options = Options { inline_bytes: 0, signal_every_wr, ..Options::new(Transport::Rc) };
        let (mut a, mut b) = pair(&options);
        assert_eq!((a.post_recvs(7), b.post_recvs(2)), (7, 2));
        let mut batch = a.batch([[9u8; 100]; 5].iter().map(|bytes| &bytes[..]));
        assert_eq!(a.qp.post_send(&mut batch).posted, 5);
        assert_eq!(b.receive(2).len(), 2);
        a.qp.start_drain().unwrap();
        let mut flushed = 0;
        while !a.qp.is_drained() {
            a.poll(|qp, freed, completion| {
                flushed += usize::from(completion.status() == Status::WR_FLUSH_ERR);
                match completion.kind() {
                    WrKind::Recv => assert!(qp.recv_done(completion).unwrap().is_empty()),
                    _ => assert!(qp.send_done(completion, freed).unwrap() > 0),
                }
            });
        }
        assert!(flushed >= 7, "{flushed}");
        assert_eq!(a.qp.state(), QpState::Err);
        a.assert_all_free();
    }
}

#[test]
fn a_full_queue_of_unsignaled_sends_drains() {
    let options = Options { inline_bytes: 0, tx_depth_wr: 4, signal_every_wr: 4, ..Options::new(Transport::Uc) };
    let (mut a, mut b) = pair(&options);
    assert_eq!(b.post_recvs(7), 7);
    // Four fill the queue; the fourth is signaled and frees them; three more are not signaled.
    let mut batch = a.batch([[9u8; 100]; 7].iter().map(|bytes| &bytes[..]));
    while !batch.is_empty() {
        let _ = a.qp.post_send(&mut batch);
        a.poll(crate::common::hand_back);
    }
    b.receive(7);
    a.qp.start_drain().unwrap();
    a.drain();
    a.assert_all_free();
}

#[test]
fn reset_returns_every_packet_without_completions_and_the_qp_works_again() {
    let options = Options { inline_bytes: 0, ..Options::new(Transport::Rc) };
    let (mut a, mut b) = pair(&options);
    for round in 0..3u8 {
        assert_eq!(a.post_recvs(5), 5);
        let mut batch = a.batch([[round; 100]; 5].iter().map(|bytes| &bytes[..]));
        assert_eq!(a.qp.post_send(&mut batch).posted, 5);
        for side in [&mut a, &mut b] {
            side.qp.to_reset().unwrap();
            assert!(side.qp.is_drained());
            side.assert_all_free();
            let access = options.access;
            side.qp.to_init(&verbline_verbs::InitSpec { access, ..crate::common::init_spec() }).unwrap();
        }
        // Completions of an old posting left in the CQ are stale, and do no harm.
        a.poll(|qp, freed, completion| match completion.kind() {
            WrKind::Recv => drop(qp.recv_done(completion).unwrap_err()),
            _ => assert!(qp.send_done(completion, freed).is_err()),
        });
        crate::common::connect(&mut a, &mut b, &options);
        assert_eq!(b.post_recvs(1), 1);
        a.send(&[round]);
        assert_eq!(b.receive(1)[0].data(), [round]);
    }
}

#[test]
fn another_qp_of_the_same_spec_takes_the_place_of_one_that_is_drained() {
    let options = Options::new(Transport::Rc);
    let (mut a, mut b) = pair(&options);
    let spec = crate::common::spec(&options, &a.cq, a.qp.tag());
    let maker = a.pd.qp_maker(&spec);
    let srq = a.pd.create_srq(&SrqSpec { transport: Transport::Rc, depth_wr: 4, max_sge: 1, tag: 2 }).unwrap();
    let sharing = a.pd.qp_maker(&QpSpec { srq: Some(&srq), ..spec });
    assert!(sharing.make().unwrap().uses_srq() && !maker.make().unwrap().uses_srq());
    for round in 0..3u8 {
        assert_eq!(a.post_recvs(3), 3);
        b.qp.to_reset().unwrap();
        a.qp.start_drain().unwrap();
        a.drain();
        // On any thread; the CQ stays with its poller.
        let fresh = std::thread::scope(|scope| scope.spawn(|| maker.make().unwrap()).join().unwrap());
        let old = std::mem::replace(&mut a.qp, fresh);
        assert!(old.qpn() != a.qp.qpn() && old.tag() == a.qp.tag());
        std::thread::spawn(move || drop(old)).join().unwrap();
        for side in [&mut a, &mut b] {
            let access = options.access;
            side.qp.to_init(&verbline_verbs::InitSpec { access, ..crate::common::init_spec() }).unwrap();
        }
        crate::common::connect(&mut a, &mut b, &options);
        assert_eq!((a.post_recvs(1), b.post_recvs(1)), (1, 1));
        b.send(&[round]);
        assert_eq!(a.receive(1)[0].data(), [round]);
        a.send(&[round]);
        assert_eq!(b.receive(1)[0].data(), [round]);
    }
}

#[test]
fn objects_keep_what_they_stand_on() {
    let (a, mut b) = pair(&Options::new(Transport::Rc));
    let Side { mut qp, cq, cache, pool, pd, context, .. } = a;
    let device_name = context.name().to_owned();
    drop((context, pd, cq));
    assert_eq!(b.post_recvs(1), 1);
    let mut packet = cache.get().unwrap();
    assert!(packet.fill(b"still here"));
    let mut batch = Batch::with_capacity(1);
    batch.push(packet).unwrap();
    assert_eq!(qp.post_send(&mut batch).posted, 1);
    assert_eq!(b.receive(1)[0].data(), b"still here");
    qp.pd().create_ah(&crate::common::to_gid(b.qp.endpoint().gid)).unwrap();
    drop(qp);
    // The pool's MR keeps PD and context open until the pool is gone.
    drop(cache);
    drop(pool);
    assert_eq!(device_name, crate::common::device("soft0"));
}

#[test]
fn a_pool_dropped_before_its_qp_is_leaked_and_not_freed() {
    let before = verbline_mem::leaked_pools();
    let options = Options { inline_bytes: 0, ..Options::new(Transport::Rc) };
    let (mut a, _b) = pair(&options);
    assert_eq!(a.post_recvs(3), 3);
    drop((a.cache, a.pool));
    drop(a.qp);
    assert!(verbline_mem::leaked_pools() > before);
}

/// A time-out beyond the range of a clock, also when a panic drops the QP, in which a second panic
/// would abort.
#[test]
fn a_drop_that_may_take_for_ever_gives_the_packets_back() {
    let options = Options::new(Transport::Rc);
    let mut side = Side::new("soft0", &options, 0);
    for panics in [false, true] {
        let patient =
            QpSpec { destroy_timeout: std::time::Duration::MAX, ..crate::common::spec(&options, &side.cq, 0) };
        side.qp = side.pd.create_qp(&patient).unwrap();
        side.qp.to_init(&crate::common::init_spec()).unwrap();
        assert_eq!(side.post_recvs(4), 4);
        let other = side.pd.create_qp(&crate::common::spec(&options, &side.cq, 0)).unwrap();
        let patient = std::mem::replace(&mut side.qp, other);
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _patient = patient;
            assert!(!panics, "to be caught");
        }));
        assert_eq!(dropped.is_err(), panics);
        side.assert_all_free();
    }
}

#[test]
fn a_pool_is_registered_once() {
    let context = open("soft0");
    let (pd, other) = (context.alloc_pd().unwrap(), context.alloc_pd().unwrap());
    let pool = pool("once", 4, 64, 0);
    pd.register_pool(&pool).unwrap();
    assert_eq!(pool.mr().unwrap().0, pd.id());
    assert!(matches!(other.register_pool(&pool), Err(MrError::Pool(_))));
    assert_eq!(pool.mr().unwrap().0, pd.id());
}

#[test]
fn peers_may_write_only_where_the_device_may() {
    let pd = open("soft0").alloc_pd().unwrap();
    let window = PeerRegion::new(region("window", 4096));
    let error = pd.register_peer_region(window, Access::REMOTE_WRITE).unwrap_err();
    assert!(error.to_string().contains("LOCAL_WRITE"), "{error}");
}

#[test]
fn more_inline_than_the_device_takes_is_lowered_and_reported() {
    let context = open("soft0");
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(64, None).unwrap();
    let qp = pd.create_qp(&QpSpec { max_inline_bytes: 1 << 30, ..QpSpec::new(Transport::Rc, &cq) }).unwrap();
    let granted = qp.max_inline_bytes();
    assert!(granted > 0 && granted < 1 << 30, "{granted}");
}

#[test]
fn a_spec_that_cannot_be_is_refused_with_the_value_and_the_limit() {
    let (soft0, soft1) = (open("soft0"), open("soft1"));
    let pd = soft0.alloc_pd().unwrap();
    let (cq, foreign) = (soft0.create_cq(64, None).unwrap(), soft1.create_cq(64, None).unwrap());
    let error = pd.create_qp(&QpSpec { tx_depth_wr: 100_000, ..QpSpec::new(Transport::Rc, &cq) }).unwrap_err();
    assert_eq!(error.to_string(), "tx_depth_wr of 100000 work requests; at most 65535 fit a queue");
    let error = pd.create_qp(&QpSpec { recv_cq: &foreign, ..QpSpec::new(Transport::Rc, &cq) }).unwrap_err();
    assert!(matches!(error, QpError::Foreign { what: "receive CQ", .. }), "{error}");
    let error = soft0.create_cq(0, None).unwrap_err();
    assert!(error.to_string().starts_with("a CQ of 0 completions: the depth must be 1 to"), "{error}");
}
