//! The extension headers: an operation's fields beside its payload.

use crate::wire::header::Qpn;

/// The memory that an RDMA operation accesses (RETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// The first byte's address at the responder.
    pub addr: u64,
    /// The responder's R_Key of it.
    pub rkey: u32,
    /// The length of the whole operation.
    pub len: u32,
}

/// The effect of an atomic on its eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Stores `swap` if the word is `compare`.
    CompareSwap {
        /// The expected word.
        compare: u64,
        /// The new word.
        swap: u64,
    },
    /// Adds to the word; the sum wraps.
    FetchAdd(u64),
}

/// An atomic and its address (AtomicETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicExtension {
    /// The word's address at the responder: a multiple of eight.
    pub addr: u64,
    /// The responder's R_Key of it.
    pub rkey: u32,
    /// The effect.
    pub op: AtomicOp,
}

/// A datagram's fields for its receiver (DETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// The receiving queue pair's Q_Key.
    pub qkey: u32,
    /// The sending queue pair.
    pub source: Qpn,
}

/// The syndrome and message number of an acknowledgement (AETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syndrome {
    /// The responder's verdict: see the constants.
    pub code: u8,
    /// The responder's count of messages, 24 bits.
    pub msn: u32,
}

impl Syndrome {
    /// Acknowledged; the responder doesn't count credits.
    pub const ACK: u8 = 0x1F;
    /// No receive was posted: wait for the time of the low five bits.
    pub const RNR: u8 = 0x20;
    /// A packet is missing.
    pub const NAK_SEQUENCE: u8 = 0x60;
    /// The request is invalid.
    pub const NAK_INVALID_REQUEST: u8 = 0x61;
    /// The key doesn't grant the access.
    pub const NAK_REMOTE_ACCESS: u8 = 0x62;
    /// The responder could not carry out the request.
    pub const NAK_REMOTE_OPERATION: u8 = 0x63;
}

pub(crate) const ATOMIC_BYTES: usize = 28;
pub(crate) const WORD_BYTES: usize = 4;

/// Takes headers off the front of a packet.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    pub(crate) fn reth(&mut self) -> Option<Reth> {
        Some(Reth { addr: self.long()?, rkey: self.word()?, len: self.word()? })
    }

    pub(crate) fn atomic(&mut self, compares: bool) -> Option<AtomicExtension> {
        let (addr, rkey, first, compare) = (self.long()?, self.word()?, self.long()?, self.long()?);
        let op = if compares { AtomicOp::CompareSwap { compare, swap: first } } else { AtomicOp::FetchAdd(first) };
        Some(AtomicExtension { addr, rkey, op })
    }

    pub(crate) fn deth(&mut self) -> Option<Deth> {
        Some(Deth { qkey: self.word()?, source: Qpn::new(self.word()?) })
    }

    pub(crate) fn syndrome(&mut self) -> Option<Syndrome> {
        let word = self.word()?;
        Some(Syndrome { code: (word >> 24) as u8, msn: word & 0xFF_FFFF })
    }
}

/// Appends headers to one another.
pub(crate) struct Writer<'a> {
    pub(crate) out: &'a mut [u8],
    pub(crate) len: usize,
}

impl Writer<'_> {
    pub(crate) fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.out[self.len..self.len + N].copy_from_slice(&bytes);
        self.len += N;
    }

    pub(crate) fn word(&mut self, word: u32) {
        self.put(word.to_be_bytes());
    }

    pub(crate) fn long(&mut self, long: u64) {
        self.put(long.to_be_bytes());
    }

    pub(crate) fn reth(&mut self, reth: &Reth) {
        self.long(reth.addr);
        self.word(reth.rkey);
        self.word(reth.len);
    }

    pub(crate) fn atomic(&mut self, atomic: &AtomicExtension) {
        self.long(atomic.addr);
        self.word(atomic.rkey);
        let (first, compare) = match atomic.op {
            AtomicOp::CompareSwap { compare, swap } => (swap, compare),
            AtomicOp::FetchAdd(add) => (add, 0),
        };
        self.long(first);
        self.long(compare);
    }

    pub(crate) fn deth(&mut self, deth: &Deth) {
        self.word(deth.qkey);
        self.word(deth.source.number());
    }

    pub(crate) fn syndrome(&mut self, syndrome: Syndrome) {
        self.word(u32::from(syndrome.code) << 24 | syndrome.msn & 0xFF_FFFF);
    }
}
