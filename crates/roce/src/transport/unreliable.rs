//! Unreliable connections: messages are sent once, and received whole or not at all.

use crate::memory::{Memory, Place, Right};
use crate::transport::counters::Discard;
use crate::transport::inbox::{Message, Misplaced};
use crate::transport::outgoing::Outgoing;
use crate::transport::refusal::{Halt, INVALID, Refusal};
use crate::transport::responder::{Serve, TOO_LONG_BYTES, Underway, fits_part};
use crate::transport::send_queue::{Kind, QueuedSend, SendQueue};
use crate::wire::{Bth, Deth, Psn, Qpn, Reth, Segment, SendEnd, Uc, WriteEnd};
use crate::work::{Completed, Status};

/// Sends each packet once, for UC and UD.
#[derive(Debug)]
pub(crate) struct UnreliableSender {
    base: Psn,
    mtu: u32,
    /// The number of packets sent.
    sent: u64,
    /// The number of the first packet of the next work request.
    pub(crate) next: u64,
}

impl UnreliableSender {
    pub(crate) fn new(base: Psn, mtu: u32) -> UnreliableSender {
        UnreliableSender { base, mtu, sent: 0, next: 0 }
    }

    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    /// The number of packets sent.
    pub(crate) fn sent_packets(&self) -> u64 {
        self.sent
    }

    /// Skips flushed sends: the next packet belongs to the next send.
    pub(crate) fn skip_flushed(&mut self) {
        self.sent = self.next;
    }

    /// The next packet; `own` is the sending queue pair, `peer` a connection's receiver.
    pub(crate) fn next(&self, sends: &SendQueue, own: Qpn, peer: Qpn) -> Option<Outgoing> {
        let entry = sends.entry(sends.front())?;
        let at = (self.sent - entry.first) as u32;
        let is_last = at + 1 == entry.packets;
        let offset = u64::from(at) * u64::from(self.mtu);
        let payload = (u64::from(entry.len) - offset).min(u64::from(self.mtu)) as usize;
        let (destination, segment) = part(sends, entry, (own, peer), at == 0, is_last)?;
        let bth =
            Bth { solicited: is_last && entry.solicited, ..Bth::new(destination, self.base.plus(self.sent as u32)) };
        Some(Outgoing { bth, segment, index: sends.front(), offset, payload, packets: 1 })
    }

    /// The next local operation.
    pub(crate) fn due_local(&self, sends: &SendQueue) -> Option<u64> {
        sends.entry(sends.front()).filter(|entry| entry.is_local()).map(|_| sends.front())
    }

    /// Records that the packet was sent. A message completes with its last packet.
    pub(crate) fn sent(&mut self, sends: &mut SendQueue) {
        self.sent += 1;
        if sends.entry(sends.front()).is_some_and(|entry| entry.end() == self.sent) {
            sends.complete(Status::Success);
        }
    }
}

/// The next packet of the entry at the front, and its destination.
fn part(
    sends: &SendQueue,
    entry: &QueuedSend,
    (own, peer): (Qpn, Qpn),
    is_first: bool,
    is_last: bool,
) -> Option<(Qpn, Segment)> {
    Some(match entry.kind {
        Kind::Send(end) => {
            let end = without_invalidation(end)?;
            (peer, Segment::Uc(Uc::Send { first: is_first, last: is_last.then_some(end) }))
        }
        Kind::Write(remote, end) => {
            let reth = Reth { addr: remote.addr, rkey: remote.rkey, len: entry.len };
            (peer, Segment::Uc(Uc::Write { first: is_first.then_some(reth), last: is_last.then_some(end) }))
        }
        Kind::Datagram => {
            let (to, end) = sends.datagram(sends.front())?;
            let immediate = match end {
                WriteEnd::Plain => None,
                WriteEnd::Immediate(immediate) => Some(immediate),
            };
            (to.qpn, Segment::Ud(Deth { qkey: to.qkey, source: own }, immediate))
        }
        Kind::Read(_) | Kind::Atomic | Kind::Local => return None,
    })
}

/// A SEND's end on an unreliable connection, which has no invalidation.
pub(crate) fn without_invalidation(end: SendEnd) -> Option<WriteEnd> {
    match end {
        SendEnd::Plain => Some(WriteEnd::Plain),
        SendEnd::Immediate(immediate) => Some(WriteEnd::Immediate(immediate)),
        SendEnd::Invalidate(_) => None,
    }
}

