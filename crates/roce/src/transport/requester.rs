//! The requester: chooses the next packet, and decides when an answer is overdue.
//!
//! Packets are counted in 64 bits from a queue pair's first one on; the wire has the low 24 bits,
//! added to the starting number. `una` is the first packet that the peer has not acknowledged,
//! `cursor` the next to be sent, `top` the first that was never sent: `una <= cursor <= top`. A
//! repetition sets `cursor` back to `una` (go-back-N). Payloads are read from memory whenever they
//! are sent, so that no copies are kept.

use crate::schedule::sooner;
use crate::transport::asking::Asking;
use crate::transport::configuration::Retries;
use crate::transport::configuration::ack_timeout_ns;
use crate::transport::outgoing::Outgoing;
use crate::transport::probe::Probe;
use crate::transport::repair::Repair;
use crate::transport::send_queue::{Kind, QueuedSend, SendQueue};
use crate::transport::window::Window;
use crate::wire::{Bth, Psn, Qpn, Rc, Reth, Segment, WriteEnd};
use crate::work::Remote;

/// The requester of a reliable connection. See the [module](self).
#[derive(Debug)]
pub(crate) struct Requester {
    /// The number on the wire of packet 0.
    base: Psn,
    mtu: u32,
    destination: Qpn,
    pub(crate) retries: Retries,
    pub(crate) una: u64,
    pub(crate) cursor: u64,
    pub(crate) top: u64,
    /// The number of the first packet of the next work request.
    pub(crate) next: u64,
    /// The index of the work request that `cursor` is in.
    pub(crate) cursor_index: u64,
    /// The number of READ requests and atomics between `una` and `cursor`.
    pub(crate) reads_out: u8,
    pub(crate) retries_left: u8,
    pub(crate) rnr_left: u8,
    /// The repetition because of a missing packet, which is the one at `una`.
    pub(crate) repaired: Option<Repair>,
    /// Bounds the packets under way.
    pub(crate) window: Window,
    /// Decides which packets ask for an acknowledgement.
    pub(crate) asking: Asking,
    /// Asks a peer that does not answer in time.
    pub(crate) probe: Probe,
    /// The time at which an answer is overdue.
    pub(crate) overdue_ns: Option<u64>,
    /// No packets are sent before this time, because of an RNR NAK.
    pub(crate) rnr_until_ns: Option<u64>,
}

/// The fewest and the most packets under way.
const WINDOW_PACKETS: (u32, u32) = (2, 1 << 16);

impl Requester {
    pub(crate) fn new(base: Psn, mtu: u32, destination: Qpn, first_index: u64, retries: Retries) -> Requester {
        let window_packets = retries.window_packets.clamp(WINDOW_PACKETS.0, WINDOW_PACKETS.1);
        let retries = Retries { window_packets, reads: retries.reads.max(1), ..retries };
        Requester {
            base,
            mtu,
            destination,
            retries,
            una: 0,
            cursor: 0,
            top: 0,
            next: 0,
            cursor_index: first_index,
            reads_out: 0,
            retries_left: retries.retry_count,
            rnr_left: retries.rnr_retry,
            repaired: None,
            window: Window::new(retries.window_packets),
            asking: Asking::new(retries.timeout),
            probe: Probe::new(),
            overdue_ns: None,
            rnr_until_ns: None,
        }
    }

    /// Sets new retries; the window stays.
    pub(crate) fn retry_by(&mut self, retries: Retries) {
        let Retries { window_packets, .. } = self.retries;
        self.retries = Retries { window_packets, reads: retries.reads.max(1), ..retries };
        self.asking.wait_by(retries.timeout);
        (self.retries_left, self.rnr_left) = (retries.retry_count, retries.rnr_retry);
    }

    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Whether the peer has acknowledged a packet.
    pub(crate) fn was_acknowledged(&self) -> bool {
        self.una > 0
    }

    /// Whether packets are under way, or wait to be retransmitted.
    pub(crate) fn is_waiting(&self) -> bool {
        self.una < self.top || self.rnr_until_ns.is_some()
    }

    /// The number of the last packet that the peer has acknowledged, or the one before the first
    /// packet.
    pub(crate) fn acknowledged(&self) -> Psn {
        self.base.plus((self.una as u32).wrapping_sub(1))
    }

    /// A packet's number on the wire.
    fn psn(&self, number: u64) -> Psn {
        self.base.plus(number as u32)
    }

    /// The 64-bit number of a packet that was sent; it may be acknowledged already.
    pub(crate) fn number_of(&self, psn: Psn) -> Option<u64> {
        let ahead = psn.ahead_of(self.psn(self.una));
        self.una.checked_add_signed(i64::from(ahead)).filter(|number| *number < self.top)
    }

    /// The packets of one READ request's answer. A longer READ is split, so that no answer floods
    /// the path, and less has to be repeated after a loss.
    pub(crate) fn read_packets(&self) -> u32 {
        self.retries.window_packets / 2
    }

