//! Packets against bytes from other implementations.

use std::net::Ipv4Addr;

use verbline_roce::wire::{
    self, Addresses, AtomicExtension, AtomicOp, Bth, Malformed, Packet, Psn, Qpn, Rc, Reth, Route, Segment, Syndrome,
    Uc, WriteEnd, icrc, ip,
};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("two digits")).collect()
}

/// A congestion notification that a ConnectX-4 Lx sent, from the IP header on.
#[test]
fn the_icrc_of_a_card_is_right() {
    let frame = bytes(
        "45c2 003c 718c 4000 4011 9161 0a00 1101 0a00 1201 0000 12b7 0028 0000 8100 ffff 4000 0118 0000 0000
         0000 0000 0000 0000 0000 0000 0000 0000 82fd 002a",
    );
    let frame = ip::read(&frame).expect("a frame");
    assert_eq!((frame.ip_id, frame.route.source_port, frame.route.traffic_class), (0x718C, 0, 0xC2));
    assert!(frame.is_intact());
    let other = ip::Frame { ip_id: frame.ip_id ^ 1, ..frame };
    assert!(!other.is_intact(), "the checksum covers the identification");
    assert_eq!(wire::read(frame.datagram), Err(Malformed::Opcode { opcode: 0x81 }));
}

/// A datagram to another port, and one whose UDP length is not that of what lies there.
#[test]
fn only_a_whole_datagram_to_the_port_of_roce_is_a_frame() {
    let addresses = Addresses::V4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::LOCALHOST };
    let mut frame = vec![0; ip::IP_UDP_MAX_BYTES];
    let head = ip::write(&mut frame, &Route::new(addresses, 1, 2), 0, 8);
    frame.truncate(head + 8);
    frame.resize(head + 8, 7);
    assert!(ip::read(&frame).is_some());
    for (at, byte) in [(head - 6, 0), (head - 5, 0), (head - 3, 15), (head - 3, 17), (head - 3, 7)] {
        let mut other = frame.clone();
        other[at] = byte;
        assert_eq!(ip::read(&other), None, "{at}");
    }
    // Options, a fragment, one that may be cut, another protocol, and a byte that is wrong. All but
    // the last have the right checksum.
    for (at, byte, is_summed) in [(0, 0x46, true), (7, 1, true), (6, 0, true), (9, 6, true), (8, 63, false)] {
        let mut other = frame.clone();
        other[at] = byte;
        if is_summed {
            other[10..12].fill(0);
            let words = other[..20].chunks_exact(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]])));
            let sum = !((words.sum::<u64>() % 0xFFFF) as u16);
            other[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        assert_eq!(ip::read(&other), None, "{at}");
    }
}

/// The words of an IPv4 header add up to all ones, in ones' complement: whatever is carried.
#[test]
fn the_checksum_of_each_header_is_right() {
    let (source, destination) = (Ipv4Addr::new(255, 254, 253, 252), Ipv4Addr::new(251, 250, 249, 248));
    let route = Route::new(Addresses::V4 { source, destination }, 1, 2);
    for ip_id in 0..=u16::MAX {
        let mut frame = [0; ip::IP_UDP_MAX_BYTES];
        ip::write(&mut frame, &route, ip_id, 8);
        let words = frame[..20].chunks_exact(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]])));
        assert_eq!(words.sum::<u64>() % 0xFFFF, 0, "{ip_id:#x}");
    }
}

/// The example of scapy's test of the ICRC. Its UDP checksum is not 0: the ICRC masks it.
#[test]
fn a_packet_is_written_as_scapy_writes_it() {
    let address = Ipv4Addr::new(192, 168, 0, 7);
    let addresses = Addresses::V4 { source: address, destination: address };
    let route = Route { addresses, source_port: 49152, traffic_class: 1 };
    let bth = Bth { migrated: true, ..Bth::new(Qpn::new(211), Psn::new(13_571_856)) };
    let segment = Segment::Uc(Uc::Send { first: true, last: Some(WriteEnd::Plain) });
    let payload = bytes("4630 818b e289 35d9 0e9a 9550 5401 be88 5e50");
    let mut out = [0; 256];
    let len = Packet { bth, segment, payload: &payload }.write(&mut out, &route, 1144);
    assert_eq!(
        out[..len],
        bytes("2460 ffff 0000 00d3 00cf 1710 4630 818b e289 35d9 0e9a 9550 5401 be88 5e50 0000 78f3 53f3")
    );
}

