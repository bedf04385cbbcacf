//! Work spread over rings, and drawn together: beside the same rings without either.
//!
//! On two CPUs there are two lcores. So one lcore fills two rings, by key or each from a source of
//! its own, and the other one empties both; and both lead to one stage, as the lanes of producers
//! on two lcores would, or one does.

use std::fmt::Write as _;
use std::time::Duration;

use verbline::prelude::*;

use super::stages::{self, Waits, watch};
use crate::Figures;
use crate::figures::median;
use crate::pair::cpus;

const OUT: OutId = OutId(0);

/// Packets whose keys lead to each place of a spread.
struct Keyed {
    burst: Batch,
    made: u64,
}

impl Stage for Keyed {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let wanted = self.burst.room().min(out.room(OUT));
        let before = self.burst.len();
        out.alloc_bulk(&mut self.burst, wanted);
        for packet in &mut self.burst.as_mut_slice()[before..] {
            packet.set_mark(self.made);
            self.made += 1;
        }
        out.send_batch(OUT, &mut self.burst);
        Next::Busy
    }
}

/// `from`: where the outputs of both sources lead; `to`: where those of both rings do.
fn packets_per_s(from: [&str; 2], to: [&str; 2]) -> f64 {
    let mut registry = stages::registry(&Waits::default());
    let spec = StageSpec { outputs: &["out"], source: true, summary: "packets with keys", ..StageSpec::default() };
    registry.stage("keyed", spec, |stage| Ok(Box::new(Keyed { burst: Batch::with_capacity(stage.burst()), made: 0 })));
    let mut plan = super::lcores::preamble(16_384);
    for (lcore, cpu) in ["a", "b"].iter().zip(cpus()) {
        let _ = writeln!(plan, "lcore.{lcore} = {{ cpu = {}, idle = \"poll\" }}", cpu.id);
    }
    for (at, from) in from.iter().enumerate() {
        let _ = writeln!(
            plan,
            "stage.source{at} = {{ use = \"keyed\", lcore = \"a\", pool = \"packets\", out = {{ out = \"{from}\" }} }}"
        );
    }
    if from.contains(&"spread.both") {
        plan += "spread.both = { by = \"key\", to = [\"ring.r0\", \"ring.r1\"] }\n";
    }
    let used = |ring: &str| from.contains(&"spread.both") || from.contains(&ring);
    let mut sinks = Vec::new();
    for (ring, to) in ["r0", "r1"].into_iter().zip(to).filter(|(ring, _)| used(&format!("ring.{ring}"))) {
        let _ = writeln!(plan, "ring.{ring} = {{ depth = 1024, to = \"stage.{to}\" }}");
        if !sinks.contains(&to) {
            let _ = writeln!(plan, "stage.{to} = {{ use = \"sink\", lcore = \"b\" }}");
            sinks.push(to);
        }
    }
    let window = watch(&registry, &plan, Duration::from_millis(20), Duration::from_millis(100));
    sinks.iter().map(|sink| window.packets_in(sink)).sum::<f64>() * 1e9 / window.elapsed_ns()
}

/// Short runs with and without, in turn: `with_per_s`, `without_per_s`, and `ratio`, the median of
/// the pairs'.
fn beside(with: impl Fn() -> f64, without: impl Fn() -> f64) -> Figures {
    let pairs: Vec<[f64; 2]> = (0..9).map(|_| [with(), without()]).collect();
    Figures::of("ratio", median(pairs.iter().map(|[with, without]| with / without)))
        .and("with_per_s", median(pairs.iter().map(|pair| pair[0])))
        .and("without_per_s", median(pairs.iter().map(|pair| pair[1])))
}

/// Two sources whose packets a spread takes to two rings by key, beside a ring for each source.
pub fn fan_out() -> Figures {
    let to = ["sink0", "sink1"];
    beside(|| packets_per_s(["spread.both"; 2], to), || packets_per_s(["ring.r0", "ring.r1"], to))
}

/// Two rings that lead to one stage, beside one ring that leads there.
pub fn fan_in() -> Figures {
    let to = ["sink0"; 2];
    beside(|| packets_per_s(["ring.r0", "ring.r1"], to), || packets_per_s(["ring.r0"; 2], to))
}
