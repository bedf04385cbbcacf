//! Connections by IP address: resolve, connect, listen, accept, reject, disconnect, with private
//! data and time limits.
//!
//! Kernel devices use rdma_cm (rdma_cm(7)). Software RNICs use a directory of listeners within this
//! process, and rdma_cm's messages over the device's wire to other processes. QPs stay the caller's
//! own, created on the caller's own context: a connection only exchanges the two endpoints and
//! brings the QPs to RTS. Nothing here blocks for longer than its time limit.
//!
//! ```text
//!   resolve ─▶ Route ── connect(qp) ─▶ Connecting ── finish(qp) ─▶ Connection
//!   Listener ── next ─▶ Request ── accept(qp) ────────────────────▶ Connection
//!                              └── reject(reason)
//! ```

mod error;
mod established;
mod kernel;
mod options;
mod soft;
mod waiting;
mod wire;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

pub use error::ConnectionError;
pub use established::{Connection, ConnectionLink, QpIncidents};
use options::check_private;
pub use options::{
    ACCEPT_PRIVATE_BYTES, CONNECT_PRIVATE_BYTES, CmTransport, ConnParam, ConnectOptions, REJECT_PRIVATE_BYTES,
};
use waiting::Deadline;

use crate::device::provider::Provider;
use crate::qp::QueuePair;

/// One side's part of a connection: of a kernel device, to a soft device of this process, or over a
/// soft device's wire.
#[derive(Debug)]
enum Kind<K, S, W> {
    Kernel(K),
    Soft(S),
    Wire(W),
}

/// Asks the same of each kind.
macro_rules! each {
    ($kind:expr, $one:ident => $value:expr) => {
        match $kind {
            Kind::Kernel($one) => $value,
            Kind::Soft($one) => $value,
            Kind::Wire($one) => $value,
        }
    };
}
use each;

/// Turns each kind into another part of the same kind.
macro_rules! turn {
    ($kind:expr, $one:ident => $value:expr) => {
        match $kind {
            Kind::Kernel($one) => Kind::Kernel($value),
            Kind::Soft($one) => Kind::Soft($value),
            Kind::Wire($one) => Kind::Wire($value),
        }
    };
}

/// Finds the device and the path to an address. `from` is the local address; without one, or with
/// port 0, one is chosen.
pub fn resolve(
    provider: Provider,
    to: SocketAddr,
    from: Option<SocketAddr>,
    time_limit: Duration,
) -> Result<Route, ConnectionError> {
    resolve_for(provider, to, from, &ConnectOptions::default(), time_limit)
}

/// Like [`resolve`], for a connection with these options: it has their transport, and a kernel
/// device takes their traffic class into the path.
pub fn resolve_for(
    provider: Provider,
    to: SocketAddr,
    from: Option<SocketAddr>,
    options: &ConnectOptions,
    time_limit: Duration,
) -> Result<Route, ConnectionError> {
    let deadline = Deadline::after(time_limit);
    let kind = match provider {
        Provider::Kernel => Kind::Kernel(kernel::Route::resolve(to, from, options, deadline)?),
        Provider::Soft => match soft::is_here(to)? {
            true => Kind::Soft(soft::Route::resolve(to, from)?),
            false => Kind::Wire(
                wire::Route::resolve(to, from)?.ok_or(ConnectionError::Unreachable { provider, address: to })?,
            ),
        },
    };
    Ok(Route { kind, to, transport: options.transport })
}

/// A path to an address. Create a QP on [`Route::device_name`] and connect it.
#[derive(Debug)]
pub struct Route {
    kind: Kind<kernel::Route, soft::Route, wire::Route>,
    to: SocketAddr,
    transport: CmTransport,
}

impl Route {
    /// The local device at the start of the path.
    pub fn device_name(&self) -> &str {
        each!(&self.kind, route => route.device_name())
    }

    /// The device's local port.
    pub fn port(&self) -> u8 {
        match &self.kind {
            Kind::Kernel(route) => route.port(),
            Kind::Soft(_) | Kind::Wire(_) => soft::PORT,
        }
    }

    /// Sends a request to the listener there. The QP has the transport of the route. It is in RESET
    /// or INIT and goes to INIT, so that receives can be posted before it is finished.
    pub fn connect(self, qp: &mut QueuePair, options: &ConnectOptions) -> Result<Connecting, ConnectionError> {
        check_private("a request", &options.private_data, CONNECT_PRIVATE_BYTES)?;
        check_device(qp, self.device_name())?;
        check_transport(qp, self.transport, self.to)?;
        Ok(Connecting(match self.kind {
            Kind::Kernel(route) => Kind::Kernel(route.connect(qp, options)?),
            Kind::Soft(route) => Kind::Soft(route.connect(qp, self.transport, options)?),
            Kind::Wire(route) => Kind::Wire(route.connect(qp, self.transport, options)?),
        }))
    }
}

/// A request waiting for its answer. Dropping it withdraws the request.
#[derive(Debug)]
pub struct Connecting(Kind<kernel::Connecting, soft::Connecting, wire::Connecting>);

impl Connecting {
    /// Waits for the answer and brings the QP to RTS.
    pub fn finish(self, qp: &mut QueuePair, time_limit: Duration) -> Result<Connection, ConnectionError> {
        let deadline = Deadline::after(time_limit);
        Ok(Connection(turn!(self.0, connecting => connecting.finish(qp, deadline)?)))
    }
}

impl AsFd for Connecting {
    /// Readable when the answer has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        each!(&self.0, connecting => connecting.as_fd())
    }
}

