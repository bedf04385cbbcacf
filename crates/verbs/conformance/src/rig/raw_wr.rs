//! Lists of work requests in the verbs' form.

use super::errno::PostRefused;
use super::wr::{Recv, Target, Wr};
use rdma_sys::{atomic_t, bind_mw_t, ibv_recv_wr, ibv_send_wr, ibv_sge, rdma_t, ud_t};
use std::ffi::c_int;
use std::ptr;

/// An address of no work request: the value of `bad_wr` unless the verb writes it.
pub(super) const UNTOUCHED: usize = 1;

/// A list of `ibv_send_wr` with its scatter/gather lists.
#[derive(Default)]
pub(super) struct RawSends {
    wrs: Vec<ibv_send_wr>,
    sges: Vec<Box<[ibv_sge]>>,
}

impl RawSends {
    pub(super) fn push(&mut self, wr: &Wr) {
        let mut sges: Box<[ibv_sge]> = wr.sges.iter().map(|sge| sge.raw()).collect();
        // SAFETY: integers, unions of integers, and pointers that may be null.
        let mut raw: ibv_send_wr = unsafe { std::mem::zeroed() };
        raw.wr_id = wr.id;
        raw.num_sge = sges.len() as c_int;
        raw.sg_list = if sges.is_empty() { ptr::null_mut() } else { sges.as_mut_ptr() };
        raw.opcode = wr.op as u32;
        raw.send_flags = wr.flags;
        raw.imm_data_invalidated_rkey_union.imm_data = wr.word;
        match &wr.target {
            Target::None => {}
            Target::Rdma(remote) => raw.wr.rdma = rdma_t { remote_addr: remote.addr, rkey: remote.rkey },
            &Target::Atomic { remote, compare_add, swap } => {
                raw.wr.atomic = atomic_t { remote_addr: remote.addr, compare_add, swap, rkey: remote.rkey };
            }
            Target::Ud { ah, qpn, qkey } => raw.wr.ud = ud_t { ah: ah.raw(), remote_qpn: *qpn, remote_qkey: *qkey },
            Target::Bind { mw, rkey, window } => {
                raw.bind_mw_tso_union.bind_mw = bind_mw_t { mw: mw.raw(), rkey: *rkey, bind_info: window.raw() };
            }
        }
        self.wrs.push(raw);
        self.sges.push(sges);
    }

    /// Links the list; it must not move any more.
    pub(super) fn first(&mut self) -> *mut ibv_send_wr {
        let base = self.wrs.as_mut_ptr();
        for at in 1..self.wrs.len() {
            // SAFETY: `at` and `at - 1` are indices of the list.
            unsafe { (*base.add(at - 1)).next = base.add(at) };
        }
        base
    }

    /// Overwrites everything: the verb must not read the list after it returns.
    pub(super) fn scribble(&mut self) {
        for wr in &mut self.wrs {
            wr.wr_id = u64::MAX;
            wr.opcode = u32::MAX;
            wr.num_sge = c_int::MAX;
        }
        for sge in self.sges.iter_mut().flat_map(|list| list.iter_mut()) {
            *sge = ibv_sge { addr: u64::MAX, length: u32::MAX, lkey: u32::MAX };
        }
    }
}

/// A linked list of `ibv_recv_wr` with its scatter/gather lists.
pub(super) struct RawRecvs {
    wrs: Vec<ibv_recv_wr>,
    sges: Vec<Box<[ibv_sge]>>,
}

impl RawRecvs {
    pub(super) fn new(recvs: &[Recv]) -> RawRecvs {
        let mut sges: Vec<Box<[ibv_sge]>> =
            recvs.iter().map(|recv| recv.sges.iter().map(|sge| sge.raw()).collect()).collect();
        let list = recvs.iter().zip(&mut sges).map(|(recv, sges)| ibv_recv_wr {
            wr_id: recv.id,
            next: ptr::null_mut(),
            sg_list: if sges.is_empty() { ptr::null_mut() } else { sges.as_mut_ptr() },
            num_sge: sges.len() as c_int,
        });
        let wrs = list.collect();
        RawRecvs { wrs, sges }
    }

    /// Links the list; it must not move any more.
    pub(super) fn first(&mut self) -> *mut ibv_recv_wr {
        let base = self.wrs.as_mut_ptr();
        for at in 1..self.wrs.len() {
            // SAFETY: `at` and `at - 1` are indices of the list.
            unsafe { (*base.add(at - 1)).next = base.add(at) };
        }
        base
    }

    /// Reads the verb's result; then everything is overwritten, as in `RawSends::scribble`.
    pub(super) fn outcome(
        &mut self,
        verb: &'static str,
        errno: c_int,
        bad: *mut ibv_recv_wr,
    ) -> Result<(), PostRefused> {
        let base = self.wrs.as_ptr().addr();
        for wr in &mut self.wrs {
            wr.wr_id = u64::MAX;
            wr.num_sge = c_int::MAX;
        }
        for sge in self.sges.iter_mut().flat_map(|list| list.iter_mut()) {
            *sge = ibv_sge { addr: u64::MAX, length: u32::MAX, lkey: u32::MAX };
        }
        PostRefused::check(verb, errno, bad.addr(), base, size_of::<ibv_recv_wr>())
    }
}
