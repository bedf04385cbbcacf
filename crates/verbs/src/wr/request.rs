//! Work requests of the SQ, written whole.
//!
//! A thread posts all its work requests from the same few entries ([`crate::wr::wr_list`]), so one
//! post finds the leftovers of the last. [`Request::write`] leaves none: it writes everything that
//! a device may read, with 0 in fields that the opcode does not use. The faster paths that write
//! less still write all that their one opcode reads.

use rdma_sys::{atomic_t, bind_mw_t, ibv_send_wr, ibv_wr_opcode, rdma_t, ud_t};

use crate::memory::peer::Remote;
use crate::wr::operation::{Atomic, Transfer};

/// The operation of a work request, without its bytes.
pub(crate) enum Request {
    /// A transfer over a connection.
    Transfer(Transfer),
    /// An atomic over a connection.
    Atomic(Atomic),
    /// A SEND on UD, which needs this destination.
    Datagram {
        imm: Option<u32>,
        to: ud_t,
    },
    LocalInvalidate {
        rkey: u32,
    },
    Bind(bind_mw_t),
    /// A configuration of a signature key; its words go inline.
    Configure,
}

impl Request {
    /// Writes all of the work request but its number, its link, and the address of its
    /// scatter/gather list.
    pub(crate) fn write(self, send_flags: u32, num_sge: usize, wr: &mut ibv_send_wr) {
        let ibv_send_wr { wr_id, next, sg_list, .. } = *wr;
        // SAFETY: integers, pointers and unions of them: all zeros is a value.
        let nothing: ibv_send_wr = unsafe { std::mem::zeroed() };
        // No work request has more parts than the QP was created for.
        let num_sge = num_sge as i32;
        *wr = ibv_send_wr { wr_id, next, sg_list, num_sge, send_flags, ..nothing };
        wr.opcode = match self {
            Request::Transfer(transfer) => write_transfer(transfer, wr),
            Request::Atomic(atomic) => write_atomic(atomic, wr),
            Request::Datagram { imm, to } => {
                wr.wr.ud = to;
                write_transfer(Transfer::send(imm), wr)
            }
            Request::LocalInvalidate { rkey } => {
                wr.imm_data_invalidated_rkey_union.invalidated_rkey = rkey;
                ibv_wr_opcode::IBV_WR_LOCAL_INV
            }
            Request::Bind(bind) => {
                wr.bind_mw_tso_union.bind_mw = bind;
                ibv_wr_opcode::IBV_WR_BIND_MW
            }
            Request::Configure => ibv_wr_opcode::IBV_WR_DRIVER1,
        };
    }
}

fn write_transfer(transfer: Transfer, wr: &mut ibv_send_wr) -> u32 {
    match transfer {
        Transfer::Send => ibv_wr_opcode::IBV_WR_SEND,
        Transfer::SendWithImm { imm } => {
            wr.imm_data_invalidated_rkey_union.imm_data = imm.to_be();
            ibv_wr_opcode::IBV_WR_SEND_WITH_IMM
        }
        Transfer::SendWithInvalidate { rkey } => {
            wr.imm_data_invalidated_rkey_union.invalidated_rkey = rkey;
            ibv_wr_opcode::IBV_WR_SEND_WITH_INV
        }
        Transfer::Write { to } => {
            wr.wr.rdma = rdma(to);
            ibv_wr_opcode::IBV_WR_RDMA_WRITE
        }
        Transfer::WriteWithImm { to, imm } => {
            wr.wr.rdma = rdma(to);
            wr.imm_data_invalidated_rkey_union.imm_data = imm.to_be();
            ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
        }
        Transfer::Read { from, .. } => {
            wr.wr.rdma = rdma(from);
            ibv_wr_opcode::IBV_WR_RDMA_READ
        }
    }
}

fn write_atomic(atomic: Atomic, wr: &mut ibv_send_wr) -> u32 {
    match atomic {
        Atomic::CompareSwap { at, compare, swap } => {
            wr.wr.atomic = atomic_t { remote_addr: at.addr, compare_add: compare, swap, rkey: at.rkey };
            ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
        }
        Atomic::FetchAdd { at, add } => {
            wr.wr.atomic = atomic_t { remote_addr: at.addr, compare_add: add, swap: 0, rkey: at.rkey };
            ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD
        }
    }
}

