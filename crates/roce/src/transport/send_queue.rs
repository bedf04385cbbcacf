//! The sending side's work requests, in a ring: posted, under way, completed, polled.
//!
//! Guarantees: work requests complete in the order in which they were posted, each once. A slot is
//! free again once its completion, or a later one, was polled.

use crate::memory::{Memory, Owner, Place, Right, Sge, list_bytes, pieces};
use crate::transport::configuration::Capacity;
use crate::wire::{AtomicExtension, SendEnd, WriteEnd};
use crate::work::{
    Completed, Completion, Data, MESSAGE_BYTES_MAX, Operation, PostError, Remote, SendRequest, Status, To,
};
use std::ops::Range;

/// A send work request, one cache line: with a thousand queue pairs in turn, each has left the
/// caches by its turn.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct QueuedSend {
    /// The program's number of the work request.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// The length of its data, bytes.
    pub(crate) len: u32,
    /// The numbers of its packets begin with `first`.
    pub(crate) first: u64,
    pub(crate) packets: u32,
    sges: u16,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    is_inline: bool,
    /// A local operation was carried out.
    is_done: bool,
    status: Status,
}

const _: () = assert!(size_of::<Option<QueuedSend>>() == 64);

/// An [`Operation`], with the fields that most have; the queue keeps the others separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send(SendEnd),
    Write(Remote, WriteEnd),
    Read(Remote),
    Local,
    /// See [`SendQueue::atomic`].
    Atomic,
    /// See [`SendQueue::datagram`].
    Datagram,
}

#[derive(Debug)]
pub(crate) struct SendQueue {
    entries: Box<[Option<QueuedSend>]>,
    /// Operations of atomics and datagrams.
    others: Box<[Option<Operation>]>,
    sges: Box<[Sge]>,
    /// Inline data: the first line of each slot, then the second of each, up to the longest data.
    /// So short messages one after another lie side by side.
    inline: Box<[Line]>,
    capacity: Capacity,
    /// All slots below are free.
    polled: u64,
    /// All completions below were reported or skipped.
    searched: u64,
    completed: u64,
    posted: u64,
}

/// Bytes of inline data, in a cache line that no other slot shares.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u8; LINE_BYTES]);

/// The payload of every MTU is a multiple of this.
const LINE_BYTES: usize = 64;

impl QueuedSend {
    /// Whether the peer answers it with data, not just with an acknowledgement.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.kind, Kind::Read(_) | Kind::Atomic)
    }

    /// Whether it sends no packet.
    pub(crate) fn is_local(&self) -> bool {
        self.kind == Kind::Local
    }

    /// The number behind its last packet.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }
}

impl SendQueue {
    pub(crate) fn new(capacity: Capacity) -> SendQueue {
        let send_sges = capacity.send_sges.min(u16::MAX.into());
        let capacity = Capacity { sends: capacity.sends.max(1), send_sges, ..capacity };
        let slots = capacity.sends.next_power_of_two();
        SendQueue {
            entries: vec![None; slots].into(),
            others: vec![None; slots].into(),
            sges: vec![Sge::default(); slots * capacity.send_sges].into(),
            inline: vec![Line([0; LINE_BYTES]); slots * capacity.inline_bytes.div_ceil(LINE_BYTES)].into(),
            capacity,
            polled: 0,
            searched: 0,
            completed: 0,
            posted: 0,
        }
    }

