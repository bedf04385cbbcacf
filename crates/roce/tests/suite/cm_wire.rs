//! Messages of connection management as bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use verbline_roce::cm::{
    Accept, CmDiscard, Connect, Disconnect, Disconnected, IpHeader, MAD_BYTES, Mad, MadError, Message, Path, PortSpace,
    Ready, Reject, Rejected, Reply, Request, Resolve, Resolved, Wait, packet_of, reason,
};
use verbline_roce::transport::Mtu;
use verbline_roce::wire::{self, Deth, HEADERS_MAX_BYTES, Psn, Qpn, Route, Segment};

use crate::cm::{address, two};
use crate::sim::world::addresses;

fn paths() -> impl Strategy<Value = Path> {
    let gids = (any::<[u8; 16]>(), any::<[u8; 16]>());
    (gids, 0..1_u32 << 20, 0..64_u8, any::<[u8; 2]>(), 0..16_u8, 0..32_u8).prop_map(
        |((local_gid, remote_gid), flow_label, rate, [traffic_class, hop_limit], service_level, ack_timeout)| Path {
            local_gid,
            remote_gid,
            flow_label,
            rate,
            traffic_class,
            hop_limit,
            service_level,
            ack_timeout,
        },
    )
}

pub(crate) fn requests() -> impl Strategy<Value = Request> {
    let numbers = (any::<[u32; 3]>(), any::<[u64; 2]>(), any::<[u8; 2]>(), any::<u16>());
    let small = ([0..32_u8, 0..32_u8, 0..4_u8, 0..8_u8, 0..8_u8, 0..16_u8, 1..6_u8], any::<[bool; 2]>());
    let data = prop::collection::vec(any::<u8>(), 92);
    (numbers, small, paths(), data).prop_map(
        |(([local_id, qpn, psn], [service, ca_guid], [resources, depth], pkey), (small, flags), path, data)| Request {
            local_id,
            service,
            ca_guid,
            qpn: Qpn::new(qpn),
            responder_resources: resources,
            initiator_depth: depth,
            remote_response_timeout: small[0],
            service_type: small[2],
            flow_control: flags[0],
            starting_psn: Psn::new(psn),
            local_response_timeout: small[1],
            retry_count: small[3],
            pkey,
            mtu: Mtu::of_code(small[6]).expect("1 to 5"),
            rnr_retry: small[4],
            cm_retries: small[5],
            shared_receives: flags[1],
            path,
            data: data.try_into().expect("as many"),
        },
    )
}

pub(crate) fn replies() -> impl Strategy<Value = Reply> {
    let numbers = (any::<[u32; 4]>(), any::<u64>(), any::<[u8; 2]>(), 0..32_u8, 0..8_u8, any::<[bool; 2]>());
    (numbers, prop::collection::vec(any::<u8>(), 196)).prop_map(
        |(([local_id, remote_id, qpn, psn], ca_guid, [resources, depth], ack_delay, rnr_retry, flags), data)| Reply {
            local_id,
            remote_id,
            qpn: Qpn::new(qpn),
            starting_psn: Psn::new(psn),
            responder_resources: resources,
            initiator_depth: depth,
            ack_delay,
            flow_control: flags[0],
            rnr_retry,
            shared_receives: flags[1],
            ca_guid,
            data: data.try_into().expect("as many"),
        },
    )
}

pub(crate) fn mads() -> impl Strategy<Value = Mad> {
    let ids = || (any::<u32>(), any::<u32>());
    let of = || prop_oneof![Just(Rejected::Request), Just(Rejected::Reply), Just(Rejected::Other)];
    let data = prop::collection::vec(any::<u8>(), 148);
    let message = prop_oneof![
        requests().prop_map(Message::Request),
        replies().prop_map(Message::Reply),
        (ids(), of(), 0..32_u8).prop_map(|((local_id, remote_id), of, timeout)| {
            Message::Wait(Wait { local_id, remote_id, of, timeout })
        }),
        (ids(), of(), any::<u16>(), any::<u64>(), data).prop_map(|((local_id, remote_id), of, reason, info, data)| {
            Message::Reject(Reject { local_id, remote_id, of, reason, info, data: data.try_into().expect("as many") })
        }),
        ids().prop_map(|(local_id, remote_id)| Message::Ready(Ready { local_id, remote_id })),
        (ids(), any::<u32>()).prop_map(|((local_id, remote_id), qpn)| {
            Message::Disconnect(Disconnect { local_id, remote_id, remote_qpn: Qpn::new(qpn) })
        }),
        ids().prop_map(|(local_id, remote_id)| Message::Disconnected(Disconnected { local_id, remote_id })),
        any::<(u32, u64)>().prop_map(|(request_id, service)| Message::Resolve(Resolve { request_id, service })),
        any::<(u32, u8, u64)>().prop_map(|(request_id, status, service)| Message::Resolved(Resolved {
            request_id,
            status,
            service
        })),
    ];
    (any::<u64>(), message).prop_map(|(transaction, message)| Mad { transaction, message })
}

