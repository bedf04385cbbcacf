//! Asks a peer that does not answer in time, once, and long before the ACK time-out.
//!
//! A packet lost in the middle of a stream shows as soon as a later packet arrives. No packet
//! follows the last one under way: only time shows that it, or its acknowledgement, is lost. So if
//! an answer is owed, and no packet was acknowledged for a while, the last packet is sent once more
//! (a tail loss probe, RFC 8985). A responder that has it repeats its acknowledgement (C9-105). One
//! that misses an earlier packet reports that. One that lacks only this packet takes it in.
//!
//! Behind a READ or an atomic, a WRITE of no bytes asks instead, and causes no second answer. Its
//! number is the one before the first packet under way. The responder acknowledges all that it has,
//! behind the answers that it owes. If that is nothing new, the first packet under way is missing.
//!
//! A probe uses up no retry, and the ACK time-out runs on beside it. There is one probe at most
//! until a packet is acknowledged. The wait is four recent round trips at least, so that a loaded
//! peer gets few probes, and fewer the slower it becomes. A peer that answers both the packet and
//! the probe was only slow: the wait doubles, so that a peer whose process pauses now and then gets
//! few probes as well. It halves again when a probe was not needless. A peer that has acknowledged
//! nothing yet gets none: it may be starting, and its usual time is unknown.

/// The wait, in round trips.
const ROUND_TRIPS: u64 = 4;

/// The most doublings of the wait.
const DOUBLINGS_MAX: u8 = 6;

/// A new round trip's share of the smoothed one (RFC 6298).
const SMOOTHING: u64 = 8;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    state: State,
    /// The number behind a packet that asked for its acknowledgement, and the time of that packet.
    timed: Option<(u64, u64)>,
    /// The smoothed time from a packet to its acknowledgement; 0 while unknown.
    round_trip_ns: u64,
    /// How often the wait is doubled.
    doublings: u8,
    /// Whether the last probe was needless: the peer has answered twice.
    was_needless: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Off,
    At(u64),
    Due,
    Sent,
}

impl Probe {
    pub(crate) fn new() -> Probe {
        Probe { state: State::Off, timed: None, round_trip_ns: 0, doublings: 0, was_needless: true }
    }

    /// The time at which a probe is due.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::At(due_ns) => Some(due_ns),
            _ => None,
        }
    }

    /// Whether a probe is due.
    pub(crate) fn is_due(&self) -> bool {
        self.state == State::Due
    }

    /// Whether a probe was sent, and nothing acknowledged since.
    pub(crate) fn is_sent(&self) -> bool {
        self.state == State::Sent
    }

    /// Gives the peer time from now on, `least_ns` or more, if it owes an answer.
    pub(crate) fn restart(&mut self, now_ns: u64, is_owed: bool, least_ns: u64) {
        if self.state == State::Sent {
            return;
        }
        let wait_ns = (least_ns << self.doublings).max(ROUND_TRIPS.saturating_mul(self.round_trip_ns));
        self.state = if is_owed { State::At(now_ns.saturating_add(wait_ns)) } else { State::Off };
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        if self.deadline_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.state = State::Due;
        }
    }

    /// Records that the packet before `cursor` was sent for the first time, and asked.
    pub(crate) fn asked(&mut self, now_ns: u64, cursor: u64) {
        self.timed.get_or_insert((cursor, now_ns));
    }

    /// Records that the last packet was sent once more, and asked. Returns whether as a probe.
    pub(crate) fn sent(&mut self) -> bool {
        let was_due = self.is_due();
        if was_due {
            self.state = State::Sent;
            self.doublings -= u8::from(!self.was_needless && self.doublings > 0);
            self.was_needless = false;
        }
        was_due
    }

    /// Records an acknowledgement of packets that are acknowledged already.
    pub(crate) fn answered_again(&mut self) {
        if !self.was_needless {
            self.was_needless = true;
            self.doublings = DOUBLINGS_MAX.min(self.doublings + 1);
        }
    }

    /// Records that all packets before `una` are acknowledged, some of them just now.
    pub(crate) fn progress(&mut self, now_ns: u64, una: u64) {
        self.state = State::Off;
        if let Some((_, sent_ns)) = self.timed.take_if(|(behind, _)| *behind <= una) {
            let (new_ns, old_ns) = (now_ns.saturating_sub(sent_ns), self.round_trip_ns);
            self.round_trip_ns = if old_ns == 0 { new_ns } else { old_ns - old_ns / SMOOTHING + new_ns / SMOOTHING };
        }
    }

    /// Records that all packets that are not acknowledged are sent again: a later acknowledgement
    /// tells no round trip, and what is sent again asks.
    pub(crate) fn go_back(&mut self) {
        self.timed = None;
        if self.is_due() {
            self.state = State::Sent;
        }
    }

    /// Records that the peer has answered, and gets no packet for a while.
    pub(crate) fn pause(&mut self) {
        self.state = State::Off;
    }
}
