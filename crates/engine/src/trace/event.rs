//! What an lcore records while it is traced: events of 16 bytes, each with its time.

use crate::stats::clock::Tick;

/// Declares the kinds of events with their numbers, which the control socket's protocol has.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal,)+) => {
        /// What an event is, and what its place and its value mean.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum TraceKind {
            $($(#[$doc])* $kind = $number,)+
        }

        impl TraceKind {
            /// The kind of this number.
            pub fn from_number(number: u8) -> Option<TraceKind> {
                match number {
                    $($number => Some(TraceKind::$kind),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// A turn that found work began. Value: the nanoseconds since the lcore looked for work before,
    /// or awoke: what it found had waited for that long at most.
    Turn = 1,
    /// The turn ended.
    TurnEnd = 2,
    /// A stage (place) is called with a batch of packets (value).
    Process = 3,
    /// A stage (place) is polled.
    Poll = 4,
    /// The stage returned, and has sent packets (value).
    Return = 5,
    /// A port (place) has received a packet.
    Received = 6,
    /// A packet was taken from a ring or an injector (place).
    Popped = 7,
    /// A packet is in the batch that a stage (place) is called with.
    Entered = 8,
    /// A stage (place) has sent a packet.
    Sent = 9,
    /// A packet was put into a ring (place).
    Pushed = 10,
    /// A port (place) has posted a packet to be sent.
    Posted = 11,
    /// A port (place) has dropped a packet that it was to send.
    Dropped = 12,
    /// The lcore awoke at that time. Place: a cause ([`TraceKind::CAUSES`]). Value: for how many
    /// nanoseconds it had slept.
    Asleep = 13,
    /// The lcore found at that time that it had been kept from its CPU since it read the clock
    /// before. Value: for how many nanoseconds.
    Stolen = 14,
    /// Turns of the lcore (value) that were not recorded since the trace began: more were recorded
    /// than could be taken.
    Lost = 15,
    /// All that was recorded by the lcores before the trace looked, at that time, has come.
    Now = 16,
    /// What follows is of an lcore (place).
    Lcore = 17,
    /// The lcore records nothing from then until its next event. What it does with its packets
    /// meanwhile is not known.
    Rests = 18,
}

impl TraceKind {
    /// What ended a sleep, by the place of [`TraceKind::Asleep`].
    pub const CAUSES: [&str; 6] = ["completion", "ring", "fd", "control", "timer", "timeout"];

    /// Whether its value is a packet.
    pub fn is_of_packet(self) -> bool {
        use TraceKind as Kind;
        let of_packet =
            [Kind::Received, Kind::Popped, Kind::Entered, Kind::Sent, Kind::Pushed, Kind::Posted, Kind::Dropped];
        of_packet.contains(&self)
    }
}

/// The highest value of an event.
const VALUE_MAX: u64 = (1 << 40) - 1;

/// Set in the value of a packet that the filter marks.
const MARK: u64 = 1 << 32;

/// An event: when, what, where, and a value, which for packets is their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// By the run's clock.
    pub at_ns: Tick,
    /// Value, place and kind: bits 0 to 39, 40 to 55, 56 to 63.
    word: u64,
}

impl TraceEvent {
    /// Bytes of an event.
    pub const BYTES: usize = 16;

    /// An event; a value that is too high is the highest that there is.
    #[inline]
    pub fn new(kind: TraceKind, at_ns: Tick, place: u16, value: u64) -> TraceEvent {
        TraceEvent { at_ns, word: (kind as u64) << 56 | u64::from(place) << 40 | value.min(VALUE_MAX) }
    }

    /// An event of a packet.
    #[inline]
    pub fn of_packet(kind: TraceKind, at_ns: Tick, place: u16, packet: u32, is_marked: bool) -> TraceEvent {
        let mark = if is_marked { MARK } else { 0 };
        TraceEvent::new(kind, at_ns, place, u64::from(packet) | mark)
    }

    /// What it is; `None`: a kind that is not known here.
    pub fn kind(&self) -> Option<TraceKind> {
        TraceKind::from_number((self.word >> 56) as u8)
    }

    /// Where: its place among [`Trace::places`](crate::Trace::places), unless its kind says
    /// otherwise.
    pub fn place(&self) -> u16 {
        (self.word >> 40) as u16
    }

    /// Its value.
    pub fn value(&self) -> u64 {
        self.word & VALUE_MAX
    }

    /// The packet, by the number of its buffer: no other packet has that for as long as this one is
    /// held.
    pub fn packet(&self) -> u32 {
        self.word as u32
    }

    /// Whether the filter marks the packet.
    pub fn is_marked(&self) -> bool {
        self.word & MARK != 0
    }

    /// As it goes to a client.
    pub fn bytes(&self) -> [u8; TraceEvent::BYTES] {
        let mut bytes = [0; TraceEvent::BYTES];
        bytes[..8].copy_from_slice(&self.at_ns.to_le_bytes());
        bytes[8..].copy_from_slice(&self.word.to_le_bytes());
        bytes
    }

    /// As a client reads it.
    pub fn from_bytes(bytes: [u8; TraceEvent::BYTES]) -> TraceEvent {
        let [at_ns, word] = [0, 8].map(|from| {
            let mut half = [0; 8];
            half.copy_from_slice(&bytes[from..from + 8]);
            u64::from_le_bytes(half)
        });
        TraceEvent { at_ns, word }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::wakes::WAKE_CAUSES;

    #[test]
    fn an_event_has_what_it_was_made_of_also_as_bytes() {
        let plain = TraceEvent::new(TraceKind::Asleep, 7, 3, u64::MAX);
        let packet = TraceEvent::of_packet(TraceKind::Sent, u64::MAX, u16::MAX, u32::MAX, true);
        for event in [plain, packet] {
            assert_eq!(TraceEvent::from_bytes(event.bytes()), event);
        }
        assert_eq!((plain.kind(), plain.place(), plain.value()), (Some(TraceKind::Asleep), 3, VALUE_MAX));
        assert_eq!((packet.place(), packet.packet(), packet.is_marked()), (u16::MAX, u32::MAX, true));
        assert!(!TraceEvent::of_packet(TraceKind::Sent, 0, 0, 9, false).is_marked());
        assert_eq!(TraceEvent::from_bytes([0xFF; 16]).kind(), None);
        assert_eq!((0..=u8::MAX).filter_map(TraceKind::from_number).count(), 18);
    }

    #[test]
    fn causes_stand_in_the_order_of_their_numbers() {
        assert_eq!(WAKE_CAUSES.map(|(_, name)| name), TraceKind::CAUSES);
    }
}
