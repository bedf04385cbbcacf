//! A marker behind all sends, of which the peer hears nothing: its completion tells that they are
//! done, also where none of them is signaled.
//!
//! It is a work request that unbinds a memory window of type 1 which was never bound
//! (ibv_bind_mw(3) with a length of 0). A device carries it out by itself and sends no packet for
//! it. Completions of a send queue come in the order of its posts: that of the marker comes once
//! all sends before it are done, which on RC means acknowledged.
//!
//! The software RNIC takes it. A kernel device's library may not: that of rdma_rxe (rdma-core 44)
//! reads the region of every bind, also where there is none, and the program crashes.

use std::ptr;

use rdma_sys::{bind_mw_t, ibv_mw_bind_info};
use verbline_softnic::qp_table::Transport;

use crate::device::provider::Provider;
use crate::errno::VerbError;
use crate::memory::window::WindowKind;
use crate::qp::QueuePair;
use crate::qp::one_sided::bind_type_1;
use crate::wr::post::PostStop;
use crate::wr::post_verb::PostSend;
use crate::wr::request::Request;

/// Why no marker is behind the sends.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MarkerError {
    /// The device has no memory window for it.
    #[error(transparent)]
    NoWindow(#[from] VerbError),
    /// The send queue takes no work request.
    #[error("a marker behind the sends of QP {qpn:#x} cannot be posted: {stop}")]
    Refused {
        /// The QP.
        qpn: u32,
        /// The reason.
        stop: PostStop,
    },
    /// Only a connected QP of the software RNIC takes one.
    #[error(
        "QP {qpn:#x} is a {transport} QP of a {provider} device; only RC and UC of the software RNIC take a marker \
         behind their sends"
    )]
    NotTaken {
        /// The QP.
        qpn: u32,
        /// Its transport.
        transport: Transport,
        /// The kind of its device.
        provider: Provider,
    },
}

impl QueuePair {
    /// Whether the QP takes a [marker](Self::post_end_marker).
    pub fn takes_end_marker(&self) -> bool {
        matches!(self.transport(), Transport::Rc | Transport::Uc) && self.keep().pd.provider() == Provider::Soft
    }

    /// Posts a signaled marker behind all sends. It takes a send's place in the queue. Returns the
    /// [`Completion::wr_id`](crate::Completion::wr_id) of its completion, which
    /// [`QueuePair::send_done`] takes like a send's.
    ///
    /// The first marker allocates a memory window, which the QP keeps.
    pub fn post_end_marker(&mut self) -> Result<u64, MarkerError> {
        let (qpn, transport, provider) = (self.qpn(), self.transport(), self.keep().pd.provider());
        if !self.takes_end_marker() {
            return Err(MarkerError::NotTaken { qpn, transport, provider });
        }
        if !self.may_send() {
            return Err(MarkerError::Refused { qpn, stop: PostStop::NotReady(self.state) });
        }
        if self.send_room() == 0 {
            return Err(MarkerError::Refused { qpn, stop: PostStop::Full });
        }
        let (pd, marker) = (self.pd(), &mut self.keep_mut().marker);
        let window = match marker {
            Some(window) => window,
            None => marker.insert(pd.alloc_mw(WindowKind::Type1)?),
        };
        let mw = window.inner.as_ptr();
        let nothing = ibv_mw_bind_info { mr: ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
        let request = Request::Bind(bind_mw_t { mw, rkey: 0, bind_info: nothing });
        let post = PostSend::by(self.raw.as_ptr(), bind_type_1);
        // SAFETY: the QP is live until drop, and `send` is its send queue. The window is of its PD,
        // and goes after the QP.
        let posted = unsafe { self.send.post_behind_all(post, request) };
        posted.map_err(|stop| MarkerError::Refused { qpn, stop })
    }

    /// Whether the send, or the marker, of this number is posted and not known to be done.
    pub fn has_send_out(&self, wr_id: u64) -> bool {
        self.send.is_out(wr_id)
    }
}
