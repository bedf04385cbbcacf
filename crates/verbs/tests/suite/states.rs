//! Transitions between states: allowed ones happen, others are refused by name.

use crate::common::{Options, Side, open, pair};
use verbline_verbs::{
    Access, InitSpec, QpError, QpSpec, QpState, RtrSpec, RtsSpec, Transport,
    expert::{AttrMask, QpAttr},
};

fn fresh(transport: Transport) -> verbline_verbs::QueuePair {
    let context = open("soft0");
    let cq = context.create_cq(64, None).unwrap();
    context.alloc_pd().unwrap().create_qp(&QpSpec::new(transport, &cq)).unwrap()
}

#[test]
fn a_missing_attribute_is_named() {
    let mut qp = fresh(Transport::Rc);
    let attr = QpAttr { port: 1, ..QpAttr::to_state(QpState::Init) };
    let error = qp.modify(&attr, AttrMask::STATE | AttrMask::PORT).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("RESET -> INIT") && text.contains("missing"), "{text}");
    assert!(text.contains("IBV_QP_PKEY_INDEX") && text.contains("IBV_QP_ACCESS_FLAGS"), "{text}");
    assert!(text.contains(crate::common::device("soft0")) && !text.contains("IBV_QP_PORT"), "{text}");
    assert_eq!(qp.state(), QpState::Reset);
}

#[test]
fn an_attribute_too_many_is_named() {
    let mut qp = fresh(Transport::Ud);
    qp.to_init(&crate::common::init_spec()).unwrap();
    let error = qp.modify(&QpAttr::to_state(QpState::Rtr), AttrMask::STATE | AttrMask::AV).unwrap_err();
    assert!(error.to_string().contains("not allowed here IBV_QP_AV"), "{error}");
}

#[test]
fn a_step_that_does_not_exist_names_those_that_do() {
    let mut qp = fresh(Transport::Rc);
    let error = qp.to_rts(&RtsSpec::default()).unwrap_err();
    assert!(matches!(error, QpError::Transition { .. }));
    assert!(error.to_string().contains("no transition RESET -> RTS; from RESET go to RESET, INIT"), "{error}");
    assert!(qp.to_sqd(false).is_err());
}

#[test]
fn a_ud_qp_has_no_peer() {
    let mut qp = fresh(Transport::Ud);
    qp.to_init(&crate::common::init_spec()).unwrap();
    let peer = qp.endpoint();
    let error = qp.to_rtr(&RtrSpec::connected(peer)).unwrap_err();
    assert!(error.to_string().contains("RtrSpec::datagram"), "{error}");
}

#[test]
fn what_was_set_is_what_the_device_reports() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let all = AttrMask(u32::MAX >> 11);
    let attr = a.qp.query(all).unwrap();
    assert_eq!((attr.state, attr.dest_qpn), (QpState::Rts, b.qp.qpn()));
    assert_eq!((attr.rq_psn, attr.sq_psn), (b.qp.endpoint().psn, a.qp.endpoint().psn));
    assert_eq!((attr.timeout, attr.retry_cnt, attr.rnr_retry), (14, 7, 7));
    assert!(attr.access.contains(Access::REMOTE_WRITE));
    assert_eq!(attr.ah.gid, Some(b.qp.endpoint().gid));
}

#[test]
fn a_qp_that_failed_is_found_in_err_by_asking() {
    // A receive that is too short fails on both sides of RC.
    let (mut a, mut b) = pair(&Options { data_bytes: 64, ..Options::new(Transport::Rc) });
    assert_eq!(b.post_recvs(1), 1);
    let big = crate::common::pool("big", 4, 4096, 0);
    a.pd.register_pool(&big).unwrap();
    let mut packet = big.cache(0).get().unwrap();
    assert!(packet.set_len(4000));
    let mut batch = verbline_mem::Batch::with_capacity(1);
    batch.push(packet).unwrap();
    assert_eq!(a.qp.post_send(&mut batch).posted, 1);
    let mut statuses = Vec::new();
    let deadline = std::time::Instant::now() + crate::common::PATIENCE;
    while statuses.len() < 2 {
        assert!(std::time::Instant::now() < deadline, "{statuses:?}");
        for side in [&mut a, &mut b] {
            side.poll(|qp, freed, completion| {
                statuses.push(completion.status());
                crate::common::hand_back(qp, freed, completion);
            });
        }
    }
    use verbline_verbs::Status;
    // rdma_rxe fails both sides too, with codes of its own choice.
    if crate::common::provider() == verbline_verbs::Provider::Soft {
        assert!(statuses.contains(&Status::LOC_LEN_ERR) && statuses.contains(&Status::REM_INV_REQ_ERR), "{statuses:?}");
    }
    assert_eq!(a.qp.query(AttrMask::NONE).unwrap().state, QpState::Err);
    assert_eq!(a.qp.state(), QpState::Err);
}

