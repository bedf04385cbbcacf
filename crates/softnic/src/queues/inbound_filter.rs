//! `Inbound::accept`: whom a queue pair accepts messages from, in one word that a sender compares
//! with what it expects.

/// Of a UD queue pair that receives.
pub(crate) const ACCEPT_DATAGRAMS: u32 = 1 << 30;
/// The first message establishes the connection, and raises its event.
pub(crate) const NOT_ESTABLISHED: u32 = 1 << 31;
/// Of an RC queue pair: no message has arrived.
pub(crate) const AWAITS_FIRST: u32 = 1 << 29;
/// In what an RC sender expects: it has sent no message. Another bit, so that the fast path finds
/// them different.
pub(crate) const SENDS_FIRST: u32 = 1 << 28;

/// Of a connected queue pair: messages from `qpn` that are addressed to `device`.
pub(crate) fn accept_from(qpn: u32, device: usize) -> u32 {
    qpn | (device as u32) << 24
}
