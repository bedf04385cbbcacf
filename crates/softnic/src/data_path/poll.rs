//! Polls a completion queue: turns the entries of its ring and its mailboxes into `ibv_wc`s.
//!
//! Guarantees: completions come out whole, and those of one queue in the order in which they were
//! added. A small message lies in the ring, or in a mailbox, until it is polled; polling copies it
//! into the posted buffer, whose key is checked once more. Completions of a queue pair that was
//! reset or destroyed meanwhile are dropped, except for the shared receives that it had taken: they
//! come as flushed.

use crate::data_path::completion::{self, Header, SmallHeader};
use crate::data_path::errors::Errors;
use crate::data_path::flush;
use crate::data_path::orphan_completions;
use crate::data_path::payload::{payload, place_in_pieces, place_otherwise};
use crate::data_path::progress;
use crate::key_table::{self, RegionKey};
use crate::objects::Object;
use crate::objects::cq::{Cq, MAILBOXES};
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::queues::sq::Sq;
use crate::queues::wqe::Wqe;
use rdma_sys::*;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use verbline_sync::consumer::Consumer;
use verbline_sync::mailbox::Reader;
use verbline_sync::ring::CqEntry;

/// `ibv_poll_cq(3)`.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: ibv_poll_cq(3): the queue is alive, and `wc` has room for `entries`; one thread at a
    // time polls.
    let (this, room) = unsafe { (Cq::from_raw(cq), Room::new(wc, entries)) };
    if this.stalled.any() {
        progress::retry_all(this);
    }
    // SAFETY: one thread at a time polls a CQ: the program's contract with ibv_poll_cq.
    let poller = unsafe { this.poller() };
    let consumer = poller.consumer;
    // The ring first: see `Mailbox` on order.
    // SAFETY: `cq::create` made it with the ring.
    let first = unsafe { consumer.next(&this.ring) };
    let mut mail = Mail { this, readers: poller.readers };
    if first.is_none() {
        return match mail.pending() {
            Some(index) => mail.poll(index, room),
            None if this.ring.is_overrun() => -1,
            None => 0,
        };
    }
    let mut errors = Errors::new();
    let mut taker = Taker { this, consumer, mail, room };
    taker.take(first, &mut errors);
    let left = taker.room.left;
    flush::finish(errors);
    entries - left
}

/// Room for completions: the next place, and the number of free places.
#[derive(Clone, Copy)]
struct Room {
    next: *mut ibv_wc,
    left: c_int,
}

impl Room {
    /// # Safety
    /// `wc` has room for `entries` completions, for as long as this value is used.
    #[inline(always)]
    unsafe fn new(wc: *mut ibv_wc, entries: c_int) -> Room {
        Room { next: wc, left: entries }
    }

    /// The next place, if there is one.
    #[inline(always)]
    fn vacant(&mut self) -> Option<Vacant<'_>> {
        (self.left > 0).then_some(Vacant(self))
    }
}

/// A place for one completion.
struct Vacant<'r>(&'r mut Room);

impl Vacant<'_> {
    /// Returns a completion to the caller, as the six words of an `ibv_wc` (`completion`).
    #[inline(always)]
    fn give(self, wc: [u64; 6]) {
        // SAFETY: `vacant` has seen that there is a place, in the room passed to `Room::new`;
        // `ibv_wc` is as large and aligned as the words.
        unsafe {
            self.0.next.cast::<[u64; 6]>().write(wc);
            self.0.next = self.0.next.add(1);
        }
        self.0.left -= 1;
    }
}

/// The mailboxes, and the reader of each.
struct Mail<'a> {
    this: &'a Cq,
    readers: &'a mut [Reader; MAILBOXES],
}

impl Mail<'_> {
    /// The first mailbox that has a message.
    #[inline(always)]
    fn pending(&self) -> Option<usize> {
        // Relaxed: see `attach`.
        let used = self.this.mailboxes_used.load(Ordering::Relaxed) as usize;
        (0..used.min(MAILBOXES)).find(|&index| self.readers[index].is_pending(&self.this.mailboxes[index]))
    }

    /// Polls if the ring is empty and at least this mailbox has a message: the case of every
    /// message in a ping-pong exchange.
    #[inline(always)]
    fn poll(&mut self, mut index: usize, mut room: Room) -> c_int {
        let mut errors = Errors::new();
        let entries = room.left;
        let inside = self.this.polling.guard.enter();
        while let Some(vacant) = room.vacant() {
            self.take(index, Pinned::inside(&inside), vacant, &mut errors);
            // Takes from all of them, also behind a mailbox with only a stale message: a caller
            // that was told that there is none may sleep.
            match self.pending() {
                Some(next) => index = next,
                None => break,
            }
        }
        drop(inside);
        flush::finish(errors);
        entries - room.left
    }

    /// Takes the message of a mailbox; drops it if its queue pair is gone, or was reset since.
    #[inline(always)]
    fn take(&mut self, index: usize, pinned: Pinned<'_>, vacant: Vacant<'_>, errors: &mut Errors) {
        let mailbox = &self.this.mailboxes[index];
        let Some(entry) = self.readers[index].take(mailbox) else { return };
        // Relaxed: see `attach`.
        let Some(qp) = fabric::lookup(pinned, self.this.owners[index].load(Ordering::Relaxed)) else { return };
        // A stale message may be overwritten, so check the tag before anything else of it.
        if qp.tag() != entry.tag {
            return;
        }
        let (header, _) = SmallHeader::read(entry.first());
        // Messages in mailboxes are small, and have bytes.
        let Some(header) = header else { return };
        let mut key = RegionKey::new(qp.pd, key_table::LOCAL_WRITE);
        let received = give_small(&entry, &header, qp, pinned, qp.rq.polled(), &mut key, vacant, errors);
        qp.rq.free_up_to(received);
        qp.sq.acknowledge(header.acked());
    }
}

