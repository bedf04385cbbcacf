//! RDMA WRITE, READ and atomics.
use crate::harness::*;
use rdma_sys::ibv_qp_type::{IBV_QPT_RC, IBV_QPT_UC};
use rdma_sys::ibv_wc_status::*;
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;
use verbline_softnic::provider as soft;

#[test]
fn write_and_read_move_the_bytes() {
    for qp_type in [IBV_QPT_RC, IBV_QPT_UC] {
        let pair = Pair::connected(qp_type);
        for len in [1usize, 8, 64, 100, 4096, 50_000] {
            let data = pattern(len, 3);
            pair.a_mem.fill(0, &data);
            pair.b_mem.fill(0, &vec![0; len]);
            let flags = if len <= 128 { SIGNALED | INLINE } else { SIGNALED };
            let wr = Wr::new(1, IBV_WR_RDMA_WRITE, flags, &[pair.a_mem.sge(0, len)]);
            pair.a.post(&mut [wr.remote(pair.b_mem.addr(), pair.b_mem.key())]).unwrap();
            let done = pair.a_send.poll().unwrap();
            assert_eq!((done.status, done.opcode), (SUCCESS, ibv_wc_opcode::IBV_WC_RDMA_WRITE));
            assert_eq!(pair.b_mem.read(0, len), data);
            assert!(pair.b_recv.poll().is_none(), "nothing is received");
            if qp_type == IBV_QPT_RC {
                let half = len / 2;
                let into = [pair.a_mem.sge(100, len - half), pair.a_mem.sge(60_000, half.max(1))];
                let into = if half == 0 { &into[..1] } else { &into[..] };
                let wr = Wr::new(2, IBV_WR_RDMA_READ, SIGNALED, into);
                pair.a.post(&mut [wr.remote(pair.b_mem.addr(), pair.b_mem.key())]).unwrap_or(());
                let done = pair.a_send.poll().unwrap();
                if half > 5000 {
                    assert_eq!(done.status, IBV_WC_LOC_PROT_ERR, "the second element ends outside the region");
                    break;
                }
                assert_eq!((done.status, done.byte_len), (SUCCESS, len as u32));
                assert_eq!([pair.a_mem.read(100, len - half), pair.a_mem.read(60_000, half)].concat(), data);
            }
        }
    }
}

#[test]
fn write_with_immediate_data_consumes_a_receive() {
    for qp_type in [IBV_QPT_RC, IBV_QPT_UC] {
        let pair = Pair::connected(qp_type);
        pair.b.recv(4, &[]);
        pair.a_mem.fill(0, b"written");
        let wr = Wr::new(1, IBV_WR_RDMA_WRITE_WITH_IMM, SIGNALED, &[pair.a_mem.sge(0, 7)]).imm(77);
        pair.a.post(&mut [wr.remote(pair.b_mem.addr() + 9, pair.b_mem.key())]).unwrap();
        let got = pair.b_recv.poll().unwrap();
        assert_eq!((got.wr_id, got.imm, got.byte_len), (4, 77, 7));
        assert_eq!(got.opcode, ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM);
        assert_eq!(got.flags, ibv_wc_flags::IBV_WC_WITH_IMM.0);
        assert_eq!(pair.b_mem.read(9, 7), b"written");
        assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
    }
    // Without a receive nothing is written, and RC waits for one.
    let pair = Pair::rc();
    let wr = || Wr::new(1, IBV_WR_RDMA_WRITE_WITH_IMM, SIGNALED | INLINE, &[pair.a_mem.sge(0, 7)]).imm(1);
    pair.a_mem.fill(0, b"written");
    pair.a.post(&mut [wr().remote(pair.b_mem.addr(), pair.b_mem.key())]).unwrap();
    assert_eq!(pair.b_mem.read(0, 7), [0; 7]);
    pair.b.recv(4, &[]);
    assert_eq!((pair.b_mem.read(0, 7), pair.b_recv.poll().unwrap().wr_id), (b"written".to_vec(), 4));
}