/// The peer's memory in the form of a work request.
#[inline]
pub(crate) fn rdma(remote: Remote) -> rdma_t {
    rdma_t { remote_addr: remote.addr, rkey: remote.rkey }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use rdma_sys::{ibv_ah, ibv_mw, ibv_mw_bind_info};

    use super::*;
    use crate::wr::connected::OnRc;

    /// A work request filled with this byte.
    fn filled(byte: u8) -> ibv_send_wr {
        // SAFETY: integers, pointers and unions of them: any bits are a value.
        unsafe {
            let mut wr = std::mem::MaybeUninit::<ibv_send_wr>::uninit();
            ptr::write_bytes(wr.as_mut_ptr(), byte, 1);
            wr.assume_init()
        }
    }

    /// All fields that a device may read, for any opcode, as numbers.
    fn read(wr: &ibv_send_wr) -> [u64; 14] {
        // SAFETY: all of it was zeroed, and the values written since are integers and pointers as
        // well.
        let (imm, wr_t, bind) = unsafe {
            let wr_t = [wr.wr.atomic.remote_addr, wr.wr.rdma.rkey.into(), wr.wr.atomic.swap, wr.wr.atomic.rkey.into()];
            (wr.imm_data_invalidated_rkey_union.imm_data, wr_t, wr.bind_mw_tso_union.bind_mw)
        };
        let info = bind.bind_info;
        let [addr, rkey, swap, atomic_rkey] = wr_t;
        [
            wr.num_sge as u64,
            wr.opcode.into(),
            wr.send_flags.into(),
            imm.into(),
            addr,
            rkey,
            swap,
            atomic_rkey,
            bind.mw.addr() as u64,
            bind.rkey.into(),
            info.mr.addr() as u64,
            info.addr,
            info.length,
            info.mw_access_flags.into(),
        ]
    }

    #[test]
    fn nothing_that_was_there_is_left_but_number_link_and_list() {
        let at = Remote { addr: 4096, rkey: 7 };
        let to = ud_t { ah: ptr::without_provenance_mut::<ibv_ah>(64), remote_qpn: 3, remote_qkey: 4 };
        let bind = || bind_mw_t {
            mw: ptr::without_provenance_mut::<ibv_mw>(64),
            rkey: 9,
            bind_info: ibv_mw_bind_info { mr: ptr::null_mut(), addr: 8, length: 8, mw_access_flags: 1 },
        };
        let requests: [fn(Remote, ud_t, bind_mw_t) -> Request; 11] = [
            |_, _, _| Request::Transfer(Transfer::Send),
            |_, _, _| Request::Transfer(Transfer::SendWithImm { imm: 5 }),
            |_, _, _| Request::Transfer(Transfer::SendWithInvalidate { rkey: 5 }),
            |to, _, _| Request::Transfer(Transfer::Write { to }),
            |from, _, _| Request::Transfer(Transfer::Read { from, on: OnRc }),
            |at, _, _| Request::Atomic(Atomic::FetchAdd { at, add: 1 }),
            |at, _, _| Request::Atomic(Atomic::CompareSwap { at, compare: 1, swap: 2 }),
            |_, to, _| Request::Datagram { imm: None, to },
            |_, _, _| Request::LocalInvalidate { rkey: 5 },
            |_, _, bind| Request::Bind(bind),
            |_, _, _| Request::Configure,
        ];
        for request in requests {
            let [mut once, mut again] = [0x61, 0].map(filled);
            request(at, to, bind()).write(2, 1, &mut once);
            request(at, to, bind()).write(2, 1, &mut again);
            assert_eq!(read(&once), read(&again), "opcode {}", once.opcode);
            let stays = filled(0x61);
            assert_eq!((once.wr_id, once.next, once.sg_list), (stays.wr_id, stays.next, stays.sg_list));
        }
    }
}
