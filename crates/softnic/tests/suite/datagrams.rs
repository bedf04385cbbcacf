//! UD: addresses, the global route header, Q_Keys, multicast.
use crate::harness::*;
use rdma_sys::ibv_qp_type::IBV_QPT_UD;
use rdma_sys::*;
use std::net::Ipv4Addr;
use verbline_roce::wire::{Addresses, Route, ip};
use verbline_softnic::provider as soft;

const GRH: usize = 40;

struct Ah(*mut ibv_ah);
impl Drop for Ah {
    fn drop(&mut self) {
        unsafe { soft::ibv_destroy_ah(self.0) };
    }
}

fn ah_to(nic: &Nic, change: impl FnOnce(&mut ibv_ah_attr)) -> Option<Ah> {
    let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
    attr.port_num = 1;
    change(&mut attr);
    let ah = unsafe { soft::ibv_create_ah(nic.pd, &mut attr) };
    (!ah.is_null()).then(|| Ah(ah))
}

fn gid(nic: &Nic, index: i32) -> [u8; 16] {
    let mut gid = ibv_gid { raw: [0; 16] };
    assert_eq!(unsafe { soft::ibv_query_gid(nic.context, 1, index, &mut gid) }, 0);
    unsafe { gid.raw }
}

fn by_gid(nic: &Nic, raw: [u8; 16], sgid_index: u8) -> Option<Ah> {
    ah_to(nic, |attr| {
        attr.is_global = 1;
        attr.grh.dgid.raw = raw;
        attr.grh.sgid_index = sgid_index;
        attr.grh.hop_limit = 3;
        attr.grh.traffic_class = 5;
        attr.grh.flow_label = 7;
    })
}

/// A UD queue pair in RTS with its CQ, in their order of destruction.
fn endpoint(nic: &Nic) -> (Qp, Cq) {
    let cq = nic.cq(64);
    let qp = nic.qp(IBV_QPT_UD, &cq, &cq);
    qp.bring_up(0, 0);
    (qp, cq)
}

/// An endpoint on each device, in the order of destruction.
struct Ends {
    a: Qp,
    b: Qp,
    a_cq: Cq,
    b_cq: Cq,
    nic: Nic,
    other: Nic,
}

fn ends() -> Ends {
    let (nic, other) = (Nic::open(0), Nic::open(1));
    let ((a, a_cq), (b, b_cq)) = (endpoint(&nic), endpoint(&other));
    Ends { a, b, a_cq, b_cq, nic, other }
}

#[test]
fn a_datagram_arrives_behind_its_header() {
    let Ends { a, a_cq, b, b_cq, nic, other } = &ends();
    let (a_mem, b_mem) = (nic.memory(8192), other.memory(8192));
    for (index, len) in [0usize, 1, 64, 1000, 4096].into_iter().enumerate() {
        let data = pattern(len, 9);
        a_mem.fill(0, &data);
        let sgid_index = (index % 2) as u8;
        let ah = by_gid(nic, gid(other, index as i32 % 2), sgid_index).unwrap();
        assert_eq!(b.recv(1, &[b_mem.sge(0, len + GRH)]), 0);
        let sge = [a_mem.sge(0, len)];
        let wr = Wr::new(2, ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, SIGNALED, if len == 0 { &[] } else { &sge });
        a.post(&mut [wr.imm(5).to(ah.0, b.num(), QKEY)]).unwrap();
        assert_eq!(a_cq.poll().unwrap().status, SUCCESS);
        let got = b_cq.poll().expect("received");
        assert_eq!((got.status, got.byte_len as usize), (SUCCESS, len + GRH));
        assert_eq!((got.src_qp, got.slid, got.imm), (a.num(), 1, 5));
        assert_eq!(got.flags, (ibv_wc_flags::IBV_WC_GRH | ibv_wc_flags::IBV_WC_WITH_IMM).0);
        assert_eq!(b_mem.read(GRH, len), data);
        let grh = b_mem.read(0, GRH);
        assert_eq!(grh[..8], [0x60, 0x50, 0, 7, (len >> 8) as u8, len as u8, 0x1b, 3]);
        assert_eq!((&grh[8..24], &grh[24..40]), (&gid(nic, sgid_index.into())[..], &gid(other, index as i32 % 2)[..]));
    }
}

