//! The ports of soft devices' addresses: one space for listening and connecting, like rdma_cm's
//! RDMA_PS_TCP, and for both transports, for which rdma_cm has two spaces.
//!
//! It guarantees that each port of an address has one holder. The unspecified address means every
//! address; that of IPv6 includes IPv4, as with `net.ipv6.bindv6only = 0`. So at most one listener
//! hears a request, in whatever order the listeners came.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::connection::ConnectionError;

/// The ports to pick from for port 0 (RFC 6335, section 6: dynamic ports).
const EPHEMERAL: RangeInclusive<u16> = 49152..=u16::MAX;

/// The holder of each port. `L` is the listener's type.
pub(crate) struct Ports<L>(Mutex<Table<L>>);

struct Table<L> {
    held: BTreeMap<u16, Vec<Holder<L>>>,
    /// The last picked port. The next pick differs, so that a late request to the last one finds no
    /// listener rather than the wrong one.
    last: u16,
}

/// The holder of a port of an address.
struct Holder<L> {
    ip: IpAddr,
    /// Dangling for a connecting side.
    listener: Weak<L>,
}

/// A port of an address, held until this is dropped.
pub(crate) struct Port<L: 'static> {
    ports: &'static Ports<L>,
    address: SocketAddr,
}

impl<L> Ports<L> {
    pub(crate) const fn new() -> Ports<L> {
        Ports(Mutex::new(Table { held: BTreeMap::new(), last: *EPHEMERAL.end() }))
    }

    /// Claims a port. Port 0 picks one that is free on all addresses. Requests to it go to
    /// `listener`.
    pub(crate) fn claim(&'static self, address: SocketAddr, listener: Weak<L>) -> Result<Port<L>, ConnectionError> {
        let mut table = self.lock();
        let port = match address.port() {
            0 => table.pick(),
            port => Some(port).filter(|port| table.holders(*port).all(|holder| !overlap(holder.ip, address.ip()))),
        };
        let port = port.ok_or(ConnectionError::AddressInUse { address })?;
        table.held.entry(port).or_default().push(Holder { ip: address.ip(), listener });
        Ok(Port { ports: self, address: SocketAddr::new(address.ip(), port) })
    }

    /// The listener at an address, if any.
    pub(crate) fn listener_at(&self, address: SocketAddr) -> Option<Arc<L>> {
        let table = self.lock();
        let mut hearing = table.holders(address.port()).filter(|holder| hears(holder.ip, address.ip()));
        hearing.find_map(|holder| holder.listener.upgrade())
    }

    fn lock(&self) -> MutexGuard<'_, Table<L>> {
        // A panic while the lock is held leaves no inconsistent state: each holder is added or
        // removed by one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L> Table<L> {
    fn holders(&self, port: u16) -> impl Iterator<Item = &Holder<L>> {
        self.held.get(&port).into_iter().flatten()
    }

    fn pick(&mut self) -> Option<u16> {
        let after = EPHEMERAL.filter(|port| *port > self.last);
        let port = after.chain(EPHEMERAL).find(|port| !self.held.contains_key(port))?;
        self.last = port;
        Some(port)
    }
}

impl<L> Port<L> {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl<L> fmt::Debug for Port<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl<L> Drop for Port<L> {
    fn drop(&mut self) {
        let mut table = self.ports.lock();
        let Some(holders) = table.held.get_mut(&self.address.port()) else { return };
        holders.retain(|holder| holder.ip != self.address.ip());
        if holders.is_empty() {
            table.held.remove(&self.address.port());
        }
    }
}

fn overlap(a: IpAddr, b: IpAddr) -> bool {
    a == b || a.is_unspecified() || b.is_unspecified()
}

fn hears(listener: IpAddr, asked: IpAddr) -> bool {
    listener == asked || listener.is_unspecified() && (listener.is_ipv6() || asked.is_ipv4())
}
