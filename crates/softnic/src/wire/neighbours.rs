//! The other processes of a user that share a wire's address. Their datagrams that arrive here are
//! passed on to them, and datagrams that they pass on are taken in.
//!
//! Each process has a slice of the numbers of queue pairs and of connections, and the services that
//! it listens for. Slices and services are names that one process has at a time (`seat`). The
//! kernel delivers a datagram to the address to any of the processes.
//!
//! Guarantees: nothing blocks, and a turn is bounded. A datagram from the network is passed on to
//! at most one process, and a passed-on datagram to none. A process of another user neither gets
//! nor gives datagrams.

use crate::objects::fabric::SLICE_BITS;
use crate::wire::counters::LinkTallies;
use crate::wire::descriptors::Epoll;
use crate::wire::seat::{Channel, Seat, Unaccepted};
use crate::wire::socket::{DATAGRAM_BYTES_MAX, Link};
use crate::wire::{address_of, gid_of};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Slices of an address; the first belongs to nobody.
const SLICES: u32 = 1 << SLICE_BITS;
/// The most channels from others: one per process, and some that bring one request each.
const CHANNELS_MAX: usize = 2 * SLICES as usize;
/// Turns without a channel between two looks for a new one, each a system call.
const TURNS: u32 = 64;
/// The most channels accepted per turn, for each name.
const ACCEPTED_MAX: usize = 8;
/// The most messages taken per turn, each with a run of datagrams.
const MESSAGES_MAX: usize = 16;
/// The most requests per turn offered to a listener elsewhere: a few system calls each.
const OFFERS_MAX: usize = 8;
/// How long the absence of a slice's process is remembered.
const ABSENT_NS: u64 = 10_000_000;

/// The header of a message: the sender's address and port, and the length of all datagrams but the
/// last, which may be shorter.
const HEADER_BYTES: usize = 20;
/// The most bytes of a message's datagrams.
const RUN_BYTES_MAX: usize = 1 << 16;

/// See the [module](self).
pub(super) struct Neighbours {
    link: Arc<Link>,
    /// The seats of the slice, and of each service that has a listener here.
    seats: Vec<(Option<u64>, Seat)>,
    /// Seats of former listeners' services, kept while a request for one may come once more.
    leaving: Vec<(Option<u64>, Seat)>,
    /// All seats and all channels from others.
    any: Epoll,
    /// Closed for a moment when the process has no other descriptor left.
    spare: Option<OwnedFd>,
    from: Vec<Channel>,
    /// The channels of `from` that may have something, in this turn.
    ready: Vec<RawFd>,
    messages_left: usize,
    offers_left: usize,
    turns: u32,
    to: [Towards; SLICES as usize],
    pending: Pending,
    came: Box<[u8]>,
}

/// The channel to the process of a slice.
#[derive(Default)]
struct Towards {
    channel: Option<Channel>,
    /// No earlier attempt to connect: the last one found nobody.
    not_before_ns: u64,
}

/// Datagrams to be passed on together.
struct Pending {
    slice: u32,
    from: Option<SocketAddr>,
    datagrams: u64,
    segment_bytes: usize,
    /// The last datagram was shorter: no more fit.
    is_closed: bool,
    bytes: Box<[u8]>,
    used: usize,
}

/// Datagrams that another process passed on, and their sender.
pub(super) struct PassedOn<'a> {
    pub(super) from: SocketAddr,
    pub(super) datagrams: std::slice::Chunks<'a, u8>,
}

/// This process's slice of an address.
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

