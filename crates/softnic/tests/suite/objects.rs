//! Devices, their attributes, and references between objects.
use crate::harness::*;
use rdma_sys::*;
use std::ffi::CStr;
use std::ptr::null_mut;
use verbline_softnic::provider as soft;

#[test]
fn both_devices_are_always_there() {
    unsafe {
        let list = soft::ibv_get_device_list(null_mut());
        let names: Vec<String> = (0..2)
            .map(|i| CStr::from_ptr(soft::ibv_get_device_name(*list.add(i))).to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["soft0", "soft1"]);
        assert!((*list.add(2)).is_null());
        assert_ne!(soft::ibv_get_device_guid(*list), soft::ibv_get_device_guid(*list.add(1)));
        soft::ibv_free_device_list(list);
    }
}

#[test]
fn queries_say_what_is_so() {
    for index in 0..2 {
        let nic = Nic::open(index);
        unsafe {
            let mut device: ibv_device_attr = std::mem::zeroed();
            assert_eq!(soft::ibv_query_device(nic.context, &mut device), 0);
            assert_eq!((device.phys_port_cnt, device.max_pkeys), (1, 1));
            assert_eq!(device.atomic_cap, ibv_atomic_cap::IBV_ATOMIC_GLOB);
            let mut port: ibv_port_attr = std::mem::zeroed();
            assert_eq!(soft::ibv_query_port(nic.context, 1, &mut port), 0);
            assert_eq!((port.state, port.lid), (ibv_port_state::IBV_PORT_ACTIVE, index as u16 + 1));
            assert_eq!((port.active_mtu, port.gid_tbl_len, port.pkey_tbl_len), (ibv_mtu::IBV_MTU_4096, 2, 1));
            assert_eq!(port.max_msg_sz, 1 << 31);
            assert_eq!(soft::ibv_query_port(nic.context, 2, &mut port), libc::EINVAL);
            let mut gid = ibv_gid { raw: [0; 16] };
            assert_eq!(soft::ibv_query_gid(nic.context, 1, 0, &mut gid), 0);
            assert_eq!(gid.raw[..2], [0xfe, 0x80]);
            assert_eq!(soft::ibv_query_gid(nic.context, 1, 1, &mut gid), 0);
            assert_eq!(gid.raw[10..], [0xff, 0xff, 10, 9, 9, index as u8 + 1]);
            assert_eq!(soft::ibv_query_gid(nic.context, 1, 2, &mut gid), -1);
            let mut pkey = 0;
            assert_eq!(soft::ibv_query_pkey(nic.context, 1, 0, &mut pkey), 0);
            assert_eq!((pkey, soft::ibv_get_pkey_index(nic.context, 1, pkey)), (0xffff, 0));
            assert_eq!(soft::ibv_query_pkey(nic.context, 1, 1, &mut pkey), -1);
            assert_eq!(soft::ibv_get_pkey_index(nic.context, 1, 0x1234), -1);
        }
    }
}

#[test]
fn limits_that_are_reported_are_enforced() {
    let nic = Nic::open(0);
    let mut device: ibv_device_attr = unsafe { std::mem::zeroed() };
    unsafe { soft::ibv_query_device(nic.context, &mut device) };
    let cq = nic.cq(16);
    let refused = |change: &dyn Fn(&mut ibv_qp_init_attr)| {
        let mut init = init_attr(ibv_qp_type::IBV_QPT_RC, &cq, &cq);
        change(&mut init);
        assert!(unsafe { soft::ibv_create_qp(nic.pd, &mut init) }.is_null());
        std::io::Error::last_os_error().raw_os_error().unwrap()
    };
    assert_eq!(refused(&|init| init.cap.max_send_wr = device.max_qp_wr as u32 + 1), libc::EINVAL);
    assert_eq!(refused(&|init| init.cap.max_recv_wr = device.max_qp_wr as u32 + 1), libc::EINVAL);
    assert_eq!(refused(&|init| init.cap.max_send_sge = device.max_sge as u32 + 1), libc::EINVAL);
    assert_eq!(refused(&|init| init.cap.max_inline_data = 1 << 20), libc::EINVAL);
    assert_eq!(refused(&|init| init.send_cq = null_mut()), libc::EINVAL);
    assert_eq!(refused(&|init| init.qp_type = ibv_qp_type::IBV_QPT_RAW_PACKET), libc::EOPNOTSUPP);
    assert_eq!(refused(&|init| init.qp_type = 77), libc::EOPNOTSUPP);
    for cqe in [0, -1, device.max_cqe + 1] {
        assert!(unsafe { soft::ibv_create_cq(nic.context, cqe, null_mut(), null_mut(), 0) }.is_null());
    }
    assert!(unsafe { soft::ibv_create_cq(nic.context, 1, null_mut(), null_mut(), 1) }.is_null());
    let mut byte = 0u8;
    let byte = (&raw mut byte).cast();
    let reg = |access: u32| unsafe { soft::ibv_reg_mr(nic.pd, byte, 1, access as i32) };
    assert!(reg(REMOTE_WRITE).is_null() && reg(REMOTE_ATOMIC).is_null(), "they need local write");
    assert!(reg(1 << 12).is_null());
    assert!(unsafe { soft::ibv_reg_mr(nic.pd, byte, usize::MAX, 0) }.is_null());
    let relaxed = reg(LOCAL_WRITE | ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0);
    assert_eq!(unsafe { soft::ibv_dereg_mr(relaxed) }, 0, "optional access is advice");
}

