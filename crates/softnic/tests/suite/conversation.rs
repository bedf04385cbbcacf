//! Conversations: one message at a time in flight, which then goes by the receiver's mailbox. Users
//! see the same as by the ring: order, completions, notification, and the effects of a reset.
use crate::harness::*;
use proptest::prelude::*;
use rdma_sys::*;
use std::collections::VecDeque;

fn post(from: (&Qp, &Memory), id: u64, len: usize) {
    from.1.fill(0, &pattern(len, id as u8));
    from.0.post(&mut [Wr::send(id, INLINE, &[from.1.sge(0, len)]).imm(id as u32)]).unwrap();
}

fn arrived(at: (&Cq, &Memory), id: u64, len: usize) {
    let got = at.0.poll().expect("a completion");
    assert_eq!((got.wr_id, got.status, got.byte_len), (id, SUCCESS, len as u32));
    assert_eq!(at.1.read(4096 + 128 * (id as usize % 64), len), pattern(len, id as u8), "message {id}");
}

fn recv(qp: &Qp, mem: &Memory, id: u64) {
    assert_eq!(qp.recv(id, &[mem.sge(4096 + 128 * (id as usize % 64), 128)]), 0);
}

/// Exchanges enough messages that each lone message goes by a mailbox from now on.
fn talk(pair: &Pair) {
    for id in 0..4 {
        recv(&pair.a, &pair.a_mem, id);
        recv(&pair.b, &pair.b_mem, id);
        post((&pair.a, &pair.a_mem), id, 40);
        arrived((&pair.b_recv, &pair.b_mem), id, 40);
        post((&pair.b, &pair.b_mem), id, 64);
        arrived((&pair.a_recv, &pair.a_mem), id, 64);
    }
}

#[test]
fn what_follows_the_message_in_the_mailbox_comes_after_it() {
    let pair = Pair::rc();
    talk(&pair);
    for id in 10..20 {
        recv(&pair.b, &pair.b_mem, id);
    }
    // The first by the mailbox, the others behind it by the ring: short, long, without bytes, in a
    // list.
    post((&pair.a, &pair.a_mem), 10, 1);
    post((&pair.a, &pair.a_mem), 11, 96);
    pair.a_mem.fill(0, &pattern(128, 12));
    pair.a.post(&mut [Wr::send(12, 0, &[pair.a_mem.sge(0, 128)])]).unwrap();
    pair.a.post(&mut [Wr::send(13, 0, &[]), Wr::send(14, 0, &[pair.a_mem.sge(0, 7)])]).unwrap();
    arrived((&pair.b_recv, &pair.b_mem), 10, 1);
    arrived((&pair.b_recv, &pair.b_mem), 11, 96);
    arrived((&pair.b_recv, &pair.b_mem), 12, 128);
    assert_eq!(pair.b_recv.poll_all().iter().map(|wc| (wc.wr_id, wc.byte_len)).collect::<Vec<_>>(), [(13, 0), (14, 7)]);
}

#[test]
fn a_reset_takes_what_is_in_the_mailbox_along() {
    let pair = Pair::rc();
    for _ in 0..3 {
        talk(&pair);
        recv(&pair.b, &pair.b_mem, 30);
        post((&pair.a, &pair.a_mem), 30, 64);
        for qp in [&pair.a, &pair.b] {
            assert_eq!(qp.to(ibv_qp_state::IBV_QPS_RESET), 0);
        }
        connect((&pair.a, 1), (&pair.b, 2));
    }
    assert!(pair.b_recv.poll().is_none());
}

#[test]
fn a_receiver_that_alone_was_reset_gets_its_messages_in_order() {
    // An RC sender would find that the peer doesn't expect its next message: see `psns.rs`.
    let pair = Pair::connected(ibv_qp_type::IBV_QPT_UC);
    talk(&pair);
    assert_eq!(pair.b.to(ibv_qp_state::IBV_QPS_RESET), 0);
    pair.b.bring_up(pair.a.num(), 1);
    for id in 40..50 {
        recv(&pair.b, &pair.b_mem, id);
    }
    for id in 40..50 {
        post((&pair.a, &pair.a_mem), id, 30);
    }
    for id in 40..50 {
        arrived((&pair.b_recv, &pair.b_mem), id, 30);
    }
}

#[test]
fn an_error_lets_what_is_in_the_mailbox_arrive_and_flushes_the_rest() {
    let pair = Pair::rc();
    talk(&pair);
    recv(&pair.b, &pair.b_mem, 30);
    recv(&pair.b, &pair.b_mem, 31);
    post((&pair.a, &pair.a_mem), 30, 64);
    assert_eq!(pair.b.to(ibv_qp_state::IBV_QPS_ERR), 0);
    arrived((&pair.b_recv, &pair.b_mem), 30, 64);
    let flushed = pair.b_recv.poll().unwrap();
    assert_eq!((flushed.wr_id, flushed.status), (31, ibv_wc_status::IBV_WC_WR_FLUSH_ERR));
    assert!(pair.b_recv.poll().is_none());
}

