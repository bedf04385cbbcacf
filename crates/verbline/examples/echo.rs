//! An embedder's whole program: a plan in a string, three kinds of stages, a run, a report.
//!
//! On one lcore a client sends the numbers up to a thousand over an RC pair of the software RNIC.
//! The stage `Echo` at the other end sends each back, and a sink counts what returns.
//!
//! In a crate outside this workspace, `Cargo.toml` depends on `verbline` and patches `bindgen`:
//! docs/embedding.md has the lines.

use std::time::Duration;

use verbline::prelude::*;

const PLAN: &str = r#"
name = "echo"

[device.nic]
provider = "soft"
name = "soft0"

[pool.packets]
device = "nic"
packets = 2048
data_bytes = 256

[lcore.main]
cpu = "allowed:0"

[port.client]
lcore = "main"
device = "nic"
pool = "packets"
transport = "rc"
peer = "port.server"
rx_depth_wr = 128
tx_depth_wr = 64
next = "stage.sink"

[port.server]
lcore = "main"
device = "nic"
pool = "packets"
transport = "rc"
peer = "port.client"
rx_depth_wr = 128
tx_depth_wr = 256   # all that can be on its way back: 128 receives at either end
next = "stage.echo"

[stage.source]
use = "source"
lcore = "main"
pool = "packets"
out = { packets = "port.client" }

[stage.echo]
use = "echo"
lcore = "main"
out = { packets = "port.server" }

[stage.sink]
use = "sink"
lcore = "main"
"#;

/// The drop reason of packets without room for a number.
const TOO_SHORT: DropReason = DropReason::Stage(0);

/// Sends every packet on unchanged.
struct Echo;

impl Stage for Echo {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        out.send_batch(OutId(0), input);
    }
}

/// Sends the numbers below `limit`, one burst per loop.
struct Source {
    next: u64,
    limit: u64,
}

impl Stage for Source {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let packets = OutId(0);
        for _ in 0..out.room(packets).min(32) {
            if self.next == self.limit {
                return Next::Done;
            }
            let Some(mut packet) = out.alloc() else { break };
            // `send` counts its own refusals; a packet without room for a number is counted here.
            match packet.fill(&self.next.to_le_bytes()) {
                true => _ = out.send(packets, packet),
                false => out.drop(packet, TOO_SHORT),
            }
            self.next += 1;
        }
        Next::Busy
    }
}

/// Counts what arrives; the packets go back to the pool when the batch is cleared.
struct Sink {
    received: verbline::engine::Counter,
}

impl Stage for Sink {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        self.received.add(input.len() as u64);
        input.clear();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `tracing` reports events of the run, e.g. a port that goes down.
    let _log = verbline::cli::log_to_stderr();
    let mut registry = Registry::new("echo");
    let source = StageSpec {
        outputs: &["packets"],
        source: true,
        drops: &["too_short"],
        summary: "numbers",
        ..StageSpec::default()
    };
    registry.stage("source", source, |_| Ok(Box::new(Source { next: 0, limit: 1000 })));
    let echo = StageSpec { outputs: &["packets"], summary: "sends back", ..StageSpec::default() };
    registry.stage("echo", echo, |_| Ok(Box::new(Echo)));
    let sink = StageSpec { summary: "counts packets", ..StageSpec::default() };
    registry.stage("sink", sink, |stage| Ok(Box::new(Sink { received: stage.counter("received") })));

    // The warnings about the plan, about the build, and about the run. A `tracing` subscriber also
    // gets each as it happens.
    let plan = Loader::new(registry.catalog(), Machine::detect()).load_str("count.toml", PLAN)?;
    eprint!("{}", plan.warnings());
    let runtime = Runtime::build(&plan, &registry)?;
    runtime.notes().iter().for_each(|note| eprintln!("{note}"));
    let running = runtime.start()?;
    running.wait(Some(Duration::from_secs(5)));
    let report = running.stop()?;
    report.warnings().iter().for_each(|warning| eprintln!("{warning}"));

    assert_eq!(report.stage("sink").and_then(|sink| sink.counter("received")), Some(1000));
    assert_eq!(report.packets.held, 0);
    println!("1000 packets sent and echoed, none lost, none held");
    Ok(())
}
