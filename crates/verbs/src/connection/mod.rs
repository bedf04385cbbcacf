//! Connections by IP address: resolve, connect, listen, accept, reject, disconnect, with private
//! data and time limits.
//!
//! On kernel devices this is rdma_cm (rdma_cm(7)); between software RNICs of this process a
//! directory of listeners, and to others rdma_cm's messages over the device's wire. QPs stay the
//! caller's own, made on the caller's own context: a connection only carries the two endpoints to
//! each other and brings the QPs up. Nothing here blocks for longer than it was told.
//!
//! ```text
//!   resolve ─▶ Route ── connect(qp) ─▶ Connecting ── finish(qp) ─▶ Connection
//!   Listener ── next ─▶ Request ── accept(qp) ────────────────────▶ Connection
//!                              └── reject(reason)
//! ```

mod deadline;
mod error;
mod kernel;
mod link;
mod options;
mod soft;
mod wire;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use deadline::Deadline;
pub use error::ConnectionError;
pub use link::ConnectionLink;
use options::check_private;
pub use options::{ACCEPT_PRIVATE_BYTES, CONNECT_PRIVATE_BYTES, ConnParam, ConnectOptions, REJECT_PRIVATE_BYTES};

use crate::device::provider::Provider;
use crate::qp::QueuePair;

/// Finds the device and the path to an address. `from` is the address to come from; without one, or
/// with port 0, one is picked.
pub fn resolve(
    provider: Provider,
    to: SocketAddr,
    from: Option<SocketAddr>,
    time_limit: Duration,
) -> Result<Route, ConnectionError> {
    resolve_for(provider, to, from, &ConnectOptions::default(), time_limit)
}

/// Like [`resolve`], for a connection with these options: a kernel device takes their traffic class
/// into the path.
pub fn resolve_for(
    provider: Provider,
    to: SocketAddr,
    from: Option<SocketAddr>,
    options: &ConnectOptions,
    time_limit: Duration,
) -> Result<Route, ConnectionError> {
    let deadline = Deadline::after(time_limit);
    Ok(Route(match provider {
        Provider::Kernel => RouteKind::Kernel(kernel::Route::resolve(to, from, options.traffic_class, deadline)?),
        Provider::Soft => match soft::is_here(to.ip())? {
            true => RouteKind::Soft(soft::Route::resolve(to, from)?),
            false => RouteKind::Wire(
                wire::Route::resolve(to, from)?.ok_or(ConnectionError::Unreachable { provider, address: to })?,
            ),
        },
    }))
}

/// A path to an address. Make a QP on [`Route::device_name`] and connect it.
#[derive(Debug)]
pub struct Route(RouteKind);

#[derive(Debug)]
enum RouteKind {
    Kernel(kernel::Route),
    Soft(soft::Route),
    Wire(wire::Route),
}

impl Route {
    /// The local device that the path leads over.
    pub fn device_name(&self) -> &str {
        match &self.0 {
            RouteKind::Kernel(route) => route.device_name(),
            RouteKind::Soft(route) => route.device_name(),
            RouteKind::Wire(route) => route.device_name(),
        }
    }

    /// The local port of that device.
    pub fn port(&self) -> u8 {
        match &self.0 {
            RouteKind::Kernel(route) => route.port(),
            RouteKind::Soft(_) | RouteKind::Wire(_) => soft::PORT,
        }
    }

    /// Asks the listener there. The QP is in RESET or INIT and goes to INIT, so that receives can
    /// be posted before it is finished.
    pub fn connect(self, qp: &mut QueuePair, options: &ConnectOptions) -> Result<Connecting, ConnectionError> {
        check_private("a request", &options.private_data, CONNECT_PRIVATE_BYTES)?;
        check_device(qp, self.device_name())?;
        Ok(Connecting(match self.0 {
            RouteKind::Kernel(route) => ConnectingKind::Kernel(route.connect(qp, options)?),
            RouteKind::Soft(route) => ConnectingKind::Soft(route.connect(qp, options)?),
            RouteKind::Wire(route) => ConnectingKind::Wire(route.connect(qp, options)?),
        }))
    }
}

/// A request that is under way. Dropping it takes it back.
#[derive(Debug)]
pub struct Connecting(ConnectingKind);

#[derive(Debug)]
enum ConnectingKind {
    Kernel(kernel::Connecting),
    Soft(soft::Connecting),
    Wire(wire::Connecting),
}

impl Connecting {
    /// Waits for the answer and brings the QP to RTS.
    pub fn finish(self, qp: &mut QueuePair, time_limit: Duration) -> Result<Connection, ConnectionError> {
        let deadline = Deadline::after(time_limit);
        Ok(Connection(match self.0 {
            ConnectingKind::Kernel(connecting) => ConnectionKind::Kernel(connecting.finish(qp, deadline)?),
            ConnectingKind::Soft(connecting) => ConnectionKind::Soft(connecting.finish(qp, deadline)?),
            ConnectingKind::Wire(connecting) => ConnectionKind::Wire(connecting.finish(qp, deadline)?),
        }))
    }
}