/// Every field of every header is in its place, by the tables of the InfiniBand specification.
#[test]
fn headers_are_where_the_specification_has_them() {
    let route = Route::new(Addresses::V4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::LOCALHOST }, 1, 2);
    let bth = Bth { solicited: true, ack_request: true, ..Bth::new(Qpn::new(0x01_0203), Psn::new(0xFE_DCBA)) };
    let (addr, rkey) = (0x1122_3344_5566_7788, 0x99AA_BBCC);
    let swap = AtomicOp::CompareSwap { compare: 0x0102_0304_0506_0708, swap: 0x1112_1314_1516_1718 };
    let said = Syndrome { code: Syndrome::NAK_SEQUENCE, msn: 0x12_3456 };
    let rows: [(Rc, &str); 4] = [
        (
            Rc::ReadRequest(Reth { addr, rkey, len: 0xDDEE_FF00 }),
            "0c 80 ffff 00 010203 80 fedcba 1122334455667788 99aabbcc ddeeff00",
        ),
        (
            Rc::Atomic(AtomicExtension { addr, rkey, op: swap }),
            "13 80 ffff 00 010203 80 fedcba 1122334455667788 99aabbcc 1112131415161718 0102030405060708",
        ),
        (Rc::Acknowledge(said), "11 80 ffff 00 010203 80 fedcba 60 123456"),
        (Rc::AtomicResponse(said, addr), "12 80 ffff 00 010203 80 fedcba 60 123456 1122334455667788"),
    ];
    for (rc, expected) in rows {
        let mut out = [0; 256];
        let len = Packet { bth, segment: Segment::Rc(rc), payload: &[] }.write(&mut out, &route, 0);
        assert_eq!(out[..len - 4], bytes(expected), "{rc:?}");
    }
}

/// Each of the 256 opcodes is read as the segment that is written with it, or refused; this is the
/// whole table.
#[test]
fn opcodes_are_those_of_the_specification() {
    let known = |opcode: u8| matches!(opcode, 0..=0x14 | 0x16 | 0x17 | 0x20..=0x2B | 0x64 | 0x65);
    for opcode in 0..=u8::MAX {
        let mut datagram = [0; 12 + 28 + 4];
        datagram[0] = opcode;
        match wire::read(&datagram) {
            Ok(packet) => assert_eq!((packet.segment.opcode(), known(opcode)), (opcode, true)),
            Err(error) => assert_eq!((error, known(opcode)), (Malformed::Opcode { opcode }, false)),
        }
        // Without its headers it is no packet.
        if known(opcode) && wire::read(&datagram[..16]).is_err() {
            assert_eq!(wire::read(&datagram[..16]), Err(Malformed::Short { bytes: 16 }));
        }
    }
}

#[test]
fn what_is_no_packet_says_why() {
    let mut datagram = [0; 12 + 8 + 4];
    datagram[0] = 4;
    assert!(wire::read(&datagram).is_ok());
    assert_eq!(wire::read(&datagram[..15]), Err(Malformed::Short { bytes: 15 }));
    assert_eq!(wire::read(&[]), Err(Malformed::Short { bytes: 0 }));
    assert_eq!(wire::read(&datagram[..23]), Err(Malformed::Pad { pad: 0, payload: 7 }));
    datagram[1] = 0x31;
    assert_eq!(wire::read(&datagram), Err(Malformed::Version { version: 1 }));
    datagram[1] = 0x30;
    assert_eq!(wire::read(&datagram).map(|packet| packet.payload.len()), Ok(5));
    assert_eq!(wire::read(&datagram[..16]), Err(Malformed::Pad { pad: 3, payload: 0 }));
}

#[test]
fn numbers_wrap_at_24_bits() {
    let top = Psn::new(0xFF_FFFF);
    assert_eq!((top.plus(1), Psn::new(0).before()), (Psn::new(0), top));
    assert_eq!((Psn::new(3).ahead_of(top), top.ahead_of(Psn::new(3))), (4, -4));
    assert_eq!(Psn::new(0x7F_FFFF).ahead_of(Psn::new(0)), 0x7F_FFFF);
    assert_eq!(Psn::new(0x80_0000).ahead_of(Psn::new(0)), -0x80_0000);
}

/// The ICRC stays right if a bit changes that routers may change, and becomes wrong with any other.
#[test]
fn the_icrc_covers_what_no_router_changes() {
    let v4 = Addresses::V4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: Ipv4Addr::new(10, 0, 0, 2) };
    let v6 = Addresses::V6 {
        source: "fe80::1".parse().expect("an address"),
        destination: "fe80::2".parse().expect("an address"),
    };
    for addresses in [v4, v6] {
        let route = Route { addresses, source_port: 0xC001, traffic_class: 0 };
        let segment = Segment::Rc(Rc::Acknowledge(Syndrome { code: Syndrome::ACK, msn: 1 }));
        let mut datagram = [0; 64];
        let len =
            Packet { bth: Bth::new(Qpn::new(9), Psn::new(9)), segment, payload: &[] }.write(&mut datagram, &route, 7);
        assert!(icrc::check(&datagram[..len], &Route { traffic_class: 0xFF, ..route }, 7));
        assert!(!icrc::check(&datagram[..len], &Route { source_port: 0xC002, ..route }, 7));
        assert!(!icrc::check(&datagram[..len], &Route { addresses: addresses.reversed(), ..route }, 7));
        assert_eq!(icrc::check(&datagram[..len], &route, 8), matches!(addresses, Addresses::V6 { .. }));
        for bit in 0..len * 8 {
            let mut changed = datagram;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(icrc::check(&changed[..len], &route, 7), bit / 8 == 4, "bit {bit}");
        }
    }
}
