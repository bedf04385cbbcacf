//! Written packets are read back, and no bytes cause a panic.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use verbline_roce::wire::{
    self, Addresses, AtomicExtension, AtomicOp, Bth, Deth, HEADERS_MAX_BYTES, Packet, Psn, Qpn, Rc, ReadPart, Reth,
    Route, Segment, SendEnd, Syndrome, Uc, WriteEnd, icrc, ip,
};

pub(crate) fn segments() -> impl Strategy<Value = Segment> {
    let reth = || (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(addr, rkey, len)| Reth { addr, rkey, len });
    let said = || (any::<u8>(), 0..1_u32 << 24).prop_map(|(code, msn)| Syndrome { code, msn });
    let end = || prop_oneof![Just(WriteEnd::Plain), any::<u32>().prop_map(WriteEnd::Immediate)];
    let send_end = prop_oneof![
        Just(SendEnd::Plain),
        any::<u32>().prop_map(SendEnd::Immediate),
        any::<u32>().prop_map(SendEnd::Invalidate),
    ];
    let op = prop_oneof![
        (any::<u64>(), any::<u64>()).prop_map(|(compare, swap)| AtomicOp::CompareSwap { compare, swap }),
        any::<u64>().prop_map(AtomicOp::FetchAdd),
    ];
    let atomic = (any::<u64>(), any::<u32>(), op).prop_map(|(addr, rkey, op)| AtomicExtension { addr, rkey, op });
    let part = prop_oneof![
        said().prop_map(ReadPart::First),
        Just(ReadPart::Middle),
        said().prop_map(ReadPart::Last),
        said().prop_map(ReadPart::Only),
    ];
    let rc = prop_oneof![
        (any::<bool>(), prop::option::of(send_end)).prop_map(|(first, last)| Rc::Send { first, last }),
        (prop::option::of(reth()), prop::option::of(end())).prop_map(|(first, last)| Rc::Write { first, last }),
        reth().prop_map(Rc::ReadRequest),
        part.prop_map(Rc::ReadResponse),
        said().prop_map(Rc::Acknowledge),
        (said(), any::<u64>()).prop_map(|(said, original)| Rc::AtomicResponse(said, original)),
        atomic.prop_map(Rc::Atomic),
    ];
    let uc = prop_oneof![
        (any::<bool>(), prop::option::of(end())).prop_map(|(first, last)| Uc::Send { first, last }),
        (prop::option::of(reth()), prop::option::of(end())).prop_map(|(first, last)| Uc::Write { first, last }),
    ];
    let deth = (any::<u32>(), any::<u32>()).prop_map(|(qkey, source)| Deth { qkey, source: Qpn::new(source) });
    prop_oneof![
        rc.prop_map(Segment::Rc),
        uc.prop_map(Segment::Uc),
        (deth, prop::option::of(any::<u32>())).prop_map(|(deth, immediate)| Segment::Ud(deth, immediate)),
    ]
}

pub(crate) fn bths() -> impl Strategy<Value = Bth> {
    (any::<[bool; 5]>(), any::<u16>(), any::<u32>(), any::<u32>()).prop_map(|(flags, pkey, destination, psn)| Bth {
        solicited: flags[0],
        migrated: flags[1],
        pkey,
        forward_congestion: flags[2],
        backward_congestion: flags[3],
        destination: Qpn::new(destination),
        ack_request: flags[4],
        psn: Psn::new(psn),
    })
}

pub(crate) fn routes() -> impl Strategy<Value = Route> {
    let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>())
        .prop_map(|(from, to)| Addresses::V4 { source: Ipv4Addr::from(from), destination: Ipv4Addr::from(to) });
    let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>())
        .prop_map(|(from, to)| Addresses::V6 { source: Ipv6Addr::from(from), destination: Ipv6Addr::from(to) });
    (prop_oneof![v4, v6], any::<u16>(), any::<u8>()).prop_map(|(addresses, source_port, traffic_class)| Route {
        addresses,
        source_port,
        traffic_class,
    })
}

proptest! {
    #[test]
    fn a_packet_is_read_as_it_was_written(
        bth in bths(), segment in segments(), route in routes(), ip_id in any::<u16>(),
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let packet = Packet { bth, segment, payload: &payload };
        let mut out = vec![0xEE; ip::IP_UDP_MAX_BYTES + payload.len() + HEADERS_MAX_BYTES];
        let len = packet.write(&mut out[ip::IP_UDP_MAX_BYTES..], &route, ip_id);
        let datagram = out[ip::IP_UDP_MAX_BYTES..][..len].to_vec();
        prop_assert_eq!(wire::read(&datagram), Ok(packet));
        prop_assert!(icrc::check(&datagram, &route, ip_id));
        let mut frame = vec![0; ip::IP_UDP_MAX_BYTES];
        let headers = ip::write(&mut frame, &route, ip_id, len);
        frame.truncate(headers);
        frame.extend_from_slice(&datagram);
        let read = ip::read(&frame).expect("a frame");
        prop_assert!(read.is_intact() && read.route == route && read.datagram == datagram);
    }

    #[test]
    fn any_bytes_are_a_packet_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(packet) = wire::read(&bytes) {
            prop_assert!(packet.payload.len() <= bytes.len() - 16);
        }
        let _ = ip::read(&bytes).map(|frame| frame.is_intact());
    }

    /// Likewise with bytes that begin like a packet.
    #[test]
    fn a_packet_that_is_cut_anywhere_is_a_packet_or_an_error(
        bth in bths(), segment in segments(), route in routes(), cut in any::<prop::sample::Index>(),
    ) {
        let mut out = [0; 256];
        let len = Packet { bth, segment, payload: &[7; 9] }.write(&mut out, &route, 0);
        let cut = cut.index(len);
        if let Ok(packet) = wire::read(&out[..cut]) {
            prop_assert_eq!(packet.segment, segment);
        }
        prop_assert!(!icrc::check(&out[..cut], &route, 0));
    }
}
