//! Queue-pair states: the table, the transitions, and the effect of posts in each state.
use crate::harness::*;
use proptest::prelude::*;
use rdma_sys::ibv_qp_attr_mask as m;
use rdma_sys::ibv_qp_state::*;
use rdma_sys::ibv_qp_type::*;
use rdma_sys::*;
use verbline_softnic::qp_table::{AttrMask, State, Transport, check};

const EINVAL: i32 = libc::EINVAL;

/// A queue pair without a peer, brought to `state` by legal steps.
fn qp_in(state: u32, qp_type: u32, nic: &Nic, cq: &Cq) -> Qp {
    let qp = nic.qp(qp_type, cq, cq);
    if state != IBV_QPS_RESET && state != IBV_QPS_ERR {
        qp.to_init();
    }
    if matches!(state, IBV_QPS_RTR | IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_SQE) {
        qp.to_rtr(qp.num(), nic.lid);
    }
    if matches!(state, IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_SQE) {
        qp.to_rts();
    }
    match state {
        IBV_QPS_SQD => assert_eq!(qp.to(IBV_QPS_SQD), 0),
        IBV_QPS_ERR => {
            qp.to_init();
            assert_eq!(qp.to(IBV_QPS_ERR), 0);
        }
        IBV_QPS_SQE => {
            // Only a failed send leads there, and never on RC.
            let mut sge = ibv_sge { addr: 0, length: 8, lkey: 0 };
            sge.lkey = 1;
            let mut wr = Wr::send(1, 0, &[sge]);
            let ah = ah(nic, 1);
            wr = wr.to(ah, qp.num(), QKEY);
            if qp_type != IBV_QPT_UD {
                wr.raw.wr.rdma = rdma_t { remote_addr: 0, rkey: 0 };
            }
            qp.post(&mut [wr]).unwrap();
            assert_eq!(cq.poll_all().len(), 1);
            unsafe { verbline_softnic::provider::ibv_destroy_ah(ah) };
        }
        _ => {}
    }
    assert_eq!(qp.state(), state);
    qp
}

fn ah(nic: &Nic, lid: u16) -> *mut ibv_ah {
    let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
    (attr.dlid, attr.port_num) = (lid, 1);
    let ah = unsafe { verbline_softnic::provider::ibv_create_ah(nic.pd, &mut attr) };
    assert!(!ah.is_null());
    ah
}

/// A valid value for every attribute.
fn valid_attr(to: u32, from: u32, qp: &Qp, lid: u16) -> ibv_qp_attr {
    let mut attr = attr(to);
    attr.cur_qp_state = from;
    attr.port_num = 1;
    attr.path_mtu = ibv_mtu::IBV_MTU_1024;
    attr.ah_attr.dlid = lid;
    attr.ah_attr.port_num = 1;
    (attr.alt_ah_attr.dlid, attr.alt_ah_attr.port_num, attr.alt_port_num) = (lid, 1, 1);
    attr.dest_qp_num = qp.num();
    attr
}

#[test]
fn what_the_table_says_is_what_modify_does() {
    let nic = Nic::open(0);
    let cq = nic.cq(64);
    for qp_type in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD] {
        let transport = Transport::from_raw(qp_type).unwrap();
        for from in State::ALL {
            if from == State::Sqe && qp_type == IBV_QPT_RC {
                continue;
            }
            for to in State::ALL {
                let row = verbline_softnic::qp_table::transition(from, to).map(|row| row.attributes(transport));
                let required = row.map_or(AttrMask::NONE, |row| row.required);
                let all = row.map_or(AttrMask::NONE, |row| row.required | row.optional);
                let mut masks = vec![required, all, all | AttrMask::CAP, required | AttrMask::CUR_STATE];
                masks.extend((0..32).map(|bit| required.without(AttrMask(1 << bit))));
                for mask in masks {
                    let mask = mask | AttrMask::STATE;
                    let qp = qp_in(from.raw(), qp_type, &nic, &cq);
                    let mut attr = valid_attr(to.raw(), from.raw(), &qp, nic.lid);
                    let expected = check(transport, from, to, mask);
                    let code = qp.modify(&mut attr, ibv_qp_attr_mask(mask.0));
                    assert_eq!(code == 0, expected.is_ok(), "{transport} {from} -> {to} with {mask}: {expected:?}");
                    assert!(code == 0 || code == EINVAL);
                    let now = if code == 0 { to } else { from };
                    assert_eq!(qp.state(), now.raw(), "a refusal changes nothing");
                }
            }
        }
    }
}

