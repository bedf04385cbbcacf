//! The data that models of ports compare: counters, and a device's treatment of its lists.

use rustix::io::Errno;

use crate::stats::counters::{PortStats, STATUSES};
use crate::stats::drop_reason::{DropReason, REASONS};

/// The errnos of a device whose queue is full, and of a device that is at fault.
pub(crate) const FULL: i32 = Errno::NOMEM.raw_os_error();
pub(crate) const WRONG: i32 = Errno::INVAL.raw_os_error();

/// The counters of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) rx_posted: u64,
    pub(crate) rx_starved: u64,
    pub(crate) rx_outstanding: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tx_posts: u64,
    pub(crate) tx_outstanding: u64,
    pub(crate) tx_pending: u64,
    pub(crate) stale: u64,
    pub(crate) down: u64,
    pub(crate) down_reason: u64,
    pub(crate) statuses: [u64; STATUSES],
    pub(crate) drops: [u64; REASONS],
}

impl Figures {
    pub(crate) fn of(stats: &PortStats) -> Figures {
        let mut drops = [0; REASONS];
        stats.drops.non_zero().for_each(|(reason, packets)| drops[reason] = packets);
        Figures {
            rx_packets: stats.rx_packets.value(),
            rx_bytes: stats.rx_bytes.value(),
            rx_posted: stats.rx_posted.value(),
            rx_starved: stats.rx_starved.value(),
            rx_outstanding: stats.rx_outstanding.value(),
            tx_packets: stats.tx_packets.value(),
            tx_bytes: stats.tx_bytes.value(),
            tx_posts: stats.tx_posts.value(),
            tx_outstanding: stats.tx_outstanding.value(),
            tx_pending: stats.tx_pending.value(),
            stale: stats.stale.value(),
            down: stats.down.value(),
            down_reason: stats.down_reason.value(),
            statuses: std::array::from_fn(|status| stats.statuses[status].value()),
            drops,
        }
    }

    pub(crate) fn drop_some(&mut self, reason: DropReason, packets: usize) {
        self.drops[reason.index()] += packets as u64;
    }
}

/// The device's treatment of a list: how many more work requests it takes, and how it refuses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    pub(crate) takes: usize,
    pub(crate) errno: i32,
}

impl Device {
    /// Returns how many of the list it takes.
    pub(crate) fn take(&mut self, offered: usize) -> usize {
        let taken = offered.min(self.takes);
        if self.takes != usize::MAX {
            self.takes -= taken;
        }
        taken
    }
}
