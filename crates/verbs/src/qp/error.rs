//! Why a QP could not be created, changed or used.

use std::sync::Arc;

use verbline_softnic::qp_table::Transport;

use crate::device::capability::Lacking;
use crate::device::gid::Gid;
use crate::errno::VerbError;
use crate::signature::SignatureError;

/// Why a QP could not be created, changed or used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QpError {
    /// The device or the kernel refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The state table has no such step, or an attribute is missing or too many (ibv_modify_qp(3)).
    #[error("QP {qpn:#x} on {device}: {refusal}")]
    Transition {
        /// The QP.
        qpn: u32,
        /// Its device.
        device: String,
        /// The table's reason.
        refusal: verbline_softnic::qp_table::Refusal,
    },
    /// The device lacks a requested capability.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// A signature key that signs no blocks cannot be checked.
    #[error("a signature key made without KeySpec::signs_blocks says nothing of blocks: {0:#x}")]
    SignsNothing(u32),
    /// An attribute that cannot be set here.
    #[error("QP {qpn:#x} on {device}: {what}")]
    Attribute {
        /// The QP.
        qpn: u32,
        /// Its device.
        device: String,
        /// The attribute, and the reason.
        what: String,
    },
    /// The network interface under the device could not join a multicast group.
    #[error("QP {qpn:#x} on {device}: the interface with {local} cannot join {group}: {source}")]
    Multicast {
        /// The QP.
        qpn: u32,
        /// Its device.
        device: String,
        /// The QP's own GID.
        local: Gid,
        /// The group.
        group: Gid,
        /// The kernel's error.
        source: Arc<std::io::Error>,
    },
    /// More scatter/gather entries per work request than the device takes.
    #[error("{what} of {asked}: {device} takes at most {max} entries a work request (DeviceAttr::max_sge)")]
    Sges {
        /// The exceeded limit.
        what: &'static str,
        /// The requested number.
        asked: u32,
        /// The device's limit.
        max: u32,
        /// The device.
        device: String,
    },
    /// A depth beyond the limit of a queue here.
    #[error("{what} of {asked} work requests; at most {max} fit a queue")]
    Depth {
        /// The depth's name.
        what: &'static str,
        /// The requested depth.
        asked: u32,
        /// The limit.
        max: u32,
    },
    /// An object of another device or PD.
    #[error("the {what} belongs to {theirs}, the QP to {ours}; make both from the same one")]
    Foreign {
        /// The kind of object.
        what: &'static str,
        /// The object's device or PD.
        theirs: String,
        /// The QP's device or PD.
        ours: String,
    },
    /// A typed handle of another transport.
    #[error("QP {qpn:#x} is {is}, not {asked}")]
    NotTransport {
        /// The QP.
        qpn: u32,
        /// The QP's transport.
        is: Transport,
        /// The handle's transport.
        asked: Transport,
    },
    /// An SRQ for datagrams cannot serve connections, nor the reverse: only datagrams have a GRH
    /// before them.
    #[error("the SRQ is for {srq}, the QP is {qp}; datagrams and connections each need an SRQ of their own")]
    SrqTransport {
        /// The SRQ's transport.
        srq: Transport,
        /// The QP's transport.
        qp: Transport,
    },
    /// More objects to keep than operations can number.
    #[error("QP {qpn:#x} keeps {has} {what}, and {asked} more have no numbers: {max} have")]
    KeptNumbers {
        /// The QP.
        qpn: u32,
        /// Regions, windows or signature keys.
        what: &'static str,
        /// The number kept so far.
        has: usize,
        /// The number of additional ones requested.
        asked: usize,
        /// The highest number.
        max: u16,
    },
    /// More destinations than the table holds.
    #[error("QP {qpn:#x} has {max} destinations already")]
    Destinations {
        /// The QP.
        qpn: u32,
        /// The limit.
        max: usize,
    },
    /// A destination that the table does not have.
    #[error("QP {qpn:#x} has {has} destinations, and no number {asked}; add_destination makes more")]
    NoDestination {
        /// The QP.
        qpn: u32,
        /// The number of destinations in the table.
        has: usize,
        /// The requested destination.
        asked: u16,
    },
}

impl From<SignatureError> for QpError {
    fn from(error: SignatureError) -> QpError {
        match error {
            SignatureError::Lacking(lacking) => QpError::Lacking(lacking),
            SignatureError::Verb(verb) => QpError::Verb(verb),
            SignatureError::SignsNothing(lkey) => QpError::SignsNothing(lkey),
        }
    }
}
