//! Private data of the connection manager: the messages of host and controller as they connect a
//! queue pair.
//!
//! The connection manager pads private data with zeros, so that a request may be longer than
//! [`REQUEST_BYTES`], and never shorter.

use crate::bytes::{put, u16_at};

/// Length of a request and of an acceptance, bytes.
pub const REQUEST_BYTES: usize = 32;
/// Length of a rejection, bytes.
pub const REJECTION_BYTES: usize = 4;

/// A request to connect a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The queue; 0 is the admin queue.
    pub qid: u16,
    /// Entries of the host's receive queue (HRQSIZE).
    pub recv_depth: u16,
    /// Entries of the host's send queue, less one (HSQSIZE).
    pub send_depth_less_one: u16,
    /// The controller of an I/O queue; 0 if the host does not say.
    pub cntlid: u16,
}

/// The reason of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u16)]
pub enum Reject {
    /// The private data is too short.
    #[error("invalid private data length")]
    Length = 1,
    /// The format is not 0.
    #[error("invalid RECFMT")]
    Format = 2,
    /// There is no such queue.
    #[error("invalid QID")]
    QueueId = 3,
    /// The send queue is too small, or too large.
    #[error("invalid HSQSIZE")]
    SendDepth = 4,
    /// The receive queue is smaller than the send queue.
    #[error("invalid HRQSIZE")]
    RecvDepth = 5,
    /// The controller has no place for another queue.
    #[error("no resources")]
    NoResources = 6,
    /// The host takes no RDMA READ at all.
    #[error("invalid IRD")]
    Ird = 7,
    /// The host makes RDMA READs, of which the transport has none.
    #[error("invalid ORD")]
    Ord = 8,
}

impl Request {
    /// Reads the private data of a request.
    ///
    /// # Errors
    /// The rejection to answer with. Sizes are not held against the controller's limits here.
    pub fn read(private_data: &[u8]) -> Result<Request, Reject> {
        if private_data.len() < REQUEST_BYTES {
            return Err(Reject::Length);
        }
        if u16_at(private_data, 0) != 0 {
            return Err(Reject::Format);
        }
        Ok(Request {
            qid: u16_at(private_data, 2),
            recv_depth: u16_at(private_data, 4),
            send_depth_less_one: u16_at(private_data, 6),
            cntlid: u16_at(private_data, 8),
        })
    }

    /// Returns the request as on the wire.
    pub fn to_bytes(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        put(&mut bytes, 2, &self.qid.to_le_bytes());
        put(&mut bytes, 4, &self.recv_depth.to_le_bytes());
        put(&mut bytes, 6, &self.send_depth_less_one.to_le_bytes());
        put(&mut bytes, 8, &self.cntlid.to_le_bytes());
        bytes
    }
}

/// Returns the acceptance of a queue; `recv_depth` is the entries of the controller's receive queue
/// (CRQSIZE).
pub fn acceptance(recv_depth: u16) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    put(&mut bytes, 2, &recv_depth.to_le_bytes());
    bytes
}

impl Reject {
    const ALL: [Reject; 8] = [
        Reject::Length,
        Reject::Format,
        Reject::QueueId,
        Reject::SendDepth,
        Reject::RecvDepth,
        Reject::NoResources,
        Reject::Ird,
        Reject::Ord,
    ];

    /// Returns the rejection as on the wire.
    pub fn to_bytes(self) -> [u8; REJECTION_BYTES] {
        let mut bytes = [0; REJECTION_BYTES];
        put(&mut bytes, 2, &(self as u16).to_le_bytes());
        bytes
    }

    /// Reads a rejection; `None` if its reason is unknown.
    pub fn read(private_data: &[u8]) -> Option<Reject> {
        let is_long_enough = private_data.len() >= REJECTION_BYTES && u16_at(private_data, 0) == 0;
        Reject::ALL.into_iter().find(|reject| is_long_enough && *reject as u16 == u16_at(private_data, 2))
    }
}
