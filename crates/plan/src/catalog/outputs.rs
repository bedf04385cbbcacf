//! A stage kind's claims on its outputs: operations, options of sends, and prepended headers.
//! Reports count operations by the same kinds.

/// The kind of an operation, as reports name it.
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
    /// A SEND that goes out once every block behind a signature key is good.
    Respond,
}

/// The operations that a stage asks for over one of its outputs, beside sending packets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputOperations {
    /// The output, one of [`StageSpec::outputs`](crate::StageSpec::outputs). In the plan it must
    /// lead to a port that carries out operations.
    pub output: &'static str,
    /// Kinds that the stage needs; empty: it may ask for any.
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

    /// The kind's name within a sentence.
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

    /// The kind's name in reports.
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

/// An option that a stage may ask of one of its sends, beside its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendOption {
    /// Immediate data.
    Immediate,
    /// Waits for the READs and atomics before it, which only RC has.
    Fence,
    /// Wakes a peer whose lcore has `unsolicited_wait`.
    Solicited,
    /// Returns the packet once its send is done.
    Returned,
}

/// The options of the sends over one of a stage's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSends {
    /// The output, one of [`StageSpec::outputs`](crate::StageSpec::outputs). Each port that it
    /// leads to must have `send_options`.
    pub output: &'static str,
    /// The options that the stage asks for.
    pub options: &'static [SendOption],
}

impl SendOption {
    /// The option's name within a sentence.
    pub(crate) fn words(self) -> &'static str {
        match self {
            SendOption::Immediate => "immediate data",
            SendOption::Fence => "fences",
            SendOption::Solicited => "solicited events",
            SendOption::Returned => "packets that come back",
        }
    }
}

/// The bytes that a stage prepends to packets which it sends over one of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputPrepends {
    /// The output, one of [`StageSpec::outputs`](crate::StageSpec::outputs).
    pub output: &'static str,
    /// The most bytes between a packet's new beginning and its beginning on arrival, or when it was
    /// taken fresh.
    pub bytes: u32,
}
