//! The listening and the connected sockets of the server, of either kind.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::process::geteuid;

use crate::place::Placed;
use crate::protocol::Refusal;

/// The time limit for a whole request to arrive, and for a whole answer to be read.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Control(Placed),
    Http(TcpListener),
}

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Listener {
    /// Accepts the next waiting connection; it never blocks.
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        let socket = match self {
            Listener::Control(placed) => Socket::Unix(placed.listener.accept()?.0),
            Listener::Http(listener) => Socket::Tcp(listener.accept()?.0),
        };
        match &socket {
            Socket::Unix(stream) => stream.set_nonblocking(true)?,
            Socket::Tcp(stream) => stream.set_nonblocking(true)?,
        }
        Ok(socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Control(placed) => placed.listener.as_fd(),
            Listener::Http(listener) => listener.as_fd(),
        }
    }
}

impl Socket {
    /// The reason why its client may not ask, if any. The socket's mode already keeps other users
    /// out, but not a process that was handed a connected descriptor, nor anyone if root chose
    /// `--socket`.
    pub(crate) fn forbids(&self) -> Option<Refusal> {
        let Socket::Unix(stream) = self else { return None };
        let own = geteuid().as_raw();
        match getsockopt(stream, PeerCredentials).map(|credentials| credentials.uid()) {
            Ok(uid) if uid == own || uid == 0 => None,
            Ok(uid) => Some(format!("user {uid} may not ask a run of user {own}")),
            Err(errno) => Some(format!("the kernel does not tell who asks: {errno}")),
        }
        .map(|why| Refusal::new("forbidden", why))
    }

    /// A handle of a control socket's connection, for a thread that then writes to it alone.
    pub(crate) fn shared(&self) -> Result<UnixStream, Refusal> {
        let none = |error| Refusal::new("busy", format!("no descriptor is free for it: {error}"));
        match self {
            Socket::Unix(stream) => stream.try_clone().map_err(|error| none(error.to_string())),
            Socket::Tcp(_) => Err(none("it has no capture".to_owned())),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.read(buffer),
            Socket::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.write(buffer),
            Socket::Tcp(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
