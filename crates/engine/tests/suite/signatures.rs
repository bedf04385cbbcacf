//! Blocks that the device checks as they move, and responses that wait for that check: over a port
//! with many connections, and over one with a single queue pair.

use std::collections::BTreeSet;

use crate::common::operates::OPERATES;
use crate::common::{OUT, assert_clean, one_lcore_with, region, registry, run};
use serde::Deserialize;
use verbline_engine::signature::{BlockSignature, BlockSize, Domain, KeptKey, KeyPart, Part, T10Dif};
use verbline_engine::{
    Completed, ConnectionChange, ConnectionEvent, ConnectionId, Counter, DeclineReason, EngineError, Next, Operation,
    OperationError, OperationKind, Outputs, Region, Registry, Remote, Report, Stage, StageContext, StageError,
    StageSpec,
};
use verbline_mem::{Batch, Packet};

const BLOCK: usize = 512;
const STORED: usize = BLOCK + 8;
const BLOCKS: usize = 16;
const APP_TAG: u16 = 0x0b0b;
/// A host's commands under way over one connection.
const DEPTH: usize = 4;

fn data(block: usize) -> [u8; BLOCK] {
    std::array::from_fn(|at| (at as u8).wrapping_mul(29) ^ block as u8)
}

/// CRC-16/T10-DIF, bit by bit.
fn guard(data: &[u8]) -> u16 {
    data.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc >> 15 == 1 { crc << 1 ^ 0x8bb7 } else { crc << 1 })
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetParams {
    bad: BTreeSet<usize>,
    keys: u16,
    /// Answers before the block has gone, which no target should.
    #[serde(default)]
    answers_first: bool,
}

/// Answers each command with its block, checked by the device, and a response.
struct Target {
    params: TargetParams,
    region: Region,
    is_filled: bool,
    /// Free keys by connection slot: no response with them is under way.
    free: Vec<Vec<u16>>,
    /// Commands that wait for a key.
    waiting: Vec<Packet>,
    bad: Counter,
}

impl Target {
    fn new(context: &StageContext<'_>) -> Result<Target, StageError> {
        let params: TargetParams = context.params()?;
        Ok(Target {
            free: vec![(0..params.keys).collect(); 8],
            params,
            region: context.region("store")?,
            is_filled: false,
            waiting: Vec::new(),
            bad: context.counter("bad"),
        })
    }

    fn fill(&mut self) {
        for block in 0..BLOCKS {
            let mut stored = [0; STORED];
            stored[..BLOCK].copy_from_slice(&data(block));
            stored[BLOCK..BLOCK + 2].copy_from_slice(&guard(&data(block)).to_be_bytes());
            stored[BLOCK + 2..BLOCK + 4].copy_from_slice(&APP_TAG.to_be_bytes());
            stored[BLOCK + 4..].copy_from_slice(&(block as u32).to_be_bytes());
            stored[200] ^= u8::from(self.params.bad.contains(&block)) << 3;
            self.region.write_from(block * STORED, &stored).unwrap();
        }
        self.is_filled = true;
    }

    fn answer(&mut self, mut packet: Packet, out: &mut Outputs<'_>) -> Option<Packet> {
        let over = packet.connection();
        let free = &mut self.free[over.map_or(0, ConnectionId::slot)];
        let Some(key) = free.pop() else { return Some(packet) };
        let (to, block) = read_command(&packet);
        let slot = packet.data()[16];
        assert!(packet.fill(&[slot, 1]));
        let dif = T10Dif::type_1(APP_TAG, u32::from(block));
        let part = self.region.part(usize::from(block) * STORED, STORED).unwrap();
        let of_key = KeptKey(key);
        let mut operations = [
            Operation::sign(of_key, part, BlockSignature::in_memory(Domain::T10Dif(BlockSize::B512, dif))),
            Operation::write(KeyPart { key: of_key, offset: 0, len: BLOCK as u32 }, to),
            Operation::respond(of_key, packet, None),
        ];
        operations = operations.map(|operation| operation.tag(key.into()));
        if self.params.answers_first {
            operations.swap(1, 2);
        }
        if let Some(over) = over {
            operations = operations.map(|operation| operation.over(over));
        }
        match out.operate_all(OUT, operations) {
            Ok(()) => None,
            Err(declined) => {
                assert_eq!(declined.reason, DeclineReason::NoConnection, "keys bound them");
                None
            }
        }
    }
}

fn read_command(packet: &Packet) -> (Remote, u16) {
    let bytes = packet.data();
    (Remote::from_bytes(bytes[..12].try_into().unwrap()), u16::from_le_bytes([bytes[12], bytes[13]]))
}

