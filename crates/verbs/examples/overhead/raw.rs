//! The bare calls: buffers, work requests and completions as arrays, posted as linked lists,
//! without checks.

use std::hint::black_box;
use std::mem::zeroed;
use std::ptr::null_mut;

use rdma_sys::*;
use verbline_softnic::provider;

use crate::{BURST, Case, DEPTH_WR, Figures, SIGNAL_EVERY_WR, each_ns};

struct Side {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
    buffers: Vec<u8>,
    sges: Vec<ibv_sge>,
    sends: Vec<ibv_send_wr>,
    recvs: Vec<ibv_recv_wr>,
}

const STRIDE_BYTES: usize = 2048;

pub(crate) fn run(case: Case, rounds: usize) -> Figures {
    // SAFETY: one thread; every object is made here, used as its man page says and never freed
    // before the last use.
    unsafe {
        let (mut a, mut b) = (Side::new(0, case), Side::new(1, case));
        a.connect(b.qp);
        b.connect(a.qp);
        let mut completions: Vec<ibv_wc> = (0..2 * BURST).map(|_| zeroed()).collect();
        let capacity = completions.len() as i32;
        let mut round = || {
            let mut bad_recv = null_mut();
            assert_eq!(ibv_post_recv(b.qp, b.recvs.as_mut_ptr(), &raw mut bad_recv), 0);
            let mut bad_send = null_mut();
            assert_eq!(ibv_post_send(a.qp, a.sends.as_mut_ptr(), &raw mut bad_send), 0);
            let mut got = 0;
            while got < BURST as i32 {
                let found = ibv_poll_cq(b.cq, capacity, completions.as_mut_ptr());
                for completion in &completions[..found as usize] {
                    assert_eq!((completion.status, completion.byte_len as usize), (0, case.len_bytes));
                }
                got += found;
            }
            let mut done = 0;
            while done == 0 {
                done = ibv_poll_cq(a.cq, capacity, completions.as_mut_ptr());
                for completion in &completions[..done as usize] {
                    assert_eq!(completion.status, 0);
                }
            }
        };
        (0..rounds / 10).for_each(|_| round());
        let packet_ns = each_ns(rounds * BURST, || (0..rounds).for_each(|_| round()));
        let empty_poll_ns = each_ns(rounds * BURST, || {
            for _ in 0..rounds * BURST {
                black_box(ibv_poll_cq(a.cq, capacity, completions.as_mut_ptr()));
            }
        });
        provider::ibv_destroy_qp(a.qp);
        provider::ibv_destroy_qp(b.qp);
        Figures { packet_ns, empty_poll_ns }
    }
}

impl Side {
    /// # Safety
    /// None: everything is created here. The context stays open for the life of the program.
    unsafe fn new(device: usize, case: Case) -> Side {
        // SAFETY: as the man pages say; the list has two devices.
        unsafe {
            let list = provider::ibv_get_device_list(null_mut());
            let context = provider::ibv_open_device(*list.add(device));
            let pd = provider::ibv_alloc_pd(context);
            let cq = provider::ibv_create_cq(context, 256, null_mut(), null_mut(), 0);
            let mut buffers = vec![0; 2 * BURST * STRIDE_BYTES];
            let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as i32;
            let mr = provider::ibv_reg_mr(pd, buffers.as_mut_ptr().cast(), buffers.len(), access);
            let mut init: ibv_qp_init_attr = zeroed();
            (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, ibv_qp_type::IBV_QPT_RC);
            init.cap = ibv_qp_cap {
                max_send_wr: DEPTH_WR,
                max_recv_wr: DEPTH_WR,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: case.inline_bytes,
            };
            let qp = provider::ibv_create_qp(pd, &raw mut init);
            assert!(!qp.is_null() && !mr.is_null());
            let mut side = Side { qp, cq, buffers, sges: Vec::new(), sends: Vec::new(), recvs: Vec::new() };
            side.format(case, (*mr).lkey);
            side
        }
    }

