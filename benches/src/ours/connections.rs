//! A port with many connections: the cost of a message over one of a thousand.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use verbline::engine::{ConnectionChange, ConnectionEvent, ConnectionId};
use verbline::prelude::*;

use super::stages::{self, Waits};
use crate::Figures;
use crate::pair::cpus;

const OUT: OutId = OutId(0);
/// Messages over one connection in its turn.
const BURST: usize = 32;
const MESSAGE_BYTES: usize = 64;
/// How long to wait for connections to open.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RoundsParams {
    /// The stage begins once this many are open.
    connections: usize,
}

/// Sends a burst over each connection in turn.
struct Rounds {
    params: RoundsParams,
    port: u16,
    open: Vec<ConnectionId>,
    turn: usize,
    burst: Batch,
}

impl Stage for Rounds {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.open.len() < self.params.connections {
            return Next::Idle;
        }
        self.turn = if self.turn + 1 < self.open.len() { self.turn + 1 } else { 0 };
        out.alloc_bulk(&mut self.burst, BURST);
        for packet in &mut self.burst {
            assert!(packet.set_len(MESSAGE_BYTES));
            packet.set_connection(Some(self.open[self.turn]));
        }
        out.send_batch(OUT, &mut self.burst);
        Next::Busy
    }

    fn connection_event(&mut self, event: ConnectionEvent, _: &mut Outputs<'_>) {
        if event.port == self.port {
            assert_eq!(event.change, ConnectionChange::Opened, "none is lost");
            self.open.push(event.connection);
        }
    }
}

pub(super) fn registry() -> Registry {
    let mut registry = stages::registry(&Waits::default());
    let spec = StageSpec { outputs: &["out"], source: true, ..StageSpec::default() };
    registry.stage("rounds", StageSpec { summary: "a burst over each connection in turn", ..spec }, |stage| {
        let port = stage.port("clients").expect("the plan has it");
        let burst = Batch::with_capacity(BURST);
        Ok(Box::new(Rounds { params: stage.params()?, port, open: Vec::new(), turn: 0, burst }))
    });
    registry
}

/// The plan of a server and its clients on one lcore: bursts of messages of 64 bytes, received from
/// an SRQ.
fn rounds_plan(connections: u32) -> String {
    // The pool is as large for one connection as for a thousand.
    let mut plan = super::lcores::preamble(1024 * 64 + 8192);
    let _ = writeln!(
        plan,
        "lcore.a = {{ cpu = {}, idle = \"poll\", burst = 64 }}\n\
         port.server = {{ lcore = \"a\", device = \"nic0\", pool = \"packets\", transport = \"rc\", \
         listen = \"10.9.9.1:4801\", connections_max = {connections}, rx_shared_wr = 512, timestamps = false, \
         next = \"stage.sink\" }}\n\
         port.clients = {{ lcore = \"a\", device = \"nic0\", transport = \"rc\", connect = \"10.9.9.1:4801\", \
         connections = {connections}, tx_depth_wr = 64, inline_bytes = 128 }}\n\
         stage.rounds = {{ use = \"rounds\", lcore = \"a\", pool = \"packets\", out = {{ out = \"port.clients\" }}, \
         params = {{ connections = {connections} }} }}\n\
         stage.sink = {{ use = \"sink\", lcore = \"a\" }}",
        cpus()[0].id
    );
    plan
}

/// Waits until this many connections of port `clients` are open.
pub(super) fn wait_until_open(running: &Running, connections: u32) {
    let deadline = Instant::now() + PATIENCE;
    let open = |report: &Report| report.port("clients").and_then(|port| Some(port.connections.as_ref()?.open));
    while open(&running.snapshot()) != Some(connections.into()) {
        assert!(Instant::now() < deadline, "the connections do not open");
        running.wait(Some(Duration::from_millis(5)));
    }
}

/// The cost of a message of 64 bytes, sent and received on one lcore, over this many connections in
/// turn, 32 each: `ns`.
///
/// # Panics
/// If the connections do not open.
pub fn in_turn(connections: u32) -> Figures {
    let running = stages::start(&registry(), &rounds_plan(connections));
    wait_until_open(&running, connections);
    let received = |report: &Report| report.stage("sink").expect("of the plan").packets_in;
    Figures::of("ns", stages::median_ns(running, 7, Duration::from_millis(60), received))
}
