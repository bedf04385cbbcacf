//! Rules for work requests on the fast paths: each check there, on a connection past its first
//! message.
use crate::harness::*;
use crate::refusals::poll_at_once;
use rdma_sys::ibv_qp_state::IBV_QPS_ERR;
use rdma_sys::ibv_qp_type::{IBV_QPT_RC, IBV_QPT_UC};
use rdma_sys::ibv_wc_status::*;
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;

/// An opcode and a length for each path.
const PATHS: [(u32, usize); 5] =
    [(IBV_WR_SEND, 8), (IBV_WR_SEND, 96), (IBV_WR_SEND, 600), (IBV_WR_RDMA_WRITE, 600), (IBV_WR_RDMA_READ, 600)];

/// Sends the first message, which has no bytes.
fn warm(pair: Pair) -> Pair {
    assert_eq!(pair.b.recv(0, &[]), 0);
    pair.a.post(&mut [Wr::send(0, SIGNALED, &[])]).unwrap();
    assert_eq!((pair.a_send.wait().status, pair.b_recv.wait().status), (SUCCESS, SUCCESS));
    pair
}

fn warm_with(init: impl Fn(&mut ibv_qp_init_attr)) -> Pair {
    warm(Pair::connected_with(IBV_QPT_RC, init, |_| {}))
}

/// A list of `count` work requests with these flags, and a receive for each.
fn list(pair: &Pair, (opcode, len): (u32, usize), count: usize, flags: impl Fn(usize) -> u32) -> Vec<Wr> {
    let wr = |at| {
        pair.b.recv(at as u64, &[pair.b_mem.sge(0, 1000)]);
        let wr = Wr::new(at as u64, opcode, flags(at), &[pair.a_mem.sge(0, len)]);
        if opcode == IBV_WR_SEND { wr } else { wr.remote(pair.b_mem.addr(), pair.b_mem.key()) }
    };
    (0..count).map(wr).collect()
}

#[test]
fn a_queue_pair_that_was_made_for_no_elements_takes_none() {
    for path in PATHS {
        for count in [1, 2] {
            let pair = warm_with(|init| init.cap.max_send_sge = 0);
            assert_eq!(pair.a.post(&mut list(&pair, path, count, |_| 0)), Err((libc::EINVAL, 0)), "{path:?}");
        }
    }
}

#[test]
fn sq_sig_all_signals_everything() {
    for path in PATHS {
        for count in [1, 3] {
            let pair = warm_with(|init| init.sq_sig_all = 1);
            pair.a.post(&mut list(&pair, path, count, |_| 0)).unwrap();
            let ids: Vec<u64> = pair.a_send.poll_all().iter().map(|wc| wc.wr_id).collect();
            assert_eq!(ids, (0..count as u64).collect::<Vec<_>>(), "{path:?}");
        }
    }
}

#[test]
fn a_list_fills_the_queue_and_no_more_and_its_last_completion_frees_all_of_it() {
    for path in PATHS {
        let pair = warm_with(|init| init.cap.max_send_wr = 4);
        for _ in 0..3 {
            let last = |at| if at == 3 { SIGNALED } else { 0 };
            assert_eq!(pair.a.post(&mut list(&pair, path, 5, last)), Err((libc::ENOMEM, 4)), "{path:?}");
            assert_eq!(pair.a_send.poll_all().iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [3], "{path:?}");
            pair.b_recv.poll_all();
        }
    }
}

#[test]
fn a_receive_of_pieces_is_filled_in_order_behind_others_that_are_polled_with_it() {
    for len in [8, 40, 96] {
        let pair = warm(Pair::rc());
        pair.b_mem.fill(0, &[0xee; 2048]);
        pair.a_mem.fill(0, &pattern(len, 3));
        assert_eq!(pair.b.recv(1, &[pair.b_mem.sge(0, 100)]), 0);
        assert_eq!(pair.b.recv(2, &[pair.b_mem.sge(200, 4), pair.b_mem.sge(400, 100)]), 0);
        pair.a.post(&mut [1, 2].map(|id| Wr::send(id, 0, &[pair.a_mem.sge(0, len)]))).unwrap();
        assert_eq!(poll_at_once(&pair.b_recv).iter().map(|wc| wc.status).collect::<Vec<_>>(), [SUCCESS; 2]);
        let got = [(0, len), (200, 4), (400, len - 4), (204, 90)].map(|(at, len)| pair.b_mem.read(at, len));
        let sent = pattern(len, 3);
        assert_eq!(got, [sent.clone(), sent[..4].to_vec(), sent[4..].to_vec(), vec![0xee; 90]], "{len} B");
    }
}

