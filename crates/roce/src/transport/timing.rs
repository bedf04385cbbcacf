//! The waits that the wire and verbs name by a few bits.

/// The wait for an acknowledgement, by the five bits of verbs' `timeout`: 4.096 µs · 2^n; for ever
/// if they are 0.
pub fn ack_timeout_ns(code: u8) -> Option<u64> {
    let code = code & 0x1F;
    (code > 0).then(|| 4096 << code)
}

/// Hundredths of a millisecond; the first is the longest (table 46 of the specification).
const RNR_TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The wait for a receive to be posted, by the five bits of an RNR NAK.
pub fn rnr_timer_ns(code: u8) -> u64 {
    u64::from(RNR_TIMERS[usize::from(code & 0x1F)]) * 10_000
}
