//! The other processes of a user that share a wire's address: what comes here and is theirs is
//! passed on to them, and what they pass on is taken in.
//!
//! Each has a slice of the numbers of queue pairs and of connections, and of services those that it
//! listens for: slices and services are names that one process has at a time (`seat`). The kernel
//! gives what comes to the address to any of them.
//!
//! What it guarantees: nothing blocks, and a turn is bounded. A datagram that came by the network
//! is passed on to one process at most, and one that was passed on to none. A process of another
//! user neither gets nor gives anything.

use crate::objects::fabric::SLICE_BITS;
use crate::wire::counters::LinkTallies;
use crate::wire::epoll::Epoll;
use crate::wire::gid::{address_of, gid_of};
use crate::wire::seat::{Channel, Seat, Unaccepted};
use crate::wire::socket::{DATAGRAM_BYTES_MAX, Link};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Slices of an address; the first belongs to nobody.
const SLICES: u32 = 1 << SLICE_BITS;
/// Channels from others at a time: of each process, and some that bring one request each.
const CHANNELS_MAX: usize = 2 * SLICES as usize;
/// Turns without a channel before it is looked whether one has come: a system call.
const TURNS: u32 = 64;
/// Channels that one turn takes in at most, of each name.
const ACCEPTED_MAX: usize = 8;
/// Messages that one turn takes at most, each with a run of datagrams.
const MESSAGES_MAX: usize = 16;
/// Requests that one turn offers at most to who may listen elsewhere: a few system calls each.
const OFFERS_MAX: usize = 8;
/// How long it is remembered that nobody has a slice.
const ABSENT_NS: u64 = 10_000_000;

/// Before the datagrams of a message: the sender's address and port, and the length of all
/// datagrams but the last, which may be shorter.
const HEADER_BYTES: usize = 20;
/// The most bytes of a message's datagrams.
const RUN_BYTES_MAX: usize = 1 << 16;

/// See the [module](self).
pub(super) struct Neighbours {
    link: Arc<Link>,
    /// Of the slice, and of each service that is listened for.
    seats: Vec<(Option<u64>, Seat)>,
    /// Of services that are listened for no longer, while a request for one may come once more.
    leaving: Vec<(Option<u64>, Seat)>,
    /// All seats and all channels from others.
    any: Epoll,
    /// Given up for a moment when the process has no other left.
    spare: Option<OwnedFd>,
    from: Vec<Channel>,
    /// Those of `from` that may have something, in this turn.
    ready: Vec<RawFd>,
    messages_left: usize,
    offers_left: usize,
    turns: u32,
    to: [Towards; SLICES as usize],
    pending: Pending,
    came: Box<[u8]>,
}

/// The way to who has a slice.
#[derive(Default)]
struct Towards {
    channel: Option<Channel>,
    /// Nobody had it before.
    not_before_ns: u64,
}

/// Datagrams that are about to be passed on together.
struct Pending {
    slice: u32,
    from: Option<SocketAddr>,
    datagrams: u64,
    segment_bytes: usize,
    /// The last was shorter: no more.
    is_closed: bool,
    bytes: Box<[u8]>,
    used: usize,
}

/// Datagrams that another process passed on, and who sent them.
pub(super) struct PassedOn<'a> {
    pub(super) from: SocketAddr,
    pub(super) datagrams: std::slice::Chunks<'a, u8>,
}

/// A slice of an address that this process has.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) number: u32,
    seat: Seat,
}

fn name_of_slice(address: IpAddr, slice: u32) -> String {
    format!("verbline-roce-1/{address}/{slice}")
}

fn name_of_service(address: IpAddr, service: u64) -> String {
    format!("verbline-roce-1/{address}/service/{service:x}")
}