#[test]
fn atomics_are_done_and_give_the_value_before() {
    let pair = Pair::rc();
    pair.b_mem.fill(8, &40u64.to_ne_bytes());
    let at = pair.b_mem.addr() + 8;
    let run = |opcode, compare_add, swap| {
        let wr = Wr::new(1, opcode, SIGNALED, &[pair.a_mem.sge(16, 8)]);
        pair.a.post(&mut [wr.atomic(at, pair.b_mem.key(), compare_add, swap)]).unwrap();
        let done = pair.a_send.poll().unwrap();
        assert_eq!((done.status, done.byte_len), (SUCCESS, 8));
        let word = |bytes: Vec<u8>| u64::from_ne_bytes(bytes.try_into().unwrap());
        (done.opcode, word(pair.a_mem.read(16, 8)), word(pair.b_mem.read(8, 8)))
    };
    assert_eq!(run(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0), (ibv_wc_opcode::IBV_WC_FETCH_ADD, 40, 42));
    assert_eq!(run(IBV_WR_ATOMIC_CMP_AND_SWP, 41, 7), (ibv_wc_opcode::IBV_WC_COMP_SWAP, 42, 42));
    assert_eq!(run(IBV_WR_ATOMIC_CMP_AND_SWP, 42, 7), (ibv_wc_opcode::IBV_WC_COMP_SWAP, 42, 7));
    assert_eq!(run(IBV_WR_ATOMIC_FETCH_AND_ADD, u64::MAX, 0), (ibv_wc_opcode::IBV_WC_FETCH_ADD, 7, 6));
}

/// Neither shorter nor longer, in one piece or several.
#[test]
fn an_atomic_is_of_eight_bytes() {
    let pair = Pair::rc();
    pair.b_mem.fill(0, &[1; 64]);
    for opcode in [IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP] {
        for lens in [&[][..], &[4], &[7], &[9], &[16], &[8, 8], &[4, 5], &[8, 1]] {
            let sges: Vec<_> = lens.iter().map(|len| pair.a_mem.sge(1000, *len)).collect();
            let wr = Wr::new(1, opcode, SIGNALED, &sges).atomic(pair.b_mem.addr(), pair.b_mem.key(), 1, 1);
            assert_eq!(pair.a.post(&mut [wr]), Err((libc::EINVAL, 0)), "{opcode}, {lens:?}");
        }
        let two = [pair.a_mem.sge(1000, 4), pair.a_mem.sge(2000, 4)];
        let wr = Wr::new(1, opcode, SIGNALED, &two).atomic(pair.b_mem.addr() + 32, pair.b_mem.key(), 0, 0);
        pair.a.post(&mut [wr]).unwrap();
        assert_eq!(pair.a_send.wait().status, SUCCESS);
    }
    assert_eq!(pair.b_mem.read(0, 64), [1; 64]);
    assert_eq!(
        (pair.a_mem.read(1000, 9), pair.a_mem.read(2000, 4)),
        ([[1; 4].as_slice(), &[0; 5]].concat(), vec![1; 4])
    );
}

/// The outcome of one request, and of the peer.
fn outcome(pair: &Pair, wr: Wr) -> (u32, u32) {
    pair.a.post(&mut [wr]).unwrap();
    let status = pair.a_send.wait().status;
    (status, pair.b.state())
}