#[test]
fn each_piece_of_a_receive_must_be_writable() {
    for (len, is_first) in [(8, true), (8, false), (96, true), (96, false), (600, true), (600, false)] {
        let pair = warm(Pair::rc());
        let read_only = pair.other.memory_with(4096, 0);
        let mut pieces = [read_only.sge(0, 4), pair.b_mem.sge(0, 1000)];
        if !is_first {
            pieces = [pair.b_mem.sge(0, 4), read_only.sge(0, 1000)];
        }
        assert_eq!(pair.b.recv(1, &pieces), 0);
        pair.a.post(&mut [Wr::send(2, 0, &[pair.a_mem.sge(0, len)])]).unwrap();
        let statuses = (pair.a_send.wait().status, pair.b_recv.wait().status);
        assert_eq!(statuses, (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR), "{len} B, {is_first}");
    }
}

#[test]
fn a_key_that_is_to_be_invalidated_must_be_one() {
    for len in [8, 96, 600] {
        let pair = warm(Pair::rc());
        assert_eq!(pair.b.recv(1, &[pair.b_mem.sge(0, 1000)]), 0);
        let wr = Wr::new(2, IBV_WR_SEND_WITH_INV, 0, &[pair.a_mem.sge(0, len)]).imm(0x00ff_ff00);
        pair.a.post(&mut [wr]).unwrap();
        let statuses = (pair.a_send.wait().status, pair.b_recv.wait().status);
        assert_eq!(statuses, (IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR), "{len} B");
    }
}

#[test]
fn immediate_data_arrives_behind_a_write_without() {
    let pair = warm(Pair::rc());
    let mut wrs = list(&pair, (IBV_WR_RDMA_WRITE, 600), 2, |_| 0);
    wrs[1].raw.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wrs[1].raw.imm_data_invalidated_rkey_union.imm_data = 0x1234;
    pair.a.post(&mut wrs).unwrap();
    let got: Vec<_> = pair.b_recv.poll_all().iter().map(|wc| (wc.opcode, wc.imm)).collect();
    assert_eq!(got, [(ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM, 0x1234)]);
}

#[test]
fn a_read_needs_rc_and_room_on_both_sides_and_is_not_inline() {
    let read = |pair: &Pair, flags| pair.a.post(&mut list(pair, (IBV_WR_RDMA_READ, 100), 1, |_| flags));
    assert_eq!(read(&warm(Pair::connected(IBV_QPT_UC)), 0), Err((libc::EINVAL, 0)));
    assert_eq!(read(&warm(Pair::rc()), INLINE), Err((libc::EINVAL, 0)));
    let pair = warm(Pair::connected_with(IBV_QPT_RC, |_| {}, |rts| rts.max_rd_atomic = 0));
    read(&pair, 0).unwrap();
    assert_eq!(pair.a_send.wait().status, IBV_WC_LOC_QP_OP_ERR);
    let pair = Pair::unconnected(IBV_QPT_RC, |_| {});
    for (qp, peer, lid) in [(&pair.a, &pair.b, 2), (&pair.b, &pair.a, 1)] {
        qp.to_init();
        qp.to_rtr_with(peer.num(), lid, |rtr| rtr.max_dest_rd_atomic = 0);
        qp.to_rts();
    }
    let pair = warm(pair);
    read(&pair, 0).unwrap();
    assert_eq!(pair.a_send.wait().status, IBV_WC_REM_INV_REQ_ERR);
}

/// A lost completion ends its queue pair, on every path.
#[test]
fn an_overrun_is_never_silent() {
    for path in PATHS {
        for (count, at_sender) in [(1, true), (20, true), (1, false), (20, false)] {
            let is_received = path.0 == IBV_WR_SEND;
            if !at_sender && !is_received {
                continue;
            }
            let mut pair = Pair::unconnected(IBV_QPT_RC, |_| {});
            // Eight slots.
            if at_sender {
                let small = pair.nic.cq(1);
                pair.a = pair.nic.qp(IBV_QPT_RC, &small, &pair.a_recv);
                pair.a_send = small;
            } else {
                let small = pair.other.cq(1);
                pair.b = pair.other.qp(IBV_QPT_RC, &pair.b_send, &small);
                pair.b_recv = small;
            }
            connect((&pair.a, 1), (&pair.b, 2));
            let pair = warm(pair);
            let flags = if at_sender { SIGNALED } else { 0 };
            for _ in 0..20 / count {
                // Once it has failed, the rest is flushed.
                let _ = pair.a.post(&mut list(&pair, path, count, |_| flags));
            }
            let failed = if at_sender { &pair.a } else { &pair.b };
            assert_eq!(failed.state(), IBV_QPS_ERR, "{path:?}, {count}, {at_sender}");
        }
    }
}

