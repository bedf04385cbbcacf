//! A queue pair of a port, and what its lcore knows of what is posted to it: the same of a port
//! that has one and of a port that has a thousand.

use std::ops::{Deref, DerefMut};

use verbline_mem::Batch;
use verbline_verbs::{Completion, QueuePair, Stale};

/// See the top of this file. It stands for its queue pair.
#[derive(Debug)]
pub(crate) struct PortQp {
    qp: QueuePair,
    /// The last send is signaled, so that everything outstanding will complete.
    pub(crate) end_signaled: bool,
    /// Of a port with operations: sends that are posted, or about to be, and not done.
    pub(crate) sends: usize,
    /// The last send is a marker behind everything else, which carries no packet.
    is_marked: bool,
}

/// What the completion of a send says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendDone {
    /// Sends are done.
    Sent,
    Failed,
    /// Of the marker, and not of a send: everything is done.
    Marker,
}

impl PortQp {
    pub(crate) fn new(qp: QueuePair) -> PortQp {
        PortQp { qp, end_signaled: false, sends: 0, is_marked: false }
    }

    /// Brings the queue pair to ERR: whatever is posted completes, behind what has completed
    /// already, and a marker behind it all.
    #[cold]
    pub(crate) fn start_drain(&mut self, port: &str) {
        let before = self.qp.sends_outstanding();
        if let Err(error) = self.qp.start_drain() {
            tracing::error!(%port, %error, "a queue pair cannot be released");
        }
        self.is_marked = self.qp.sends_outstanding() > before;
    }

    /// Whether the last send is a marker.
    pub(crate) fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Packets of sends that never completed and go with the queue pair, where `operates` counts
    /// them: the marker is none of them.
    pub(crate) fn lost_sends(&self, operates: bool) -> usize {
        match operates {
            true => self.sends,
            false => self.qp.sends_outstanding().saturating_sub(self.is_marked.into()),
        }
    }

    /// Takes the completion of sends, whose packets go back to their pools by way of `freed`.
    #[inline]
    pub(crate) fn sent(&mut self, completion: &Completion, freed: &mut Batch) -> Result<SendDone, Stale> {
        let done = self.sent_into(completion, freed);
        freed.clear();
        done
    }

    /// The same; the packets stay in `freed`.
    #[inline]
    pub(crate) fn sent_into(&mut self, completion: &Completion, freed: &mut Batch) -> Result<SendDone, Stale> {
        self.qp.send_done(completion, freed)?;
        Ok(match completion.is_ok() {
            true => SendDone::Sent,
            false if self.is_marked && self.qp.sends_outstanding() == 0 => SendDone::Marker,
            false => SendDone::Failed,
        })
    }

    /// Whether a send is out whose completion will come. Between two signaled sends there are
    /// `signal_every_wr` - 1 that are not: one more than that outstanding, and a completion is due.
    /// A port that operates signals the last send of every list.
    pub(crate) fn awaits_completion(&self, signal_every_wr: usize, operates: bool) -> bool {
        let surely = if self.end_signaled || operates { 1 } else { signal_every_wr };
        self.qp.sends_outstanding() >= surely
    }
}

impl Deref for PortQp {
    type Target = QueuePair;

    #[inline]
    fn deref(&self) -> &QueuePair {
        &self.qp
    }
}

impl DerefMut for PortQp {
    #[inline]
    fn deref_mut(&mut self) -> &mut QueuePair {
        &mut self.qp
    }
}
