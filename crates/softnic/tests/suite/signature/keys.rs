//! Keys: creation, configuration, use without a signature, invalidation and check.

use crate::harness::*;
use crate::signature::rig::*;
use rdma_sys::ibv_wc_status::*;
use rdma_sys::ibv_wr_opcode::*;
use verbline_softnic::mlx5dv::*;
use verbline_softnic::provider as soft;

fn plain(nic: &Nic) -> Mkey {
    Mkey::new(nic, mkey_init_attr_flags::INDIRECT, 3)
}

#[test]
fn a_key_must_be_indirect_and_no_more_than_is_known() {
    let nic = Nic::open(0);
    for (flags, code) in [(0, libc::EINVAL), (mkey_init_attr_flags::INDIRECT | 1 << 2, libc::EOPNOTSUPP)] {
        let mut attr = mlx5dv_mkey_init_attr { pd: nic.pd, create_flags: flags, max_entries: 1 };
        assert!(unsafe { mlx5dv_create_mkey(&mut attr) }.is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(code));
    }
    let _key = plain(&nic);
    assert_eq!(unsafe { soft::ibv_dealloc_pd(nic.pd) }, libc::EBUSY);
}

#[test]
fn places_of_configurations_are_given_back_by_their_completions() {
    let pair = pair(CONFIGURING);
    let key = plain(&pair.nic);
    let configure = Configure::list(&[pair.a_mem.sge(0, 64)]);
    for _ in 0..5 {
        for at in 0..64 {
            assert_eq!(configure.post(&pair.a, &key, at, if at == 63 { SIGNALED } else { 0 }), 0);
        }
        assert_eq!(configure.post(&pair.a, &key, 0, 0), libc::ENOMEM);
        assert_eq!(pair.a_send.poll().unwrap().wr_id, 63);
    }
}

/// What the conformance suite does not try: flags and masks that nobody has defined, and no key.
#[test]
fn what_cannot_be_is_refused_when_it_is_posted() {
    let pair = pair(CONFIGURING);
    let key = plain(&pair.nic);
    for (name, mkey, conf_flags, comp_mask, access) in [
        ("a flag", key.0, 2, 0, 0),
        ("comp_mask", key.0, 0, 1, 0),
        ("no key", std::ptr::null_mut(), 0, 0, 0),
        ("access", key.0, 0, 0, 1 << 20),
    ] {
        let mut wr = MkeyConfigureWr::with_capacity(0);
        wr.start(mkey, u8::from(access != 0), &mlx5dv_mkey_conf_attr { conf_flags, comp_mask });
        if access != 0 {
            wr.set_access_flags(access);
        }
        assert_eq!(unsafe { wr.post(pair.a.0, 1, INLINE) }, libc::EINVAL, "{name}");
    }
    assert!(pair.a_send.poll().is_none(), "nothing was posted");
}

#[test]
fn a_key_grants_its_layout_and_no_more() {
    type Case<'a> = (&'a str, u64, usize, bool);
    let cases: [Case<'_>; 4] =
        [("inside", 0, 64, true), ("its end", 40, 24, true), ("beyond", 1, 64, false), ("far", 1 << 40, 1, false)];
    for (name, addr, len, granted) in cases {
        let pair = pair(CONFIGURING);
        let key = plain(&pair.nic);
        Configure::list(&[pair.a_mem.sge(0, 32), pair.a_mem.sge(100, 32)]).now(&pair.a, &key);
        let wr = Wr::new(1, IBV_WR_RDMA_WRITE, SIGNALED, &[key.sge(addr, len)]);
        pair.a.post(&mut [wr.remote(pair.b_mem.addr(), pair.b_mem.key())]).unwrap();
        let status = pair.a_send.poll().unwrap().status;
        assert_eq!(status, if granted { SUCCESS } else { IBV_WC_LOC_PROT_ERR }, "{name}");
    }
}

