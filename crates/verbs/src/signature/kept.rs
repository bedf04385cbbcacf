//! Keys that a QP keeps, for use by number in lists of work requests, without reference counts or
//! allocations.
//!
//! Guarantee: the response that waits for a key's blocks ([`Operation::Respond`]) never goes out if
//! one of them was bad. A posted response is cancelled when the QP has stopped; one posted later is
//! refused. Hence a key is not configured while such a response is outstanding.
//!
//! [`Operation::Respond`]: crate::rdma::Operation::Respond

use rdma_sys::ibv_sge;

use crate::block_signature::BlockSignature;
use crate::signature::configuring::NotBuilt;
use crate::signature::key::{BadBlock, BlockFault, SignatureKey};

/// The key's configuration is already in the list being written, and must be posted first.
pub(crate) const LISTED: &str = "it is configured twice in one list";

/// A response that waits for the key's blocks is outstanding.
pub(crate) const UNANSWERED: &str = "the response that waits for its blocks has not completed";

/// A key, and the state of its use.
#[derive(Debug)]
pub(crate) struct KeptSignatureKey {
    key: SignatureKey,
    /// The key's configuration is in the list being written, and uses the key's own words.
    is_listed: bool,
    /// A response that waits for the key's blocks is in the list being written.
    is_answered: bool,
    /// The number of the response posted since the last configuration.
    response: Option<u64>,
    /// The fault found since the last configuration.
    bad: Option<BadBlock>,
}

impl KeptSignatureKey {
    pub(crate) fn new(key: SignatureKey) -> KeptSignatureKey {
        KeptSignatureKey { key, is_listed: false, is_answered: false, response: None, bad: None }
    }

    /// The words that configure the key for this part, for the list being written.
    pub(crate) fn list(&mut self, part: ibv_sge, blocks: &BlockSignature) -> Result<ibv_sge, NotBuilt> {
        if self.is_listed {
            return Err(NotBuilt::Because(LISTED));
        }
        if self.is_answered {
            return Err(NotBuilt::Because(UNANSWERED));
        }
        let inline = self.key.build_list(part, blocks)?;
        self.is_listed = true;
        Ok(inline)
    }

    /// Called when the key's configuration was posted.
    pub(crate) fn configured(&mut self) {
        (self.is_listed, self.response, self.bad) = (false, None, None);
    }

    /// Records that a response that waits for the key is in the list being written.
    pub(crate) fn answer(&mut self) {
        self.is_answered = true;
    }

    /// Called when the rest of the list being written was not posted.
    pub(crate) fn unlist(&mut self) {
        self.is_answered = false;
        if std::mem::take(&mut self.is_listed) {
            self.key.refused();
        }
    }

    /// Records that a response that waits for the key was posted, with this number.
    pub(crate) fn responded(&mut self, number: u64) {
        (self.is_answered, self.response) = (false, Some(number));
    }

    pub(crate) fn response(&self) -> Option<u64> {
        self.response
    }

    /// The fault found since the last configuration; one in the list being written counts, too.
    pub(crate) fn bad(&self) -> Option<BadBlock> {
        self.bad.filter(|_| !self.is_listed)
    }

    pub(crate) fn key(&self) -> &SignatureKey {
        &self.key
    }

    /// The SGE of a part of the key's data.
    pub(crate) fn sge(&self, offset: u32, len: u32) -> ibv_sge {
        ibv_sge { addr: offset.into(), length: len, lkey: self.key.lkey() }
    }

    /// Records a bad block.
    pub(crate) fn found(&mut self, fault: &BlockFault) {
        // No transfer is longer than 4 GiB.
        self.bad = Some(BadBlock { part: fault.part, offset: fault.offset as u32 });
    }
}
