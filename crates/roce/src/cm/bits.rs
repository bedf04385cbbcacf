//! Fields within a message's 232 bytes.

/// The bytes of a message behind its header.
pub(crate) const BODY_BYTES: usize = 232;

/// A message's body.
#[derive(Clone, Copy)]
pub(crate) struct Body(pub(crate) [u8; BODY_BYTES]);

impl Body {
    pub(crate) fn new() -> Body {
        Body([0; BODY_BYTES])
    }

    pub(crate) fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|index| self.0[at + index])
    }

    pub(crate) fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.0[at..at + N].copy_from_slice(&bytes);
    }

    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.bytes(at))
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.bytes(at))
    }

    /// Reads 24 bits, and the byte behind them.
    pub(crate) fn u24(&self, at: usize) -> (u32, u8) {
        let word = self.u32(at);
        (word >> 8, word as u8)
    }

    pub(crate) fn put_u16(&mut self, at: usize, value: u16) {
        self.put(at, value.to_be_bytes());
    }

    pub(crate) fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, value.to_be_bytes());
    }

    pub(crate) fn put_u64(&mut self, at: usize, value: u64) {
        self.put(at, value.to_be_bytes());
    }

    pub(crate) fn put_u24(&mut self, at: usize, value: u32, low: u8) {
        self.put_u32(at, value << 8 | u32::from(low));
    }
}

/// Copies as many of the bytes as fit, and pads with zeros.
pub(crate) fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    let len = bytes.len().min(N);
    padded[..len].copy_from_slice(&bytes[..len]);
    padded
}