impl Stage for Target {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        if !self.is_filled {
            self.fill();
            assert_eq!(out.signature_keys(OUT), usize::from(self.params.keys));
        }
        for packet in input.drain_front(input.len()) {
            let waits = self.answer(packet, out);
            self.waiting.extend(waits);
        }
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            if self.params.answers_first {
                continue;
            }
            if done.kind != OperationKind::Respond {
                assert_eq!(done.result, Ok(()), "what moves is told, and not judged");
                continue;
            }
            self.free[done.connection.map_or(0, ConnectionId::slot)].push(done.tag as u16);
            match done.result {
                Ok(()) => {}
                Err(OperationError::BadBlock(bad)) => {
                    assert_eq!((bad.part, bad.offset), (Part::Guard, 0));
                    let connection = done.connection;
                    let mut packet = done.into_packet().expect("it comes back");
                    packet.data_mut()[1] = 0;
                    packet.set_connection(connection);
                    assert!(out.send(OUT, packet));
                    self.bad.add(1);
                }
                Err(error) => panic!("{error}"),
            }
        }
        for packet in std::mem::take(&mut self.waiting) {
            let waits = self.answer(packet, out);
            self.waiting.extend(waits);
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostParams {
    bad: BTreeSet<usize>,
    count: u64,
    many: bool,
    /// Ignores all answers.
    #[serde(default)]
    is_deaf: bool,
}

/// Asks for blocks, several at a time over each connection, and checks the answers.
struct Host {
    params: HostParams,
    region: Region,
    asked: u64,
    /// The blocks by connection slot and by the command's number there.
    blocks: Vec<[u16; DEPTH]>,
    has_begun: bool,
    answers: Counter,
    refused: Counter,
}

impl Host {
    fn ask(&mut self, over: Option<ConnectionId>, number: usize, out: &mut Outputs<'_>) {
        if self.asked == self.params.count {
            return;
        }
        let block = (self.asked * 7 % BLOCKS as u64) as u16;
        self.asked += 1;
        let slot = over.map_or(0, ConnectionId::slot);
        self.blocks[slot][number] = block;
        let at = (slot * DEPTH + number) * BLOCK;
        self.region.write_from(at, &[0xee; BLOCK]).unwrap();
        let mut command = [0; 17];
        command[..12].copy_from_slice(&self.region.remote(at).unwrap().to_bytes());
        command[12..14].copy_from_slice(&block.to_le_bytes());
        command[16] = number as u8;
        let mut packet = out.alloc().expect("a packet");
        assert!(packet.fill(&command));
        packet.set_connection(over);
        assert!(out.send(OUT, packet));
    }
}

impl Stage for Host {
    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        if event.connection.port() == 0 && event.change == ConnectionChange::Opened {
            (0..DEPTH).for_each(|number| self.ask(Some(event.connection), number, out));
        }
    }

    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        if self.params.is_deaf {
            return input.clear();
        }
        for packet in input.drain_front(input.len()) {
            let over = packet.connection();
            let (slot, number) = (over.map_or(0, ConnectionId::slot), usize::from(packet.data()[0]));
            let block = usize::from(self.blocks[slot][number]);
            let is_good = packet.data()[1] == 1;
            assert_eq!(is_good, !self.params.bad.contains(&block), "block {block}");
            if is_good {
                let mut found = [0; BLOCK];
                self.region.read_into((slot * DEPTH + number) * BLOCK, &mut found).unwrap();
                assert_eq!(found, data(block), "the data came before its response");
            } else {
                self.refused.add(1);
            }
            self.answers.add(1);
            drop(packet);
            self.ask(over, number, out);
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if !self.params.many && !std::mem::replace(&mut self.has_begun, true) {
            (0..DEPTH).for_each(|number| self.ask(None, number, out));
        }
        if self.answers.value() == self.params.count { Next::Done } else { Next::Idle }
    }
}

fn stages() -> Registry {
    let mut registry = registry();
    let spec = StageSpec {
        outputs: &["out"],
        operations: OPERATES,
        holds_packets: 64,
        summary: "serves blocks",
        ..StageSpec::default()
    };
    registry.stage("target", spec, |context| Ok(Box::new(Target::new(context)?)));
    let spec = StageSpec { outputs: &["out"], source: true, summary: "asks for them", ..StageSpec::default() };
    registry.stage("host", spec, |context| {
        Ok(Box::new(Host {
            params: context.params()?,
            region: context.region("buffers")?,
            asked: 0,
            blocks: vec![[0; DEPTH]; 8],
            has_begun: false,
            answers: context.counter("answers"),
            refused: context.counter("refused"),
        }))
    });
    registry
}

