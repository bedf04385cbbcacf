//! Two mysteries, each planted and found with the verbs alone, as docs/operate.md tells: a peer
//! that doesn't read, and a neighbour on an lcore's CPU. (A slow stage is `trace`'s.)

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::CpuSet;
use serde_json::Value;

use crate::operate::{BUSY, await_run, end, endless, entry, look, said};

/// The longest wait for an expected state.
const PATIENCE: Duration = Duration::from_secs(120);

/// Repeats a verb until `is_it` accepts its JSON output, and returns that.
fn until(folder: &Path, words: &[&str], is_it: impl Fn(&Value) -> bool) -> Value {
    let from = Instant::now();
    loop {
        let output = look(folder, words);
        assert!(output.status.success(), "{words:?}: {}", said(&output).1);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        if is_it(&value) {
            return value;
        }
        assert!(from.elapsed() < PATIENCE, "{words:?} says it never: {value:#}");
    }
}

/// The port `in` has an lcore of its own, whose stage sleeps over each packet: the port posts no
/// receives meanwhile, and its peer's sends stay where they are.
#[test]
fn two_lcores_who_holds_the_packets_of_a_peer_that_does_not_read_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let sets = [
        "lcore.reader={cpu=\"allowed:1\",idle=\"event\",drain=\"60s\"}",
        "port.in.lcore=reader",
        "stage.sink.lcore=reader",
        "stage.sink.params={habit=\"doze\"}",
    ];
    let words: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
    let run = endless(folder.path(), &words).start();
    await_run(folder.path());

    // Who holds my packets? The sender. For a peer that reads it would hold none.
    let tx_of = |report: &Value| {
        let holders = report["packets"]["holders"].as_array().unwrap().iter();
        holders.filter(|one| one["place"] == "port.out tx").filter_map(|one| one["packets"].as_u64()).sum::<u64>()
    };
    // And why? Its sends find no receive: the peer posts too few.
    let finds_none = |report: &Value| entry(report, "ports", "in")["rx_out_of_buffer"].as_u64() > Some(0);
    let report = until(folder.path(), &["stats", "--json"], |report| tx_of(report) >= 60 && finds_none(report));
    let (text, _) = said(&look(folder.path(), &["stats"]));
    let held = text.lines().find(|line| line.starts_with("held")).unwrap_or_else(|| panic!("{text}"));
    assert!(held.contains("port.out tx"), "{held}");
    // Because the stage behind that port does not return for long: it sleeps, so it has little
    // work.
    assert_eq!(entry(&report, "stages", "sink")["lcore"], "reader");
    let in_sink = |trace: &Value| {
        let mut steps = trace["steps"].as_array().unwrap().iter();
        steps.any(|step| step["step"] == "stage.sink" && step["mean_ns"].as_u64() > Some(4_000_000))
    };
    until(folder.path(), &["trace", "--json", "--at", "stage.sink", "--packets", "20", "--for", "20s"], in_sink);
    end(run);
}

/// Spins on one CPU until it is dropped.
struct Neighbour {
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Neighbour {
    fn on(cpu: usize) -> Neighbour {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut cpus = CpuSet::new();
            cpus.set(cpu);
            rustix::thread::sched_setaffinity(None, &cpus).unwrap();
            // Relaxed: the flag carries no data.
            while !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Neighbour { is_over, thread: Some(thread) }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn why_a_packet_was_slow_is_found_though_its_thief_is_a_neighbour() {
    let folder = tempfile::tempdir().unwrap();
    // The run polls, because a sleeping lcore loses no CPU time. It has packets at all times, so
    // each stolen moment delays some packet.
    let run = endless(folder.path(), &BUSY).start();
    await_run(folder.path());
    let report = until(folder.path(), &["stats", "--json"], |_| true);
    let cpu = entry(&report, "lcores", "main")["cpu"].as_u64().unwrap();
    let neighbour = Neighbour::on(cpu as usize);

    // Why was this packet slow? For a part of its time the lcore did not have its CPU.
    let ask = ["trace", "--json", "--above", "2ms", "--packets", "20", "--for", "5s", "--slowest", "20"];
    let is_robbed = |step: &Value| {
        let mut meanwhile = step["meanwhile"].as_array().unwrap().iter();
        meanwhile.any(|one| one["did"] == "stolen" && one["ns"].as_u64() >= Some(1_000_000))
    };
    let found = |trace: &Value| {
        let slowest = trace["slowest"].as_array().unwrap().iter();
        slowest.flat_map(|packet| packet["steps"].as_array().unwrap()).any(is_robbed)
    };
    until(folder.path(), &ask, found);
    // Since when, and how much of it?
    let stolen_ns = |report: &Value| entry(report, "lcores", "main")["stolen_ns"].as_u64().unwrap_or(0);
    let before = stolen_ns(&report);
    until(folder.path(), &["stats", "--json"], |report| stolen_ns(report) > before + 10_000_000);
    drop(neighbour);
    end(run);
}
