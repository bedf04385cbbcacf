//! The two paths of a connection with an alternate path (automatic path migration): tracks the
//! current path of its queue pair, and arms the other one.

use std::mem;

use verbline_verbs::datagram::AhSpec;
use verbline_verbs::expert::{AttrMask, QpAttr};
use verbline_verbs::{QpError, QueuePair};

/// IBV_MIG_REARM of `enum ibv_mig_state`: armed as soon as the peer is, too.
const REARM: u32 = 1;

/// A path to the peer, and its ACK timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathEnd {
    pub(crate) ah: AhSpec,
    pub(crate) port: u8,
    pub(crate) pkey_index: u16,
    pub(crate) timeout: u8,
}

/// The alternate path of a port.
#[derive(Debug)]
pub(crate) struct Alternate {
    /// The plan's alternate path, for each new connection.
    planned: PathEnd,
    /// The path that the queue pair does not use now.
    other: PathEnd,
    /// The path that it uses, since it was armed.
    current: Option<PathEnd>,
}

impl Alternate {
    pub(crate) fn new(planned: PathEnd) -> Alternate {
        Alternate { planned, other: planned, current: None }
    }

    /// Gives a queue pair in RTS its alternate path: the plan's.
    pub(crate) fn arm(&mut self, qp: &mut QueuePair) -> Result<(), QpError> {
        self.note(qp)?;
        self.other = self.planned;
        self.load(qp)
    }

    /// Notes a migration: the former path is the alternate path from now on.
    pub(crate) fn swap(&mut self, qp: &mut QueuePair) -> Result<(), QpError> {
        if let Some(current) = &mut self.current {
            mem::swap(current, &mut self.other);
        }
        self.load(qp)
    }

    /// Reads the current path of the queue pair, which has changed.
    pub(crate) fn note(&mut self, qp: &mut QueuePair) -> Result<(), QpError> {
        let now = qp.query(AttrMask::AV | AttrMask::PORT | AttrMask::PKEY_INDEX | AttrMask::TIMEOUT)?;
        self.current = Some(PathEnd { ah: now.ah, port: now.port, pkey_index: now.pkey_index, timeout: now.timeout });
        Ok(())
    }

    fn load(&self, qp: &mut QueuePair) -> Result<(), QpError> {
        let PathEnd { ah, port, pkey_index, timeout } = self.other;
        let attr = QpAttr {
            alt_ah: ah,
            alt_port: port,
            alt_pkey_index: pkey_index,
            alt_timeout: timeout,
            path_mig_state: REARM,
            ..QpAttr::default()
        };
        qp.modify(&attr, AttrMask::ALT_PATH | AttrMask::PATH_MIG_STATE)
    }
}