/// One poll that found a completion.
struct Taker<'a> {
    this: &'a Cq,
    consumer: &'a mut Consumer,
    mail: Mail<'a>,
    room: Room,
}

/// Common properties of consecutive completions: their queue pair, and the key of its receives'
/// buffers.
struct Run<'a> {
    pinned: Pinned<'a>,
    qpn: u32,
    tag: u32,
    qp: Option<&'a Qp>,
    key: RegionKey,
    /// Receives below it are polled, including small messages not yet reported to the queue pair.
    polled: u64,
    acked: u64,
}

impl<'a> Run<'a> {
    #[inline(always)]
    fn none(pinned: Pinned<'a>) -> Run<'a> {
        Run { pinned, qpn: 0, tag: 0, qp: None, key: RegionKey::new(0, key_table::LOCAL_WRITE), polled: 0, acked: 0 }
    }

    /// The queue pair of that number, if `tag` is its present one.
    #[inline(always)]
    fn qp(&mut self, qpn: u32, tag: u32) -> Option<&'a Qp> {
        if qpn != self.qpn {
            self.change(qpn);
        }
        if tag == self.tag { self.qp } else { None }
    }

    #[inline(never)]
    fn change(&mut self, qpn: u32) {
        self.tell();
        let Some(qp) = fabric::lookup(self.pinned, qpn) else {
            *self = Run::none(self.pinned);
            return;
        };
        // A thread that resets it changes its tag and waits for our guard, and only then touches
        // the counters that we use here.
        let polled = qp.rq.polled();
        let key = RegionKey::new(qp.pd, key_table::LOCAL_WRITE);
        *self = Run { qpn, tag: qp.tag(), qp: Some(qp), key, polled, acked: Sq::UNKNOWN, ..*self };
    }

    /// Reports polled receives to the queue pair: once for all small messages of the run.
    #[inline(always)]
    fn tell(&mut self) {
        if self.acked != Sq::UNKNOWN
            && let Some(qp) = self.qp
        {
            qp.rq.free_up_to(self.polled);
            qp.sq.acknowledge(self.acked);
            self.acked = Sq::UNKNOWN;
        }
    }
}

impl Taker<'_> {
    /// Takes the available completions, as far as there is room.
    #[inline(always)]
    fn take(&mut self, first: Option<CqEntry<'_>>, errors: &mut Errors) {
        let inside = self.this.polling.guard.enter();
        let mut run = Run::none(Pinned::inside(&inside));
        let mut next = first;
        while let Some(vacant) = self.room.vacant() {
            if let Some(index) = self.mail.pending() {
                take_mail(&mut self.mail, &mut run, index, vacant, errors);
                continue;
            }
            let Some(entry) = next else { break };
            give(&mut run, &entry, vacant, errors);
            self.consumer.advance(entry.slots());
            self.stream(&mut run);
            if self.room.vacant().is_none() {
                break;
            }
            // SAFETY: `cq::create` made it with the ring.
            next = unsafe { self.consumer.next(&self.this.ring) };
        }
        run.tell();
        self.consumer.publish_head(&self.this.ring);
    }

    /// Takes small messages that follow the last one taken and are like it: to the same queue pair,
    /// and into its next receive, of one piece under the same key. The rest is for [`give`]. Works
    /// on locals, since for all the compiler knows each store could change what the fields lead to:
    /// half the instructions.
    #[inline(always)]
    fn stream(&mut self, run: &mut Run<'_>) {
        let Some(qp) = run.qp else { return };
        if run.acked == Sq::UNKNOWN {
            // The last completion was no small message, and others may be reported already.
            return;
        }
        let (wqes, key, qpn, tag) = (qp.rq.wqes.places(), run.key, run.qpn, run.tag);
        let (mut received, mut acked) = (run.polled, run.acked);
        let mut room = self.room;
        // SAFETY: `cq::create` made the consumer with the ring.
        let mut cursor = unsafe { self.consumer.cursor(&self.this.ring) };
        while let Some(vacant) = room.vacant() {
            let Some(entry) = cursor.peek() else { break };
            // After the look at the ring: see `Mailbox` on order.
            if self.mail.pending().is_some() {
                break;
            }
            let Some(header) = SmallHeader::read_to(entry.first(), qpn) else { break };
            if entry.tag != tag || header.index() != received as u16 {
                break;
            }
            let wqe = wqes.wqe(received);
            let (sge, bytes) = (wqe.first(), header.bytes());
            // A length of 0 means 2^31.
            if sge.length().wrapping_sub(1) < bytes as u32 - 1 {
                break;
            }
            if !key.is(sge.lkey()) {
                break;
            }
            let Some(at) = key.inside(sge.addr(), bytes as u64) else { break };
            // SAFETY: the key, which was looked up inside the guard that we are in, grants these
            // bytes.
            unsafe { payload(&entry, bytes, at) };
            vacant.give(header.wc_words(wqe.wr_id(), completion::SUCCESS));
            (received, acked) = (received + 1, header.acked());
            cursor.advance(entry.slots());
        }
        let position = cursor.position();
        self.consumer.advance_to(position);
        (run.polled, run.acked, self.room) = (received, acked, room);
    }
}

