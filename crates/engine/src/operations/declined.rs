//! Operations that a port does not accept, and the reasons.

use crate::operations::operation::Operation;

/// The reason why an operation was not accepted. It is counted at the port (`declined`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclineReason {
    /// The plan's `ops_depth_wr` or `ops_shared_wr` operations are under way: backpressure, not an
    /// error.
    #[error("as many operations are under way as the port's `ops_depth_wr` says; some must complete first")]
    Full,
    /// The port has many connections, and the operation names none of the open ones; or it names
    /// one, and the port has a single queue pair.
    #[error("the operation names no open connection of the port")]
    NoConnection,
    /// The output leads to no port with operations, or the stage's kind does not declare operations
    /// for it ([`StageSpec::operations`](verbline_plan::StageSpec::operations)).
    #[error(
        "the output leads to no port with `ops_depth_wr` in the plan, or `StageSpec::operations` of the stage's kind \
         does not name the output"
    )]
    NoPort,
    /// The region is on another device than the port, or no stage owns it.
    #[error("the range is of a region that the port's device does not have")]
    ForeignRegion,
    /// The port has no memory window of this number: it has as many as its `windows` says, numbered
    /// from 0.
    #[error("the port has no memory window of this number; its `windows` in the plan says how many it has")]
    NoWindow,
    /// The port has no signature key of this number: it has as many as its `signature_keys` says,
    /// numbered from 0, or none on a device without signature offload
    /// ([`Outputs::signature_keys`](crate::Outputs::signature_keys)).
    #[error(
        "the port has no signature key of this number; its `signature_keys` in the plan says how many it has, and a \
         device without signature offload has none"
    )]
    NoKey,
    /// The port is down: nothing can be posted.
    #[error("the port is down")]
    PortDown,
    /// The port is UC, which carries no READs, atomics or fences, and has no signature keys
    /// (ibv_post_send(3)).
    #[error("the port is UC, which does not carry the operation; write `transport = \"rc\"`")]
    NotCarried,
}

/// An operation that was not accepted, handed back.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Declined<T = Operation> {
    /// The operation.
    pub operation: T,
    /// The reason.
    pub reason: DeclineReason,
}

/// The result of operations that were handed over together.
#[must_use = "what was declined comes back"]
#[derive(Debug)]
pub struct Accepted {
    /// The number accepted, from the first on.
    pub count: usize,
    /// The next operation, if it was declined.
    pub declined: Option<Declined>,
}
