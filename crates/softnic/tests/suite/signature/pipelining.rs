//! The stop behind a transfer that failed its check, and the handling of work requests posted
//! behind it.

use crate::harness::*;
use crate::signature::rig::*;
use rdma_sys::ibv_qp_state::*;
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;
use verbline_softnic::mlx5dv::*;

const SQ_DRAINED: u32 = ibv_event_type::IBV_EVENT_SQ_DRAINED as u32;

/// Transactions whose data is in memory with its protection information, which is removed in
/// transit: `a` answers reads of `b`.
struct Target {
    /// Declared before the objects that the keys depend on.
    keys: Vec<Mkey>,
    pair: Pair,
}

impl Target {
    fn new(transactions: usize) -> Target {
        let pair = pair(PIPELINED);
        let keys: Vec<Mkey> = (0..transactions).map(|_| Mkey::signing(&pair.nic)).collect();
        let target = Target { pair, keys };
        (0..transactions).for_each(|at| target.configure(at));
        target
    }

    fn configure(&self, at: usize) {
        let data = pattern(512, at as u8);
        self.pair.a_mem.fill(at * 520, &protected(&data, 1, at as u32));
        let configure = Configure::list(&[self.pair.a_mem.sge(at * 520, 520)]).memory(Domain::t10(1, at as u32));
        configure.now(&self.pair.a, &self.keys[at]);
    }

    fn corrupt(&self, at: usize) {
        self.pair.a_mem.fill(at * 520 + 3, &[0xee, 0xdd]);
    }

    /// Data, then a good response with FENCE, in one list; both have `wr_id` `at`.
    fn answer(&self, at: usize, response_flags: u32) {
        assert_eq!(self.pair.b.recv(at as u64, &[self.pair.b_mem.sge(32_768 + at * 16, 16)]), 0);
        let write = Wr::new(at as u64, IBV_WR_RDMA_WRITE, 0, &[self.keys[at].sge(0, 512)]);
        let write = write.remote(self.pair.b_mem.addr() + 512 * at as u64, self.pair.b_mem.key());
        self.pair.a.post(&mut [write, self.response(at, response_flags)]).unwrap();
    }

    fn response(&self, at: usize, flags: u32) -> Wr {
        Wr::send(at as u64, FENCE | flags, &[self.pair.a_mem.sge(60_000, 16)])
    }

    fn cancel(&self, wr_id: u64) -> i32 {
        unsafe { mlx5dv_qp_cancel_posted_send_wrs(self.pair.a.0, wr_id) }
    }

    fn resume(&self) {
        let mut attr = attr(IBV_QPS_RTS);
        attr.cur_qp_state = IBV_QPS_SQD;
        let mask = ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_CUR_STATE;
        assert_eq!(self.pair.a.modify(&mut attr, mask), 0);
    }

    /// The received messages, by `wr_id`.
    fn received(&self) -> Vec<u64> {
        self.pair.b_recv.poll_all().iter().inspect(|wc| assert_eq!(wc.status, SUCCESS)).map(|wc| wc.wr_id).collect()
    }

    fn sent(&self) -> Vec<(u64, u32, u32)> {
        self.pair.a_send.poll_all().iter().map(|wc| (wc.wr_id, wc.status, wc.opcode)).collect()
    }
}

const SENT: u32 = ibv_wc_opcode::IBV_WC_SEND;

#[test]
fn cancelled_ones_complete_as_they_were_to_be_signaled() {
    let target = Target::new(1);
    target.corrupt(0);
    target.answer(0, 0);
    assert_eq!(async_event(&target.pair.nic), Some(SQ_DRAINED));
    let write = Wr::new(5, IBV_WR_RDMA_WRITE, SIGNALED, &[target.pair.a_mem.sge(0, 8)]);
    let write = write.remote(target.pair.b_mem.addr() + 50_000, target.pair.b_mem.key());
    let read = Wr::new(5, IBV_WR_RDMA_READ, SIGNALED, &[target.pair.a_mem.sge(0, 8)]);
    let read = read.remote(target.pair.b_mem.addr(), target.pair.b_mem.key());
    target.pair.a.post(&mut [write, read, target.response(6, SIGNALED)]).unwrap();
    let configure = Configure::list(&[target.pair.a_mem.sge(0, 520)]);
    assert_eq!(configure.post(&target.pair.a, &target.keys[0], 5, SIGNALED), 0);
    assert_eq!([target.cancel(0), target.cancel(5), target.cancel(7)], [1, 3, 0]);
    target.resume();
    let opcodes = [ibv_wc_opcode::IBV_WC_RDMA_WRITE, ibv_wc_opcode::IBV_WC_RDMA_READ];
    let driver = ibv_wc_opcode::IBV_WC_DRIVER1;
    let expected = [(5, SUCCESS, opcodes[0]), (5, SUCCESS, opcodes[1]), (6, SUCCESS, SENT), (5, SUCCESS, driver)];
    assert_eq!(target.sent(), expected, "the unsignaled one without a word");
    assert_eq!(target.pair.b_mem.read(50_000, 8), [0; 8], "nothing was written");
    assert_eq!(target.received(), [0], "response 6, in the only receive");
}