    /// Adds a work request whose first packet has number `first`; `mtu` is the packets' payload,
    /// and `len_max` the longest message. Returns the number behind its last packet.
    pub(crate) fn post(
        &mut self,
        request: &SendRequest<'_>,
        first: u64,
        mtu: u32,
        len_max: u32,
    ) -> Result<u64, PostError> {
        let (bytes, is_inline) = self.check(request)?;
        let is_atomic = matches!(request.operation, Operation::Atomic(_));
        let is_local = matches!(request.operation, Operation::Local);
        let len_max = if is_local { 0 } else { len_max.min(MESSAGE_BYTES_MAX) };
        if is_atomic && bytes != ATOMIC_BYTES {
            return Err(PostError::Length { bytes, max: ATOMIC_BYTES as u32 });
        }
        let len = u32::try_from(bytes).ok().filter(|len| *len <= len_max);
        let len = len.ok_or(PostError::Length { bytes, max: len_max })?;
        if self.posted - self.polled == self.capacity.sends as u64 {
            return Err(PostError::Full { depth: self.capacity.sends });
        }
        let slot = self.slot(self.posted);
        let sges = match request.data {
            Data::Memory(sges) => {
                self.sges[slot * self.capacity.send_sges..][..sges.len()].copy_from_slice(sges);
                sges.len()
            }
            Data::Inline(bytes) => {
                let lines = self.inline[slot..].iter_mut().step_by(self.entries.len());
                for (line, part) in lines.zip(bytes.chunks(LINE_BYTES)) {
                    line.0[..part.len()].copy_from_slice(part);
                }
                0
            }
        };
        let entry = QueuedSend {
            id: request.id,
            kind: self.keep(slot, request.operation),
            signaled: request.signaled,
            solicited: request.solicited,
            fence: request.fence,
            is_inline,
            sges: sges as u16,
            len,
            first,
            packets: if is_local { 0 } else { len.div_ceil(mtu).max(1) },
            is_done: false,
            status: Status::Success,
        };
        self.entries[slot] = Some(entry);
        self.posted += 1;
        Ok(entry.end())
    }

    /// Stores an entry's operation, in part beside it.
    fn keep(&mut self, slot: usize, operation: Operation) -> Kind {
        let kind = match operation {
            Operation::Send(end) => return Kind::Send(end),
            Operation::Write(remote, end) => return Kind::Write(remote, end),
            Operation::Read(remote) => return Kind::Read(remote),
            Operation::Local => return Kind::Local,
            Operation::Atomic(_) => Kind::Atomic,
            Operation::Datagram(..) => Kind::Datagram,
        };
        self.others[slot] = Some(operation);
        kind
    }

    /// The fields of the atomic of that index.
    pub(crate) fn atomic(&self, index: u64) -> Option<AtomicExtension> {
        match self.others[self.slot(index)] {
            Some(Operation::Atomic(atomic)) => Some(atomic),
            _ => None,
        }
    }

    /// The destination of the datagram of that index.
    pub(crate) fn datagram(&self, index: u64) -> Option<(To, WriteEnd)> {
        match self.others[self.slot(index)] {
            Some(Operation::Datagram(to, end)) => Some((to, end)),
            _ => None,
        }
    }

    /// Checks that a request fits the queue's capacity. Returns its length, and whether its data is
    /// inline.
    fn check(&self, request: &SendRequest<'_>) -> Result<(u64, bool), PostError> {
        match request.data {
            Data::Memory(sges) if sges.len() > self.capacity.send_sges => {
                Err(PostError::TooManySges { sges: sges.len(), max: self.capacity.send_sges })
            }
            Data::Memory(sges) => Ok((list_bytes(sges), false)),
            Data::Inline(_)
                if matches!(request.operation, Operation::Read(_) | Operation::Atomic(_) | Operation::Local) =>
            {
                Err(PostError::Unsupported)
            }
            Data::Inline(bytes) if bytes.len() > self.capacity.inline_bytes => {
                Err(PostError::InlineTooLong { bytes: bytes.len(), max: self.capacity.inline_bytes })
            }
            Data::Inline(bytes) => Ok((bytes.len() as u64, true)),
        }
    }

    fn slot(&self, index: u64) -> usize {
        // A power of two: a division would be needed several times for each message.
        index as usize & (self.entries.len() - 1)
    }

    /// The entry of that index, if it is posted and not polled.
    pub(crate) fn entry(&self, index: u64) -> Option<&QueuedSend> {
        let is_there = (self.polled..self.posted).contains(&index);
        self.entries[self.slot(index)].as_ref().filter(|_| is_there)
    }

    /// The index of the first entry that has not completed.
    pub(crate) fn front(&self) -> u64 {
        self.completed
    }

