//! Shared receive queues.
use crate::harness::*;
use rdma_sys::ibv_qp_type::*;
use rdma_sys::*;
use std::ptr::null_mut;
use verbline_softnic::provider as soft;

struct Srq(*mut ibv_srq);

impl Srq {
    fn new(nic: &Nic, max_wr: u32) -> Srq {
        let mut init =
            ibv_srq_init_attr { srq_context: null_mut(), attr: ibv_srq_attr { max_wr, max_sge: 2, srq_limit: 0 } };
        let srq = unsafe { soft::ibv_create_srq(nic.pd, &mut init) };
        assert!(!srq.is_null());
        Srq(srq)
    }
    fn post(&self, wr_id: u64, sge: ibv_sge) -> i32 {
        let mut sge = sge;
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        let mut bad = null_mut();
        unsafe { ibv_post_srq_recv(self.0, &mut wr, &mut bad) }
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(unsafe { soft::ibv_destroy_srq(self.0) }, 0);
        }
    }
}

struct Rig {
    senders: Vec<Qp>,
    receivers: Vec<Qp>,
    srq: Srq,
    send: Cq,
    recv: Cq,
    mem: Memory,
    nic: Nic,
}

fn rig(count: usize, depth: u32) -> Rig {
    let nic = Nic::open(0);
    let (send, recv) = (nic.cq(256), nic.cq(256));
    let srq = Srq::new(&nic, depth);
    let mem = nic.memory(1 << 16);
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let a = nic.qp(IBV_QPT_RC, &send, &send);
        let b = nic.qp_with(IBV_QPT_RC, &send, &recv, |init| init.srq = srq.0);
        connect((&a, 1), (&b, 1));
        senders.push(a);
        receivers.push(b);
    }
    Rig { senders, receivers, srq, send, recv, mem, nic }
}

#[test]
fn each_receive_goes_to_one_message_of_any_queue_pair() {
    let rig = rig(3, 16);
    for wr_id in 0..6 {
        assert_eq!(rig.srq.post(wr_id, rig.mem.sge(wr_id as usize * 1000, 1000)), 0);
    }
    let mut bad = null_mut();
    let mut wr = ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
    assert_eq!(unsafe { ibv_post_recv(rig.receivers[0].0, &mut wr, &mut bad) }, libc::EINVAL);
    for (index, len) in [8usize, 64, 500, 8, 64, 500].into_iter().enumerate() {
        rig.mem.fill(30_000, &pattern(len, index as u8));
        rig.senders[index % 3].post(&mut [Wr::send(1, 0, &[rig.mem.sge(30_000, len)])]).unwrap();
        let got = rig.recv.poll().unwrap();
        assert_eq!((got.wr_id, got.qp_num, got.byte_len), (index as u64, rig.receivers[index % 3].num(), len as u32));
        assert_eq!(rig.mem.read(index * 1000, len), pattern(len, index as u8));
    }
    // More receives than the queue's length pass through it.
    for round in 0..100u64 {
        assert_eq!(rig.srq.post(round, rig.mem.sge(0, 100)), 0);
        rig.senders[0].post(&mut [Wr::send(1, SIGNALED, &[rig.mem.sge(0, 8)])]).unwrap();
        assert_eq!((rig.recv.poll().unwrap().wr_id, rig.send.poll().unwrap().status), (round, SUCCESS));
    }
}

#[test]
fn a_full_queue_refuses_until_a_completion_is_polled() {
    let rig = rig(1, 2);
    let post = || rig.srq.post(1, rig.mem.sge(0, 64));
    assert_eq!([post(), post(), post()], [0, 0, libc::ENOMEM]);
    rig.senders[0].post(&mut [Wr::send(1, 0, &[])]).unwrap();
    assert_eq!(post(), libc::ENOMEM);
    assert!(rig.recv.poll().is_some());
    assert_eq!(post(), 0);
}

#[test]
fn senders_that_wait_are_started_by_a_post() {
    let rig = rig(3, 16);
    for (index, sender) in rig.senders.iter().enumerate() {
        sender.post(&mut [Wr::send(index as u64, SIGNALED, &[rig.mem.sge(0, 8)])]).unwrap();
    }
    assert!(rig.recv.poll().is_none());
    for _ in 0..3 {
        assert_eq!(rig.srq.post(1, rig.mem.sge(0, 64)), 0);
        assert!(rig.recv.poll().is_some());
    }
    assert_eq!(rig.send.poll_all().len(), 3);
}

