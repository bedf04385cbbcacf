//! The transport's access to memory: by the keys of this device, checked as for any other access.
//!
//! Guarantees: each access is checked when it is made, and made inside a guard, so no memory is
//! touched after it was deregistered.

use crate::copy::copy;
use crate::data_path::arrival;
use crate::data_path::bind;
use crate::key_table::{self, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::objects::device::SGE_MAX;
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::queues::pending::WrOutcome;
use crate::queues::wr::sge_bytes;
use rdma_sys::ibv_wr_opcode::{IBV_WR_BIND_MW, IBV_WR_LOCAL_INV};
use std::sync::atomic::{AtomicU64, Ordering};
use verbline_roce::wire::AtomicOp;
use verbline_roce::{Denied, Memory, Owner, Place, Receive, Right, Sge};

/// The memory of this process, while the guard is held.
pub(crate) struct Keys<'p>(pub(crate) Pinned<'p>);

/// The host address of the bytes, if the key grants them.
fn granted(place: Place, len: u64) -> Result<*mut u8, Denied> {
    let Place { owner, key, right, addr } = place;
    let (pd, qpn) = (owner.domain, owner.qpn.number());
    let remote = |need| key_table::check_remote(pd, qpn, key, addr, len, need).map(|(at, _)| at);
    let at = match right {
        Right::LocalRead => key_table::check_local(pd, key, addr, len, 0),
        Right::LocalWrite => key_table::check_local(pd, key, addr, len, LOCAL_WRITE),
        Right::RemoteRead => remote(REMOTE_READ),
        Right::RemoteWrite => remote(REMOTE_WRITE),
        Right::RemoteAtomic => remote(REMOTE_ATOMIC),
    };
    at.map_err(|_| Denied)
}

impl Memory for Keys<'_> {
    fn read(&mut self, from: Place, out: &mut [u8]) -> Result<(), Denied> {
        let at = granted(from, out.len() as u64)?;
        // SAFETY: the key granted these bytes, inside the guard of this value; the other range is a
        // packet's, which no program can reach.
        unsafe { copy(out.as_mut_ptr(), at, out.len()) };
        Ok(())
    }

    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), Denied> {
        let at = granted(to, bytes.len() as u64)?;
        // SAFETY: as in `read`; the key granted writing.
        unsafe { copy(at, bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn check(&mut self, at: Place, len: u64) -> Result<(), Denied> {
        granted(at, len).map(|_| ())
    }

    fn atomic(&mut self, at: Place, op: AtomicOp) -> Result<u64, Denied> {
        let word = granted(at, 8)?.cast::<u64>();
        if !word.is_aligned() {
            return Err(Denied);
        }
        // SAFETY: eight aligned bytes that the key granted, inside the guard of this value; others
        // reach them with atomics, or race as they would with a device.
        let word = unsafe { AtomicU64::from_ptr(word) };
        // SeqCst, both: atomics on one word by all initiators are in one order, which also orders
        // the data that they guard; they pair with one another, and with those of this process.
        Ok(match op {
            AtomicOp::FetchAdd(add) => word.fetch_add(add, Ordering::SeqCst),
            AtomicOp::CompareSwap { compare, swap } => {
                match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(before) | Err(before) => before,
                }
            }
        })
    }

    fn invalidate(&mut self, owner: Owner, rkey: u32) -> Result<(), Denied> {
        let qp = fabric::lookup(self.0, owner.qpn.number()).ok_or(Denied)?;
        if bind::invalidate(qp, self.0, rkey) { Ok(()) } else { Err(Denied) }
    }

    fn carry_out(&mut self, owner: Owner, id: u64) -> Result<(), Denied> {
        let qp = fabric::lookup(self.0, owner.qpn.number()).ok_or(Denied)?;
        // SAFETY: `queue_pair::post` kept it at that position, which is the transport's id for it,
        // and the transport asks once, before it has completed. The queue pair lives while the
        // guard of this value is held.
        let wr = unsafe { qp.sq.pending.lock().kept_alone(id) }.ok_or(Denied)?;
        let outcome = match wr.opcode {
            IBV_WR_BIND_MW => bind::bind(qp, wr),
            IBV_WR_LOCAL_INV => bind::invalidate_locally(qp, self.0, wr),
            _ => return Err(Denied),
        };
        if let WrOutcome::Done(_) = outcome { Ok(()) } else { Err(Denied) }
    }

    /// The device keeps the receives: `queue` is the queue pair's number.
    fn take_shared_receive(&mut self, queue: u32, receive: &mut Receive) -> bool {
        let Some(qp) = fabric::lookup(self.0, queue) else { return false };
        let Some(index) = arrival::take(qp) else {
            qp.count_out_of_buffer();
            return false;
        };
        let (mut sges, mut count) = ([Sge::default(); SGE_MAX as usize], 0);
        for (to, sge) in sges.iter_mut().zip(qp.receive(index).sges()) {
            *to = Sge { addr: sge.addr, len: sge_bytes(&sge) as u32, key: sge.lkey };
            count += 1;
        }
        receive.set(index, &sges[..count])
    }
}
