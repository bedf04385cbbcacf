//! Captures: their content, refusals, losses, and ends.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use verbline_operate::capture::blocks::{Block, BlockKind, Blocks};
use verbline_operate::client::{Client, ClientError};
use verbline_operate::{CaptureAsk, FilterAsk, TraceAsk};
use verbline_roce::wire::{self, Rc, Segment, SendEnd, ip};

use crate::common::{PATIENCE, Served, once_free};

const ETHERNET_BYTES: usize = 14;

fn begun(served: &Served, ask: CaptureAsk) -> (Vec<String>, Blocks) {
    let (head, blocks) = Client::connect(&served.socket()).unwrap().capture(ask).unwrap();
    (head.points, blocks)
}

fn next(blocks: &mut Blocks) -> Block {
    blocks.next(PATIENCE).unwrap().expect("a block comes")
}

/// A packet's block, parsed.
#[derive(Debug)]
struct Packet {
    interface: u32,
    bytes: Vec<u8>,
    len_bytes: u32,
    is_received: bool,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn packet(block: &Block) -> Packet {
    let bytes = &block.bytes;
    assert_eq!((word(bytes, 4) as usize, word(bytes, bytes.len() - 4) as usize), (bytes.len(), bytes.len()));
    let kept = word(bytes, 20) as usize;
    let flags = 28 + kept.next_multiple_of(4);
    assert_eq!(word(bytes, flags), 4 << 16 | 2, "the length and the number of the flags");
    Packet {
        interface: word(bytes, 8),
        bytes: bytes[28..28 + kept].to_vec(),
        len_bytes: word(bytes, 24),
        is_received: word(bytes, flags + 4) == 1,
    }
}

/// The first `count` packets of a capture that has begun, and its count of losses at the end.
fn packets(blocks: &mut Blocks, count: usize) -> (Vec<Packet>, u64) {
    assert_eq!([next(blocks).kind, next(blocks).kind], [BlockKind::Head; 2], "a section and an interface");
    taken(blocks, count)
}

/// Like [`packets`], behind the first heads.
fn taken(blocks: &mut Blocks, count: usize) -> (Vec<Packet>, u64) {
    let (mut packets, mut lost) = (Vec::new(), 0);
    loop {
        match blocks.next(PATIENCE) {
            Ok(Some(block)) => match block.kind {
                BlockKind::Head => {}
                BlockKind::Packet => packets.push(packet(&block)),
                BlockKind::End { lost: here } => lost += here,
            },
            Ok(None) => panic!("nothing has come for {PATIENCE:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
                return (packets, lost);
            }
        }
        if packets.len() == count {
            blocks.end();
        }
    }
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().unwrap())
}

fn qpn(served: &Served, port: usize) -> u32 {
    served.running.as_ref().unwrap().snapshot().ports[port].qpn
}

#[test]
fn what_ports_send_and_receive_is_captured_once_each_as_frames() {
    let served = Served::new("");
    let (points, mut blocks) = begun(&served, CaptureAsk::default());
    assert_eq!(points, ["port.out", "port.in"]);
    let (packets, lost) = packets(&mut blocks, 400);
    assert_eq!(lost, 0);
    let qpns = [qpn(&served, 0), qpn(&served, 1)];
    let mut numbers: [Vec<u64>; 2] = Default::default();
    for packet in &packets {
        let frame = ip::read(&packet.bytes[ETHERNET_BYTES..]).expect("an IP packet to port 4791");
        assert!(frame.is_intact(), "its ICRC is right");
        let read = wire::read(frame.datagram).expect("a packet of RoCE");
        assert_eq!(read.segment, Segment::Rc(Rc::Send { first: true, last: Some(SendEnd::Plain) }));
        assert_eq!(read.bth.destination.number(), qpns[1], "both ports see what goes from one to the other");
        assert_eq!(packet.is_received, packet.interface == 1);
        assert_eq!(packet.len_bytes as usize, packet.bytes.len());
        numbers[packet.interface as usize].push(number(read.payload));
    }
    for numbers in &numbers {
        assert!(numbers.len() > 100, "{}", numbers.len());
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "each once, in order: {numbers:?}");
    }
    served.assert_undisturbed();
}

