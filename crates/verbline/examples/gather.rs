//! A header and its data from two memories, written to a peer as one message without a copy.
//!
//! A recorder keeps blocks in a region. It WRITEs each to the peer's region by one operation
//! (`Local::List`), with a header in front: the header lies in a packet, and the block stays in its
//! region. The list comes back with the operation, and is used again.

use std::time::Duration;

use verbline::engine::{Completed, Operation, OutputOperations, Region, Remote, SgList};
use verbline::prelude::*;

const PLAN: &str = r#"
name = "gather"

[device.nic]
provider = "soft"
name = "soft0"

[pool.packets]
device = "nic"
packets = 1024
data_bytes = 64

[region.blocks]
device = "nic"
bytes = 65_536

[region.archive]
device = "nic"
bytes = 65_536
rights = ["local-write", "remote-write"]

[lcore.main]
cpu = "allowed:0"

[port.recorder]
lcore = "main"
device = "nic"
pool = "packets"
transport = "rc"
peer = "port.archive"
rx_depth_wr = 16
tx_depth_wr = 16
ops_depth_wr = 16
max_sge = 2                 # parts of an operation's memory: a header and a block
next = "stage.recorder"

[port.archive]
lcore = "main"
device = "nic"
pool = "packets"
transport = "rc"
peer = "port.recorder"
rx_depth_wr = 16
tx_depth_wr = 16
next = "stage.archive"

[stage.recorder]
use = "recorder"
lcore = "main"
pool = "packets"
regions = ["blocks"]
out = { out = "port.recorder" }

[stage.archive]
use = "archive"
lcore = "main"
pool = "packets"
regions = ["archive"]
out = { out = "port.archive" }
"#;

const OUT: OutId = OutId(0);
const OPERATIONS: &[OutputOperations] = &[OutputOperations { output: "out", kinds: &[] }];
const HEADER: usize = 8;
const BLOCK: usize = 1000;
const BLOCKS: usize = 32;

struct Recorder {
    blocks: Region,
    /// The beginning of the archive, once the peer has sent it.
    archive: Option<Remote>,
    next: usize,
    done: usize,
}

impl Recorder {
    fn write(&mut self, mut list: Box<SgList>, out: &mut Outputs<'_>) {
        let (Some(archive), true) = (self.archive, self.next < BLOCKS) else { return };
        let Some(mut header) = out.alloc() else { return };
        let filled = header.fill(&(self.next as u64).to_le_bytes());
        let Ok(block) = self.blocks.slice(self.next * BLOCK, BLOCK as u32) else { return };
        list.clear();
        if !filled || list.push(header).is_err() || list.push(block).is_err() {
            return;
        }
        let there = archive.offset((self.next * (HEADER + BLOCK)) as u64);
        if out.operate(OUT, Operation::write(list, there).signaled()).is_ok() {
            self.next += 1;
        }
    }
}

impl Stage for Recorder {
    /// Takes the key of the archive.
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for key in input.drain_front(input.len()) {
            self.archive = key.data().try_into().ok().map(Remote::from_bytes);
            for block in 0..BLOCKS {
                let _ = self.blocks.write_from(block * BLOCK, &[block as u8; BLOCK]);
            }
            // The lists are made once; each has one operation in flight.
            (0..4).for_each(|_| self.write(Box::new(SgList::with_capacity(2)), out));
        }
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            match done.result {
                Ok(()) => self.done += 1,
                Err(error) => eprintln!("a block was not written: {error}"),
            }
            done.into_list().into_iter().for_each(|list| self.write(list, out));
        }
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        if self.done < BLOCKS { Next::Idle } else { Next::Done }
    }
}

struct Archive {
    archive: Region,
    told: bool,
}

impl Stage for Archive {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if let (false, Ok(key), Some(mut packet)) = (self.told, self.archive.remote(0), out.alloc()) {
            self.told = packet.fill(&key.to_bytes()) && out.send(OUT, packet);
        }
        if self.told { Next::Done } else { Next::Busy }
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        let mut entry = [0; HEADER + BLOCK];
        for block in 0..BLOCKS {
            let read = self.archive.read_into(block * entry.len(), &mut entry);
            let (header, data) = entry.split_at(HEADER);
            assert!(read.is_ok() && header == (block as u64).to_le_bytes() && data.iter().all(|b| *b == block as u8));
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _log = verbline::cli::log_to_stderr();
    let mut registry = Registry::new("gather");
    let recorder = StageSpec {
        outputs: &["out"],
        source: true,
        operations: OPERATIONS,
        summary: "writes blocks behind their headers",
        ..StageSpec::default()
    };
    registry.stage("recorder", recorder, |stage| {
        Ok(Box::new(Recorder { blocks: stage.region("blocks")?, archive: None, next: 0, done: 0 }))
    });
    let archive = StageSpec { outputs: &["out"], source: true, summary: "is written to", ..StageSpec::default() };
    registry
        .stage("archive", archive, |stage| Ok(Box::new(Archive { archive: stage.region("archive")?, told: false })));

    let plan = Loader::new(registry.catalog(), Machine::detect()).load_str("gather.toml", PLAN)?;
    eprint!("{}", plan.warnings());
    let running = Runtime::build(&plan, &registry)?.start()?;
    running.wait(Some(Duration::from_secs(5)));
    let report = running.stop()?;
    let port = report.port("recorder").and_then(|port| port.operations.as_ref());
    assert_eq!(port.and_then(|port| port.kind("write")).map(|write| write.completed), Some(BLOCKS as u64));
    assert_eq!((report.packets.held, report.failures.len()), (0, 0));
    println!("{BLOCKS} blocks written behind their headers, each by one operation");
    Ok(())
}