#[test]
fn nothing_goes_before_what_refers_to_it() {
    let nic = Nic::open(0);
    let cq = nic.cq(16);
    let _qp = nic.qp(ibv_qp_type::IBV_QPT_RC, &cq, &cq);
    assert_eq!(unsafe { soft::ibv_dealloc_pd(nic.pd) }, libc::EBUSY);
    assert_eq!(unsafe { soft::ibv_destroy_cq(cq.0) }, libc::EBUSY);
    assert_eq!(unsafe { soft::ibv_close_device(nic.context) }, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBUSY));
}

#[test]
fn extended_interfaces_say_that_they_are_not_there() {
    let nic = Nic::open(0);
    let cq = nic.cq(16);
    let qp = nic.qp(ibv_qp_type::IBV_QPT_RC, &cq, &cq);
    assert!(unsafe { ibv_qp_to_qp_ex(qp.0) }.is_null());
    assert_eq!(unsafe { (*nic.context).abi_compat } as usize, usize::MAX);
    assert_eq!(unsafe { (*nic.context).num_comp_vectors }, 1);
}

#[test]
fn a_completion_queue_grows_around_what_is_in_it() {
    let pair = Pair::rc();
    for len in [8usize, 64, 200] {
        pair.b.recv(len as u64, &[pair.b_mem.sge(0, 300)]);
        pair.a_mem.fill(0, &pattern(len, 1));
        pair.a.post(&mut [Wr::send(1, 0, &[pair.a_mem.sge(0, len)])]).unwrap();
    }
    assert_eq!(unsafe { soft::ibv_resize_cq(pair.b_recv.0, 2000) }, 0);
    assert!(unsafe { (*pair.b_recv.0).cqe } >= 2000);
    for len in [8usize, 64, 200] {
        let got = pair.b_recv.poll().unwrap();
        assert_eq!((got.wr_id, got.byte_len), (len as u64, len as u32));
    }
    pair.b.recv(5, &[pair.b_mem.sge(0, 300)]);
    pair.a.post(&mut [Wr::send(1, 0, &[pair.a_mem.sge(0, 64)])]).unwrap();
    assert_eq!(pair.b_recv.poll().unwrap().wr_id, 5);
    assert_eq!(unsafe { soft::ibv_resize_cq(pair.b_recv.0, 1) }, 0, "smaller is what it is already");
    assert_eq!(unsafe { soft::ibv_resize_cq(pair.b_recv.0, -5) }, libc::EINVAL);
}

#[test]
fn completions_of_a_destroyed_queue_pair_are_not_given_out() {
    let nic = Nic::open(0);
    let cq = nic.cq(64);
    let (keep, gone) = (nic.qp(ibv_qp_type::IBV_QPT_UC, &cq, &cq), nic.qp(ibv_qp_type::IBV_QPT_UC, &cq, &cq));
    for qp in [&gone, &keep] {
        qp.bring_up(qp.num(), 1);
        qp.recv(1, &[]);
        qp.post(&mut [Wr::send(2, SIGNALED, &[])]).unwrap();
    }
    let number = keep.num();
    drop(gone);
    assert_eq!(cq.poll_all().iter().map(|wc| (wc.qp_num, wc.wr_id)).collect::<Vec<_>>(), [(number, 1), (number, 2)]);
}

/// The table around a context, as verbs.h finds it.
fn table(nic: &Nic) -> &verbs_context {
    unsafe { &*nic.context.byte_sub(std::mem::offset_of!(verbs_context, context)).cast() }
}

