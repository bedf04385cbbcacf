//! The transports whose QPs take lists of work requests, as types.
//!
//! A listed work request is for one of them, and what RC alone carries holds a value that UC has
//! none of ([`Connected::Reliable`]): a list of UC can't name it. At run time nothing is left of
//! these types.

use std::convert::Infallible;
use std::fmt::Debug;

/// A transport of connections: [`OnRc`] or [`OnUc`].
pub trait Connected: Copy + Debug + Default + Eq + sealed::Sealed + 'static {
    /// What a READ, an atomic and all that uses a signature key holds (table in ibv_post_send(3)):
    /// of UC no such value exists.
    type Reliable: Copy + Debug + Eq;
    /// Whether a work request waits for the READs and atomics before it, where there are some.
    type Fence: Copy + Debug + Default + Eq + Into<bool>;
}

/// On RC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnRc;

/// On UC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnUc;

/// UC has no READs and atomics to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoFence;

impl Connected for OnRc {
    type Reliable = OnRc;
    type Fence = bool;
}

impl Connected for OnUc {
    type Reliable = Infallible;
    type Fence = NoFence;
}

impl From<NoFence> for bool {
    #[inline]
    fn from(NoFence: NoFence) -> bool {
        false
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::OnRc {}
    impl Sealed for super::OnUc {}
}
