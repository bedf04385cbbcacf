//! Memory windows, local and remote invalidation.
use crate::harness::*;
use rdma_sys::ibv_mw_type::*;
use rdma_sys::ibv_wc_status::*;
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;
use std::sync::atomic::{AtomicU32, Ordering};
use verbline_softnic::provider as soft;

pub(crate) fn info(mem: &Memory, offset: u64, length: u64, access: u32) -> ibv_mw_bind_info {
    ibv_mw_bind_info { mr: mem.mr, addr: mem.addr() + offset, length, mw_access_flags: access }
}

pub(crate) fn bind_wr(mw: &Mw, rkey: u32, bind_info: ibv_mw_bind_info) -> Wr {
    let mut wr = Wr::new(1, IBV_WR_BIND_MW, SIGNALED, &[]);
    wr.raw.bind_mw_tso_union.bind_mw = bind_mw_t { mw: mw.0, rkey, bind_info };
    wr
}

/// Binds a type 2 window on `b` with a work request, and keeps the handle's key.
fn bind(pair: &Pair, mw: &Mw, rkey: u32, info: ibv_mw_bind_info) -> u32 {
    let status = bind_with_stale_handle(pair, mw, rkey, info);
    mw.set_rkey(rkey);
    status
}

/// Like [`bind`], but leaves the old key in the handle.
fn bind_with_stale_handle(pair: &Pair, mw: &Mw, rkey: u32, info: ibv_mw_bind_info) -> u32 {
    pair.b.post(&mut [bind_wr(mw, rkey, info)]).unwrap();
    let done = pair.b_send.wait();
    assert_eq!(done.opcode, ibv_wc_opcode::IBV_WC_BIND_MW);
    done.status
}

fn write(pair: &Pair, offset: u64, rkey: u32) -> u32 {
    let wr = Wr::new(1, IBV_WR_RDMA_WRITE, SIGNALED, &[pair.a_mem.sge(0, 8)]);
    pair.a.post(&mut [wr.remote(pair.b_mem.addr() + offset, rkey)]).unwrap();
    pair.a_send.wait().status
}

/// Memory that its own side may only read can be lent for reading, and for nothing else.
#[test]
fn a_window_for_reading_needs_no_right_to_write() {
    for (access, status) in
        [(REMOTE_READ, SUCCESS), (REMOTE_WRITE, IBV_WC_MW_BIND_ERR), (REMOTE_ATOMIC, IBV_WC_MW_BIND_ERR)]
    {
        let pair = Pair::rc();
        let memory = pair.other.memory_with(4096, MW_BIND | REMOTE_READ);
        let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
        assert_eq!(bind(&pair, &mw, mw.rkey(), info(&memory, 0, 64, access)), status, "{access}");
    }
}

#[test]
fn a_window_is_checked() {
    let cases: [(&str, u64, u32); 3] = [
        ("before it", 56, REMOTE_WRITE),
        ("across its end", 124, REMOTE_WRITE),
        ("without the right", 64, REMOTE_READ),
    ];
    for (name, at, access) in cases {
        let pair = Pair::rc();
        let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
        assert_eq!(bind(&pair, &mw, mw.rkey(), info(&pair.b_mem, 64, 64, access)), SUCCESS);
        assert_eq!(write(&pair, at, mw.rkey()), IBV_WC_REM_ACCESS_ERR, "{name}");
    }
    // Its last bytes are open; its key isn't an L_Key.
    let pair = Pair::rc();
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
    assert_eq!(bind(&pair, &mw, mw.rkey(), info(&pair.b_mem, 64, 64, REMOTE_WRITE)), SUCCESS);
    assert_eq!(write(&pair, 120, mw.rkey()), SUCCESS, "up to its end");
    let mut sge = pair.b_mem.sge(64, 8);
    sge.lkey = mw.rkey();
    pair.b.post(&mut [Wr::send(1, 0, &[sge])]).unwrap();
    assert_eq!(pair.b_send.wait().status, IBV_WC_LOC_PROT_ERR);
}