#[test]
fn the_extended_query_says_more_of_the_same() {
    let nic = Nic::open(0);
    unsafe {
        let mut plain: ibv_device_attr = std::mem::zeroed();
        assert_eq!(soft::ibv_query_device(nic.context, &mut plain), 0);
        let mut attr: ibv_device_attr_ex = std::mem::zeroed();
        assert_eq!(soft::ibv_query_device_ex(nic.context, std::ptr::null(), &mut attr), 0);
        assert_eq!(attr.orig_attr.max_qp, plain.max_qp);
        #[cfg(phys_port_cnt_ex)]
        assert_eq!(attr.phys_port_cnt_ex, 1);
        assert_eq!(attr.device_cap_flags_ex, u64::from(plain.device_cap_flags));
        assert_eq!(attr.odp_caps.general_caps, u64::from(ibv_odp_general_caps::IBV_ODP_SUPPORT.0));
        let of = attr.odp_caps.per_transport_caps;
        assert_eq!((of.rc_odp_caps, of.uc_odp_caps, of.ud_odp_caps), (0b11_1111, 0b10_0111, 0b10_0011));
        assert_eq!(attr.packet_pacing_caps.qp_rate_limit_max, 0);

        // For a caller of another version: no more than it has room for, and zeros over its old
        // contents.
        let query = table(&nic).query_device_ex.unwrap();
        let mut newer = [0xffu8; size_of::<ibv_device_attr_ex>() + 8];
        assert_eq!(query(nic.context, std::ptr::null(), newer.as_mut_ptr().cast(), newer.len()), 0);
        assert_eq!(newer[newer.len() - 8..], [0; 8]);
        let mut older = [0xffu8; size_of::<ibv_device_attr_ex>()];
        let room = size_of::<ibv_device_attr>();
        assert_eq!(query(nic.context, std::ptr::null(), older.as_mut_ptr().cast(), room), 0);
        assert!(older[..room].iter().any(|&byte| byte != 0xff) && older[room..].iter().all(|&byte| byte == 0xff));
        assert_eq!(query(nic.context, std::ptr::null(), older.as_mut_ptr().cast(), room - 1), libc::EINVAL);
        let asks_more = ibv_query_device_ex_input { comp_mask: 1 };
        assert_eq!(soft::ibv_query_device_ex(nic.context, &asks_more, &mut attr), libc::EINVAL);
    }
}

#[test]
fn a_parent_domain_holds_what_it_is_made_of() {
    let nic = Nic::open(0);
    unsafe {
        let td = soft::ibv_alloc_td(nic.context, &mut ibv_td_init_attr { comp_mask: 0 });
        let mut init: ibv_parent_domain_init_attr = std::mem::zeroed();
        (init.pd, init.td) = (soft::ibv_alloc_pd(nic.context), td);
        let parent = soft::ibv_alloc_parent_domain(nic.context, &mut init);
        assert_eq!((soft::ibv_dealloc_td(td), soft::ibv_dealloc_pd(init.pd)), (libc::EBUSY, libc::EBUSY));
        let mut byte = 0u8;
        let mr = soft::ibv_reg_mr(parent, (&raw mut byte).cast(), 1, 0);
        assert_eq!(soft::ibv_dealloc_pd(parent), libc::EBUSY);
        assert_eq!(soft::ibv_dereg_mr(mr), 0);
        assert_eq!(soft::ibv_dealloc_pd(parent), 0);
        assert_eq!(soft::ibv_dealloc_td(td), 0);

        // A thread domain is optional, a domain isn't; allocators of one's own are not supported.
        init.td = null_mut();
        let parent = soft::ibv_alloc_parent_domain(nic.context, &mut init);
        assert_eq!((soft::ibv_dealloc_pd(parent), soft::ibv_dealloc_pd(init.pd)), (0, 0));
        init.comp_mask = 1;
        assert!(soft::ibv_alloc_parent_domain(nic.context, &mut init).is_null());
        assert_eq!(*libc::__errno_location(), libc::EOPNOTSUPP);
        (init.comp_mask, init.pd) = (0, null_mut());
        assert!(soft::ibv_alloc_parent_domain(nic.context, &mut init).is_null());
        assert_eq!(*libc::__errno_location(), libc::EINVAL);
        assert!(soft::ibv_alloc_td(nic.context, &mut ibv_td_init_attr { comp_mask: 1 }).is_null());
        assert_eq!(*libc::__errno_location(), libc::EOPNOTSUPP);
        assert!(table(&nic).alloc_td.is_some() && table(&nic).alloc_parent_domain.is_some());
    }
}