#[test]
fn a_refused_step_changes_nothing() {
    let options = Options::new(Transport::Rc);
    let mut side = Side::new("soft0", &options, 0);
    let before = side.qp.query(AttrMask(u32::MAX >> 11)).unwrap();
    assert!(side.qp.modify(&QpAttr::to_state(QpState::Rtr), AttrMask::STATE).is_err());
    assert_eq!(side.qp.query(AttrMask(u32::MAX >> 11)).unwrap(), before);
    let no_such_port = InitSpec { port: 9, ..crate::common::init_spec() };
    assert!(side.qp.to_init(&no_such_port).is_err());
    assert_eq!(side.qp.endpoint().qpn, side.qp.qpn());
}

#[test]
fn an_empty_mask_modifies_nothing_in_every_state() {
    let options = Options::new(Transport::Uc);
    let (mut a, b) = pair(&options);
    let everything = AttrMask(u32::MAX >> 11);
    let unchanged = |qp: &mut verbline_verbs::QueuePair, state| {
        let before = qp.query(everything).unwrap();
        assert_eq!(before.state, state);
        // The mask lacks the state, so it is ignored.
        qp.modify(&QpAttr::to_state(QpState::Err), AttrMask::NONE).unwrap();
        assert_eq!(qp.query(everything).unwrap(), before);
        assert_eq!(qp.state(), state);
    };
    a.qp.to_reset().unwrap();
    unchanged(&mut a.qp, QpState::Reset);
    a.qp.to_init(&crate::common::init_spec()).unwrap();
    unchanged(&mut a.qp, QpState::Init);
    let rtr = RtrSpec::connected(b.qp.endpoint()).mtu(a.context.query_port(1).unwrap().active_mtu);
    a.qp.to_rtr(&rtr).unwrap();
    unchanged(&mut a.qp, QpState::Rtr);
    a.qp.to_rts(&RtsSpec::default()).unwrap();
    unchanged(&mut a.qp, QpState::Rts);
    a.qp.to_sqd(false).unwrap();
    unchanged(&mut a.qp, QpState::Sqd);
    a.qp.to_err().unwrap();
    unchanged(&mut a.qp, QpState::Err);
}

#[test]
fn the_state_that_the_caller_assumes_takes_the_place_of_the_known_one() {
    let (mut a, _b) = pair(&Options::new(Transport::Rc));
    let stop = QpAttr::to_state(QpState::Sqd);
    a.qp.modify(&stop, AttrMask::STATE).unwrap();
    // The QP is in SQD; the transition is judged from RTS, which takes a timer and no path.
    let assumes = QpAttr { cur_state: QpState::Rts, min_rnr_timer: 9, ..QpAttr::to_state(QpState::Rts) };
    let error = a.qp.modify(&assumes, AttrMask::STATE | AttrMask::CUR_STATE | AttrMask::TIMEOUT).unwrap_err();
    assert!(error.to_string().contains("RTS -> RTS: not allowed here IBV_QP_TIMEOUT"), "{error}");
    a.qp.modify(&assumes, AttrMask::STATE | AttrMask::CUR_STATE | AttrMask::MIN_RNR_TIMER).unwrap();
    let now = a.qp.query(AttrMask(u32::MAX >> 11)).unwrap();
    assert_eq!((now.state, now.min_rnr_timer), (QpState::Rts, 9));
    // There is no transition from the QP's real state: assuming another creates none. (rdma_rxe
    // goes by the assumed state alone.)
    if crate::common::provider() != verbline_verbs::Provider::Soft {
        return;
    }
    a.qp.to_err().unwrap();
    let error = a.qp.modify(&assumes, AttrMask::STATE | AttrMask::CUR_STATE).unwrap_err();
    assert!(matches!(error, QpError::Verb(_)), "{error}");
    assert_eq!(a.qp.query(AttrMask::NONE).unwrap().state, QpState::Err);
}

/// A QP and a completion buffer move between threads; a QP is not shared. Checked when this
/// compiles: were `QueuePair` `Sync`, both impls would apply and `some` would be ambiguous.
#[test]
fn queues_move_between_threads_and_are_not_shared() {
    trait UnlessSync<A> {
        fn some() {}
    }
    struct Both;
    impl<T: ?Sized> UnlessSync<()> for T {}
    impl<T: ?Sized + Sync> UnlessSync<Both> for T {}
    fn moves<T: Send>() {}
    <verbline_verbs::QueuePair as UnlessSync<_>>::some();
    moves::<verbline_verbs::QueuePair>();
    moves::<verbline_verbs::CompletionQueue>();
    moves::<verbline_verbs::Completions>();
}
