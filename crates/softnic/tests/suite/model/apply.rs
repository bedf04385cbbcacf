//! Carries out one step on the oracle and on the queue pairs, and compares them.

use crate::harness::*;
use crate::model::oracle::{GRH_BYTES, Oracle, State};
use crate::model::real::{Real, completed_opcode};
use crate::model::steps::*;
use proptest::prelude::*;
use rdma_sys::*;

type Outcome = Result<(), TestCaseError>;

/// Carries out the step; steps that are impossible in the current state do nothing.
pub(crate) fn apply(oracle: &mut Oracle, real: &mut Real, step: &Step) -> Outcome {
    match step {
        Step::Post(post) if real.qp(post.end).is_some() => {
            let first_number = oracle.ends[post.end].sends_ever;
            let keys = oracle.windows.map(|window| window.key);
            let answer = real.post_send(post, first_number, keys);
            prop_assert_eq!(answer, oracle.post_send(post));
        }
        Step::Recv { end, len } if real.qp(*end).is_some() => {
            let queue = oracle.queue_of(*end);
            let answer = real.post_recv(*end, queue, oracle.receives[queue].ever, *len);
            prop_assert_eq!(answer, oracle.post_recv(*end, *len));
        }
        Step::PollSend { end, count } => poll_send(oracle, real, *end, *count)?,
        Step::PollRecv { end, count } => poll_recv(oracle, real, *end, *count)?,
        Step::Up { end } => up(oracle, real, *end)?,
        Step::Connect { end } => {
            for end in [*end, *end ^ 1] {
                apply(oracle, real, &Step::Create { end })?;
                apply(oracle, real, &Step::Reset { end })?;
            }
            for _ in 0..3 {
                up(oracle, real, *end)?;
                up(oracle, real, *end ^ 1)?;
            }
        }
        Step::ToSqd { end } => {
            if let Some(qp) = real.qp(*end).filter(|_| oracle.ends[*end].state != State::Sqd) {
                let expected = if oracle.drain(*end) { 0 } else { libc::EINVAL };
                prop_assert_eq!(qp.to(ibv_qp_state::IBV_QPS_SQD), expected);
            }
        }
        Step::ToErr { end } => {
            if let Some(qp) = real.qp(*end) {
                let from_reset = oracle.ends[*end].state == State::Reset;
                prop_assert_eq!(qp.to(ibv_qp_state::IBV_QPS_ERR), if from_reset { libc::EINVAL } else { 0 });
                if !from_reset {
                    oracle.fail(*end);
                }
            }
        }
        Step::Reset { end } => {
            if let Some(qp) = real.qp(*end) {
                prop_assert_eq!(qp.to(ibv_qp_state::IBV_QPS_RESET), 0);
                oracle.reset(*end, State::Reset, real.number(*end));
            }
        }
        Step::Destroy { end } => {
            if real.qp(*end).is_some() {
                let qp_num = real.number(*end);
                real.destroy(*end);
                oracle.reset(*end, State::Gone, qp_num);
            }
        }
        Step::Create { end } => {
            if real.qp(*end).is_none() {
                real.create(*end);
                oracle.create(*end);
            }
        }
        Step::Post(_) | Step::Recv { .. } => {}
    }
    same(oracle, real)
}

fn up(oracle: &mut Oracle, real: &Real, end: usize) -> Outcome {
    let Some(qp) = real.qp(end) else { return Ok(()) };
    let back = matches!(oracle.ends[end].state, State::Sqd | State::Sqe);
    match oracle.up(end) {
        Some(State::Init) => qp.to_init(),
        Some(State::Rtr) => real.to_rtr(end),
        Some(State::Rts) if back => prop_assert_eq!(qp.to(ibv_qp_state::IBV_QPS_RTS), 0),
        Some(State::Rts) => qp.to_rts_with(|attr| attr.timeout = 0),
        _ => {}
    }
    Ok(())
}

fn poll_send(oracle: &mut Oracle, real: &Real, end: usize, count: usize) -> Outcome {
    for _ in 0..count {
        let due = oracle.poll_send(end);
        let wc = real.send_cqs[end].poll();
        prop_assert_eq!(wc.map(|wc| (wc.wr_id, wc.status)), due.map(|due| (due.number, due.status)));
        if let (Some(wc), Some(due)) = (wc, due) {
            prop_assert_eq!(wc.qp_num, real.number(end));
            prop_assert!(due.status != SUCCESS || wc.opcode == completed_opcode(due.work), "{:?}", wc);
        }
    }
    Ok(())
}

fn poll_recv(oracle: &mut Oracle, real: &Real, end: usize, count: usize) -> Outcome {
    let mut wcs: Vec<ibv_wc> = (0..count).map(|_| unsafe { std::mem::zeroed() }).collect();
    let polled = unsafe { ibv_poll_cq(real.recv_cqs[end].0, count as i32, wcs.as_mut_ptr()) } as usize;
    prop_assert_eq!(polled, count.min(oracle.ends[end].recv_due.len()));
    let datagram = oracle.transport == Transport::Ud;
    for wc in wcs[..polled].iter().map(convert) {
        let due = oracle.poll_recv(end, wc.wr_id);
        prop_assert!(due.is_some(), "{:?} was not left behind", wc);
        let due = due.unwrap();
        let qp_num = due.left_by.unwrap_or_else(|| real.number(end));
        prop_assert_eq!((wc.wr_id, wc.status, wc.qp_num), (due.number, due.status, qp_num));
        let Some(message) = due.message else { continue };
        let header = if datagram { GRH_BYTES } else { 0 };
        prop_assert_eq!(wc.byte_len as usize, header + message.len);
        let imm = message.imm.then_some(message.number as u32);
        prop_assert_eq!((wc.flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0).then_some(wc.imm), imm);
        let voided = message.voided.map(|(of, key)| real.window_key(of, key));
        prop_assert_eq!((wc.flags & ibv_wc_flags::IBV_WC_WITH_INV.0 != 0).then_some(wc.imm), voided);
        let opcode =
            if message.written { ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM } else { ibv_wc_opcode::IBV_WC_RECV };
        prop_assert_eq!(wc.opcode, opcode);
        if !message.written {
            let received = real.received(oracle.queue_of(end), due.number, message.len);
            prop_assert_eq!(received, pattern(message.len, message.number as u8));
        }
        if datagram && oracle.ends[message.from.0].name == message.from && real.qp(message.from.0).is_some() {
            prop_assert_eq!(wc.src_qp, real.number(message.from.0));
        }
    }
    Ok(())
}

/// Compares the states, and all memory that peers can reach.
fn same(oracle: &Oracle, real: &Real) -> Outcome {
    use ibv_qp_state::*;
    for (end, expected) in oracle.ends.iter().enumerate() {
        let state = match expected.state {
            State::Gone => None,
            State::Reset => Some(IBV_QPS_RESET),
            State::Init => Some(IBV_QPS_INIT),
            State::Rtr => Some(IBV_QPS_RTR),
            State::Rts => Some(IBV_QPS_RTS),
            State::Sqd => Some(IBV_QPS_SQD),
            State::Sqe => Some(IBV_QPS_SQE),
            State::Err => Some(IBV_QPS_ERR),
        };
        prop_assert_eq!(real.qp(end).map(Qp::state), state, "end {}", end);
        prop_assert!(real.exposed(end) == oracle.exposed[end], "what peers reach of end {}", end);
        prop_assert!(real.fetched(end) == oracle.fetched[end], "what end {} fetched", end);
    }
    Ok(())
}