#[test]
fn remote_access_is_checked_as_hardware_checks_it() {
    use ibv_qp_state::{IBV_QPS_ERR, IBV_QPS_RTS};
    let access_error = (IBV_WC_REM_ACCESS_ERR, IBV_QPS_ERR);
    for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD] {
        let wr = |pair: &Pair, addr: u64, key: u32| {
            let wr = Wr::new(1, opcode, SIGNALED, &[pair.a_mem.sge(0, 8)]);
            if opcode == IBV_WR_ATOMIC_FETCH_AND_ADD { wr.atomic(addr, key, 1, 0) } else { wr.remote(addr, key) }
        };
        // For its first message, or for a later one, which the fast path takes.
        let ready = |is_later: bool| {
            let pair = Pair::rc();
            if is_later {
                let good = wr(&pair, pair.b_mem.addr(), pair.b_mem.key());
                assert_eq!(outcome(&pair, good), (SUCCESS, IBV_QPS_RTS));
            }
            pair
        };
        let with = |f: &dyn Fn(&Pair) -> Wr| {
            let [first, later] = [false, true].map(|is_later| {
                let pair = ready(is_later);
                (outcome(&pair, f(&pair)), async_event(&pair.other))
            });
            assert_eq!(first, later, "{opcode}");
            first
        };
        let event = Some(ibv_event_type::IBV_EVENT_QP_ACCESS_ERR as u32);
        assert_eq!(with(&|pair| wr(pair, pair.b_mem.addr(), pair.b_mem.key())), ((SUCCESS, IBV_QPS_RTS), None));
        let last = (1 << 16) - 8;
        assert_eq!(with(&|pair| wr(pair, pair.b_mem.addr() + last, pair.b_mem.key())).0, (SUCCESS, IBV_QPS_RTS));
        assert_eq!(with(&|pair| wr(pair, pair.b_mem.addr() + last + 8, pair.b_mem.key())), (access_error, event));
        assert_eq!(with(&|pair| wr(pair, pair.b_mem.addr() - 8, pair.b_mem.key())).0, access_error);
        assert_eq!(with(&|pair| wr(pair, u64::MAX - 3, pair.b_mem.key())).0, access_error);
        assert_eq!(with(&|pair| wr(pair, pair.b_mem.addr(), pair.b_mem.key() ^ 1)).0, access_error);
        assert_eq!(with(&|pair| wr(pair, pair.b_mem.addr(), 0)).0, access_error);
        // A region of another domain, and one without the right.
        assert_eq!(with(&|pair| wr(pair, pair.a_mem.addr(), pair.a_mem.key())).0, access_error);
        for (access, right) in [
            (LOCAL_WRITE | REMOTE_WRITE, IBV_WR_RDMA_WRITE),
            (REMOTE_READ, IBV_WR_RDMA_READ),
            (LOCAL_WRITE | REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD),
        ] {
            for pair in [false, true].map(ready) {
                let mem = pair.other.memory_with(64, access);
                let expected = if right == opcode { (SUCCESS, IBV_QPS_RTS) } else { access_error };
                assert_eq!(outcome(&pair, wr(&pair, mem.addr(), mem.key())), expected);
            }
        }
        // A queue pair that doesn't let it in, from its start or from now on.
        for pair in [false, true].map(ready) {
            let mut none = attr(IBV_QPS_RTS);
            none.qp_access_flags = LOCAL_WRITE;
            let mask = ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS;
            assert_eq!(pair.b.modify(&mut none, mask), 0);
            let request_error = (IBV_WC_REM_INV_REQ_ERR, IBV_QPS_ERR);
            assert_eq!(outcome(&pair, wr(&pair, pair.b_mem.addr(), pair.b_mem.key())), request_error);
            assert_eq!(async_event(&pair.other), Some(ibv_event_type::IBV_EVENT_QP_REQ_ERR as u32));
        }
    }
    // Only the good ones wrote anything; on UC the sender isn't told.
    let pair = Pair::connected(IBV_QPT_UC);
    let wr = Wr::new(1, IBV_WR_RDMA_WRITE, SIGNALED, &[pair.a_mem.sge(0, 8)]).remote(pair.b_mem.addr(), 1);
    assert_eq!(outcome(&pair, wr), (SUCCESS, IBV_QPS_RTS));
}

#[test]
fn misplaced_requests_fail() {
    use ibv_qp_state::IBV_QPS_ERR;
    let pair = Pair::rc();
    let wr = Wr::new(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, &[pair.a_mem.sge(0, 8)]);
    let wr = wr.atomic(pair.b_mem.addr() + 4, pair.b_mem.key(), 1, 0);
    assert_eq!(outcome(&pair, wr), (IBV_WC_REM_INV_REQ_ERR, IBV_QPS_ERR), "not aligned");
    assert_eq!(async_event(&pair.other), Some(ibv_event_type::IBV_EVENT_QP_REQ_ERR as u32));

    let pair = Pair::connected_with(IBV_QPT_RC, |_| {}, |attr| attr.max_rd_atomic = 0);
    let wr = Wr::new(1, IBV_WR_RDMA_READ, 0, &[pair.a_mem.sge(0, 8)]).remote(pair.b_mem.addr(), pair.b_mem.key());
    assert_eq!(outcome(&pair, wr).0, IBV_WC_LOC_QP_OP_ERR, "no initiator resources");

    let pair = Pair::rc();
    let read_only = pair.nic.memory_with(64, 0);
    let wr = Wr::new(1, IBV_WR_RDMA_READ, 0, &[read_only.sge(0, 8)]).remote(pair.b_mem.addr(), pair.b_mem.key());
    assert_eq!(outcome(&pair, wr).0, IBV_WC_LOC_PROT_ERR, "the answer can't be written");
}

#[test]
fn an_empty_request_needs_no_key() {
    let pair = Pair::rc();
    for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
        pair.a.post(&mut [Wr::new(1, opcode, SIGNALED, &[]).remote(0, 0)]).unwrap();
        assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
    }
}

