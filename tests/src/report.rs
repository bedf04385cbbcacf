//! The conditions on every report of every run, whatever the plan: its shape, and each sum in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

use serde_json::Value;

use crate::root;

/// The published schema of a report.
static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let path = root().join("docs/report.schema.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let schema = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
});

/// The tolerance of sums of shares: each share is rounded.
const ROUNDING: f64 = 1e-9;

/// Insists that `report`, the document that `--json` prints or a serialised
/// [`Report`](verbline::engine::Report), has the published shape, and that every sum in it holds. A
/// live report's counters are not of one instant, so only the sums that hold at any moment are
/// checked.
///
/// # Panics
/// With all violated conditions, and the report.
#[track_caller]
pub fn assert_report_holds(report: &Value) {
    let faults = report_faults(report);
    assert!(faults.is_empty(), "{}\n--- in\n{report:#}", faults.join("\n"));
}

/// The violated conditions; none in a good report.
pub fn report_faults(report: &Value) -> Vec<String> {
    let shape: Vec<String> =
        SCHEMA.iter_errors(report).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
    if !shape.is_empty() {
        return shape;
    }
    let mut sums = Sums { report, ended: report["ended"] == true, faults: Vec::new() };
    sums.names();
    sums.lcores();
    sums.stages();
    sums.ports();
    sums.rings();
    sums.injectors();
    sums.packets();
    sums.drops();
    sums.failures();
    sums.faults
}

struct Sums<'a> {
    report: &'a Value,
    ended: bool,
    faults: Vec<String>,
}

