//! Polling a completion queue: what lies in its ring and its mailboxes becomes `ibv_wc`s.
//!
//! What it guarantees: completions come out whole, and those of one queue in the order in which they were added. A small
//! message lies in the ring, or in a mailbox, until it is polled; polling copies it into the posted buffer, whose key is
//! checked once more. What belongs to a queue pair that was reset or destroyed meanwhile isn't given out, but for the
//! shared receives that it had taken: those come as flushed.

use crate::copy::{copy_8, copy_32, copy_small};
use crate::data_path::completion::{self, HALF_PAYLOAD_BYTES, Header, SmallHeader};
use crate::data_path::errors::Errors;
use crate::data_path::sq::Sq;
use crate::data_path::{scatter, stall};
use crate::objects::cq::{Cq, MAILBOXES};
use crate::objects::fabric;
use crate::objects::key_table::{self, RegionKey};
use crate::objects::qp::Qp;
use rdma_sys::*;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use verbline_sync::mailbox::Reader;
use verbline_sync::ring::{self, Consumer, Entry, FIRST_PAYLOAD_BYTES};

/// `ibv_poll_cq(3)`.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: by the verb's contract, which is also that one thread at a time polls.
    let this = unsafe { Cq::from_raw(cq) };
    if this.stalled.any() {
        stall::retry_all(this, &this.polling.guard);
    }
    // SAFETY: one thread at a time.
    let (consumer, readers) = unsafe { (&mut *this.polling.consumer.get(), &mut *this.polling.readers.get()) };
    // The ring first: see `Mailbox` on order.
    // SAFETY: made with it.
    let first = unsafe { consumer.next(&this.ring) };
    let mut mail = Mail { this, readers };
    let pending = mail.pending();
    if first.is_none() {
        return match pending {
            // SAFETY: by the verb's contract `wc` has room for `entries`.
            Some(index) => unsafe { mail.poll(index, wc, entries) },
            None if this.ring.is_overrun() => -1,
            None => 0,
        };
    }
    let mut errors = Errors::new();
    let mut taker = Taker { this, consumer, mail, wc, left: entries };
    // SAFETY: as above.
    unsafe { taker.take(first, &mut errors) };
    let left = taker.left;
    errors.finish();
    entries - left
}

/// The mailboxes, and what was seen of each.
struct Mail<'a> {
    this: &'a Cq,
    readers: &'a mut [Reader; MAILBOXES],
}

impl Mail<'_> {
    /// The first with something in it.
    #[inline(always)]
    fn pending(&self) -> Option<usize> {
        // Relaxed: see `attach`.
        let used = self.this.mailboxes_used.load(Ordering::Relaxed) as usize;
        (0..used.min(MAILBOXES)).find(|&index| self.readers[index].is_pending(&self.this.mailboxes[index]))
    }

    /// A poll that finds nothing in the ring, and something in this mailbox at least: all of a conversation's.
    ///
    /// # Safety
    /// The caller is the polling thread; `wc` has room for `entries` completions.
    #[inline(always)]
    unsafe fn poll(&mut self, mut index: usize, wc: *mut ibv_wc, entries: c_int) -> c_int {
        let mut errors = Errors::new();
        let mut given = 0;
        let inside = self.this.polling.guard.enter();
        while given < entries {
            // SAFETY: the caller's; `given` < `entries`.
            given += c_int::from(unsafe { self.take(index, wc.add(given as usize), &mut errors) });
            // All of them, also behind one with nothing in it but what is stale: who was told that there is none may sleep.
            match self.pending() {
                Some(next) => index = next,
                None => break,
            }
        }
        drop(inside);
        errors.finish();
        given
    }

    /// Takes what is in that mailbox: nothing, if it is to a queue pair that is gone, or was reset since.
    ///
    /// # Safety
    /// A guard is entered, `wc` is writable, the caller is the polling thread.
    #[inline(always)]
    unsafe fn take(&mut self, index: usize, wc: *mut ibv_wc, errors: &mut Errors) -> bool {
        let mailbox = &self.this.mailboxes[index];
        let Some(entry) = self.readers[index].take(mailbox) else { return false };
        // Relaxed: see `attach`.
        let Some(qp) = fabric::lookup(self.this.owners[index].load(Ordering::Relaxed)) else { return false };
        // It may be written over if it is stale, so its tag is looked at before anything else of it.
        if qp.tag() != entry.tag {
            return false;
        }
        let (header, _) = SmallHeader::read(entry.first());
        // What goes by a mailbox is small, and has bytes.
        let Some(header) = header else { return false };
        let mut key = RegionKey::new(qp.pd, key_table::LOCAL_WRITE);
        // SAFETY: the caller's.
        let received = unsafe { give_small(&entry, &header, qp, qp.rq.polled(), &mut key, wc, errors) };
        qp.rq.free_up_to(received);
        qp.sq.acknowledge(header.acked());
        true
    }
}