/// Takes a slice that no other process has, beginning the search at a random number; `None` if all
/// are taken.
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

    /// Makes requests for a service that arrive at other processes come here; `AddrInUse` if one of
    /// them listens for it.
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

    /// Gives the service up, once an undecided request can't come again.
    pub(super) fn stop_listening(&mut self, service: u64) {
        if let Some(at) = self.seats.iter().position(|(listened, _)| *listened == Some(service)) {
            self.leaving.push(self.seats.swap_remove(at));
        }
    }

    pub(super) fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Called when all requests are decided: gives up the services of former listeners.
    pub(super) fn leave(&mut self) {
        self.leaving.clear();
    }

    /// Begins a turn: accepts connections, and notes the channels that have something. Without a
    /// channel it looks only now and then, unless `always`.
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
                    // Its datagrams are lost, and come again.
                    Ok(_) => {}
                    Err(Unaccepted::Foreign) => self.link.counters.foreign.add(1),
                    // A waiting connection would keep its seat readable, and the wire's thread
                    // awake.
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

    /// The next datagrams that another process passed on, up to the turn's bound.
    pub(super) fn next(&mut self) -> Option<PassedOn<'_>> {
        let (len, from, segment_bytes) = self.receive()?;
        let datagrams = self.came[HEADER_BYTES..len].chunks(segment_bytes);
        self.link.counters.taken_over.add(datagrams.len() as u64);
        Some(PassedOn { from, datagrams })
    }

    /// A message's length, its sender, and its datagrams' length.
    fn receive(&mut self) -> Option<(usize, SocketAddr, usize)> {
        while self.messages_left > 0 {
            let fd = *self.ready.last()?;
            let at = self.from.iter().position(|channel| channel.as_fd().as_raw_fd() == fd);
            match at.map(|at| (at, self.from[at].receive(&mut self.came))) {
                Some((_, Ok(len))) if len > 0 => {
                    self.messages_left -= 1;
                    // The next message is of another channel, if one has something.
                    self.ready.rotate_right(1);
                    // A message without a header is of no process of ours.
                    if let Some((from, segment_bytes)) = read_header(&self.came[..len]) {
                        return Some((len, from, segment_bytes));
                    }
                    continue;
                }
                Some((_, Err(error))) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The other process is gone, or has closed the channel.
                Some((at, _)) => drop(self.from.swap_remove(at)),
                None => {}
            }
            self.ready.pop();
        }
        None
    }

    /// Adds a datagram for the process of a slice to the next message. Returns the number of
    /// earlier datagrams that are for nobody.
    pub(super) fn add(&mut self, now_ns: u64, slice: u32, from: SocketAddr, datagram: &[u8]) -> u64 {
        let of_nobody = if self.pending.takes(slice, from, datagram.len()) { 0 } else { self.flush(now_ns) };
        self.pending.add(slice, from, datagram);
        of_nobody
    }

    /// Passes on the added datagrams; returns the number of those that are for nobody.
    pub(super) fn flush(&mut self, now_ns: u64) -> u64 {
        let datagrams = std::mem::take(&mut self.pending.datagrams);
        if datagrams == 0 {
            return 0;
        }
        let (slice, Pending { bytes, used, .. }) = (self.pending.slice, &self.pending);
        let sent = self.to[slice as usize].send(now_ns, &self.link, slice, |channel| channel.send(&bytes[..*used]));
        if self.count(sent, datagrams) { 0 } else { datagrams }
    }

    /// Passes one datagram on at once, to the process of a slice; returns false if there is none.
    pub(super) fn pass(&mut self, now_ns: u64, slice: u32, from: SocketAddr, datagram: &[u8]) -> bool {
        let towards = &mut self.to[slice as usize];
        let sent = towards.send(now_ns, &self.link, slice, |channel| send_one(channel, from, datagram));
        self.count(sent, 1)
    }

    /// Passes a request on to the process that listens for its service; returns false if none does.
    /// Beyond the turn's bound it is lost, and comes again.
    pub(super) fn offer(&mut self, service: u64, from: SocketAddr, datagram: &[u8]) -> bool {
        if self.offers_left == 0 {
            self.counters().neighbour_full.add(1);
            return true;
        }
        self.offers_left -= 1;
        let channel = Channel::to(&name_of_service(self.address(), service));
        self.count(channel.and_then(|channel| send_one(&channel, from, datagram)), 1)
    }

    /// Counts datagrams that were passed on, or could not be; returns false if there was no
    /// receiver.
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
    /// Sends to the process of a slice; an error other than `WouldBlock` if there is none.
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

/// The sender of a message's datagrams, and their length.
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
    /// Readable when a process has connected, or something was passed on.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.any.as_fd()
    }
}

#[cfg(test)]
mod tests;
