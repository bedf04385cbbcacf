//! A wire's turn, taken by one thread at a time: takes in datagrams, handles time-outs, sends, and
//! completes.
//!
//! Guarantees: a turn is bounded for any load. It waits for nobody, and only connection management
//! allocates in it.

use crate::data_path::carrier::Outgoing;
use crate::data_path::datagram::{self, Receiver};
use crate::data_path::errors::Errors;
use crate::objects::device::{self, Device};
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::queues::timer;
use crate::wire::arrivals::{Arrivals, Asking};
use crate::wire::gid_of;
use crate::wire::groups::{Groups, Joined};
use crate::wire::intake::{self, Intake, arrived};
use crate::wire::management::{self, Management};
use crate::wire::memory::Keys;
use crate::wire::neighbours::{Neighbours, PassedOn, Slice};
use crate::wire::outbox::Outbox;
use crate::wire::socket::Link;
use crate::wire::transports::Transports;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use verbline_roce::Received;
use verbline_roce::transport::{Arrival, Discard};
use verbline_roce::wire::{Addresses, Bth, Deth, Packet, Psn, Qpn, Route, Segment};

/// The most datagrams that one turn sends.
const SENT_MAX: usize = 64;

/// See the [module](self).
pub(crate) struct Inner {
    device: &'static Device,
    link: Arc<Link>,
    pub(super) queue_pairs: Transports,
    pub(super) management: Management,
    pub(super) neighbours: Neighbours,
    arrivals: Arrivals,
    /// The receive calls of the device's own socket.
    asking: Asking,
    pub(super) groups: Groups,
    pub(super) outbox: Outbox,
    /// The number of the next datagram of UD.
    datagram_psn: Psn,
    /// Turns taken by pollers.
    pub(super) polls: u64,
    /// Whether the last turn kept its answers back.
    has_kept_back: bool,
    /// Whether the last turn left something to send.
    has_more: bool,
    /// The time until which the wire's own thread sleeps, if nothing wakes it; 0 while it doesn't.
    thread_until_ns: u64,
}

impl Inner {
    pub(super) fn new(device: &'static Device, link: &Arc<Link>, slice: Slice) -> io::Result<Inner> {
        let own = link.own();
        let (management, mut queue_pairs) = (Management::new(own, slice.number), Transports::new());
        queue_pairs.engine.own_numbers(fabric::numbers_of(slice.number));
        let neighbours = Neighbours::new(link, slice)?;
        link.watch(&neighbours)?;
        Ok(Inner {
            device,
            link: link.clone(),
            queue_pairs,
            management,
            neighbours,
            arrivals: Arrivals::new(),
            asking: Asking::first(),
            groups: Groups::default(),
            outbox: Outbox::new(own),
            datagram_psn: Psn::new(management::random()),
            polls: 0,
            has_kept_back: false,
            has_more: false,
            thread_until_ns: 0,
        })
    }

    /// The turn of a polling thread.
    pub(super) fn poll(&mut self, pinned: Pinned<'_>, errors: &mut Errors) {
        self.polls += 1;
        let now_ns = timer::now_ns();
        self.take_in(now_ns, pinned, errors, false);
        // A program that gets a message mostly answers it: an acknowledgement leaves behind the
        // answer, or at the next poll. A refusal that ends a connection leaves before the queue
        // pair goes to ERR.
        self.has_kept_back = errors.is_empty() && !self.has_kept_back && self.queue_pairs.engine.owes_acknowledgement();
        if !self.has_kept_back {
            self.send_at(now_ns, pinned, errors);
        }
    }

    /// The turn of the wire's own thread.
    pub(super) fn turn(&mut self, pinned: Pinned<'_>, errors: &mut Errors) {
        self.thread_until_ns = 0;
        let now_ns = timer::now_ns();
        self.take_in(now_ns, pinned, errors, true);
        // Answers that a poll kept back leave now: otherwise they would be due at once, again and
        // again.
        self.has_kept_back = false;
        self.send_at(now_ns, pinned, errors);
    }