fn with_immediate(end: WriteEnd) -> SendEnd {
    match end {
        WriteEnd::Plain => SendEnd::Plain,
        WriteEnd::Immediate(immediate) => SendEnd::Immediate(immediate),
    }
}

/// Receives whole messages only. A message may begin with any number; each further packet must have
/// the next one.
#[derive(Debug)]
pub(crate) struct UnreliableReceiver {
    expected: Psn,
    mtu: u32,
    message: Underway,
}

impl UnreliableReceiver {
    pub(crate) fn new(expected: Psn, mtu: u32) -> UnreliableReceiver {
        UnreliableReceiver { expected, mtu, message: Underway::Nothing }
    }

    /// Takes in a packet. An incomplete message is dropped, and its receive goes to the next
    /// message.
    pub(crate) fn packet<M: Memory>(
        &mut self,
        cx: &mut Serve<'_, M>,
        bth: &Bth,
        uc: Uc,
        payload: &[u8],
    ) -> Result<(), Halt> {
        let is_next = bth.psn == self.expected;
        self.expected = bth.psn.plus(1);
        let begins = matches!(uc, Uc::Send { first: true, .. } | Uc::Write { first: Some(_), .. });
        let before = std::mem::replace(&mut self.message, Underway::Nothing);
        if !begins && !is_next {
            cx.counters.note(|all| all.out_of_order += 1);
            return Err(Halt::Discard(Discard::OutOfOrder));
        }
        self.message = match (uc, before) {
            (Uc::Send { first: true, last }, _) => self.send(cx, bth, 0, last, true, payload)?,
            (Uc::Send { first: false, last }, Underway::Send { received }) => {
                self.send(cx, bth, received, last, false, payload)?
            }
            (Uc::Write { first: Some(reth), last }, _) => {
                let Reth { addr, rkey, len: left } = reth;
                if u64::from(left) > TOO_LONG_BYTES {
                    return Err(Halt::Discard(Discard::Unfitting));
                }
                let place = Place { owner: cx.owner, key: rkey, right: Right::RemoteWrite, addr };
                if left > 0 && cx.memory.check(place, u64::from(left)).is_err() {
                    return Err(Halt::Discard(Discard::Refused));
                }
                self.write(cx, bth, (addr, rkey, left, 0), last, true, payload)?
            }
            (Uc::Write { first: None, last }, Underway::Write { addr, rkey, left, received }) => {
                self.write(cx, bth, (addr, rkey, left, received), last, false, payload)?
            }
            _ => return Err(Halt::Discard(Discard::OutOfOrder)),
        };
        Ok(())
    }

    fn send<M: Memory>(
        &self,
        cx: &mut Serve<'_, M>,
        bth: &Bth,
        before: u64,
        last: Option<WriteEnd>,
        is_first: bool,
        payload: &[u8],
    ) -> Result<Underway, Halt> {
        let received = before + payload.len() as u64;
        if !fits_part(payload, self.mtu, is_first, last.is_some()) || received > TOO_LONG_BYTES {
            return Err(Halt::Discard(Discard::Unfitting));
        }
        if !cx.inbox.hold(cx.memory) {
            return Err(Halt::Discard(Discard::NoReceive));
        }
        cx.inbox.place(cx.owner, cx.memory, before, payload).map_err(|misplaced| match misplaced {
            Misplaced::TooLong => Refusal { local: Status::LocalLength, ..INVALID },
            Misplaced::Denied => Refusal { local: Status::LocalProtection, ..INVALID },
        })?;
        Ok(match last {
            Some(end) => {
                let completed = Completed::Receive(with_immediate(end));
                let bytes = received as u32;
                cx.inbox.complete(Message { completed, bytes, solicited: bth.solicited, source: None });
                Underway::Nothing
            }
            None => Underway::Send { received },
        })
    }