/// One poll that found something.
struct Taker<'a> {
    this: &'a Cq,
    consumer: &'a mut Consumer,
    mail: Mail<'a>,
    /// Where the next completion goes, and how many more there is room for.
    wc: *mut ibv_wc,
    left: c_int,
}

/// What completions that follow each other have in common: their queue pair, and the key of its receives' buffers.
struct Run<'a> {
    qpn: u32,
    tag: u32,
    qp: Option<&'a Qp>,
    key: RegionKey,
    /// Receives below are polled, small messages included whose queue pair was not told yet.
    polled: u64,
    acked: u64,
}

impl<'a> Run<'a> {
    #[inline(always)]
    fn none() -> Run<'a> {
        Run { qpn: 0, tag: 0, qp: None, key: RegionKey::new(0, key_table::LOCAL_WRITE), polled: 0, acked: 0 }
    }

    /// The queue pair of that number, if `tag` is its present one. The caller is inside a guard.
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
        let Some(qp) = fabric::lookup(qpn) else {
            *self = Run::none();
            return;
        };
        // Who resets it changes its tag and waits for our guard, and only then touches what is counted here.
        let polled = qp.rq.polled();
        let key = RegionKey::new(qp.pd, key_table::LOCAL_WRITE);
        *self = Run { qpn, tag: qp.tag(), qp: Some(qp), key, polled, acked: Sq::UNKNOWN };
    }

    /// Tells the queue pair what was polled: once for all small messages of the run.
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
    /// Takes what there is, and what `wc` has room for.
    ///
    /// # Safety
    /// The caller is the polling thread; `wc` has room for `left` completions.
    #[inline(always)]
    unsafe fn take(&mut self, first: Option<Entry<'_>>, errors: &mut Errors) {
        let _inside = self.this.polling.guard.enter();
        let mut run = Run::none();
        let mut next = first;
        while self.left > 0 {
            if let Some(index) = self.mail.pending() {
                // SAFETY: the caller's, and a guard is entered.
                unsafe { self.take_mail(&mut run, index, errors) };
                continue;
            }
            let Some(entry) = next else { break };
            // SAFETY: as above.
            unsafe { self.give(&mut run, &entry, errors) };
            self.consumer.advance(entry.slots());
            // SAFETY: as above.
            unsafe { self.stream(&mut run) };
            if self.left == 0 {
                break;
            }
            // SAFETY: made with it.
            next = unsafe { self.consumer.next(&self.this.ring) };
        }
        run.tell();
        self.consumer.publish_head(&self.this.ring);
    }

    /// Takes small messages that follow the one that was given last and are like it, to the same queue pair, and into the
    /// next receive, of one piece under the same key; the rest is for [`give`](Self::give). All of it in locals, since what is
    /// stored could be any of what the fields lead to as far as the compiler knows: half the instructions.
    ///
    /// # Safety
    /// As [`take`](Self::take), inside a guard.
    #[inline(always)]
    unsafe fn stream(&mut self, run: &mut Run<'_>) {
        let Some(qp) = run.qp else { return };
        if run.acked == Sq::UNKNOWN {
            // What was given last was no small message, and others may be told already.
            return;
        }
        let (wqes, key, qpn, tag) = (qp.rq.wqes.places(), run.key, run.qpn, run.tag);
        let (mut received, mut acked) = (run.polled, run.acked);
        let (mut wc, mut left) = (self.wc, self.left);
        // SAFETY: the consumer was made with it.
        let mut cursor = unsafe { self.consumer.cursor(&self.this.ring) };
        while left > 0 {
            let Some(entry) = cursor.peek() else { break };
            // After the look at the ring: see `Mailbox` on order.
            if self.mail.pending().is_some() {
                break;
            }
            let Some(header) = SmallHeader::read_to(entry.first(), qpn) else { break };
            if entry.tag != tag || header.index() != received as u16 {
                break;
            }
            // SAFETY: as in `give_small`, for all. The key grants the bytes; there is room.
            unsafe {
                let wqe = wqes.wqe(received);
                let (sge, bytes) = (wqe.sge(0), header.bytes());
                // A length of 0 means 2^31.
                if sge.length.wrapping_sub(1) < bytes as u32 - 1 {
                    break;
                }
                let Some(at) = key.known(sge.lkey, sge.addr, bytes as u64) else { break };
                payload(&entry, bytes, at);
                wc.cast::<[u64; 6]>().write(header.wc_words(wqe.wr_id(), completion::SUCCESS));
                wc = wc.add(1);
            }
            (received, acked, left) = (received + 1, header.acked(), left - 1);
            cursor.advance(entry.slots());
        }
        let position = cursor.position();
        self.consumer.advance_to(position);
        (run.polled, run.acked, self.wc, self.left) = (received, acked, wc, left);
    }

    /// Takes what is in that mailbox before the next of the ring.
    ///
    /// # Safety
    /// As [`take`](Self::take), inside a guard; there is room.
    #[inline(never)]
    unsafe fn take_mail(&mut self, run: &mut Run<'_>, index: usize, errors: &mut Errors) {
        run.tell();
        *run = Run::none();
        // SAFETY: the caller's.
        if unsafe { self.mail.take(index, self.wc, errors) } {
            self.given();
        }
    }

    /// Turns a completion of the ring into the next `wc`, unless its queue pair is gone, or was reset since.
    ///
    /// # Safety
    /// As [`take`](Self::take), inside a guard; there is room.
    #[inline(always)]
    unsafe fn give(&mut self, run: &mut Run<'_>, entry: &Entry<'_>, errors: &mut Errors) {
        let (small, qpn) = SmallHeader::read(entry.first());
        let Some(qp) = run.qp(qpn, entry.tag) else {
            // SAFETY: the caller's.
            return unsafe { self.give_left(entry) };
        };
        match small {
            Some(header) => {
                // SAFETY: the caller's.
                run.polled = unsafe { give_small(entry, &header, qp, run.polled, &mut run.key, self.wc, errors) };
                run.acked = header.acked();
                self.given();
            }
            None => {
                // What is told below is not overtaken by what was not told yet.
                run.tell();
                // SAFETY: the caller's.
                unsafe { decode(entry, qp, self.wc) };
                run.polled = qp.rq.polled();
                self.given();
            }
        }
    }

    /// Of a queue pair that is gone, or was reset since, nothing is given out but the shared receives that it left behind.
    ///
    /// # Safety
    /// As [`give`](Self::give).
    #[cold]
    unsafe fn give_left(&mut self, entry: &Entry<'_>) {
        if SmallHeader::read(entry.first()).0.is_some() {
            return;
        }
        let header = Header::read(entry.first());
        if header.opcode == completion::LEFT {
            let header = Header { opcode: completion::RECV, ..header };
            // SAFETY: the caller's.
            unsafe { write_wc(self.wc, &header, header.word, header.status, 0, 0) };
            self.given();
        }
    }

    #[inline(always)]
    fn given(&mut self) {
        // SAFETY: one past the last at most, as `left` counts.
        self.wc = unsafe { self.wc.add(1) };
        self.left -= 1;
    }
}

