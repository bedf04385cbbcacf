//! Keys that a QP keeps, to be named in lists of work requests: configured, used and answered for
//! without a count or an allocation.
//!
//! Guarantee: the response that waits for a key's blocks ([`Operation::Respond`]) never goes out
//! when one of them was bad: posted, it is cancelled where the QP has stopped; posted later, it is
//! refused. Hence a key is not configured while such a response is under way.
//!
//! [`Operation::Respond`]: crate::rdma::Operation::Respond

use rdma_sys::ibv_sge;

use crate::block_signature::BlockSignature;
use crate::signature::configuring::NotBuilt;
use crate::signature::key::{BadBlock, BlockFault, SignatureKey};

/// The configuration of a key is in the list that is being written already: that one goes first.
pub(crate) const LISTED: &str = "it is configured twice in one list";

/// A response that waits for its blocks is under way.
pub(crate) const UNANSWERED: &str = "the response that waits for its blocks has not completed";

/// A key, and what is known of its use.
#[derive(Debug)]
pub(crate) struct KeptSignatureKey {
    key: SignatureKey,
    /// What configures it is in the list that is being written, with the key's own words.
    is_listed: bool,
    /// A response that waits for its blocks is in the list that is being written.
    is_answered: bool,
    /// The number of the response that was posted since it was configured.
    response: Option<u64>,
    /// What was wrong since then.
    bad: Option<BadBlock>,
}

impl KeptSignatureKey {
    pub(crate) fn new(key: SignatureKey) -> KeptSignatureKey {
        KeptSignatureKey { key, is_listed: false, is_answered: false, response: None, bad: None }
    }

    /// The words that configure it to stand for this part, for the list that is being written.
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

    /// What configures it is posted.
    pub(crate) fn configured(&mut self) {
        (self.is_listed, self.response, self.bad) = (false, None, None);
    }

    /// A response that waits for it is in the list that is being written.
    pub(crate) fn answer(&mut self) {
        self.is_answered = true;
    }

    /// The list that was being written was not posted from here on.
    pub(crate) fn unlist(&mut self) {
        self.is_answered = false;
        if std::mem::take(&mut self.is_listed) {
            self.key.refused();
        }
    }

    /// A response that waits for it is posted, by this number.
    pub(crate) fn responded(&mut self, number: u64) {
        (self.is_answered, self.response) = (false, Some(number));
    }

    pub(crate) fn response(&self) -> Option<u64> {
        self.response
    }

    /// What was found wrong since it was configured, also by the list that is being written.
    pub(crate) fn bad(&self) -> Option<BadBlock> {
        self.bad.filter(|_| !self.is_listed)
    }

    pub(crate) fn key(&self) -> &SignatureKey {
        &self.key
    }

    /// What a work request says of a part of its data.
    pub(crate) fn sge(&self, offset: u32, len: u32) -> ibv_sge {
        ibv_sge { addr: offset.into(), length: len, lkey: self.key.lkey() }
    }

    /// A block was found bad.
    pub(crate) fn found(&mut self, fault: &BlockFault) {
        // No transfer is longer than 4 GiB.
        self.bad = Some(BadBlock { part: fault.part, offset: fault.offset as u32 });
    }
}
