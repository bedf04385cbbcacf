//! Tickets from a peer's memory by atomics, without a turn of the peer.
//!
//! An office has two words in a region. Two clerks, each with a queue pair of its own, take tickets
//! from the first by FETCH_ADD. The first clerk that puts its name into the second, by
//! COMPARE_SWAP, is the head clerk. No ticket is given out twice.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use verbline::engine::{Completed, Operation, OutputOperations, Region, Remote};
use verbline::prelude::*;

const PLAN: &str = r#"
name = "tickets"

[device.nic]
provider = "soft"
name = "soft0"

[pool.packets]
device = "nic"
packets = 2048
data_bytes = 64

[lcore.main]
cpu = "allowed:0"

[region.words]
device = "nic"
bytes = 4096
rights = ["local-write", "remote-atomic"]

[stage.office]
use = "office"
lcore = "main"
pool = "packets"
regions = ["words"]
out = { first = "port.office1", second = "port.office2" }
"#;

/// A clerk, and both ends of its connection.
fn clerk(number: u64) -> String {
    format!(
        r#"
[port.office{number}]
lcore = "main"
device = "nic"
transport = "rc"
peer = "port.clerk{number}"
tx_depth_wr = 16

[port.clerk{number}]
lcore = "main"
device = "nic"
pool = "packets"
transport = "rc"
peer = "port.office{number}"
rx_depth_wr = 16
tx_depth_wr = 16
ops_depth_wr = 16
next = "stage.clerk{number}"

[stage.clerk{number}]
use = "clerk"
lcore = "main"
pool = "packets"
out = {{ out = "port.clerk{number}" }}
params = {{ number = {number} }}
"#
    )
}

const OUT: OutId = OutId(0);
const OPERATIONS: &[OutputOperations] = &[OutputOperations { output: "out", kinds: &[] }];
const TICKETS: usize = 100;
/// Tags of operations.
const TICKET: u64 = 0;
const HEAD: u64 = 1;

/// Tells both clerks where the words are.
struct Office {
    words: Region,
    told: u8,
}

impl Stage for Office {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        while self.told < 2 {
            let (Ok(key), Some(mut packet)) = (self.words.remote(0), out.alloc()) else { return Next::Busy };
            if !packet.fill(&key.to_bytes()) || !out.send(OutId(self.told.into()), packet) {
                return Next::Busy;
            }
            self.told += 1;
        }
        Next::Done
    }
}

/// The results of the clerks: tickets, and heads.
#[derive(Debug, Default)]
struct Got {
    tickets: Vec<u64>,
    heads: Vec<u64>,
}

struct Clerk {
    number: u64,
    words: Option<Remote>,
    taken: usize,
    got: Arc<Mutex<Got>>,
}

impl Clerk {
    fn ask(&self, out: &mut Outputs<'_>) {
        let (Some(words), Some(mut room)) = (self.words, out.alloc()) else { return };
        // The word's old value comes back in eight bytes of a packet.
        let asked = match (self.taken, room.fill(&[0; 8])) {
            (0, true) => Operation::compare_swap(room, words.offset(8), 0, self.number).tag(HEAD),
            _ => Operation::fetch_add(room, words, 1).tag(TICKET),
        };
        if let Err(declined) = out.operate(OUT, asked) {
            eprintln!("clerk {} could not ask: {declined:?}", self.number);
        }
    }
}

impl Stage for Clerk {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for key in input.drain_front(input.len()) {
            self.words = key.data().try_into().ok().map(Remote::from_bytes);
            self.ask(out);
        }
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            let Some(before) = done.value() else { continue };
            let mut got = self.got.lock().expect("nobody panics under it");
            match done.tag {
                TICKET => got.tickets.push(before),
                _ if before == 0 => got.heads.push(self.number),
                _ => {}
            }
            drop(got);
            self.taken += 1;
            if self.taken <= TICKETS {
                self.ask(out);
            }
        }
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        if self.taken <= TICKETS { Next::Idle } else { Next::Done }
    }
}

#[derive(serde::Deserialize)]
struct Params {
    number: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _log = verbline::cli::log_to_stderr();
    let got = Arc::<Mutex<Got>>::default();
    let mut registry = Registry::new("tickets");
    let office =
        StageSpec { outputs: &["first", "second"], source: true, summary: "has the words", ..StageSpec::default() };
    registry.stage("office", office, |stage| Ok(Box::new(Office { words: stage.region("words")?, told: 0 })));
    let clerk_spec = StageSpec {
        outputs: &["out"],
        source: true,
        operations: OPERATIONS,
        summary: "takes tickets",
        ..StageSpec::default()
    };
    let home = got.clone();
    registry.stage("clerk", clerk_spec, move |stage| {
        let Params { number } = stage.params()?;
        Ok(Box::new(Clerk { number, words: None, taken: 0, got: home.clone() }))
    });

    let text = PLAN.to_owned() + &(1..=2).map(clerk).collect::<String>();
    let plan = Loader::new(registry.catalog(), Machine::detect()).load_str("tickets.toml", text.as_str())?;
    eprint!("{}", plan.warnings());
    let running = Runtime::build(&plan, &registry)?.start()?;
    running.wait(Some(Duration::from_secs(5)));
    let report = running.stop()?;
    assert_eq!((report.packets.held, report.failures.len()), (0, 0));
    let mut got = got.lock().map_err(|_| "a clerk panicked")?;
    got.tickets.sort_unstable();
    assert!(got.tickets.iter().copied().eq(0..2 * TICKETS as u64), "{:?}", got.tickets);
    assert_eq!(got.heads.len(), 1);
    println!("{} tickets, none twice; clerk {} is the head", got.tickets.len(), got.heads[0]);
    Ok(())
}