#[test]
fn a_bind_is_refused_where_it_grants_more_than_its_region() {
    let refused = |change: &dyn Fn(&Pair, &mut ibv_mw_bind_info, &mut u32)| {
        let pair = Pair::rc();
        let no_bind = pair.other.memory_with(64, LOCAL_WRITE);
        let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
        let (mut to, mut rkey) = (info(&pair.b_mem, 0, 64, REMOTE_WRITE), mw.rkey());
        change(&pair, &mut to, &mut rkey);
        if to.mr.is_null() {
            to = info(&no_bind, 0, 64, REMOTE_READ);
        }
        assert_eq!(bind(&pair, &mw, rkey, to), IBV_WC_MW_BIND_ERR);
        assert_eq!(pair.b.state(), ibv_qp_state::IBV_QPS_ERR);
    };
    refused(&|_, to, _| to.length = (1 << 16) + 1);
    refused(&|_, to, _| to.addr -= 8);
    refused(&|_, to, _| to.mr = std::ptr::null_mut());
    refused(&|pair, to, _| (to.mr, to.addr) = (pair.a_mem.mr, pair.a_mem.addr()));
    refused(&|_, _, rkey| *rkey ^= 1 << 8);
    refused(&|_, to, _| to.mw_access_flags = LOCAL_WRITE);
}

#[test]
fn a_type_2_window_is_its_queue_pairs_and_is_invalidated() {
    let pair = Pair::rc();
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
    // The caller chooses the low eight bits.
    let key = mw.rkey() & !0xff | 0x77;
    let to = || info(&pair.b_mem, 0, 64, REMOTE_WRITE);
    assert_eq!(bind(&pair, &mw, key, to()), SUCCESS);
    assert_eq!(write(&pair, 0, key), SUCCESS);
    assert_eq!(local_inv(&pair, key), (ibv_wc_opcode::IBV_WC_LOCAL_INV, SUCCESS));
    // Bound again, and invalidated by the peer's message.
    assert_eq!(bind(&pair, &mw, key + 1, to()), SUCCESS);
    pair.b.recv(4, &[pair.b_mem.sge(128, 64)]);
    let wr = Wr::new(2, IBV_WR_SEND_WITH_INV, SIGNALED, &[pair.a_mem.sge(0, 8)]).imm(key + 1);
    pair.a.post(&mut [wr]).unwrap();
    assert_eq!(pair.a_send.wait().status, SUCCESS);
    let got = pair.b_recv.poll().unwrap();
    assert_eq!((got.flags, got.imm), (ibv_wc_flags::IBV_WC_WITH_INV.0, key + 1));
    assert_eq!(write(&pair, 0, key + 1), IBV_WC_REM_ACCESS_ERR);

    // Another queue pair's key.
    let pair = Pair::rc();
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
    let owner = Pair::rc();
    let stranger = pair.other.qp(ibv_qp_type::IBV_QPT_RC, &pair.b_send, &pair.b_recv);
    stranger.bring_up(owner.a.num(), 1);
    stranger.post(&mut [bind_wr(&mw, mw.rkey(), info(&pair.b_mem, 0, 64, REMOTE_WRITE))]).unwrap();
    assert_eq!(pair.b_send.wait().status, SUCCESS);
    assert_eq!(write(&pair, 0, mw.rkey()), IBV_WC_REM_ACCESS_ERR);
}

