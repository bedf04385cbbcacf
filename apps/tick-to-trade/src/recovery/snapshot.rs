//! Snapshots as sessions: their names, and their last message.
//!
//! A snapshot of one instrument is its stock directory and trading action, an add for each live
//! order, and an end of snapshot, with the sequence number at which the stream goes on. The
//! snapshot of locate code 0 is the directory of all instruments. The model is Nasdaq's GLIMPSE
//! 5.0, which also sends messages in the stream's own format and the same end, but for all
//! instruments at once and over SoupBinTCP.

use crate::mold::Session;

/// The name of a snapshot's session: `S`, the locate code in four hexadecimal digits, and five
/// digits of a number that the client chooses anew for each snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotName {
    /// The instrument; 0 is the directory of all.
    pub locate: u16,
    /// The client's number.
    pub number: u32,
}

/// The client's numbers are below this.
const NUMBERS: u32 = 1 << 20;

impl SnapshotName {
    /// The session's name.
    pub fn session(self) -> Session {
        let value = u64::from(self.locate) << 20 | u64::from(self.number % NUMBERS);
        let digit = |at: usize| b"0123456789ABCDEF"[(value >> (4 * (8 - at)) & 0xf) as usize];
        let mut session = [b'S'; 10];
        (0..9).for_each(|at| session[at + 1] = digit(at));
        session
    }

    /// The snapshot's name, if the session is one.
    pub fn of(session: &Session) -> Option<SnapshotName> {
        let (b'S', digits) = session.split_first()? else { return None };
        let mut value: u64 = 0;
        for &digit in digits {
            let digit = match digit {
                b'0'..=b'9' => digit - b'0',
                b'A'..=b'F' => digit - b'A' + 10,
                _ => return None,
            };
            value = value << 4 | u64::from(digit);
        }
        Some(SnapshotName { locate: (value >> 20) as u16, number: value as u32 % NUMBERS })
    }
}

/// The length of an end of snapshot: `G` and 20 digits.
pub const END_LEN_BYTES: usize = 21;

/// Writes an end of snapshot: the stream goes on with `sequence`.
pub fn end_of_snapshot(sequence: u64) -> [u8; END_LEN_BYTES] {
    let mut bytes = [b'G'; END_LEN_BYTES];
    let mut rest = sequence;
    for digit in bytes[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}

/// Reads an end of snapshot; `None` if the message is another. Digits may be padded with spaces on
/// the left.
pub fn read_end(message: &[u8]) -> Option<u64> {
    let message: &[u8; END_LEN_BYTES] = message.try_into().ok()?;
    let (b'G', digits) = message.split_first()? else { return None };
    let digits = digits.trim_ascii_start();
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| all_digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(locate in any::<u16>(), number in 0..NUMBERS, sequence in any::<u64>()) {
            let name = SnapshotName { locate, number };
            prop_assert_eq!(SnapshotName::of(&name.session()), Some(name));
            prop_assert_eq!(read_end(&end_of_snapshot(sequence)), Some(sequence));
        }

        #[test]
        fn anything_else_is_refused(session in any::<Session>(), message in prop::collection::vec(any::<u8>(), 0..30)) {
            if let Some(name) = SnapshotName::of(&session) {
                prop_assert_eq!(name.session(), session);
            }
            prop_assert!(read_end(&message).is_none_or(|_| message[0] == b'G'));
        }
    }

    #[test]
    fn names_and_ends_are_as_documented() {
        assert_eq!(&SnapshotName { locate: 0x2a, number: 7 }.session(), b"S002A00007");
        assert_eq!(SnapshotName::of(b"VERBLINE00"), None);
        assert_eq!(&end_of_snapshot(1234), b"G00000000000000001234");
        assert_eq!(read_end(b"G                1234"), Some(1234));
        assert_eq!((read_end(b"G99999999999999999999"), read_end(b"G                    ")), (None, None));
        assert_eq!(read_end(b"G               +1234"), None);
    }
}
