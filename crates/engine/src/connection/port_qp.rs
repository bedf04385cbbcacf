//! A queue pair of a port, and its lcore's record of the posted work requests: the same for a port
//! with one queue pair or a thousand.

use std::ops::{Deref, DerefMut};

use verbline_mem::Batch;
use verbline_verbs::{Completion, QueuePair, Stale, Transport};

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
    /// The number of the marker that a drain of the run posted behind sends that were not signaled.
    end_marker: Option<u64>,
}

/// The meaning of a send's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendDone {
    /// Sends are done.
    Sent,
    Failed,
    /// The marker completed, not a send: everything is done.
    Marker,
    /// The marker of a drain failed, or was flushed. No packet is lost by it.
    EndMarkerFailed,
}

impl PortQp {
    pub(crate) fn new(qp: QueuePair) -> PortQp {
        PortQp { qp, end_signaled: false, sends: 0, is_marked: false, end_marker: None }
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

    /// Makes sure that a completion covers all sends of RC, on the software RNIC: a marker goes
    /// behind sends of which the last is not signaled. Without it the queue pair could be destroyed
    /// before the peer has them, as it still can be on a kernel device, which takes no marker. A
    /// marker takes a place in the queue: a full one, which holds a signaled send, gets it later.
    pub(crate) fn cover_sends(&mut self, port: &str) {
        if self.end_signaled || self.sends_outstanding() == 0 || self.send_room() == 0 {
            return;
        }
        if self.transport() == Transport::Rc && self.takes_end_marker() {
            self.post_end_marker(port);
        }
    }

    #[cold]
    fn post_end_marker(&mut self, port: &str) {
        // Also without a marker: it is not known that they are done, and the drain waits in vain.
        self.end_signaled = true;
        match self.qp.post_end_marker() {
            Ok(number) => self.end_marker = Some(number),
            Err(error) => tracing::error!(
                %port, %error, sends = self.sends_outstanding(),
                "it cannot be known whether the peer has the last sends, none of which is signaled: the run counts as \
                 not drained"
            ),
        }
    }

    /// The markers among the outstanding sends.
    fn markers_out(&self) -> usize {
        let end = self.end_marker.is_some_and(|number| self.qp.has_send_out(number));
        usize::from(self.is_marked) + usize::from(end)
    }

    /// Whether the last send is a marker.
    pub(crate) fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// The number of packets whose sends never completed and that go with the queue pair. With
    /// `operates`, the port counts them itself. Markers do not count.
    pub(crate) fn lost_sends(&self, operates: bool) -> usize {
        match operates {
            true => self.sends,
            false => self.qp.sends_outstanding().saturating_sub(self.markers_out()),
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
            false if self.end_marker == Some(completion.wr_id()) => SendDone::EndMarkerFailed,
            false => SendDone::Failed,
        })
    }

    /// Whether a send is outstanding whose completion will come. Between two signaled sends there
    /// are `signal_every_wr` - 1 unsignaled ones: with one more outstanding, a completion is due. A
    /// port with operations signals the last send of every list, and a queue pair that has failed
    /// completes each send (`each_completes`).
    pub(crate) fn awaits_completion(&self, signal_every_wr: usize, each_completes: bool) -> bool {
        let surely = if self.end_signaled || each_completes { 1 } else { signal_every_wr };
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
