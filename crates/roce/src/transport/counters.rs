//! What a queue pair counts.

/// Why a packet was discarded. None of these is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Discard {
    /// It is no packet.
    #[error("the bytes are no packet")]
    Malformed,
    /// No queue pair has the number.
    #[error("no queue pair has the packet's destination")]
    NoQueuePair,
    /// The checksum is wrong.
    #[error("the ICRC is wrong")]
    Icrc,
    /// The queue pair doesn't receive, or failed.
    #[error("the queue pair is not ready to receive")]
    NotReady,
    /// The packet is another transport's.
    #[error("the packet's transport is not the queue pair's")]
    Transport,
    /// It is not from the connected peer's address.
    #[error("the packet is not from the connected peer")]
    Stranger,
    /// The partition key is not the default one, or the datagram's key is not the queue pair's.
    #[error("the packet's partition or queue key is wrong")]
    Key,
    /// Its number is far from what can be expected.
    #[error("the packet's number is outside the window")]
    OutsideWindow,
    /// A packet before it is missing.
    #[error("a packet before this one is missing")]
    OutOfOrder,
    /// It came before.
    #[error("the packet came before")]
    Duplicate,
    /// It doesn't fit what it belongs to.
    #[error("the packet doesn't fit its message or its request")]
    Unfitting,
    /// No receive is posted, or none is long enough, and nobody is to be told.
    #[error("no receive takes the packet")]
    NoReceive,
    /// A key or a right is missing, and nobody is to be told.
    #[error("the queue pair or a key doesn't grant what the packet asks for")]
    Refused,
}

/// The number of reasons.
pub(crate) const DISCARDS: usize = Discard::ALL.len();

impl Discard {
    /// All of them, in their order.
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

/// Declares the incidents once: what is added here is in every sum.
macro_rules! incidents {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What went otherwise than on a network that loses nothing.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Incidents {
            $($(#[$doc])* pub $name: u64,)*
            discarded: [u64; DISCARDS],
        }

        impl Incidents {
            /// How many values there are.
            pub const VALUES: usize = [$(stringify!($name)),*].len() + DISCARDS;

            /// All of them, in an order that is always the same.
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
    /// Packets that were sent again.
    retransmitted,
    /// The peer's requests that came again.
    duplicates,
    /// Packets that came too early.
    out_of_order,
    /// Refusals that were sent because of a missing packet.
    sequence_naks_sent,
    /// The same, received.
    sequence_naks_received,
    /// Refusals that were sent because no receive was posted.
    rnr_naks_sent,
    /// The same, received.
    rnr_naks_received,
    /// Refusals that ended a connection, sent.
    fatal_naks_sent,
    /// The same, received.
    fatal_naks_received,
    /// Times that no acknowledgement came, and peers that were silent for too long.
    timeouts,
}

impl Incidents {
    /// From [`values`](Self::values); what is missing is zero.
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

/// What happened since a queue pair was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that were taken in.
    pub received: u64,
    /// Acknowledgements that were sent.
    pub acks_sent: u64,
    incidents: Incidents,
    /// Those that the engine was not told of yet, and whether there are some: it looks after each
    /// packet, and mostly finds none.
    fresh: Incidents,
    is_fresh: bool,
}

impl Counters {
    /// What went otherwise than on a network that loses nothing.
    pub fn incidents(&self) -> &Incidents {
        &self.incidents
    }

    /// Something did.
    pub(crate) fn note(&mut self, what: impl Fn(&mut Incidents)) {
        what(&mut self.incidents);
        what(&mut self.fresh);
        self.is_fresh = true;
    }

    /// What did since the last call.
    pub(crate) fn take_fresh(&mut self) -> Option<Incidents> {
        self.is_fresh.then(|| {
            self.is_fresh = false;
            std::mem::take(&mut self.fresh)
        })
    }
}