#[test]
fn memory_that_was_taken_away_is_not_written_by_the_poll() {
    let pair = Pair::rc();
    talk(&pair);
    let gone = pair.other.memory(4096);
    assert_eq!(pair.b.recv(30, &[gone.sge(0, 128)]), 0);
    post((&pair.a, &pair.a_mem), 30, 64);
    drop(gone);
    let got = pair.b_recv.poll().unwrap();
    assert_eq!((got.wr_id, got.status), (30, ibv_wc_status::IBV_WC_LOC_PROT_ERR));
    assert_eq!(pair.b.state(), ibv_qp_state::IBV_QPS_ERR);
}

#[test]
fn an_armed_queue_is_woken_by_the_mailbox() {
    let nic = Nic::open(0);
    let channel = Channel::new(&nic);
    let (a_cq, b_cq) = (nic.cq(64), nic.cq_on(64, channel.0));
    let a = nic.qp(ibv_qp_type::IBV_QPT_RC, &a_cq, &a_cq);
    let b = nic.qp(ibv_qp_type::IBV_QPT_RC, &b_cq, &b_cq);
    connect((&a, 1), (&b, 1));
    let mem = nic.memory(1 << 16);
    for id in 0..6 {
        recv(&a, &mem, id);
        recv(&b, &mem, id);
        b_cq.arm(false);
        assert!(b_cq.poll().is_none() && !channel.readable());
        post((&a, &mem), id, 64);
        assert!(channel.readable(), "message {id}");
        assert_eq!(channel.event(), b_cq.0);
        arrived((&b_cq, &mem), id, 64);
        post((&b, &mem), id, 64);
        arrived((&a_cq, &mem), id, 64);
    }
}

/// More queue pairs on one completion queue than it has mailboxes, recreated meanwhile.
#[test]
fn queue_pairs_come_and_go_on_one_completion_queue() {
    let nic = Nic::open(0);
    let (near, far) = (nic.cq(256), nic.cq(256));
    let mem = nic.memory(1 << 16);
    let connect = || {
        let a = nic.qp(ibv_qp_type::IBV_QPT_RC, &near, &near);
        let b = nic.qp(ibv_qp_type::IBV_QPT_RC, &far, &far);
        connect((&a, 1), (&b, 1));
        (a, b)
    };
    let mut pairs: VecDeque<_> = (0..6).map(|_| connect()).collect();
    for round in 0..40 {
        for (a, b) in &pairs {
            for _ in 0..3 {
                recv(a, &mem, 1);
                recv(b, &mem, 1);
                post((a, &mem), 1, 64);
                let got = far.poll().unwrap();
                assert_eq!((got.wr_id, got.qp_num), (1, b.num()));
                post((b, &mem), 1, 64);
                assert_eq!(near.poll().unwrap().qp_num, a.num());
            }
        }
        let (a, b) = pairs.pop_front().unwrap();
        recv(&b, &mem, 1);
        // Left behind, in the mailbox or in the ring.
        post((&a, &mem), 1, 64);
        if round % 2 == 0 {
            drop((b, a));
        } else {
            drop((a, b));
        }
        pairs.push_back(connect());
        if round % 3 == 0 {
            assert!(far.poll().is_none());
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Send { from: usize, len: usize },
    Poll(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lens = prop_oneof![1usize..89, Just(0), 89usize..128];
    let step = prop_oneof![
        1 => (0usize..2, lens).prop_map(|(from, len)| Step::Send { from, len }),
        2 => (0usize..2).prop_map(Step::Poll),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// For any sequence of sends and polls, each side gets the other's messages, in order.
    #[test]
    fn messages_stay_in_order(steps in steps()) {
        let pair = Pair::rc();
        let sides = [(&pair.a, &pair.a_mem, &pair.a_recv), (&pair.b, &pair.b_mem, &pair.b_recv)];
        let mut on_their_way = [VecDeque::new(), VecDeque::new()];
        let mut next = [0u64; 2];
        for step in steps {
            match step {
                Step::Send { from, len } => {
                    let to = 1 - from;
                    if on_their_way[to].len() == 32 {
                        continue;
                    }
                    let id = next[to];
                    next[to] += 1;
                    recv(sides[to].0, sides[to].1, id);
                    sides[from].1.fill(0, &pattern(len, id as u8));
                    let sges = if len == 0 { vec![] } else { vec![sides[from].1.sge(0, len)] };
                    sides[from].0.post(&mut [Wr::send(id, INLINE, &sges)]).unwrap();
                    on_their_way[to].push_back((id, len));
                }
                Step::Poll(at) => match on_their_way[at].pop_front() {
                    Some((id, len)) => arrived((sides[at].2, sides[at].1), id, len),
                    None => prop_assert!(sides[at].2.poll().is_none()),
                },
            }
        }
    }
}