    fn write<M: Memory>(
        &self,
        cx: &mut Serve<'_, M>,
        bth: &Bth,
        (addr, rkey, left, received): (u64, u32, u32, u32),
        last: Option<WriteEnd>,
        is_first: bool,
        payload: &[u8],
    ) -> Result<Underway, Halt> {
        let len = payload.len() as u32;
        let is_whole = if last.is_some() { len == left } else { len < left };
        if !is_whole || !fits_part(payload, self.mtu, is_first, last.is_some()) {
            return Err(Halt::Discard(Discard::Unfitting));
        }
        let place = Place { owner: cx.owner, key: rkey, right: Right::RemoteWrite, addr };
        let immediate = match last {
            Some(WriteEnd::Immediate(immediate)) => Some(Completed::ReceiveWrite { immediate }),
            _ => None,
        };
        if !cx.rights.write {
            return Err(Halt::Discard(Discard::Refused));
        }
        if immediate.is_some() && !cx.inbox.hold(cx.memory) {
            return Err(Halt::Discard(Discard::NoReceive));
        }
        if len > 0 && cx.memory.write(place, payload).is_err() {
            return Err(Halt::Discard(Discard::Refused));
        }
        let (addr, left, received) = (addr.wrapping_add(u64::from(len)), left - len, received + len);
        if let Some(completed) = immediate {
            cx.inbox.complete(Message { completed, bytes: received, solicited: bth.solicited, source: None });
        }
        Ok(if last.is_some() { Underway::Nothing } else { Underway::Write { addr, rkey, left, received } })
    }
}

#[cfg(test)]
pub(in crate::transport) mod tests {
    use super::*;
    use crate::memory::{Denied, Owner, Sge};
    use crate::transport::configuration::{Receives, Rights};
    use crate::transport::counters::Counters;
    use crate::transport::inbox::Inbox;
    use crate::wire::AtomicOp;

    /// Memory of any length.
    pub(in crate::transport) struct Endless;

    impl Memory for Endless {
        fn read(&mut self, _: Place, _: &mut [u8]) -> Result<(), Denied> {
            Ok(())
        }
        fn write(&mut self, _: Place, _: &[u8]) -> Result<(), Denied> {
            Ok(())
        }
        fn check(&mut self, _: Place, _: u64) -> Result<(), Denied> {
            Ok(())
        }
        fn atomic(&mut self, _: Place, _: AtomicOp) -> Result<u64, Denied> {
            Ok(0)
        }
        fn invalidate(&mut self, _: Owner, _: u32) -> Result<(), Denied> {
            Ok(())
        }
    }

    /// Regression: a message of more than 2^32 bytes completed with a length that had wrapped
    /// around.
    #[test]
    fn a_message_of_more_than_2_to_the_31_bytes_is_forgotten() {
        let mtu = 4096;
        for (before, is_taken) in [(TOO_LONG_BYTES - u64::from(mtu), true), (TOO_LONG_BYTES, false), (1 << 32, false)] {
            let mut inbox = Inbox::new(Receives::Own(1), 2);
            let sge = Sge { addr: 0, len: u32::MAX, key: 1 };
            inbox.post(7, &[sge, sge]).expect("room");
            let owner = Owner { domain: 1, qpn: Qpn::new(2) };
            let rights = Rights { write: true, read: false, atomic: false };
            let mut counters = Counters::default();
            let mut receiver = UnreliableReceiver::new(Psn::new(5), mtu);
            receiver.message = Underway::Send { received: before };
            let mut memory = Endless;
            let mut cx = Serve { owner, rights, inbox: &mut inbox, memory: &mut memory, counters: &mut counters };
            let last = Uc::Send { first: false, last: Some(WriteEnd::Plain) };
            let taken = receiver.packet(&mut cx, &Bth::new(owner.qpn, Psn::new(5)), last, &[0; 4096]);
            assert_eq!(taken.is_ok(), is_taken, "{before}");
            let bytes = inbox.poll().map(|completion| completion.bytes);
            assert_eq!(bytes, is_taken.then_some(1 << 31), "{before}");
            for (len, is_taken) in [(1 << 31, true), (1 << 31 | 1, false)] {
                let first = Uc::Write { first: Some(Reth { addr: 0, rkey: 1, len }), last: None };
                let mut cx = Serve { owner, rights, inbox: &mut inbox, memory: &mut memory, counters: &mut counters };
                let taken = receiver.packet(&mut cx, &Bth::new(owner.qpn, Psn::new(9)), first, &[0; 4096]);
                let refused = matches!(taken, Err(Halt::Discard(Discard::Unfitting)));
                assert_eq!((taken.is_ok(), refused), (is_taken, !is_taken));
            }
        }
    }
}