#[test]
fn a_bind_whose_handle_is_stale_is_refused() {
    let to = |pair: &Pair| info(&pair.b_mem, 0, 64, REMOTE_WRITE);
    // Type 2: the program did not keep the handle's key.
    let pair = Pair::rc();
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
    let (first, second) = (mw.rkey(), mw.rkey() + 1);
    assert_eq!(bind_with_stale_handle(&pair, &mw, second, to(&pair)), SUCCESS);
    assert_eq!(local_inv(&pair, second).1, SUCCESS);
    assert_eq!(bind_with_stale_handle(&pair, &mw, first + 2, to(&pair)), IBV_WC_MW_BIND_ERR);
    assert_eq!(pair.b.state(), ibv_qp_state::IBV_QPS_ERR);
    // With its key restored the window works as before.
    restart(&pair);
    mw.set_rkey(second);
    assert_eq!(bind(&pair, &mw, first, to(&pair)), SUCCESS, "a key may come back");
    assert_eq!(write(&pair, 0, first), SUCCESS);

    // Type 1: a bind that fails leaves the handle with a key that was never current.
    let pair = Pair::rc();
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_1);
    let good = mw.rkey();
    let bind_1 = |length| {
        let mut bind =
            ibv_mw_bind { wr_id: 3, send_flags: SIGNALED, bind_info: info(&pair.b_mem, 0, length, REMOTE_WRITE) };
        assert_eq!(unsafe { ibv_bind_mw(pair.b.0, mw.0, &mut bind) }, 0);
        pair.b_send.wait().status
    };
    assert_eq!(bind_1((1 << 16) + 1), IBV_WC_MW_BIND_ERR);
    assert_ne!(mw.rkey(), good);
    restart(&pair);
    assert_eq!(bind_1(64), IBV_WC_MW_BIND_ERR);
    restart(&pair);
    mw.set_rkey(good);
    assert_eq!(bind_1(64), SUCCESS);
    assert_eq!(write(&pair, 0, mw.rkey()), SUCCESS);
}

#[test]
fn binds_that_wait_go_by_what_their_handles_said_when_they_were_posted() {
    let pair = Pair::rc();
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_1);
    let mut seen = vec![mw.rkey()];
    // The peer has no receive, so the work requests behind the message wait.
    pair.b.post(&mut [Wr::send(9, SIGNALED, &[pair.b_mem.sge(0, 8)])]).unwrap();
    for offset in [0, 64, 128] {
        let mut bind =
            ibv_mw_bind { wr_id: offset, send_flags: SIGNALED, bind_info: info(&pair.b_mem, offset, 64, REMOTE_WRITE) };
        assert_eq!(unsafe { ibv_bind_mw(pair.b.0, mw.0, &mut bind) }, 0);
        assert!(!seen.contains(&mw.rkey()), "each bind gives a key of its own");
        seen.push(mw.rkey());
    }
    assert!(pair.b_send.poll().is_none());
    pair.a.recv(4, &[pair.a_mem.sge(0, 64)]);
    let done: Vec<_> = (0..4).map(|_| pair.b_send.wait()).map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(done, [(9, SUCCESS), (0, SUCCESS), (64, SUCCESS), (128, SUCCESS)]);
    assert_eq!(write(&pair, 128, mw.rkey()), SUCCESS);
    assert_eq!(write(&pair, 64, seen[2]), IBV_WC_REM_ACCESS_ERR);
}

/// Moves both queue pairs through RESET to RTS again.
fn restart(pair: &Pair) {
    for qp in [&pair.a, &pair.b] {
        assert_eq!(qp.to(ibv_qp_state::IBV_QPS_RESET), 0);
    }
    connect((&pair.a, 1), (&pair.b, 2));
}

fn local_inv(pair: &Pair, rkey: u32) -> (u32, u32) {
    let mut wr = Wr::new(1, IBV_WR_LOCAL_INV, SIGNALED, &[]);
    wr.raw.imm_data_invalidated_rkey_union.invalidated_rkey = rkey;
    pair.b.post(&mut [wr]).unwrap();
    let done = pair.b_send.wait();
    (done.opcode, done.status)
}