#[test]
fn senders_that_wait_are_served_in_turn() {
    let rig = rig(3, 16);
    for sender in &rig.senders {
        for wr_id in 0..8 {
            sender.post(&mut [Wr::send(wr_id, SIGNALED, &[rig.mem.sge(0, 8)])]).unwrap();
        }
    }
    // A sender with more to send than the others can't take all receives.
    let mut served = [0; 3];
    for _ in 0..9 {
        assert_eq!(rig.srq.post(1, rig.mem.sge(0, 64)), 0);
        let got = rig.recv.poll().unwrap();
        served[rig.receivers.iter().position(|qp| qp.num() == got.qp_num).unwrap()] += 1;
    }
    assert_eq!(served, [3; 3]);
}

/// Completions of a queue pair that is gone, or was reset, before they were polled: each `wr_id`
/// comes back once, by the next poll.
#[test]
fn receives_that_nobody_polls_come_back_with_their_queue_pair() {
    let mut rig = rig(2, 4);
    for round in 0..6 {
        let left_by = rig.receivers[1].num();
        for wr_id in 0..4 {
            assert_eq!(rig.srq.post(wr_id, rig.mem.sge(0, 64)), 0, "round {round}");
        }
        assert_eq!(rig.srq.post(1, rig.mem.sge(0, 64)), libc::ENOMEM);
        for sender in [0, 1, 1, 1] {
            rig.senders[sender].post(&mut [Wr::send(1, 0, &[rig.mem.sge(0, 8)])]).unwrap();
        }
        // The other queue pair's completion is still there.
        if round % 2 == 0 {
            assert_eq!(rig.receivers[1].to(ibv_qp_state::IBV_QPS_RESET), 0);
            assert_eq!(rig.senders[1].to(ibv_qp_state::IBV_QPS_RESET), 0);
        } else {
            rig.receivers[1] = rig.nic.qp_with(IBV_QPT_RC, &rig.send, &rig.recv, |init| init.srq = rig.srq.0);
            rig.senders[1] = rig.nic.qp(IBV_QPT_RC, &rig.send, &rig.send);
        }
        let got = rig.recv.poll_all();
        let told = |wc: &Wc| (wc.wr_id, wc.qp_num, wc.status, wc.opcode);
        let recv = ibv_wc_opcode::IBV_WC_RECV;
        assert_eq!(told(&got[0]), (0, rig.receivers[0].num(), SUCCESS, recv));
        let mut left: Vec<_> = got[1..].iter().map(told).collect();
        left.sort_unstable();
        assert_eq!(left, [1, 2, 3].map(|wr_id| (wr_id, left_by, FLUSHED, recv)), "round {round}");
        connect((&rig.senders[1], 1), (&rig.receivers[1], 1));
    }
}

/// Its receives are in its own protection domain, whatever those of its queue pairs.
#[test]
fn receives_are_checked_against_the_domain_of_the_shared_queue() {
    for len in [8, 64, 600] {
        for is_its in [true, false] {
            let (nic, owner) = (Nic::open(0), Nic::open(0));
            let (send, recv) = (nic.cq(64), nic.cq(64));
            let srq = Srq::new(&owner, 4);
            let (theirs, ours) = (owner.memory(4096), nic.memory(4096));
            let a = nic.qp(IBV_QPT_RC, &send, &send);
            let b = nic.qp_with(IBV_QPT_RC, &send, &recv, |init| init.srq = srq.0);
            connect((&a, 1), (&b, 1));
            let memory = if is_its { &theirs } else { &ours };
            assert_eq!(srq.post(1, memory.sge(0, 1000)), 0);
            ours.fill(2000, &pattern(len, 1));
            a.post(&mut [Wr::send(1, SIGNALED, &[ours.sge(2000, len)])]).unwrap();
            let (got, sent) = (recv.wait().status, send.wait().status);
            let denied = (ibv_wc_status::IBV_WC_LOC_PROT_ERR, ibv_wc_status::IBV_WC_REM_OP_ERR);
            assert_eq!((got, sent), if is_its { (SUCCESS, SUCCESS) } else { denied }, "{len} B, {is_its}");
            assert_eq!(memory.read(0, len), if is_its { pattern(len, 1) } else { vec![0; len] });
        }
    }
}
