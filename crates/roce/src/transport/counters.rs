//! What a queue pair counts.

/// Why a packet was discarded. None of these is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Discard {
    /// It is no packet.
    #[error("the bytes are no packet")]
    Malformed,
    /// No queue pair has the number.
    #[error("no queue pair has the packet's destination")]
    NoQueuePair,
    /// The checksum is wrong.
    #[error("the ICRC is wrong")]
    Icrc,
    /// The queue pair doesn't receive, or failed.
    #[error("the queue pair is not ready to receive")]
    NotReady,
    /// The packet is another transport's.
    #[error("the packet's transport is not the queue pair's")]
    Transport,
    /// It is not from the connected peer's address.
    #[error("the packet is not from the connected peer")]
    Stranger,
    /// The partition key is not the default one, or the datagram's key is not the queue pair's.
    #[error("the packet's partition or queue key is wrong")]
    Key,
    /// Its number is far from what can be expected.
    #[error("the packet's number is outside the window")]
    OutsideWindow,
    /// A packet before it is missing.
    #[error("a packet before this one is missing")]
    OutOfOrder,
    /// It came before.
    #[error("the packet came before")]
    Duplicate,
    /// It doesn't fit what it belongs to.
    #[error("the packet doesn't fit its message or its request")]
    Unfitting,
    /// No receive is posted, or none is long enough, and nobody is to be told.
    #[error("no receive takes the packet")]
    NoReceive,
    /// A key or a right is missing, and nobody is to be told.
    #[error("the queue pair or a key doesn't grant what the packet asks for")]
    Refused,
}

/// The number of reasons.
pub(crate) const DISCARDS: usize = Discard::Refused as usize + 1;

/// What happened since a queue pair was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that were taken in.
    pub received: u64,
    /// Packets that were sent again.
    pub retransmitted: u64,
    /// The peer's requests that came again.
    pub duplicates: u64,
    /// Packets that came too early.
    pub out_of_order: u64,
    /// Acknowledgements that were sent.
    pub acks_sent: u64,
    /// Refusals that were sent because of a missing packet.
    pub sequence_naks_sent: u64,
    /// The same, received.
    pub sequence_naks_received: u64,
    /// Refusals that were sent because no receive was posted.
    pub rnr_naks_sent: u64,
    /// The same, received.
    pub rnr_naks_received: u64,
    /// Refusals that ended a connection, sent.
    pub fatal_naks_sent: u64,
    /// The same, received.
    pub fatal_naks_received: u64,
    /// Times that no acknowledgement came.
    pub timeouts: u64,
    discarded: [u64; DISCARDS],
}

impl Counters {
    /// Packets that were discarded for a reason.
    pub fn discarded(&self, why: Discard) -> u64 {
        self.discarded[why as usize]
    }

    pub(crate) fn discard(&mut self, why: Discard) {
        self.discarded[why as usize] += 1;
    }
}