    /// The latest time of the next turn, by the clock of `timer`; at once, if there is more to
    /// send.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        if self.has_more || self.has_kept_back || self.management.has_messages() {
            return Some(0);
        }
        let both = [self.queue_pairs.engine.deadline_ns(), self.management.deadline_ns()];
        both.into_iter().flatten().min()
    }

    /// Notes that the wire's own thread is about to sleep until then, or for ever. Returns false if
    /// something is due sooner by now.
    pub(super) fn may_sleep(&mut self, until_ns: Option<u64>) -> bool {
        let until_ns = until_ns.unwrap_or(u64::MAX);
        let may_sleep = self.deadline_ns().is_none_or(|due_ns| due_ns >= until_ns);
        if may_sleep {
            self.thread_until_ns = until_ns;
        }
        may_sleep
    }

    /// Whether the wire's own thread now sleeps for too long, for the first time since it fell
    /// asleep. While others poll it doesn't sleep until a deadline, and this is just a comparison.
    #[inline]
    pub(super) fn oversleeps(&mut self) -> bool {
        let until_ns = self.thread_until_ns;
        let oversleeps = until_ns > 0 && self.deadline_ns().is_some_and(|due_ns| due_ns < until_ns);
        if oversleeps {
            self.thread_until_ns = 0;
        }
        oversleeps
    }

    /// Takes in datagrams, and handles time-outs.
    fn take_in(&mut self, now_ns: u64, pinned: Pinned<'_>, errors: &mut Errors, is_own_thread: bool) {
        let Inner { device, link, queue_pairs, management, neighbours, arrivals, asking, .. } = self;
        let own = link.own().ip();
        let mut intake = Intake { device, now_ns, pinned, queue_pairs, management };
        neighbours.look(is_own_thread);
        for index in 0..arrivals.receive(link, link.own_socket(), asking) {
            let Some((from, arrived, datagrams)) = came(arrivals, link, index, own) else { continue };
            datagrams.for_each(|bytes| intake.take(from, arrived, bytes, Some(neighbours), errors));
            intake.discard(neighbours.flush(now_ns), Discard::NoQueuePair);
        }
        while let Some(PassedOn { from, datagrams }) = neighbours.next() {
            if let Some(arrived) = arrived(from, own) {
                datagrams.for_each(|bytes| intake.take(from, arrived, bytes, None, errors));
            }
        }
        for index in 0..self.groups.len() {
            self.take_in_of_group(index, now_ns, pinned, errors);
        }
        self.queue_pairs.engine.advance(now_ns);
        self.management.advance(now_ns);
        self.keep_alive(now_ns);
        self.queue_pairs.complete(pinned, errors);
    }

    /// Makes the queue pairs of newly established connections notice a silent peer from now on.
    pub(super) fn keep_alive(&mut self, now_ns: u64) {
        while let Some(qpn) = self.management.next_established() {
            self.queue_pairs.with(qpn, |made| made.keep_alive(now_ns));
        }
    }

    /// Takes in datagrams to a group. Those of this process's devices were delivered already.
    fn take_in_of_group(&mut self, index: usize, now_ns: u64, pinned: Pinned<'_>, errors: &mut Errors) {
        let Inner { device, link, queue_pairs, arrivals, groups, .. } = self;
        let Some(Joined { group, address, socket, asking, .. }) = groups.get(index) else { return };
        let to = (*address).into();
        for index in 0..arrivals.receive(link, socket.as_fd(), asking) {
            let Some((from, arrived, datagrams)) = came(arrivals, link, index, to) else { continue };
            let of_here = device::by_gid(&gid_of(from.ip()));
            for bytes in datagrams {
                // Only the transport's queue pairs need memory, and none of them is in a group.
                let lost = match queue_pairs.engine.receive(now_ns, arrived, bytes, &mut Keys(pinned)) {
                    Received::Datagram(came) if came.to == Qpn::MULTICAST => {
                        if of_here.is_some_and(|sender| fabric::is_here(sender, came.from.number())) {
                            continue;
                        }
                        let came = intake::incoming(Receiver::Group(group), &arrived.route, bytes.len(), &came);
                        datagram::arrive(device, pinned, &came, errors).map_err(Discard::from)
                    }
                    Received::Discarded(_) | Received::Taken { .. } => Ok(()),
                    // No queue pair has a group's address for its own.
                    Received::Datagram(_) | Received::Management(_) | Received::Elsewhere(_) => {
                        Err(Discard::NoQueuePair)
                    }
                };
                lost.unwrap_or_else(|why| queue_pairs.engine.count_discarded(why));
            }
        }
    }

    /// Sends the acknowledgement that a queue pair kept back before it goes, so that its peer
    /// learns that its messages have arrived.
    pub(super) fn acknowledge(&mut self, qpn: u32) {
        let Some(room) = self.outbox.made_room(&self.link) else { return };
        let sent = self.queue_pairs.with(qpn, |made| made.transmit_acknowledgement(room)).flatten();
        if let Some(sent) = sent {
            self.outbox.add(&sent.route, sent.len);
            self.outbox.flush(&self.link);
        }
    }

    /// Adds a datagram of UD to the next ones to be sent.
    pub(super) fn add_datagram(&mut self, datagram: &Outgoing<'_>, addresses: Addresses) {
        let Some(room) = self.outbox.made_room(&self.link) else { return };
        let route = Route { addresses, source_port: self.link.own().port(), traffic_class: datagram.traffic_class };
        let bth = Bth { solicited: datagram.solicited, ..Bth::new(Qpn::new(datagram.to), self.datagram_psn) };
        let deth = Deth { qkey: datagram.qkey, source: Qpn::new(datagram.from) };
        let segment = Segment::Ud(deth, datagram.immediate);
        let len = Packet { bth, segment, payload: datagram.payload }.write_unsealed(room);
        self.datagram_psn = self.datagram_psn.plus(1);
        self.outbox.add(&route, len);
    }

    pub(super) fn send_datagrams(&mut self) {
        self.outbox.flush(&self.link);
    }

    /// Takes leave of a queue pair's UDP port, once everything was sent by it.
    pub(super) fn leave_peer(&mut self, port: u16, was_answered: bool) {
        self.outbox.flush(&self.link);
        self.outbox.peers.leave(port, was_answered);
    }

    /// Sends waiting packets, up to a bound.
    pub(super) fn send(&mut self, pinned: Pinned<'_>, errors: &mut Errors) {
        self.has_kept_back = false;
        self.send_at(timer::now_ns(), pinned, errors);
    }

    fn send_at(&mut self, now_ns: u64, pinned: Pinned<'_>, errors: &mut Errors) {
        self.say();
        // A program that waits for an answer mostly has nothing to send.
        self.has_more = self.queue_pairs.engine.may_transmit();
        if self.has_more {
            // A time-out may have another socket send again.
            self.publish();
            self.send_packets(now_ns, pinned);
        }
        self.publish();
        // Unreliable sends complete by being sent, and some fail; later work requests are then
        // flushed.
        self.queue_pairs.complete(pinned, errors);
    }

    /// Publishes incidents. A queue pair that may be unheard may be behind a firewall that its
    /// peer's socket doesn't pass.
    fn publish(&mut self) {
        self.queue_pairs.publish(&self.link.incidents, &mut self.outbox.peers);
    }

    fn send_packets(&mut self, now_ns: u64, pinned: Pinned<'_>) {
        let mut memory = Keys(pinned);
        for _ in 0..SENT_MAX {
            let Some(room) = self.outbox.room() else { break };
            let Some(sent) = self.queue_pairs.engine.transmit_unsealed(now_ns, &mut memory, room) else {
                self.has_more = false;
                break;
            };
            self.outbox.add(&sent.route, sent.len);
            // A lone message leaves at once, before an acknowledgement is made: with it, the kernel
            // would have to cut a run of two.
            let is_alone = self.outbox.has_one() && self.queue_pairs.engine.only_acknowledges();
            if is_alone || self.outbox.has_whole_run() {
                self.outbox.flush(&self.link);
            }
        }
        self.outbox.flush(&self.link);
    }

    /// Sends the messages of connection management. Needs no memory.
    pub(super) fn say(&mut self) {
        while self.management.has_messages()
            && let Some(room) = self.outbox.room()
        {
            let Some((route, len)) = self.management.transmit(room) else { break };
            self.outbox.add(&route, len);
        }
        self.outbox.flush(&self.link);
        if self.neighbours.has_leaving() && !self.management.has_undecided() {
            self.neighbours.leave();
        }
    }
}

/// A run received at `to`: its sender, its arrival, and its datagrams except empty ones and those
/// that are too long, which are counted. `None` if its sender is of another family.
fn came<'a>(
    arrivals: &'a Arrivals,
    link: &'a Link,
    index: usize,
    to: IpAddr,
) -> Option<(SocketAddr, Arrival, impl Iterator<Item = &'a [u8]>)> {
    let (from, datagrams) = arrivals.run(index)?;
    let whole = datagrams.filter_map(|datagram| {
        if datagram.is_none() {
            link.counters.truncated.add(1);
        }
        // A peer's socket learns its number by empty ones.
        datagram.filter(|datagram| !datagram.is_empty())
    });
    Some((from, arrived(from, to)?, whole))
}