/// The header may end within a piece, and at its end.
#[test]
fn a_datagram_fills_the_pieces_of_its_receive_in_order() {
    let Ends { a, a_cq, b, b_cq, nic, other } = &ends();
    let (a_mem, b_mem) = (nic.memory(4096), other.memory(4096));
    let ah = by_gid(nic, gid(other, 0), 0).unwrap();
    let data = pattern(80, 9);
    a_mem.fill(0, &data);
    for rooms in [[60, 50, 50], [40, 30, 50], [39, 2, 100], [10, 60, 200]] {
        b_mem.fill(0, &[0xee; 4096]);
        let pieces: Vec<_> = (0..).step_by(1000).zip(rooms).map(|(at, room)| b_mem.sge(at, room)).collect();
        assert_eq!(b.recv(1, &pieces), 0);
        a.post(&mut [Wr::send(2, SIGNALED, &[a_mem.sge(0, 80)]).to(ah.0, b.num(), QKEY)]).unwrap();
        assert_eq!((a_cq.wait().status, b_cq.wait().status), (SUCCESS, SUCCESS));
        let (mut skip, mut left) = (GRH, &data[..]);
        for (at, room) in (0..).step_by(1000).zip(rooms) {
            let header = skip.min(room);
            let (here, rest) = left.split_at((room - header).min(left.len()));
            assert_eq!(b_mem.read(at + header, here.len()), here, "{rooms:?}");
            assert_eq!(b_mem.read(at + room, 100), [0xee; 100], "{rooms:?} behind a piece");
            (skip, left) = (skip - header, rest);
        }
        assert!(left.is_empty());
    }
}

/// An address so high that the data behind the header's room would be beyond the last one: it must
/// not land at the first ones either, where the key's region is.
#[test]
fn a_receive_at_the_end_of_all_addresses_is_denied() {
    const ZERO_BASED: u32 = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
    let (nic, other) = (Nic::open(0), Nic::open(1));
    for below_the_end in [1, GRH as u64 - 1, GRH as u64] {
        let ends = (endpoint(&nic), endpoint(&other));
        let ((a, a_cq), (b, b_cq)) = (&ends.0, &ends.1);
        let (a_mem, b_mem) = (nic.memory(64), other.memory_with(256, LOCAL_WRITE | ZERO_BASED));
        let ah = ah_to(&nic, |attr| attr.dlid = 2).unwrap();
        assert_eq!(b.recv(1, &[ibv_sge { addr: u64::MAX - below_the_end, length: 200, lkey: b_mem.key() }]), 0);
        a.post(&mut [Wr::send(2, SIGNALED, &[a_mem.sge(0, 6)]).to(ah.0, b.num(), QKEY)]).unwrap();
        assert_eq!(a_cq.poll().unwrap().status, SUCCESS);
        assert_eq!(b_cq.poll().unwrap().status, ibv_wc_status::IBV_WC_LOC_PROT_ERR);
        assert_eq!(b_mem.read(0, 256), [0; 256]);
    }
}

#[test]
fn by_lid_there_is_no_header_but_its_room() {
    let Ends { a, b, b_cq, nic, other, .. } = &ends();
    let (a_mem, b_mem) = (nic.memory(64), other.memory(256));
    let ah = ah_to(nic, |attr| attr.dlid = 2).unwrap();
    a_mem.fill(0, b"by lid");
    // Scattered in the middle of the header and of the data.
    b.recv(1, &[b_mem.sge(0, 20), b_mem.sge(100, 23), b_mem.sge(200, 40)]);
    a.post(&mut [Wr::send(2, INLINE, &[a_mem.sge(0, 6)]).to(ah.0, b.num(), QKEY)]).unwrap();
    let got = b_cq.poll().unwrap();
    assert_eq!((got.flags, got.byte_len), (0, 46));
    assert_eq!([b_mem.read(120, 3), b_mem.read(200, 3)].concat(), b"by lid");
}

#[test]
fn the_way_back_is_in_the_completion() {
    let Ends { a, a_cq, b, b_cq, nic, other } = &ends();
    let (a_mem, b_mem) = (nic.memory(256), other.memory(256));
    for global in [false, true] {
        let ah = if global { by_gid(nic, gid(other, 1), 1) } else { ah_to(nic, |attr| attr.dlid = 2) }.unwrap();
        b.recv(1, &[b_mem.sge(0, 256)]);
        a.recv(9, &[a_mem.sge(0, 256)]);
        a.post(&mut [Wr::send(2, 0, &[]).to(ah.0, b.num(), QKEY)]).unwrap();
        let mut wc: ibv_wc = unsafe { std::mem::zeroed() };
        assert_eq!(unsafe { ibv_poll_cq(b_cq.0, 1, &mut wc) }, 1);
        let back = unsafe { soft::ibv_create_ah_from_wc(other.pd, &mut wc, b_mem.addr() as *mut ibv_grh, 1) };
        assert!(!back.is_null());
        let back = Ah(back);
        b.post(&mut [Wr::send(3, 0, &[]).to(back.0, wc.src_qp, QKEY)]).unwrap();
        assert_eq!(a_cq.poll().unwrap().wr_id, 9);
    }
}

