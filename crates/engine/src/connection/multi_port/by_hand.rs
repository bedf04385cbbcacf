//! Stands in for the cm thread of a port in tests that make the connections themselves
//! ([`crate::testing`]); their queue pairs have no peer.

use std::sync::Arc;

use verbline_mem::ConnectionId;
use verbline_verbs::{InitSpec, QpMaker};

use crate::connection::acceptor::ConnectionPeer;
use crate::connection::cm_mailbox::{CmMailbox, TO_CM_KINDS, ToCm, ToLcore};
use crate::connection::multi_port::connection_slots::ConnectionSlots;
use crate::connection::port_qp::PortQp;
use crate::errors::error::Cause;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct CmByHand {
    maker: QpMaker,
    mailbox: Arc<CmMailbox>,
    slots: ConnectionSlots<Made>,
    said: Vec<ToCm>,
    /// The number of ended connections that the lcore has not released.
    closing: usize,
}

#[derive(Debug)]
struct Made {
    qpn: u32,
    is_over: bool,
}

impl CmByHand {
    /// For the port with this index in the plan, and its most connections.
    pub(crate) fn new(port: u16, connections: u32, maker: QpMaker, mailbox: Arc<CmMailbox>) -> CmByHand {
        let said = Vec::with_capacity(connections as usize * TO_CM_KINDS);
        CmByHand { maker, mailbox, slots: ConnectionSlots::new(port, connections), said, closing: 0 }
    }

    /// Opens a connection; `None` if every slot is taken.
    pub(crate) fn open(&mut self, peer: ConnectionPeer) -> Result<Option<ConnectionId>, Cause> {
        let mut qp = self.maker.make()?;
        qp.to_init(&InitSpec::default())?;
        let (qpn, Some(connection)) = (qp.qpn(), self.slots.take()) else { return Ok(None) };
        self.slots.put(connection, Made { qpn, is_over: false });
        self.mailbox.tell_lcore(ToLcore::Expect { connection, qpn });
        let (qp, peer) = (Box::new(PortQp::new(qp)), Some(Box::new(peer)));
        self.mailbox.tell_lcore(ToLcore::Open { connection, qp, peer });
        Ok(Some(connection))
    }

    /// The number of the queue pair of an open connection.
    pub(crate) fn qpn(&mut self, connection: ConnectionId) -> Option<u32> {
        self.slots.get(connection).filter(|made| !made.is_over).map(|made| made.qpn)
    }

    /// The peer of a connection leaves.
    pub(crate) fn close(&mut self, connection: ConnectionId, reason: &'static str) {
        self.over(connection);
        self.mailbox.tell_lcore(ToLcore::Close { connection, reason });
    }

    /// Takes the lcore's messages. True while the lcore is still to release a connection.
    pub(crate) fn awaits_lcore(&mut self) -> bool {
        let mut said = std::mem::take(&mut self.said);
        self.mailbox.take_for_cm(&mut said);
        for message in said.drain(..) {
            match message {
                ToCm::Over { connection, .. } => self.over(connection),
                ToCm::Released { connection, .. } => {
                    self.slots.free(connection);
                    self.closing -= 1;
                }
                ToCm::Drained { .. } | ToCm::Told { .. } => {}
            }
        }
        self.said = said;
        self.closing > 0
    }

    fn over(&mut self, connection: ConnectionId) {
        if let Some(made) = self.slots.get(connection).filter(|made| !made.is_over) {
            made.is_over = true;
            self.closing += 1;
        }
    }
}
