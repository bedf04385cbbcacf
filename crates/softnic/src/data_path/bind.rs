//! Binding and invalidating memory windows by work requests.
//!
//! Type 1 windows are bound by `ibv_bind_mw(3)` and get a new R_Key each time; type 2 windows (2B)
//! by a work request, with an R_Key whose low 8 bits the caller chooses, and are tied to that queue
//! pair. Either way the handle (`ibv_mw.rkey`) names the key that the bind replaces. A handle with
//! another key than the current one is stale, and its bind is refused, as by devices whose work
//! request carries both keys. So a program that binds by a work request writes the new key into the
//! handle, and puts the old one back when it learns that a bind failed (`ibv_bind_mw(3)`, notes).

use crate::key_table::{self, Grant, INDIRECT, WINDOW};
use crate::objects::Object;
use crate::objects::guards::Pinned;
use crate::objects::mr::Mr;
use crate::objects::mw::{self, Mw};
use crate::objects::qp::Qp;
use crate::queues::pending::WrOutcome;
use crate::queues::wr::SendWr;
use crate::signature::mkey;
use rdma_sys::*;

const REMOTE_RIGHTS: u32 = key_table::REMOTE_WRITE | key_table::REMOTE_READ | key_table::REMOTE_ATOMIC;

/// Carries out `IBV_WR_BIND_MW`, of both types. Length 0 unbinds a window of type 1.
pub(crate) fn bind(qp: &Qp, wr: SendWr<'_>) -> WrOutcome {
    // SAFETY: a bind's arm of the union. By ibv_bind_mw(3), which the program kept
    // (`SendWr::list`), the window and the region live until the bind has completed.
    let (rkey, info, window) = unsafe {
        let bind = wr.bind_mw_tso_union.bind_mw;
        (bind.rkey, bind.bind_info, Mw::from_raw(bind.mw))
    };
    let refused = WrOutcome::Failed(ibv_wc_status::IBV_WC_MW_BIND_ERR);
    let mut binding = window.binding();
    let current = binding.key();
    let handle = wr.kept_handle_key().unwrap_or_else(|| window.handle_key());
    if window.pd != qp.pd || handle != current || rkey >> 8 != current >> 8 {
        return refused;
    }
    // A type 2 window can be bound only while unbound, and only invalidating it unbinds it; a type
    // 1 window changes over.
    if window.is_type_2() && (info.length == 0 || binding.is_bound()) {
        return refused;
    }
    if info.length == 0 {
        binding.unbind(rkey);
        return WrOutcome::Done(0);
    }
    // SAFETY: by ibv_bind_mw(3) the region lives until the bind has completed.
    let region = unsafe { Mr::from_raw(info.mr) };
    let Some(grant) = grant(qp, window, region, &info) else { return refused };
    binding.bind(region, rkey, &grant);
    WrOutcome::Done(0)
}

/// The window's grant; `None` if the region doesn't cover it or wasn't registered for binding.
fn grant(qp: &Qp, window: &Mw, region: &Mr, info: &ibv_mw_bind_info) -> Option<Grant> {
    let parent = key_table::grant(region.lkey())?;
    let rights = info.mw_access_flags;
    let changes = rights & (key_table::REMOTE_WRITE | key_table::REMOTE_ATOMIC) != 0;
    let inside = info.addr.wrapping_sub(parent.start) <= parent.len
        && info.length <= parent.len - info.addr.wrapping_sub(parent.start);
    let allowed = parent.pd == qp.pd
        && parent.access & key_table::MW_BIND != 0
        && rights & !REMOTE_RIGHTS == 0
        && (!changes || parent.access & key_table::LOCAL_WRITE != 0)
        && inside;
    allowed.then_some(Grant {
        pd: qp.pd,
        access: rights | WINDOW,
        start: info.addr,
        len: info.length,
        // The window's address, for `mw::invalidate`: the parent's key leads to its bytes.
        offset: window.address(),
        qpn: if window.is_type_2() { qp.qpn } else { 0 },
        parent: region.lkey(),
    })
}

/// Carries out `IBV_WR_LOCAL_INV`.
pub(crate) fn invalidate_locally(qp: &Qp, pinned: Pinned<'_>, wr: SendWr<'_>) -> WrOutcome {
    let rkey = wr.imm_or_rkey();
    if let Some(mkey) = mkey::lookup(pinned, rkey).filter(|mkey| mkey.pd == qp.pd) {
        mkey.invalidate();
        return WrOutcome::Done(0);
    }
    if invalidate(qp, pinned, rkey) { WrOutcome::Done(0) } else { WrOutcome::Failed(ibv_wc_status::IBV_WC_MW_BIND_ERR) }
}

/// Invalidates a type 2 window that is bound to `qp`, or an indirect key that peers may invalidate.
/// Returns false if the key is neither.
pub(crate) fn invalidate(qp: &Qp, pinned: Pinned<'_>, rkey: u32) -> bool {
    let Some(grant) = key_table::grant(rkey) else { return false };
    if grant.access & INDIRECT != 0 {
        let mkey = mkey::lookup(pinned, rkey).filter(|mkey| mkey.pd == qp.pd && mkey.is_remotely_invalidated());
        return mkey.inspect(|mkey| mkey.invalidate()).is_some();
    }
    if grant.access & WINDOW == 0 || grant.qpn != qp.qpn || grant.pd != qp.pd {
        return false;
    }
    mw::invalidate(pinned, rkey, &grant)
}
