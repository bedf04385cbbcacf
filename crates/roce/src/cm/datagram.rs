//! A message on the wire: a datagram from queue pair 1 to queue pair 1.

use crate::cm::mad::MAD_BYTES;
use crate::wire::{Bth, Deth, Packet, Psn, Qpn, Route, Segment};

/// The Q_Key of queue pair 1, on every device.
pub const MANAGEMENT_QKEY: u32 = 0x8001_0000;

/// Writes a message as a datagram into `out`; returns its length. `psn` counts the datagrams that
/// queue pair 1 sends; `ip_id` as in [`seal`](crate::wire::seal).
///
/// # Panics
/// If `out` has no room for [`MAD_BYTES`] and
/// [`HEADERS_MAX_BYTES`](crate::wire::HEADERS_MAX_BYTES).
pub fn write_datagram(mad: &[u8; MAD_BYTES], psn: Psn, route: &Route, ip_id: u16, out: &mut [u8]) -> usize {
    let segment = Segment::Ud(Deth { qkey: MANAGEMENT_QKEY, source: Qpn::MANAGEMENT }, None);
    Packet { bth: Bth::new(Qpn::MANAGEMENT, psn), segment, payload: mad }.write(out, route, ip_id)
}
