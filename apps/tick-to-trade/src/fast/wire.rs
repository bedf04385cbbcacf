//! The transfer encoding: stop-bit integers, strings and presence maps (FAST 1.1, section 10.6).
//!
//! A byte carries 7 bits, most significant first; the top bit marks the last byte. In a nullable
//! field the value 0 means "absent", and other values are encoded plus one.

use super::error::Cause;
use super::message::Text;

/// A position in a datagram.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The bits of a segment's presence map, read from the most significant one; absent bits are 0.
#[derive(Clone, Copy)]
pub(super) struct PresenceMap {
    /// The next bit, at the top.
    bits: u64,
}

impl PresenceMap {
    #[inline]
    pub(super) fn next(&mut self) -> bool {
        let set = self.bits >> 63 == 1;
        self.bits <<= 1;
        set
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Cause> {
        let byte = *self.bytes.get(self.at).ok_or(Cause::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(super) fn presence_map(&mut self) -> Result<PresenceMap, Cause> {
        let mut bits = 0;
        // Nine bytes carry 63 bits: more than any template needs.
        for group in 0..9 {
            let byte = self.byte()?;
            bits |= u64::from(byte & 0x7f) << (57 - 7 * group);
            if byte & 0x80 != 0 {
                return Ok(PresenceMap { bits });
            }
        }
        Err(Cause::PresenceMap)
    }

    #[inline]
    pub(super) fn uint(&mut self) -> Result<u64, Cause> {
        let mut value = 0u64;
        loop {
            let byte = self.byte()?;
            if value >> 57 != 0 {
                return Err(Cause::Overflow);
            }
            value = value << 7 | u64::from(byte & 0x7f);
            if byte & 0x80 != 0 {
                return Ok(value);
            }
        }
    }

    #[inline]
    pub(super) fn int(&mut self) -> Result<i64, Cause> {
        let mut byte = self.byte()?;
        // The sign is the second highest bit of the first byte.
        let mut value = i64::from(((byte << 1) as i8) >> 1);
        while byte & 0x80 == 0 {
            byte = self.byte()?;
            if value.checked_shl(7).is_none_or(|shifted| shifted >> 7 != value) {
                return Err(Cause::Overflow);
            }
            value = value << 7 | i64::from(byte & 0x7f);
        }
        Ok(value)
    }

    #[inline]
    pub(super) fn uint_nullable(&mut self) -> Result<Option<u64>, Cause> {
        Ok(self.uint()?.checked_sub(1))
    }

    #[inline]
    pub(super) fn int_nullable(&mut self) -> Result<Option<i64>, Cause> {
        Ok(match self.int()? {
            0 => None,
            value if value > 0 => Some(value - 1),
            value => Some(value),
        })
    }

    /// Reads ASCII up to the stop bit. A single 0x80 is absent if nullable, else empty; 0x00 0x80
    /// is empty if nullable.
    #[inline]
    pub(super) fn ascii(&mut self, nullable: bool) -> Result<Option<Text>, Cause> {
        let mut text = Text::default();
        let first = self.byte()?;
        match first {
            0x80 if nullable => return Ok(None),
            0x80 => return Ok(Some(text)),
            0x00 => {
                // A leading zero byte: the empty string if nothing else follows, else an overlong
                // encoding.
                return if self.byte()? == 0x80 { Ok(Some(text)) } else { Err(Cause::Overlong) };
            }
            _ => {}
        }
        let mut byte = first;
        loop {
            text.push(byte & 0x7f);
            if byte & 0x80 != 0 {
                return Ok(Some(text));
            }
            byte = self.byte()?;
        }
    }

    /// Reads a length and that many bytes; `None` if nullable and absent.
    pub(super) fn blob(&mut self, nullable: bool) -> Result<Option<&'a [u8]>, Cause> {
        let len = if nullable { self.uint_nullable()? } else { Some(self.uint()?) };
        let Some(len) = len else { return Ok(None) };
        if len > self.remaining() as u64 {
            return Err(Cause::Truncated);
        }
        let start = self.at;
        self.at += len as usize;
        Ok(Some(&self.bytes[start..self.at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The examples of FAST 1.1, appendix 3.
    #[test]
    fn integers_of_the_specification() {
        assert_eq!(Reader::new(&[0x39, 0x45, 0xa3]).uint(), Ok(942_755));
        assert_eq!(Reader::new(&[0x39, 0x45, 0xa4]).uint_nullable(), Ok(Some(942_755)));
        assert_eq!(Reader::new(&[0x80]).uint_nullable(), Ok(None));
        assert_eq!(Reader::new(&[0x46, 0x3a, 0xdd]).int_nullable(), Ok(Some(-942_755)));
        assert_eq!(Reader::new(&[0x7c, 0x1b, 0x1b, 0x9d]).int(), Ok(-7_942_755));
        assert_eq!(Reader::new(&[0x00, 0x40, 0x81]).int(), Ok(8_193));
        assert_eq!(Reader::new(&[0x7f, 0x3f, 0xff]).int(), Ok(-8_193));
        assert_eq!(Reader::new(&[0x80]).int_nullable(), Ok(None));
    }

    #[test]
    fn limits_are_errors_not_wraps() {
        let mut max = [0x7f; 10];
        max[0] = 0x01;
        max[9] = 0xff;
        assert_eq!(Reader::new(&max).uint(), Ok(u64::MAX));
        max[0] = 0x02;
        assert_eq!(Reader::new(&max).uint(), Err(Cause::Overflow));
        let mut min = [0x00; 10];
        min[0] = 0x7f;
        min[9] = 0x80;
        assert_eq!(Reader::new(&min).int(), Ok(i64::MIN));
        min[0] = 0x7e;
        assert_eq!(Reader::new(&min).int(), Err(Cause::Overflow));
        assert_eq!(Reader::new(&[0x01]).uint(), Err(Cause::Truncated));
        assert!(matches!(Reader::new(&[0; 10]).presence_map(), Err(Cause::PresenceMap)));
    }

    #[test]
    fn strings_and_presence_maps() {
        assert_eq!(Reader::new(&[0x41, 0x42, 0xc3]).ascii(false).unwrap().unwrap().as_str(), "ABC");
        assert_eq!(Reader::new(&[0x80]).ascii(true), Ok(None));
        assert_eq!(Reader::new(&[0x80]).ascii(false).unwrap().unwrap().as_str(), "");
        assert_eq!(Reader::new(&[0x00, 0x80]).ascii(true).unwrap().unwrap().as_str(), "");
        let mut map = Reader::new(&[0b0100_0000, 0b1010_0000]).presence_map().unwrap();
        let bits: Vec<bool> = (0..15).map(|_| map.next()).collect();
        assert_eq!(bits.iter().enumerate().filter(|(_, b)| **b).map(|(i, _)| i).collect::<Vec<_>>(), [0, 8]);
    }
}
