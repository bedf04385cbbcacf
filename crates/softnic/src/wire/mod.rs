//! A device's way to other processes and hosts: RoCE v2 over a UDP socket of one address.
//!
//! A device has a wire from [`attach`] on, and one more entry in its GID table: the address. A
//! reliable or unreliable queue pair whose path begins there, and leads to no device of this
//! process, is the wire's: `verbline-roce` makes and takes in its packets, while its receives,
//! its completions, its keys and its states stay what they are for every other queue pair.
//!
//! # Who does the work
//! The caller: `ibv_post_send` sends, `ibv_poll_cq` takes in what has come, sends again what was
//! lost, and answers. While nobody polls, the wire's own thread does it (`thread`).
//!
//! # What it guarantees
//! - Between queue pairs of this process nothing changes: which way a queue pair goes is decided
//!   when it is connected, and the fast paths are closed to one that goes by a wire.
//! - One thread at a time works for a wire (`Wire::lock`). A turn is bounded; who polls and finds
//!   another at it, leaves it to that one.
//! - All access to memory is checked like any other (`memory`).
//!
//! # What is not, yet
//! Datagrams (UD), binds and local invalidation in the order of the send queue, keys that sign, the
//! state SQD, and shared receive queues of another protection domain than the queue pair's. The
//! traffic class isn't put on packets. One process has an address: a second one needs another.

pub(crate) mod connection;
mod inner;
mod management;
mod memory;
mod outbox;
pub(crate) mod queue_pair;
mod socket;
mod thread;

pub use connection::{Asked, Exchange, Listening};
pub use management::{News, Terms};
pub use socket::LinkCounters;
pub use verbline_roce::transport::Counters;

use crate::data_path::carrier::{self, Carrier};
use crate::data_path::errors::Errors;
use crate::data_path::poster::{Poster, Refused};
use crate::objects::device::{self, Device};
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::queues::wr::SendWr;
use inner::Inner;
use socket::Link;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use verbline_roce::wire::ROCE_PORT;

/// Why a device gets no wire.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no such device.
    #[error("there is no software device {device:?}; there are soft0 and soft1")]
    NoDevice {
        /// What was asked for.
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
        /// What was asked for.
        address: IpAddr,
    },
    /// No peer can send there.
    #[error(
        "{address} is no address that a peer can send to; name one of this host, e.g. 127.0.0.1 or what `ip addr` shows"
    )]
    Unusable {
        /// What was asked for.
        address: IpAddr,
    },
    /// It is not this host's.
    #[error("{address} is no address of this host (in this network namespace); `ip addr` shows which it has")]
    NotLocal {
        /// What was asked for.
        address: IpAddr,
    },
    /// Somebody else has the port.
    #[error(
        "UDP port {} of {} is taken: by another process with that address, or by the kernel's rxe in this network \
         namespace (`ss -ulnp`, `rdma link`); each process needs an address of its own (on one host for instance \
         127.0.0.1 and 127.0.0.2)",
        .at.port(), .at.ip()
    )]
    Taken {
        /// The address and the port.
        at: SocketAddr,
    },
    /// The kernel refused otherwise.
    #[error("no socket for RoCE at {at}: {source}")]
    Io {
        /// The address and the port.
        at: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// A device's wire.
pub struct Wire {
    device: &'static Device,
    link: Arc<Link>,
    inner: Mutex<Inner>,
    doorbell: thread::Doorbell,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("device", &self.device.name()).field("link", &self.link).finish_non_exhaustive()
    }
}

/// Of each device that has one.
static WIRES: [OnceLock<&'static Wire>; device::DEVICES] = [const { OnceLock::new() }; device::DEVICES];

/// Gives a software device an address, by which other processes and hosts reach it, for as long as
/// this process. Once more with the same address changes nothing.
pub fn attach(device: &str, address: IpAddr) -> Result<&'static Wire, AttachError> {
    let found = device::devices().iter().find(|one| one.name() == device);
    let found = found.ok_or_else(|| AttachError::NoDevice { device: device.to_owned() })?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(AttachError::Unusable { address });
    }
    // One at a time: of two that ask for one address, the second finds it there.
    static ATTACHING: Mutex<()> = Mutex::new(());
    let _one = ATTACHING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(wire) = of_device(device) {
        let has = wire.address().ip();
        let other = || AttachError::Other { device: device.to_owned(), has, address };
        return if has == address { Ok(wire) } else { Err(other()) };
    }
    let at = SocketAddr::new(address, ROCE_PORT);
    let link = Arc::new(Link::open(at).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => AttachError::Taken { at },
        io::ErrorKind::AddrNotAvailable => AttachError::NotLocal { address },
        _ => AttachError::Io { at, source },
    })?);
    let refused = |source| AttachError::Io { at, source };
    let doorbell = thread::Doorbell::new().map_err(refused)?;
    let inner = Mutex::new(Inner::new(&link));
    let wire: &'static Wire = Box::leak(Box::new(Wire { device: found, link, inner, doorbell }));
    fabric::control().begin_numbers_at(management::random());
    thread::start(wire).map_err(refused)?;
    carrier::register(found, wire);
    let _ = WIRES[found.index].set(wire);
    found.set_address(queue_pair::gid_of(address));
    Ok(wire)
}

/// A number for the first packet of a queue pair that goes by a wire: no stranger can know it.
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

impl Wire {
    /// Its address and UDP port.
    pub fn address(&self) -> SocketAddr {
        self.link.own()
    }

    /// The device's name.
    pub fn device_name(&self) -> &'static str {
        self.device.name()
    }

    /// The entry of the device's GID table that the address is.
    pub fn gid_index(&self) -> usize {
        device::ADDRESS_GID
    }

    /// The largest MTU, as verbs number it, that fits the packets of the interface towards an
    /// address.
    pub fn path_mtu(&self, to: IpAddr) -> io::Result<u8> {
        self.link.path_mtu(to).map(|mtu| mtu.code())
    }

    /// What its socket counted.
    pub fn link_counters(&self) -> LinkCounters {
        self.lock().link_counters
    }

    /// What a queue pair's transport counted; `None` if its packets don't go by this wire.
    pub fn counters(&self, qpn: u32) -> Option<Counters> {
        self.lock().counters(qpn)
    }

    /// Its holder waits for nobody, and is done after one turn.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic leaves state that the peers' retries mend, or their time-outs end.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carrier for Wire {
    fn connect(&self, qp: &Qp) -> bool {
        let made = queue_pair::leads_to(qp, self)
            .and_then(|addresses| queue_pair::open(qp, addresses, self.link.own().port()));
        made.is_some_and(|made| self.lock().add(qp, made))
    }

    fn start(&self, qp: &Qp) {
        self.lock().with(qp.qpn, |made| queue_pair::start(qp, made));
    }

    fn fail(&self, qp: &Qp) {
        self.lock().fail(qp);
    }

    fn remove(&self, qp: &Qp) {
        self.lock().remove(qp.qpn);
    }

    fn post<'a>(&self, poster: Poster<'_>, list: SendWr<'a>, errors: &mut Errors) -> Result<(), Refused<'a>> {
        queue_pair::post(self, poster, list, errors)
    }

    /// If another thread is at it, that one does the work.
    fn poll(&self, pinned: Pinned<'_>, errors: &mut Errors) {
        match self.inner.try_lock() {
            Ok(mut inner) => inner.poll(pinned, errors),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().poll(pinned, errors),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn owner_armed(&self) {
        self.doorbell.ring();
    }
}