proptest! {
    #[test]
    fn a_message_is_read_as_it_was_written(mad in mads()) {
        prop_assert_eq!(Mad::read(&mad.to_bytes()), Ok(mad));
    }

    /// Random bytes, some of them those of a message: a message that is read is the same when
    /// written and read again.
    #[test]
    fn any_bytes_are_a_message_or_an_error(
        mad in mads(), changes in prop::collection::vec((0..MAD_BYTES, any::<u8>()), 0..20), len in 0..300_usize,
    ) {
        let mut bytes = mad.to_bytes().to_vec();
        changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        if let Ok(read) = Mad::read(&bytes) {
            prop_assert_eq!(Mad::read(&read.to_bytes()), Ok(read));
            if let Message::Request(request) = read.message {
                let _ = (request.ip(), request.port(), request.user_data());
            }
        }
        bytes.resize(len, 7);
        if len != MAD_BYTES {
            prop_assert_eq!(Mad::read(&bytes), Err(MadError::Length { bytes: len }));
        }
    }

    #[test]
    fn addresses_are_read_as_they_were_written(
        v4 in any::<[u32; 2]>(), v6 in any::<[u128; 2]>(), source_port in any::<u16>(), any in any::<[u8; 36]>(),
    ) {
        let [source, destination] = v4.map(Ipv4Addr::from);
        let header = IpHeader::V4 { source_port, source, destination };
        prop_assert_eq!(IpHeader::read(&header.to_bytes()), Some(header));
        let [source, destination] = v6.map(Ipv6Addr::from);
        let header = IpHeader::V6 { source_port, source, destination };
        prop_assert_eq!(IpHeader::read(&header.to_bytes()), Some(header));
        let _ = IpHeader::read(&any);
    }
}

/// Every field is where the structures of the kernel's connection manager have it.
#[test]
fn a_request_has_its_fields_where_the_kernel_has_them() {
    let [from, to] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().expect("an address"));
    let (qpn, psn) = (Qpn::new(0x12_3456), Psn::new(0x65_4321));
    let mut connect = Connect::new(from, to, 4420, qpn, psn, Mtu::B1024, b"data").expect("of one family");
    connect.request.path.flow_label = 0xA_BCDE;
    let mad = Mad { transaction: 0x0102_0304_0506_0708, message: Message::Request(connect.request) };
    let bytes = mad.to_bytes();
    assert_eq!(bytes[..24], [1, 7, 2, 3, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0x10, 0, 0, 0, 0, 0, 0]);
    let body = &bytes[24..];
    assert_eq!(body[8..16], PortSpace::Reliable.service_of_port(4420).to_be_bytes());
    assert_eq!(PortSpace::Reliable.service_of_port(4420), 0x0106_1144);
    assert_eq!(body[32..36], [0x12, 0x34, 0x56, 16]);
    assert_eq!(body[44..52], [0x65, 0x43, 0x21, 7, 0xFF, 0xFF, 3 << 4 | 7, 0]);
    assert_eq!(body[56..72], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1]);
    assert_eq!(body[88..96], [0xAB, 0xCD, 0xE0, 3, 0, 64, 0, 14 << 3]);
    let private = &body[140..];
    assert_eq!(
        (private[0], private[1], &private[16..20], &private[32..40]),
        (0, 0x40, &[10, 0, 0, 1][..], &b"\x0a\0\0\x02data"[..])
    );
    let mut odd = bytes;
    odd[24 + 50] = 0x60;
    assert_eq!(Mad::read(&odd), Err(MadError::Mtu(6)));
    odd[17] = 0x19;
    assert_eq!(Mad::read(&odd), Err(MadError::Attribute(0x19)));
    odd[1] = 3;
    assert_eq!(Mad::read(&odd), Err(MadError::Kind([1, 3, 2, 3])));
}

