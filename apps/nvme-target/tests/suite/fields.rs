//! A host that lies, field by field: one case for each field that a peer may choose, at its bounds.
//! With any value, the command is answered or its queue is closed, and the host beside it is
//! served. The statuses for wrong values are in `hostile.rs` and `admission.rs`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::common::proving::{SECRET, guarded, key};
use crate::common::{CONNECT, Host, SUBSYSTEM, end, target};
use verbline::verbs::connection::ConnectionError;
use verbline_nvme::auth::{self, Body, Message, Offer, WRITTEN_BYTES_MAX};
use verbline_nvme::cm::{REQUEST_BYTES, Reject, Request};
use verbline_nvme::connect::{CNTLID_ANY, DATA_BYTES};
use verbline_nvme::property::{self, Property};
use verbline_nvme::secret::Hash;
use verbline_nvme::{COMMAND_BYTES, Command, DISCOVERY_NQN, Response, Sgl, Status, opcode};

/// Harmful values of a 32-bit field.
const BOUNDS: [u32; 7] = [0, 1, 0x7FFF, 0xFFFF, 1 << 16, 1 << 31, u32::MAX];

/// The most hosts waiting to be disconnected: a port has eight connections, the neighbour two of
/// them.
const REFUSED_MAX: usize = 4;

/// A change of an address and its key.
type Change = fn(u64, u32) -> (u64, u32);

/// A second host, with an I/O queue.
fn neighbour(port: u16) -> (Host, usize) {
    let mut good = Host::new(port);
    good.name = "nqn.2026-01.org.example:good";
    let (_, io) = good.queues();
    (good, io)
}

/// Asks for a connection with this private data, and leaves. Tries again while earlier hosts are
/// being disconnected.
fn dial(port: u16, private_data: &[u8]) -> Result<usize, ConnectionError> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match Host::new(port).dial(private_data.to_vec()) {
            Err(ConnectionError::Rejected { private_data, .. })
                if Reject::read(&private_data).is_none_or(|reject| reject == Reject::NoResources)
                    && Instant::now() < deadline => {}
            answer => return answer,
        }
    }
}

/// The private data of a connection request, byte by byte: admitted, or rejected with a reason.
#[test]
fn private_data() {
    let running = target(7910, "");
    let (mut good, served) = neighbour(7910);
    let usual = Request { qid: 1, recv_depth: 16, send_depth_less_one: 15, cntlid: 0 }.to_bytes();
    for at in 0..REQUEST_BYTES {
        for value in [1, 0x7F, 0x80, 0xFF] {
            let mut bytes = usual;
            bytes[at] = value;
            let wanted = match (at, u16::from_le_bytes([bytes[at & !1], bytes[at | 1]])) {
                (0 | 1, _) => Some(Reject::Format),
                (2 | 3, qid) if qid > 8 => Some(Reject::QueueId),
                (4 | 5, depth) if depth < 15 => Some(Reject::RecvDepth),
                (6 | 7, depth) if depth >= 128 => Some(Reject::SendDepth),
                (6 | 7, depth) if depth > 16 => Some(Reject::RecvDepth),
                // CNTLID is set by Connect; reserved fields are ignored.
                _ => None,
            };
            match (dial(7910, &bytes), wanted) {
                (Ok(_), None) => {}
                (Err(ConnectionError::Rejected { private_data, .. }), Some(wanted)) => {
                    assert_eq!(Reject::read(&private_data), Some(wanted), "byte {at} is {value:#x}");
                }
                (other, wanted) => panic!("byte {at} is {value:#x}: {other:?}, not {wanted:?}"),
            }
        }
    }
    // Longer than the specification says, as a kernel's CM delivers it.
    dial(7910, &[&usual[..], &[0xEE; 24]].concat()).expect("the rest is nobody's");
    good.assert_served(served);
    end(running);
}