/// A host and a target; their keys set how they are connected.
fn text([host, target]: [&str; 2], many: bool, keys: u16, bad: &[usize], count: u64) -> String {
    let rest = format!(
        r#"
        [port.a_host]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "rc"
        {host}
        rx_depth_wr = 8
        tx_depth_wr = 8
        next = "stage.host"
        [stage.host]
        use = "host"
        lcore = "only"
        pool = "p"
        regions = ["buffers"]
        out = {{ out = "port.a_host" }}
        params = {{ count = {count}, bad = {bad:?}, many = {many} }}
        [port.target]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "rc"
        {target}
        rx_depth_wr = 8
        tx_depth_wr = 8
        ops_depth_wr = 32
        signature_keys = {keys}
        next = "stage.target"
        [stage.target]
        use = "target"
        lcore = "only"
        pool = "p"
        regions = ["store"]
        out = {{ out = "port.target" }}
        params = {{ bad = {bad:?}, keys = {keys} }}
        "#
    );
    let store = region("store", (BLOCKS * STORED).next_multiple_of(4096) as u32, &["local-write"]);
    let buffers = region("buffers", (8 * DEPTH * BLOCK) as u32, &["local-write", "remote-write"]);
    one_lcore_with("event", [8192, 256], &(store + &buffers + &rest))
}

/// Returns the reads that were refused, and the transfers that moved a bad block.
fn check(report: &Report, count: u64) -> [u64; 2] {
    assert_clean(report);
    let of = |stage: &str, name: &str| report.stage(stage).unwrap().counter(name).unwrap();
    assert_eq!(of("host", "answers"), count);
    let operations = report.port("target").unwrap().operations.as_ref().unwrap();
    assert_eq!(operations.under_way, 0);
    let kind = |name: &str| operations.kind(name).map(|kind| [kind.posted + kind.failed, kind.completed, kind.failed]);
    assert_eq!((kind("sign"), kind("write")), (Some([count, count, 0]), Some([count, count, 0])));
    let responses = operations.kind("respond").unwrap();
    assert_eq!([responses.completed + responses.failed, responses.failed], [count, operations.bad_blocks]);
    assert!(operations.stops <= operations.bad_blocks);
    assert_eq!([of("target", "bad"), of("host", "refused")], [operations.bad_blocks; 2]);
    assert_eq!(report.drops, []);
    [of("host", "refused"), operations.bad_blocks]
}

fn many(port: u16) -> [String; 2] {
    [
        format!("connect = \"10.9.9.1:{port}\"\nconnections = 8"),
        format!("listen = \"10.9.9.1:{port}\"\nconnections_max = 8"),
    ]
}

const ALONE: [&str; 2] = ["peer = \"port.target\"", "peer = \"port.a_host\""];

#[test]
fn good_blocks_are_answered_without_a_wait() {
    let [host, target] = many(7161);
    let report = run(&stages(), &text([&host, &target], true, 4, &[], 4000)).unwrap();
    assert_eq!(check(&report, 4000), [0, 0]);
    let report = run(&stages(), &text(ALONE, false, 4, &[], 4000)).unwrap();
    assert_eq!(check(&report, 4000), [0, 0]);
}

/// These of the sixteen blocks are read as often as any other.
#[test]
fn a_bad_block_is_refused_and_its_neighbours_are_good() {
    for (port, bad) in [(7162, &[5][..]), (7163, &[0, 7, 14]), (7164, &[0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 15])] {
        let [host, target] = many(port);
        let report = run(&stages(), &text([&host, &target], true, 4, bad, 1600)).unwrap();
        assert_eq!(check(&report, 1600), [100 * bad.len() as u64; 2]);
        let report = run(&stages(), &text(ALONE, false, 4, bad, 1600)).unwrap();
        assert_eq!(check(&report, 1600), [100 * bad.len() as u64; 2]);
    }
}

/// One key per connection, and all blocks are bad: each command waits for the one before.
#[test]
fn a_key_serves_again_once_its_response_has_come_back() {
    let all: Vec<usize> = (0..BLOCKS).collect();
    let [host, target] = many(7165);
    let report = run(&stages(), &text([&host, &target], true, 1, &all, 320)).unwrap();
    assert_eq!(check(&report, 320), [320; 2]);
}

/// The response cannot be taken back: the peer would go on with a bad block.
#[test]
fn a_bad_block_whose_response_has_gone_out_ends_the_run() {
    let text = text(ALONE, false, 1, &[0], 1).replace("keys = 1 }", "keys = 1, answers_first = true }");
    let error = run(&stages(), &text.replace("many = false }", "many = false, is_deaf = true }")).unwrap_err();
    assert!(matches!(error, EngineError::Failed { .. }) && error.to_string().contains("port.target"), "{error}");
}
