//! Operations whose peer is lost half-way: each comes back once, and after the reconnect the same
//! ranges and the same key serve again.

use crate::common::operates::OPERATES;
use crate::common::{OUT, one_lcore_with, region, registry, until};
use verbline_engine::{
    Completed, Counter, Next, Operation, OutId, Outputs, Region, Registry, Remote, Runtime, Stage, StageSpec,
};
use verbline_mem::Batch;
use verbline_verbs::expert::fault;

/// Sends its region's address whenever its port comes up.
struct Owner {
    region: Region,
}

impl Owner {
    fn tell(&self, out: &mut Outputs<'_>) {
        if let Some(mut packet) = out.alloc() {
            assert!(packet.fill(&self.region.remote(0).unwrap().to_bytes()));
            out.send(OutId(0), packet);
        }
    }
}

impl Stage for Owner {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        self.region.store_u64(0, 4711).unwrap();
        self.tell(out);
        Next::Done
    }

    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }
}

/// Reads the peer's word for ever, as often as the port takes it, into ranges and packets in turn.
struct Reader {
    region: Region,
    key: Option<Remote>,
    asked: u64,
    back: u64,
    read: Counter,
    failed: Counter,
}

impl Stage for Reader {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            let key = Remote::from_bytes(packet.data().try_into().unwrap());
            assert!(self.key.is_none_or(|before| before == key));
            self.key = Some(key);
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let Some(key) = self.key else { return Next::Idle };
        let range = self.region.part(0, 8).unwrap();
        loop {
            let operation = match out.alloc() {
                Some(mut packet) if self.asked.is_multiple_of(2) => {
                    assert!(packet.set_len(8));
                    Operation::read(packet, key)
                }
                _ => Operation::read(range, key),
            };
            if out.operate(OUT, operation.tag(self.asked)).is_err() {
                return Next::Idle;
            }
            self.asked += 1;
        }
    }

    fn operations(&mut self, done: &mut Completed<'_>, _: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            assert_eq!(done.tag, self.back, "each once, in order");
            self.back += 1;
            match done.result {
                Ok(()) => {
                    if let Some(packet) = done.packet() {
                        assert_eq!(packet.data(), 4711_u64.to_ne_bytes());
                    }
                    self.read.add(1);
                }
                Err(_) => self.failed.add(1),
            }
        }
    }
}

fn stages() -> Registry {
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], summary: "owns a region", ..StageSpec::default() };
    registry.stage("owner", spec, |context| Ok(Box::new(Owner { region: context.region("table")? })));
    let spec = StageSpec { outputs: &["out"], operations: OPERATES, summary: "reads it", ..StageSpec::default() };
    registry.stage("reader", spec, |context| {
        let (read, failed) = (context.counter("read"), context.counter("failed"));
        Ok(Box::new(Reader { region: context.region("mine")?, key: None, asked: 0, back: 0, read, failed }))
    });
    registry
}

fn text() -> String {
    one_lcore_with(
        "event",
        [2048, 256],
        &(region("mine", 4096, &["local-write"]) + &region("table", 4096, &["remote-read"]) + REST),
    )
}

const REST: &str = r#"
[pool.q]
device = "nic0"
packets = 2048
data_bytes = 256
pages = "4KiB"
[port.near]
lcore = "only"
device = "nic0"
pool = "p"
transport = "rc"
connect = "10.9.9.1:4790"
rx_depth_wr = 16
tx_depth_wr = 16
ops_depth_wr = 16
next = "stage.reader"
[port.far]
lcore = "only"
device = "nic0"
pool = "q"
transport = "rc"
listen = "10.9.9.1:4790"
rx_depth_wr = 16
tx_depth_wr = 16
next = "stage.owner"
[stage.reader]
use = "reader"
lcore = "only"
pool = "p"
regions = ["mine"]
out = { out = "port.near" }
[stage.owner]
use = "owner"
lcore = "only"
pool = "q"
regions = ["table"]
out = { out = "port.far" }
"#;

#[test]
fn a_peer_that_is_lost_in_the_middle_fails_what_is_under_way_and_serves_again() {
    let registry = stages();
    let mut runtime = Runtime::build(&crate::common::plan(&registry, &text()), &registry).unwrap();
    runtime.connect(|| false).unwrap();
    let running = runtime.start().unwrap();
    let reads = |report: &verbline_engine::Report| report.stage("reader").unwrap().counter("read").unwrap();
    let before = until(&running, |report| reads(report) > 1000);
    for round in 1..=3 {
        for port in ["far", "near"] {
            let qpn = running.snapshot().port(port).unwrap().qpn;
            assert!(fault::break_queue_pair(qpn), "{port}");
            let connected = |report: &verbline_engine::Report| {
                let of = |port| report.connection(port).unwrap().times_connected;
                of("near") > 1 && of("far") > 1
            };
            until(&running, |report| connected(report) && report.ports.iter().all(|port| !port.down));
            let so_far = reads(&running.snapshot());
            until(&running, |report| reads(report) > so_far + 100);
        }
        assert!(reads(&running.snapshot()) > reads(&before), "round {round}");
    }
    let report = running.stop().unwrap();
    let near = report.port("near").unwrap();
    let operations = near.operations.as_ref().unwrap();
    let read = operations.kind("read").unwrap();
    assert_eq!((operations.under_way, report.packets.held), (0, 0));
    assert_eq!(report.packets.taken, report.packets.returned);
    assert!(read.failed > 0, "what was under way when it was lost: {read:?}");
    assert_eq!(read.completed, reads(&report), "and all of it came back");
    assert_eq!(near.stale, 0);
}
