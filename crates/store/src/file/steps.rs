//! Splits a request into the steps that the file's ring carries out: a transfer may take several,
//! and zeros may be had in more ways than one.

use verbline_mem::uring::{What, ZEROS_MAX};

use crate::request::{Fault, Op};
use crate::store::Extent;

/// How blocks become zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZeroBy {
    /// With their space kept.
    Range,
    /// With their space given up.
    Hole,
    /// By writing.
    Writing,
}

/// The operations that the file turned out to lack.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lacks {
    pub(super) zero_range: bool,
    pub(super) punch_hole: bool,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Transfer,
    Zero(ZeroBy),
    Sync,
}

/// A request under way, without its packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub(super) op: Op,
    pub(super) tag: u64,
    extent: Extent,
    /// Bytes that were moved.
    moved: u64,
    phase: Phase,
}

/// The continuation after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The next one.
    GoOn,
    /// The same step again, since the kernel couldn't now.
    Again,
    /// Nothing: it is done.
    Done(Result<(), Fault>),
}

impl Steps {
    /// `None` if there is nothing to do.
    pub(super) fn of(op: Op, tag: u64, extent: Extent, lacks: Lacks) -> Option<Steps> {
        let phase = match op {
            Op::Flush => Phase::Sync,
            _ if extent.len == 0 => return None,
            Op::Read | Op::Write { .. } => Phase::Transfer,
            Op::WriteZeroes { deallocate, .. } => Phase::Zero(first_way(deallocate, lacks)),
            Op::Discard if lacks.punch_hole => return None,
            Op::Discard => Phase::Zero(ZeroBy::Hole),
        };
        Some(Steps { op, tag, extent, moved: 0, phase })
    }

    /// Returns the ring's next operation.
    pub(super) fn what(&self) -> What {
        let Extent { offset, len } = self.extent;
        let at = offset + self.moved;
        // A packet's length, so 32 bits.
        let skip = self.moved as u32;
        match (self.phase, self.op) {
            (Phase::Transfer, Op::Write { fua }) => What::Write { offset: at, skip, dsync: fua },
            (Phase::Transfer, _) => What::Read { offset: at, skip },
            (Phase::Zero(ZeroBy::Range), _) => What::ZeroRange { offset, len },
            (Phase::Zero(ZeroBy::Hole), _) => What::PunchHole { offset, len },
            (Phase::Zero(ZeroBy::Writing), _) => {
                let len = (len - self.moved).min(ZEROS_MAX.into()) as u32;
                What::WriteZeros { offset: at, len, dsync: false }
            }
            (Phase::Sync, _) => What::Sync,
        }
    }

    /// Whether the step that failed so leaves nobody sure of what is durable: a flush, which may
    /// have lost the writes of others, and a durable write that the medium did not take. One that
    /// was refused, for want of space perhaps, has written nothing.
    pub(super) fn has_lost(&self, fault: Fault) -> bool {
        let is_durable = self.phase == Phase::Transfer && self.op == (Op::Write { fua: true });
        let is_refused = matches!(
            fault,
            Fault::NoSpace
                | Fault::OutOfRange
                | Fault::ReadOnly
                | Fault::Misaligned
                | Fault::Unsupported
                | Fault::BadMemory
        );
        self.phase == Phase::Sync || (is_durable && !is_refused)
    }

    /// Goes on by how the step ended. What is moved goes on at a multiple of `align`.
    pub(super) fn advance(&mut self, result: Result<u32, i32>, align: u32, lacks: &mut Lacks) -> After {
        match result {
            Ok(moved) => match self.phase {
                Phase::Transfer => self.moved_on(moved, align),
                Phase::Zero(ZeroBy::Writing) => match self.moved_on(moved, align) {
                    After::Done(Ok(())) => self.zeroed(),
                    after => after,
                },
                Phase::Zero(_) => self.zeroed(),
                Phase::Sync => After::Done(Ok(())),
            },
            Err(libc_errno::AGAIN | libc_errno::INTR) => After::Again,
            Err(libc_errno::OPNOTSUPP) => self.another_way(lacks),
            // A block device zeroes and gives up whole blocks of its own only, which those of a
            // store with protection information are not.
            Err(libc_errno::INVAL) if matches!(self.phase, Phase::Zero(ZeroBy::Range | ZeroBy::Hole)) => {
                match self.op {
                    Op::WriteZeroes { .. } => {
                        self.phase = Phase::Zero(ZeroBy::Writing);
                        After::GoOn
                    }
                    _ => After::Done(Ok(())),
                }
            }
            Err(errno) => After::Done(Err(fault_of(errno, self.phase == Phase::Transfer && align > 1))),
        }
    }

    fn moved_on(&mut self, moved: u32, align: u32) -> After {
        let rest = self.extent.len - self.moved;
        if u64::from(moved) >= rest {
            return After::Done(Ok(()));
        }
        // Direct I/O can't go on from within what it moves at once.
        let kept = moved - moved % align;
        if kept == 0 {
            // The end of the file, or of the space beneath.
            let fault = if self.op == Op::Read { Fault::OutOfRange } else { Fault::NoSpace };
            return After::Done(Err(fault));
        }
        self.moved += u64::from(kept);
        After::GoOn
    }

    fn zeroed(&mut self) -> After {
        let Op::WriteZeroes { fua: true, .. } = self.op else { return After::Done(Ok(())) };
        self.phase = Phase::Sync;
        After::GoOn
    }

    /// The file system can't do this: remembers it, and tries otherwise.
    fn another_way(&mut self, lacks: &mut Lacks) -> After {
        match self.phase {
            Phase::Zero(ZeroBy::Range) => lacks.zero_range = true,
            Phase::Zero(ZeroBy::Hole) => lacks.punch_hole = true,
            _ => return After::Done(Err(Fault::Unsupported)),
        }
        let Op::WriteZeroes { deallocate, .. } = self.op else {
            // Nothing can be done about blocks that nobody needs.
            return After::Done(Ok(()));
        };
        self.phase = Phase::Zero(first_way(deallocate, *lacks));
        After::GoOn
    }
}

/// The best way to have zeros that is not known to be missing.
fn first_way(deallocate: bool, lacks: Lacks) -> ZeroBy {
    match (deallocate, lacks) {
        (true, Lacks { punch_hole: false, .. }) => ZeroBy::Hole,
        (_, Lacks { zero_range: false, .. }) => ZeroBy::Range,
        _ => ZeroBy::Writing,
    }
}

/// Numbers of errno(3), as the ring gives them.
mod libc_errno {
    use rustix::io::Errno;

    pub(super) const AGAIN: i32 = Errno::AGAIN.raw_os_error();
    pub(super) const INTR: i32 = Errno::INTR.raw_os_error();
    pub(super) const INVAL: i32 = Errno::INVAL.raw_os_error();
    pub(super) const OPNOTSUPP: i32 = Errno::OPNOTSUPP.raw_os_error();
}

fn fault_of(errno: i32, is_direct_transfer: bool) -> Fault {
    use rustix::io::Errno;
    match Errno::from_raw_os_error(errno) {
        Errno::NOSPC | Errno::DQUOT => Fault::NoSpace,
        Errno::FBIG | Errno::NXIO => Fault::OutOfRange,
        Errno::ROFS | Errno::BADF | Errno::PERM => Fault::ReadOnly,
        Errno::IO | Errno::NODATA | Errno::REMOTEIO | Errno::ILSEQ | Errno::TIMEDOUT | Errno::NODEV => Fault::Medium,
        Errno::INVAL if is_direct_transfer => Fault::Misaligned,
        _ => Fault::Os(errno),
    }
}
