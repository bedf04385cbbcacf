//! REQ: asks for a connection.

use crate::cm::address::{IP_HEADER_BYTES, IpHeader, PortSpace};
use crate::cm::bits::Body;
use crate::transport::Mtu;
use crate::wire::{Psn, Qpn};

/// Private data of a request.
pub const REQUEST_DATA_BYTES: usize = 92;

/// The number of service types: reliable and unreliable connections.
const SERVICE_TYPES: u8 = 2;

/// A request for a connection. Fields without a use in RoCE are written as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of the connection at the active side.
    pub local_id: u32,
    /// The requested service.
    pub service: u64,
    /// The active side's device.
    pub ca_guid: u64,
    /// The active side's queue pair.
    pub qpn: Qpn,
    /// READs and atomics that the active side answers at once.
    pub responder_resources: u8,
    /// READs and atomics that the active side has under way at once.
    pub initiator_depth: u8,
    /// How long the active side waits for an answer: 4.096 µs · 2^n.
    pub remote_response_timeout: u8,
    /// 0 is a reliable connection, 1 an unreliable one.
    pub service_type: u8,
    /// The active side uses end-to-end credits.
    pub flow_control: bool,
    /// The number of the first packet that the active side is to get.
    pub starting_psn: Psn,
    /// How long the active side takes to answer.
    pub local_response_timeout: u8,
    /// How often packets are retransmitted.
    pub retry_count: u8,
    /// The partition.
    pub pkey: u16,
    /// The most bytes of a packet.
    pub mtu: Mtu,
    /// How often the peer retries after RNR.
    pub rnr_retry: u8,
    /// How often messages of connection management are repeated.
    pub cm_retries: u8,
    /// The active side's receives are shared.
    pub shared_receives: bool,
    /// The path.
    pub path: Path,
    /// Private data.
    pub data: [u8; REQUEST_DATA_BYTES],
}

/// The path between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The active side's address.
    pub local_gid: [u8; 16],
    /// The passive side's address.
    pub remote_gid: [u8; 16],
    /// The flow label, 20 bits of IPv6.
    pub flow_label: u32,
    /// The rate in InfiniBand's numbering; 6 bits.
    pub rate: u8,
    /// The traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// The most routers on the path.
    pub hop_limit: u8,
    /// The service level, 4 bits.
    pub service_level: u8,
    /// How long an acknowledgement may take; 5 bits.
    pub ack_timeout: u8,
}

/// In place of LIDs, which paths over Ethernet don't have.
const NO_LID: u16 = 0xFFFF;

impl Request {
    /// The requested port and its space, if the service is one of `rdma_cm`'s connections.
    pub fn port(&self) -> Option<(PortSpace, u16)> {
        PortSpace::of_service(self.service)
    }

    /// Whether its transport fits its service: RC or UC, and for a port of `rdma_cm` the transport
    /// of its space.
    pub(crate) fn has_transport(&self) -> bool {
        match self.port() {
            Some((space, _)) => self.service_type == space.service_type(),
            None => self.service_type < SERVICE_TYPES,
        }
    }

    /// `rdma_cm`'s header; nothing if the request is of another kind.
    pub fn ip(&self) -> Option<IpHeader> {
        self.data.first_chunk().and_then(IpHeader::read)
    }

    /// The program's private data, in a request of `rdma_cm`.
    pub fn user_data(&self) -> &[u8] {
        &self.data[IP_HEADER_BYTES..]
    }

    /// Reads a request; nothing if its MTU is invalid.
    pub(crate) fn read(body: &Body) -> Option<Request> {
        let (qpn, responder_resources) = body.u24(32);
        let (_, initiator_depth) = body.u24(36);
        let (_, response) = body.u24(40);
        let (psn, retries) = body.u24(44);
        let (mtu, last) = (body.0[50], body.0[51]);
        let rate = body.u32(88);
        Some(Request {
            local_id: body.u32(0),
            service: body.u64(8),
            ca_guid: body.u64(16),
            qpn: Qpn::new(qpn),
            responder_resources,
            initiator_depth,
            remote_response_timeout: response >> 3,
            service_type: response >> 1 & 3,
            flow_control: response & 1 != 0,
            starting_psn: Psn::new(psn),
            local_response_timeout: retries >> 3,
            retry_count: retries & 7,
            pkey: body.u16(48),
            mtu: Mtu::of_code(mtu >> 4)?,
            rnr_retry: mtu & 7,
            cm_retries: last >> 4,
            shared_receives: last & 8 != 0,
            path: Path {
                local_gid: body.bytes(56),
                remote_gid: body.bytes(72),
                flow_label: rate >> 12,
                rate: rate as u8 & 0x3F,
                traffic_class: body.0[92],
                hop_limit: body.0[93],
                service_level: body.0[94] >> 4,
                ack_timeout: body.0[95] >> 3,
            },
            data: body.bytes(140),
        })
    }

    pub(crate) fn write(&self) -> Body {
        let mut body = Body::new();
        let path = &self.path;
        body.put_u32(0, self.local_id);
        body.put_u64(8, self.service);
        body.put_u64(16, self.ca_guid);
        body.put_u24(32, self.qpn.number(), self.responder_resources);
        body.put_u24(36, 0, self.initiator_depth);
        let timeout = self.remote_response_timeout << 3;
        body.put_u24(40, 0, timeout | (self.service_type & 3) << 1 | u8::from(self.flow_control));
        body.put_u24(44, self.starting_psn.number(), self.local_response_timeout << 3 | self.retry_count & 7);
        body.put_u16(48, self.pkey);
        body.0[50] = self.mtu.code() << 4 | self.rnr_retry & 7;
        body.0[51] = self.cm_retries << 4 | u8::from(self.shared_receives) << 3;
        body.put_u16(52, NO_LID);
        body.put_u16(54, NO_LID);
        body.put(56, path.local_gid);
        body.put(72, path.remote_gid);
        body.put_u32(88, path.flow_label << 12 | u32::from(path.rate & 0x3F));
        body.put(92, [path.traffic_class, path.hop_limit, path.service_level << 4, path.ack_timeout << 3]);
        body.put(140, self.data);
        body
    }
}
