//! The events that a traced lcore records: 16 bytes each, with a time.

use crate::stats::clock::Tick;
use crate::stats::counter::Count;

/// Declares the kinds of events with the numbers of the control socket's protocol.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal,)+) => {
        /// The kind of an event, which gives its place and its value their meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum TraceKind {
            $($(#[$doc])* $kind = $number,)+
        }

        impl TraceKind {
            /// Returns the kind with this number.
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
    /// A turn that found work began. Value: the nanoseconds since the lcore last looked for work,
    /// or awoke: the longest that this work had waited.
    Turn = 1,
    /// The turn ended.
    TurnEnd = 2,
    /// A stage (place) is called with a batch. Value: its packets.
    Process = 3,
    /// A stage (place) is polled.
    Poll = 4,
    /// The stage returned. Value: the packets that it has sent.
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
    /// The lcore awoke at that time. Place: a cause ([`TraceKind::CAUSES`]). Value: the nanoseconds
    /// that it had slept.
    Asleep = 13,
    /// The lcore found at that time that it had been kept from its CPU since it last read the
    /// clock. Value: for how many nanoseconds.
    Stolen = 14,
    /// Turns of the lcore (value) that were not recorded since the trace began: the lcore recorded
    /// more events than could be taken.
    Lost = 15,
    /// All events that the lcores recorded before this time, at which the trace looked, have come.
    Now = 16,
    /// The following events are of an lcore (place).
    Lcore = 17,
    /// The lcore records nothing from then until its next event. The ways of its packets meanwhile
    /// are not known.
    Rests = 18,
}

impl TraceKind {
    /// The causes that end a sleep, by the place of [`TraceKind::Asleep`].
    pub const CAUSES: [&str; 6] = ["completion", "ring", "fd", "control", "timer", "timeout"];

    /// Whether the event's value is a packet.
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

/// An event: a time, a kind, a place, and a value, which for packets is their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The time, by the run's clock.
    pub at_ns: Tick,
    /// Value, place and kind: bits 0 to 39, 40 to 55, 56 to 63.
    word: u64,
}

impl TraceEvent {
    /// Bytes of an event.
    pub const BYTES: usize = 16;

    /// Makes an event; a value that is too high becomes the highest.
    #[inline]
    pub fn new(kind: TraceKind, at_ns: Tick, place: u16, value: u64) -> TraceEvent {
        TraceEvent { at_ns, word: (kind as u64) << 56 | u64::from(place) << 40 | value.min(VALUE_MAX) }
    }

    /// Makes an event of a packet.
    #[inline]
    pub fn of_packet(kind: TraceKind, at_ns: Tick, place: u16, packet: u32, is_marked: bool) -> TraceEvent {
        let mark = if is_marked { MARK } else { 0 };
        TraceEvent::new(kind, at_ns, place, u64::from(packet) | mark)
    }

    /// The kind; `None`: a kind that is not known here.
    pub fn kind(&self) -> Option<TraceKind> {
        TraceKind::from_number((self.word >> 56) as u8)
    }

    /// The place: an index of [`Trace::places`](crate::Trace::places), unless the kind says
    /// otherwise.
    pub fn place(&self) -> u16 {
        (self.word >> 40) as u16
    }

    /// Its value.
    pub fn value(&self) -> u64 {
        self.word & VALUE_MAX
    }

    /// The packet, by the number of its buffer, which no other packet has while this one is held.
    pub fn packet(&self) -> u32 {
        self.word as u32
    }

    /// Whether the filter marks the packet.
    pub fn is_marked(&self) -> bool {
        self.word & MARK != 0
    }

    /// The event in the form that goes to a client.
    pub fn bytes(&self) -> [u8; TraceEvent::BYTES] {
        let mut bytes = [0; TraceEvent::BYTES];
        bytes[..8].copy_from_slice(&self.at_ns.to_le_bytes());
        bytes[8..].copy_from_slice(&self.word.to_le_bytes());
        bytes
    }

    /// The event from the form that a client receives.
    pub fn from_bytes(bytes: [u8; TraceEvent::BYTES]) -> TraceEvent {
        let [at_ns, word] = [0, 8].map(|from| {
            let mut half = [0; 8];
            half.copy_from_slice(&bytes[from..from + 8]);
            u64::from_le_bytes(half)
        });
        TraceEvent { at_ns, word }
    }
}

/// The view that the trace's thread has of the recorder beside its events: lost turns, and the
/// present turn, which has brought no event yet.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The number of lost turns.
    pub(crate) lost: Count,
    /// The beginning of the present turn; 0: there is none.
    pub(crate) turn_ns: Count,
    /// The place of the stage that it calls, plus one, or 0; and the beginning of that call.
    pub(crate) calls: Count,
    pub(crate) called_ns: Count,
}

impl Told {
    /// Returns the events of the present turn, as if it ended at `now_ns`.
    pub(crate) fn standing(&self, now_ns: Tick) -> Option<Vec<TraceEvent>> {
        let turn_ns = Some(self.turn_ns.value()).filter(|turn_ns| *turn_ns > 0)?;
        let event = |kind, at_ns, place| TraceEvent::new(kind, at_ns, place, 0);
        let mut events = vec![event(TraceKind::Turn, turn_ns, 0)];
        if let Some(place) = self.calls.value().checked_sub(1) {
            let (place, called_ns) = (place as u16, self.called_ns.value().max(turn_ns));
            events.extend([event(TraceKind::Process, called_ns, place), event(TraceKind::Return, now_ns, place)]);
        }
        events.push(event(TraceKind::TurnEnd, now_ns, 0));
        Some(events)
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

    #[test]
    fn a_turn_that_stands_is_told_with_the_stage_that_is_called() {
        let told = Told::default();
        assert_eq!(told.standing(90), None, "between two turns");
        told.turn_ns.set(10);
        let event = |kind, at_ns, place| TraceEvent::new(kind, at_ns, place, 0);
        let (turn, end) = (event(TraceKind::Turn, 10, 0), event(TraceKind::TurnEnd, 90, 0));
        assert_eq!(told.standing(90), Some(vec![turn, end]));
        told.called_ns.set(30);
        told.calls.set(5);
        let call = [event(TraceKind::Process, 30, 4), event(TraceKind::Return, 90, 4)];
        assert_eq!(told.standing(90), Some(vec![turn, call[0], call[1], end]));
    }
}
