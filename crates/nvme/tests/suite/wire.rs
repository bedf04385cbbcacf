//! Commands of Linux hosts, byte for byte, and their meaning to us.

use verbline_nvme::connect::{CNTLID_ANY, Connect};
use verbline_nvme::io::{self, ReadWrite};
use verbline_nvme::log::LogRequest;
use verbline_nvme::namespace::{self, Name, Names};
use verbline_nvme::property::{self, Property};
use verbline_nvme::{COMMAND_BYTES, Command, Response, Sgl, Status, cm, identify, opcode};

/// A command from the bytes that are not zero: (place, bytes).
fn command(parts: &[(usize, &[u8])]) -> Command {
    let mut bytes = [0; COMMAND_BYTES];
    for (at, part) in parts {
        bytes[*at..at + part.len()].copy_from_slice(part);
    }
    let command = Command::read(&bytes).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(command.to_bytes(), bytes, "what is read is written as it was");
    command
}

#[test]
fn private_data_of_the_kernels_host() {
    let with_zeros = |head: &[u8]| [head, &[0; 56][head.len()..]].concat();
    let admin = cm::Request::read(&with_zeros(&[0, 0, 0, 0, 0x20, 0, 0x1F, 0]));
    assert_eq!(admin, Ok(cm::Request { qid: 0, recv_depth: 32, send_depth_less_one: 31, cntlid: 0 }));
    let io = cm::Request::read(&with_zeros(&[0, 0, 1, 0, 0x80, 0, 0x7F, 0]));
    assert_eq!(io, Ok(cm::Request { qid: 1, recv_depth: 128, send_depth_less_one: 127, cntlid: 0 }));
    assert_eq!(cm::Request::read(&[0; 31]), Err(cm::Reject::Length));
    assert_eq!(cm::Request::read(&with_zeros(&[1, 0])), Err(cm::Reject::Format));
}

#[test]
fn connect_of_the_kernels_host() {
    // Opcode 7F, SGL, CID 1Bh, type 01; 1,024 bytes at a key; queue 0 of 32 entries, 5 s.
    let sent = command(&[
        (0, &[0x7F, 0x40, 0x1B, 0x00, 0x01]),
        (24, &[0x00, 0x10, 0x34, 0x12, 0x80, 0x88, 0xFF, 0xFF, 0x00, 0x04, 0x00, 0x05, 0x03, 0x01, 0x00, 0x40]),
        (44, &[0x1F, 0x00]),
        (48, &[0x88, 0x13]),
    ]);
    assert_eq!((sent.opcode, sent.cid, sent.nsid as u8), (opcode::fabrics::OPCODE, 0x1B, opcode::fabrics::CONNECT));
    let sgl = Sgl::Keyed { addr: 0xFFFF_8880_1234_1000, len: 1024, key: 0x0001_0305, invalidate: false };
    assert_eq!(sent.sgl, sgl);
    let connect = Connect { qid: 0, sqsize: 31, cattr: 0, kato_ms: 5000 };
    assert_eq!(Connect::of(&sent), Ok(connect));
    assert_eq!(connect.command(0x1B, sgl), sent);
    assert_eq!(CNTLID_ANY, 0xFFFF);
}

#[test]
fn properties_of_the_kernels_host() {
    let cap = command(&[(0, &[0x7F, 0x40, 0, 0, 0x04]), (39, &[0x40, 1])]);
    assert_eq!(Property::of(&cap), Ok(Property { offset: property::CAP, is_wide: true }));
    let enable = command(&[(0, &[0x7F, 0x40, 0, 0, 0x00]), (39, &[0x40]), (44, &[0x14, 0, 0, 0, 1, 0, 0x46])]);
    assert_eq!(Property::of(&enable), Ok(Property { offset: property::CC, is_wide: false }));
    assert_eq!(Property::value_of(&enable), u64::from(property::CC_USUAL));
    assert_eq!(property::CC_USUAL, 0x0046_0001);
    // nvmet's for queues of 128 entries, but for the time-out.
    assert_eq!(property::cap(128) & !(0xFF << 24), 0x20_0001_007F);
}

