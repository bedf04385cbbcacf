//! Why a QP could not be made, changed or used so.

use std::sync::Arc;

use crate::device::capability::Lacking;
use crate::device::gid::Gid;
use crate::errno::VerbError;
use crate::signature::SignatureError;
use crate::transport::Transport;

/// Why a QP could not be made, changed or used so.
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
        /// What the table says.
        refusal: verbline_softnic::qp_table::Refusal,
    },
    /// The device has not what was asked of it.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// A signature key can't be checked.
    #[error("a signature key made without KeySpec::signs_blocks says nothing of blocks: {0:#x}")]
    SignsNothing(u32),
    /// An attribute that cannot be set here.
    #[error("QP {qpn:#x} on {device}: {what}")]
    Attribute {
        /// The QP.
        qpn: u32,
        /// Its device.
        device: String,
        /// Which, and why.
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
        /// What the kernel said.
        source: Arc<std::io::Error>,
    },
    /// More scatter/gather entries a work request than the device takes.
    #[error("{what} of {asked}: {device} takes at most {max} entries a work request (DeviceAttr::max_sge)")]
    Sges {
        /// Which limit.
        what: &'static str,
        /// What was asked.
        asked: u32,
        /// The device's limit.
        max: u32,
        /// The device.
        device: String,
    },
    /// A depth beyond what a queue here can have.
    #[error("{what} of {asked} work requests; at most {max} fit a queue")]
    Depth {
        /// Which depth.
        what: &'static str,
        /// What was asked.
        asked: u32,
        /// The limit.
        max: u32,
    },
    /// An object of another device or PD.
    #[error("the {what} belongs to {theirs}, the QP to {ours}; make both from the same one")]
    Foreign {
        /// What kind of object.
        what: &'static str,
        /// Where it belongs.
        theirs: String,
        /// Where the QP belongs.
        ours: String,
    },
    /// A typed handle of another transport.
    #[error("QP {qpn:#x} is {is}, not {asked}")]
    NotTransport {
        /// The QP.
        qpn: u32,
        /// What it is.
        is: Transport,
        /// What was asked for.
        asked: Transport,
    },
    /// An SRQ of datagrams cannot serve connections, nor the other way: the GRH comes before one
    /// and not the other.
    #[error("the SRQ is for {srq}, the QP is {qp}; datagrams and connections each need an SRQ of their own")]
    SrqTransport {
        /// What the SRQ was made for.
        srq: Transport,
        /// What the QP is.
        qp: Transport,
    },
    /// More to be kept than operations can name.
    #[error("QP {qpn:#x} keeps {has} {what}, and {asked} more have no numbers: {max} have")]
    KeptNumbers {
        /// The QP.
        qpn: u32,
        /// Regions, windows or signature keys.
        what: &'static str,
        /// How many it keeps.
        has: usize,
        /// How many more were asked for.
        asked: usize,
        /// How many there are numbers for.
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
        /// How many it has.
        has: usize,
        /// What was asked.
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
