//! Completions whose queue pair is gone, and internal entries, which name their owner themselves.

use crate::data_path::completion::{self, Header, SmallHeader};
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::signature::mkey;
use rdma_sys::ibv_wc_opcode;
use verbline_sync::ring::CqEntry;

/// Of a queue pair that is gone, or was reset since, returns only the shared receives that it left
/// behind. Also handles entries without a queue pair's number.
#[cold]
pub(crate) fn given_out(pinned: Pinned<'_>, entry: &CqEntry<'_>) -> Option<[u64; 6]> {
    if SmallHeader::read(entry.first()).0.is_some() {
        return None;
    }
    let header = Header::read(entry.first());
    match header.opcode {
        completion::LEFT => {
            let header = Header { opcode: completion::RECV, ..header };
            Some(header.wc_words(header.word, 0, 0))
        }
        completion::KEY_FAULT => {
            if let Some(key) = mkey::lookup(pinned, header.word as u32) {
                key.record();
            }
            None
        }
        completion::CONFIGURED => {
            let [freed, owner] = completion::read_extra(entry.first());
            let qp = fabric::lookup(pinned, owner as u32).filter(|qp| u64::from(qp.tag()) == owner >> 32);
            qp.map(|qp| {
                qp.sq.free_up_to(freed);
                let header = Header { qpn: qp.qpn, opcode: ibv_wc_opcode::IBV_WC_DRIVER1, ..header };
                header.wc_words(header.word, 0, 0)
            })
        }
        _ => None,
    }
}
