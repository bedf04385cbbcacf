//! What an lcore's loop costs: an empty turn, and a stage's call with batches of 1 and of 256.
//!
//! ```text
//! cargo run --release -p verbline-engine --example figures
//! ```
//! A chain of stages that hand everything on is run in two lengths; the difference is what one more
//! stage costs.

use std::error::Error;
use std::time::Duration;

use verbline_engine::{Next, OutId, Outputs, Registry, Report, Runtime, Stage, StageSpec};
use verbline_mem::Batch;
use verbline_plan::{Loader, Machine};

const RUN: Duration = Duration::from_millis(300);

fn main() -> Result<(), Box<dyn Error>> {
    for (what, plan) in [("one idle source", alone()), ("one idle source, one port", idle())] {
        let report = run(&plan)?;
        let lcore = &report.lcores[0];
        println!("an empty turn with {what}: {:.1} ns", per(lcore.idle_ns, lcore.loops));
    }
    for batch in [1, 256] {
        let (short, long) = (run(&chain(batch, 2))?, run(&chain(batch, 18))?);
        let turn = |report: &Report| per(report.lcores[0].busy_ns, report.lcores[0].busy_loops);
        let stage_ns = (turn(&long) - turn(&short)) / 16.0;
        println!(
            "a stage's call with a batch of {batch}: {stage_ns:.1} ns, {:.2} ns a packet",
            stage_ns / f64::from(batch)
        );
    }
    Ok(())
}

fn per(total: u64, count: u64) -> f64 {
    total as f64 / count.max(1) as f64
}

fn run(text: &str) -> Result<Report, Box<dyn Error>> {
    let registry = registry();
    let plan = Loader::new(registry.catalog(), Machine::detect()).load_str("figures.toml", text)?;
    let running = Runtime::build(&plan, &registry)?.start()?;
    running.wait(Some(RUN));
    Ok(running.stop()?)
}

fn registry() -> Registry {
    let mut registry = Registry::new("figures");
    let spec = StageSpec { outputs: &["out"], source: true, ..StageSpec::default() };
    registry.stage("source", spec, |context| {
        let batch = Batch::with_capacity(context.burst());
        Ok(Box::new(Source { batch, idle: context.name() == "idle" }))
    });
    let spec = StageSpec { outputs: &["out"], ..StageSpec::default() };
    registry.stage("forward", spec, |_| Ok(Box::new(Forward)));
    registry
}

struct Source {
    batch: Batch,
    idle: bool,
}

impl Stage for Source {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.idle {
            return Next::Idle;
        }
        let burst = self.batch.capacity();
        out.alloc_bulk(&mut self.batch, burst);
        out.send_batch(OutId(0), &mut self.batch);
        Next::Busy
    }
}

struct Forward;

impl Stage for Forward {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        out.send_batch(OutId(0), input);
    }
}

const HEAD: &str = r#"
[device.nic0]
provider = "soft"
name = "soft0"
[pool.p]
device = "nic0"
packets = 16384
data_bytes = 64
pages = "4KiB"
cache_packets = 1024
"#;

/// A source that never sends.
fn alone() -> String {
    format!(
        "{HEAD}\n[lcore.only]\ncpu = 1\nidle = \"poll\"\n[stage.idle]\nuse = \"source\"\nlcore = \"only\"\n\
         pool = \"p\"\nout = {{ out = \"drop\" }}\n"
    )
}

/// A source that never sends, and a port on which nothing arrives.
fn idle() -> String {
    format!(
        r#"{HEAD}
[lcore.only]
cpu = 1
idle = "poll"
[port.rx]
lcore = "only"
device = "nic0"
pool = "p"
transport = "ud"
join = ["239.9.9.9"]
rx_depth_wr = 64
next = "drop"
[stage.idle]
use = "source"
lcore = "only"
pool = "p"
out = {{ out = "drop" }}
"#
    )
}

/// A source, and this many stages behind it.
fn chain(batch: u32, stages: u32) -> String {
    let mut text = format!(
        "{HEAD}\n[lcore.only]\ncpu = 1\nidle = \"poll\"\nburst = {batch}\n[stage.source]\nuse = \"source\"\n\
         lcore = \"only\"\npool = \"p\"\nout = {{ out = \"stage.s0\" }}\n"
    );
    for stage in 0..stages {
        let next = if stage + 1 == stages { "drop".to_owned() } else { format!("stage.s{}", stage + 1) };
        text += &format!("[stage.s{stage}]\nuse = \"forward\"\nlcore = \"only\"\nout = {{ out = \"{next}\" }}\n");
    }
    text
}