/// What is behind it is flushed: a queue pair that has ended writes no more.
#[test]
fn nothing_is_carried_out_behind_a_lost_completion() {
    const BYTES: usize = 4096;
    for (opcode, most) in [(IBV_WR_RDMA_WRITE, 9), (IBV_WR_RDMA_READ, 9), (IBV_WR_SEND, 16)] {
        let mut pair = Pair::unconnected(IBV_QPT_RC, |_| {});
        // Eight slots; SENDs of this length are carried out by eights.
        let small = pair.nic.cq(1);
        pair.a = pair.nic.qp(IBV_QPT_RC, &small, &pair.a_recv);
        pair.a_send = small;
        connect((&pair.a, 1), (&pair.b, 2));
        let pair = warm(pair);
        let (near, far) = (pair.nic.memory(24 * BYTES), pair.other.memory(24 * BYTES));
        let (from, to) = if opcode == IBV_WR_RDMA_READ { (&far, &near) } else { (&near, &far) };
        from.fill(0, &[1; 24 * BYTES]);
        let wr = |at| {
            pair.b.recv(at as u64, &[far.sge(at * BYTES, BYTES)]);
            let wr = Wr::new(at as u64, opcode, SIGNALED, &[near.sge(at * BYTES, BYTES)]);
            if opcode == IBV_WR_SEND { wr } else { wr.remote(far.addr() + (at * BYTES) as u64, far.key()) }
        };
        pair.a.post(&mut (0..24).map(wr).collect::<Vec<_>>()).unwrap();
        let done = (0..24).filter(|at| to.read(at * BYTES, BYTES) == [1; BYTES]).count();
        assert!((8..=most).contains(&done), "{opcode}: {done} of 24");
        assert_eq!(pair.a.state(), IBV_QPS_ERR);
    }
}

/// One poll that finds messages and the completion of a send frees the receives of all of them.
#[test]
fn receives_are_free_whatever_else_the_poll_has_found() {
    for len in [8, 96, 600] {
        for first in [true, false] {
            let mut pair = Pair::unconnected(IBV_QPT_RC, |init| init.cap.max_recv_wr = 2);
            let both = pair.other.cq(64);
            pair.b = pair.other.qp_with(IBV_QPT_RC, &both, &both, |init| init.cap.max_recv_wr = 2);
            (pair.b_send, pair.b_recv) = (pair.other.cq(1), both);
            connect((&pair.a, 1), (&pair.b, 2));
            let pair = warm(pair);
            let send = |pair: &Pair| {
                pair.a.recv(9, &[pair.a_mem.sge(0, 1000)]);
                pair.b.post(&mut [Wr::send(9, SIGNALED, &[pair.b_mem.sge(0, len)])]).unwrap();
            };
            for round in 0..9 {
                for id in [1, 2] {
                    assert_eq!(pair.b.recv(id, &[pair.b_mem.sge(0, 1000)]), 0, "{len} B, {first}, round {round}");
                }
                if first {
                    send(&pair);
                }
                pair.a.post(&mut [1, 2].map(|id| Wr::send(id, 0, &[pair.a_mem.sge(0, len)]))).unwrap();
                if !first {
                    send(&pair);
                }
                assert_eq!(poll_at_once(&pair.b_recv).len(), 3);
                pair.a_recv.poll_all();
            }
        }
    }
}

/// Messages to several queue pairs lie behind one another in one queue.
#[test]
fn receives_are_free_of_each_queue_pair_that_a_poll_has_found_messages_of() {
    for len in [8, 96, 600] {
        let pair = Pair::rc();
        let pairs = [0, 1].map(|_| {
            let b = pair.other.qp_with(IBV_QPT_RC, &pair.b_send, &pair.b_recv, |init| init.cap.max_recv_wr = 2);
            let a = pair.nic.qp(IBV_QPT_RC, &pair.a_send, &pair.a_recv);
            connect((&a, 1), (&b, 2));
            (a, b)
        });
        for round in 0..9 {
            for (a, b) in &pairs {
                for id in [1, 2] {
                    assert_eq!(b.recv(id, &[pair.b_mem.sge(0, 1000)]), 0, "{len} B, round {round}");
                }
                a.post(&mut [1, 2].map(|id| Wr::send(id, 0, &[pair.a_mem.sge(0, len)]))).unwrap();
            }
            assert_eq!(poll_at_once(&pair.b_recv).len(), 4);
        }
    }
}
