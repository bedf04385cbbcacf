//! One-sided operations from a stage: their rate, and the cost of one.

use std::fmt::Write as _;
use std::time::Duration;

use verbline::engine::{Completed, Operation, OutputOperations, Region, Remote};
use verbline::prelude::*;

use super::lcores::run_to_the_end;
use super::messages::OneSided;
use super::stages::{self, Waits};
use crate::Figures;
use crate::pair::cpus;

const OUT: OutId = OutId(0);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OperatorParams {
    write: bool,
    bytes: usize,
    /// Ends the process, with exit code 0, after this many operations.
    count: Option<u64>,
}

/// Keeps as many operations in flight as its port takes, between a local and a remote range.
struct Operator {
    params: OperatorParams,
    region: Region,
    peer: Option<Remote>,
    /// The number of completed operations.
    done: Counter,
    ended: u64,
}

impl Stage for Operator {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            self.peer = Some(Remote::from_bytes(packet.data().try_into().expect("a key")));
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let Some(peer) = self.peer else { return Next::Idle };
        let range = self.region.part(0, self.params.bytes).expect("within the region");
        let accepted = out.operate_each(OUT, usize::MAX, |_| match self.params.write {
            true => Operation::write(range, peer),
            false => Operation::read(range, peer),
        });
        assert!(accepted.declined.is_none(), "{accepted:?}");
        Next::Idle
    }

    fn operations(&mut self, done: &mut Completed<'_>, _: &mut Outputs<'_>) {
        self.done.add(done.len() as u64);
        self.ended += done.len() as u64;
        if self.params.count.is_some_and(|count| self.ended >= count) {
            std::process::exit(0);
        }
        while let Some(done) = done.pop() {
            assert_eq!(done.result, Ok(()));
        }
    }
}

/// Sends its region's key.
struct Owner {
    region: Region,
}

impl Stage for Owner {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let key = self.region.remote(0).expect("made by now").to_bytes();
        let mut packet = out.alloc().expect("a packet of the plan");
        assert!(packet.fill(&key) && out.send(OUT, packet));
        Next::Done
    }

    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }
}

fn registry() -> Registry {
    let mut registry = stages::registry(&Waits::default());
    let out = StageSpec { outputs: &["out"], ..StageSpec::default() };
    let operations = &[OutputOperations { output: "out", kinds: &[] }];
    registry.stage("operator", StageSpec { operations, summary: "operations one after another", ..out }, |stage| {
        let (params, region) = (stage.params()?, stage.region("here")?);
        Ok(Box::new(Operator { params, region, peer: None, done: stage.counter("done"), ended: 0 }))
    });
    registry.stage("owner", StageSpec { summary: "says where its region is", ..out }, |stage| {
        Ok(Box::new(Owner { region: stage.region("there")? }))
    });
    registry
}

fn plan(verb: OneSided, bytes: u32, depth_wr: u32, count: &str) -> String {
    let mut plan = super::lcores::preamble(4096);
    let _ = writeln!(
        plan,
        "lcore.a = {{ cpu = {}, idle = \"poll\" }}\n\
         region.here = {{ device = \"nic0\", bytes = 65_536, rights = [\"local-write\"] }}\n\
         region.there = {{ device = \"nic0\", bytes = 65_536, \
         rights = [\"local-write\", \"remote-read\", \"remote-write\"] }}\n\
         stage.operator = {{ use = \"operator\", lcore = \"a\", regions = [\"here\"], out = {{ out = \"port.near\" }}, \
         params = {{ write = {}, bytes = {bytes}{count} }} }}\n\
         stage.owner = {{ use = \"owner\", lcore = \"a\", pool = \"packets\", regions = [\"there\"], \
         out = {{ out = \"port.far\" }} }}",
        cpus()[0].id,
        verb == OneSided::Write,
    );
    for (port, peer, ops, next) in [("near", "far", depth_wr, "operator"), ("far", "near", 0, "owner")] {
        let _ = writeln!(
            plan,
            "port.{port} = {{ lcore = \"a\", device = \"nic0\", pool = \"packets\", transport = \"rc\", \
             peer = \"port.{peer}\", rx_depth_wr = 64, tx_depth_wr = 64, ops_depth_wr = {ops}, \
             next = \"stage.{next}\" }}"
        );
    }
    plan
}

/// RDMA WRITEs or READs of `bytes` from a stage, 64 in flight, between a local and a remote range:
/// `messages_per_s`.
pub fn rate(verb: OneSided, bytes: u32) -> Figures {
    let running = stages::start(&registry(), &plan(verb, bytes, 64, ""));
    let done = |report: &Report| report.stage("operator").and_then(|stage| stage.counter("done")).unwrap_or(0);
    Figures::of("messages_per_s", 1e9 / stages::median_ns(running, 9, Duration::from_millis(50), done))
}

/// This many WRITEs of 8 bytes from a stage, `depth_wr` in flight. Ends the process.
pub fn operations(count: u64, depth_wr: u32) -> ! {
    run_to_the_end(&registry(), &plan(OneSided::Write, 8, depth_wr, &format!(", count = {count}")))
}