/// The capsule and the data of Connect: wrong fields are named, and other fields are ignored.
#[test]
fn connect() {
    let running = target(7911, "");
    let (mut good, served) = neighbour(7911);
    let mut host = Host::new(7911);
    let queue = host.dial_queue(0);
    let capsule = |host: &Host, at: usize, value: &[u8]| {
        let sgl = Sgl::InCapsule { offset: 0, len: DATA_BYTES as u32 };
        let data = host.data(CNTLID_ANY, SUBSYSTEM).to_bytes();
        let mut bytes = [&CONNECT.command(7, sgl).to_bytes()[..], &data].concat();
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    let data = COMMAND_BYTES;
    let invalid =
        |at: u16, in_data: bool| (Status::CONNECT_INVALID_PARAMETERS, Response::invalid_parameter(at, in_data));
    let long_name = [b'n'; 256];
    let cases: [(usize, &[u8], (Status, u64)); 19] = [
        (40, &[1, 0], (Status::CONNECT_FORMAT, 0)),
        (40, &[0, 0x80], (Status::CONNECT_FORMAT, 0)),
        (42, &[1, 0], invalid(42, false)),
        (42, &[0xFF, 0xFF], invalid(42, false)),
        (44, &[0, 0], invalid(44, false)),
        (44, &[0xFF, 0xFF], invalid(44, false)),
        (data + 16, &[0, 0], invalid(16, true)),
        (data + 16, &[0xFE, 0xFF], invalid(16, true)),
        (data + 256, &[0], invalid(256, true)),
        (data + 256, &[0x80], invalid(256, true)),
        (data + 256, b" ", invalid(256, true)),
        (data + 256, &long_name, invalid(256, true)),
        (data + 512, &[0], invalid(512, true)),
        (data + 512, &[7], invalid(512, true)),
        (data + 512, &long_name, invalid(512, true)),
        // The SGL: other lengths, zero, another offset, and another type.
        (32, &1023_u32.to_le_bytes(), (Status::SGL_DATA_LENGTH_INVALID, 0)),
        (32, &u32::MAX.to_le_bytes(), (Status::SGL_DATA_LENGTH_INVALID, 0)),
        (24, &1_u64.to_le_bytes(), (Status::SGL_DATA_LENGTH_INVALID, 0)),
        (39, &[0x5A], (Status::SGL_TYPE_INVALID, 0)),
    ];
    for (at, value, (status, result)) in cases {
        let bytes = capsule(&host, at, value);
        host.send(queue, &bytes);
        let answer = host.response(queue);
        assert!(answer.status.is(status) && answer.status.is_final(), "byte {at} is {value:x?}: {answer:?}");
        assert_eq!((answer.cid, answer.result), (7, result), "byte {at} is {value:x?}");
    }
    // Fields that may hold anything: attributes, reserved fields, and the host's own number.
    for (at, value) in
        [(46, &[0xFF][..]), (47, &[0xFF]), (52, &[0xFF; 12]), (data, &[0; 16]), (data + 18, &[0xFF; 238])]
    {
        let mut other = Host::new(7911);
        let queue = other.dial_queue(0);
        let bytes = capsule(&other, at, value);
        other.send(queue, &bytes);
        let answer = other.response(queue);
        assert!(answer.status.is_success(), "byte {at} is {value:x?}: {answer:?}");
        other.vanish();
    }
    good.assert_served(served);
    end(running);
}

/// Every opcode with every dword at its bounds, on both kinds of queue: each command is answered
/// under its identifier.
#[test]
fn opcodes_and_dwords() {
    let running = target(7912, "");
    let (mut good, served) = neighbour(7912);
    let mut host = Host::new(7912);
    let (admin, io) = host.queues();
    let cc = Property { offset: property::CC, is_wide: false }.set(0, property::CC_USUAL.into());
    for opcode in 0..=u8::MAX {
        for (queue, is_admin) in [(admin, true), (io, false)] {
            // Event requests are held and answered later; another test covers them.
            if is_admin && opcode == opcode::admin::ASYNC_EVENT_REQUEST {
                continue;
            }
            for (dword, value) in (0..10).flat_map(|dword| BOUNDS.map(|value| (dword, value))) {
                let mut command = Command { nsid: 1, ..Command::new(opcode, 0, host.keyed(0, 4096)) };
                match dword {
                    0 => command.nsid = value,
                    1 | 2 => command.cdw2[dword - 1] = value,
                    3 => command.metadata = u64::from(value) << 32 | u64::from(value),
                    _ => command.cdw10[dword - 4] = value,
                }
                // `ask` proves that it is answered.
                host.ask(queue, &command);
            }
        }
        // A Property Set may have disabled the controller.
        if opcode == opcode::fabrics::OPCODE {
            assert!(host.ask(admin, &cc).status.is_success());
        }
        good.assert_served(served);
    }
    host.assert_served(io);
    end(running);
}

/// The flags and the kind of SGL of a command, and the fields of the SGL: no value is taken for
/// another command.
#[test]
fn flags_and_descriptors() {
    let running = target(7913, "");
    let (mut good, served) = neighbour(7913);
    let mut host = Host::new(7913);
    let (_, io) = host.queues();
    let read = host.read(0, 1);
    for (at, right) in [(1, &[0x40][..]), (39, &[0x40, 0x4F])] {
        for value in (0..=u8::MAX).filter(|value| !right.contains(value)) {
            let cid = host.cid();
            let mut bytes = Command { cid, ..read }.to_bytes();
            bytes[at] = value;
            host.send(io, &bytes);
            let answer = host.response(io);
            assert!(answer.cid == cid && answer.status.is_final(), "byte {at} is {value:#x}: {answer:?}");
        }
    }
    // The length, against that of the blocks.
    for len in [0, 1, 512, 4095, 4097, 8192, 1 << 16, 0xFF_FFFF] {
        for command in [host.read(0, 1), host.of_blocks(opcode::io::COMPARE, 0, 1, Sgl::NONE)] {
            let answer = host.ask(io, &Command { sgl: host.keyed(0, len), ..command });
            assert!(answer.status.is(Status::SGL_DATA_LENGTH_INVALID), "{len} bytes: {answer:?}");
        }
    }
    // An address and a key that the host never gave: its own queue pair fails, and no other.
    let wrong: [Change; 4] = [
        |addr, key| (addr, key ^ 1),
        |addr, key| (addr, key ^ 0xFFFF_FF00),
        |addr, key| (addr ^ 1 << 63, key),
        |_, key| (u64::MAX - 100, key),
    ];
    for change in wrong {
        for opcode in [opcode::io::READ, opcode::io::WRITE, opcode::io::COMPARE, opcode::io::DATASET_MANAGEMENT] {
            let mut bad = Host::new(7913);
            let (_, queue) = bad.queues();
            let Sgl::Keyed { addr, len, key, .. } = bad.keyed(0, 4096) else { panic!("keyed") };
            let (addr, key) = change(addr, key);
            let command = bad.of_blocks(opcode, 0, 1, Sgl::Keyed { addr, len, key, invalidate: false });
            bad.send(queue, &Command { cid: 9, ..command }.to_bytes());
            bad.wait_cut_off(queue);
            good.assert_served(served);
        }
    }
    end(running);
}

/// Regression: a controller took any CC, and was ready for a command set, a page size, an
/// arbitration and sizes of entries that it does not have. Such a write changes nothing.
#[test]
fn controller_configuration() {
    let running = target(7915, "");
    let mut host = Host::new(7915);
    let mut finder = Host::new(7915);
    let [cc, csts] = [property::CC, property::CSTS].map(|offset| Property { offset, is_wide: false });
    let admin = host.dial_queue(0);
    let data = host.data(CNTLID_ANY, SUBSYSTEM);
    assert!(host.connect(admin, CONNECT, &data).status.is_success());
    // The field's place and greatest value, and its only right value.
    let fields = [("CSS", 4, 7, 0), ("MPS", 7, 15, 0), ("AMS", 11, 7, 0), ("IOSQES", 16, 15, 6), ("IOCQES", 20, 15, 4)];
    for (name, shift, most, right) in fields {
        for value in (0..=most).filter(|value| *value != right) {
            let wrong = property::CC_USUAL & !(most << shift) | value << shift;
            let answer = host.ask(admin, &cc.set(0, wrong.into()));
            assert!(answer.status.is(Status::INVALID_FIELD) && answer.status.is_final(), "{name} {value}: {answer:?}");
            assert_eq!(host.ask(admin, &csts.get(0)).result, 0, "{name} {value}: not ready");
            assert_eq!(host.ask(admin, &cc.get(0)).result, 0, "{name} {value}");
        }
    }
    // Without CC.EN they have no effect yet.
    assert!(host.ask(admin, &cc.set(0, 1 << 7)).status.is_success());
    assert!(host.ask(admin, &cc.set(0, property::CC_USUAL.into())).status.is_success());
    assert_eq!(host.ask(admin, &csts.get(0)).result, u64::from(property::CSTS_READY));
    assert!(host.ask(admin, &cc.set(0, u64::from(property::CC_USUAL) | 6 << 4)).status.is(Status::INVALID_FIELD));
    assert_eq!(host.ask(admin, &csts.get(0)).result, u64::from(property::CSTS_READY), "it works on");
    // A discovery controller has no I/O queues, and so no sizes of their entries.
    let discovery = finder.dial_queue(0);
    let data = finder.data(CNTLID_ANY, DISCOVERY_NQN);
    assert!(finder.connect(discovery, CONNECT, &data).status.is_success());
    assert!(finder.ask(discovery, &cc.set(0, 1 | 1 << 7)).status.is(Status::INVALID_FIELD));
    assert!(finder.ask(discovery, &cc.set(0, 1)).status.is_success());
    assert_eq!(finder.ask(discovery, &csts.get(0)).result, u64::from(property::CSTS_READY));
    end(running);
}

/// Authentication messages of a host, byte by byte, and cut short: each is answered, or its queue
/// is closed, and no wrong proof is accepted.
#[test]
fn authentication() {
    let (running, _folder) = guarded(7914);
    let (mut good, served) = neighbour(7914);
    let written = |message: &Message| {
        let mut bytes = [0; WRITTEN_BYTES_MAX];
        let len = message.write(&mut bytes);
        bytes[..len].to_vec()
    };
    let negotiate = written(&Message { transaction: 2, body: Body::Negotiate(Offer::of(Hash::Sha384)) });
    for (at, value) in (0..negotiate.len()).flat_map(|at| [0, 1, 0x7F, 0xFF].map(|value| (at, value))) {
        let mut bytes = negotiate.clone();
        bytes[at] = value;
        say_first(&bytes);
    }
    (1..negotiate.len()).for_each(|len| say_first(&negotiate[..len]));
    good.assert_served(served);
    for turn in 0..2 {
        let mut host = Host::new(7914);
        let (queue, _) = host.connected();
        let claim = host.challenged(queue, 4);
        let right = key(SECRET).respond(&claim);
        let reply = written(&Message { transaction: 4, body: Body::Reply { response: right, challenge: None } });
        let digest = reply.windows(48).position(|bytes| bytes == right.as_bytes()).expect("the proof");
        host.vanish();
        // Each is disconnected a while after its answer: a few wait at the same time.
        let mut refused = VecDeque::new();
        for at in 0..reply.len() {
            let mut host = Host::new(7914);
            let (queue, _) = host.connected();
            let claim = host.challenged(queue, 4);
            let response = key(SECRET).respond(&claim);
            let mut bytes = written(&Message { transaction: 4, body: Body::Reply { response, challenge: None } });
            bytes[at] ^= [0x80, 1][turn];
            assert!(host.send_bytes(queue, &bytes, at % 2 == 0).status.is_success(), "it is taken, and judged");
            match host.receive(queue) {
                Ok(Message { body: Body::Success1 { .. }, .. }) => {
                    assert!(!(digest..digest + 48).contains(&at), "byte {at}: a wrong proof");
                }
                Ok(Message { body: Body::Failure1(_), .. }) => refused.push_back((host, queue)),
                other => panic!("byte {at}: {other:?}"),
            }
            if refused.len() == REFUSED_MAX {
                refused.pop_front().into_iter().for_each(|(mut host, queue)| host.wait_cut_off(queue));
            }
        }
        refused.into_iter().for_each(|(mut host, queue)| host.wait_cut_off(queue));
        good.assert_served(served);
    }
    // The fields of the commands that carry the messages.
    for (dword, value) in (0..6).flat_map(|dword| BOUNDS.map(|value| (dword, value))) {
        let mut host = Host::new(7914);
        let (queue, _) = host.connected();
        for mut command in [auth::send(0, host.keyed(0, 64)), auth::receive(0, host.keyed(0, 64))] {
            command.cdw10[dword] = value;
            // `ask` proves that it is answered.
            host.ask(queue, &command);
        }
        host.vanish();
    }
    good.assert_served(served);
    end(running);
}

/// Sends these bytes as a host's first message: it gets a challenge or a reason.
#[track_caller]
fn say_first(bytes: &[u8]) {
    let mut host = Host::new(7914);
    let (queue, _) = host.connected();
    if host.send_bytes(queue, bytes, bytes.len().is_multiple_of(2)).status.is_success() {
        let told = host.receive(queue);
        let is_told = |message: &Message| matches!(message.body, Body::Challenge { .. } | Body::Failure1(_));
        assert!(told.as_ref().is_ok_and(is_told), "{bytes:x?}: {told:?}");
    }
    host.vanish();
}
