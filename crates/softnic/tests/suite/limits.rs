//! Numbers are used again: more queue pairs and keys, one after another, than may exist at a time.
use crate::harness::*;
use rdma_sys::*;
use std::ffi::c_int;
#[cfg(debug_assertions)]
use verbline_softnic::counters::{DueMark, take_due_marks};
use verbline_softnic::provider as soft;

fn limits(nic: &Nic) -> ibv_device_attr {
    let mut attr = std::mem::MaybeUninit::uninit();
    assert_eq!(unsafe { soft::ibv_query_device(nic.context, attr.as_mut_ptr()) }, 0);
    unsafe { attr.assume_init() }
}

#[test]
fn more_queue_pairs_come_and_go_than_may_be_at_a_time() {
    let nic = Nic::open(0);
    let cq = nic.cq(1);
    let stays = nic.qp(ibv_qp_type::IBV_QPT_RC, &cq, &cq);
    let smallest = |init: &mut ibv_qp_init_attr| {
        init.cap = ibv_qp_cap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    };
    let mut before = stays.num();
    for _ in 0..limits(&nic).max_qp as u32 + 10 {
        let qp = nic.qp_with(ibv_qp_type::IBV_QPT_RC, &cq, &cq, smallest);
        assert!(qp.num() != before && qp.num() != stays.num());
        before = qp.num();
    }
}

#[test]
fn more_regions_come_and_go_than_may_be_at_a_time() {
    let nic = Nic::open(0);
    let stays = nic.memory(64);
    let (mut before, mut bytes) = (stays.key(), [0u64; 8]);
    for _ in 0..limits(&nic).max_mr as u32 + 10 {
        let mr = unsafe { soft::ibv_reg_mr(nic.pd, bytes.as_mut_ptr().cast(), 64, LOCAL_WRITE as i32) };
        assert!(!mr.is_null(), "{}", std::io::Error::last_os_error());
        let key = unsafe { (*mr).lkey };
        assert!(key != before && key != stays.key());
        before = key;
        assert_eq!(unsafe { soft::ibv_dereg_mr(mr) }, 0);
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_completion_queue_that_is_gone_tells_how_many_work_requests_were_due_at_once() {
    // Other tests have queues of other sizes.
    const CQE: c_int = 777;
    take_due_marks();
    {
        let nic = Nic::open(0);
        let (cq, memory) = (nic.cq(CQE), nic.memory(64));
        let [a, b] = [0, 1].map(|_| nic.qp(ibv_qp_type::IBV_QPT_RC, &cq, &cq));
        connect((&a, 1), (&b, 1));
        for _ in 0..2 {
            (0..3).for_each(|wr_id| assert_eq!(b.recv(wr_id, &[memory.sge(0, 32)]), 0));
            let mut sends: Vec<Wr> = (0..2).map(|wr_id| Wr::send(wr_id, SIGNALED, &[memory.sge(32, 8)])).collect();
            assert!(a.post(&mut sends).is_ok());
            // Two receives and two sends; the third receive stays.
            assert_eq!(cq.poll_all().len(), 4);
        }
    }
    let marks: Vec<DueMark> = take_due_marks().into_iter().filter(|mark| mark.cqe == CQE as u32).collect();
    assert_eq!(marks, [DueMark { cqe: CQE as u32, most: 6 }]);
}
