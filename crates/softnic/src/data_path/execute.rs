//! Carries out one send work request: validation, effect and completion.
//!
//! Guarantees: a work request that [`validate`] refuses has no effect. One that is carried out
//! completes as in hardware: a success only if it is signaled, an error always. After an error an
//! RC queue pair is in ERR, a UC or UD one in SQE, and later work requests are flushed.
//!
//! One thread at a time carries out a queue's work requests: the posting thread while the fast path
//! is open, else the holder of the turn (`progress`).

use crate::data_path::bind;
use crate::data_path::completion::{self, Header};
use crate::data_path::datagram;
use crate::data_path::errors::Errors;
use crate::data_path::message;
use crate::data_path::one_sided;
use crate::data_path::psn;
use crate::data_path::signature::configure;
use crate::objects::device::MTU_BYTES;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::Transport;
use crate::queues::pending::WrOutcome;
use crate::queues::wr::MESSAGE_BYTES_MAX;
use crate::queues::wr::{SendWr, sge_bytes};
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;
use std::ffi::c_int;

/// The bytes of its list, if the work request can be posted to `qp`; else an `errno`.
pub(crate) fn validate(qp: &Qp, wr: SendWr<'_>) -> Result<u64, c_int> {
    let few = u32::try_from(wr.num_sge).is_ok_and(|count| count <= qp.cap.max_send_sge);
    if !few || !is_supported(qp.transport, wr.opcode) {
        return if few && wr.opcode == IBV_WR_DRIVER1 { configure::validate(qp, wr) } else { Err(libc::EINVAL) };
    }
    let bytes = wr.sges().iter().map(sge_bytes).sum();
    if wr.is_inline() {
        let takes_inline = matches!(
            wr.opcode,
            IBV_WR_SEND | IBV_WR_SEND_WITH_IMM | IBV_WR_SEND_WITH_INV | IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM
        );
        if !takes_inline || bytes > u64::from(qp.cap.max_inline_data) {
            return Err(libc::EINVAL);
        }
    }
    let is_atomic = matches!(wr.opcode, IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD);
    if is_atomic && bytes != 8 {
        return Err(libc::EINVAL);
    }
    // SAFETY: a UD work request's arm of the union.
    if qp.is_datagram() && (bytes > MTU_BYTES || unsafe { wr.wr.ud.ah }.is_null()) {
        return Err(libc::EINVAL);
    }
    Ok(bytes)
}

/// Opcodes by transport, as in `ibv_post_send(3)`.
fn is_supported(transport: Transport, opcode: u32) -> bool {
    match transport {
        Transport::Rc => opcode <= IBV_WR_SEND_WITH_INV,
        Transport::Uc => matches!(
            opcode,
            IBV_WR_SEND
                | IBV_WR_SEND_WITH_IMM
                | IBV_WR_SEND_WITH_INV
                | IBV_WR_RDMA_WRITE
                | IBV_WR_RDMA_WRITE_WITH_IMM
                | IBV_WR_LOCAL_INV
                | IBV_WR_BIND_MW
        ),
        Transport::Ud => matches!(opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM),
        Transport::RawPacket => false,
    }
}

/// Carries out a work request that passed [`validate`]. Reads and atomics are done when this
/// returns, so `IBV_SEND_FENCE` has nothing to wait for. One thread at a time carries out the work
/// requests of a queue pair.
pub(crate) fn execute(qp: &Qp, pinned: Pinned<'_>, wr: SendWr<'_>, bytes: u64, errors: &mut Errors) -> WrOutcome {
    if bytes > MESSAGE_BYTES_MAX {
        return WrOutcome::Failed(ibv_wc_status::IBV_WC_LOC_LEN_ERR);
    }
    if qp.is_datagram() {
        return datagram::send(qp, pinned, wr, bytes, errors);
    }
    let outcome = match wr.opcode {
        IBV_WR_SEND | IBV_WR_SEND_WITH_IMM | IBV_WR_SEND_WITH_INV => message::send(qp, pinned, wr, bytes, errors),
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => one_sided::write(qp, pinned, wr, bytes, errors),
        IBV_WR_RDMA_READ => one_sided::read(qp, pinned, wr, bytes, errors),
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => one_sided::atomic(qp, pinned, wr, errors),
        // These stay on the own side.
        IBV_WR_LOCAL_INV => return bind::invalidate_locally(qp, pinned, wr),
        IBV_WR_BIND_MW => return bind::bind(qp, wr),
        IBV_WR_DRIVER1 => return configure::carry_out(qp, wr),
        // No other opcode passes validation.
        _ => WrOutcome::Failed(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR),
    };
    if let WrOutcome::Done(_) = outcome {
        psn::carried_out(qp, pinned);
    }
    outcome
}

/// Whether its success is reported.
#[inline(always)]
pub(crate) fn is_signaled(qp: &Qp, wr: SendWr<'_>) -> bool {
    qp.sig_all || wr.send_flags & ibv_send_flags::IBV_SEND_SIGNALED.0 != 0
}

/// Completes a work request that was carried out, if it is signaled.
pub(crate) fn complete(qp: &Qp, wr: SendWr<'_>, position: u64, bytes: u64, errors: &mut Errors) {
    if is_signaled(qp, wr) {
        add(qp, wr, position, bytes as u32, completion::SUCCESS, errors);
    }
}

/// Completes a failed work request, and moves the queue pair to an error state.
#[cold]
pub(crate) fn fail(qp: &Qp, wr: SendWr<'_>, position: u64, status: u32, errors: &mut Errors) {
    add(qp, wr, position, 0, status, errors);
    errors.fail_sends(qp);
}

/// Completes a work request as flushed.
#[cold]
pub(crate) fn flush(qp: &Qp, wr: SendWr<'_>, position: u64, errors: &mut Errors) {
    add(qp, wr, position, 0, ibv_wc_status::IBV_WC_WR_FLUSH_ERR, errors);
}

fn add(qp: &Qp, wr: SendWr<'_>, position: u64, byte_len: u32, status: u32, errors: &mut Errors) {
    let header =
        Header { word: wr.wr_id, qpn: qp.qpn, status, byte_len, opcode: wc_opcode(wr.opcode), ..Header::default() };
    let strong = status != completion::SUCCESS;
    if completion::push(qp.send_cq(), qp.tag(), &header, [position + 1, 0], strong).is_err() {
        errors.fail_fatally(qp);
    }
}

/// `ibv_wc_opcode` of an `ibv_wr_opcode`.
pub(crate) fn wc_opcode(opcode: u32) -> u32 {
    match opcode {
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => ibv_wc_opcode::IBV_WC_RDMA_WRITE,
        IBV_WR_RDMA_READ => ibv_wc_opcode::IBV_WC_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP => ibv_wc_opcode::IBV_WC_COMP_SWAP,
        IBV_WR_ATOMIC_FETCH_AND_ADD => ibv_wc_opcode::IBV_WC_FETCH_ADD,
        IBV_WR_LOCAL_INV => ibv_wc_opcode::IBV_WC_LOCAL_INV,
        IBV_WR_BIND_MW => ibv_wc_opcode::IBV_WC_BIND_MW,
        _ => ibv_wc_opcode::IBV_WC_SEND,
    }
}
