//! What a stage says of its outputs: which operations it asks for there, which options of sends,
//! and what it puts in front of packets. Reports count operations by the same kinds.

/// What kind of operation it is, as reports call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationKind {
    /// A SEND with a tag, an immediate or an invalidation.
    Send,
    /// An RDMA WRITE.
    Write,
    /// An RDMA READ.
    Read,
    /// A compare-and-swap.
    CompareSwap,
    /// A fetch-and-add.
    FetchAdd,
    /// A window bound to a part of a region.
    Bind,
    /// A key of this side taken back.
    Invalidate,
    /// A signature key configured.
    Sign,
    /// A SEND that waits for blocks that are checked.
    Respond,
}

/// What a stage asks for over one of its outputs, beside sending packets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputOperations {
    /// The output, one of [`StageSpec::outputs`](crate::StageSpec::outputs). The plan must lead it
    /// to a port that carries out operations.
    pub output: &'static str,
    /// Kinds that the stage can't do without; empty: it may ask for any.
    pub kinds: &'static [OperationKind],
}

impl OperationKind {
    /// All of them, in the order of their counters.
    pub const ALL: [OperationKind; 9] = [
        OperationKind::Send,
        OperationKind::Write,
        OperationKind::Read,
        OperationKind::CompareSwap,
        OperationKind::FetchAdd,
        OperationKind::Bind,
        OperationKind::Invalidate,
        OperationKind::Sign,
        OperationKind::Respond,
    ];

    /// In a sentence.
    pub(crate) fn words(self) -> &'static str {
        match self {
            OperationKind::Send => "SENDs",
            OperationKind::Write => "RDMA WRITEs",
            OperationKind::Read => "RDMA READs",
            OperationKind::CompareSwap | OperationKind::FetchAdd => "atomics",
            OperationKind::Bind => "memory windows",
            OperationKind::Invalidate => "invalidations",
            OperationKind::Sign => "signed blocks",
            OperationKind::Respond => "SENDs behind signed blocks",
        }
    }

    /// Whether only a reliable connection has it (ibv_post_send(3)).
    pub(crate) fn needs_answer(self) -> bool {
        matches!(self, OperationKind::Read | OperationKind::CompareSwap | OperationKind::FetchAdd)
    }

    /// As reports write it.
    pub fn name(self) -> &'static str {
        match self {
            OperationKind::Send => "send",
            OperationKind::Write => "write",
            OperationKind::Read => "read",
            OperationKind::CompareSwap => "compare_swap",
            OperationKind::FetchAdd => "fetch_add",
            OperationKind::Bind => "bind",
            OperationKind::Invalidate => "invalidate",
            OperationKind::Sign => "sign",
            OperationKind::Respond => "respond",
        }
    }
}

/// What a stage may ask of one of its sends, beside where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendOption {
    /// Immediate data.
    Immediate,
    /// To wait for the READs and atomics before it, which RC alone has.
    Fence,
    /// To wake a peer whose lcore says `unsolicited_wait`.
    Solicited,
    /// The packet back once its send is done.
    Returned,
}

/// The options of what a stage sends over one of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSends {
    /// The output, one of [`StageSpec::outputs`](crate::StageSpec::outputs). Each port that it
    /// leads to must send packets as they ask.
    pub output: &'static str,
    /// The options that the stage asks for.
    pub options: &'static [SendOption],
}

impl SendOption {
    /// In a sentence.
    pub(crate) fn words(self) -> &'static str {
        match self {
            SendOption::Immediate => "immediate data",
            SendOption::Fence => "fences",
            SendOption::Solicited => "solicited events",
            SendOption::Returned => "packets that come back",
        }
    }
}

/// What a stage puts in front of packets that it sends over one of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputPrepends {
    /// The output, one of [`StageSpec::outputs`](crate::StageSpec::outputs).
    pub output: &'static str,
    /// Bytes by which a packet begins before where it began as it came in, or was taken fresh, at
    /// most.
    pub bytes: u32,
}
