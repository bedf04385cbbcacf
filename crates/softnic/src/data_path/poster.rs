//! The poster's queue pair and guard, checked once per call of `ibv_post_send(3)`.

use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::queues::wr::SendWr;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use verbline_sync::guard::Inside;

/// The `errno` at which a post stopped, and the refused work request.
pub(crate) type Refused<'a> = (c_int, SendWr<'a>);

/// Proof that only this thread posts sends to the queue pair, which is alive, and that it is inside
/// its guard.
#[derive(Clone, Copy)]
pub(crate) struct Poster<'p> {
    qp: &'p Qp,
    pub(crate) pinned: Pinned<'p>,
    /// Stays on this thread.
    thread: PhantomData<*const ()>,
}

impl Deref for Poster<'_> {
    type Target = Qp;
    #[inline(always)]
    fn deref(&self) -> &Qp {
        self.qp
    }
}

impl<'p> Poster<'p> {
    /// # Safety
    /// During `'p` no other thread posts sends to the queue pair, as for a queue pair with a thread
    /// domain of its own (crate's documentation). `inside` is of its send queue's guard.
    #[inline(always)]
    pub(crate) unsafe fn new(qp: &'p Qp, inside: &'p Inside<'_>) -> Poster<'p> {
        Poster { qp, pinned: Pinned::inside(inside), thread: PhantomData }
    }

    /// The queue pair that it is connected to, if that accepts its messages and is established.
    #[inline(always)]
    pub(crate) fn established_peer(self) -> Option<&'p Qp> {
        let peer = fabric::lookup(self.pinned, self.sq.destination())?;
        // Acquire pairs with the Release in `modify`: the peer is ready before it accepts.
        (peer.inbound.accept.load(Ordering::Acquire) == self.sq.expect()).then_some(peer)
    }
}
