//! Wireshark's dissector reads what we write: the operation, the numbers, and nothing malformed.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use verbline_roce::wire::{Addresses, Bth, Packet, Psn, Qpn, Route, Segment, ip};

use crate::wire_properties::segments;

const PACKETS: u32 = 200;
/// What takes our payloads for its own, by a guess.
const GUESSERS: [&str; 10] = [
    "infiniband.eoib",
    "rpcordma",
    "smc",
    "smb_direct",
    "nvme-rdma",
    "lnet",
    "iser",
    "infiniband_sdp",
    "fcoib",
    "drbd",
];
/// Raw IP, in the file format of libpcap.
const LINKTYPE_RAW: u32 = 101;

fn capture(packets: &[(Bth, Segment, Vec<u8>)], route: &Route) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xA1B2_C3D4, 4 << 16 | 2, 0, 0, 65535, LINKTYPE_RAW] {
        file.extend_from_slice(&u32::to_le_bytes(word));
    }
    for (bth, segment, payload) in packets {
        let (mut datagram, mut headers) = (vec![0; payload.len() + 64], [0; ip::IP_UDP_MAX_BYTES]);
        let len = Packet { bth: *bth, segment: *segment, payload }.write(&mut datagram, route, 0);
        let head = ip::write(&mut headers, route, 0, len);
        let total = (head + len) as u32;
        [0, 0, total, total].iter().for_each(|word: &u32| file.extend_from_slice(&word.to_le_bytes()));
        file.extend_from_slice(&headers[..head]);
        file.extend_from_slice(&datagram[..len]);
    }
    file
}

#[test]
fn tshark_reads_our_packets_as_infiniband() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return println!("skipped: tshark is not installed");
    }
    let (from, to) = (Ipv4Addr::new(10, 7, 0, 1), Ipv4Addr::new(10, 7, 0, 2));
    let v6 = |last| Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last);
    for addresses in
        [Addresses::V4 { source: from, destination: to }, Addresses::V6 { source: v6(1), destination: v6(2) }]
    {
        let mut runner = TestRunner::deterministic();
        let packets: Vec<_> = (0..PACKETS)
            .map(|at| {
                let segment = segments().new_tree(&mut runner).expect("a segment").current();
                let bth =
                    Bth { ack_request: at % 2 == 0, ..Bth::new(Qpn::new(0x12_0000 + at), Psn::new(0xFF_FF00 + at)) };
                (bth, segment, vec![at as u8; at as usize % 70])
            })
            .collect();
        let path = std::env::temp_dir().join(format!("verbline-roce-{}.pcap", std::process::id()));
        fs::write(&path, capture(&packets, &Route::new(addresses, 1, 2))).expect("a capture is written");
        let fields = [
            "frame.protocols",
            "infiniband.bth.opcode",
            "infiniband.bth.destqp",
            "infiniband.bth.psn",
            "_ws.malformed",
        ];
        let output = Command::new("tshark")
            .arg("-r")
            .arg(&path)
            .args(GUESSERS.iter().flat_map(|name| ["--disable-protocol", name]))
            .args(["-T", "fields"])
            .args(fields.iter().flat_map(|field| ["-e", field]))
            .output()
            .expect("tshark runs");
        fs::remove_file(&path).expect("the capture is removed");
        let text = String::from_utf8(output.stdout).expect("text");
        assert_eq!(text.lines().count(), packets.len(), "{}", String::from_utf8_lossy(&output.stderr));
        for ((bth, segment, _), line) in packets.iter().zip(text.lines()) {
            let columns: Vec<&str> = line.split('\t').collect();
            let expected = [
                segment.opcode().to_string(),
                format!("0x{:06x}", bth.destination.number()),
                bth.psn.number().to_string(),
                String::new(),
            ];
            assert!(columns[0].contains("infiniband"), "{line}");
            assert_eq!(columns[1..], expected, "{segment:?}: {line}");
        }
    }
}
