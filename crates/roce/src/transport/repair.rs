//! The repetition after a missing packet, and whether it is repeated once more.
//!
//! The first packet of a repetition may be lost as well, and the peer then asks for it again. But a
//! peer that asks for each packet behind the missing one also sends more such NAKs from before the
//! repetition. All of those have arrived once everything was repeated, so a second repetition waits
//! until then. Only one further NAK is believed.
//!
//! The answer of a READ has no NAK: packets of it, or later answers, arrive without the first one.
//! If they arrive from the beginning again, the repeated answer has lost the first one too. That
//! counts like a further NAK.

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repair {
    /// The number behind the last packet that was under way when it began, and has room.
    to: u64,
    again: Again,
    /// The last answer that arrived ahead of the first packet.
    early: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    IfAsked,
    Asked,
    Done,
}

impl Repair {
    pub(crate) fn new(to: u64) -> Repair {
        Repair { to, again: Again::IfAsked, early: None }
    }

    /// Records an answer ahead of the first packet's. Returns whether the peer has begun to answer
    /// again: a NAK has begun the repetition, or the answers before were of later packets.
    pub(crate) fn is_answered_again(&mut self, packet: u64) -> bool {
        self.early.replace(packet).is_none_or(|before| packet <= before)
    }

    /// Records that the peer asks for its first packet again.
    pub(crate) fn ask_again(&mut self) {
        if self.again == Again::IfAsked {
            self.again = Again::Asked;
        }
    }

    /// Whether it begins once more, now that all packets before `cursor` were sent.
    pub(crate) fn begins_again(&mut self, cursor: u64) -> bool {
        let begins = self.again == Again::Asked && cursor >= self.to;
        if begins {
            self.again = Again::Done;
        }
        begins
    }
}
