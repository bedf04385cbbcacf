//! Commands that wait for packets of data.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{BLOCKS, Host, end, plan, start_app};
use nvme_target::NvmeTarget;
use verbline_nvme::Command;
use verbline_store::{Done, Geometry, Request, Store};

const NSID: u32 = 3;
/// Reads that a host sends at once.
const AT_ONCE: u16 = 14;

/// A store that completes all its requests together, a while after the last of them.
struct Rounds {
    depth: usize,
    has: VecDeque<Request>,
    since: Instant,
    /// The number of rounds completed.
    rounds: Arc<AtomicU64>,
}

impl Store for Rounds {
    fn geometry(&self) -> Geometry {
        Geometry::of_bytes(BLOCKS * 4096, 4096).expect("blocks")
    }

    fn submit(&mut self, requests: &mut VecDeque<Request>) -> usize {
        let taken = requests.len().min(self.room());
        self.has.extend(requests.drain(..taken));
        self.since = Instant::now();
        taken
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        if self.has.is_empty() || self.since.elapsed() < Duration::from_millis(5) {
            return 0;
        }
        self.rounds.fetch_add(1, Ordering::Relaxed);
        let count = self.has.len();
        done.extend(self.has.drain(..).map(|request| request.done(Ok(()))));
        count
    }

    fn under_way(&self) -> usize {
        self.has.len()
    }

    fn room(&self) -> usize {
        self.depth - self.has.len()
    }
}

/// Regression: of a queue's commands that waited for packets only one went on, however many packets
/// were free: from then on the store had one request at a time.
#[test]
fn as_many_commands_go_on_as_there_are_packets() {
    let rounds = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&rounds);
    let app = NvmeTarget::default().with_store(NSID, move |depth| Rounds {
        depth,
        has: VecDeque::new(),
        since: Instant::now(),
        rounds: Arc::clone(&counted),
    });
    // Each of 128 connections has 2 of the 256 packets.
    let text = plan(7953, &format!("[nvme.namespace.{NSID}]\nnull_bytes = {}\n", BLOCKS * 4096));
    let text = text.replace("connections_max = 8", "connections_max = 128");
    let running = start_app(
        &text.replace("ops_shared_wr = 256", "ops_shared_wr = 1024").replace("packets = 4160", "packets = 5000"),
        &app,
    );
    let mut host = Host::new(7953);
    let (_, io) = host.queues();
    for cid in 1..=AT_ONCE {
        let read = Command { nsid: NSID, cid, ..host.read(0, 1) };
        host.send(io, &read.to_bytes());
    }
    for _ in 1..=AT_ONCE {
        assert!(host.response(io).status.is_success());
    }
    let rounds = rounds.load(Ordering::Relaxed);
    assert!(rounds <= u64::from(AT_ONCE) / 2 + 2, "two at a time: {rounds} rounds");
    end(running);
}
