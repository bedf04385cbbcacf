//! Local sockets by which the processes of one user that share an address reach each other: names
//! in the network namespace, each held by one process at a time (abstract ones, unix(7)), and
//! channels of messages to the holder of a name.
//!
//! Guarantees: nothing blocks. The kernel frees a name when its process ends, however it ends. Both
//! ends of a channel are of one user: each end refuses another user's process, by the kernel's
//! report of the other end (SO_PEERCRED).

use crate::wire::descriptors::{check, made};
use crate::wire::socket::BUFFER_BYTES;
use std::io;
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A name held by this process.
#[derive(Debug)]
pub(super) struct Seat(OwnedFd);

/// A channel to another process, or from it: messages, in order, while both exist.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

/// The reason why a connection is not accepted.
#[derive(Debug)]
pub(super) enum Unaccepted {
    /// The other end is a process of another user.
    Foreign,
    /// There are no descriptors left: a connection still waits, if there is one.
    NoDescriptor,
}

/// The most connections that wait to be accepted.
const BACKLOG: libc::c_int = 64;

impl Seat {
    /// Takes a name; `AddrInUse` if another process has it.
    pub(super) fn claim(name: &str) -> io::Result<Seat> {
        let (socket, (address, bytes)) = (socket()?, address(name)?);
        // SAFETY: a local's socket address, and its length.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) })?;
        // SAFETY: no pointer is passed.
        check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
        Ok(Seat(socket))
    }

    /// Accepts the next connection.
    pub(super) fn accept(&self) -> Option<Result<Channel, Unaccepted>> {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: null pointers request no address.
        let fd = unsafe { libc::accept4(self.0.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) };
        if fd < 0 {
            let none_left = matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
            return none_left.then_some(Err(Unaccepted::NoDescriptor));
        }
        // SAFETY: made just above, and nobody else has it.
        let channel = Channel(unsafe { OwnedFd::from_raw_fd(fd) });
        Some(if channel.is_of_own_user() { Ok(channel) } else { Err(Unaccepted::Foreign) })
    }
}

impl Channel {
    /// Connects to the holder of a name. An error if there is none, or if it is of another user.
    pub(super) fn to(name: &str) -> io::Result<Channel> {
        let (channel, (address, bytes)) = (Channel(socket()?), address(name)?);
        let (room, room_bytes) = (BUFFER_BYTES, size_of::<libc::c_int>() as libc::socklen_t);
        let fd = channel.0.as_raw_fd();
        // SAFETY: a local number, and its length. Whatever size the kernel grants is enough.
        let _ =
            unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, (&raw const room).cast(), room_bytes) };
        // SAFETY: a local's socket address, and its length.
        check(unsafe { libc::connect(fd, (&raw const address).cast(), bytes) })?;
        if channel.is_of_own_user() { Ok(channel) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    /// Sends a message; `WouldBlock` if the other end lags behind.
    pub(super) fn send(&self, message: &[u8]) -> io::Result<()> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the bytes are borrowed, and the call reads no more.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), message.as_ptr().cast(), message.len(), flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next message's length, cut at the room's; 0 when the other end has closed.
    pub(super) fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the bytes are borrowed mutably, and the call writes no more.
        let len = unsafe { libc::recv(self.0.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT) };
        usize::try_from(len).map_err(|_| io::Error::last_os_error())
    }

    /// Whether the other end was of this user when it connected, or began to listen.
    fn is_of_own_user(&self) -> bool {
        let (mut told, mut bytes) =
            (libc::ucred { pid: 0, uid: 0, gid: 0 }, size_of::<libc::ucred>() as libc::socklen_t);
        // SAFETY: both are locals, which the call may write.
        let ret = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut told).cast(),
                &raw mut bytes,
            )
        };
        // SAFETY: it has no arguments.
        let own = unsafe { libc::geteuid() };
        ret == 0 && bytes as usize == size_of::<libc::ucred>() && told.uid == own
    }
}

impl AsFd for Seat {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointer is passed, and the descriptor is new.
    unsafe { made(libc::socket(libc::AF_UNIX, kind, 0)) }
}

/// The address of an abstract name: it begins with a zero, and has no file.
fn address(name: &str) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: integers, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let room = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte as libc::c_char);
    Ok((address, (offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len()) as libc::socklen_t))
}
