//! Connections by address over a wire, for the owners of their queue pairs: ask, listen, accept,
//! reject, end.

use crate::queues::timer;
use crate::wire::device_wire::Wire;
use crate::wire::management::{News, Requested, Terms};
use std::io;
use std::net::{IpAddr, SocketAddr};
use verbline_roce::cm::{ConnectionId, PortSpace, Refused};

/// One end of a connection. Dropping it ends the connection, in whatever state it is.
#[derive(Debug)]
pub struct Exchange {
    wire: &'static Wire,
    id: ConnectionId,
}

/// A request for a connection. Dropping it leaves it unanswered.
#[derive(Debug)]
pub struct Asked {
    exchange: Exchange,
    /// The address of the requester.
    pub peer: SocketAddr,
    /// The requested address.
    pub called: IpAddr,
    /// The requester's terms.
    pub terms: Terms,
}

/// A listener on a port, until it is dropped.
#[derive(Debug)]
pub struct Listening {
    wire: &'static Wire,
    port: (PortSpace, u16),
}

impl Wire {
    /// Asks for a connection of that kind at an address. `tell` is called with the connection's
    /// news, under a lock: it must be short, and call nothing of this module.
    pub fn ask(
        &'static self,
        source_port: u16,
        to: (PortSpace, SocketAddr),
        terms: &Terms,
        tell: impl FnMut(News) + Send + 'static,
    ) -> Result<Exchange, Refused> {
        let mut inner = self.lock();
        let id = inner.management.connect(timer::now_ns(), source_port, to, terms, Box::new(tell))?;
        inner.say();
        drop(inner);
        // A new deadline, which the thread may oversleep.
        self.doorbell.ring();
        Ok(Exchange { wire: self, id })
    }

    /// Listens on a port: `take` gives back a request that it has no room for. It is called under a
    /// lock: it must be short, and call nothing of this module. `AddrInUse` if the port is taken,
    /// by this process or another that shares the address.
    pub fn listen(
        &'static self,
        port: (PortSpace, u16),
        mut take: impl FnMut(Asked) -> Result<(), Asked> + Send + 'static,
    ) -> io::Result<Listening> {
        let take = move |requested: Requested| {
            let Requested { id, peer, called, terms } = requested;
            let refused = take(Asked { exchange: Exchange { wire: self, id }, peer, called, terms }).err();
            // The lock is held, and the caller sends the answer.
            refused.map(|asked| std::mem::forget(asked.exchange)).is_none()
        };
        let mut inner = self.lock();
        inner.neighbours.listen(service_of(port))?;
        if inner.management.listen(port, Box::new(take)) {
            Ok(Listening { wire: self, port })
        } else {
            Err(io::ErrorKind::AddrInUse.into())
        }
    }
}

impl Asked {
    /// Accepts. `tell` is as in [`Wire::ask`]. Returns `None` if the peer that asked is gone.
    pub fn accept(self, terms: &Terms, tell: impl FnMut(News) + Send + 'static) -> Option<Exchange> {
        let Exchange { wire, id } = self.exchange;
        let mut inner = wire.lock();
        let is_there = inner.management.accept(timer::now_ns(), id, terms, Box::new(tell));
        inner.say();
        drop(inner);
        wire.doorbell.ring();
        is_there.then_some(self.exchange)
    }

    /// Rejects, with a reason by the specification's number, and as much data as fits.
    pub fn reject(self, reason: u16, data: &[u8]) {
        let Exchange { wire, id } = self.exchange;
        let mut inner = wire.lock();
        inner.management.reject(timer::now_ns(), id, reason, data);
        inner.say();
    }

    /// The wire by which the request came.
    pub fn wire(&self) -> &'static Wire {
        self.exchange.wire
    }
}

impl Exchange {
    /// Called when the queue pair is ready for its peer, which has accepted. Returns false if the
    /// connection is gone.
    pub fn establish(&self) -> bool {
        let mut inner = self.wire.lock();
        let now_ns = timer::now_ns();
        let is_there = inner.management.establish(now_ns, self.id);
        inner.keep_alive(now_ns);
        inner.say();
        drop(inner);
        // A new deadline.
        self.wire.doorbell.ring();
        is_there
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut inner = self.wire.lock();
        inner.management.end(timer::now_ns(), self.id);
        inner.say();
        drop(inner);
        self.wire.doorbell.ring();
    }
}

fn service_of((space, port): (PortSpace, u16)) -> u64 {
    space.service_of_port(port)
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut inner = self.wire.lock();
        let take = inner.management.stop_listening(self.port);
        inner.neighbours.stop_listening(service_of(self.port));
        drop(inner);
        // Ends the requests that wait in it, which takes the lock.
        drop(take);
        // Nothing else may come to do here for a long time, and meanwhile no other process of the
        // address could listen for the service.
        self.wire.lock().say();
    }
}
