//! Creation and destruction of queue pairs: `ibv_create_qp(3)`, `ibv_query_qp(3)` and
//! `ibv_destroy_qp(3)`.

use crate::control::modify;
use crate::data_path::flush;
use crate::data_path::progress;
use crate::events::async_event::Subject;
use crate::objects::Object;
use crate::objects::device;
use crate::objects::fabric;
use crate::objects::guards;
use crate::objects::qp::{Parts, Qp, SignatureOffload};
use crate::objects::qp_table::{State, Transport};
use rdma_sys::*;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

/// `ibv_create_qp(3)`. Sets `init.cap` to the granted capacities.
pub(crate) fn create(
    parts: Parts<'_>,
    init: &mut ibv_qp_init_attr,
    offload: Option<SignatureOffload>,
) -> Result<*mut ibv_qp, c_int> {
    let (transport, cap) = granted(init)?;
    // Only RC has signature offload.
    if offload.is_some() && transport != Transport::Rc {
        return Err(libc::EOPNOTSUPP);
    }
    let mut control = fabric::control();
    let qpn = control.reserve(parts.domain.context().device.index).ok_or(libc::ENOMEM)?;
    // SAFETY: integers, pointers and optional functions, for all of which zero is a value.
    let mut raw: ibv_qp_ex = unsafe { std::mem::zeroed() };
    let base = &mut raw.qp_base;
    (base.context, base.qp_context, base.pd) =
        (parts.domain.context().as_ptr(), init.qp_context, parts.domain.as_ptr());
    (base.send_cq, base.recv_cq, base.srq) = (init.send_cq, init.recv_cq, init.srq);
    (base.handle, base.qp_num, base.state, base.qp_type) = (qpn, qpn, State::Reset.raw(), init.qp_type);
    let qp = Qp::new(raw, qpn, transport, cap, init.sq_sig_all != 0, offload.unwrap_or_default(), parts).into_raw();
    init.cap = cap;
    // SAFETY: made just above.
    let this = unsafe { Qp::from_raw(qp) };
    this.acks().init();
    guards::register(&this.guards());
    this.join_parts();
    control.insert(qpn, qp.cast());
    Ok(qp)
}

/// The granted transport and capacities, or an `errno`.
fn granted(init: &ibv_qp_init_attr) -> Result<(Transport, ibv_qp_cap), c_int> {
    let transport = Transport::from_raw(init.qp_type).filter(|known| *known != Transport::RawPacket);
    let transport = transport.ok_or(libc::EOPNOTSUPP)?;
    let asked = &init.cap;
    let too_much = asked.max_send_wr > device::QP_WR_MAX
        || asked.max_send_sge > device::SGE_MAX
        || asked.max_inline_data > device::INLINE_BYTES_MAX
        || (init.srq.is_null() && (asked.max_recv_wr > device::QP_WR_MAX || asked.max_recv_sge > device::SGE_MAX));
    if too_much {
        return Err(libc::EINVAL);
    }
    let (max_recv_wr, max_recv_sge) = if init.srq.is_null() { (asked.max_recv_wr, asked.max_recv_sge) } else { (0, 0) };
    Ok((transport, ibv_qp_cap { max_recv_wr, max_recv_sge, ..init.cap }))
}

/// `ibv_query_qp(3)`. Returns all attributes, whatever the mask.
pub(crate) fn query(qp: &Qp) -> (ibv_qp_attr, ibv_qp_init_attr) {
    let _control = fabric::control();
    let mut out = qp.attributes().copied();
    let state = qp.state();
    (out.qp_state, out.cur_qp_state) = (state.raw(), state.raw());
    out.cap = qp.cap;
    out.sq_draining = u8::from(state == State::Sqd && qp.sq.is_draining());
    qp.show(state);
    (out, qp.init_attr())
}

/// `ibv_destroy_qp(3)`, up to freeing it. `EBUSY` while it is attached to a multicast group. Waits
/// until its events are acknowledged.
pub(crate) fn retire(qp: &Qp) -> Result<(), c_int> {
    {
        let mut control = fabric::control();
        // Relaxed: under the control lock.
        if qp.mcast_groups.load(Ordering::Relaxed) != 0 {
            return Err(libc::EBUSY);
        }
        modify::stop(qp);
        control.remove(qp.qpn);
        progress::forget(qp);
        // After this no thread that found it before is left; nobody finds it any more.
        guards::quiesce(guards::Taken::Qp(qp.qpn));
        qp.recv_cq().detach(qp.qpn);
    }
    if let Some(srq) = qp.srq() {
        flush::give_back(srq, qp, qp.tag());
    }
    qp.context().events.forget(qp);
    guards::unregister(&qp.guards());
    qp.leave_parts();
    Ok(())
}
