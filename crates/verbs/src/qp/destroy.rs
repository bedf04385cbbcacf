//! Destruction of a QP: every packet comes back, or is never freed.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::QueuePair;
use crate::device::provider::verb;
use crate::errno::Errno;
use crate::qp::attr::QpState;

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.detach_all();
        match self.destroy() {
            Ok(()) => {
                // SAFETY: dropped once, here. ibv_destroy_qp succeeded, so the device reaches none
                // of the packets any more.
                unsafe {
                    ManuallyDrop::drop(&mut self.send);
                    ManuallyDrop::drop(&mut self.recv);
                    ManuallyDrop::drop(&mut self.recv_scatter);
                    ManuallyDrop::drop(&mut self.keep);
                }
            }
            Err(errno) => self.leak(errno),
        }
    }
}

impl QueuePair {
    /// Destroys the QP, retrying for a while. Returns the errno if the device keeps refusing.
    ///
    /// From the state that it is in, which every device takes. Not by way of ERR, whose completions
    /// nobody would take: those of many queue pairs that come and go between two polls would fill
    /// their CQ. Nor by way of RESET: rdma_rxe of Linux 6.1 then gives back a reference too many
    /// when packets are on their way.
    fn destroy(&mut self) -> Result<(), Errno> {
        let provider = self.keep.pd.provider();
        // `None`: the deadline is later than any clock goes, so it retries for ever.
        let deadline = Instant::now().checked_add(self.destroy_timeout);
        loop {
            // SAFETY: the QP is live; this is its end if the call succeeds.
            let ret = unsafe { verb!(provider, ibv_destroy_qp(self.raw.as_ptr())) };
            match self.keep.pd.context.undestroyed(ret) {
                None => return Ok(()),
                Some(errno) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => return Err(errno),
                // A QP that stays takes no message any more: its peer would believe it arrived.
                Some(_) => {
                    if self.state() != QpState::Err {
                        let _ = self.to_err();
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// The device may still write the packets: they, and the objects that the QP keeps, are never
    /// freed.
    #[cold]
    fn leak(&mut self, errno: Errno) {
        // Relaxed: a counter for people.
        LEAKED.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            qpn = self.qpn(),
            device = %self.keep.pd.context.name,
            %errno,
            packets = self.sends_outstanding() + self.recvs_outstanding(),
            "the device would not destroy the QP: its packets and their pools are leaked, because it may still write \
             them"
        );
    }
}

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// QPs of this process that a device refused to destroy. Each one's packets, and so their pools,
/// are never freed.
pub fn leaked_queue_pairs() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}
