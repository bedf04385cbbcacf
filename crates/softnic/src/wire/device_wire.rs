//! A device's wire: its socket, and the state that one thread at a time works with.

use crate::objects::device::{self, Device};
use crate::objects::fabric;
use crate::wire::counters::{LinkCounters, QpIncidents};
use crate::wire::descriptors::Doorbell;
use crate::wire::neighbours::Slice;
use crate::wire::poll_turn::Inner;
use crate::wire::socket::Link;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use verbline_roce::transport::{Counters, Incidents};

/// A device's wire.
pub struct Wire {
    device: &'static Device,
    pub(super) link: Arc<Link>,
    pub(super) slice: u32,
    pub(super) inner: Mutex<Inner>,
    pub(super) doorbell: Doorbell,
    /// Wakes the thread because something is due sooner than it knows. The ringing thread may be
    /// awake, unlike one that rings the doorbell.
    pub(super) alarm: Doorbell,
    /// Whether datagrams of UD were added and may not have been sent. Set under the lock of `inner`
    /// after one was added, and cleared under it before all are sent.
    pub(super) has_datagrams: AtomicBool,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("device", &self.device.name()).field("link", &self.link).finish_non_exhaustive()
    }
}

impl Wire {
    pub(super) fn new(device: &'static Device, link: Arc<Link>, slice: Slice) -> io::Result<Wire> {
        let slice_number = slice.number;
        let inner = Mutex::new(Inner::new(device, &link, slice)?);
        let (doorbell, alarm) = (Doorbell::new()?, Doorbell::new()?);
        let has_datagrams = AtomicBool::new(false);
        Ok(Wire { device, link, slice: slice_number, inner, doorbell, alarm, has_datagrams })
    }

    /// Its address and UDP port.
    pub fn address(&self) -> SocketAddr {
        self.link.own()
    }

    /// The device's name.
    pub fn device_name(&self) -> &'static str {
        self.device.name()
    }

    /// The address's entry in the device's GID table.
    pub fn gid_index(&self) -> usize {
        device::ADDRESS_GID
    }

    /// The largest MTU, as verbs number it, of the path to an address, as far as the kernel knows
    /// it: it remembers a router's report for ten minutes.
    pub fn path_mtu(&self, to: IpAddr) -> io::Result<u8> {
        self.link.path_mtu(to).map(|mtu| mtu.code())
    }

    /// The largest MTU, as verbs number it, whose packets leave by the interface towards an
    /// address, regardless of the path behind it.
    pub fn interface_mtu(&self, to: IpAddr) -> io::Result<u8> {
        self.link.interface_mtu(to).map(|mtu| mtu.code())
    }

    /// Has connections and address handles that are made from now on, from this device's address to
    /// one of this process, go by the wire as well: through the socket, like a kernel's software
    /// RDMA. Useful only to test the wire within a process.
    pub fn carry_own(&self) {
        self.device.carry_own();
    }

    /// Whether the address and number are of a queue pair of this process, which needs no wire.
    pub(super) fn is_within(&self, gid: &[u8; 16], qpn: u32) -> bool {
        // Another process may have the address as well.
        !self.device.carries_own() && device::by_gid(gid).is_some_and(|found| fabric::is_here(found, qpn))
    }

    /// The counters of its sockets: a system call for each. Waits for no poller.
    pub fn link_counters(&self) -> LinkCounters {
        self.link.counters()
    }

    /// Deviations from a network that loses nothing: of all queue pairs, past ones included, and of
    /// datagrams that belong to none. Takes no lock.
    pub fn incidents(&self) -> Incidents {
        self.link.incidents.values()
    }

    /// The transport's counters of a queue pair; `None` if its packets don't go by this wire.
    pub fn counters(&self, qpn: u32) -> Option<Counters> {
        self.lock().queue_pairs.counters(qpn)
    }

    /// The incidents of a queue pair, to be read at any time without a lock; `None` if its packets
    /// don't go by this wire.
    pub fn qp_incidents(&self, qpn: u32) -> Option<QpIncidents> {
        self.lock().queue_pairs.incidents(qpn)
    }

    /// Wakes the thread if a post, or a poll's intake, is due at a time that it doesn't know of.
    #[inline]
    pub(super) fn wake_in_time(&self, mut inner: MutexGuard<'_, Inner>) {
        let oversleeps = inner.oversleeps();
        drop(inner);
        if oversleeps {
            self.alarm.ring();
        }
    }

    /// The holder waits for nobody, and is done after one turn.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        // The peers' retries or time-outs repair the state that a panic leaves.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