/// The link types of a capture's first interfaces.
fn link_types(blocks: &mut Blocks, interfaces: usize) -> Vec<u8> {
    assert_eq!(word(&next(blocks).bytes, 0), 0x0A0D_0D0A, "a section is first");
    (0..interfaces).map(|_| next(blocks)).map(|block| (word(&block.bytes, 0), block.bytes[8]).1).collect()
}

#[test]
fn what_a_stage_sends_is_captured_as_it_is_beside_the_frames_of_ports() {
    let served = Served::new("");
    let at = ["stage.source", "port.out", "stage.source.numbers"].map(String::from).to_vec();
    let (points, mut blocks) = begun(&served, CaptureAsk { at: at.clone(), ..CaptureAsk::default() });
    assert_eq!(points, at);
    assert_eq!(link_types(&mut blocks, 3), [147, 1, 147], "Ethernet has the port alone");
    let (packets, lost) = taken(&mut blocks, 300);
    assert_eq!(lost, 0);
    let numbers = |interface: u32| {
        let here = packets.iter().filter(move |packet| packet.interface == interface);
        here.map(|packet| {
            assert_eq!((packet.len_bytes, packet.is_received), (8, false));
            number(&packet.bytes)
        })
    };
    let (all, of_output): (Vec<u64>, Vec<u64>) = (numbers(0).collect(), numbers(2).collect());
    assert!(all.len() > 50 && all.windows(2).all(|pair| pair[1] == pair[0] + 1), "each once, in order: {all:?}");
    let both = all.len().min(of_output.len());
    assert_eq!(all[..both], of_output[..both], "the stage has no other output");
    served.assert_undisturbed();
}

#[test]
fn what_an_injector_gives_is_captured() {
    let injector = "\n[injector.hand]\nto = \"stage.sink\"\npool = \"packets\"\ndepth = 8\n";
    let (mut served, runtime) = Served::starting(injector);
    let hand = runtime.injector("hand").unwrap();
    served.run(runtime);
    let ask = CaptureAsk { at: vec!["injector.hand".into()], ..CaptureAsk::default() };
    let (_, mut blocks) = begun(&served, ask);
    assert_eq!(link_types(&mut blocks, 1), [147]);
    // Nothing is captured until the lcore has noticed the capture.
    let mut first = None;
    for text in (0_u64..).map(|number| number.to_le_bytes()) {
        let _ = hand.try_push(&text);
        first = blocks.next(Duration::from_millis(5)).unwrap();
        if first.is_some() {
            break;
        }
    }
    let packet = packet(&first.unwrap());
    assert_eq!((packet.len_bytes, packet.is_received), (8, false));
    served.assert_undisturbed();
}

/// Numbers sent to a stage on another lcore.
const HAND_OFF: &str = r#"
[lcore.other]
cpu = "allowed:1"
idle = "adaptive"

[ring.hand]
to = "stage.last"
depth = 32

[stage.makes]
use = "source"
lcore = "other"
pool = "packets"
out = { numbers = "ring.hand" }

[stage.last]
use = "sink"
lcore = "main"
"#;

