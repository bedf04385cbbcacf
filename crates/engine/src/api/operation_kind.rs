//! Kinds of operations.

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

impl OperationKind {
    /// All of them, in the order of their counters.
    pub(crate) const ALL: [OperationKind; 9] = [
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
