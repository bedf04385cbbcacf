//! The ports of soft devices' addresses: one space for those who listen and those who connect, as
//! rdma_cm's RDMA_PS_TCP is.
//!
//! What it guarantees: no two hold one port of one address. The unspecified address is every
//! address; that of IPv6 is IPv4's too, as `net.ipv6.bindv6only = 0` has it. So at most one
//! listener hears a request, whatever order they came in.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::Hall;
use crate::connection::ConnectionError;

/// The ports that are picked for those who ask for none (RFC 6335, section 6: dynamic ports).
const EPHEMERAL: RangeInclusive<u16> = 49152..=u16::MAX;

static PORTS: LazyLock<Mutex<Ports>> =
    LazyLock::new(|| Mutex::new(Ports { held: HashMap::new(), last: *EPHEMERAL.end() }));

struct Ports {
    held: HashMap<u16, Vec<Holder>>,
    /// The last that was picked. The next is another, so that one who is late for the last finds
    /// nobody rather than a stranger.
    last: u16,
}

/// Who holds a port of an address.
struct Holder {
    ip: IpAddr,
    /// Where requests wait; dangling for one who connects.
    hall: Weak<Hall>,
}

/// A port of an address, held until this is dropped.
#[derive(Debug)]
pub(super) struct Port {
    address: SocketAddr,
}

impl Port {
    /// Port 0 picks one that nobody holds, of any address. Requests to it go to `hall`.
    pub(super) fn claim(address: SocketAddr, hall: Weak<Hall>) -> Result<Port, ConnectionError> {
        let mut ports = ports();
        let port = match address.port() {
            0 => ports.pick(),
            port => Some(port).filter(|port| ports.holders(*port).all(|holder| !overlap(holder.ip, address.ip()))),
        };
        let port = port.ok_or(ConnectionError::AddressInUse { address })?;
        ports.held.entry(port).or_default().push(Holder { ip: address.ip(), hall });
        Ok(Port { address: SocketAddr::new(address.ip(), port) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut ports = ports();
        let Some(holders) = ports.held.get_mut(&self.address.port()) else { return };
        holders.retain(|holder| holder.ip != self.address.ip());
        if holders.is_empty() {
            ports.held.remove(&self.address.port());
        }
    }
}

/// Where requests to an address wait, if somebody listens there.
pub(super) fn hall_at(address: SocketAddr) -> Option<Arc<Hall>> {
    let ports = ports();
    ports
        .holders(address.port())
        .filter(|holder| hears(holder.ip, address.ip()))
        .find_map(|holder| holder.hall.upgrade())
}

impl Ports {
    fn holders(&self, port: u16) -> impl Iterator<Item = &Holder> {
        self.held.get(&port).into_iter().flatten()
    }

    fn pick(&mut self) -> Option<u16> {
        let after = EPHEMERAL.filter(|port| *port > self.last);
        let port = after.chain(EPHEMERAL).find(|port| !self.held.contains_key(port))?;
        self.last = port;
        Some(port)
    }
}

fn ports() -> MutexGuard<'static, Ports> {
    // A panic while it is held leaves nothing half done: each holder comes and goes by one call.
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn overlap(a: IpAddr, b: IpAddr) -> bool {
    a == b || a.is_unspecified() || b.is_unspecified()
}

fn hears(listener: IpAddr, asked: IpAddr) -> bool {
    listener == asked || listener.is_unspecified() && (listener.is_ipv6() || asked.is_ipv4())
}