#[test]
fn input_and_output_of_the_kernels_host() {
    // A read of 4 KiB at block 16 whose key is to be invalidated.
    let read = command(&[
        (0, &[0x02, 0x40, 0x05, 0x10, 0x01]),
        (24, &[0x00, 0x00, 0x00, 0x01, 0, 0, 0, 0, 0x00, 0x10, 0x00, 0xEF, 0xBE, 0xAD, 0xDE, 0x4F]),
        (40, &[0x10]),
        (48, &[0x07]),
    ]);
    assert_eq!(read.sgl, Sgl::Keyed { addr: 0x0100_0000, len: 4096, key: 0xDEAD_BEEF, invalidate: true });
    assert_eq!(read.sgl.invalidated_key(), Some(0xDEAD_BEEF));
    assert_eq!((read.nsid, ReadWrite::of(&read)), (1, ReadWrite { slba: 16, blocks: 8 }));
    // A write of 4 KiB in the capsule, to be durable.
    let write = command(&[
        (0, &[0x01, 0x40, 0x06, 0x10, 0x01]),
        (32, &[0x00, 0x10, 0x00, 0x00, 0, 0, 0, 0x01]),
        (48, &[0x07, 0x00, 0x00, 0x40]),
    ]);
    assert_eq!(write.sgl, Sgl::InCapsule { offset: 0, len: 4096 });
    assert_eq!(write.cdw10[2] & io::FORCE_UNIT_ACCESS, io::FORCE_UNIT_ACCESS);
    let answer = Response { result: 0, sq_head: 3, sq_id: 1, cid: 0x1005, status: Status::SUCCESS };
    assert_eq!(answer.to_bytes(), [0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 5, 0x10, 0, 0]);
}

#[test]
fn pages_and_logs_of_the_kernels_host() {
    let identify = command(&[(0, &[0x06, 0x40]), (32, &[0x00, 0x10, 0, 1, 0, 0, 0, 0x40, 0x01])]);
    assert_eq!(identify::asked_by(&identify), (identify::cns::CONTROLLER, 0));
    // The discovery log: 1,024 bytes from the start, and its events stay.
    let log = command(&[(0, &[0x02, 0x40]), (39, &[0x40, 0x70, 0x80, 0xFF, 0x00])]);
    let asked = LogRequest { id: 0x70, retain_event: true, offset: 0, len: 1024 };
    assert_eq!((LogRequest::of(&log), asked.dwords()), (asked, log.cdw10));
}

#[test]
fn what_is_wrong_is_named() {
    let mut bytes = Command::new(2, 9, Sgl::NONE).to_bytes();
    let said = |bytes: &[u8]| Command::read(bytes).expect_err("it is wrong").to_string();
    assert_eq!(said(&bytes[..63]), "Capsule Length (byte 0) is 0x3f: Invalid Field in Command (0:02)");
    bytes[39] = 0x02;
    assert_eq!(said(&bytes), "SGL Identifier (byte 39) is 0x2: SGL Descriptor Type Invalid (0:11)");
    bytes[1] = 0;
    assert_eq!(said(&bytes), "PSDT (byte 1) is 0x0: Invalid Field in Command (0:02)");
    bytes[1] = 0x41;
    assert_eq!(said(&bytes), "FUSE (byte 1) is 0x41: Invalid Field in Command (0:02)");
}

/// The Linux target has a UUID and the command set; others begin with an EUI-64.
#[test]
fn names_of_namespaces() {
    let page = |parts: &[&[u8]]| [&parts.concat()[..], &[0; 64]].concat();
    let linux = page(&[&[3, 16, 0, 0], &[0xA5; 16], &[4, 1, 0, 0, 0]]);
    assert_eq!(namespace::read_name(&linux), Some(Name::Uuid([0xA5; 16])));
    let card = page(&[&[4, 1, 0, 0, 0], &[1, 8, 0, 0], &[7; 8], &[2, 16, 0, 0], &[8; 16]]);
    assert_eq!(namespace::read_name(&card), Some(Name::Eui64([7; 8])));
    assert_eq!(namespace::read_name(&page(&[&[4, 1, 0, 0, 0]])), None, "a command set is no name");
    assert_eq!(namespace::read_name(&[3, 16, 0, 0, 1]), None, "a name that is cut off");
    // All fields that can be set, at the specification's places.
    let mut written = [0xEE; 4096];
    let names = Names { uuid: [9; 16], nguid: Some([8; 16]), eui64: Some([7; 8]) };
    namespace::write_descriptors(&mut written, &names);
    let parts: [&[u8]; 7] = [&[1, 8, 0, 0], &[7; 8], &[2, 16, 0, 0], &[8; 16], &[3, 16, 0, 0], &[9; 16], &[4, 1, 0, 0]];
    let parts = parts.concat();
    assert!(written[..parts.len()] == parts && written[parts.len()..].iter().all(|byte| *byte == 0));
}
