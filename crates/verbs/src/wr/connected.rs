//! Transports, as types of the work requests that they carry.
//!
//! The options of a work request are for one transport, and only those of RC have a fence
//! ([`Carrier::Fence`]). A listed work request is for a transport with connections. Operations that
//! only RC carries hold a value that does not exist for UC ([`Connected::Reliable`]), so a list of
//! UC cannot name them. These types leave nothing behind at run time.

use std::convert::Infallible;
use std::fmt::Debug;

/// The transport of a work request: [`OnRc`], [`OnUc`], [`OnUd`], or [`OnAny`] of them.
pub trait Carrier: Copy + Debug + Default + Eq + sealed::Sealed + 'static {
    /// Whether a work request waits for the READs and atomics before it: a `bool` on RC, the only
    /// transport where the flag is valid (ibv_post_send(3)), and [`NoFence`] elsewhere.
    type Fence: Copy + Debug + Default + Eq + Into<bool>;
}

/// A transport of connections: [`OnRc`] or [`OnUc`].
pub trait Connected: Carrier {
    /// Held by READs, atomics and all operations on signature keys (table in ibv_post_send(3)): for
    /// UC no such value exists.
    type Reliable: Copy + Debug + Eq;
}

/// Marks work requests that only an RC QP takes: READs, atomics, fences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnRc;

/// Marks work requests that only a UC QP takes: SENDs and WRITEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnUc;

/// Marks work requests that only a UD QP takes: SENDs to an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnUd;

/// Marks work requests for whichever transport the QP has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnAny;

/// Transports other than RC have no READs and atomics to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoFence;

impl Carrier for OnRc {
    type Fence = bool;
}

impl Carrier for OnUc {
    type Fence = NoFence;
}

impl Carrier for OnUd {
    type Fence = NoFence;
}

impl Carrier for OnAny {
    type Fence = NoFence;
}

impl Connected for OnRc {
    type Reliable = OnRc;
}

impl Connected for OnUc {
    type Reliable = Infallible;
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
    impl Sealed for super::OnUd {}
    impl Sealed for super::OnAny {}
}