/// Takes connection requests at an address.
#[derive(Debug)]
pub struct Listener {
    kind: ListenerKind,
    transport: CmTransport,
}

#[derive(Debug)]
enum ListenerKind {
    Kernel(kernel::Listener),
    Soft(soft::Listener),
}

impl Listener {
    /// Listens at an address. The unspecified address listens on every device, that of IPv6 for
    /// IPv4 too; port 0 picks a free one. The port is [`ConnectionError::AddressInUse`] if it is
    /// taken on the same address, on every address or, for the unspecified address, on any.
    /// Requests beyond `backlog` pending ones are refused.
    pub fn bind(provider: Provider, address: SocketAddr, backlog: u32) -> Result<Listener, ConnectionError> {
        Listener::bind_for(provider, address, CmTransport::Rc, backlog)
    }

    /// Like [`Listener::bind`], for connections of this transport: requests for another find no
    /// listener. On kernel devices each transport has ports of its own; on the software RNIC both
    /// share them.
    pub fn bind_for(
        provider: Provider,
        address: SocketAddr,
        transport: CmTransport,
        backlog: u32,
    ) -> Result<Listener, ConnectionError> {
        let kind = match provider {
            Provider::Kernel => ListenerKind::Kernel(kernel::Listener::bind(address, transport, backlog)?),
            Provider::Soft => ListenerKind::Soft(soft::Listener::bind(address, transport, backlog)?),
        };
        Ok(Listener { kind, transport })
    }

    /// The listener's address.
    pub fn local_addr(&self) -> SocketAddr {
        match &self.kind {
            ListenerKind::Kernel(listener) => listener.local_addr(),
            ListenerKind::Soft(listener) => listener.local_addr(),
        }
    }

    /// The next request; `None` if none came in time.
    pub fn next(&mut self, time_limit: Duration) -> Result<Option<Request>, ConnectionError> {
        let deadline = Deadline::after(time_limit);
        let kind = match &mut self.kind {
            ListenerKind::Kernel(listener) => listener.next(deadline)?.map(Kind::Kernel),
            ListenerKind::Soft(listener) => listener.next(deadline)?.map(|caller| match caller {
                soft::Caller::Here(request) => Kind::Soft(request),
                soft::Caller::Elsewhere(asked, port) => Kind::Wire(Box::new(wire::Request::new(asked, port))),
            }),
        };
        Ok(kind.map(|kind| Request { kind, transport: self.transport }))
    }
}

impl AsFd for Listener {
    /// Readable when a request is pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            ListenerKind::Kernel(listener) => listener.as_fd(),
            ListenerKind::Soft(listener) => listener.as_fd(),
        }
    }
}

/// A request of a peer. Dropping it rejects it without a reason.
#[derive(Debug)]
pub struct Request {
    kind: Kind<kernel::Request, soft::Request, Box<wire::Request>>,
    transport: CmTransport,
}

impl Request {
    /// The private data of the request; may be followed by zeros.
    pub fn private_data(&self) -> &[u8] {
        each!(&self.kind, request => request.private_data())
    }

    /// The address of the peer.
    pub fn peer_addr(&self) -> SocketAddr {
        each!(&self.kind, request => request.peer_addr())
    }

    /// The local device that the request came to; create the QP to accept with on it.
    pub fn device_name(&self) -> &str {
        each!(&self.kind, request => request.device_name())
    }

    /// The device's local port.
    pub fn port(&self) -> u8 {
        match &self.kind {
            Kind::Kernel(request) => request.port(),
            Kind::Soft(_) | Kind::Wire(_) => soft::PORT,
        }
    }

    /// The peer's other parameters.
    pub fn param(&self) -> ConnParam {
        each!(&self.kind, request => request.param())
    }

    /// The requested transport, which is the listener's.
    pub fn transport(&self) -> CmTransport {
        self.transport
    }

    /// Accepts with a QP of that transport in RESET or INIT, which goes to RTS. Post receives
    /// before this call, on a QP in INIT, or right after it: the peer may send once it has the
    /// answer.
    pub fn accept(self, qp: &mut QueuePair, options: &ConnectOptions) -> Result<Connection, ConnectionError> {
        check_private("an acceptance", &options.private_data, ACCEPT_PRIVATE_BYTES)?;
        check_device(qp, self.device_name())?;
        check_transport(qp, self.transport, self.peer_addr())?;
        Ok(Connection(turn!(self.kind, request => request.accept(qp, options)?)))
    }

    /// Rejects the request, with a reason.
    pub fn reject(self, reason: &[u8]) -> Result<(), ConnectionError> {
        check_private("a rejection", reason, REJECT_PRIVATE_BYTES)?;
        match self.kind {
            Kind::Kernel(request) => return request.reject(reason),
            Kind::Soft(request) => request.reject(reason),
            Kind::Wire(request) => request.reject(reason),
        }
        Ok(())
    }
}

fn check_device(qp: &QueuePair, route: &str) -> Result<(), ConnectionError> {
    let context = qp.context();
    match context.name() {
        name if name == route => Ok(()),
        name => Err(ConnectionError::WrongDevice { qp: name.to_owned(), route: route.to_owned() }),
    }
}

fn check_transport(qp: &QueuePair, connection: CmTransport, address: SocketAddr) -> Result<(), ConnectionError> {
    match (qp.transport(), connection.into()) {
        (own, connection) if own == connection => Ok(()),
        (qp, connection) => Err(ConnectionError::WrongTransport { qp, connection, address }),
    }
}
