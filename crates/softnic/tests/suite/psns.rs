//! Packet sequence numbers: a message gets through only if its sender's number is the one that the
//! receiver expects.
use crate::harness::*;
use rdma_sys::ibv_event_type::IBV_EVENT_COMM_EST;
use rdma_sys::ibv_qp_state::*;
use rdma_sys::ibv_qp_type::*;
use rdma_sys::*;

const RETRY_EXC: u32 = ibv_wc_status::IBV_WC_RETRY_EXC_ERR;

/// A pair where `a` sends from `sent` on and `b` expects `expected`; the other direction agrees.
fn numbered(qp_type: u32, sent: u32, expected: u32) -> Pair {
    let pair = Pair::unconnected(qp_type, |_| {});
    connect_numbered(&pair, sent, expected);
    pair
}

fn connect_numbered(pair: &Pair, sent: u32, expected: u32) {
    pair.a.to_init();
    pair.b.to_init();
    pair.a.to_rtr_with(pair.b.num(), 2, |attr| attr.rq_psn = 7);
    pair.b.to_rtr_with(pair.a.num(), 1, |attr| attr.rq_psn = expected);
    pair.a.to_rts_with(|attr| attr.sq_psn = sent);
    pair.b.to_rts_with(|attr| attr.sq_psn = 7);
}

fn send(pair: &Pair, len: usize) -> Wc {
    assert_eq!(pair.b.recv(1, &[pair.b_mem.sge(0, 4096)]), 0);
    pair.a.post(&mut [Wr::send(2, SIGNALED, &[pair.a_mem.sge(0, len)])]).unwrap();
    pair.a_send.wait()
}

#[test]
fn numbers_that_agree_let_every_length_through() {
    for len in [1, 96, 97, 4096] {
        let pair = numbered(IBV_QPT_RC, 0xff_fffe, 0xff_fffe);
        assert_eq!(send(&pair, len).status, SUCCESS);
        assert_eq!(pair.b_recv.poll().unwrap().byte_len, len as u32);
        pair.a.recv(3, &[pair.a_mem.sge(0, 64)]);
        pair.b.post(&mut [Wr::send(4, SIGNALED, &[pair.b_mem.sge(0, 64)])]).unwrap();
        assert_eq!(pair.b_send.wait().status, SUCCESS);
    }
}

#[test]
fn numbers_that_do_not_agree_are_not_answered_on_rc() {
    for (sent, expected) in [(0x101, 0x100), (0x100, 0x101), (0, 0xff_ffff)] {
        for len in [1, 97] {
            let pair = numbered(IBV_QPT_RC, sent, expected);
            assert_eq!(send(&pair, len).status, RETRY_EXC, "{sent:x} to {expected:x}");
            assert_eq!((pair.a.state(), pair.b.state()), (IBV_QPS_ERR, IBV_QPS_RTS));
            assert!(pair.b_recv.poll().is_none());
            assert_ne!(async_event(&pair.other), Some(IBV_EVENT_COMM_EST as u32));
        }
    }
}

#[test]
fn one_sided_requests_are_not_answered_either() {
    let pair = numbered(IBV_QPT_RC, 5, 6);
    let remote = (pair.b_mem.addr(), pair.b_mem.key());
    let write = Wr::new(1, ibv_wr_opcode::IBV_WR_RDMA_WRITE, SIGNALED, &[pair.a_mem.sge(0, 8)]);
    pair.a_mem.fill(0, &[0xee; 8]);
    pair.a.post(&mut [write.remote(remote.0, remote.1)]).unwrap();
    assert_eq!(pair.a_send.wait().status, RETRY_EXC);
    assert_eq!(pair.b_mem.read(0, 8), [0; 8]);
}

#[test]
fn a_uc_receiver_takes_a_message_that_starts_anywhere() {
    let pair = numbered(IBV_QPT_UC, 0x101, 0x100);
    assert_eq!(send(&pair, 64).status, SUCCESS);
    assert_eq!(pair.b_recv.poll().unwrap().byte_len, 64);
}

#[test]
fn one_side_alone_does_not_start_anew() {
    for which in [0, 1] {
        let pair = numbered(IBV_QPT_RC, 5, 5);
        assert_eq!(send(&pair, 64).status, SUCCESS);
        let (qp, peer, lid) = if which == 0 { (&pair.a, &pair.b, 2) } else { (&pair.b, &pair.a, 1) };
        assert_eq!(qp.to(IBV_QPS_RESET), 0);
        qp.to_init();
        qp.to_rtr_with(peer.num(), lid, |attr| attr.rq_psn = 5);
        qp.to_rts_with(|attr| attr.sq_psn = 5);
        assert_eq!(send(&pair, 64).status, RETRY_EXC);
        for qp in [&pair.a, &pair.b] {
            assert_eq!(qp.to(IBV_QPS_RESET), 0);
        }
        connect_numbered(&pair, 9, 9);
        assert_eq!(send(&pair, 64).status, SUCCESS);
    }
}

/// A message that found no receive was not taken: its number is still the next one.
#[test]
fn a_receiver_that_took_nothing_may_start_anew() {
    let pair = numbered(IBV_QPT_RC, 5, 5);
    pair.a.post(&mut [Wr::send(2, SIGNALED, &[pair.a_mem.sge(0, 64)])]).unwrap();
    assert!(pair.a_send.poll().is_none());
    assert_eq!(pair.b.to(IBV_QPS_RESET), 0);
    pair.b.to_init();
    assert_eq!(pair.b.recv(1, &[pair.b_mem.sge(0, 4096)]), 0);
    pair.b.to_rtr_with(pair.a.num(), 1, |attr| attr.rq_psn = 5);
    assert_eq!(pair.a_send.wait().status, SUCCESS);
}

/// A sender that waits for its peer continues when the peer comes with the right number, and not
/// with a wrong one.
#[test]
fn a_peer_that_comes_later_is_compared_too() {
    for (expected, status) in [(5, SUCCESS), (6, RETRY_EXC)] {
        let pair = Pair::unconnected(IBV_QPT_RC, |_| {});
        pair.a.to_init();
        pair.b.to_init();
        assert_eq!(pair.b.recv(1, &[pair.b_mem.sge(0, 64)]), 0);
        pair.a.to_rtr(pair.b.num(), 2);
        pair.a.to_rts_with(|attr| (attr.sq_psn, attr.timeout) = (5, 14));
        pair.a.post(&mut [Wr::send(2, SIGNALED, &[pair.a_mem.sge(0, 64)])]).unwrap();
        assert!(pair.a_send.poll().is_none());
        pair.b.to_rtr_with(pair.a.num(), 1, |attr| attr.rq_psn = expected);
        assert_eq!(pair.a_send.wait().status, status);
    }
}

/// Another path doesn't affect the numbers.
#[test]
fn a_path_that_changes_before_the_first_message_keeps_the_comparison() {
    use ibv_qp_attr_mask as m;
    for (expected, status) in [(5, SUCCESS), (6, RETRY_EXC)] {
        let pair = numbered(IBV_QPT_RC, 5, expected);
        assert_eq!(pair.a.to(IBV_QPS_SQD), 0);
        let mut attr = attr(IBV_QPS_SQD);
        (attr.ah_attr.dlid, attr.ah_attr.port_num) = (2, 1);
        assert_eq!(pair.a.modify(&mut attr, m::IBV_QP_STATE | m::IBV_QP_AV), 0);
        assert_eq!(pair.a.to(IBV_QPS_RTS), 0);
        assert_eq!(send(&pair, 64).status, status);
    }
}