/// A small message: its bytes go from the slots to the receive's buffers, and `wc` is written. `received` is how many receives
/// came before it; gives how many there are with it.
///
/// # Safety
/// `wc` is writable; a guard is entered; it is a completion of `qp`, and not given back; `key` is of its domain.
#[inline(always)]
unsafe fn give_small(
    entry: &Entry<'_>,
    header: &SmallHeader,
    qp: &Qp,
    received: u64,
    key: &mut RegionKey,
    wc: *mut ibv_wc,
    errors: &mut Errors,
) -> u64 {
    // Receives of a connection complete in order, so the index is the next one's; its low bits say which in any case.
    let index = received + u64::from(header.index().wrapping_sub(received as u16));
    // SAFETY: the index came from that queue's sender, and its slot is free only after the caller says so. A small message is that
    // of a connected queue pair without a shared queue.
    let wqe = unsafe { qp.rq.wqes.wqe(index) };
    let mut status = completion::SUCCESS;
    // SAFETY: as above, and the payload is in the entry's slots.
    if unsafe { place(entry, header.bytes(), qp.pd, key, &wqe) }.is_err() {
        status = ibv_wc_status::IBV_WC_LOC_PROT_ERR;
        errors.fail(qp);
    }
    // SAFETY: the caller's: an `ibv_wc` is six words (`completion`), aligned as such.
    unsafe { wc.cast::<[u64; 6]>().write(header.wc_words(wqe.wr_id(), status)) };
    index + 1
}