#[test]
fn only_a_window_of_the_queue_pair_can_be_invalidated() {
    let pair = Pair::rc();
    pair.b.recv(4, &[]);
    let wr = Wr::new(2, IBV_WR_SEND_WITH_INV, 0, &[]).imm(pair.b_mem.key());
    pair.a.post(&mut [wr]).unwrap();
    assert_eq!(pair.a_send.wait().status, IBV_WC_REM_ACCESS_ERR);
    assert_eq!(async_event(&pair.other), Some(ibv_event_type::IBV_EVENT_QP_ACCESS_ERR as u32));
    let pair = Pair::rc();
    let mut wr = Wr::new(1, IBV_WR_LOCAL_INV, 0, &[]);
    wr.raw.imm_data_invalidated_rkey_union.invalidated_rkey = pair.a_mem.key();
    pair.a.post(&mut [wr]).unwrap();
    assert_eq!(pair.a_send.wait().status, IBV_WC_MW_BIND_ERR);
}

#[test]
fn an_unbound_window_lets_its_region_go() {
    let pair = Pair::rc();
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_1);
    let bind_1 = |bind_info| {
        let mut bind = ibv_mw_bind { wr_id: 3, send_flags: SIGNALED, bind_info };
        assert_eq!(unsafe { ibv_bind_mw(pair.b.0, mw.0, &mut bind) }, 0);
        pair.b_send.wait().status
    };
    assert_eq!(bind_1(info(&pair.b_mem, 0, 64, REMOTE_WRITE)), SUCCESS);
    assert_eq!(unsafe { soft::ibv_dereg_mr(pair.b_mem.mr) }, libc::EBUSY);
    assert_eq!(bind_1(info(&pair.b_mem, 0, 0, 0)), SUCCESS, "length 0 unbinds");
    assert_eq!(write(&pair, 0, mw.rkey()), IBV_WC_REM_ACCESS_ERR);

    // Type 2 is unbound by invalidating it, and not by a bind of length 0.
    let pair = Pair::rc();
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
    assert_eq!(bind(&pair, &mw, mw.rkey(), info(&pair.b_mem, 0, 64, REMOTE_WRITE)), SUCCESS);
    assert_eq!(unsafe { soft::ibv_dereg_mr(pair.b_mem.mr) }, libc::EBUSY);
    assert_eq!(local_inv(&pair, mw.rkey()).1, SUCCESS);
    assert_eq!(bind(&pair, &mw, mw.rkey(), info(&pair.b_mem, 0, 64, REMOTE_WRITE)), SUCCESS);
    assert_eq!(unsafe { soft::ibv_dealloc_pd(pair.other.pd) }, libc::EBUSY);
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
    assert_eq!(bind(&pair, &mw, mw.rkey(), info(&pair.b_mem, 0, 0, 0)), IBV_WC_MW_BIND_ERR);
}

/// Both sides invalidate a window's key at once, and its owner binds it anew at once: an
/// invalidation of the old key leaves the new one.
#[test]
fn two_lcores_an_invalidation_of_an_old_key_leaves_the_new_one() {
    const ROUNDS: u64 = 2_000;
    let mut owner_first = 0;
    for round in 0..ROUNDS {
        let pair = Pair::rc();
        let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
        let mut memory = pair.other.memory(64);
        let old = mw.rkey();
        assert_eq!(bind(&pair, &mw, old, info(&memory, 0, 64, REMOTE_WRITE)), SUCCESS);
        assert_eq!(pair.b.recv(1, &[]), 0);
        let there = AtomicU32::new(0);
        // Each side is late in every second round, by an increasing time: on any machine, each wins
        // some rounds.
        let late_turns = (round % 64) * 32;
        let [late_peer, late_owner] = if round % 2 == 0 { [late_turns, 0] } else { [0, late_turns] };
        let (peer, owner) = std::thread::scope(|scope| {
            let (a, a_send, there) = (&pair.a, &pair.a_send, &there);
            let peer = scope.spawn(move || {
                meet(there, late_peer);
                a.post(&mut [Wr::new(1, IBV_WR_SEND_WITH_INV, SIGNALED, &[]).imm(old)]).unwrap();
                a_send.wait().status
            });
            meet(there, late_owner);
            let bind = bind_wr(&mw, old + 1, info(&memory, 0, 64, REMOTE_WRITE));
            pair.b.post(&mut [Wr::new(2, IBV_WR_LOCAL_INV, SIGNALED, &[]).imm(old), bind]).unwrap();
            let owner = [pair.b_send.wait().status, pair.b_send.wait().status];
            (peer.join().unwrap(), owner)
        });
        assert!(peer != SUCCESS || owner[0] != SUCCESS, "one key was invalidated twice");
        let is_bound = owner[1] == SUCCESS;
        owner_first += u64::from(is_bound);
        let deregistered = unsafe { soft::ibv_dereg_mr(memory.mr) };
        assert_eq!(deregistered == libc::EBUSY, is_bound, "round {round}: {peer}, {owner:?}: {deregistered}");
        drop(mw);
        if deregistered == 0 {
            memory.mr = std::ptr::null_mut();
        }
    }
    assert!(owner_first > 0, "the owner was never first");
    assert!(owner_first < ROUNDS, "the peer was never first");
}

