//! Message fields with types of their own.

use std::fmt;

/// A side of the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Side {
    /// Bids.
    Buy = 0,
    /// Asks.
    Sell = 1,
}

impl Side {
    /// The other side.
    #[inline]
    pub fn opposite(self) -> Side {
        match self {
            Side::Buy => Side::Sell,
            Side::Sell => Side::Buy,
        }
    }

    /// `B` or `S`, as on the wire.
    #[inline]
    pub fn to_byte(self) -> u8 {
        match self {
            Side::Buy => b'B',
            Side::Sell => b'S',
        }
    }
}

/// An instrument's symbol: ASCII, padded with spaces on the right.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Symbol(pub [u8; 8]);

impl Symbol {
    /// Pads `text` with spaces; `None` if it is longer than 8 bytes or not printable ASCII.
    pub fn new(text: &str) -> Option<Self> {
        if text.len() > 8 || !text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            return None;
        }
        let mut padded = [b' '; 8];
        padded[..text.len()].copy_from_slice(text.as_bytes());
        Some(Self(padded))
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().rposition(|&b| b != b' ').map_or(0, |at| at + 1);
        self.0[..end].escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.escape_ascii().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_pad_and_print() {
        assert_eq!(Symbol::new("VERB").map(|s| (s.0, s.to_string())), Some((*b"VERB    ", "VERB".to_string())));
        assert_eq!(Symbol::new("TOOLONGED"), None);
        assert_eq!(Symbol::new("ä"), None);
    }
}