/// Turns a completion that is no small message's into `wc`.
///
/// # Safety
/// `wc` is writable; a guard is entered; the completion is one of `qp`'s, and isn't given back yet.
#[inline(always)]
unsafe fn decode(entry: &Entry<'_>, qp: &Qp, wc: *mut ibv_wc) {
    let header = Header::read(entry.first());
    if header.opcode < completion::RECV {
        let [freed, _] = completion::read_extra(entry.first());
        qp.sq.free_up_to(freed);
        // SAFETY: the caller's.
        return unsafe { write_wc(wc, &header, header.word, header.status, 0, 0) };
    }
    // SAFETY: the index came from that queue's sender, and its slot is free only after we say so below.
    let wr_id = unsafe { qp.receives().wqe(header.word).wr_id() };
    let (mut source, mut slid) = (0, 0);
    if qp.is_datagram() {
        let [from, _] = completion::read_extra(entry.first());
        (source, slid) = (from as u32, (from >> 32) as u16);
    }
    qp.receive_polled(header.word);
    // SAFETY: the caller's.
    unsafe { write_wc(wc, &header, wr_id, header.status, source, slid) };
}

/// Copies a payload out of the slots into the receive's buffers.
///
/// # Safety
/// A guard is entered; `wqe` is the receive that the completion is of, whose capacity was checked; `key` is of `pd`.
#[inline(always)]
unsafe fn place(
    entry: &Entry<'_>,
    len: usize,
    pd: u32,
    key: &mut RegionKey,
    wqe: &scatter::Wqe,
) -> Result<(), key_table::Denied> {
    // SAFETY: the caller's.
    let sge = unsafe { wqe.sge(0) };
    // A length of 0 means 2^31.
    if sge.length.wrapping_sub(1) < len as u32 - 1 {
        // SAFETY: the caller's.
        return unsafe { place_in_pieces(entry, len, pd, wqe) };
    }
    let to = key.check(sge.lkey, sge.addr, len as u64)?;
    // SAFETY: the key grants `len` bytes there.
    unsafe { payload(entry, len, to) };
    Ok(())
}

/// Into more than one piece.
///
/// # Safety
/// As [`place`].
#[cold]
unsafe fn place_in_pieces(entry: &Entry<'_>, len: usize, pd: u32, wqe: &scatter::Wqe) -> Result<(), key_table::Denied> {
    let mut gathered = [0u8; ring::PAYLOAD_BYTES_MAX];
    // SAFETY: as above, into a local.
    unsafe {
        payload(entry, len, gathered.as_mut_ptr());
        scatter::from_bytes(pd, wqe, gathered.as_ptr(), len)
    }
}

/// Copies the `len` bytes of a payload to `to`.
///
/// # Safety
/// `to` is writable for `len` bytes, which the entry's slots hold as `Small::write_payload` put them there.
#[inline(always)]
unsafe fn payload(entry: &Entry<'_>, len: usize, to: *mut u8) {
    let [word, half] = entry.first().body(|body| completion::payload_of(body.cast_mut()));
    // SAFETY: the caller's.
    unsafe {
        if len > FIRST_PAYLOAD_BYTES {
            let second = entry.second().body(|body| body.cast::<u8>());
            copy_32(to, half);
            copy_8(to.add(HALF_PAYLOAD_BYTES), word);
            copy_small(to.add(FIRST_PAYLOAD_BYTES), second, len - FIRST_PAYLOAD_BYTES);
        } else if len > HALF_PAYLOAD_BYTES {
            copy_32(to, half);
            copy_8(to.add(len - 8), word);
        } else {
            copy_small(to, half, len);
        }
    }
}

/// # Safety
/// `wc` is writable.
#[inline(always)]
unsafe fn write_wc(wc: *mut ibv_wc, header: &Header, wr_id: u64, status: u32, src_qp: u32, slid: u16) {
    // SAFETY: the caller's.
    unsafe {
        wc.write(ibv_wc {
            wr_id,
            status,
            opcode: header.opcode,
            vendor_err: 0,
            byte_len: header.byte_len,
            imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t { imm_data: header.imm },
            qp_num: header.qpn,
            src_qp,
            wc_flags: header.flags,
            pkey_index: 0,
            slid,
            sl: 0,
            dlid_path_bits: 0,
        });
    }
}
