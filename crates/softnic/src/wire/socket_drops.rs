//! Datagrams that the kernel dropped at a wire's sockets, nearly always because a socket's buffer
//! was full: its process was slower than the network, or stood still.
//!
//! The kernel counts them (`ss -uam` shows them as `d`). Only a reader asks for the counts, so that
//! they cost no turn anything.

use std::mem::size_of_val;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The sockets of a wire's groups, and the drops of former ones. The control path and readers take
/// its lock.
#[derive(Debug, Default)]
pub(super) struct SocketDrops(Mutex<Groups>);

#[derive(Debug, Default)]
struct Groups {
    open: Vec<Arc<UdpSocket>>,
    /// The drops of sockets that are closed.
    closed: u64,
}

impl SocketDrops {
    /// Counts a group's socket as well, until it is [removed](Self::remove).
    pub(super) fn add(&self, socket: &Arc<UdpSocket>) {
        self.groups().open.push(socket.clone());
    }

    /// Lets go of a group's socket, and keeps its drops.
    pub(super) fn remove(&self, socket: &Arc<UdpSocket>) {
        let mut groups = self.groups();
        groups.open.retain(|open| !Arc::ptr_eq(open, socket));
        groups.closed += of_socket(socket.as_fd());
    }

    /// The drops of all groups' sockets, and of `own`.
    pub(super) fn count(&self, own: BorrowedFd<'_>) -> u64 {
        let groups = self.groups();
        let open = groups.open.iter().map(|socket| of_socket(socket.as_fd())).sum::<u64>();
        groups.closed + open + of_socket(own)
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        // A list and a number, of which a panic leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of the drops among what `SO_MEMINFO` returns (`SK_MEMINFO_DROPS`).
const DROPS: usize = 8;

/// The drops of one socket; 0 if the kernel doesn't tell, as before Linux 4.12.
fn of_socket(socket: BorrowedFd<'_>) -> u64 {
    let mut values = [0u32; DROPS + 1];
    let mut bytes = size_of_val(&values) as libc::socklen_t;
    let (level, name, first) = (libc::SOL_SOCKET, libc::SO_MEMINFO, values.as_mut_ptr().cast());
    // SAFETY: a local, which the call may write, and its length.
    let code = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, first, &raw mut bytes) };
    if code == 0 { values[DROPS].into() } else { 0 }
}
