//! The costs of the engine: a stage call, null port to null port, more stages, more lcores.

use std::fmt::Write as _;
use std::time::Duration;

use super::stages::{Waits, Window, registry, watch};
use crate::Figures;
use crate::figures::median;
use crate::pair::cpus;

const WARM_UP: Duration = Duration::from_millis(100);
const TIME: Duration = Duration::from_millis(400);
/// Pairs of short runs: load on a shared machine disturbs some of them, and not the median.
const PAIRS: usize = 7;

/// One device and one pool of 64-byte packets: all that a plan here needs besides lcores and
/// stages.
pub(crate) fn preamble(packets: u32) -> String {
    format!(
        "app = \"bench\"\n\
         device.nic0 = {{ provider = \"soft\", name = \"soft0\" }}\n\
         pool.packets = {{ device = \"nic0\", packets = {packets}, data_bytes = 192, cache_packets = 512 }}\n"
    )
}

/// A source, `forwards` forwarding stages, and a sink, in one polling lcore.
fn chain(plan: &mut String, lcore: &str, cpu: usize, forwards: usize, batch: usize, params: &str) {
    let _ = writeln!(plan, "lcore.{lcore} = {{ cpu = {cpu}, idle = \"poll\", burst = {batch} }}");
    let next = |at: usize| if at < forwards { format!("{lcore}_f{at}") } else { format!("{lcore}_sink") };
    let _ = writeln!(
        plan,
        "stage.{lcore}_source = {{ use = \"source\", lcore = \"{lcore}\", pool = \"packets\", \
         out = {{ out = \"stage.{}\" }}, params = {{ {params} }} }}",
        next(0)
    );
    for at in 0..forwards {
        let _ = writeln!(
            plan,
            "stage.{} = {{ use = \"forward\", lcore = \"{lcore}\", out = {{ out = \"stage.{}\" }} }}",
            next(at),
            next(at + 1)
        );
    }
    let _ = writeln!(plan, "stage.{lcore}_sink = {{ use = \"sink\", lcore = \"{lcore}\" }}");
}

/// A short run of a chain in one lcore, one of many.
fn watch_chain(forwards: usize, batch: usize, time: Duration) -> Window {
    let mut plan = preamble(8192);
    chain(&mut plan, "a", cpus()[0].id, forwards, batch, "");
    watch(&registry(&Waits::default()), &plan, WARM_UP / 5, time)
}

/// `call_ns`: the time that one more forwarding stage adds to a turn. It is an eighth of the
/// difference between a turn over twelve such stages and one over four, so that it includes all
/// costs of a stage: the call, the way of its batch, its counters and its share of the clock.
/// `turn_ns`: the turn over source, four stages and sink.
pub fn stage_call(batch: usize) -> Figures {
    let turn_ns = |stages| {
        let window = watch_chain(stages, batch, TIME / 4);
        // The two counters are not read at the same instant.
        let filled = window.packets_in("a_f0") / window.calls("a_f0") / batch as f64;
        assert!((filled - 1.0).abs() < 0.05, "every batch is full");
        window.elapsed_ns() / window.loops("a")
    };
    let pairs: Vec<[f64; 2]> = (0..PAIRS).map(|_| [4, 12].map(turn_ns)).collect();
    let call_ns = median(pairs.iter().map(|[four_ns, twelve_ns]| (twelve_ns - four_ns) / 8.0));
    Figures::of("call_ns", call_ns).and("turn_ns", median(pairs.iter().map(|pair| pair[0])))
}

/// The time that each of `count` stages adds to a turn, per packet, in batches of 32: `ns`. It is
/// the median of short runs with and without them in turn, as a single stage adds little to a turn
/// that drifts.
pub fn stages(count: usize) -> Figures {
    let turn_ns = |stages| {
        let window = watch_chain(stages, 32, TIME / 5);
        window.elapsed_ns() / window.loops("a")
    };
    let added_ns = (0..PAIRS).map(|_| {
        let [without, with] = [0, count].map(turn_ns);
        (with - without) / (count * 32) as f64
    });
    Figures::of("ns", median(added_ns))
}

/// `count` lcores, each with a source, a stage and a sink of its own: `packets_per_s` of all.
pub fn lcores(count: usize) -> Figures {
    let mut plan = preamble(16_384);
    let names = ["a", "b"];
    for (name, cpu) in names.iter().zip(cpus()).take(count) {
        chain(&mut plan, name, cpu.id, 1, 32, "");
    }
    let window = watch(&registry(&Waits::default()), &plan, WARM_UP, TIME);
    let packets: f64 = names.iter().take(count).map(|name| window.packets_in(&format!("{name}_sink"))).sum();
    Figures::of("packets_per_s", packets * 1e9 / window.elapsed_ns())
}

