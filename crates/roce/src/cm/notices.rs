//! The shorter messages: MRA, REJ, RTU, DREQ and DREP; SIDR_REQ and SIDR_REP.

use crate::cm::bits::Body;
use crate::wire::Qpn;

/// Reasons of rejections that programs meet.
pub mod reason {
    /// There is no room for another connection.
    pub const NO_RESOURCES: u16 = 3;
    /// The other side didn't answer in time.
    pub const TIMEOUT: u16 = 4;
    /// The request can't be served.
    pub const UNSUPPORTED: u16 = 5;
    /// The connection is unknown.
    pub const INVALID_ID: u16 = 6;
    /// The service has no listener.
    pub const INVALID_SERVICE: u16 = 8;
    /// The request's transport is not its service's.
    pub const INVALID_TRANSPORT: u16 = 9;
    /// The connection of that number has ended; or another connection has the queue pair.
    pub const STALE: u16 = 10;
    /// The requested address is not the responder's.
    pub const INVALID_GID: u16 = 12;
    /// The path's MTU is invalid, or larger than the responder's.
    pub const INVALID_MTU: u16 = 26;
    /// The program rejected it.
    pub const CONSUMER: u16 = 28;
}

/// The message that a rejection or a wait refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// A request.
    Request,
    /// A reply.
    Reply,
    /// Another one, or none.
    Other,
}

impl Rejected {
    fn code(self) -> u8 {
        match self {
            Rejected::Request => 0,
            Rejected::Reply => 1,
            Rejected::Other => 2,
        }
    }

    fn of_code(code: u8) -> Rejected {
        match code {
            0 => Rejected::Request,
            1 => Rejected::Reply,
            _ => Rejected::Other,
        }
    }
}

/// MRA: the message was received, and its answer takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The number of the connection at the sender; 0 if there is none.
    pub local_id: u32,
    /// The number at the other side.
    pub remote_id: u32,
    /// The received message.
    pub of: Rejected,
    /// How long the answer may take: 4.096 µs · 2^n; 5 bits.
    pub timeout: u8,
}

/// REJ: the connection is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The number of the connection at the sender; 0 if there is none.
    pub local_id: u32,
    /// The number at the other side.
    pub remote_id: u32,
    /// The rejected message.
    pub of: Rejected,
    /// See [`reason`].
    pub reason: u16,
    /// Additional information of the reason, or 0. For a time-out it is the sender's device, by
    /// which a kernel finds the connection.
    pub info: u64,
    /// Private data.
    pub data: [u8; 148],
}

/// RTU: the connection is ready to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The number of the connection at the sender.
    pub local_id: u32,
    /// The number at the other side.
    pub remote_id: u32,
}

/// DREQ: the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// The number of the connection at the sender.
    pub local_id: u32,
    /// The number at the other side.
    pub remote_id: u32,
    /// The queue pair at the other side.
    pub remote_qpn: Qpn,
}

/// DREP: the connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnected {
    /// The number of the connection at the sender.
    pub local_id: u32,
    /// The number at the other side.
    pub remote_id: u32,
}

/// SIDR_REQ: asks for a service's datagram queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// The number of the question at the sender.
    pub request_id: u32,
    /// The service.
    pub service: u64,
}

/// SIDR_REP: the answer, here always without a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The number of the question.
    pub request_id: u32,
    /// The outcome; 0 is success.
    pub status: u8,
    /// The service.
    pub service: u64,
}

impl Resolved {
    /// The service has no datagram queue pair here.
    pub const UNSUPPORTED: u8 = 1;
}

/// Makes a body that begins with both numbers.
fn between(local_id: u32, remote_id: u32) -> Body {
    let mut body = Body::new();
    body.put_u32(0, local_id);
    body.put_u32(4, remote_id);
    body
}

impl Wait {
    pub(crate) fn read(body: &Body) -> Wait {
        let (of, timeout) = (Rejected::of_code(body.0[8] >> 6), body.0[9] >> 3);
        Wait { local_id: body.u32(0), remote_id: body.u32(4), of, timeout }
    }

    pub(crate) fn write(&self) -> Body {
        let mut body = between(self.local_id, self.remote_id);
        body.put(8, [self.of.code() << 6, self.timeout << 3]);
        body
    }
}

impl Reject {
    pub(crate) fn read(body: &Body) -> Reject {
        let (of, reason) = (Rejected::of_code(body.0[8] >> 6), body.u16(10));
        Reject { local_id: body.u32(0), remote_id: body.u32(4), of, reason, info: body.u64(12), data: body.bytes(84) }
    }

    pub(crate) fn write(&self) -> Body {
        let mut body = between(self.local_id, self.remote_id);
        body.0[8] = self.of.code() << 6;
        let info_bytes = if self.info == 0 { 0 } else { size_of::<u64>() as u8 };
        body.0[9] = info_bytes << 1;
        body.put_u16(10, self.reason);
        body.put_u64(12, self.info);
        body.put(84, self.data);
        body
    }
}

impl Ready {
    pub(crate) fn read(body: &Body) -> Ready {
        Ready { local_id: body.u32(0), remote_id: body.u32(4) }
    }

    pub(crate) fn write(&self) -> Body {
        between(self.local_id, self.remote_id)
    }
}

impl Disconnect {
    pub(crate) fn read(body: &Body) -> Disconnect {
        let remote_qpn = Qpn::new(body.u24(8).0);
        Disconnect { local_id: body.u32(0), remote_id: body.u32(4), remote_qpn }
    }

    pub(crate) fn write(&self) -> Body {
        let mut body = between(self.local_id, self.remote_id);
        body.put_u24(8, self.remote_qpn.number(), 0);
        body
    }
}

impl Disconnected {
    pub(crate) fn read(body: &Body) -> Disconnected {
        Disconnected { local_id: body.u32(0), remote_id: body.u32(4) }
    }

    pub(crate) fn write(&self) -> Body {
        between(self.local_id, self.remote_id)
    }
}

impl Resolve {
    pub(crate) fn read(body: &Body) -> Resolve {
        Resolve { request_id: body.u32(0), service: body.u64(8) }
    }

    pub(crate) fn write(&self) -> Body {
        let mut body = Body::new();
        body.put_u32(0, self.request_id);
        body.put_u64(8, self.service);
        body
    }
}

impl Resolved {
    pub(crate) fn read(body: &Body) -> Resolved {
        Resolved { request_id: body.u32(0), status: body.0[4], service: body.u64(12) }
    }

    pub(crate) fn write(&self) -> Body {
        let mut body = Body::new();
        body.put_u32(0, self.request_id);
        body.0[4] = self.status;
        body.put_u64(12, self.service);
        body
    }
}
