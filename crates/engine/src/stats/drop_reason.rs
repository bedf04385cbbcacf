//! Why a packet was dropped. Every drop of the data path is counted at the place where it happened,
//! for one of these reasons. A packet leaves a plan in no other way.

/// The number of reasons that a stage kind may declare in
/// [`StageSpec::drops`](crate::StageSpec::drops).
pub const STAGE_REASONS_MAX: usize = 16;

/// The engine's own reasons, in the order of their counters.
const FIXED: [(DropReason, &str); FIXED_LEN] = [
    (DropReason::Planned, "planned"),
    (DropReason::Unclaimed, "unclaimed"),
    (DropReason::TxFull, "tx_full"),
    (DropReason::RingFull, "ring_full"),
    (DropReason::StageFull, "stage_full"),
    (DropReason::TooLong, "too_long"),
    (DropReason::SendError, "send_error"),
    (DropReason::RecvError, "recv_error"),
    (DropReason::PortDown, "port_down"),
    (DropReason::NoOutput, "no_output"),
    (DropReason::Stopped, "stopped"),
    (DropReason::NoConnection, "no_connection"),
    (DropReason::Displaced, "displaced"),
];
const FIXED_LEN: usize = 13;

/// The number of counters that one place needs: the engine's reasons, then the stage's own.
pub(crate) const REASONS: usize = FIXED_LEN + STAGE_REASONS_MAX;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The plan sends this output to `drop`.
    Planned,
    /// A stage left the packet in its input batch.
    Unclaimed,
    /// The port's send queue and its pending batch were full.
    TxFull,
    /// The ring and its pending batch were full: the consumer is too slow.
    RingFull,
    /// The input batch of a stage on the same lcore was full: several producers filled it within
    /// one loop.
    StageFull,
    /// The packet cannot be sent as it is: longer than the port's MTU allows, or a malformed work
    /// request.
    TooLong,
    /// The send completed with an error.
    SendError,
    /// The receive completed with an error.
    RecvError,
    /// The port's QP is in the error state.
    PortDown,
    /// The stage named an output that its kind does not declare.
    NoOutput,
    /// The run was stopping and the drain budget had run out; of a send that was posted: before its
    /// completion came. Its peer may have it.
    Stopped,
    /// The packet's connection is gone, or it has none and its port needs one.
    NoConnection,
    /// The ring was full, and newer packets took its place (`full = "displace"`).
    Displaced,
    /// A reason of the stage's own: the index into [`StageSpec::drops`](crate::StageSpec::drops).
    Stage(u8),
}

impl DropReason {
    /// The counter that belongs to this reason. A stage reason beyond the declared range counts as
    /// the last one.
    #[inline]
    pub(crate) fn index(self) -> usize {
        match self {
            DropReason::Planned => 0,
            DropReason::Unclaimed => 1,
            DropReason::TxFull => 2,
            DropReason::RingFull => 3,
            DropReason::StageFull => 4,
            DropReason::TooLong => 5,
            DropReason::SendError => 6,
            DropReason::RecvError => 7,
            DropReason::PortDown => 8,
            DropReason::NoOutput => 9,
            DropReason::Stopped => 10,
            DropReason::NoConnection => 11,
            DropReason::Displaced => 12,
            DropReason::Stage(own) => FIXED_LEN + (own as usize).min(STAGE_REASONS_MAX - 1),
        }
    }
}

/// The name of the reason whose counter is `index`, given the names that the stage kind declares.
pub(crate) fn reason_name(index: usize, own: &[&'static str]) -> &'static str {
    match FIXED.get(index) {
        Some((_, name)) => name,
        None => own.get(index - FIXED_LEN).copied().unwrap_or("undeclared"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_the_counter_that_carries_its_name() {
        for (position, (reason, name)) in FIXED.iter().enumerate() {
            assert_eq!(reason.index(), position);
            assert_eq!(reason_name(position, &[]), *name);
        }
        let own = ["gap", "late"];
        assert_eq!(reason_name(DropReason::Stage(1).index(), &own), "late");
        assert_eq!(reason_name(DropReason::Stage(2).index(), &own), "undeclared");
        assert!(DropReason::Stage(255).index() < REASONS);
    }
}
