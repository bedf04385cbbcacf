//! The peer's view of messages sent through a key: lengths, pieces, invalidated keys.

use crate::harness::*;
use crate::signature::rig::*;
use rdma_sys::ibv_mw_type::IBV_MW_TYPE_2;
use rdma_sys::ibv_wc_status::*;
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;

/// A key of two pieces of our memory, 300 and 212 bytes, and their contents.
fn two_pieces(pair: &Pair) -> (Mkey, Vec<u8>) {
    let key = Mkey::signing(&pair.nic);
    Configure::list(&[pair.a_mem.sge(1000, 300), pair.a_mem.sge(5000, 212)]).now(&pair.a, &key);
    let data = pattern(512, 9);
    pair.a_mem.fill(1000, &data[..300]);
    pair.a_mem.fill(5000, &data[300..]);
    (key, data)
}

#[test]
fn a_send_says_how_long_it_is_and_fills_piece_after_piece() {
    for rooms in [&[512][..], &[100, 412], &[300, 212], &[1, 2, 600], &[301, 10, 10, 191]] {
        let pair = pair(CONFIGURING);
        let (key, data) = two_pieces(&pair);
        pair.b_mem.fill(0, &[0xee; 8192]);
        let places = (0..).map(|at| at * 1000);
        let sges: Vec<_> = places.clone().zip(rooms).map(|(at, &room)| pair.b_mem.sge(at, room)).collect();
        assert_eq!(pair.b.recv(1, &sges), 0);
        pair.a.post(&mut [Wr::send(2, SIGNALED, &[key.sge(0, 512)])]).unwrap();
        let got = pair.b_recv.wait();
        assert_eq!((got.status, got.byte_len), (SUCCESS, 512), "{rooms:?}");
        assert_eq!(pair.a_send.wait().status, SUCCESS);
        let mut left = &data[..];
        for (at, &room) in places.zip(rooms) {
            let (here, rest) = left.split_at(room.min(left.len()));
            assert_eq!(pair.b_mem.read(at, here.len()), here, "{rooms:?} at {at}");
            assert_eq!(pair.b_mem.read(at + here.len(), 300), [0xee; 300], "{rooms:?} behind {at}");
            left = rest;
        }
    }
}

#[test]
fn a_send_through_a_key_that_is_too_long_is_refused() {
    let pair = pair(CONFIGURING);
    let (key, _) = two_pieces(&pair);
    pair.b_mem.fill(0, &[0xee; 2048]);
    assert_eq!(pair.b.recv(1, &[pair.b_mem.sge(0, 511)]), 0);
    pair.a.post(&mut [Wr::send(2, SIGNALED, &[key.sge(0, 512)])]).unwrap();
    assert_eq!(pair.b_recv.wait().status, IBV_WC_LOC_LEN_ERR);
    assert_eq!(pair.a_send.wait().status, IBV_WC_REM_INV_REQ_ERR);
    assert_eq!(pair.b_mem.read(511, 100), [0xee; 100]);
}

#[test]
fn a_send_through_a_key_invalidates_a_window_or_is_refused() {
    let pair = pair(CONFIGURING);
    let (key, data) = two_pieces(&pair);
    let window = Mw::new(&pair.other, IBV_MW_TYPE_2);
    let rkey = window.rkey().wrapping_add(1);
    let (mr, addr) = (pair.b_mem.mr, pair.b_mem.addr());
    let bind_info = ibv_mw_bind_info { mr, addr, length: 64, mw_access_flags: REMOTE_WRITE };
    let mut bind = Wr::new(3, IBV_WR_BIND_MW, SIGNALED, &[]);
    bind.raw.bind_mw_tso_union.bind_mw = bind_mw_t { mw: window.0, rkey, bind_info };
    pair.b.post(&mut [bind]).unwrap();
    assert_eq!(pair.b_send.wait().status, SUCCESS);
    for (invalidated, statuses) in [(rkey, (SUCCESS, SUCCESS)), (rkey, (IBV_WC_LOC_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR))]
    {
        assert_eq!(pair.b.recv(1, &[pair.b_mem.sge(0, 512)]), 0);
        let mut send = Wr::new(2, IBV_WR_SEND_WITH_INV, SIGNALED, &[key.sge(0, 512)]);
        send.raw.imm_data_invalidated_rkey_union.invalidated_rkey = invalidated;
        pair.a.post(&mut [send]).unwrap();
        assert_eq!((pair.b_recv.wait().status, pair.a_send.wait().status), statuses);
    }
    assert_eq!(pair.b_mem.read(0, 512), data);
}

#[test]
fn a_key_of_another_protection_domain_is_not_configured() {
    let pair = pair(CONFIGURING);
    let stranger = Nic::open(0);
    let key = Mkey::signing(&stranger);
    let configure = Configure::list(&[pair.a_mem.sge(0, 512)]);
    assert_eq!(configure.post(&pair.a, &key, 4, SIGNALED), 0);
    assert_eq!(pair.a_send.wait().status, IBV_WC_MW_BIND_ERR);
}
