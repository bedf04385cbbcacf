//! An established connection: its ends, and when it is over.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::{ConnectionError, Deadline, kernel, soft, wire};
use crate::qp::QueuePair;

/// Two connected QPs, seen from one side. Dropping it disconnects; the QP is the caller's to drain
/// and drop.
#[derive(Debug)]
pub struct Connection(pub(super) ConnectionKind);

#[derive(Debug)]
pub(super) enum ConnectionKind {
    Kernel(kernel::Connection),
    Soft(soft::Connection),
    Wire(wire::Connection),
}

impl Connection {
    /// The peer's private data, from its acceptance (on the connecting side) or its request; may be
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

    /// The address of this side. On a listener for every address, it is the one that the peer
    /// called.
    pub fn local_addr(&self) -> SocketAddr {
        match &self.0 {
            ConnectionKind::Kernel(connection) => connection.local_addr(),
            ConnectionKind::Soft(connection) => connection.local_addr(),
            ConnectionKind::Wire(connection) => connection.local_addr(),
        }
    }

    /// Waits until the peer is ready too. The connecting side is ready at once; the accepting side,
    /// when the peer has finished.
    pub fn wait_established(&mut self, time_limit: Duration) -> Result<(), ConnectionError> {
        let deadline = Deadline::after(time_limit);
        match &mut self.0 {
            ConnectionKind::Kernel(connection) => connection.wait_established(deadline),
            ConnectionKind::Soft(connection) => connection.wait_established(deadline),
            ConnectionKind::Wire(connection) => connection.wait_established(deadline),
        }
    }

    /// Waits until the peer disconnects; false if it did not in time.
    pub fn wait_disconnected(&mut self, time_limit: Duration) -> Result<bool, ConnectionError> {
        let deadline = Deadline::after(time_limit);
        match &mut self.0 {
            ConnectionKind::Kernel(connection) => connection.wait_disconnected(deadline),
            ConnectionKind::Soft(connection) => connection.wait_disconnected(deadline),
            ConnectionKind::Wire(connection) => connection.wait_disconnected(deadline),
        }
    }

    /// Why the connection is over, once [`Connection::wait_disconnected`] returned true.
    pub fn end_reason(&self) -> Option<&'static str> {
        match &self.0 {
            ConnectionKind::Kernel(connection) => connection.end_reason(),
            ConnectionKind::Soft(connection) => connection.end_reason(),
            ConnectionKind::Wire(connection) => connection.end_reason(),
        }
    }

    /// Disconnects: the QP goes to ERR, which flushes posted work requests, and the peer is told.
    pub fn disconnect(self, qp: &mut QueuePair) -> Result<(), ConnectionError> {
        qp.to_err()?;
        match self.0 {
            ConnectionKind::Kernel(connection) => connection.disconnect(),
            // Dropping the connection tells the peer.
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