/// Lets two threads continue at the same time, as far as possible without sleeping, one of them
/// `late_turns` later.
fn meet(there: &AtomicU32, late_turns: u64) {
    // The other thread may need this one's CPU.
    let wait = |turn| if turn % 500 == 499 { std::thread::yield_now() } else { std::hint::spin_loop() };
    there.fetch_add(1, Ordering::AcqRel);
    (0..).take_while(|_| there.load(Ordering::Acquire) < 2).for_each(wait);
    (0..late_turns).for_each(wait);
}

/// Two queue pairs bind a window at once, to a region each: one of them is first, and the other
/// one's handle is stale then. Only the region that it is bound to stays registered.
#[test]
fn two_lcores_that_bind_one_window_at_once_bind_it_one_after_the_other() {
    for round in 0..3_000 {
        let pair = Pair::rc();
        let (send, recv) = (pair.other.cq(16), pair.other.cq(16));
        let (other, peer) = (
            pair.other.qp(ibv_qp_type::IBV_QPT_RC, &send, &recv),
            pair.nic.qp(ibv_qp_type::IBV_QPT_RC, &pair.a_send, &pair.a_recv),
        );
        connect((&peer, 1), (&other, 2));
        let mw = Mw::new(&pair.other, IBV_MW_TYPE_1);
        let [mut one, mut two] = [0, 1].map(|_| pair.other.memory(64));
        let key = mw.rkey() & !0xff | (mw.rkey() + 1) & 0xff;
        let there = AtomicU32::new(0);
        let bind = |qp: &Qp, cq: &Cq, to: ibv_mw_bind_info| {
            let wr = bind_wr(&mw, key, to);
            meet(&there, 0);
            qp.post(&mut [wr]).unwrap();
            cq.wait().status
        };
        let bind = Shared(&bind);
        let (to_one, to_two) = (Shared(info(&one, 0, 64, REMOTE_WRITE)), info(&two, 0, 64, REMOTE_WRITE));
        let (qp, cq) = (&pair.b, &pair.b_send);
        let statuses = std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let (bind, to_one) = (bind, to_one);
                bind.0(qp, cq, to_one.0)
            });
            let second = bind.0(&other, &send, to_two);
            [thread.join().unwrap(), second]
        });
        let bound = statuses.map(|status| status == SUCCESS);
        assert_eq!(bound.iter().filter(|bound| **bound).count(), 1, "round {round}: {statuses:?}");
        let codes = [&one, &two].map(|memory| unsafe { soft::ibv_dereg_mr(memory.mr) });
        assert_eq!(codes, bound.map(|bound| if bound { libc::EBUSY } else { 0 }), "round {round}");
        drop(mw);
        let free = if bound[0] { &mut two } else { &mut one };
        free.mr = std::ptr::null_mut();
    }
}

#[derive(Clone, Copy)]
struct Shared<T>(T);
unsafe impl<T> Send for Shared<T> {}
