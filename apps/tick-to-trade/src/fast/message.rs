//! A decoded datagram, in fixed structs that the decoder reuses.

use std::fmt;

/// The most entries of one message; a datagram of 1,500 bytes cannot carry that many.
pub const ENTRIES_MAX: usize = 256;

/// A decimal as the feed sends it: `mantissa * 10^exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decimal {
    /// The digits.
    pub mantissa: i64,
    /// The power of ten.
    pub exponent: i32,
}

impl Decimal {
    /// The value times 10^5, the finest price step of the market; `None` if that is not a 64-bit
    /// integer.
    #[inline]
    pub fn to_e5(self) -> Option<i64> {
        match self.exponent.checked_add(5)? {
            up @ 0.. => self.mantissa.checked_mul(10i64.checked_pow(up as u32)?),
            down => {
                let divisor = 10i64.checked_pow(down.unsigned_abs())?;
                (self.mantissa % divisor == 0).then(|| self.mantissa / divisor)
            }
        }
    }
}

/// `MDUpdateAction` (279).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Action {
    /// 0.
    #[default]
    New,
    /// 1.
    Change,
    /// 2.
    Delete,
    /// Any other number: the market sent none in the recording.
    Other(u32),
}

/// `MDEntryType` (269).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntryType {
    /// `0`.
    Bid,
    /// `1`.
    Offer,
    /// `2`.
    Trade,
    /// `J`: the book is empty.
    EmptyBook,
    /// Any other; its first character, 0 when the field was absent or empty.
    Other(u8),
    /// Not given.
    #[default]
    Absent,
}

/// One entry of a message's `MDEntries`. `None` means "absent in the message".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// New, change or delete; new in a snapshot.
    pub action: Action,
    /// Bid, offer, ….
    pub entry_type: EntryType,
    /// `SecurityID` (48); in a snapshot, the message has it.
    pub security_id: Option<u64>,
    /// `RptSeq` (83): numbers the entries of an instrument; in a snapshot, the message has it.
    pub rpt_seq: u32,
    /// `MarketDepth` (264).
    pub market_depth: Option<u32>,
    /// `MDPriceLevel` (1023), from 1.
    pub level: Option<u32>,
    /// `MDEntryPx` (270).
    pub price: Option<Decimal>,
    /// `MDEntrySize` (271).
    pub size: Option<i64>,
    /// `MDEntryTime` (273), HHMMSSsss.
    pub time: u32,
    /// `ExchangeTradingSessionID` (5842).
    pub session_id: Option<u32>,
}

/// The kind of a message, by its template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageKind {
    /// Template 74: changes to books.
    Increment,
    /// Template 75: one instrument's whole book.
    Snapshot,
    /// Template 66: state of the session.
    SessionStatus,
    /// Template 78: state of one instrument.
    SecurityStatus,
    /// Template 49: sequence numbers start anew.
    SequenceReset,
    /// Template 44.
    Heartbeat,
    /// Another template of the file: decoded, but only its sequence number and time are kept.
    #[default]
    Other,
}

/// One decoded message. A field that the message does not have is 0 or `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The kind.
    pub kind: MessageKind,
    /// The template's id.
    pub template_id: u32,
    /// `MsgSeqNum` (34).
    pub msg_seq_num: u32,
    /// `SendingTime` (52), YYYYMMDDHHMMSSsss.
    pub sending_time: u64,
    /// `RptSeq` (83) of a snapshot.
    pub rpt_seq: u32,
    /// `LastMsgSeqNumProcessed` (369) of a snapshot: the last increment that it contains.
    pub last_msg_seq_num_processed: u32,
    /// `SecurityID` (48) of a snapshot, or of an instrument's state.
    pub security_id: Option<u64>,
    /// `NewSeqNo` (36) of a sequence reset.
    pub new_seq_num: u32,
    /// `TradSesStatus` (340) of a session status.
    pub session_status: u32,
    /// `SecurityTradingStatus` (326) of an instrument's state; absent if the message is only about
    /// limits.
    pub trading_status: Option<u32>,
    /// The entries; their capacity stays [`ENTRIES_MAX`].
    pub entries: Vec<Entry>,
}

impl Default for Message {
    fn default() -> Self {
        Self::of(Vec::with_capacity(ENTRIES_MAX))
    }
}

impl Message {
    /// An empty message with room for [`ENTRIES_MAX`] entries, for [`super::Decoder::decode`] to
    /// fill.
    pub fn new() -> Self {
        Self::default()
    }

    /// `sending_time` as milliseconds since midnight; `None` if it is not a time of day.
    pub fn sending_time_ms_of_day(&self) -> Option<u32> {
        let time = (self.sending_time % 1_000_000_000) as u32;
        let (h, m, s, ms) = (time / 10_000_000, time / 100_000 % 100, time / 1000 % 100, time % 1000);
        (h < 24 && m < 60 && s < 61).then(|| ((h * 60 + m) * 60 + s) * 1000 + ms)
    }

    pub(super) fn clear(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        // `Default` would allocate another vector.
        *self = Self::of(entries);
    }

    fn of(entries: Vec<Entry>) -> Self {
        Self {
            kind: MessageKind::Other,
            template_id: 0,
            msg_seq_num: 0,
            sending_time: 0,
            rpt_seq: 0,
            last_msg_seq_num_processed: 0,
            security_id: None,
            new_seq_num: 0,
            session_status: 0,
            trading_status: None,
            entries,
        }
    }
}

/// A short string; bytes beyond 15 are read but not kept. No field that the decoder keeps is
/// longer.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Text {
    len: u8,
    bytes: [u8; 15],
}

impl Text {
    #[inline]
    pub(super) fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(usize::from(self.len)) {
            *place = byte;
            self.len += 1;
        }
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut text = Self::default();
        bytes.iter().for_each(|&byte| text.push(byte));
        text
    }

    #[cfg(test)]
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap()
    }

    /// The first byte; 0 in an empty string.
    #[inline]
    pub(super) fn first(&self) -> u8 {
        self.bytes[0]
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.bytes[..usize::from(self.len)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_scale_or_refuse() {
        let e5 = |mantissa, exponent| Decimal { mantissa, exponent }.to_e5();
        assert_eq!(e5(133_310, 0), Some(13_331_000_000));
        assert_eq!(e5(13_331, 1), Some(13_331_000_000));
        assert_eq!(e5(12_345, -5), Some(12_345));
        assert_eq!(e5(12_340, -6), Some(1_234));
        assert_eq!(e5(12_345, -6), None);
        assert_eq!(e5(i64::MAX, 0), None);
        assert_eq!(e5(0, i32::MAX), None);
        assert_eq!(e5(1, i32::MIN), None);
    }

    #[test]
    fn a_time_of_day_or_nothing() {
        let at = |sending_time| Message { sending_time, ..Message::new() }.sending_time_ms_of_day();
        assert_eq!(at(20_130_801_142_437_941), Some(((14 * 60 + 24) * 60 + 37) * 1000 + 941));
        assert_eq!(at(20_130_801_992_437_941), None);
    }
}