    /// Links a burst of sends and one of receives, once.
    fn format(&mut self, case: Case, lkey: u32) {
        for n in 0..2 * BURST {
            let length = if n < BURST { case.len_bytes } else { STRIDE_BYTES } as u32;
            self.sges.push(ibv_sge { addr: (&raw const self.buffers[n * STRIDE_BYTES]) as u64, length, lkey });
        }
        for n in 0..BURST {
            // SAFETY: integers, pointers and unions of them: all zeros is a value.
            let (mut send, mut recv): (ibv_send_wr, ibv_recv_wr) = unsafe { (zeroed(), zeroed()) };
            (send.wr_id, send.sg_list, send.num_sge) = (n as u64, &raw mut self.sges[n], 1);
            send.opcode = ibv_wr_opcode::IBV_WR_SEND;
            if case.inline_bytes > 0 {
                send.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
            }
            if (n as u32 + 1).is_multiple_of(SIGNAL_EVERY_WR) {
                send.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
            }
            (recv.wr_id, recv.sg_list, recv.num_sge) = (n as u64, &raw mut self.sges[BURST + n], 1);
            self.sends.push(send);
            self.recvs.push(recv);
        }
        for n in 1..BURST {
            self.sends[n - 1].next = &raw mut self.sends[n];
            self.recvs[n - 1].next = &raw mut self.recvs[n];
        }
    }

    /// # Safety
    /// Both QPs exist, this one in RESET.
    unsafe fn connect(&mut self, peer: *mut ibv_qp) {
        use ibv_qp_attr_mask as mask;
        // SAFETY: as the man pages say.
        unsafe {
            let mut attr: ibv_qp_attr = zeroed();
            (attr.qp_state, attr.port_num) = (ibv_qp_state::IBV_QPS_INIT, 1);
            let to_init = mask::IBV_QP_STATE | mask::IBV_QP_PORT | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_ACCESS_FLAGS;
            assert_eq!(provider::ibv_modify_qp(self.qp, &raw mut attr, to_init.0 as i32), 0);
            let mut gid: ibv_gid = zeroed();
            assert_eq!(provider::ibv_query_gid((*peer).context, 1, 0, &raw mut gid), 0);
            (attr.qp_state, attr.path_mtu) = (ibv_qp_state::IBV_QPS_RTR, ibv_mtu::IBV_MTU_1024);
            (attr.dest_qp_num, attr.max_dest_rd_atomic, attr.min_rnr_timer) = ((*peer).qp_num, 1, 1);
            (attr.ah_attr.is_global, attr.ah_attr.port_num, attr.ah_attr.grh.dgid) = (1, 1, gid);
            attr.ah_attr.grh.hop_limit = 64;
            let to_rtr = mask::IBV_QP_STATE
                | mask::IBV_QP_AV
                | mask::IBV_QP_PATH_MTU
                | mask::IBV_QP_DEST_QPN
                | mask::IBV_QP_RQ_PSN
                | mask::IBV_QP_MAX_DEST_RD_ATOMIC
                | mask::IBV_QP_MIN_RNR_TIMER;
            assert_eq!(provider::ibv_modify_qp(self.qp, &raw mut attr, to_rtr.0 as i32), 0);
            (attr.qp_state, attr.timeout, attr.retry_cnt) = (ibv_qp_state::IBV_QPS_RTS, 14, 7);
            (attr.rnr_retry, attr.max_rd_atomic) = (7, 1);
            let to_rts = mask::IBV_QP_STATE
                | mask::IBV_QP_SQ_PSN
                | mask::IBV_QP_TIMEOUT
                | mask::IBV_QP_RETRY_CNT
                | mask::IBV_QP_RNR_RETRY
                | mask::IBV_QP_MAX_QP_RD_ATOMIC;
            assert_eq!(provider::ibv_modify_qp(self.qp, &raw mut attr, to_rts.0 as i32), 0);
        }
    }
}
