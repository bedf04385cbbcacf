//! Wireshark's dissector reads our packets: the operation, the numbers, and nothing malformed.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv6Addr;
use std::process::Command;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use verbline_roce::transport::{Mtu, Retries};
use verbline_roce::wire::{self, Addresses, Bth, HEADERS_MAX_BYTES, Packet, Psn, Qpn, Route, ip};

use crate::sim::network::Faults;
use crate::sim::world::{World, addresses};
use crate::wire_properties::segments;

const PACKETS: u32 = 200;
/// Dissectors that guess our payloads to be theirs.
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

fn capture(datagrams: &[(Route, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xA1B2_C3D4, 4 << 16 | 2, 0, 0, 65535, LINKTYPE_RAW] {
        file.extend_from_slice(&u32::to_le_bytes(word));
    }
    for (route, datagram) in datagrams {
        let mut headers = [0; ip::IP_UDP_MAX_BYTES];
        let head = ip::write(&mut headers, route, 0, datagram.len());
        let total = (head + datagram.len()) as u32;
        [0, 0, total, total].iter().for_each(|word: &u32| file.extend_from_slice(&word.to_le_bytes()));
        file.extend_from_slice(&headers[..head]);
        file.extend_from_slice(datagram);
    }
    file
}

/// Returns tshark's values of some fields of each datagram; nothing if it is not installed.
pub(crate) fn dissected(name: &str, datagrams: &[(Route, Vec<u8>)], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: tshark is not installed");
        return None;
    }
    let path = std::env::temp_dir().join(format!("verbline-roce-{name}-{}.pcap", std::process::id()));
    fs::write(&path, capture(datagrams)).expect("a capture is written");
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
    assert_eq!(text.lines().count(), datagrams.len(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

const FIELDS: [&str; 5] =
    ["frame.protocols", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "_ws.malformed"];

/// The expected values of a packet's [`FIELDS`], behind the protocols.
fn columns(packet: &Packet<'_>) -> [String; 4] {
    let bth = packet.bth;
    let (opcode, destination) = (packet.segment.opcode(), bth.destination.number());
    [opcode.to_string(), format!("0x{destination:06x}"), bth.psn.number().to_string(), String::new()]
}

fn check(name: &str, datagrams: &[(Route, Vec<u8>)]) {
    let Some(lines) = dissected(name, datagrams, &FIELDS) else { return };
    for ((_, datagram), line) in datagrams.iter().zip(lines) {
        let packet = wire::read(datagram).expect("a packet");
        assert!(line[0].contains("infiniband"), "{line:?}");
        assert_eq!(line[1..], columns(&packet), "{packet:?}: {line:?}");
    }
}

#[test]
fn tshark_reads_our_packets_as_infiniband() {
    let v6 = |last| Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last);
    let mut runner = TestRunner::deterministic();
    let mut datagrams = Vec::new();
    for addresses in [addresses(0, 1), Addresses::V6 { source: v6(1), destination: v6(2) }] {
        let route = Route::new(addresses, 1, 2);
        for at in 0..PACKETS {
            let segment = segments().new_tree(&mut runner).expect("a segment").current();
            let bth = Bth { ack_request: at % 2 == 0, ..Bth::new(Qpn::new(0x12_0000 + at), Psn::new(0xFF_FF00 + at)) };
            let payload = vec![at as u8; at as usize % 70];
            let mut datagram = vec![0; payload.len() + HEADERS_MAX_BYTES];
            let len = Packet { bth, segment, payload: &payload }.write(&mut datagram, &route, 0);
            datagram.truncate(len);
            datagrams.push((route, datagram));
        }
    }
    check("packets", &datagrams);
}

/// Conversations of all operations, with all the effects of losses.
#[test]
fn tshark_reads_our_conversations_as_infiniband() {
    let mut datagrams = Vec::new();
    for seed in 0..8 {
        let faults = Faults { lost: 30, doubled: 30, changed: 0, late: 30 };
        let mut world = World::new(seed, 2, faults);
        world.network.kept = Some(Vec::new());
        world.connect([0, 1], Mtu::B512, Retries { timeout: 7, ..Retries::default() }, 20);
        world.run();
        datagrams.extend(world.network.kept.take().into_iter().flatten());
    }
    assert!(datagrams.len() > 1000, "{}", datagrams.len());
    check("conversations", &datagrams);
    let opcodes: BTreeSet<u8> = datagrams.iter().map(|(_, datagram)| datagram[0]).collect();
    let all: BTreeSet<u8> = (0..=0x14).collect();
    assert_eq!(opcodes, all, "all operations but SEND with invalidation");
}
