//! Refills receive queues: the shared one, or those of connections that wait for receives.

use verbline_mem::PoolCache;
use verbline_verbs::PostStop;

use super::{ManyReceiving, Slot};
use crate::ports::posting;
use crate::ports::receiving::Filled;

impl ManyReceiving {
    /// Posts what is missing.
    pub(super) fn fill(&mut self, cache: &PoolCache, slots: &mut [Slot]) -> Filled {
        let mut filled = match &mut self.srq {
            Some(srq) => self.queue.fill(cache, |batch| srq.post_recv(batch)),
            None => Filled::default(),
        };
        let mut left = self.hungry.len();
        while left > 0
            && let Some(first) = self.hungry.front()
        {
            let slot = &mut slots[usize::from(*first)];
            let Some(qp) = &mut slot.qp else { break };
            let step = posting::refill(cache, &mut self.queue.refill, slot.missing, |batch| qp.post_recv(batch));
            slot.missing -= step.posted;
            self.posted += step.posted;
            filled.note(step);
            if step.is_starved {
                break;
            }
            if slot.missing == 0 {
                slot.is_hungry = false;
                self.hungry.pop_front();
            } else if step.stop.is_some() {
                // The device refuses something of it: it is asked again another time, behind the
                // others.
                self.hungry.rotate_left(1);
            } else {
                continue;
            }
            left -= 1;
        }
        filled
    }

    /// Says, once, that the device refuses receives that it has room for.
    pub(super) fn tell_refusal(&mut self, port: &str, refused: Option<PostStop>) {
        if let Some(stop) = refused
            && !std::mem::replace(&mut self.is_refusal_told, true)
        {
            tracing::error!(
                %port, %stop,
                "cannot post receives, which is tried again every millisecond; peers wait as long, or lose what they \
                 send: if `rx_starved` of the port goes on rising, see the kernel's log of the device, and start again"
            );
        }
    }
}