/// Takes a slice that no other process has, of those behind some number; `None` if all are taken.
pub(super) fn claim_slice(address: IpAddr, random: u32) -> io::Result<Option<Slice>> {
    for index in 0..SLICES - 1 {
        let number = 1 + (random % SLICES + index) % (SLICES - 1);
        match Seat::claim(&name_of_slice(address, number)) {
            Ok(seat) => return Ok(Some(Slice { number, seat })),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

impl Neighbours {
    pub(super) fn new(link: &Arc<Link>, Slice { seat, .. }: Slice) -> io::Result<Neighbours> {
        let any = Epoll::new()?;
        any.add(&seat)?;
        let spare = Some(any.as_fd().try_clone_to_owned()?);
        let bytes = || vec![0; HEADER_BYTES + RUN_BYTES_MAX].into();
        let (from, segment_bytes, used, is_closed) = (None, 0, 0, false);
        let pending = Pending { slice: 0, from, datagrams: 0, segment_bytes, is_closed, bytes: bytes(), used };
        Ok(Neighbours {
            link: link.clone(),
            seats: vec![(None, seat)],
            leaving: Vec::new(),
            any,
            spare,
            from: Vec::with_capacity(CHANNELS_MAX),
            ready: Vec::with_capacity(CHANNELS_MAX),
            messages_left: 0,
            offers_left: 0,
            turns: 0,
            to: std::array::from_fn(|_| Towards::default()),
            pending,
            came: bytes(),
        })
    }

    fn address(&self) -> IpAddr {
        self.link.own().ip()
    }

    fn counters(&self) -> &LinkTallies {
        &self.link.counters
    }

    /// Requests for a service that come to others come here from now on; `AddrInUse` if one of them
    /// listens for it.
    pub(super) fn listen(&mut self, service: u64) -> io::Result<()> {
        let left = self.leaving.iter().position(|(left, _)| *left == Some(service));
        let seat = match left {
            Some(at) => self.leaving.swap_remove(at).1,
            None => {
                let seat = Seat::claim(&name_of_service(self.address(), service))?;
                self.any.add(&seat)?;
                seat
            }
        };
        self.seats.push((Some(service), seat));
        Ok(())
    }

    /// No longer, once a request that is not decided can't come again.
    pub(super) fn stop_listening(&mut self, service: u64) {
        if let Some(at) = self.seats.iter().position(|(listened, _)| *listened == Some(service)) {
            self.leaving.push(self.seats.swap_remove(at));
        }
    }

    pub(super) fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// All requests are decided.
    pub(super) fn leave(&mut self) {
        self.leaving.clear();
    }

    /// Begins a turn: takes in who has connected, and notes from whom something has come. Without a
    /// channel it looks now and then, unless it is to look.
    pub(super) fn look(&mut self, always: bool) {
        (self.messages_left, self.offers_left) = (MESSAGES_MAX, OFFERS_MAX);
        self.ready.clear();
        self.turns = self.turns.wrapping_add(1);
        if self.from.is_empty() && !always && !self.turns.is_multiple_of(TURNS) {
            return;
        }
        for fd in self.any.readable() {
            let seat = self.seats.iter().chain(&self.leaving).find(|(_, seat)| seat.as_fd().as_raw_fd() == fd);
            let Some((_, seat)) = seat else {
                self.ready.push(fd);
                continue;
            };
            for accepted in std::iter::from_fn(|| seat.accept()).take(ACCEPTED_MAX) {
                match accepted {
                    Ok(channel) if self.from.len() < CHANNELS_MAX && self.any.add(&channel).is_ok() => {
                        self.from.push(channel);
                    }
                    // What it brings is lost, and comes again.
                    Ok(_) => {}
                    Err(Unaccepted::Foreign) => self.link.counters.foreign.add(1),
                    // One that waited would keep its seat readable, and the wire's thread awake.
                    Err(Unaccepted::NoDescriptor) => {
                        drop(self.spare.take());
                        let turned_away = seat.accept().map(drop);
                        self.spare = self.any.as_fd().try_clone_to_owned().ok();
                        if turned_away.is_none() {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// The next that another process passes on, as long as the turn lasts.
    pub(super) fn next(&mut self) -> Option<PassedOn<'_>> {
        let (len, from, segment_bytes) = self.receive()?;
        let datagrams = self.came[HEADER_BYTES..len].chunks(segment_bytes);
        self.link.counters.taken_over.add(datagrams.len() as u64);
        Some(PassedOn { from, datagrams })
    }

    /// A message's length, and what its header says.
    fn receive(&mut self) -> Option<(usize, SocketAddr, usize)> {
        while self.messages_left > 0 {
            let fd = *self.ready.last()?;
            let at = self.from.iter().position(|channel| channel.as_fd().as_raw_fd() == fd);
            match at.map(|at| (at, self.from[at].receive(&mut self.came))) {
                Some((_, Ok(len))) if len > 0 => {
                    self.messages_left -= 1;
                    // The next is of another, if one has something.
                    self.ready.rotate_right(1);
                    // Without a header it is of no process of ours.
                    if let Some((from, segment_bytes)) = read_header(&self.came[..len]) {
                        return Some((len, from, segment_bytes));
                    }
                    continue;
                }
                Some((_, Err(error))) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The other process is gone, or has no more to say.
                Some((at, _)) => drop(self.from.swap_remove(at)),
                None => {}
            }
            self.ready.pop();
        }
        None
    }

    /// Adds a datagram to what is passed on next, to who has the slice. Gives how many of before
    /// are for nobody.
    pub(super) fn add(&mut self, now_ns: u64, slice: u32, from: SocketAddr, datagram: &[u8]) -> u64 {
        let of_nobody = if self.pending.takes(slice, from, datagram.len()) { 0 } else { self.flush(now_ns) };
        self.pending.add(slice, from, datagram);
        of_nobody
    }

    /// Passes on what was added; gives how many datagrams of it are for nobody.
    pub(super) fn flush(&mut self, now_ns: u64) -> u64 {
        let datagrams = std::mem::take(&mut self.pending.datagrams);
        if datagrams == 0 {
            return 0;
        }
        let (slice, Pending { bytes, used, .. }) = (self.pending.slice, &self.pending);
        let sent = self.to[slice as usize].send(now_ns, &self.link, slice, |channel| channel.send(&bytes[..*used]));
        if self.count(sent, datagrams) { 0 } else { datagrams }
    }

    /// Passes one datagram on at once, to who has the slice; false if nobody has.
    pub(super) fn pass(&mut self, now_ns: u64, slice: u32, from: SocketAddr, datagram: &[u8]) -> bool {
        let towards = &mut self.to[slice as usize];
        let sent = towards.send(now_ns, &self.link, slice, |channel| send_one(channel, from, datagram));
        self.count(sent, 1)
    }

    /// Passes a request on to who listens for its service; false if nobody does. If there were too
    /// many in this turn it is lost, and comes again.
    pub(super) fn offer(&mut self, service: u64, from: SocketAddr, datagram: &[u8]) -> bool {
        if self.offers_left == 0 {
            self.counters().neighbour_full.add(1);
            return true;
        }
        self.offers_left -= 1;
        let channel = Channel::to(&name_of_service(self.address(), service));
        self.count(channel.and_then(|channel| send_one(&channel, from, datagram)), 1)
    }

    /// Counts datagrams that were passed on, or could not be; false if there was nobody.
    fn count(&self, sent: io::Result<()>, datagrams: u64) -> bool {
        match sent {
            Ok(()) => self.counters().passed_on.add(datagrams),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.counters().neighbour_full.add(datagrams),
            Err(_) => return false,
        }
        true
    }
}

impl Towards {
    /// Sends to who has the slice; an error but `WouldBlock` if nobody has.
    fn send(
        &mut self,
        now_ns: u64,
        link: &Link,
        slice: u32,
        send: impl FnOnce(&Channel) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.channel.is_none() && now_ns >= self.not_before_ns {
            self.not_before_ns = now_ns + ABSENT_NS;
            self.channel = Channel::to(&name_of_slice(link.own().ip(), slice)).ok();
        }
        let sent = self.channel.as_ref().map_or(Err(io::ErrorKind::NotFound.into()), send);
        if sent.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
            self.channel = None;
        }
        sent
    }
}

fn send_one(channel: &Channel, from: SocketAddr, datagram: &[u8]) -> io::Result<()> {
    let mut message = [0; HEADER_BYTES + DATAGRAM_BYTES_MAX];
    write_header(&mut message, from, datagram.len());
    message[HEADER_BYTES..][..datagram.len()].copy_from_slice(datagram);
    channel.send(&message[..HEADER_BYTES + datagram.len()])
}

fn write_header(message: &mut [u8], from: SocketAddr, segment_bytes: usize) {
    message[..16].copy_from_slice(&gid_of(from.ip()));
    message[16..18].copy_from_slice(&from.port().to_be_bytes());
    message[18..HEADER_BYTES].copy_from_slice(&(segment_bytes as u16).to_be_bytes());
}

/// Who sent the datagrams of a message, and how long they are.
fn read_header(message: &[u8]) -> Option<(SocketAddr, usize)> {
    let (gid, rest) = message.split_first_chunk::<16>()?;
    let (&[port_high, port_low, bytes_high, bytes_low], _) = rest.split_first_chunk::<4>()?;
    let segment_bytes = usize::from(u16::from_be_bytes([bytes_high, bytes_low]));
    let from = SocketAddr::new(address_of(*gid), u16::from_be_bytes([port_high, port_low]));
    (segment_bytes > 0).then_some((from, segment_bytes))
}

impl Pending {
    fn takes(&self, slice: u32, from: SocketAddr, len: usize) -> bool {
        let goes_along = self.slice == slice && self.from == Some(from) && !self.is_closed;
        self.datagrams == 0 || goes_along && len <= self.segment_bytes && self.used + len <= self.bytes.len()
    }

    fn add(&mut self, slice: u32, from: SocketAddr, datagram: &[u8]) {
        debug_assert!(datagram.len() <= DATAGRAM_BYTES_MAX && self.takes(slice, from, datagram.len()));
        if self.datagrams == 0 {
            (self.slice, self.from, self.segment_bytes) = (slice, Some(from), datagram.len());
            (self.used, self.is_closed) = (HEADER_BYTES, false);
            write_header(&mut self.bytes, from, datagram.len());
        }
        self.bytes[self.used..][..datagram.len()].copy_from_slice(datagram);
        self.used += datagram.len();
        self.is_closed = datagram.len() < self.segment_bytes;
        self.datagrams += 1;
    }
}

impl AsFd for Neighbours {
    /// Readable when somebody has connected, or something was passed on.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.any.as_fd()
    }
}

#[cfg(test)]
mod tests;