    /// Completes the first entry that has not completed. After success it also completes the local
    /// operations behind it that were carried out, since no answer comes for those.
    pub(crate) fn complete(&mut self, status: Status) {
        debug_assert!(self.completed < self.posted);
        let slot = self.slot(self.completed);
        self.entries[slot].iter_mut().for_each(|entry| entry.status = status);
        self.completed += 1;
        while status == Status::Success && self.is_done(self.completed) {
            self.completed += 1;
        }
    }

    /// Records that a local operation was carried out: it completes once all before it have.
    pub(crate) fn carried_out(&mut self, index: u64) {
        if index == self.completed {
            return self.complete(Status::Success);
        }
        let slot = self.slot(index);
        self.entries[slot].iter_mut().for_each(|entry| entry.is_done = true);
    }

    /// Whether the entry of that index is a local operation that was carried out.
    pub(crate) fn is_done(&self, index: u64) -> bool {
        self.entry(index).is_some_and(|entry| entry.is_done)
    }

    /// Flushes all entries that have not completed.
    pub(crate) fn flush(&mut self) {
        while self.completed < self.posted {
            self.complete(Status::Flushed);
        }
    }

    /// Whether [`poll`](Self::poll) has entries to look at.
    pub(crate) fn has_completions(&self) -> bool {
        self.searched < self.completed
    }

    /// The next completion to report.
    pub(crate) fn poll(&mut self) -> Option<Completion> {
        while self.searched < self.completed {
            let entry = self.entries[self.slot(self.searched)];
            self.searched += 1;
            if let Some(entry) = entry.filter(|entry| entry.signaled || entry.status != Status::Success) {
                self.polled = self.searched;
                return Some(entry.completion());
            }
        }
        None
    }

    /// Copies a part of an entry's data out.
    pub(crate) fn gather(
        &self,
        index: u64,
        owner: Owner,
        memory: &mut impl Memory,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), crate::memory::Denied> {
        let Some(entry) = self.entry(index) else { return Ok(()) };
        let slot = self.slot(index);
        if entry.is_inline {
            debug_assert!(offset.is_multiple_of(LINE_BYTES as u64));
            let lines = self.inline[slot..].iter().step_by(self.entries.len()).skip(offset as usize / LINE_BYTES);
            for (part, line) in out.chunks_mut(LINE_BYTES).zip(lines) {
                part.copy_from_slice(&line.0[..part.len()]);
            }
            return Ok(());
        }
        self.parts(slot, entry, offset, out.len()).try_for_each(|(addr, key, range)| {
            memory.read(Place { owner, key, right: Right::LocalRead, addr }, &mut out[range])
        })
    }

    /// Copies a part of an entry's answer into its buffers.
    pub(crate) fn scatter(
        &self,
        index: u64,
        owner: Owner,
        memory: &mut impl Memory,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), crate::memory::Denied> {
        let Some(entry) = self.entry(index) else { return Ok(()) };
        self.parts(self.slot(index), entry, offset, bytes.len()).try_for_each(|(addr, key, range)| {
            memory.write(Place { owner, key, right: Right::LocalWrite, addr }, &bytes[range])
        })
    }

    fn parts(
        &self,
        slot: usize,
        entry: &QueuedSend,
        offset: u64,
        len: usize,
    ) -> impl Iterator<Item = (u64, u32, Range<usize>)> + '_ {
        pieces(&self.sges[slot * self.capacity.send_sges..][..usize::from(entry.sges)], offset, len)
    }
}

/// The length of an atomic's word.
const ATOMIC_BYTES: u64 = 8;

impl QueuedSend {
    fn completion(&self) -> Completion {
        let completed = match self.kind {
            Kind::Send(_) | Kind::Datagram => Completed::Send,
            Kind::Write(..) => Completed::Write,
            Kind::Read(_) => Completed::Read,
            Kind::Atomic => Completed::Atomic,
            Kind::Local => Completed::Local,
        };
        let is_good = self.status == Status::Success;
        Completion {
            id: self.id,
            status: self.status,
            completed,
            bytes: if is_good { self.len } else { 0 },
            solicited: !is_good,
            source: None,
        }
    }
}
