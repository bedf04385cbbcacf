//! The choice of signaled work requests: every `signal_every`-th, counted over all kinds, and all
//! that request a completion.

use rdma_sys::ibv_send_wr;

use super::{SIGNALED, SendQueue};
use crate::wr::wr_list::WrEntry;

impl SendQueue {
    /// Updates `until_signal` after a post: from the formatted value if all were taken, else from
    /// the taken ones.
    #[inline]
    pub(super) fn count_signals(&mut self, ret: i32, until_signal: u32, taken: &[WrEntry<ibv_send_wr>]) {
        if ret == 0 {
            self.until_signal = until_signal;
        } else {
            self.recount(taken);
        }
    }

    #[cold]
    pub(super) fn recount(&mut self, taken: &[WrEntry<ibv_send_wr>]) {
        for entry in taken {
            let signaled = entry.wr.send_flags & SIGNALED != 0;
            self.until_signal = if signaled { self.signal_every } else { self.until_signal - 1 };
        }
    }
}

/// Marks every `every`-th entry as signaled, the first after `until_signal`, and returns the
/// distance from the last entry to the next signal. Done last, since the positions of signals do
/// not depend on the packets.
#[inline]
pub(super) fn signal(entries: &mut [WrEntry<ibv_send_wr>], until_signal: u32, every: u32) -> u32 {
    let behind = for_each_signaled(entries, until_signal, every, |flags| *flags |= SIGNALED);
    behind - entries.len() as u32
}

/// Calls the function with the flags of every `every`-th entry, the first after `until_signal`, and
/// returns the place of the first behind the entries.
#[inline]
pub(super) fn for_each_signaled(
    entries: &mut [WrEntry<ibv_send_wr>],
    mut until_signal: u32,
    every: u32,
    mut each: impl FnMut(&mut u32),
) -> u32 {
    while let Some(entry) = entries.get_mut(until_signal as usize - 1) {
        each(&mut entry.wr.send_flags);
        until_signal += every;
    }
    until_signal
}