/// As a card shows a datagram that came by IPv4: its IP header, behind 20 bytes of any value.
#[test]
fn the_way_back_is_in_an_ipv4_header_too() {
    let Ends { a, a_cq, b, b_cq, nic, other } = &ends();
    let (a_mem, b_mem) = (nic.memory(256), other.memory(256));
    let ah = by_gid(nic, gid(other, 1), 1).unwrap();
    b.recv(1, &[b_mem.sge(0, 256)]);
    a.post(&mut [Wr::send(2, 0, &[]).to(ah.0, b.num(), QKEY)]).unwrap();
    let mut wc: ibv_wc = unsafe { std::mem::zeroed() };
    assert_eq!(unsafe { ibv_poll_cq(b_cq.0, 1, &mut wc) }, 1);
    let [source, destination] = [Ipv4Addr::new(10, 9, 9, 1), Ipv4Addr::new(10, 9, 9, 2)];
    let route = Route { traffic_class: 0xb8, ..Route::new(Addresses::V4 { source, destination }, 2, 3) };
    for first in [0, 0x45, 0x60, 0xff] {
        let mut header = ip::before_message(&route, 28);
        header[..20].fill(first);
        b_mem.fill(0, &header);
        let grh = b_mem.addr() as *mut ibv_grh;
        let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
        assert_eq!(unsafe { soft::ibv_init_ah_from_wc(other.context, 1, &mut wc, grh, &mut attr) }, 0, "{first}");
        assert_eq!((unsafe { attr.grh.dgid.raw }, attr.grh.sgid_index, attr.is_global), (gid(nic, 1), 1, 1));
        assert_eq!((attr.grh.traffic_class, attr.grh.flow_label, attr.grh.hop_limit), (0xb8, 0, 64));
        let back = ah_to(other, |made| *made = attr).unwrap();
        a.recv(9, &[a_mem.sge(0, 256)]);
        b.post(&mut [Wr::send(3, 0, &[]).to(back.0, wc.src_qp, QKEY)]).unwrap();
        assert_eq!(a_cq.poll().unwrap().wr_id, 9);
    }
}

