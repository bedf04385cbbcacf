//! A queue pair of a port, and its lcore's record of the posted work requests: the same for a port
//! with one queue pair or a thousand.

use std::ops::{Deref, DerefMut};

use verbline_mem::Batch;
use verbline_verbs::{Completion, QueuePair, Stale};

/// See the top of this file. Dereferences to its queue pair.
#[derive(Debug)]
pub(crate) struct PortQp {
    qp: QueuePair,
    /// The last send is signaled, so that all outstanding sends will complete.
    pub(crate) end_signaled: bool,
    /// On ports with operations: the sends that are posted, or about to be, and not done.
    pub(crate) sends: usize,
    /// The last send is a marker behind all others, which carries no packet.
    is_marked: bool,
}

/// The meaning of a send's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendDone {
    /// Sends are done.
    Sent,
    Failed,
    /// The marker completed, not a send: everything is done.
    Marker,
}

impl PortQp {
    pub(crate) fn new(qp: QueuePair) -> PortQp {
        PortQp { qp, end_signaled: false, sends: 0, is_marked: false }
    }

    /// Brings the queue pair to ERR: all posted work requests complete, after the completions that
    /// have come already, and a marker after them all.
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

    /// The number of packets whose sends never completed and that go with the queue pair. With
    /// `operates`, the port counts them itself. The marker does not count.
    pub(crate) fn lost_sends(&self, operates: bool) -> usize {
        match operates {
            true => self.sends,
            false => self.qp.sends_outstanding().saturating_sub(self.is_marked.into()),
        }
    }

    /// Takes the completion of sends, whose packets return to their pools by way of `freed`.
    #[inline]
    pub(crate) fn sent(&mut self, completion: &Completion, freed: &mut Batch) -> Result<SendDone, Stale> {
        let done = self.sent_into(completion, freed);
        freed.clear();
        done
    }

    /// Like [`PortQp::sent`], but leaves the packets in `freed`.
    #[inline]
    pub(crate) fn sent_into(&mut self, completion: &Completion, freed: &mut Batch) -> Result<SendDone, Stale> {
        self.qp.send_done(completion, freed)?;
        Ok(match completion.is_ok() {
            true => SendDone::Sent,
            false if self.is_marked && self.qp.sends_outstanding() == 0 => SendDone::Marker,
            false => SendDone::Failed,
        })
    }

    /// Whether a send is outstanding whose completion will come. Between two signaled sends there
    /// are `signal_every_wr` - 1 unsignaled ones: with one more outstanding, a completion is due. A
    /// port with operations signals the last send of every list.
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