#[test]
fn refusals_name_the_attributes() {
    let refusal = check(Transport::Uc, State::Sqd, State::Sqd, AttrMask::STATE | AttrMask::PORT).unwrap_err();
    assert_eq!(refusal.not_allowed, AttrMask::PORT);
    assert_eq!(refusal.to_string(), "UC queue pair, SQD -> SQD: not allowed here IBV_QP_PORT");
    let refusal = check(Transport::Rc, State::Reset, State::Init, AttrMask::STATE | AttrMask::QKEY).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "RC queue pair, RESET -> INIT: missing IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT; \
         not allowed here IBV_QP_QKEY"
    );
    let refusal = check(Transport::Ud, State::Init, State::Rts, AttrMask::STATE).unwrap_err();
    assert_eq!(refusal.to_string(), "UD queue pair: no transition INIT -> RTS; from INIT go to RESET, ERR, INIT, RTR");
    assert!(check(Transport::Uc, State::Sqe, State::Rts, AttrMask::CUR_STATE | AttrMask::ACCESS_FLAGS).is_ok());
    assert!(check(Transport::RawPacket, State::Rtr, State::Rts, AttrMask::RATE_LIMIT).is_ok());
    assert!(check(Transport::RawPacket, State::Reset, State::Init, AttrMask::NONE).is_err());
    // A modification without a state stays in the current one.
    assert!(check(Transport::Rc, State::Rts, State::Rts, AttrMask::MIN_RNR_TIMER).is_ok());
    assert!(check(Transport::Rc, State::Init, State::Init, AttrMask::CUR_STATE).is_err());
}

proptest! {
    /// A mask is accepted exactly if it has all required attributes and no unknown ones.
    #[test]
    fn the_table_takes_required_and_optional_only(
        bits in any::<u32>(), from in 0u32..7, to in 0u32..7, t in 0usize..4,
    ) {
        let transport = [Transport::Rc, Transport::Uc, Transport::Ud, Transport::RawPacket][t];
        let (from, to) = (State::from_raw(from).unwrap(), State::from_raw(to).unwrap());
        let mask = AttrMask(bits & 0x3ff_ffff);
        let result = check(transport, from, to, mask);
        match verbline_softnic::qp_table::transition(from, to) {
            None => prop_assert!(!result.unwrap_err().exists),
            Some(row) => {
                let row = row.attributes(transport);
                prop_assert!((row.required.0 & row.optional.0) == 0);
                match result {
                    Ok(()) => {
                        let known = row.required | row.optional | AttrMask::STATE;
                        prop_assert!(mask.contains(row.required) && mask.without(known).is_empty());
                    }
                    Err(refusal) => {
                        // The attributes that it names are the whole fault.
                        let mended = (mask | refusal.missing).without(refusal.not_allowed);
                        prop_assert!(check(transport, from, to, mended).is_ok());
                    }
                }
            }
        }
    }
}

#[test]
fn wrong_values_are_refused() {
    let nic = Nic::open(0);
    let cq = nic.cq(64);
    let qp = nic.qp(IBV_QPT_RC, &cq, &cq);
    let init = m::IBV_QP_STATE | m::IBV_QP_PKEY_INDEX | m::IBV_QP_PORT | m::IBV_QP_ACCESS_FLAGS;
    let refused = |change: &dyn Fn(&mut ibv_qp_attr)| {
        let mut attr = valid_attr(IBV_QPS_INIT, IBV_QPS_RESET, &qp, 1);
        change(&mut attr);
        assert_eq!(qp.modify(&mut attr, init), EINVAL);
        assert_eq!(qp.state(), IBV_QPS_RESET);
    };
    refused(&|attr| attr.port_num = 2);
    refused(&|attr| attr.pkey_index = 1);
    refused(&|attr| attr.qp_access_flags = 1 << 9);
    refused(&|attr| attr.qp_state = 17);
    qp.to_init();
    let rtr = m::IBV_QP_STATE
        | m::IBV_QP_AV
        | m::IBV_QP_PATH_MTU
        | m::IBV_QP_DEST_QPN
        | m::IBV_QP_RQ_PSN
        | m::IBV_QP_MAX_DEST_RD_ATOMIC
        | m::IBV_QP_MIN_RNR_TIMER;
    let refused = |change: &dyn Fn(&mut ibv_qp_attr)| {
        let mut attr = valid_attr(IBV_QPS_RTR, IBV_QPS_INIT, &qp, 1);
        change(&mut attr);
        assert_eq!(qp.modify(&mut attr, rtr), EINVAL);
    };
    refused(&|attr| attr.path_mtu = 6);
    refused(&|attr| attr.ah_attr.port_num = 0);
    refused(&|attr| attr.dest_qp_num = 1 << 24);
    refused(&|attr| attr.min_rnr_timer = 32);
    refused(&|attr| attr.max_dest_rd_atomic = 255);
    refused(&|attr| (attr.ah_attr.is_global, attr.ah_attr.grh.sgid_index) = (1, 9));
    assert_eq!(qp.state(), IBV_QPS_INIT);
    // A wrong assumption of the current state.
    qp.to_rtr(qp.num(), 1);
    qp.to_rts();
    let mut wrong = attr(IBV_QPS_RTS);
    wrong.cur_qp_state = IBV_QPS_RTR;
    assert_eq!(qp.modify(&mut wrong, m::IBV_QP_STATE | m::IBV_QP_CUR_STATE), EINVAL);
}

