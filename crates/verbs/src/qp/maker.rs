//! Making QPs like one that was made, later and on any thread: for a connection that is lost and
//! made again.

use std::sync::Arc;
use std::time::Duration;

use super::{QpError, QpSpec, QueuePair};
use crate::cq::CompletionQueue;
use crate::memory::pd::PdInner;
use crate::memory::pd::ProtectionDomain;
use crate::qp::endpoint::Transport;

/// Makes QPs of one [`QpSpec`] on the same PD and CQs, which it keeps alive. Whoever polls the CQs
/// goes on to do so: a maker only says where its QPs complete.
#[derive(Debug)]
pub struct QpMaker {
    pd: Arc<PdInner>,
    /// Never polled nor armed.
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    transport: Transport,
    tx_depth_wr: u32,
    rx_depth_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_bytes: u32,
    signal_every_wr: u32,
    tag: u16,
    thread_domain: bool,
    destroy_timeout: Duration,
}

impl ProtectionDomain {
    /// What makes QPs of this spec later, on any thread. `None` for a spec with an SRQ.
    pub fn qp_maker(&self, spec: &QpSpec<'_>) -> Option<QpMaker> {
        QpMaker::new(&self.inner, spec)
    }
}

impl QpMaker {
    pub(crate) fn new(pd: &Arc<PdInner>, spec: &QpSpec<'_>) -> Option<QpMaker> {
        if spec.srq.is_some() {
            return None;
        }
        Some(QpMaker {
            pd: pd.clone(),
            send_cq: spec.send_cq.unpolled(),
            recv_cq: spec.recv_cq.unpolled(),
            transport: spec.transport,
            tx_depth_wr: spec.tx_depth_wr,
            rx_depth_wr: spec.rx_depth_wr,
            max_send_sge: spec.max_send_sge,
            max_recv_sge: spec.max_recv_sge,
            max_inline_bytes: spec.max_inline_bytes,
            signal_every_wr: spec.signal_every_wr,
            tag: spec.tag,
            thread_domain: spec.thread_domain,
            destroy_timeout: spec.destroy_timeout,
        })
    }

    /// Another QP of the spec, in RESET. Its completions carry the spec's tag, so it takes the
    /// place of one of which nothing is outstanding any more ([`QueuePair::is_drained`]):
    /// completions of both would not be told apart by their tag.
    pub fn make(&self) -> Result<QueuePair, QpError> {
        let spec = QpSpec {
            send_cq: &self.send_cq,
            recv_cq: &self.recv_cq,
            transport: self.transport,
            tx_depth_wr: self.tx_depth_wr,
            rx_depth_wr: self.rx_depth_wr,
            srq: None,
            max_send_sge: self.max_send_sge,
            max_recv_sge: self.max_recv_sge,
            max_inline_bytes: self.max_inline_bytes,
            signal_every_wr: self.signal_every_wr,
            tag: self.tag,
            thread_domain: self.thread_domain,
            destroy_timeout: self.destroy_timeout,
        };
        QueuePair::create(&self.pd, &spec)
    }
}