#[test]
fn regions_can_have_addresses_of_their_own() {
    let pair = Pair::rc();
    let mut bytes = vec![0u8; 4096];
    bytes[10..15].copy_from_slice(b"hello");
    let mr = unsafe {
        soft::ibv_reg_mr_iova(
            pair.other.pd,
            bytes.as_mut_ptr().cast(),
            4096,
            0x1000_0000,
            (LOCAL_WRITE | REMOTE_READ) as i32,
        )
    };
    let zero_based = LOCAL_WRITE | REMOTE_WRITE | ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
    let zero = unsafe { soft::ibv_reg_mr(pair.other.pd, bytes.as_mut_ptr().cast(), 4096, zero_based as i32) };
    let (key, zero_key) = unsafe { ((*mr).rkey, (*zero).rkey) };
    let read = Wr::new(1, IBV_WR_RDMA_READ, SIGNALED, &[pair.a_mem.sge(0, 5)]).remote(0x1000_000a, key);
    let write = Wr::new(2, IBV_WR_RDMA_WRITE, SIGNALED, &[pair.a_mem.sge(0, 5)]).remote(100, zero_key);
    pair.a.post(&mut [read, write]).unwrap();
    assert_eq!(pair.a_send.poll_all().iter().map(|wc| wc.status).collect::<Vec<_>>(), [SUCCESS, SUCCESS]);
    assert_eq!(pair.a_mem.read(0, 5), b"hello");
    assert_eq!(unsafe { [soft::ibv_dereg_mr(mr), soft::ibv_dereg_mr(zero)] }, [0, 0]);
    assert_eq!(&bytes[100..105], b"hello");
}

#[test]
fn re_registering_changes_what_a_key_stands_for() {
    let pair = Pair::rc();
    let other_pd = unsafe { soft::ibv_alloc_pd(pair.other.context) };
    let (first, second) = (vec![1u8; 256], vec![2u8; 256]);
    let mr = unsafe { soft::ibv_reg_mr(pair.other.pd, first.as_ptr().cast_mut().cast(), 256, REMOTE_READ as i32) };
    let read = |addr: &[u8]| {
        let key = unsafe { (*mr).rkey };
        let wr = Wr::new(1, IBV_WR_RDMA_READ, SIGNALED, &[pair.a_mem.sge(0, 8)]).remote(addr.as_ptr() as u64, key);
        pair.a.post(&mut [wr]).unwrap();
        (pair.a_send.wait().status, pair.a_mem.read(0, 1)[0])
    };
    assert_eq!(read(&first), (SUCCESS, 1));
    let none: *mut u8 = std::ptr::null_mut();
    let rereg = |flags: ibv_rereg_mr_flags, pd, addr: *const u8, len, access: u32| unsafe {
        soft::ibv_rereg_mr(mr, flags.0 as i32, pd, addr.cast_mut().cast(), len, access as i32)
    };
    use ibv_rereg_mr_flags as f;
    assert_eq!(rereg(f::IBV_REREG_MR_CHANGE_TRANSLATION, none.cast(), second.as_ptr(), 256, 0), 0);
    assert_eq!(read(&second), (SUCCESS, 2));
    assert_eq!(
        rereg(f::IBV_REREG_MR_CHANGE_ACCESS, none.cast(), none, 0, REMOTE_WRITE),
        ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT,
        "remote write needs local write"
    );
    assert_eq!(read(&second), (SUCCESS, 2), "unchanged");
    assert_eq!(rereg(f::IBV_REREG_MR_CHANGE_PD, other_pd, none, 0, 0), 0);
    assert_eq!(read(&second).0, IBV_WC_REM_ACCESS_ERR);
    assert_eq!(unsafe { soft::ibv_dealloc_pd(other_pd) }, libc::EBUSY);
    assert_eq!(unsafe { soft::ibv_dereg_mr(mr) }, 0);
    assert_eq!(unsafe { soft::ibv_dealloc_pd(other_pd) }, 0);
}

