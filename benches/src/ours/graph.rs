//! Work spread over rings, and merged: beside the same rings without either.
//!
//! Two CPUs allow two lcores. So one lcore fills two rings, by key or each from its own source, and
//! the other one empties both. To measure merging, both rings lead to one stage, like the lanes of
//! producers on two lcores, beside a single ring.

use std::fmt::Write as _;
use std::time::Duration;

use verbline::prelude::*;

use super::stages::{self, Waits, watch};
use crate::Figures;
use crate::figures::median;
use crate::pair::cpus;

const OUT: OutId = OutId(0);

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct KeyedParams {
    /// Ends the process, with exit code 0, after this many polls.
    turns: Option<u64>,
}

/// Makes packets whose keys lead to each place of a spread.
struct Keyed {
    params: KeyedParams,
    burst: Batch,
    made: u64,
    polls: u64,
}

impl Stage for Keyed {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.params.turns == Some(self.polls) {
            std::process::exit(0);
        }
        self.polls += 1;
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

fn registry() -> Registry {
    let mut registry = stages::registry(&Waits::default());
    let spec = StageSpec { outputs: &["out"], source: true, summary: "packets with keys", ..StageSpec::default() };
    registry.stage("keyed", spec, |stage| {
        let burst = Batch::with_capacity(stage.burst());
        Ok(Box::new(Keyed { params: stage.params()?, burst, made: 0, polls: 0 }))
    });
    registry
}

/// This many turns of an lcore whose source spreads 32 packets by key over two stages, for
/// callgrind to count. Ends the process.
pub fn spread_turns(turns: u64) -> ! {
    let mut plan = super::lcores::preamble(8192);
    let _ = writeln!(
        plan,
        "lcore.a = {{ cpu = {}, idle = \"poll\", burst = 32 }}\n\
         stage.source = {{ use = \"keyed\", lcore = \"a\", pool = \"packets\", out = {{ out = \"spread.both\" }}, \
         params = {{ turns = {turns} }} }}\n\
         spread.both = {{ by = \"key\", to = [\"stage.sink0\", \"stage.sink1\"] }}\n\
         stage.sink0 = {{ use = \"sink\", lcore = \"a\" }}\n\
         stage.sink1 = {{ use = \"sink\", lcore = \"a\" }}",
        cpus()[0].id
    );
    super::lcores::run_to_the_end(&registry(), &plan)
}

/// Packets per second, and packets per call of the last stages. `from`: the targets of both
/// sources' outputs; `to`: the targets of both rings.
fn packets_per_s(from: [&str; 2], to: [&str; 2]) -> [f64; 2] {
    let registry = registry();
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
    let packets: f64 = sinks.iter().map(|sink| window.packets_in(sink)).sum();
    let calls: f64 = sinks.iter().map(|sink| window.calls(sink)).sum();
    [packets * 1e9 / window.elapsed_ns(), packets / calls]
}

/// Short runs with and without, in turn: `with_per_s`, `without_per_s`, `ratio`, the median of the
/// pairs' ratios, and `with_batch` and `without_batch`, packets per call at the end.
fn beside(with: impl Fn() -> [f64; 2], without: impl Fn() -> [f64; 2]) -> Figures {
    let pairs: Vec<[[f64; 2]; 2]> = (0..9).map(|_| [with(), without()]).collect();
    let of = |side: usize, figure: usize| median(pairs.iter().map(|pair| pair[side][figure]));
    Figures::of("ratio", median(pairs.iter().map(|[with, without]| with[0] / without[0])))
        .and("with_per_s", of(0, 0))
        .and("without_per_s", of(1, 0))
        .and("with_batch", of(0, 1))
        .and("without_batch", of(1, 1))
}

/// Two sources whose packets a spread distributes to two rings by key, beside a ring for each
/// source.
pub fn fan_out() -> Figures {
    let to = ["sink0", "sink1"];
    beside(|| packets_per_s(["spread.both"; 2], to), || packets_per_s(["ring.r0", "ring.r1"], to))
}

/// Two rings that lead to one stage, beside one ring that leads to it.
pub fn fan_in() -> Figures {
    let to = ["sink0"; 2];
    beside(|| packets_per_s(["ring.r0", "ring.r1"], to), || packets_per_s(["ring.r0"; 2], to))
}