#[test]
fn the_places_of_cancelled_ones_are_taken_until_they_complete() {
    let target = Target::new(1);
    target.corrupt(0);
    target.answer(0, SIGNALED);
    let mut posted = 2;
    // The configuration took a position as well.
    while target.pair.a.post(&mut [target.response(9, SIGNALED)]).is_ok() {
        posted += 1;
    }
    assert_eq!(posted, 63);
    assert_eq!(target.cancel(9), 61);
    assert_eq!(target.pair.a.post(&mut [target.response(9, SIGNALED)]), Err((libc::ENOMEM, 0)));
    assert_eq!(target.cancel(0), 1);
    target.resume();
    assert_eq!(target.sent().len(), 62);
    target.pair.a.post(&mut [target.response(9, SIGNALED)]).unwrap();
}

#[test]
fn a_read_that_fails_its_check_stops_it_as_well() {
    let target = Target::new(1);
    let key = &target.keys[0];
    Configure::list(&[target.pair.a_mem.sge(0, 512)]).wire(Domain::t10(4, 4)).now(&target.pair.a, key);
    let reset = Configure::list(&[target.pair.a_mem.sge(0, 512)]).wire(Domain::t10(4, 4));
    reset.now(&target.pair.a, key);
    target.pair.b_mem.fill(0, &protected(&pattern(512, 1), 4, 5));
    assert_eq!(target.pair.b.recv(1, &[target.pair.b_mem.sge(4096, 16)]), 0);
    let read = Wr::new(1, IBV_WR_RDMA_READ, SIGNALED, &[key.sge(0, 512)]);
    let read = read.remote(target.pair.b_mem.addr(), target.pair.b_mem.key());
    target.pair.a.post(&mut [read, target.response(2, SIGNALED)]).unwrap();
    assert_eq!(async_event(&target.pair.nic), Some(SQ_DRAINED));
    assert_eq!(target.sent(), [(1, SUCCESS, ibv_wc_opcode::IBV_WC_RDMA_READ)], "the transfer itself succeeded");
    let error = key.check().unwrap();
    assert_eq!((error.err_type, error.sig.expected_value, error.sig.actual_value), (mkey_err_type::BAD_REFTAG, 5, 4));
    target.resume();
    assert_eq!((target.received(), target.sent()), (vec![1], vec![(2, SUCCESS, SENT)]));
}

#[test]
fn a_transfer_that_had_to_wait_stops_the_queue_too() {
    let target = Target::new(1);
    target.corrupt(0);
    let send = Wr::send(1, SIGNALED, &[target.keys[0].sge(0, 512)]);
    target.pair.a.post(&mut [send, target.response(2, SIGNALED)]).unwrap();
    assert_eq!((async_event(&target.pair.nic), target.pair.a.state()), (None, IBV_QPS_RTS));
    assert_eq!(target.pair.b.recv(1, &[target.pair.b_mem.sge(0, 512)]), 0);
    assert_eq!(target.pair.b.recv(2, &[target.pair.b_mem.sge(0, 512)]), 0);
    assert_eq!(async_event(&target.pair.nic), Some(SQ_DRAINED));
    assert_eq!((target.received(), target.sent()), (vec![1], vec![(1, SUCCESS, SENT)]));
    assert_eq!((target.keys[0].error(), target.cancel(2)), (mkey_err_type::BAD_GUARD, 1));
    target.resume();
    assert_eq!((target.received(), target.sent()), (vec![], vec![(2, SUCCESS, SENT)]));
}

#[test]
fn a_queue_pair_of_another_transport_has_none_of_it() {
    let nic = Nic::open(0);
    let cq = nic.cq(16);
    for (qp_type, extras) in [
        (ibv_qp_type::IBV_QPT_UC, CONFIGURING),
        (ibv_qp_type::IBV_QPT_UD, PIPELINED),
        (ibv_qp_type::IBV_QPT_RC, QpExtras { create_flags: 1 << 7, send_ops_flags: 0 }),
        (ibv_qp_type::IBV_QPT_RC, QpExtras { create_flags: 0, send_ops_flags: 1 << 4 }),
    ] {
        let mut init = init_attr(qp_type, &cq, &cq);
        assert!(unsafe { mlx5dv_create_qp(nic.pd, &mut init, extras) }.is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