#[test]
fn what_goes_nowhere_is_lost_without_an_error() {
    let Ends { a, a_cq, b, b_cq, nic, other } = &ends();
    let b_mem = other.memory(256);
    let right = ah_to(nic, |attr| attr.dlid = 2).unwrap();
    let wrong_lid = ah_to(nic, |attr| attr.dlid = 1).unwrap();
    let nobody = ah_to(nic, |attr| attr.dlid = 99).unwrap();
    let stranger = by_gid(nic, [0x20; 16], 0).unwrap();
    let connected = Pair::rc();
    let lost = |wr: Wr| {
        a.post(&mut [wr]).unwrap();
        assert_eq!(a_cq.poll().unwrap().status, SUCCESS);
        assert!(b_cq.poll().is_none());
    };
    let send = || Wr::send(1, SIGNALED, &[]);
    lost(send().to(right.0, b.num(), QKEY)); // no receive
    b.recv(1, &[b_mem.sge(0, 256)]);
    lost(send().to(wrong_lid.0, b.num(), QKEY));
    lost(send().to(nobody.0, b.num(), QKEY));
    lost(send().to(stranger.0, b.num(), QKEY));
    lost(send().to(right.0, 0x00ab_cdef, QKEY));
    lost(send().to(right.0, connected.b.num(), QKEY));
    let mut before: ibv_port_attr = unsafe { std::mem::zeroed() };
    unsafe { soft::ibv_query_port(other.context, 1, &mut before) };
    lost(send().to(right.0, b.num(), QKEY + 1));
    let mut after: ibv_port_attr = unsafe { std::mem::zeroed() };
    unsafe { soft::ibv_query_port(other.context, 1, &mut after) };
    assert!(after.qkey_viol_cntr > before.qkey_viol_cntr, "the port counts it");
    // A controlled Q_Key stands for the sender's own.
    a.post(&mut [send().to(right.0, b.num(), 1 << 31)]).unwrap();
    assert_eq!(b_cq.poll().unwrap().status, SUCCESS);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let nic = Nic::open(0);
    let end = endpoint(&nic);
    let (a, a_cq) = &end;
    let mem = nic.memory(8192);
    let ah = ah_to(&nic, |attr| attr.dlid = 1).unwrap();
    let refused = |wr: Wr| assert_eq!(a.post(&mut [wr]), Err((libc::EINVAL, 0)));
    refused(Wr::send(1, 0, &[mem.sge(0, 4097)]).to(ah.0, a.num(), QKEY));
    refused(Wr::send(1, 0, &[]).to(std::ptr::null_mut(), a.num(), QKEY));
    for opcode in [0, 1, 4, 5, 6, 7, 8, 9] {
        refused(Wr::new(1, opcode, 0, &[mem.sge(0, 8)]).to(ah.0, a.num(), QKEY));
    }
    assert!(ah_to(&nic, |attr| attr.port_num = 2).is_none());
    assert!(by_gid(&nic, gid(&nic, 0), 9).is_none());
    assert!(ah_to(&nic, |attr| attr.dlid = 0xc001).is_none(), "multicast needs a GID");
    // An address handle of another domain fails the work request, and the send queue with it.
    let other = Nic::open(0);
    let foreign = ah_to(&other, |attr| attr.dlid = 1).unwrap();
    a.post(&mut [Wr::send(1, 0, &[]).to(foreign.0, a.num(), QKEY)]).unwrap();
    assert_eq!(a_cq.poll().unwrap().status, ibv_wc_status::IBV_WC_LOC_QP_OP_ERR);
    assert_eq!(a.state(), ibv_qp_state::IBV_QPS_SQE);
    drop(foreign);
}

#[test]
fn a_receive_that_is_too_short_fails() {
    let Ends { a, a_cq, b, b_cq, nic, other } = &ends();
    let (a_mem, b_mem) = (nic.memory(256), other.memory(256));
    let ah = ah_to(nic, |attr| attr.dlid = 2).unwrap();
    b.recv(1, &[b_mem.sge(0, GRH + 7)]);
    b.recv(2, &[b_mem.sge(0, 100)]);
    a.post(&mut [Wr::send(1, SIGNALED, &[a_mem.sge(0, 8)]).to(ah.0, b.num(), QKEY)]).unwrap();
    assert_eq!(a_cq.poll().unwrap().status, SUCCESS);
    let got: Vec<(u64, u32)> = b_cq.poll_all().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(got, [(1, ibv_wc_status::IBV_WC_LOC_LEN_ERR), (2, FLUSHED)]);
    assert_eq!(b.state(), ibv_qp_state::IBV_QPS_ERR);
}