#[test]
fn two_lcores_what_comes_by_a_ring_is_captured_where_it_is_taken() {
    let served = Served::new(HAND_OFF);
    let at = ["stage.makes", "ring.hand"].map(String::from).to_vec();
    let (_, mut blocks) = begun(&served, CaptureAsk { at, ..CaptureAsk::default() });
    assert_eq!(link_types(&mut blocks, 2), [147, 147]);
    let (packets, lost) = taken(&mut blocks, 200);
    assert_eq!(lost, 0);
    for interface in [0, 1] {
        let here = packets.iter().filter(|packet| packet.interface == interface);
        let numbers: Vec<u64> = here.map(|packet| number(&packet.bytes)).collect();
        assert!(!numbers.is_empty() && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    }
    served.assert_undisturbed();
}

#[test]
fn a_capture_keeps_what_is_asked_for_and_no_more() {
    let served = Served::new("");
    let ask = CaptureAsk {
        at: vec!["port.in".into()],
        snap_bytes: Some(3),
        raw: true,
        filter: Some(FilterAsk { offset: 0, hex: "2A".into() }),
        ..CaptureAsk::default()
    };
    let (points, mut blocks) = begun(&served, ask);
    assert_eq!(points, ["port.in"]);
    let (packets, _) = packets(&mut blocks, 3);
    for pair in packets.windows(2) {
        let [first, second] =
            [&pair[0].bytes, &pair[1].bytes].map(|bytes| bytes[1] as usize | (bytes[2] as usize) << 8);
        assert_eq!(second, (first + 1) & 0xFFFF, "every 256th number has the byte");
    }
    for packet in packets {
        assert_eq!((packet.bytes.len(), packet.bytes[0], packet.len_bytes), (3, 0x2A, 8));
    }
    served.assert_undisturbed();
}

/// Packets come in bursts of eight, and each of them passes two ports of one lcore.
#[test]
fn what_finds_no_room_is_lost_and_counted() {
    let served = Served::new("");
    let ask = CaptureAsk { depth_packets: Some(1), ..CaptureAsk::default() };
    let (_, mut blocks) = begun(&served, ask);
    let (packets, lost) = packets(&mut blocks, 20);
    assert!(lost >= 7 * 10, "{} of {} are lost", lost, packets.len() as u64 + lost);
    served.assert_undisturbed();
}

#[test]
fn what_can_not_be_captured_is_refused_with_what_can() {
    let (mut served, runtime) = Served::starting("");
    let refused = |served: &Served, ask: CaptureAsk| match Client::connect(&served.socket()).unwrap().capture(ask) {
        Err(ClientError::Refused(why)) => (why.code, why.message),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&served, CaptureAsk::default()).0, "starting");
    served.run(runtime);
    let (code, message) = refused(&served, CaptureAsk { at: vec!["port.off".into()], ..CaptureAsk::default() });
    assert_eq!(code, "invalid");
    assert_eq!(
        message,
        "nothing can be captured at \"port.off\"; what can be is port.out, port.in, stage.source, \
                         stage.source.numbers"
    );
    let filter = |hex: &str| Some(FilterAsk { offset: 0, hex: hex.into() });
    for (ask, says) in [
        (CaptureAsk { at: vec!["port.in".into(); 2], ..CaptureAsk::default() }, "named twice"),
        (CaptureAsk { snap_bytes: Some(0), ..CaptureAsk::default() }, "not within 1 to 65535"),
        (CaptureAsk { depth_packets: Some(0), ..CaptureAsk::default() }, "not within 1 to 65536"),
        (CaptureAsk { snap_bytes: Some(65_535), depth_packets: Some(65_536), ..CaptureAsk::default() }, "bytes, over"),
        (CaptureAsk { filter: filter("080"), ..CaptureAsk::default() }, "two hexadecimal digits"),
        (CaptureAsk { filter: filter(""), ..CaptureAsk::default() }, "two hexadecimal digits"),
    ] {
        let (code, message) = refused(&served, ask);
        assert!(code == "invalid" && message.contains(says), "{code}: {message}");
    }
    let (_, blocks) = begun(&served, CaptureAsk::default());
    assert_eq!(refused(&served, CaptureAsk::default()).0, "busy");
    // A client that goes away ends its capture first. Regression: the run was busy with it for a
    // moment more.
    drop(blocks);
    (0..20).for_each(|_| drop(begun(&served, CaptureAsk::default())));
    served.assert_undisturbed();
}