#[test]
fn a_peer_needs_the_keys_right_and_its_range() {
    let run = |access: u32, addr: u64, configured: bool| {
        let pair = pair(CONFIGURING);
        let key = plain(&pair.other);
        let mut wr = MkeyConfigureWr::with_capacity(1);
        if configured {
            wr.start(key.0, 2, &mlx5dv_mkey_conf_attr::default());
            wr.set_access_flags(access);
            wr.set_layout_list([pair.b_mem.sge(0, 64)]);
            assert_eq!(unsafe { wr.post(pair.b.0, 1, INLINE) }, 0);
        }
        let wr = Wr::new(1, IBV_WR_RDMA_WRITE, SIGNALED, &[pair.a_mem.sge(0, 64)]);
        pair.a.post(&mut [wr.remote(addr, key.key())]).unwrap();
        pair.a_send.poll().unwrap().status
    };
    assert_eq!(run(LOCAL_WRITE | REMOTE_WRITE, 0, true), SUCCESS);
    assert_eq!(run(LOCAL_WRITE | REMOTE_READ, 0, true), IBV_WC_REM_ACCESS_ERR);
    assert_eq!(run(LOCAL_WRITE | REMOTE_WRITE, 1, true), IBV_WC_REM_ACCESS_ERR);
    assert_eq!(run(0, 0, false), IBV_WC_REM_ACCESS_ERR);
}

#[test]
fn a_region_that_went_away_is_out_of_reach() {
    let pair = pair(CONFIGURING);
    let key = plain(&pair.nic);
    let memory = pair.nic.memory(4096);
    Configure::list(&[pair.a_mem.sge(0, 8), memory.sge(0, 8)]).now(&pair.a, &key);
    drop(memory);
    let wr = Wr::new(1, IBV_WR_RDMA_READ, SIGNALED, &[key.sge(0, 16)]);
    pair.a.post(&mut [wr.remote(pair.b_mem.addr(), pair.b_mem.key())]).unwrap();
    assert_eq!(pair.a_send.poll().unwrap().status, IBV_WC_LOC_PROT_ERR);
}

#[test]
fn a_peer_invalidates_a_key_that_lets_it() {
    for (flags, allowed) in [(mkey_init_attr_flags::REMOTE_INVALIDATE, true), (0, false)] {
        let pair = pair(CONFIGURING);
        let key = Mkey::new(&pair.other, mkey_init_attr_flags::INDIRECT | flags, 1);
        Configure::list(&[pair.b_mem.sge(0, 64)]).now(&pair.b, &key);
        pair.b.recv(1, &[]);
        pair.a.post(&mut [Wr::new(1, IBV_WR_SEND_WITH_INV, SIGNALED, &[]).imm(key.key())]).unwrap();
        let status = pair.a_send.poll().unwrap().status;
        assert_eq!(status, if allowed { SUCCESS } else { IBV_WC_REM_ACCESS_ERR });
        if allowed {
            assert_eq!(pair.b_recv.poll().unwrap().imm, key.key());
            let wr = Wr::new(1, IBV_WR_RDMA_WRITE, SIGNALED, &[pair.a_mem.sge(0, 8)]);
            pair.a.post(&mut [wr.remote(0, key.key())]).unwrap();
            assert_eq!(pair.a_send.poll().unwrap().status, IBV_WC_REM_ACCESS_ERR);
        }
    }
}

#[test]
fn a_receive_goes_through_a_key_whatever_the_message_is_carried_by() {
    let pair = pair(CONFIGURING);
    let key = plain(&pair.other);
    Configure::list(&[pair.b_mem.sge(0, 5), pair.b_mem.sge(100, 4000)]).now(&pair.b, &key);
    for len in [1usize, 40, 90, 97, 3000] {
        assert_eq!(pair.b.recv(1, &[key.sge(0, 4000)]), 0);
        let data = pattern(len, len as u8);
        pair.a_mem.fill(0, &data);
        pair.a.post(&mut [Wr::send(1, SIGNALED, &[pair.a_mem.sge(0, len)])]).unwrap();
        let got = pair.b_recv.poll().unwrap();
        assert_eq!((got.status, got.byte_len as usize), (SUCCESS, len));
        let first = len.min(5);
        assert_eq!([pair.b_mem.read(0, first), pair.b_mem.read(100, len - first)].concat(), data);
        assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
    }
}
