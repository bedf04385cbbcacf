//! A server, a well-behaved peer, and hostile ones.

use verbline_engine::{Report, Running, Runtime};
use verbline_verbs::Provider;
use verbline_verbs::connection::ConnectionError;

use super::desk::{Gate, counts, gated, server};
use super::peers::Peers;
use super::{plan, provider, until};

/// Four places, and one receive queue for all.
pub(crate) const FOUR: &str = "connections_max = 4\nrx_shared_wr = 64\ntx_depth_wr = 16\n";

/// The growth allowed to a process while peers come and go: its allocator keeps some freed memory.
const GROWTH_MAX_BYTES: u64 = 8 << 20;

/// A server, a well-behaved peer, and room for hostile ones.
pub(crate) struct Scene {
    pub(crate) running: Running,
    pub(crate) good: Peers,
    /// Round trips of the good peer.
    pub(crate) trips: u32,
    pub(crate) bad: Peers,
    pub(crate) gate: Gate,
}

impl Scene {
    pub(crate) fn new(port: u16, keys: &str) -> Scene {
        Scene::of(port, &server(port, keys))
    }

    pub(crate) fn of(port: u16, text: &str) -> Scene {
        let gate = Gate::default();
        gate.open(true);
        let registry = gated(&gate);
        let running = Runtime::build(&plan(&registry, text), &registry).unwrap().start().unwrap();
        let mut scene = Scene { running, good: Peers::new(port), trips: 0, bad: Peers::new(port), gate };
        scene.good.ask().unwrap();
        scene.trip();
        scene
    }

    /// Makes a round trip of the good peer.
    pub(crate) fn trip(&mut self) {
        self.good.round_trip(0, &self.trips.to_le_bytes());
        self.trips += 1;
    }

    /// Connects a bad peer, as soon as there is a place.
    pub(crate) fn enter(&mut self) -> usize {
        loop {
            match self.bad.ask() {
                Ok(peer) => return peer,
                // The last peer's queue pair may still be on its way back.
                Err(error) => assert!(matches!(error, ConnectionError::Rejected { .. }), "{error}"),
            }
        }
    }

    /// Waits until this many messages of the bad peers were served, and all of the good one's.
    #[track_caller]
    pub(crate) fn served(&self, of_bad: u64) {
        let wanted = u64::from(self.trips) + of_bad;
        until(&self.running, |report| report.stage("desk").unwrap().counter("served") == Some(wanted));
    }

    /// Waits for this many ended connections: closed, failed.
    #[track_caller]
    pub(crate) fn ended(&self, closed: u64, failed: u64) {
        until(&self.running, |report| (counts(report).closed, counts(report).failed) == (closed, failed));
    }

    /// Waits until this many bad peers are over. A network may bring a server the farewell of a
    /// peer before the end of its handshake: such a peer never opened, and counts as unanswered.
    #[track_caller]
    pub(crate) fn over(&self, peers: u64) {
        until(&self.running, |report| {
            let counts = counts(report);
            counts.closed + counts.failed + counts.unanswered == peers
        });
    }

    /// Serves the good peer to the end, and accounts for every packet and every connection.
    pub(crate) fn end(mut self) -> Report {
        self.trip();
        drop(self.bad);
        let ended = |report: &Report| counts(report).closed + counts(report).failed;
        until(&self.running, |report| ended(report) + 1 == counts(report).opened);
        self.good.leave(0);
        until(&self.running, |report| ended(report) == counts(report).opened);
        let report = self.running.stop().unwrap();
        assert_eq!(report.packets.held, 0, "{:?}", report.packets);
        assert!(report.drained, "{report:#?}");
        assert!(report.pools.iter().all(|pool| pool.free == pool.packets), "{:?}", report.pools);
        assert_eq!((report.lcores[0].rescues, report.lcores[0].strays), (0, 0));
        let (door, counts, desk) = (report.port("door").unwrap(), counts(&report), report.stage("desk").unwrap());
        assert_eq!(door.stale, 0, "{door:#?}");
        assert_eq!((counts.open, counts.opened), (0, counts.closed + counts.failed), "{counts:?}");
        assert_eq!(counts.forced, 0, "{counts:?}");
        let refused = counts.rejected_full + counts.rejected_device + counts.rejected_resources;
        assert_eq!(counts.requests, counts.opened + counts.unanswered + refused, "{counts:?}");
        assert_eq!((desk.counter("opened"), desk.counter("ended")), (Some(counts.opened), Some(counts.opened)));
        let lost = report.dropped("no_connection");
        assert!(desk.packets_in <= door.rx_packets && door.rx_packets <= desk.packets_in + lost, "{report:#?}");
        assert_eq!(report.dropped("stage_full"), 0, "{report:#?}");
        report
    }
}

/// Returns `times` on the software RNIC; fewer on the kernel's, whose guest is an emulation.
pub(crate) fn often(times: u32) -> u32 {
    if provider() == Provider::Soft { times } else { (times / 50).max(10) }
}

/// Returns the resident memory of this process.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[track_caller]
pub(crate) fn assert_no_growth(since_bytes: u64) {
    let now_bytes = resident_bytes();
    assert!(now_bytes < since_bytes + GROWTH_MAX_BYTES, "{since_bytes} bytes were in use, and now {now_bytes}");
}

/// Asserts that a server lost nothing while peers came and went this often. On a network a peer
/// that has read an answer may close before its acknowledgement has come back: to its sender that
/// send has failed, and is counted. The software RNIC has no time between the two.
#[track_caller]
pub(crate) fn assert_nothing_lost(report: &Report, closed: u32) {
    let of_closing = if provider() == Provider::Soft { 0 } else { report.dropped("send_error") };
    let lost: u64 = report.drops.iter().map(|drop| drop.packets).sum();
    assert!(lost == of_closing && lost <= u64::from(closed), "{:?}", report.drops);
}