impl AsFd for Connecting {
    /// Readable when the answer is there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            ConnectingKind::Kernel(connecting) => connecting.as_fd(),
            ConnectingKind::Soft(connecting) => connecting.as_fd(),
            ConnectingKind::Wire(connecting) => connecting.as_fd(),
        }
    }
}

/// Takes connection requests at an address.
#[derive(Debug)]
pub struct Listener(ListenerKind);

#[derive(Debug)]
enum ListenerKind {
    Kernel(kernel::Listener),
    Soft(soft::Listener),
}

impl Listener {
    /// Listens at an address; the unspecified address listens on every device, that of IPv6 for
    /// IPv4 too; port 0 picks one that nobody has. A port that another has on the same address, on
    /// every address or, with the unspecified address, on any is [`ConnectionError::AddressInUse`].
    /// Requests beyond `backlog` that nobody took are refused.
    pub fn bind(provider: Provider, address: SocketAddr, backlog: u32) -> Result<Listener, ConnectionError> {
        Ok(Listener(match provider {
            Provider::Kernel => ListenerKind::Kernel(kernel::Listener::bind(address, backlog)?),
            Provider::Soft => ListenerKind::Soft(soft::Listener::bind(address, backlog)?),
        }))
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        match &self.0 {
            ListenerKind::Kernel(listener) => listener.local_addr(),
            ListenerKind::Soft(listener) => listener.local_addr(),
        }
    }

    /// The next request; `None` when none came in time.
    pub fn next(&mut self, time_limit: Duration) -> Result<Option<Request>, ConnectionError> {
        let deadline = Deadline::after(time_limit);
        Ok(match &mut self.0 {
            ListenerKind::Kernel(listener) => {
                listener.next(deadline)?.map(|request| Request(RequestKind::Kernel(request)))
            }
            ListenerKind::Soft(listener) => listener.next(deadline)?.map(|caller| match caller {
                soft::Caller::Here(request) => Request(RequestKind::Soft(request)),
                soft::Caller::Elsewhere(asked, port) => {
                    Request(RequestKind::Wire(Box::new(wire::Request::new(asked, port))))
                }
            }),
        })
    }
}

impl AsFd for Listener {
    /// Readable when there is a request.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            ListenerKind::Kernel(listener) => listener.as_fd(),
            ListenerKind::Soft(listener) => listener.as_fd(),
        }
    }
}

/// A peer that wants to connect. Dropping it rejects it without a reason.
#[derive(Debug)]
pub struct Request(RequestKind);

#[derive(Debug)]
enum RequestKind {
    Kernel(kernel::Request),
    Soft(soft::Request),
    Wire(Box<wire::Request>),
}

impl Request {
    /// What the peer gave with it; may be followed by zeros.
    pub fn private_data(&self) -> &[u8] {
        match &self.0 {
            RequestKind::Kernel(request) => request.private_data(),
            RequestKind::Soft(request) => request.private_data(),
            RequestKind::Wire(request) => request.private_data(),
        }
    }

    /// The address that the peer asks from.
    pub fn peer_addr(&self) -> SocketAddr {
        match &self.0 {
            RequestKind::Kernel(request) => request.peer_addr(),
            RequestKind::Soft(request) => request.peer_addr(),
            RequestKind::Wire(request) => request.peer_addr(),
        }
    }

    /// The local device that it came in by; the QP to accept with is made there.
    pub fn device_name(&self) -> &str {
        match &self.0 {
            RequestKind::Kernel(request) => request.device_name(),
            RequestKind::Soft(request) => request.device_name(),
            RequestKind::Wire(request) => request.device_name(),
        }
    }

    /// The local port of that device.
    pub fn port(&self) -> u8 {
        match &self.0 {
            RequestKind::Kernel(request) => request.port(),
            RequestKind::Soft(_) | RequestKind::Wire(_) => soft::PORT,
        }
    }

    /// What else the peer said of itself.
    pub fn param(&self) -> ConnParam {
        match &self.0 {
            RequestKind::Kernel(request) => request.param(),
            RequestKind::Soft(request) => request.param(),
            RequestKind::Wire(request) => request.param(),
        }
    }

    /// Accepts with a QP in RESET or INIT, which goes to RTS. Post receives before calling this
    /// with a QP that was brought to INIT, or as soon as it returns: the peer may send once it has
    /// the answer.
    pub fn accept(self, qp: &mut QueuePair, options: &ConnectOptions) -> Result<Connection, ConnectionError> {
        check_private("an acceptance", &options.private_data, ACCEPT_PRIVATE_BYTES)?;
        check_device(qp, self.device_name())?;
        Ok(Connection(match self.0 {
            RequestKind::Kernel(request) => ConnectionKind::Kernel(request.accept(qp, options)?),
            RequestKind::Soft(request) => ConnectionKind::Soft(request.accept(qp, options)?),
            RequestKind::Wire(request) => ConnectionKind::Wire(request.accept(qp, options)?),
        }))
    }

