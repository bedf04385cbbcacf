//! Files and block devices by io_uring(7), with packets as buffers.
//!
//! A [`FileRing`] is one file and one ring, for one lcore. What is pushed owns its packet until the
//! kernel says that it is done: nobody else reads or writes the buffer meanwhile, and no buffer is
//! freed under the kernel's hands. That is all that this module knows: what to do about short
//! transfers, failures and full disks is for the owner of the ring to decide (`verbline-store`).
//!
//! - The pools of [`RingSpec::pools`] are registered: their pages stay pinned, and the kernel looks
//!   none up for a transfer. A packet of another pool works too, and costs that lookup.
//! - Nothing is allocated after [`FileRing::open`]. [`FileRing::submit`] is one system call for all
//!   that was pushed; [`FileRing::complete`] makes one only if the kernel asks for it.
//! - A ring that the kernel refuses for good is broken: it says so once asked to submit, and
//!   [`FileRing::take_back`] hands back the entries that the kernel never took.
//! - No completion is lost: the kernel's queue of them has room for all that can be under way.
//! - Dropping the ring waits for what is under way. What the kernel does not finish within ten
//!   seconds keeps its packet for good ([`leaked_pools`](crate::leaked_pools)).

mod error;
mod ring;
mod slots;
mod submission;

pub use error::RingError;
pub use ring::FileRing;
pub use submission::{Completed, PushError, RingSpec, Submission, What};

/// The most bytes of one [`What::WriteZeros`].
pub const ZEROS_MAX: u32 = 64 * 1024;