#[test]
fn posting_by_state() {
    let nic = Nic::open(0);
    let cq = nic.cq(64);
    for qp_type in [IBV_QPT_RC, IBV_QPT_UC] {
        for state in State::ALL {
            if state == State::Sqe && qp_type == IBV_QPT_RC {
                continue;
            }
            let qp = qp_in(state.raw(), qp_type, &nic, &cq);
            let recv = qp.recv(1, &[]);
            assert_eq!(recv, if state == State::Reset { EINVAL } else { 0 }, "receive in {state}");
            let send = qp.post(&mut [Wr::send(2, SIGNALED, &[]), Wr::send(3, SIGNALED, &[])]);
            let done: Vec<(u64, u32)> = cq.poll_all().iter().map(|wc| (wc.wr_id, wc.status)).collect();
            match state {
                State::Reset | State::Init | State::Rtr => assert_eq!((send, done), (Err((EINVAL, 0)), vec![])),
                State::Rts if qp_type == IBV_QPT_UC => {
                    assert_eq!((send, done), (Ok(()), vec![(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]));
                }
                State::Rts => assert_eq!((send, done), (Ok(()), vec![(1, SUCCESS), (2, SUCCESS)])),
                State::Sqd => assert_eq!((send, done), (Ok(()), vec![])),
                State::Sqe => assert_eq!((send, done), (Ok(()), vec![(2, FLUSHED), (3, FLUSHED)])),
                State::Err => assert_eq!((send, done), (Ok(()), vec![(1, FLUSHED), (2, FLUSHED), (3, FLUSHED)])),
            }
        }
    }
}

#[test]
fn err_flushes_everything_once_in_order() {
    let pair = Pair::rc();
    for index in 0..5 {
        assert_eq!(pair.a.recv(index, &[pair.a_mem.sge(0, 64)]), 0);
    }
    // Pending for want of receives at the peer.
    for index in 10..13 {
        pair.a.post(&mut [Wr::send(index, 0, &[pair.a_mem.sge(0, 8)])]).unwrap();
    }
    pair.b.post(&mut [Wr::send(99, 0, &[pair.b_mem.sge(0, 8)])]).unwrap();
    assert_eq!(pair.a.to(IBV_QPS_ERR), 0);
    let recv: Vec<(u64, u32)> = pair.a_recv.poll_all().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(recv, [(0, SUCCESS), (1, FLUSHED), (2, FLUSHED), (3, FLUSHED), (4, FLUSHED)]);
    let send: Vec<(u64, u32)> = pair.a_send.poll_all().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(send, [(10, FLUSHED), (11, FLUSHED), (12, FLUSHED)]);
    // And later posts, at once.
    assert_eq!(pair.a.recv(6, &[]), 0);
    assert_eq!(pair.a_recv.poll().unwrap().status, FLUSHED);
    assert_eq!(pair.a.to(IBV_QPS_ERR), 0, "ERR to ERR is a transition");
    assert!(pair.a_recv.poll().is_none());
}

#[test]
fn reset_forgets_everything_and_the_pair_can_be_connected_again() {
    let pair = Pair::rc();
    for round in 0..3u64 {
        pair.b.recv(round, &[pair.b_mem.sge(0, 64)]);
        pair.b.recv(round, &[pair.b_mem.sge(0, 64)]);
        pair.a.post(&mut [Wr::send(round, SIGNALED, &[pair.a_mem.sge(0, 64)])]).unwrap();
        assert_eq!(pair.a.to(IBV_QPS_RESET), 0);
        assert_eq!(pair.b.to(IBV_QPS_RESET), 0);
        assert!(pair.a_send.poll().is_none(), "completions of before a reset are gone");
        assert!(pair.b_recv.poll().is_none());
        connect((&pair.a, 1), (&pair.b, 2));
        pair.b.recv(100 + round, &[pair.b_mem.sge(0, 64)]);
        pair.a.post(&mut [Wr::send(round, SIGNALED, &[pair.a_mem.sge(0, 64)])]).unwrap();
        assert_eq!(pair.b_recv.poll().unwrap().wr_id, 100 + round);
        assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
    }
}

#[test]
fn one_that_waits_for_a_receive_forgets_it_at_a_reset() {
    for through_err in [false, true] {
        let pair = Pair::rc();
        for round in 0..3u64 {
            // No receive: it waits, and is tried again whenever its queue is polled.
            pair.a.post(&mut [Wr::send(round, SIGNALED, &[pair.a_mem.sge(0, 64)])]).unwrap();
            assert!(pair.a_send.poll().is_none());
            if through_err {
                assert_eq!(pair.a.to(IBV_QPS_ERR), 0);
                assert_eq!(pair.a_send.poll().map(|wc| (wc.wr_id, wc.status)), Some((round, FLUSHED)));
            }
            assert_eq!((pair.a.to(IBV_QPS_RESET), pair.b.to(IBV_QPS_RESET)), (0, 0));
            connect((&pair.a, 1), (&pair.b, 2));
            for (wr_id, late) in [(100 + round, false), (200 + round, true)] {
                if !late {
                    pair.b.recv(wr_id, &[pair.b_mem.sge(0, 64)]);
                }
                pair.a.post(&mut [Wr::send(wr_id, SIGNALED, &[pair.a_mem.sge(0, 64)])]).unwrap();
                if late {
                    assert!(pair.a_send.poll().is_none() && pair.b_recv.poll().is_none());
                    pair.b.recv(wr_id, &[pair.b_mem.sge(0, 64)]);
                }
                assert_eq!((pair.b_recv.wait().wr_id, pair.a_send.wait().wr_id), (wr_id, wr_id));
            }
            assert!(pair.a_send.poll().is_none() && pair.b_recv.poll().is_none());
        }
    }
}

/// No event without a request, nor by the request of the time before.
#[test]
fn a_drained_queue_says_so_to_whoever_asked() {
    let pair = Pair::rc();
    let drain = |notify: u8| {
        let mut attr = attr(IBV_QPS_SQD);
        attr.en_sqd_async_notify = notify;
        assert_eq!(pair.a.modify(&mut attr, m::IBV_QP_STATE | m::IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
        let event = async_event(&pair.nic);
        assert_eq!(pair.a.to(IBV_QPS_RTS), 0);
        event
    };
    assert_eq!(pair.a.to(IBV_QPS_SQD), 0);
    assert_eq!((async_event(&pair.nic), pair.a.to(IBV_QPS_RTS)), (None, 0));
    assert_eq!([drain(0), drain(1), drain(0)], [None, Some(ibv_event_type::IBV_EVENT_SQ_DRAINED as u32), None]);
    // A request counts for one drain only.
    assert!(drain(1).is_some());
    assert_eq!(pair.a.to(IBV_QPS_SQD), 0);
    assert_eq!(async_event(&pair.nic), None);
}

/// Only the requesting program gets the event.
#[test]
fn sqd_finishes_what_was_begun() {
    let pair = Pair::rc();
    let drained = Some(ibv_event_type::IBV_EVENT_SQ_DRAINED as u32);
    for (notify, event) in [(1, drained), (0, None)] {
        pair.a.post(&mut [Wr::send(1, SIGNALED, &[]), Wr::send(2, SIGNALED, &[])]).unwrap();
        let mut sqd = attr(IBV_QPS_SQD);
        sqd.en_sqd_async_notify = notify;
        assert_eq!(pair.a.modify(&mut sqd, m::IBV_QP_STATE | m::IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
        assert_eq!((pair.a.query().sq_draining, async_event(&pair.nic)), (1, None));
        pair.b.recv(1, &[]);
        pair.b.recv(2, &[]);
        assert_eq!(pair.a_send.poll_all().iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1]);
        assert_eq!((async_event(&pair.nic), pair.a.query().sq_draining), (event, 0));
        assert_eq!(pair.a.to(IBV_QPS_RTS), 0);
        assert_eq!(pair.a_send.poll_all().iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [2]);
    }
}

#[test]
fn query_gives_what_was_set() {
    let pair = Pair::rc();
    let got = pair.a.query();
    assert_eq!((got.qp_state, got.dest_qp_num, got.ah_attr.dlid), (IBV_QPS_RTS, pair.b.num(), 2));
    assert_eq!((got.timeout, got.retry_cnt, got.rnr_retry, got.min_rnr_timer), (8, 1, 7, 1));
    assert_eq!((got.max_rd_atomic, got.max_dest_rd_atomic, got.port_num), (16, 16, 1));
    assert_eq!((got.cap.max_send_wr, got.cap.max_inline_data), (64, 128));
    assert_eq!(unsafe { (*pair.a.0).state }, IBV_QPS_RTS);
    assert_eq!(pair.a.to(IBV_QPS_SQD), 0);
    let mut same = attr(IBV_QPS_SQD);
    same.timeout = 9;
    assert_eq!((pair.a.modify(&mut same, m::IBV_QP_STATE | m::IBV_QP_TIMEOUT), pair.a.query().timeout), (0, 9));
}
