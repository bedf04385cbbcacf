//! The peers of a link that have [sockets of their own](crate::wire::peer_socket), by which
//! reliable queue pairs send.
//!
//! Guarantees: a datagram leaves with the identification for which it was sealed. If the kernel
//! doesn't take one, those behind it to the same peer don't leave either, and are counted like it:
//! the transport sends them again. A peer without a socket here is served by the link's own.
//!
//! A firewall may let pass only what comes from the port of RoCE. So a peer's socket is given up if
//! a queue pair's first packets seem not to arrive. A socket by which a queue pair was answered is
//! proven: it stays, whatever is lost later.

use crate::wire::peer_socket::PeerSocket;
use crate::wire::run::Run;
use crate::wire::socket::Link;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// The most of them: `OF_PEERS` in the plan's sum of descriptors.
const PEERS_MAX: usize = 16;

/// See the [module](self).
pub(super) struct Peers {
    own: SocketAddr,
    all: Vec<Peer>,
    /// Whether one of them is held.
    has_held: bool,
}

struct Peer {
    socket: PeerSocket,
    /// The queue pairs with its port.
    queue_pairs: usize,
    standing: Standing,
    held: Option<Held>,
}

/// Whether a peer gets what its socket sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unproven,
    Proven,
    GivenUp,
}

/// Why nothing more leaves by a socket until all waiting datagrams were tried.
#[derive(Clone, Copy)]
enum Held {
    /// The kernel has not taken the datagram of this number.
    Full(u16),
    /// The kernel may have taken the number, or not.
    Failed,
}

impl Peers {
    pub(super) fn new(own: SocketAddr) -> Peers {
        Peers { own, all: Vec::with_capacity(PEERS_MAX), has_held: false }
    }

    /// Whether a new socket to the peer would be used.
    pub(super) fn wants(&self, to: IpAddr) -> bool {
        self.all.len() < PEERS_MAX && self.all.iter().all(|peer| peer.socket.to() != to)
    }

    /// The port for a queue pair with that peer: of the peer's socket, which may be a new one, or
    /// of the link's.
    pub(super) fn join(&mut self, to: IpAddr, new: Option<PeerSocket>) -> u16 {
        if let Some(new) = new.filter(|_| self.wants(to)) {
            self.all.push(Peer { socket: new, queue_pairs: 0, standing: Standing::Unproven, held: None });
        }
        let known = self.all.iter_mut().find(|peer| peer.socket.to() == to);
        known.map_or(self.own.port(), |peer| {
            peer.queue_pairs += 1;
            peer.socket.port()
        })
    }

    /// Takes leave of a queue pair with that port, which its peer has answered or not. The last
    /// one's socket closes: no datagram for it may wait.
    pub(super) fn leave(&mut self, port: u16, was_answered: bool) {
        if let Some(at) = self.all.iter().position(|peer| peer.socket.port() == port) {
            self.all[at].queue_pairs -= 1;
            if was_answered {
                self.all[at].decide(Standing::Proven);
            }
            if self.all[at].queue_pairs == 0 {
                self.all.swap_remove(at);
            }
        }
    }

    /// Serves the queue pairs with that port by the link's own socket from now on, unless the peer
    /// has answered one of them.
    pub(super) fn doubt(&mut self, port: u16, was_answered: impl FnOnce() -> bool) {
        let unproven = |peer: &&mut Peer| peer.socket.port() == port && peer.standing == Standing::Unproven;
        if let Some(peer) = self.all.iter_mut().find(unproven) {
            peer.decide(if was_answered() { Standing::Proven } else { Standing::GivenUp });
        }
    }

    /// Whether a queue pair with that port may go on with it to that peer. The link's own port is
    /// for all.
    pub(super) fn is_port_to(&self, port: u16, to: IpAddr) -> bool {
        let peer = self.all.iter().find(|peer| peer.socket.port() == port);
        peer.is_none_or(|peer| peer.socket.to() == to)
    }

    /// The socket for a datagram, by its queue pair's port; `None`: the link's own.
    pub(super) fn of(&self, port: u16) -> Option<usize> {
        self.all.iter().position(|peer| peer.socket.port() == port && peer.standing != Standing::GivenUp)
    }

    #[cfg(test)]
    pub(super) fn socket(&self, at: usize) -> std::os::fd::BorrowedFd<'_> {
        self.all[at].socket.as_fd()
    }

    /// The IPv4 identification of the next run of a socket.
    pub(super) fn take_number(&mut self, at: usize) -> u16 {
        self.all[at].socket.take_number()
    }

    /// Sends a run by a socket, whose number it has.
    pub(super) fn send(&mut self, at: usize, link: &Link, run: &Run<'_>, number: u16) -> io::Result<()> {
        let peer = &mut self.all[at];
        if peer.held.is_some() {
            link.lose(run);
            return Ok(());
        }
        link.send_connected(peer.socket.as_fd(), run).inspect_err(|error| {
            let is_full = error.kind() == io::ErrorKind::WouldBlock;
            peer.held = Some(if is_full { Held::Full(number) } else { Held::Failed });
            self.has_held = true;
        })
    }

    /// Lets go of the held ones, once nothing waits that was sealed before.
    pub(super) fn let_go(&mut self) {
        if !std::mem::take(&mut self.has_held) {
            return;
        }
        for peer in &mut self.all {
            match peer.held.take() {
                None => {}
                Some(Held::Full(number)) => peer.socket.give_back(number),
                Some(Held::Failed) if peer.socket.learn_number(0).is_err() => peer.standing = Standing::GivenUp,
                Some(Held::Failed) => {}
            }
        }
    }
}

impl Peer {
    /// Decides on the socket for good, unless that was done.
    fn decide(&mut self, standing: Standing) {
        if self.standing == Standing::Unproven {
            self.standing = standing;
        }
    }
}
