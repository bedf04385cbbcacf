//! Gives a software device an address, and finds devices that have one.

use crate::data_path::carrier;
use crate::objects::device;
use crate::objects::fabric;
use crate::wire::device_wire::Wire;
use crate::wire::gid_of;
use crate::wire::management;
use crate::wire::neighbours;
use crate::wire::socket::Link;
use crate::wire::thread::Waiting;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use verbline_roce::wire::ROCE_PORT;

/// The reason why a device gets no wire.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no such device.
    #[error("there is no software device {device:?}; there are soft0 and soft1")]
    NoDevice {
        /// The requested device.
        device: String,
    },
    /// It has another address.
    #[error(
        "{device} has the address {has} already, which it keeps as long as this process; give {address} to the other \
         software device (`name = \"soft1\"`), or run it in a process of its own"
    )]
    Other {
        /// The device.
        device: String,
        /// Its address.
        has: IpAddr,
        /// The requested address.
        address: IpAddr,
    },
    /// The other device has it.
    #[error(
        "{by} of this process has {address} already; give each device an address of its own (on one host for instance \
         127.0.0.2)"
    )]
    OfDevice {
        /// The requested address.
        address: IpAddr,
        /// The device that has it.
        by: &'static str,
    },
    /// No peer can send there.
    #[error(
        "{address} is no address that a peer can send to; name one of this host, e.g. 127.0.0.1 or what `ip addr` shows"
    )]
    Unusable {
        /// The requested address.
        address: IpAddr,
    },
    /// It holds on one interface only.
    #[error(
        "{address} is a link-local address, which means another host on each interface; take another that `ip addr` \
         shows"
    )]
    LinkLocal {
        /// The requested address.
        address: IpAddr,
    },
    /// It is not this host's.
    #[error("{address} is no address of this host (in this network namespace); {}", not_local_remedy(*address))]
    NotLocal {
        /// The requested address.
        address: IpAddr,
    },
    /// Another user's process, or another program, has the port.
    #[error(
        "UDP port {} of {} is taken: by another user's process or another program, or by the kernel's rxe in this \
         network namespace (`ss -ulnp`, `rdma link`); take another address (on one host for instance 127.0.0.2)",
        .at.port(), .at.ip()
    )]
    Taken {
        /// The address and the port.
        at: SocketAddr,
    },
    /// The most processes that can share the address have it.
    #[error("{address} is shared by 31 processes already, as many as can; take another address")]
    Full {
        /// The requested address.
        address: IpAddr,
    },
    /// No thread is free to receive there.
    #[error("the thread that receives at {at} can't be started: {source}; raise the limit of threads (ulimit -u)")]
    Thread {
        /// The address and the port.
        at: SocketAddr,
        /// The error.
        source: io::Error,
    },
    /// Another error of the kernel.
    #[error("no socket for RoCE at {at}: {source}; {}", socket_remedy(source))]
    Io {
        /// The address and the port.
        at: SocketAddr,
        /// The error.
        source: io::Error,
    },
}

/// The addresses of loopback are there once it is up: a new network namespace has it down.
fn not_local_remedy(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(v4) if v4.is_loopback() => "the loopback is down: run `ip link set lo up` as root",
        IpAddr::V6(v6) if v6.is_loopback() => {
            "the loopback is down, or has no IPv6: run `ip link set lo up` as root, or `sysctl -w \
             net.ipv6.conf.lo.disable_ipv6=0`"
        }
        _ => "`ip addr` shows which it has",
    }
}

fn socket_remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "allow it: `sysctl -w net.ipv4.ip_unprivileged_port_start=1024` as root if that is above the port, or the \
             rule of a security module or of a seccomp filter that forbids bind(2)"
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of descriptors (`ulimit -n`)",
        _ => "see what forbids it: a seccomp filter, or a lack of memory",
    }
}

/// Of each device that has one.
static WIRES: [OnceLock<&'static Wire>; device::DEVICES] = [const { OnceLock::new() }; device::DEVICES];

/// Gives a software device an address, by which other processes and hosts reach it for the life of
/// this process. A repeated call with the same address changes nothing. Existing queue pairs of the
/// device don't use it. An IPv4 address mapped into IPv6 counts as IPv4.
pub fn attach(device: &str, address: IpAddr) -> Result<&'static Wire, AttachError> {
    let address = address.to_canonical();
    let found = device::devices().iter().find(|one| one.name() == device);
    let found = found.ok_or_else(|| AttachError::NoDevice { device: device.to_owned() })?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(AttachError::Unusable { address });
    }
    if matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
        return Err(AttachError::LinkLocal { address });
    }
    // One at a time: of two callers with one address, the second finds the first one's wire.
    static ATTACHING: Mutex<()> = Mutex::new(());
    let _one = ATTACHING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(wire) = of_device(device) {
        let has = wire.address().ip();
        let other = || AttachError::Other { device: device.to_owned(), has, address };
        return if has == address { Ok(wire) } else { Err(other()) };
    }
    // An address says which device of this process is meant.
    if let Some(other) = all().find(|wire| wire.address().ip() == address) {
        return Err(AttachError::OfDevice { address, by: other.device_name() });
    }
    let at = SocketAddr::new(address, ROCE_PORT);
    let thread = Waiting::start(found.name()).map_err(|source| AttachError::Thread { at, source })?;
    let refused = |source| AttachError::Io { at, source };
    // Before the socket: from the start, the kernel may deliver datagrams for others to this
    // socket, and datagrams for this process to others.
    let slice = neighbours::claim_slice(address, management::random()).map_err(refused)?;
    let slice = slice.ok_or(AttachError::Full { address })?;
    let number = slice.number;
    let link = Arc::new(Link::open(at).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => AttachError::Taken { at },
        io::ErrorKind::AddrNotAvailable => AttachError::NotLocal { address },
        _ => AttachError::Io { at, source },
    })?);
    let wire: &'static Wire = Box::leak(Box::new(Wire::new(found, link, slice).map_err(refused)?));
    fabric::control().own_slice(found.index, number, management::random());
    thread.serve(wire);
    carrier::register(found, wire);
    let _ = WIRES[found.index].set(wire);
    found.set_address(gid_of(address));
    Ok(wire)
}

/// A number for the first packet of a queue pair that goes by a wire. Strangers can't know it.
pub fn random_psn() -> u32 {
    management::random() & fabric::QPN_MASK
}

/// The wire of that device, if it has one.
pub fn of_device(device: &str) -> Option<&'static Wire> {
    all().find(|wire| wire.device_name() == device)
}

/// The wires of all devices.
pub fn all() -> impl Iterator<Item = &'static Wire> {
    WIRES.iter().filter_map(OnceLock::get).copied()
}