impl Sums<'_> {
    /// Notes `what` unless it holds.
    fn hold(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(what());
        }
    }

    fn names(&mut self) {
        let lcores: BTreeSet<&str> = names(&self.report["lcores"]).collect();
        for table in ["lcores", "stages", "ports", "rings", "injectors", "pools"] {
            let all: Vec<&str> = names(&self.report[table]).collect();
            let distinct: BTreeSet<&str> = all.iter().copied().collect();
            self.hold(all.len() == distinct.len(), || format!("{table}: a name stands twice among {all:?}"));
        }
        for (table, key) in [
            ("stages", "lcore"),
            ("ports", "lcore"),
            ("rings", "producer"),
            ("rings", "consumer"),
            ("injectors", "lcore"),
        ] {
            for row in list(&self.report[table]) {
                // Several lcores fill a ring of several lanes.
                for lcore in text(row, key).split(", ") {
                    self.hold(lcores.contains(lcore), || format!("{table} {}: no lcore {lcore}", text(row, "name")));
                }
            }
        }
        let stages: BTreeSet<&str> = names(&self.report["stages"]).collect();
        for injector in list(&self.report["injectors"]) {
            let (name, stage) = (text(injector, "name"), text(injector, "stage"));
            self.hold(stages.contains(stage), || format!("injector {name}: no stage {stage}"));
        }
        for ring in list(&self.report["rings"]) {
            self.hold(ring["producer"] != ring["consumer"], || format!("{ring}: from an lcore to itself"));
        }
        let ports: BTreeSet<&str> = names(&self.report["ports"]).collect();
        for connection in list(&self.report["connections"]) {
            let port = text(connection, "port");
            self.hold(ports.contains(port), || format!("a connection of no port {port}"));
            let [times, attempts] = ["times_connected", "attempts"].map(|key| number(connection, key));
            self.hold(times <= attempts, || format!("connection {port}: {times} times in {attempts} attempts"));
        }
    }

    fn lcores(&mut self) {
        for lcore in list(&self.report["lcores"]) {
            let name = text(lcore, "name");
            let [loops, busy_loops] = ["loops", "busy_loops"].map(|key| number(lcore, key));
            // A busy turn is counted when it ends.
            self.hold(busy_loops <= loops, || format!("lcore {name}: {busy_loops} of {loops} turns are busy"));
            let times = TIMES.map(|time| number(lcore, &format!("{time}_ns")));
            let whole_ns: u64 = times.iter().sum();
            for (time, time_ns) in TIMES.iter().zip(times) {
                let share = real(lcore, &format!("{time}_share"));
                self.hold(is_quotient(share, time_ns, whole_ns), || format!("lcore {name}: {time}_share is {share}"));
            }
            let [stolen_ns, stalls, stall_max_ns] =
                ["stolen_ns", "stalls", "stall_max_ns"].map(|key| number(lcore, key));
            self.hold(stall_max_ns <= stolen_ns && (stalls > 0 || stall_max_ns == 0), || {
                format!("lcore {name}: {stolen_ns} ns stolen, in {stalls} stalls of {stall_max_ns} ns at most")
            });
            let [sleeps, asleep_ns] = ["sleeps", "asleep_ns"].map(|key| number(lcore, key));
            let policy = text(lcore, "policy");
            self.hold(policy != "poll" || sleeps + asleep_ns == 0, || format!("lcore {name}: poll mode, and it slept"));
            self.hold(number(lcore, "rescues") <= sleeps, || format!("lcore {name}: more rescues than sleeps"));
            let woken: u64 = list(&lcore["wakes"]).iter().map(|wake| number(wake, "count")).sum();
            self.hold(!self.ended || woken == sleeps, || format!("lcore {name}: {sleeps} sleeps, {woken} wakes"));
        }
    }

    fn stages(&mut self) {
        let mut of_lcore: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
        for stage in list(&self.report["stages"]) {
            let name = text(stage, "name");
            let keys = ["calls", "polls", "packets_in", "packets_out", "busy_ns", "batch_max"];
            let [calls, polls, packets_in, packets_out, busy_ns, batch_max] = keys.map(|key| number(stage, key));
            if self.ended {
                let batch_mean = real(stage, "batch_mean");
                self.hold(is_quotient(batch_mean, packets_in, calls), || {
                    format!("stage {name}: a mean of {batch_mean}")
                });
                // Each call has a batch of at least one packet, and at most the largest batch.
                self.hold((calls..=calls.saturating_mul(batch_max)).contains(&packets_in), || {
                    format!("stage {name}: {packets_in} packets in {calls} calls of {batch_max} at most")
                });
                self.hold(batch_max <= packets_in, || format!("stage {name}: a batch of {batch_max} of {packets_in}"));
            }
            let [asked, done] = ["operations", "operations_done"].map(|key| number(stage, key));
            self.hold(done <= asked, || format!("stage {name}: {done} operations done of {asked}"));
            self.hold(calls + polls > 0 || busy_ns == 0, || format!("stage {name}: busy, and never called"));
            let (timed, error) = (number(stage, "timed"), real(stage, "busy_error"));
            self.hold(!self.ended || timed <= calls + polls, || format!("stage {name}: {timed} timed of fewer calls"));
            self.hold(timed > 0 || (busy_ns == 0 && error == 0.0), || format!("stage {name}: busy, and never timed"));
            let ns_per_packet = real(stage, "ns_per_packet");
            self.hold(is_quotient(ns_per_packet, busy_ns, packets_in.max(packets_out)), || {
                format!("stage {name}: {ns_per_packet} ns a packet")
            });
            let sum = of_lcore.entry(text(stage, "lcore")).or_default();
            *sum = (sum.0 + busy_ns, sum.1 + real(stage, "busy_share"));
        }
        for lcore in list(&self.report["lcores"]) {
            let (name, busy_ns) = (text(lcore, "name"), number(lcore, "busy_ns"));
            let &(stages_ns, share) = of_lcore.get(name).unwrap_or(&(0, 0.0));
            self.hold(stages_ns <= busy_ns, || format!("lcore {name}: busy {busy_ns} ns, its stages {stages_ns}"));
            self.hold(share <= 1.0 + ROUNDING, || format!("lcore {name}: its stages have {share} of its busy time"));
        }
    }

    fn ports(&mut self) {
        for port in list(&self.report["ports"]) {
            let name = text(port, "name");
            let keys = ["rx_packets", "rx_posted", "tx_packets", "tx_posts", "rx_bytes", "tx_bytes"];
            let [rx, rx_posted, tx, tx_posts, rx_bytes, tx_bytes] = keys.map(|key| number(port, key));
            if self.ended {
                self.hold(rx <= rx_posted, || format!("port {name}: {rx} received into {rx_posted} buffers"));
                // A post takes at least one packet, but a failed post takes none.
                self.hold(tx == 0 || tx_posts > 0, || format!("port {name}: {tx} sent by no post"));
                self.hold(rx > 0 || rx_bytes == 0, || format!("port {name}: {rx_bytes} bytes of no packet received"));
                self.hold(tx > 0 || tx_bytes == 0, || format!("port {name}: {tx_bytes} bytes of no packet sent"));
            }
            let told = port["down_reason"].is_string();
            self.hold(port["down"] == false || told, || format!("port {name}: down, and nobody knows why"));
        }
    }

    fn rings(&mut self) {
        for ring in list(&self.report["rings"]) {
            let name = text(ring, "name");
            let keys = ["pushed", "push_batches", "popped", "pop_batches", "depth", "most", "full"];
            let [pushed, pushes, popped, pops, depth, most, full] = keys.map(|key| number(ring, key));
            let lanes = ring["lanes"].as_array().map_or(&[][..], Vec::as_slice);
            for key in ["pushed", "push_batches", "popped", "pop_batches", "full"] {
                let sum: u64 = lanes.iter().map(|lane| number(lane, key)).sum();
                let whole = number(ring, key);
                self.hold(lanes.is_empty() || sum == whole, || format!("ring {name}: {key} {whole}, of lanes {sum}"));
            }
            self.hold(most <= depth, || format!("ring {name}: {most} were in a ring of {depth}"));
            self.hold(full == 0 || most == depth, || format!("ring {name}: full {full} times, {most} at most"));
            if self.ended {
                // Some displaced packets had been pushed, and some still waited.
                let displaced = self.dropped(&format!("ring.{name}"), "displaced");
                self.hold(popped <= pushed, || format!("ring {name}: {popped} popped of {pushed} pushed"));
                self.hold(pushes <= pushed && pops <= popped, || format!("ring {name}: more batches than packets"));
                let room = depth * lanes.len().max(1) as u64;
                let gone = pushed.saturating_sub(popped);
                self.hold(gone <= room + displaced, || format!("ring {name}: more was left than it holds"));
                self.hold(most <= pushed, || format!("ring {name}: {most} were in it of {pushed} pushed"));
                let left = self.dropped(&format!("ring.{name}"), "left_behind");
                self.hold(left <= gone && gone <= left + displaced, || format!("ring {name}: {left} left behind"));
            }
        }
    }

    fn injectors(&mut self) {
        for injector in list(&self.report["injectors"]) {
            let name = text(injector, "name");
            let keys = ["pushed", "popped", "depth", "most", "refused_full"];
            let [pushed, popped, depth, most, full] = keys.map(|key| number(injector, key));
            self.hold(most <= depth, || format!("injector {name}: {most} were in one of {depth}"));
            self.hold(full == 0 || most == depth, || {
                format!("injector {name}: refused {full}, and held {most} at most")
            });
            if self.ended {
                let left = self.dropped(&format!("injector.{name}"), "left_behind");
                self.hold(popped + left == pushed, || {
                    format!("injector {name}: {pushed} pushed, {popped} popped, {left} left behind")
                });
            }
        }
    }

    fn packets(&mut self) {
        let packets = &self.report["packets"];
        let [taken, returned, held] = ["taken", "returned", "held"].map(|key| number(packets, key));
        let pools = list(&self.report["pools"]);
        let out: u64 = pools.iter().map(|pool| number(pool, "held")).sum();
        self.hold(held == out, || format!("{held} held, {out} out of the pools"));
        for pool in pools {
            let [all, free, cached, held] = ["packets", "free", "cached", "held"].map(|key| number(pool, key));
            self.hold(free + cached + held == all, || format!("{pool}: is not {all} in all"));
        }
        let known: u64 = list(&packets["holders"]).iter().map(|holder| number(holder, "packets")).sum();
        self.hold(known >= held, || format!("{held} held, {known} of them by somebody"));
        if self.ended {
            self.hold(known == held, || format!("{held} held, {known} of them by somebody"));
            self.hold(taken == returned + held, || format!("{taken} taken, {returned} returned, {held} held"));
            let posted: u64 = list(&self.report["ports"]).iter().map(|port| number(port, "rx_posted")).sum();
            self.hold(posted <= taken, || format!("{posted} posted of {taken} taken"));
        }
    }

    fn drops(&mut self) {
        let mut seen = BTreeSet::new();
        for drop in list(&self.report["drops"]) {
            let (place, reason) = (text(drop, "place"), text(drop, "reason"));
            self.hold(seen.insert((place, reason)), || format!("drops: {place} {reason} stands twice"));
            let (table, name) = place.split_once('.').unwrap_or((place, ""));
            let there = names(&self.report[&format!("{table}s")]).any(|known| known == name);
            self.hold(there, || format!("drops: the report has no {place}"));
        }
    }

    fn failures(&mut self) {
        let lcores: BTreeSet<&str> = names(&self.report["lcores"]).collect();
        for failure in list(&self.report["failures"]) {
            self.hold(failure["message"] != "", || "a failure without a message".to_owned());
            let Some(lcore) = failure["lcore"].as_str() else { continue };
            self.hold(lcore == "?" || lcores.contains(lcore), || format!("a failure of no lcore {lcore}"));
        }
        self.hold(self.ended || self.report["drained"] == true, || "it can't fail to drain while it runs".to_owned());
    }

    /// Packets dropped at `place` for `reason`.
    fn dropped(&self, place: &str, reason: &str) -> u64 {
        let drops = list(&self.report["drops"]).iter();
        drops
            .filter(|drop| drop["place"] == place && drop["reason"] == reason)
            .map(|drop| number(drop, "packets"))
            .sum()
    }
}

/// The parts of an lcore's time.
const TIMES: [&str; 4] = ["busy", "idle", "asleep", "stolen"];

/// Whether `quotient` is `part` / `whole`, or 0 if `whole` is 0.
fn is_quotient(quotient: f64, part: u64, whole: u64) -> bool {
    if whole == 0 {
        quotient == 0.0
    } else {
        (quotient - part as f64 / whole as f64).abs() <= ROUNDING * quotient.max(1.0)
    }
}

// The schema was checked first, so malformed values do not come this far.

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_default()
}

fn real(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_default()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

fn names(table: &Value) -> impl Iterator<Item = &str> {
    list(table).iter().map(|row| text(row, "name"))
}
