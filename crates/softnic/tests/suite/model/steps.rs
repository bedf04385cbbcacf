//! The steps of a generated sequence: posts, polls, modifications, destruction and creation, on
//! four ends.

use proptest::prelude::*;

/// Ends: `2n` on the first device talks to `2n + 1` on the second, and back; a datagram goes to
/// any.
pub(crate) const ENDS: usize = 4;
/// Bytes that a peer can reach, and bytes of one receive.
pub(crate) const EXPOSED_BYTES: usize = 1024;
pub(crate) const BUFFER_BYTES: usize = 700;
/// How many of these a window exposes.
pub(crate) const WINDOW_BYTES: usize = 600;
/// The longest READ.
pub(crate) const READ_BYTES: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Rc,
    Uc,
    Ud,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Post(Post),
    Recv {
        end: usize,
        len: usize,
    },
    PollSend {
        end: usize,
        count: usize,
    },
    PollRecv {
        end: usize,
        count: usize,
    },
    /// The next state towards RTS: from RESET, INIT and RTR, and back from SQD and SQE.
    Up {
        end: usize,
    },
    ToSqd {
        end: usize,
    },
    ToErr {
        end: usize,
    },
    Reset {
        end: usize,
    },
    /// Brings an end and its peer from any state to RTS.
    Connect {
        end: usize,
    },
    Destroy {
        end: usize,
    },
    Create {
        end: usize,
    },
}

/// Work requests in one list.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) end: usize,
    /// Every n-th work request is signaled.
    pub(crate) signal_every: u64,
    /// Inline if possible.
    pub(crate) inline: bool,
    /// The receiver of datagrams.
    pub(crate) to: usize,
    pub(crate) works: Vec<(Work, Flaw)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Send {
        len: usize,
        imm: bool,
    },
    /// Invalidates the key of the peer's window. With the flag, names the key of the end beside it
    /// instead, whose window it isn't.
    SendInv {
        len: usize,
        beside: bool,
    },
    /// By the key of the peer's region, or of its window.
    Write {
        at: usize,
        len: usize,
        imm: bool,
        through: bool,
    },
    Read {
        at: usize,
        len: usize,
    },
    FetchAdd {
        at: usize,
        add: u64,
    },
    CmpSwap {
        at: usize,
        compare: u64,
        swap: u64,
    },
    /// Binds the end's own window, of type 2.
    Bind,
    /// Invalidates a window; possibly that of the end beside it.
    LocalInv {
        beside: bool,
    },
}

impl Work {
    /// Bytes of its list.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Work::Send { len, .. } | Work::SendInv { len, .. } | Work::Write { len, .. } | Work::Read { len, .. } => {
                len
            }
            Work::FetchAdd { .. } | Work::CmpSwap { .. } => 8,
            Work::Bind | Work::LocalInv { .. } => 0,
        }
    }

    /// The owner of its window, when this end posts it.
    pub(crate) fn window_of(self, end: usize) -> Option<usize> {
        let beside = |of: usize, beside: bool| if beside { of ^ 2 } else { of };
        match self {
            Work::Bind => Some(end),
            Work::LocalInv { beside: other } => Some(beside(end, other)),
            Work::SendInv { beside: other, .. } => Some(beside(end ^ 1, other)),
            Work::Write { through: true, .. } => Some(end ^ 1),
            _ => None,
        }
    }

    /// Whether its list is the target of an answer.
    pub(crate) fn fetches(self) -> bool {
        matches!(self, Work::Read { .. } | Work::FetchAdd { .. } | Work::CmpSwap { .. })
    }
}

/// The fault of a work request. Without bytes, nothing is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// No region has its L_Key.
    LocalKey,
    /// No region has its R_Key.
    RemoteKey,
}

fn work(transport: Transport) -> BoxedStrategy<Work> {
    let len = || prop_oneof![4 => 0usize..=98, 1 => Just(96usize), 2 => 98usize..=600];
    let send = (len(), any::<bool>()).prop_map(|(len, imm)| Work::Send { len, imm });
    let write = (0usize..EXPOSED_BYTES - 600, len(), any::<bool>(), prop::bool::weighted(0.2))
        .prop_map(|(at, len, imm, through)| Work::Write { at, len, imm, through });
    let beside = || prop::bool::weighted(0.1);
    let invalidating = (len(), beside()).prop_map(|(len, beside)| Work::SendInv { len, beside });
    let (bind, void) = (Just(Work::Bind), beside().prop_map(|beside| Work::LocalInv { beside }));
    let read = (0usize..EXPOSED_BYTES - READ_BYTES, 0usize..=READ_BYTES).prop_map(|(at, len)| Work::Read { at, len });
    // Two words, and numbers that match now and then.
    let word = || (0usize..2).prop_map(|word| word * 8);
    let add = (word(), 0u64..3).prop_map(|(at, add)| Work::FetchAdd { at, add });
    let swap = (word(), 0u64..3, 0u64..3).prop_map(|(at, compare, swap)| Work::CmpSwap { at, compare, swap });
    match transport {
        Transport::Rc => {
            let windows = prop_oneof![2 => bind, 1 => void, 1 => invalidating];
            prop_oneof![24 => send, 12 => write, 8 => read, 4 => add, 4 => swap, 4 => windows].boxed()
        }
        Transport::Uc => prop_oneof![24 => send, 16 => write, 2 => bind, 1 => void, 1 => invalidating].boxed(),
        Transport::Ud => send.boxed(),
    }
}

fn post(transport: Transport) -> impl Strategy<Value = Post> {
    let flaw = prop_oneof![40 => Just(Flaw::None), 1 => Just(Flaw::LocalKey), 1 => Just(Flaw::RemoteKey)];
    let works = prop::collection::vec((work(transport), flaw), 1..5);
    (0..ENDS, 1u64..4, any::<bool>(), 0..ENDS, works).prop_map(|(end, signal_every, inline, to, works)| Post {
        end,
        signal_every,
        inline,
        to,
        works,
    })
}

/// Sequences for one transport. They start with every end in RTS.
pub(crate) fn steps(transport: Transport) -> impl Strategy<Value = Vec<Step>> {
    let end = || 0..ENDS;
    let some = || 1usize..6;
    let buffer = prop_oneof![9 => Just(BUFFER_BYTES), 1 => 0usize..100];
    let step = prop_oneof![
        16 => post(transport).prop_map(Step::Post),
        20 => (end(), buffer).prop_map(|(end, len)| Step::Recv { end, len }),
        12 => (end(), some()).prop_map(|(end, count)| Step::PollSend { end, count }),
        16 => (end(), some()).prop_map(|(end, count)| Step::PollRecv { end, count }),
        6 => end().prop_map(|end| Step::Up { end }),
        3 => end().prop_map(|end| Step::ToSqd { end }),
        1 => end().prop_map(|end| Step::ToErr { end }),
        1 => end().prop_map(|end| Step::Reset { end }),
        3 => end().prop_map(|end| Step::Connect { end }),
        1 => end().prop_map(|end| Step::Destroy { end }),
        4 => end().prop_map(|end| Step::Create { end }),
    ];
    prop::collection::vec(step, 1..160)
}
