//! The wire's implementation of [`Carrier`], for the data path.

use crate::data_path::carrier::{Carrier, Outgoing};
use crate::data_path::errors::Errors;
use crate::data_path::poster::{Poster, Refused};
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::Transport;
use crate::queues::NOT_ESTABLISHED;
use crate::queues::wr::SendWr;
use crate::wire::device_wire::Wire;
use crate::wire::groups::address_of_group;
use crate::wire::peer_socket::PeerSocket;
use crate::wire::poll_turn::Inner;
use crate::wire::queue_pair;
use crate::wire::{address_of, gid_of};
use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::TryLockError;
use std::sync::atomic::Ordering;
use verbline_roce::transport::QueuePair;
use verbline_roce::wire::Addresses;

impl Wire {
    /// A socket for the peer of a queue pair that is being connected, if it would be the first. Not
    /// under the lock: the kernel may have to ask for the peer's link address first. A peer that it
    /// can't be made for is served by the link's own.
    fn new_socket(&self, qp: &Qp, to: IpAddr) -> Option<PeerSocket> {
        let is_wanted = qp.transport == Transport::Rc && self.lock().outbox.peers.wants(to);
        is_wanted.then(|| PeerSocket::open(self.link.own(), to).ok()).flatten()
    }

    /// Applies a queue pair's changed attributes. With another peer, or if it is to, its packets
    /// leave by the link's own socket from now on.
    fn change_path(&self, inner: &mut Inner, qp: &Qp, by_own: bool) {
        let addresses = queue_pair::leads_to(qp, self);
        let (own, Some(port)) = (self.link.own().port(), inner.queue_pairs.port(qp.qpn)) else { return };
        let stays =
            !by_own && addresses.is_none_or(|addresses| inner.outbox.peers.is_port_to(port, addresses.destination()));
        if !stays {
            let was_answered = inner.queue_pairs.was_answered(qp.qpn);
            inner.leave_peer(port, was_answered);
            inner.queue_pairs.set_port(qp.qpn, own);
        }
        let port = if stays { port } else { own };
        inner.queue_pairs.with(qp.qpn, |made| queue_pair::change(qp, addresses, port, made));
    }

    fn leave_group(&self, inner: &mut Inner, gid: &[u8; 16]) {
        if let Some(left) = inner.groups.leave(gid) {
            self.link.drops.remove(left.socket.shared());
        }
    }
}

impl Carrier for Wire {
    fn connect(&self, qp: &Qp) -> bool {
        let Some(addresses) = queue_pair::leads_to(qp, self) else { return false };
        let (own, new) = (self.link.own(), self.new_socket(qp, addresses.destination()));
        let mut inner = self.lock();
        let is_reliable = qp.transport == Transport::Rc;
        let port = if is_reliable { inner.outbox.peers.join(addresses.destination(), new) } else { own.port() };
        let made = queue_pair::open(qp, addresses, port);
        let is_added = made.is_some_and(|made| inner.queue_pairs.add(qp, made, port));
        if is_added {
            // Release, as in `modify`. No queue pair of this process expects this word; nothing is
            // taken in while the lock is held.
            qp.inbound.accept.store(NOT_ESTABLISHED, Ordering::Release);
        } else {
            inner.leave_peer(port, false);
        }
        is_added
    }

    fn start(&self, qp: &Qp) {
        let mut inner = self.lock();
        inner.queue_pairs.with(qp.qpn, |made| queue_pair::start(qp, made));
        // Without time-outs nothing tells that a firewall takes what a peer's socket sends.
        if qp.attributes().copied().timeout == 0 {
            self.change_path(&mut inner, qp, true);
        }
    }

    fn change(&self, qp: &Qp) {
        self.change_path(&mut self.lock(), qp, false);
    }

    fn hold(&self, qp: &Qp) -> bool {
        let mut inner = self.lock();
        let is_finished = inner.queue_pairs.with(qp.qpn, QueuePair::hold).unwrap_or(true);
        drop(inner);
        if !is_finished {
            // A poller, or the thread, asks the peer at once whether the sends have arrived.
            self.doorbell.ring();
        }
        is_finished
    }

    fn send_again(&self, qp: &Qp) {
        self.lock().queue_pairs.with(qp.qpn, QueuePair::send_again);
        // A poller sends the held work requests, or the thread if nobody polls.
        self.doorbell.ring();
    }

    fn fail(&self, qp: &Qp) {
        let mut inner = self.lock();
        inner.acknowledge(qp.qpn);
        inner.queue_pairs.fail(qp);
    }

    fn remove(&self, qp: &Qp) {
        let mut inner = self.lock();
        inner.acknowledge(qp.qpn);
        let (port, was_answered) = (inner.queue_pairs.port(qp.qpn), inner.queue_pairs.was_answered(qp.qpn));
        inner.queue_pairs.remove(qp.qpn);
        port.into_iter().for_each(|port| inner.leave_peer(port, was_answered));
    }

    fn post<'a>(&self, poster: Poster<'_>, list: SendWr<'a>, errors: &mut Errors) -> Result<(), Refused<'a>> {
        queue_pair::post(self, poster, list, errors)
    }

    /// Takes the lock for each datagram, not for a list: within the list local receivers are served
    /// too, whose queues have locks of their own, and another thread may poll meanwhile. An
    /// uncontended lock costs some 20 ns, and the datagram's share of a system call several times
    /// that.
    fn add_datagram(&self, datagram: &Outgoing<'_>) {
        let own = self.link.own().ip();
        // A datagram by another of the device's GIDs leads nowhere here, or into this process. A
        // queue pair older than the address would get no answer.
        if datagram.source_gid == gid_of(own)
            && fabric::slice_of(datagram.from) == self.slice
            && let Some(addresses) = Addresses::new(own, address_of(datagram.gid))
        {
            let mut inner = self.lock();
            inner.add_datagram(datagram, addresses);
            // Relaxed: read by this thread afterwards, or irrelevant.
            self.has_datagrams.store(true, Ordering::Relaxed);
        }
    }

    /// Once per list. Doesn't take the lock if the list had nothing for the wire.
    fn send_datagrams(&self) {
        // Relaxed: after adding a datagram, this thread sees its own mark, or that of a thread
        // which has cleared it since, under the lock, and sends all datagrams added before.
        if self.has_datagrams.load(Ordering::Relaxed) {
            let mut inner = self.lock();
            self.has_datagrams.store(false, Ordering::Relaxed);
            inner.send_datagrams();
        }
    }

    fn join(&self, gid: &[u8; 16]) -> Result<(), c_int> {
        let (Some(address), IpAddr::V4(own)) = (address_of_group(gid), self.link.own().ip()) else { return Ok(()) };
        let mut inner = self.lock();
        let joined = inner.groups.join(address, own, self.link.own().port());
        let watched = joined.and_then(|new| {
            let Some(new) = new else { return Ok(()) };
            self.link.drops.add(new.socket.shared());
            self.link.watch(&new.socket)
        });
        watched.map_err(|error| {
            self.leave_group(&mut inner, gid);
            error.raw_os_error().unwrap_or(libc::EIO)
        })
    }

    fn leave(&self, gid: &[u8; 16]) {
        self.leave_group(&mut self.lock(), gid);
    }

    /// If another thread has the lock, that one does the work.
    fn poll(&self, pinned: Pinned<'_>, errors: &mut Errors) {
        let mut inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        inner.poll(pinned, errors);
        // This may be the last poll for a while.
        self.wake_in_time(inner);
    }

    fn owner_armed(&self) {
        self.doorbell.ring();
    }
}
