//! REP: accepts a connection.

use crate::cm::bits::Body;
use crate::wire::{Psn, Qpn};

/// Private data of a reply.
pub const REPLY_DATA_BYTES: usize = 196;

/// The alternate path of a request is not supported.
const NO_FAILOVER: u8 = 1;

/// Accepts a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number of the connection at the passive side.
    pub local_id: u32,
    /// The number at the active side.
    pub remote_id: u32,
    /// The passive side's queue pair.
    pub qpn: Qpn,
    /// The number of the first packet that the passive side is to get.
    pub starting_psn: Psn,
    /// READs and atomics that the passive side answers at once.
    pub responder_resources: u8,
    /// READs and atomics that the passive side has under way at once.
    pub initiator_depth: u8,
    /// How long the passive side's device takes to acknowledge; 5 bits.
    pub ack_delay: u8,
    /// The passive side uses end-to-end credits.
    pub flow_control: bool,
    /// How often the peer retries after RNR.
    pub rnr_retry: u8,
    /// The passive side's receives are shared.
    pub shared_receives: bool,
    /// The passive side's device.
    pub ca_guid: u64,
    /// Private data.
    pub data: [u8; REPLY_DATA_BYTES],
}

impl Reply {
    pub(crate) fn read(body: &Body) -> Reply {
        let (delay, rnr) = (body.0[26], body.0[27]);
        Reply {
            local_id: body.u32(0),
            remote_id: body.u32(4),
            qpn: Qpn::new(body.u24(12).0),
            starting_psn: Psn::new(body.u24(20).0),
            responder_resources: body.0[24],
            initiator_depth: body.0[25],
            ack_delay: delay >> 3,
            flow_control: delay & 1 != 0,
            rnr_retry: rnr >> 5,
            shared_receives: rnr & 0x10 != 0,
            ca_guid: body.u64(28),
            data: body.bytes(36),
        }
    }

    pub(crate) fn write(&self) -> Body {
        let mut body = Body::new();
        body.put_u32(0, self.local_id);
        body.put_u32(4, self.remote_id);
        body.put_u24(12, self.qpn.number(), 0);
        body.put_u24(20, self.starting_psn.number(), 0);
        body.put(24, [self.responder_resources, self.initiator_depth]);
        body.0[26] = self.ack_delay << 3 | NO_FAILOVER << 1 | u8::from(self.flow_control);
        body.0[27] = self.rnr_retry << 5 | u8::from(self.shared_receives) << 4;
        body.put_u64(28, self.ca_guid);
        body.put(36, self.data);
        body
    }
}