/// WRITEs, then READs, of parts of `a_mem` to and from parts of `b_mem`, more than fit into a run,
/// in one list.
#[test]
fn a_list_moves_what_one_by_one_would() {
    let more = |init: &mut ibv_qp_init_attr| (init.cap.max_send_wr, init.cap.max_inline_data) = (200, 64);
    for qp_type in [IBV_QPT_RC, IBV_QPT_UC] {
        let pair = Pair::connected_with(qp_type, more, |_| {});
        let data = pattern(1 << 15, 5);
        pair.a_mem.fill(0, &data);
        let (key, to) = (pair.b_mem.key(), pair.b_mem.addr());
        let len = |part: usize| 1 + (part * 37) % 300;
        let mut list: Vec<Wr> = (0..80)
            .map(|part| {
                let flags = if part % 7 == 0 && len(part) <= 64 { INLINE } else { 0 };
                let flags = if part % 16 == 15 { flags | SIGNALED } else { flags };
                let sge = pair.a_mem.sge(part * 301, len(part));
                Wr::new(part as u64, IBV_WR_RDMA_WRITE, flags, &[sge]).remote(to + 400 * part as u64, key)
            })
            .collect();
        if qp_type == IBV_QPT_RC {
            list.extend((0..20).map(|part| {
                let sge = pair.a_mem.sge((1 << 15) + 300 * part, len(part));
                let flags = if part == 19 { SIGNALED } else { 0 };
                Wr::new(100 + part as u64, IBV_WR_RDMA_READ, flags, &[sge]).remote(to + 400 * part as u64, key)
            }));
        }
        pair.a.post(&mut list).unwrap();
        let done = pair.a_send.poll_all();
        assert!(done.iter().all(|wc| wc.status == SUCCESS), "{done:?}");
        let done: Vec<u64> = done.iter().map(|wc| wc.wr_id).collect();
        let reads: &[u64] = if qp_type == IBV_QPT_RC { &[119] } else { &[] };
        assert_eq!(done, [&[15, 31, 47, 63, 79], reads].concat());
        for part in 0..80 {
            assert_eq!(pair.b_mem.read(400 * part, len(part)), data[part * 301..][..len(part)], "part {part}");
            assert_eq!(pair.b_mem.read(400 * part + len(part), 1), [0], "and no more than part {part}");
        }
        for part in (0..20).take(20 * reads.len()) {
            assert_eq!(pair.a_mem.read((1 << 15) + 300 * part, len(part)), data[part * 301..][..len(part)]);
        }
    }
}

/// An access that isn't granted fails at its place: earlier work requests are done, later ones
/// flushed.
#[test]
fn a_list_ends_where_an_access_is_not_granted() {
    type Spoil = fn(&mut Wr, &Pair, &Memory);
    let cases: [(&str, u32, Spoil); 7] = [
        ("a stale R_Key", IBV_WC_REM_ACCESS_ERR, |wr, pair, _| wr.raw.wr.rdma.rkey = pair.b_mem.key() ^ 1),
        ("no R_Key", IBV_WC_REM_ACCESS_ERR, |wr, _, _| wr.raw.wr.rdma.rkey = 0),
        ("another domain's R_Key", IBV_WC_REM_ACCESS_ERR, |wr, pair, _| wr.raw.wr.rdma.rkey = pair.a_mem.key()),
        ("beyond the region", IBV_WC_REM_ACCESS_ERR, |wr, pair, _| {
            wr.raw.wr.rdma.remote_addr = pair.b_mem.addr() + (1 << 16) - 7;
        }),
        ("a region without the right", IBV_WC_REM_ACCESS_ERR, |wr, _, other| {
            wr.raw.wr.rdma = rdma_t { remote_addr: other.addr(), rkey: other.key() };
        }),
        ("another domain's L_Key", IBV_WC_LOC_PROT_ERR, |wr, pair, _| wr.sges[0].lkey = pair.b_mem.key()),
        ("before the own region", IBV_WC_LOC_PROT_ERR, |wr, pair, _| wr.sges[0].addr = pair.a_mem.addr() - 1),
    ];
    for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
        for (what, status, spoil) in cases {
            let pair = Pair::rc();
            let local_only = pair.other.memory_with(4096, ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0);
            pair.a_mem.fill(0, &pattern(64, 1));
            pair.b_mem.fill(0, &pattern(64, 2));
            let mut list: Vec<Wr> = (0..4)
                .map(|part| {
                    let wr = Wr::new(part, opcode, SIGNALED, &[pair.a_mem.sge(8 * part as usize, 8)]);
                    wr.remote(pair.b_mem.addr() + 8 * part, pair.b_mem.key())
                })
                .collect();
            spoil(&mut list[2], &pair, &local_only);
            pair.a.post(&mut list).unwrap();
            let statuses: Vec<u32> = pair.a_send.poll_all().iter().map(|wc| wc.status).collect();
            assert_eq!(statuses, [SUCCESS, SUCCESS, status, IBV_WC_WR_FLUSH_ERR], "{what}");
            let (near, far) = (pair.a_mem.read(0, 32), pair.b_mem.read(0, 32));
            assert_eq!(near[..16], far[..16], "{what}: what came before is done");
            assert_eq!((&near[16..], &far[16..]), (&pattern(64, 1)[16..32], &pattern(64, 2)[16..32]), "{what}");
        }
    }
}
