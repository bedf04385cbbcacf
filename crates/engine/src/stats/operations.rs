//! The counters of the operations of a port.

use serde::Serialize;
use verbline_plan::OperationKind;

use crate::stats::counter::{Count, counted};

counted! {
    /// The operations of one port.
    OperationsReport {
        /// Accepted from stages and not given back to them: 0 at the end of a run.
        under_way: u64,
        /// By kind; only what occurred.
        kinds: Vec<OperationReport>,
    }

    /// The operations of one port.
    OperationStats {
        /// Operations that were not accepted, and came back to their stage at once: most often
        /// since as many were under way as the port's `ops_depth_wr` says.
        declined,
        /// Those of them that named no open connection of their port, which has many: their
        /// connection is over.
        no_connection,
        /// Transfers through signature keys that moved a bad block, whose response was cancelled.
        bad_blocks,
        /// How often the device stopped a queue pair for such ones.
        stops,
    }
    private {
        /// A gauge.
        under_way: Count,
        kinds: [KindStats; OperationKind::ALL.len()],
    }
}

counted! {
    /// Operations of one kind.
    OperationReport {
        /// `send`, `write`, `read`, `compare_swap`, `fetch_add`, `bind`, `invalidate`, `sign` or
        /// `respond`.
        kind: &'static str,
    }

    /// The results of the operations of one kind.
    KindStats {
        /// Those that the send queue took.
        posted,
        /// Those that were carried out.
        completed,
        /// Those that were not, or of which that is not known. The port's `errors` have the
        /// statuses.
        failed,
        /// The bytes of those that were carried out.
        bytes,
    }
    private {}
}

impl OperationStats {
    pub(crate) fn report(&self) -> OperationsReport {
        let mut report = OperationsReport { under_way: self.under_way.value(), ..OperationsReport::default() };
        self.read(&mut report);
        for (kind, stats) in OperationKind::ALL.iter().zip(&self.kinds) {
            let mut of_kind = OperationReport { kind: kind.name(), ..OperationReport::default() };
            stats.read(&mut of_kind);
            if of_kind.posted + of_kind.failed > 0 {
                report.kinds.push(of_kind);
            }
        }
        report
    }
}

impl OperationsReport {
    /// Those of a kind, by its name in the report.
    pub fn kind(&self, kind: &str) -> Option<&OperationReport> {
        self.kinds.iter().find(|of_kind| of_kind.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_listed_in_the_order_of_their_counters() {
        for (position, kind) in OperationKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, position);
        }
    }
}
