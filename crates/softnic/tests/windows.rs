//! Memory windows, local and remote invalidation.
#![allow(clippy::undocumented_unsafe_blocks)]

mod harness;
use harness::*;
use rdma_sys::ibv_mw_type::*;
use rdma_sys::ibv_wc_status::*;
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;
use verbline_softnic::provider as soft;

struct Mw(*mut ibv_mw);

impl Mw {
    fn new(nic: &Nic, kind: u32) -> Mw {
        let mw = unsafe { ibv_alloc_mw(nic.pd, kind) }.expect("the table has it");
        assert!(!mw.is_null());
        Mw(mw)
    }
    fn rkey(&self) -> u32 {
        unsafe { (*self.0).rkey }
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(unsafe { ibv_dealloc_mw(self.0) }, 0);
        }
    }
}

fn info(mem: &Memory, offset: u64, length: u64, access: u32) -> ibv_mw_bind_info {
    ibv_mw_bind_info { mr: mem.mr, addr: mem.addr() + offset, length, mw_access_flags: access }
}

/// Binds a type 2 window on `b` with a work request.
fn bind(pair: &Pair, mw: &Mw, rkey: u32, info: ibv_mw_bind_info) -> u32 {
    let mut wr = Wr::new(1, IBV_WR_BIND_MW, SIGNALED, &[]);
    wr.raw.bind_mw_tso_union.bind_mw = bind_mw_t { mw: mw.0, rkey, bind_info: info };
    pair.b.post(&mut [wr]).unwrap();
    let done = pair.b_send.wait();
    assert_eq!(done.opcode, ibv_wc_opcode::IBV_WC_BIND_MW);
    done.status
}

fn write(pair: &Pair, offset: u64, rkey: u32) -> u32 {
    let wr = Wr::new(1, IBV_WR_RDMA_WRITE, SIGNALED, &[pair.a_mem.sge(0, 8)]);
    pair.a.post(&mut [wr.remote(pair.b_mem.addr() + offset, rkey)]).unwrap();
    pair.a_send.wait().status
}

#[test]
fn a_type_1_window_grants_its_part_under_a_new_key_each_time() {
    let pair = Pair::rc();
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_1);
    let bind_to = |offset, length| {
        let mut bind =
            ibv_mw_bind { wr_id: 3, send_flags: SIGNALED, bind_info: info(&pair.b_mem, offset, length, REMOTE_WRITE) };
        assert_eq!(unsafe { ibv_bind_mw(pair.b.0, mw.0, &mut bind) }, 0);
        let done = pair.b_send.poll().unwrap();
        assert_eq!((done.wr_id, done.status, done.opcode), (3, SUCCESS, ibv_wc_opcode::IBV_WC_BIND_MW));
        mw.rkey()
    };
    let first = bind_to(64, 64);
    assert_eq!([write(&pair, 64, first), write(&pair, 120, first)], [SUCCESS, SUCCESS]);
    let second = bind_to(256, 64);
    assert_ne!(first, second);
    assert_eq!(write(&pair, 256, second), SUCCESS);
    assert_eq!(unsafe { soft::ibv_dereg_mr(pair.b_mem.mr) }, libc::EBUSY, "a window is bound to it");
    assert_eq!(write(&pair, 64, first), IBV_WC_REM_ACCESS_ERR, "the old key");
    drop(mw);
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
        drop(mw);
    }
    // Its key isn't an L_Key.
    let pair = Pair::rc();
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
    assert_eq!(bind(&pair, &mw, mw.rkey(), info(&pair.b_mem, 64, 64, REMOTE_WRITE)), SUCCESS);
    let mut sge = pair.b_mem.sge(64, 8);
    sge.lkey = mw.rkey();
    pair.b.post(&mut [Wr::send(1, 0, &[sge])]).unwrap();
    assert_eq!(pair.b_send.wait().status, IBV_WC_LOC_PROT_ERR);
    drop(mw);
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
        drop((mw, no_bind));
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
    let local_inv = |rkey| {
        let mut wr = Wr::new(1, IBV_WR_LOCAL_INV, SIGNALED, &[]);
        wr.raw.imm_data_invalidated_rkey_union.invalidated_rkey = rkey;
        pair.b.post(&mut [wr]).unwrap();
        let done = pair.b_send.wait();
        (done.opcode, done.status)
    };
    assert_eq!(local_inv(key), (ibv_wc_opcode::IBV_WC_LOCAL_INV, SUCCESS));
    // Bound again, and invalidated by the peer's message.
    assert_eq!(bind(&pair, &mw, key + 1, to()), SUCCESS);
    pair.b.recv(4, &[pair.b_mem.sge(128, 64)]);
    let wr = Wr::new(2, IBV_WR_SEND_WITH_INV, SIGNALED, &[pair.a_mem.sge(0, 8)]).imm(key + 1);
    pair.a.post(&mut [wr]).unwrap();
    assert_eq!(pair.a_send.wait().status, SUCCESS);
    let got = pair.b_recv.poll().unwrap();
    assert_eq!((got.flags, got.imm), (ibv_wc_flags::IBV_WC_WITH_INV.0, key + 1));
    assert_eq!(write(&pair, 0, key + 1), IBV_WC_REM_ACCESS_ERR);
    drop(mw);

    // Another queue pair's.
    let pair = Pair::rc();
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
    let owner = Pair::rc();
    let stranger = pair.other.qp(ibv_qp_type::IBV_QPT_RC, &pair.b_send, &pair.b_recv);
    stranger.to_init();
    stranger.to_rtr(owner.a.num(), 1);
    stranger.to_rts();
    let mut wr = Wr::new(1, IBV_WR_BIND_MW, SIGNALED, &[]);
    let bind_info = info(&pair.b_mem, 0, 64, REMOTE_WRITE);
    wr.raw.bind_mw_tso_union.bind_mw = bind_mw_t { mw: mw.0, rkey: mw.rkey(), bind_info };
    stranger.post(&mut [wr]).unwrap();
    assert_eq!(pair.b_send.wait().status, SUCCESS);
    assert_eq!(write(&pair, 0, mw.rkey()), IBV_WC_REM_ACCESS_ERR);
    drop(mw);
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
    let mw = Mw::new(&pair.other, IBV_MW_TYPE_2);
    assert_eq!(bind(&pair, &mw, mw.rkey(), info(&pair.b_mem, 0, 64, REMOTE_WRITE)), SUCCESS);
    assert_eq!(unsafe { soft::ibv_dereg_mr(pair.b_mem.mr) }, libc::EBUSY);
    assert_eq!(bind(&pair, &mw, mw.rkey(), info(&pair.b_mem, 0, 0, 0)), SUCCESS, "length 0 unbinds");
    assert_eq!(bind(&pair, &mw, mw.rkey(), info(&pair.b_mem, 0, 64, REMOTE_WRITE)), SUCCESS);
    assert_eq!(unsafe { soft::ibv_dealloc_pd(pair.other.pd) }, libc::EBUSY);
    drop(mw);
}
