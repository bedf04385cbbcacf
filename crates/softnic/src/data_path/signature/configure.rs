//! Work requests that configure indirect keys: `mlx5dv_wr_mkey_configure(3)`.

use crate::data_path::completion::{self, Header};
use crate::data_path::errors::Errors;
use crate::key_table;
use crate::objects::Object;
use crate::objects::qp::Qp;
use crate::queues::pending::WrOutcome;
use crate::queues::wr::SendWr;
use crate::signature::configuration::{self, Configuration, NewSignature};
use crate::signature::mkey::Mkey;
use rdma_sys::*;
use std::ffi::c_int;

const ACCESS_KNOWN: u32 =
    key_table::LOCAL_WRITE | key_table::REMOTE_WRITE | key_table::REMOTE_READ | key_table::REMOTE_ATOMIC;

/// Checks whether the work request can be posted: itself, and against the key.
#[cold]
pub(crate) fn validate(qp: &Qp, wr: SendWr<'_>) -> Result<u64, c_int> {
    if !qp.configures_keys {
        return Err(libc::EINVAL);
    }
    let (new, key) = read(wr)?;
    let fits = new.layout.is_none_or(|layout| {
        // A layout with gaps has a header entry.
        let entries = layout.len() + usize::from(layout.is_interleaved);
        entries <= key.max_entries && entries <= configuration::entries_max(qp.cap.max_inline_data) as usize
    });
    let access = new.access.is_none_or(|access| access & !ACCESS_KNOWN == 0);
    let signature = matches!(new.signature, NewSignature::Kept) || key.has_signature();
    if fits && access && signature { Ok(0) } else { Err(libc::EINVAL) }
}

/// Carries out a work request that passed [`validate`].
#[cold]
pub(crate) fn carry_out(qp: &Qp, wr: SendWr<'_>) -> WrOutcome {
    match read(wr) {
        Ok((new, key)) if key.pd == qp.pd => {
            key.configure(&new);
            WrOutcome::Configured
        }
        _ => WrOutcome::Failed(ibv_wc_status::IBV_WC_MW_BIND_ERR),
    }
}

fn read(wr: SendWr<'_>) -> Result<(Configuration<'_>, &Mkey), c_int> {
    let new = configuration::read(wr)?;
    if new.mkey.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: by mlx5dv_wr_mkey_configure(3), which the program kept (`SendWr::list`), the key
    // lives until the work request has completed.
    let key = unsafe { Mkey::from_raw(new.mkey) };
    Ok((new, key))
}

/// Completes a configuration, if it is signaled. Its opcode is above the receives', which tells
/// completions apart, so it is handled like an entry without a queue pair, and names its owner
/// itself.
#[cold]
pub(crate) fn complete(qp: &Qp, wr: SendWr<'_>, position: u64, errors: &mut Errors) {
    if !qp.sig_all && wr.send_flags & ibv_send_flags::IBV_SEND_SIGNALED.0 == 0 {
        return;
    }
    let header = Header { word: wr.wr_id, opcode: completion::CONFIGURED, ..Header::default() };
    let owner = u64::from(qp.qpn) | u64::from(qp.tag()) << 32;
    if completion::push(qp.send_cq(), completion::NO_TAG, &header, [position + 1, owner], false).is_err() {
        errors.fail_fatally(qp);
    }
}