/// And says that there is no alternate path, which the request may have named.
#[test]
fn a_reply_has_its_fields_where_the_kernel_has_them() {
    let Accept { mut reply } = Accept::new(Qpn::new(0x12_3456), Psn::new(0x65_4321), b"data");
    (reply.local_id, reply.remote_id, reply.ca_guid, reply.ack_delay) = (1, 2, 3, 17);
    (reply.flow_control, reply.shared_receives) = (true, true);
    let bytes = Mad { transaction: 7, message: Message::Reply(reply) }.to_bytes();
    assert_eq!(bytes[16..18], [0, 0x13]);
    let body = &bytes[24..];
    assert_eq!(
        (&body[..8], &body[12..15], &body[20..23]),
        (&[0, 0, 0, 1, 0, 0, 0, 2][..], &[0x12, 0x34, 0x56][..], &[0x65, 0x43, 0x21][..])
    );
    assert_eq!(body[24..28], [16, 16, 17 << 3 | 1 << 1 | 1, 7 << 5 | 1 << 4]);
    assert_eq!((&body[28..36], &body[36..41]), (&[0, 0, 0, 0, 0, 0, 0, 3][..], &b"data\0"[..]));
}

/// Regression: a kernel that asked for a service's datagram queue pair (`rdma_cm` does, for UD) was
/// not answered, and waited for as long as all of its retries took.
#[test]
fn a_question_for_a_datagram_queue_pair_is_answered_as_the_kernel_answers_it() {
    let message = |attribute, parts: &[&[u8]]| {
        let header = [&[1, 7, 2, 3, 0, 0, 0, 0, 9, 8, 7, 6, 5, 4, 3, 2, 0, attribute, 0, 0, 0, 0, 0, 0][..]];
        let mut bytes = [&header[..], parts].concat().concat();
        bytes.resize(MAD_BYTES, 0);
        bytes
    };
    let service = 0x0111_1144_u64.to_be_bytes();
    let asked = message(0x17, &[&[1, 2, 3, 4, 0xFF, 0xFF, 0, 0], &service, b"private data"]);
    let mut two = two();
    let answered = two.server.receive(0, 0, address(1), &asked);
    assert_eq!(answered, Err(CmDiscard::Rejected(reason::INVALID_SERVICE)));
    let answer = two.server.transmit().expect("an answer");
    assert_eq!((answer.to, two.server.transmit(), two.server.len()), (address(1), None, 0));
    let expected = message(0x18, &[&[1, 2, 3, 4, Resolved::UNSUPPORTED, 0, 0, 0, 0, 0, 0, 0], &service]);
    assert_eq!(answer.mad[..], expected[..]);
    // We ask for none.
    assert_eq!(two.client.receive(0, 0, address(2), &answer.mad), Err(CmDiscard::NoConnection));
    assert_eq!(two.client.transmit(), None);
}

pub(crate) fn datagram(mad: &Mad, route: &Route) -> Vec<u8> {
    let mut out = vec![0; MAD_BYTES + HEADERS_MAX_BYTES];
    let len = packet_of(&mad.to_bytes(), Psn::new(3)).write(&mut out, route, 0);
    out.truncate(len);
    out
}

#[test]
fn a_message_travels_from_queue_pair_1_to_queue_pair_1() {
    let message = Message::Ready(Ready { local_id: 1, remote_id: 2 });
    let bytes = datagram(&Mad { transaction: 1, message }, &Route::new(addresses(0, 1), 1, 1));
    let packet = wire::read(&bytes).expect("a packet");
    let deth = Deth { qkey: 0x8001_0000, source: Qpn::MANAGEMENT };
    assert_eq!((packet.bth.destination, packet.segment), (Qpn::MANAGEMENT, Segment::Ud(deth, None)));
    assert_eq!(Mad::read(packet.payload).map(|mad| mad.message), Ok(message));
}
