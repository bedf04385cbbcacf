//! What is repeated because a packet was missing, and whether once more.
//!
//! The first packet of a repetition may be lost as well, and the peer then asks for it again. But
//! who asks for each packet that came behind the missing one has more to say of the time before.
//! All of that has come when everything was repeated once, so that is waited for; and one asking
//! again is believed, no more.

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repair {
    /// From this packet on; the one behind the last that was under way then, and has room.
    from: u64,
    to: u64,
    again: Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    IfAsked,
    Asked,
    Done,
}

impl Repair {
    pub(crate) fn new(from: u64, to: u64) -> Repair {
        Repair { from, to, again: Again::IfAsked }
    }

    /// Whether it began with that packet.
    pub(crate) fn is_from(&self, packet: u64) -> bool {
        self.from == packet
    }

    /// The peer asks for its first packet.
    pub(crate) fn ask_again(&mut self) {
        if self.again == Again::IfAsked {
            self.again = Again::Asked;
        }
    }

    /// Whether it begins once more, now that all before `cursor` was sent.
    pub(crate) fn begins_again(&mut self, cursor: u64) -> bool {
        let begins = self.again == Again::Asked && cursor >= self.to;
        if begins {
            self.again = Again::Done;
        }
        begins
    }
}
