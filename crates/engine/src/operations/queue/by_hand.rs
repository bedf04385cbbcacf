//! Ends operations without a queue pair, on behalf of a test ([`crate::testing`]).

use verbline_mem::{ConnectionId, Packet};
use verbline_plan::OperationKind;
use verbline_verbs::rdma::{self, Atomic, Local, Remote, Transfer, Word, Work};

use super::OperationQueue;
use crate::operations::operation::OperationError;

/// An operation of a stage, as shown to the closure of [`StageTest::complete`].
///
/// [`StageTest::complete`]: crate::testing::StageTest::complete
#[derive(Debug)]
#[non_exhaustive]
pub struct Asked<'a> {
    /// Its kind.
    pub kind: OperationKind,
    /// The stage's tag.
    pub tag: u64,
    /// Its connection, on a port with many.
    pub connection: Option<ConnectionId>,
    /// The peer's memory that it reads or writes, if any.
    pub remote: Option<Remote>,
    /// The packet that is written, sent or read into; `None` if its memory is a list or a part of a
    /// region, or if it has none.
    pub packet: Option<&'a mut Packet>,
}

impl OperationQueue {
    /// Ends all operations that are accepted and not done, in order, with the results of `end`.
    pub(crate) fn end_all(&mut self, end: &mut dyn FnMut(Asked<'_>) -> Result<(), OperationError>) {
        while let Some(work) = self.works.pop() {
            let what = self.accepted.pop_listed();
            self.end_one(work, what, end);
        }
        while let Some(waiting) = self.waiting.pop_front() {
            let what = self.accepted.take(waiting.held);
            self.end_one(waiting.work, what, end);
        }
    }

    fn end_one(
        &mut self,
        work: Work,
        what: Option<super::UnderWay>,
        end: &mut dyn FnMut(Asked<'_>) -> Result<(), OperationError>,
    ) {
        let (Work::Operation { mut operation, .. }, Some(what)) = (work, what) else { return };
        let remote = remote_of(&operation);
        let packet = packet_of(&mut operation);
        let result = end(Asked { kind: what.kind, tag: what.tag, connection: what.connection, remote, packet });
        self.finish(what, result, operation.into_memory(), &|_| None);
    }
}

fn packet_of(operation: &mut rdma::Operation) -> Option<&mut Packet> {
    match operation {
        rdma::Operation::Transfer { local: Local::Packet(packet), .. }
        | rdma::Operation::Respond { local: Local::Packet(packet), .. }
        | rdma::Operation::Atomic { into: Word::Packet(packet), .. } => Some(packet),
        _ => None,
    }
}

fn remote_of(operation: &rdma::Operation) -> Option<Remote> {
    match *operation {
        rdma::Operation::Transfer { ref transfer, .. } => match *transfer {
            Transfer::Write { to } | Transfer::WriteWithImm { to, .. } => Some(to),
            Transfer::Read { from, .. } => Some(from),
            Transfer::Send | Transfer::SendWithImm { .. } | Transfer::SendWithInvalidate { .. } => None,
        },
        rdma::Operation::Atomic { atomic: Atomic::CompareSwap { at, .. } | Atomic::FetchAdd { at, .. }, .. } => {
            Some(at)
        }
        _ => None,
    }
}
