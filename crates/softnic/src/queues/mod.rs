//! The queues' state: posted, free and waiting work requests. `data_path` carries them out.
//! The bits of `Inbound::accept`: the senders that a queue pair accepts messages from, in one word
//! that a sender compares with the expected one.

pub(crate) mod due;
pub(crate) mod pending;
pub(crate) mod rq;
pub(crate) mod sq;
pub(crate) mod timer;
pub(crate) mod wqe;
pub(crate) mod wr;

/// A UD queue pair that receives.
pub(crate) const ACCEPT_DATAGRAMS: u32 = 1 << 30;
/// The first message establishes the connection, and raises its event.
pub(crate) const NOT_ESTABLISHED: u32 = 1 << 31;
/// An RC queue pair where no message has arrived yet.
pub(crate) const AWAITS_FIRST: u32 = 1 << 29;
/// In the word that an RC sender expects: it has sent no message yet. Another bit than the
/// receiver's, so that the fast path finds them different.
pub(crate) const SENDS_FIRST: u32 = 1 << 28;

/// A connected queue pair: messages from `qpn` that are addressed to `device`.
pub(crate) fn accept_from(qpn: u32, device: usize) -> u32 {
    qpn | (device as u32) << 24
}
