//! The outcome of carrying out a work request.

/// The outcome of a work request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WrOutcome {
    /// Carried out; the number of bytes.
    Done(u64),
    /// Carried out; the number of bytes. The queue stops behind it.
    Stopped(u64),
    /// It has configured a key.
    Configured,
    /// It can't be carried out yet.
    Wait(Why),
    /// It failed, with an `ibv_wc_status`.
    Failed(u32),
}

/// The condition that a work request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A posted receive; the receiver's `min_rnr_timer`.
    NoReceive(u32),
    /// A peer that accepts our messages.
    NoPeer,
}