/// Regression: the run was busy for a moment more with the capture or trace of a client that was
/// killed.
#[test]
fn a_client_that_is_killed_makes_room_for_the_next_at_once() {
    let served = Served::new("");
    let kill = |ask: &str| {
        let mut killed = UnixStream::connect(served.socket()).unwrap();
        writeln!(killed, "{{\"verbline\":1,\"id\":1,\"ask\":\"{ask}\"}}").unwrap();
        killed.read_exact(&mut [0; 12]).unwrap();
    };
    for _ in 0..20 {
        kill("capture");
        drop(begun(&served, CaptureAsk::default()));
        kill("trace");
        drop(Client::connect(&served.socket()).unwrap().trace(TraceAsk::default()).unwrap());
    }
    served.assert_undisturbed();
}

/// A socket that the run closes with unread bytes would be reset.
#[test]
fn a_client_that_talks_during_its_capture_has_an_orderly_end() {
    let served = Served::new("");
    let mut client = UnixStream::connect(served.socket()).unwrap();
    writeln!(client, "{{\"verbline\":1,\"id\":1,\"ask\":\"capture\"}}").unwrap();
    client.read_exact(&mut [0; 12]).unwrap();
    (0..100).for_each(|_| client.write_all(b"and more\n").unwrap());
    client.shutdown(Shutdown::Write).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_to_end(&mut Vec::new()).expect("an end, and no reset");
    served.assert_undisturbed();
}

/// Waits until a capture can begin. Returns the time that this took.
fn await_free(served: &Served) -> Duration {
    let from = Instant::now();
    let connect = || Client::connect(&served.socket()).unwrap();
    let (_, mut blocks) = once_free(|| connect().capture(CaptureAsk::default()));
    assert_eq!(next(&mut blocks).kind, BlockKind::Head);
    from.elapsed()
}

#[test]
fn a_client_that_takes_nothing_loses_its_capture_and_others_are_served() {
    let served = Served::new("");
    let (_, blocks) = begun(&served, CaptureAsk::default());
    let report = Client::connect(&served.socket()).unwrap().report().unwrap();
    assert_eq!(report["plan"], "rig");
    let took = await_free(&served);
    assert!(took > Duration::from_secs(1), "it was given its time: {took:?}");
    drop(blocks);
    served.assert_undisturbed();
}

#[test]
fn a_capture_ends_with_its_run_and_has_all_until_then() {
    let mut served = Served::new("");
    let (_, mut blocks) = begun(&served, CaptureAsk { at: vec!["port.out".into()], ..CaptureAsk::default() });
    assert_eq!(next(&mut blocks).kind, BlockKind::Head);
    std::thread::sleep(Duration::from_millis(30));
    let report = served.running.take().unwrap().stop().unwrap();
    let (mut last, mut lost) = (None, None);
    loop {
        match blocks.next(PATIENCE) {
            Ok(Some(block)) => match block.kind {
                BlockKind::Head => {}
                BlockKind::Packet => last = Some(packet(&block)),
                BlockKind::End { lost: here } => lost = Some(here),
            },
            Ok(None) => panic!("it has not ended"),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(lost, Some(0));
    let last = last.expect("it has packets").bytes;
    let datagram = ip::read(&last[ETHERNET_BYTES..]).unwrap().datagram;
    let sent = report.ports[0].tx_packets;
    assert_eq!(number(wire::read(datagram).unwrap().payload) + 1, sent, "the last that was sent is in it");
}

#[test]
fn a_client_that_takes_nothing_does_not_keep_the_end_of_a_run_waiting() {
    let served = Served::new("");
    let (_, blocks) = begun(&served, CaptureAsk::default());
    served.assert_ends_beside(blocks);
}

#[test]
fn a_request_for_a_capture_is_strict() {
    use std::io::{BufRead, BufReader, Write};
    let served = Served::new("");
    let mut stream = UnixStream::connect(served.socket()).unwrap();
    stream.write_all(b"{\"verbline\":1,\"id\":9,\"ask\":\"capture\",\"capture\":{\"snap\":7}}\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.contains("\"malformed\"") && line.contains("unknown field `snap`"), "{line}");
    served.assert_undisturbed();
}
