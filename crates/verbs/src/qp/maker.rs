//! Creation of more QPs like a given one, later and on any thread: to replace a lost connection,
//! and for the peers of one port.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use verbline_softnic::qp_table::Transport;

use super::{OutOfBuffer, QpError, QpSpec, QueuePair};
use crate::cq::CompletionQueue;
use crate::device::context::Context;
use crate::memory::pd::PdInner;
use crate::memory::pd::ProtectionDomain;
use crate::qp::srq::SrqInner;
use crate::signature::QpSignature;
use crate::wr::kept::KeepSpec;

/// Creates QPs of one [`QpSpec`] on the same PD, CQs and SRQ, which it keeps alive. The owners of
/// the CQs and the SRQ still poll and post: a maker only decides where its QPs complete, and where
/// their receives come from.
#[derive(Debug)]
pub struct QpMaker {
    pd: Arc<PdInner>,
    /// Neither polled nor armed.
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    /// Its receives belong to the owner of the SRQ's handle.
    srq: Option<Arc<SrqInner>>,
    transport: Transport,
    tx_depth_wr: u32,
    rx_depth_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_bytes: u32,
    signal_every_wr: u32,
    tag: u16,
    solicited: bool,
    thread_domain: bool,
    signature: QpSignature,
    destroy_timeout: Duration,
    keep: KeepSpec,
    /// The software RNIC's counter for all these QPs.
    out_of_buffer: Arc<AtomicU64>,
}

impl ProtectionDomain {
    /// Returns a maker of QPs of this spec, for use later and on any thread.
    pub fn qp_maker(&self, spec: &QpSpec<'_>) -> QpMaker {
        QpMaker {
            pd: self.inner.clone(),
            send_cq: spec.send_cq.unpolled(),
            recv_cq: spec.recv_cq.unpolled(),
            srq: spec.srq.map(|srq| srq.inner.clone()),
            transport: spec.transport,
            tx_depth_wr: spec.tx_depth_wr,
            rx_depth_wr: spec.rx_depth_wr,
            max_send_sge: spec.max_send_sge,
            max_recv_sge: spec.max_recv_sge,
            max_inline_bytes: spec.max_inline_bytes,
            signal_every_wr: spec.signal_every_wr,
            tag: spec.tag,
            solicited: spec.solicited,
            thread_domain: spec.thread_domain,
            signature: spec.signature,
            destroy_timeout: spec.destroy_timeout,
            keep: KeepSpec::default(),
            out_of_buffer: Arc::default(),
        }
    }
}

impl QpMaker {
    /// Gives QPs made from now on the same regions as this QP, under the same numbers; as many
    /// windows, bound to nothing; and as many signature keys. They also share its counter
    /// ([`QueuePair::out_of_buffer`]).
    pub fn keep_like(&mut self, qp: &QueuePair) {
        self.keep = qp.keep().memory.spec();
        self.out_of_buffer = qp.keep().out_of_buffer.clone();
    }

    /// The counter of messages to its QPs that found no receive posted, on this port of the device.
    pub fn out_of_buffer(&self, port: u8) -> OutOfBuffer {
        OutOfBuffer::new(&Context { inner: self.pd.context.clone() }, port, &self.out_of_buffer)
    }

    /// Gives QPs made from now on this memory to keep ([`QueuePair::keep_memory`]).
    pub fn keep_memory(&mut self, spec: KeepSpec) {
        self.keep = spec;
    }

    /// Creates another QP of the spec, in RESET. Its completions carry the spec's tag.
    /// [`crate::Completion::qp_num`] tells apart QPs that are in use at once. The tag alone
    /// suffices only if each QP replaces another that has nothing outstanding any more
    /// ([`QueuePair::is_drained`]).
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
            solicited: self.solicited,
            thread_domain: self.thread_domain,
            signature: self.signature,
            destroy_timeout: self.destroy_timeout,
        };
        let mut qp = QueuePair::create(&self.pd, &spec, self.srq.as_ref(), self.out_of_buffer.clone())?;
        qp.keep_memory(&self.keep)?;
        Ok(qp)
    }
}