    /// Says no, and why.
    pub fn reject(self, reason: &[u8]) -> Result<(), ConnectionError> {
        check_private("a rejection", reason, REJECT_PRIVATE_BYTES)?;
        match self.0 {
            RequestKind::Kernel(request) => request.reject(reason),
            RequestKind::Soft(request) => {
                request.reject(reason);
                Ok(())
            }
            RequestKind::Wire(request) => {
                request.reject(reason);
                Ok(())
            }
        }
    }
}

/// Two connected QPs, seen from one side. Dropping it disconnects; the QP is the caller's to drain
/// and drop.
#[derive(Debug)]
pub struct Connection(ConnectionKind);

#[derive(Debug)]
enum ConnectionKind {
    Kernel(kernel::Connection),
    Soft(soft::Connection),
    Wire(wire::Connection),
}

impl Connection {
    /// What the peer gave with its acceptance (on the connecting side) or its request; may be
    /// followed by zeros.
    pub fn private_data(&self) -> &[u8] {
        match &self.0 {
            ConnectionKind::Kernel(connection) => connection.private_data(),
            ConnectionKind::Soft(connection) => connection.private_data(),
            ConnectionKind::Wire(connection) => connection.private_data(),
        }
    }

    /// The address of the other end.
    pub fn peer_addr(&self) -> SocketAddr {
        match &self.0 {
            ConnectionKind::Kernel(connection) => connection.peer_addr(),
            ConnectionKind::Soft(connection) => connection.peer_addr(),
            ConnectionKind::Wire(connection) => connection.peer_addr(),
        }
    }

    /// The address of this side: of a listener on every address, the one that the peer called.
    pub fn local_addr(&self) -> SocketAddr {
        match &self.0 {
            ConnectionKind::Kernel(connection) => connection.local_addr(),
            ConnectionKind::Soft(connection) => connection.local_addr(),
            ConnectionKind::Wire(connection) => connection.local_addr(),
        }
    }

    /// Waits until the peer is ready too. The connecting side is at once; the accepting side is
    /// when the peer has finished.
    pub fn wait_established(&mut self, time_limit: Duration) -> Result<(), ConnectionError> {
        let deadline = Deadline::after(time_limit);
        match &mut self.0 {
            ConnectionKind::Kernel(connection) => connection.wait_established(deadline),
            ConnectionKind::Soft(connection) => connection.wait_established(deadline),
            ConnectionKind::Wire(connection) => connection.wait_established(deadline),
        }
    }

    /// Waits until the peer disconnects; false when it did not in time.
    pub fn wait_disconnected(&mut self, time_limit: Duration) -> Result<bool, ConnectionError> {
        let deadline = Deadline::after(time_limit);
        match &mut self.0 {
            ConnectionKind::Kernel(connection) => connection.wait_disconnected(deadline),
            ConnectionKind::Soft(connection) => connection.wait_disconnected(deadline),
            ConnectionKind::Wire(connection) => connection.wait_disconnected(deadline),
        }
    }

    /// Why it is over, once [`Connection::wait_disconnected`] has said so.
    pub fn end_reason(&self) -> Option<&'static str> {
        match &self.0 {
            ConnectionKind::Kernel(connection) => connection.end_reason(),
            ConnectionKind::Soft(connection) => connection.end_reason(),
            ConnectionKind::Wire(connection) => connection.end_reason(),
        }
    }

    /// Disconnects: the QP goes to ERR, which flushes what is posted, and the peer is told.
    pub fn disconnect(self, qp: &mut QueuePair) -> Result<(), ConnectionError> {
        qp.to_err()?;
        match self.0 {
            ConnectionKind::Kernel(connection) => connection.disconnect(),
            // Telling the peer is what dropping does.
            ConnectionKind::Soft(connection) => {
                drop(connection);
                Ok(())
            }
            ConnectionKind::Wire(connection) => {
                drop(connection);
                Ok(())
            }
        }
    }
}

impl AsFd for Connection {
    /// Readable when the connection's state changed: established, disconnected.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            ConnectionKind::Kernel(connection) => connection.as_fd(),
            ConnectionKind::Soft(connection) => connection.as_fd(),
            ConnectionKind::Wire(connection) => connection.as_fd(),
        }
    }
}

fn check_device(qp: &QueuePair, route: &str) -> Result<(), ConnectionError> {
    let context = qp.context();
    match context.name() {
        name if name == route => Ok(()),
        name => Err(ConnectionError::WrongDevice { qp: name.to_owned(), route: route.to_owned() }),
    }
}
