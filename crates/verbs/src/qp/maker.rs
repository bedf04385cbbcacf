//! Making QPs like one that was made, later and on any thread: for a connection that is lost and
//! made again, and for the peers that come to one port.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::{OutOfBuffer, QpError, QpSpec, QueuePair};
use crate::cq::CompletionQueue;
use crate::device::context::Context;
use crate::memory::pd::PdInner;
use crate::memory::pd::ProtectionDomain;
use crate::memory::peer::PeerMr;
use crate::memory::window::{MemoryWindow, WindowKind};
use crate::qp::srq::SrqInner;
use crate::signature::QpSignature;
use crate::transport::Transport;
use crate::wr::operation::{KeptKey, KeptMemory, KeptRegion, KeptWindow};
use crate::wr::post::PostStop;

/// Makes QPs of one [`QpSpec`] on the same PD, CQs and SRQ, which it keeps alive. The owners of the
/// CQs and the SRQ go on to poll and to post: a maker only says where its QPs complete, and where
/// their receives come from.
#[derive(Debug)]
pub struct QpMaker {
    pd: Arc<PdInner>,
    /// Never polled nor armed.
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    /// Its receives stay the owner's of the handle.
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
    /// What they keep.
    regions: Vec<PeerMr>,
    windows: usize,
    keys: usize,
    /// Where the software RNIC counts for all of them.
    out_of_buffer: Arc<AtomicU64>,
}

impl ProtectionDomain {
    /// What makes QPs of this spec later, on any thread.
    pub fn qp_maker(&self, spec: &QpSpec<'_>) -> QpMaker {
        QpMaker::new(&self.inner, spec)
    }
}

impl QpMaker {
    pub(crate) fn new(pd: &Arc<PdInner>, spec: &QpSpec<'_>) -> QpMaker {
        QpMaker {
            pd: pd.clone(),
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
            regions: Vec::new(),
            windows: 0,
            keys: 0,
            out_of_buffer: Arc::default(),
        }
    }

    /// QPs that are made from now on keep the regions that this one keeps, under the same numbers,
    /// and as many windows, bound to nothing, and signature keys; and count with it
    /// ([`QueuePair::out_of_buffer`]).
    pub fn keep_like(&mut self, qp: &QueuePair) {
        let KeptMemory { keys, regions, windows } = &qp.keep().memory;
        (self.regions, self.windows, self.keys) = (regions.clone(), windows.len(), keys.len());
        self.out_of_buffer = qp.keep().out_of_buffer.clone();
    }

    /// What counts the messages to its QPs that find no receive posted, on this port of the device.
    pub fn out_of_buffer(&self, port: u8) -> OutOfBuffer {
        OutOfBuffer::new(&Context { inner: self.pd.context.clone() }, port, &self.out_of_buffer)
    }

    /// QPs that are made from now on keep this region, under the number that is given
    /// ([`QueuePair::keep_region`]). Refused on another PD than theirs.
    pub fn keep_region(&mut self, region: &PeerMr) -> Result<KeptRegion, PostStop> {
        let (region_pd, qp_pd) = (region.pd_id(), self.pd.id);
        if region_pd != qp_pd {
            return Err(PostStop::NotRegistered { packet_pd: region_pd, qp_pd });
        }
        let place = u16::try_from(self.regions.len()).map_err(|_| PostStop::NotKept("it keeps 65,536 regions"))?;
        self.regions.push(region.clone());
        Ok(KeptRegion(place))
    }

    /// QPs that are made from now on keep `count` windows, of type 2 and bound to nothing, by these
    /// numbers ([`QueuePair::keep_window`]).
    pub fn keep_windows(&mut self, count: usize) -> Result<Vec<KeptWindow>, PostStop> {
        let places = u16::try_from(count).map_err(|_| PostStop::NotKept("it keeps 65,536 windows"))?;
        self.windows = count;
        Ok((0..places).map(KeptWindow).collect())
    }

    /// QPs that are made from now on keep `count` signature keys, by these numbers
    /// ([`QueuePair::keep_keys`]).
    pub fn keep_keys(&mut self, count: usize) -> Result<Vec<KeptKey>, PostStop> {
        let places = u16::try_from(count).map_err(|_| PostStop::NotKept("it keeps 65,536 keys"))?;
        self.keys = count;
        Ok((0..places).map(KeptKey).collect())
    }

    /// Another QP of the spec, in RESET. Its completions carry the spec's tag. Those of several
    /// that are in use at once are told apart by [`crate::Completion::qp_num`]; by tag alone one
    /// has to take the place of another, of which nothing is outstanding any more
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
        let memory = &mut qp.keep_mut().memory;
        memory.regions.clone_from(&self.regions);
        for _ in 0..self.windows {
            memory.windows.push(MemoryWindow::alloc(&self.pd, WindowKind::Type2)?);
        }
        if self.keys > 0 {
            qp.keep_keys(self.keys)?;
        }
        Ok(qp)
    }
}