    /// The number, within the entry, behind the READ request that includes its packet `at`.
    pub(crate) fn read_end(&self, entry: &QueuedSend, at: u32) -> u32 {
        let each = self.read_packets();
        (at / each + 1).saturating_mul(each).min(entry.packets)
    }

    /// The next deadline. While there is more to send the tail has none: either an answer will come
    /// to what blocks sending, or a [question](Self::question) asks for it.
    pub(crate) fn deadline_ns(&self, sends: &SendQueue) -> Option<u64> {
        let tail_ns = self.asking.deadline_ns().filter(|_| sends.entry(self.cursor_index).is_none());
        sooner(sooner(self.overdue_ns, self.rnr_until_ns), sooner(tail_ns, self.probe.deadline_ns()))
    }

    /// Whether there is more to send, or a question to ask.
    pub(crate) fn may_send(&self, sends: &SendQueue) -> bool {
        sends.entry(self.cursor_index).is_some() || self.asking.is_due_now() || self.probe.is_due()
    }

    /// The next packet, if one may be sent.
    pub(crate) fn next(&self, now_ns: u64, sends: &SendQueue) -> Option<Outgoing> {
        let entry = sends.entry(self.cursor_index).filter(|_| self.rnr_until_ns.is_none())?;
        let at = (self.cursor - entry.first) as u32;
        if entry.fence && at == 0 && self.reads_out > 0 {
            return None;
        }
        let under_way = (self.cursor - self.una) as u32;
        let room = self.window.packets();
        let has_room = |packets: u32| under_way + packets <= room;
        // A READ needs room for its answer, up to half of the widest window, even if losses have
        // narrowed the present one.
        let has_room_for_answer = |packets: u32| under_way + packets <= self.retries.window_packets;
        let whole = |rc, packets| self.outgoing(rc, self.cursor_index, self.cursor, packets);
        match entry.kind {
            Kind::Read(remote) => {
                let packets = self.read_end(entry, at) - at;
                let may_ask = has_room_for_answer(packets) && self.reads_out < self.retries.reads;
                let reth = self.read_request(entry, remote, at, packets);
                may_ask.then_some(whole(Rc::ReadRequest(reth), packets))
            }
            Kind::Atomic => {
                let atomic = sends.atomic(self.cursor_index)?;
                let may_ask = has_room(1) && self.reads_out < self.retries.reads;
                may_ask.then_some(whole(Rc::Atomic(atomic), 1))
            }
            Kind::Send(_) | Kind::Write(..) => {
                let mut outgoing = self.message_packet(entry, self.cursor_index, self.cursor)?;
                outgoing.bth.ack_request = !has_room(2) || self.asks(now_ns, sends, entry, at + 1 == entry.packets);
                has_room(1).then_some(outgoing)
            }
            // A local operation has no packet; see `due_local`.
            Kind::Datagram | Kind::Local => None,
        }
    }

    /// Whether the packet at the cursor, which may be the last of its message, asks for an
    /// acknowledgement: see [`asking`](crate::transport::asking).
    fn asks(&self, now_ns: u64, sends: &SendQueue, entry: &QueuedSend, is_last: bool) -> bool {
        let behind = self.cursor + 1;
        let unasked = behind - self.asking.first_unasked(self.una);
        if is_last && entry.signaled || behind == self.top || unasked >= u64::from(self.window.packets() / 2) {
            return true;
        }
        is_last
            && match sends.entry(self.cursor_index + 1) {
                None => self.asking.is_due_with_next(now_ns),
                Some(next) => next.is_local(),
            }
    }

    /// Returns the last packet once more, or what asks in its place, if it is time to ask for its
    /// acknowledgement, if the next step waits for one, or if a [probe](crate::transport::probe) is
    /// due. `is_stopped`: the next work request can't begin. Call it when there is no
    /// [next](Self::next) packet.
    pub(crate) fn question(&self, now_ns: u64, sends: &SendQueue, is_stopped: bool) -> Option<Outgoing> {
        if self.rnr_until_ns.is_some() {
            return None;
        }
        let has_tail = self.asking.first_unasked(self.una) < self.cursor && self.cursor == self.top;
        // The answers of READs under way will acknowledge everything before them.
        let is_waited_for = self.reads_out == 0 && sends.entry(self.cursor_index).is_some();
        let asks = has_tail && (is_stopped || is_waited_for || self.asking.is_due(now_ns));
        let probes = self.probe.is_due() && self.una < self.cursor;
        if !asks && !probes {
            return None;
        }
        let number = self.cursor - 1;
        let has = |index: &u64| sends.entry(*index).is_some_and(|entry| (entry.first..entry.end()).contains(&number));
        let index = (sends.front()..=self.cursor_index).rev().find(has)?;
        let outgoing = self.message_packet(sends.entry(index)?, index, number).unwrap_or_else(|| self.nothing(index));
        Some(Outgoing { bth: Bth { ack_request: true, ..outgoing.bth }, ..outgoing })
    }

