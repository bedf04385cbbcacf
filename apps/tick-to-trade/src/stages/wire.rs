//! The app's own messages on the wire: the timing behind an order, and the report.

use crate::itch::Side;

/// The length of the timing behind an order: when its tick was received and when the order was
/// decided, in ns of the runtime's clock.
pub(super) const TIMING_LEN_BYTES: usize = 16;

/// The timing behind an order's 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    pub(super) received_ns: u64,
    pub(super) decided_ns: u64,
}

impl Timing {
    #[inline]
    pub(super) fn to_bytes(self) -> [u8; TIMING_LEN_BYTES] {
        let mut bytes = [0; TIMING_LEN_BYTES];
        bytes[..8].copy_from_slice(&self.received_ns.to_le_bytes());
        bytes[8..].copy_from_slice(&self.decided_ns.to_le_bytes());
        bytes
    }

    #[inline]
    pub(super) fn from_bytes(bytes: &[u8; TIMING_LEN_BYTES]) -> Timing {
        let (received, decided) = bytes.split_at(8);
        let number = |part: &[u8]| part.first_chunk().map_or(0, |part| u64::from_le_bytes(*part));
        Timing { received_ns: number(received), decided_ns: number(decided) }
    }
}

/// The exchange's answer to an order. Orders are immediate or cancel, so one report settles each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExecutionReport {
    /// The order's id.
    pub(super) order_id: u64,
    pub(super) side: Side,
    /// The quantity filled at the order's price.
    pub(super) filled: u32,
    /// The quantity cancelled.
    pub(super) cancelled: u32,
}

/// The length of a report: type, side, two zeros, filled, cancelled, order id.
pub(super) const REPORT_LEN_BYTES: usize = 20;

impl ExecutionReport {
    pub(super) fn to_bytes(self) -> [u8; REPORT_LEN_BYTES] {
        let mut bytes = [0; REPORT_LEN_BYTES];
        bytes[0] = b'R';
        bytes[1] = self.side.to_byte();
        bytes[4..8].copy_from_slice(&self.filled.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.cancelled.to_be_bytes());
        bytes[12..].copy_from_slice(&self.order_id.to_be_bytes());
        bytes
    }

    /// Parses a report; `None` if the bytes are none.
    pub(super) fn parse(bytes: &[u8]) -> Option<ExecutionReport> {
        let bytes: &[u8; REPORT_LEN_BYTES] = bytes.try_into().ok()?;
        let side = match bytes[..2] {
            [b'R', b'B'] => Side::Buy,
            [b'R', b'S'] => Side::Sell,
            _ => return None,
        };
        Some(ExecutionReport {
            side,
            filled: u32::from_be_bytes(*bytes[4..].first_chunk()?),
            cancelled: u32::from_be_bytes(*bytes[8..].first_chunk()?),
            order_id: u64::from_be_bytes(*bytes[12..].first_chunk()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let timing = Timing { received_ns: 1, decided_ns: u64::MAX };
        assert_eq!(Timing::from_bytes(&timing.to_bytes()), timing);
        let report = ExecutionReport { order_id: 1 << 40, side: Side::Sell, filled: 3, cancelled: 4 };
        let bytes = report.to_bytes();
        assert_eq!(ExecutionReport::parse(&bytes), Some(report));
        assert_eq!(ExecutionReport::parse(&bytes[..19]), None);
        assert_eq!(ExecutionReport::parse(&[b'R'; REPORT_LEN_BYTES]), None);
    }
}