/// Takes the message of that mailbox before the ring's next completion.
#[inline(never)]
fn take_mail(mail: &mut Mail<'_>, run: &mut Run<'_>, index: usize, vacant: Vacant<'_>, errors: &mut Errors) {
    run.tell();
    *run = Run::none(run.pinned);
    mail.take(index, run.pinned, vacant, errors);
}

/// Returns a completion of the ring, unless its queue pair is gone, or was reset since.
#[inline(always)]
fn give(run: &mut Run<'_>, entry: &CqEntry<'_>, vacant: Vacant<'_>, errors: &mut Errors) {
    let (small, qpn) = SmallHeader::read(entry.first());
    let Some(qp) = run.qp(qpn, entry.tag) else {
        if let Some(wc) = orphan_completions::given_out(run.pinned, entry) {
            vacant.give(wc);
        }
        return;
    };
    match small {
        Some(header) => {
            run.polled = give_small(entry, &header, qp, run.pinned, run.polled, &mut run.key, vacant, errors);
            run.acked = header.acked();
        }
        None => {
            // Reports the pending ones first, before `decode` reports its own.
            run.tell();
            vacant.give(decode(entry, qp));
            run.polled = qp.rq.polled();
        }
    }
}

/// Takes a small message to `qp`: copies its bytes from the slots, which aren't returned to the
/// ring yet, to the receive's buffers, and returns its completion to the caller. `received` is the
/// number of receives before it; returns the number with it. `key` is of the queue pair's domain,
/// and was looked up inside the guard.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "inlined: a struct of them is made and taken apart")]
fn give_small(
    entry: &CqEntry<'_>,
    header: &SmallHeader,
    qp: &Qp,
    pinned: Pinned<'_>,
    received: u64,
    key: &mut RegionKey,
    vacant: Vacant<'_>,
    errors: &mut Errors,
) -> u64 {
    // Receives of a connection complete in order, so the index is the next one's; its low bits tell
    // in any case.
    let index = received + u64::from(header.index().wrapping_sub(received as u16));
    // A small message is always of a connected queue pair without a shared queue. Its entry becomes
    // free only when the caller reports it.
    let wqe = qp.rq.wqes.wqe(index);
    let mut status = completion::SUCCESS;
    if place(entry, header.bytes(), qp.pd, pinned, key, wqe).is_err() {
        status = place_otherwise(entry, header.bytes(), qp, pinned, wqe, errors);
    }
    vacant.give(header.wc_words(wqe.wr_id(), status));
    index + 1
}

/// Decodes a completion of `qp` other than a small message.
#[inline(always)]
fn decode(entry: &CqEntry<'_>, qp: &Qp) -> [u64; 6] {
    let header = Header::read(entry.first());
    if header.opcode < completion::RECV {
        let [freed, _] = completion::read_extra(entry.first());
        qp.sq.free_up_to(freed);
        return header.wc_words(header.word, 0, 0);
    }
    let wr_id = qp.receive(header.word).wr_id();
    let (mut source, mut slid) = (0, 0);
    if qp.is_datagram() {
        let [from, _] = completion::read_extra(entry.first());
        (source, slid) = (from as u32, (from >> 32) as u16);
    }
    // The entry is free from here on.
    qp.receive_polled(header.word);
    header.wc_words(wr_id, source, slid)
}

/// Copies a payload out of the slots into the receive's buffers.
#[inline(always)]
fn place(
    entry: &CqEntry<'_>,
    len: usize,
    pd: u32,
    pinned: Pinned<'_>,
    key: &mut RegionKey,
    wqe: Wqe<'_>,
) -> Result<(), key_table::Denied> {
    let sge = wqe.first();
    // A length of 0 means 2^31.
    if sge.length().wrapping_sub(1) < len as u32 - 1 {
        return place_in_pieces(entry, len, pd, pinned, wqe);
    }
    let to = key.check(sge.lkey(), sge.addr(), len as u64)?;
    // SAFETY: the key, which was looked up inside the guard that we are in, grants these bytes.
    unsafe { payload(entry, len, to) };
    Ok(())
}
