//! Counters of a queue pair.

/// Why a packet was discarded. Nothing answers it, except that a reliable connection may send an
/// acknowledgement or a NAK for one that is a duplicate, out of order, or without a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Discard {
    /// The bytes are no packet.
    #[error("the bytes are no packet")]
    Malformed,
    /// No queue pair has the number.
    #[error("no queue pair has the packet's destination")]
    NoQueuePair,
    /// The checksum is wrong.
    #[error("the ICRC is wrong")]
    Icrc,
    /// The queue pair doesn't receive, or has failed.
    #[error("the queue pair is not ready to receive")]
    NotReady,
    /// The packet is another transport's.
    #[error("the packet's transport is not the queue pair's")]
    Transport,
    /// The packet is not from the connected peer's address.
    #[error("the packet is not from the connected peer")]
    Stranger,
    /// The partition key is not the default one, or the datagram's key is not the queue pair's.
    #[error("the packet's partition or queue key is wrong")]
    Key,
    /// Its number is far from the expected one.
    #[error("the packet's number is outside the window")]
    OutsideWindow,
    /// A packet before it is missing.
    #[error("a packet before this one is missing")]
    OutOfOrder,
    /// The packet is a duplicate.
    #[error("the packet came before")]
    Duplicate,
    /// The packet doesn't fit its message or request.
    #[error("the packet doesn't fit its message or its request")]
    Unfitting,
    /// No receive is posted; or, for a datagram, it has no place in the receive.
    #[error("no receive takes the packet")]
    NoReceive,
    /// A key or a right is missing on an unreliable connection, which doesn't report it to the
    /// peer.
    #[error("the queue pair or a key doesn't grant what the packet asks for")]
    Refused,
}

/// The number of reasons.
pub(crate) const DISCARDS: usize = Discard::ALL.len();

impl Discard {
    /// All reasons, in their order.
    pub const ALL: [Discard; DISCARD_COUNT] = [
        Discard::Malformed,
        Discard::NoQueuePair,
        Discard::Icrc,
        Discard::NotReady,
        Discard::Transport,
        Discard::Stranger,
        Discard::Key,
        Discard::OutsideWindow,
        Discard::OutOfOrder,
        Discard::Duplicate,
        Discard::Unfitting,
        Discard::NoReceive,
        Discard::Refused,
    ];

    /// Its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Discard::Malformed => "malformed",
            Discard::NoQueuePair => "no_queue_pair",
            Discard::Icrc => "icrc",
            Discard::NotReady => "not_ready",
            Discard::Transport => "transport",
            Discard::Stranger => "stranger",
            Discard::Key => "key",
            Discard::OutsideWindow => "outside_window",
            Discard::OutOfOrder => "out_of_order",
            Discard::Duplicate => "duplicate",
            Discard::Unfitting => "unfitting",
            Discard::NoReceive => "no_receive",
            Discard::Refused => "refused",
        }
    }
}

const DISCARD_COUNT: usize = Discard::Refused as usize + 1;

/// Declares each incident once, so that every sum includes it.
macro_rules! incidents {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Deviations from a network without losses.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Incidents {
            $($(#[$doc])* pub $name: u64,)*
            discarded: [u64; DISCARDS],
        }

        impl Incidents {
            /// The number of values.
            pub const VALUES: usize = [$(stringify!($name)),*].len() + DISCARDS;

            /// All values, always in the same order.
            pub fn values(&self) -> impl Iterator<Item = u64> + use<> {
                [$(self.$name),*].into_iter().chain(self.discarded)
            }

            fn values_mut(&mut self) -> impl Iterator<Item = &mut u64> {
                [$(&mut self.$name),*].into_iter().chain(&mut self.discarded)
            }
        }
    };
}

incidents! {
    /// Packets sent again.
    retransmitted,
    /// Duplicate requests of the peer.
    duplicates,
    /// Packets that arrived too early.
    out_of_order,
    /// NAKs sent for a missing packet.
    sequence_naks_sent,
    /// NAKs received for a missing packet.
    sequence_naks_received,
    /// RNR NAKs sent: no receive was posted.
    rnr_naks_sent,
    /// RNR NAKs received.
    rnr_naks_received,
    /// NAKs sent that ended a connection.
    fatal_naks_sent,
    /// NAKs received that ended a connection.
    fatal_naks_received,
    /// Acknowledgements that did not come in time, and peers that were silent for too long.
    timeouts,
}

impl Incidents {
    /// Builds them from [`values`](Self::values); missing values are zero.
    pub fn of_values(values: impl IntoIterator<Item = u64>) -> Incidents {
        let mut all = Incidents::default();
        all.values_mut().zip(values).for_each(|(to, value)| *to = value);
        all
    }

    /// Packets that were discarded for a reason.
    pub fn discarded(&self, why: Discard) -> u64 {
        self.discarded[why as usize]
    }

    pub(crate) fn discard(&mut self, why: Discard) {
        self.discarded[why as usize] += 1;
    }

    pub(crate) fn add(&mut self, more: &Incidents) {
        self.values_mut().zip(more.values()).for_each(|(sum, more)| *sum += more);
    }
}

/// Events since a queue pair was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub sent: u64,
    /// Packets taken in.
    pub received: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    incidents: Incidents,
    /// Incidents that the engine has not taken yet; `is_fresh`: there are some. The engine looks
    /// after each packet, and mostly finds none.
    fresh: Incidents,
    is_fresh: bool,
}

impl Counters {
    /// Deviations from a network without losses.
    pub fn incidents(&self) -> &Incidents {
        &self.incidents
    }

    /// Counts an incident.
    pub(crate) fn note(&mut self, what: impl Fn(&mut Incidents)) {
        what(&mut self.incidents);
        what(&mut self.fresh);
        self.is_fresh = true;
    }

    /// Takes the incidents since the last call.
    pub(crate) fn take_fresh(&mut self) -> Option<Incidents> {
        self.is_fresh.then(|| {
            self.is_fresh = false;
            std::mem::take(&mut self.fresh)
        })
    }
}