    /// Records that the packet of [`question`](Self::question) was sent. Returns whether it was a
    /// probe.
    pub(crate) fn questioned(&mut self, now_ns: u64) -> bool {
        self.asking.sent(now_ns, self.cursor, true);
        let was_probe = self.probe.sent();
        if self.overdue_ns.is_none() {
            self.restart_timer(now_ns);
        }
        was_probe
    }

    /// Makes a WRITE of no bytes, which asks. It has a number that the peer has answered, or could
    /// have, and so is acknowledged as a duplicate request.
    pub(crate) fn nothing(&self, index: u64) -> Outgoing {
        let nothing = Reth { addr: 0, rkey: 0, len: 0 };
        let rc = Rc::Write { first: Some(nothing), last: Some(WriteEnd::Plain) };
        let bth = Bth { ack_request: true, ..Bth::new(self.destination, self.acknowledged()) };
        Outgoing { bth, segment: Segment::Rc(rc), index, offset: 0, payload: 0, packets: 0 }
    }

    fn outgoing(&self, rc: Rc, index: u64, number: u64, packets: u32) -> Outgoing {
        let bth = Bth::new(self.destination, self.psn(number));
        Outgoing { bth, segment: Segment::Rc(rc), index, offset: 0, payload: 0, packets }
    }

    /// Makes a packet of a SEND or a WRITE.
    fn message_packet(&self, entry: &QueuedSend, index: u64, number: u64) -> Option<Outgoing> {
        let at = (number - entry.first) as u32;
        let is_last = at + 1 == entry.packets;
        let offset = u64::from(at) * u64::from(self.mtu);
        let payload = (u64::from(entry.len) - offset).min(u64::from(self.mtu)) as usize;
        let whole = self.outgoing(message_part(entry, at == 0, is_last)?, index, number, 1);
        Some(Outgoing { bth: Bth { solicited: is_last && entry.solicited, ..whole.bth }, offset, payload, ..whole })
    }

    /// The next local operation, if it may begin. Skips local operations that were carried out
    /// before the packets behind them were lost.
    pub(crate) fn due_local(&mut self, sends: &SendQueue) -> Option<u64> {
        while sends.is_done(self.cursor_index) {
            self.cursor_index += 1;
        }
        let entry = sends.entry(self.cursor_index).filter(|entry| entry.is_local())?;
        let is_fenced = entry.fence && self.reads_out > 0;
        (!is_fenced).then_some(self.cursor_index)
    }

    fn read_request(&self, entry: &QueuedSend, remote: Remote, at: u32, packets: u32) -> Reth {
        let (begin, end) = (u64::from(at) * u64::from(self.mtu), u64::from(at + packets) * u64::from(self.mtu));
        let len = end.min(u64::from(entry.len)) - begin;
        Reth { addr: remote.addr.wrapping_add(begin), rkey: remote.rkey, len: len as u32 }
    }

    /// Records that the packet of [`next`](Self::next) was sent. Returns whether it was sent for
    /// the first time.
    pub(crate) fn sent(&mut self, now_ns: u64, sends: &SendQueue, outgoing: &Outgoing) -> bool {
        let is_new = self.cursor >= self.top;
        if let Some(entry) = sends.entry(self.cursor_index) {
            self.reads_out += u8::from(entry.is_read());
            self.cursor += u64::from(outgoing.packets);
            self.cursor_index += u64::from(self.cursor == entry.end());
            let asks = entry.is_read() || outgoing.bth.ack_request;
            self.asking.sent(now_ns, self.cursor, asks);
            if asks && is_new {
                self.probe.asked(now_ns, self.cursor);
            }
        }
        self.top = self.top.max(self.cursor);
        if self.overdue_ns.is_none() {
            self.restart_timer(now_ns);
        }
        self.repair_again(sends);
        is_new
    }

    /// Restarts the ACK time-out, and the wait for a probe, if an answer is expected, or something
    /// is to be repeated. While the peer lacks a receive they stay off: nothing is sent meanwhile.
    pub(crate) fn restart_timer(&mut self, now_ns: u64) {
        let is_owed =
            self.rnr_until_ns.is_none() && (self.asking.first_unasked(self.una) > self.una || self.cursor < self.top);
        let timeout_ns = ack_timeout_ns(self.retries.timeout).filter(|_| is_owed);
        self.overdue_ns = timeout_ns.map(|timeout_ns| now_ns.saturating_add(timeout_ns));
        self.probe.restart(now_ns, is_owed && self.was_acknowledged(), self.asking.wait_ns());
    }
}

/// The segment of a SEND's or a WRITE's packet.
fn message_part(entry: &QueuedSend, is_first: bool, is_last: bool) -> Option<Rc> {
    match entry.kind {
        Kind::Send(end) => Some(Rc::Send { first: is_first, last: is_last.then_some(end) }),
        Kind::Write(remote, end) => {
            let reth = Reth { addr: remote.addr, rkey: remote.rkey, len: entry.len };
            Some(Rc::Write { first: is_first.then_some(reth), last: is_last.then_some(end) })
        }
        _ => None,
    }
}