#[test]
fn everybody_in_the_group_gets_a_copy() {
    let (nic, other) = (Nic::open(0), Nic::open(1));
    let members: Vec<(Qp, Cq)> = [&nic, &nic, &other].map(endpoint).into();
    let outsider = endpoint(&nic);
    let memory: Vec<Memory> = [&nic, &nic, &other, &nic].map(|nic| nic.memory(1024)).into();
    for group in [
        [0xff, 0x12, 0x40, 0x1b, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1, 1],
    ] {
        let gid = ibv_gid { raw: group };
        for (qp, _) in &members {
            assert_eq!(unsafe { soft::ibv_attach_mcast(qp.0, &gid, 0xc000) }, 0);
            assert_eq!(unsafe { soft::ibv_attach_mcast(qp.0, &gid, 0xc000) }, 0, "twice is once");
        }
        for ((qp, _), mem) in members.iter().chain([&outsider]).zip(&memory) {
            qp.recv(1, &[mem.sge(0, 1024)]);
            qp.recv(2, &[mem.sge(0, 1024)]);
        }
        let ah = by_gid(&nic, group, 0).unwrap();
        memory[0].fill(512, b"to all");
        let wr = || Wr::send(7, 0, &[memory[0].sge(512, 6)]).to(ah.0, 0xff_ffff, QKEY);
        members[0].0.post(&mut [wr()]).unwrap();
        for ((qp, cq), mem) in members.iter().zip(&memory) {
            let got = cq.poll().expect("a copy, the sender's own too");
            assert_eq!((got.wr_id, got.qp_num, got.src_qp), (1, qp.num(), members[0].0.num()));
            assert_eq!((mem.read(GRH, 6), &mem.read(24, 16)[..]), (b"to all".to_vec(), &group[..]));
            assert!(cq.poll().is_none(), "one copy each");
        }
        assert!(outsider.1.poll().is_none());
        // Another Q_Key, and then a member of another group only.
        members[0].0.post(&mut [Wr::send(7, 0, &[]).to(ah.0, 0xff_ffff, 1)]).unwrap();
        assert!(members.iter().all(|(_, cq)| cq.poll().is_none()));
        assert_eq!(unsafe { soft::ibv_destroy_qp(members[2].0.0) }, libc::EBUSY);
        for (qp, _) in &members[1..] {
            assert_eq!(unsafe { soft::ibv_detach_mcast(qp.0, &gid, 0xc000) }, 0);
            assert_eq!(unsafe { soft::ibv_detach_mcast(qp.0, &gid, 0xc000) }, libc::EINVAL);
        }
        members[1].0.post(&mut [wr()]).unwrap();
        let got: Vec<bool> = members.iter().map(|(_, cq)| cq.poll().is_some()).collect();
        assert_eq!(got, [true, false, false]);
        assert_eq!(unsafe { soft::ibv_detach_mcast(members[0].0.0, &gid, 0) }, 0);
        for (qp, cq) in members.iter().chain([&outsider]) {
            // Leave no receive behind for the second group.
            qp.to(ibv_qp_state::IBV_QPS_RESET);
            cq.poll_all();
            qp.bring_up(0, 0);
        }
    }
    let pair = Pair::rc();
    let gid = ibv_gid { raw: [0xff; 16] };
    assert_eq!(unsafe { soft::ibv_attach_mcast(pair.a.0, &gid, 0) }, libc::EINVAL);
    let unicast = ibv_gid { raw: [0xfe; 16] };
    assert_eq!(unsafe { soft::ibv_attach_mcast(members[0].0.0, &unicast, 0) }, libc::EINVAL);
}

/// Messages that find no receive are counted, once each; nothing else is.
#[test]
fn what_finds_no_receive_is_counted_by_its_queue_pair() {
    let Ends { a, a_cq, b, b_cq, nic, other } = &ends();
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    let counted = |qp: &Qp| {
        let counter = Arc::new(AtomicU64::new(0));
        assert!(unsafe { verbline_softnic::counters::count_out_of_buffer(qp.0, counter.clone()) });
        assert!(!unsafe { verbline_softnic::counters::count_out_of_buffer(qp.0, Arc::default()) }, "counted already");
        // Relaxed: one thread.
        move || counter.load(Ordering::Relaxed)
    };
    let (of_a, of_b) = (counted(a), counted(b));
    let (a_mem, b_mem) = (nic.memory(64), other.memory(64));
    let ah = by_gid(nic, gid(other, 0), 0).unwrap();
    let send = |count: u64, qkey: u32| {
        let wr = |number| Wr::send(number, SIGNALED, &[a_mem.sge(0, 8)]).to(ah.0, b.num(), qkey);
        a.post(&mut (0..count).map(wr).collect::<Vec<_>>()).unwrap();
        assert!(a_cq.poll_all().iter().all(|wc| wc.status == SUCCESS));
    };
    assert_eq!(b.recv(1, &[b_mem.sge(0, 48)]), 0);
    send(3, QKEY);
    assert_eq!((b_cq.poll_all().len(), of_b(), of_a()), (1, 2, 0));
    send(5, QKEY + 1);
    assert_eq!(of_b(), 2, "another Q_Key is another reason");
    for (qp_type, waits) in [(ibv_qp_type::IBV_QPT_UC, false), (ibv_qp_type::IBV_QPT_RC, true)] {
        let pair = Pair::connected(qp_type);
        let of_b = counted(&pair.b);
        for _ in 0..2 {
            pair.a.post(&mut [Wr::send(1, SIGNALED, &[pair.a_mem.sge(0, 8)])]).unwrap();
            // On RC the second waits behind the first, and has not looked for a receive yet.
            pair.a_send.poll_all();
        }
        assert_eq!(of_b(), if waits { 1 } else { 2 }, "{qp_type}");
        for receive in 1..=2 {
            pair.b.recv(receive, &[pair.b_mem.sge(0, 8)]);
            assert_eq!(of_b(), 2, "{qp_type}");
        }
        assert_eq!(pair.b_recv.poll_all().len(), if waits { 2 } else { 0 });
    }
}