/// Two null ports on one lcore, forwarding to each other in bursts of 32: `packets_per_s` per port.
/// With `macswap` the addresses are swapped, and 64 bytes copied on the way in and out.
pub fn null_ports(macswap: bool) -> Figures {
    let mut plan = preamble(8192);
    let _ = writeln!(plan, "lcore.a = {{ cpu = {}, idle = \"poll\", burst = 32 }}", cpus()[1].id);
    for port in ["p0", "p1"] {
        let first = if macswap { format!("{port}_swap") } else { format!("{port}_tx") };
        let _ = writeln!(
            plan,
            "stage.{port}_rx = {{ use = \"source\", lcore = \"a\", pool = \"packets\", \
             out = {{ out = \"stage.{first}\" }}, params = {{ len_bytes = 64, copy = {macswap} }} }}"
        );
        if macswap {
            let _ = writeln!(
                plan,
                "stage.{port}_swap = {{ use = \"macswap\", lcore = \"a\", out = {{ out = \"stage.{port}_tx\" }} }}"
            );
        }
        let _ =
            writeln!(plan, "stage.{port}_tx = {{ use = \"sink\", lcore = \"a\", params = {{ copy = {macswap} }} }}");
    }
    let window = watch(&registry(&Waits::default()), &plan, WARM_UP, 2 * TIME);
    let rate = |port: &str| window.packets_in(&format!("{port}_tx")) * 1e9 / window.elapsed_ns();
    Figures::of("packets_per_s", (rate("p0") + rate("p1")) / 2.0)
}

/// `turns` turns of an lcore, each with a batch of `batch` packets through four stages, for
/// callgrind to count. Ends the process.
pub fn stage_turns(turns: u64, batch: usize) -> ! {
    let mut plan = preamble(8192);
    chain(&mut plan, "a", cpus()[0].id, 4, batch, &format!("turns = {turns}"));
    run_to_the_end(&registry(&Waits::default()), &plan)
}

/// `turns` turns of an lcore with two ports connected to each other, and an echo stage behind each:
/// the turns of a ping-pong, all on one lcore, with `packets` messages of 64 bytes in flight. Ends
/// the process.
pub fn port_turns(turns: u64, packets: u64) -> ! {
    let mut plan = preamble(2048);
    let _ = writeln!(
        plan,
        "lcore.a = {{ cpu = {}, idle = \"poll\" }}\n\
         stage.source = {{ use = \"source\", lcore = \"a\", pool = \"packets\", out = {{ out = \"port.p0\" }}, \
         params = {{ count = {packets}, turns = {turns}, len_bytes = 64 }} }}",
        cpus()[0].id
    );
    for (port, peer) in [("p0", "p1"), ("p1", "p0")] {
        let _ = writeln!(
            plan,
            "port.{port} = {{ lcore = \"a\", device = \"nic0\", pool = \"packets\", transport = \"rc\", \
             peer = \"port.{peer}\", rx_depth_wr = 64, tx_depth_wr = 64, inline_bytes = 128, \
             next = \"stage.{port}_echo\" }}\n\
             stage.{port}_echo = {{ use = \"forward\", lcore = \"a\", out = {{ out = \"port.{port}\" }} }}"
        );
    }
    run_to_the_end(&registry(&Waits::default()), &plan)
}

/// `turns` turns of an lcore whose stage has timers: with `packets` in each turn it arms a time-out
/// for each packet and cancels the previous one; without, one of a thousand timers is due in each
/// turn. Ends the process.
pub fn timer_turns(turns: u64, packets: u64) -> ! {
    let mut plan = preamble(2048);
    let _ = writeln!(
        plan,
        "lcore.a = {{ cpu = {}, idle = \"poll\", burst = 1 }}\n\
         stage.source = {{ use = \"source\", lcore = \"a\", pool = \"packets\", out = {{ out = \"stage.timed\" }}, \
         params = {{ turns = {turns}{} }} }}\n\
         stage.timed = {{ use = \"timed\", lcore = \"a\", timers_max = 1024, params = {{ due = {} }} }}",
        cpus()[0].id,
        if packets == 0 { ", count = 0" } else { "" },
        packets == 0
    );
    run_to_the_end(&registry(&Waits::default()), &plan)
}

/// `turns` turns of an lcore whose stage checks an eventfd in each, which is ready. Ends the
/// process.
pub fn fd_turns(turns: u64) {
    let mut plan = preamble(2048);
    let _ = writeln!(
        plan,
        "lcore.a = {{ cpu = {}, idle = \"poll\" }}\n\
         stage.watcher = {{ use = \"watcher\", lcore = \"a\", params = {{ turns = {turns} }} }}",
        cpus()[0].id
    );
    run_to_the_end(&registry(&Waits::default()), &plan)
}

/// Runs a plan whose source ends the process.
pub(crate) fn run_to_the_end(registry: &verbline::prelude::Registry, plan: &str) -> ! {
    let running = super::stages::start(registry, plan);
    let ended = running.wait(None);
    panic!("{ended:?} before the last turn");
}
