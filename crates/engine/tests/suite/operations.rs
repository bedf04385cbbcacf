//! One-sided operations from stages, on ranges of regions and on packets.

use crate::common::operates::OPERATES;
use crate::common::{OUT, assert_clean, one_lcore_with, region, registry, run};
use serde::Deserialize;
use verbline_engine::{
    Completed, Counter, DeclineReason, Done, EngineError, Next, Operation, OperationError, Outputs, Region, Registry,
    Remote, Report, Stage, StageContext, StageError, StageSpec, Status,
};
use verbline_mem::Batch;

/// Owns a region, and sends its address to the other end.
struct Owner {
    region: Region,
    seen: Counter,
}

impl Stage for Owner {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let words = self.region.len_bytes() / 8;
        for word in 0..words.min(512) {
            self.region.store_u64(word * 8, 1000 + word as u64).unwrap();
        }
        let mut packet = out.alloc().expect("a packet");
        assert!(packet.fill(&self.region.remote(0).unwrap().to_bytes()));
        assert!(out.send(OUT, packet));
        Next::Done
    }

    /// A message names the word that has been written.
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            let word = u64::from_le_bytes(packet.data()[..8].try_into().unwrap());
            assert_eq!(self.region.load_u64(word as usize * 8).unwrap(), !word, "the WRITE came before the SEND");
            self.seen.add(1);
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientParams {
    job: String,
    #[serde(default)]
    count: u64,
}

/// Waits for the key, then does its job.
struct Client {
    params: ClientParams,
    region: Region,
    key: Option<Remote>,
    asked: u64,
    back: u64,
    due_ns: u64,
    done: Counter,
    failed: Counter,
    declined: Counter,
}

impl Client {
    fn new(context: &StageContext<'_>) -> Result<Client, StageError> {
        Ok(Client {
            params: context.params()?,
            region: context.region("mine")?,
            key: None,
            asked: 0,
            back: 0,
            due_ns: 0,
            done: context.counter("done"),
            failed: context.counter("failed"),
            declined: context.counter("declined"),
        })
    }

    /// Posts the next of its operations; returns false if it is declined.
    fn ask(&mut self, key: Remote, out: &mut Outputs<'_>) -> bool {
        let (tag, word) = (self.asked, self.asked % 64);
        let there = key.offset(word * 8);
        let here = self.region.part(word as usize * 8, 8).unwrap();
        let asked = match self.params.job.as_str() {
            "read-range" | "now-and-then" => out.operate(OUT, Operation::read(here, there).tag(tag)),
            "read-packet" => {
                let Some(mut packet) = out.alloc() else { return false };
                assert!(packet.set_len(8));
                out.operate(OUT, Operation::read(packet, there).tag(tag))
            }
            "write-then-send" => {
                let Some(mut packet) = out.alloc() else { return false };
                assert!(packet.fill(&word.to_le_bytes()));
                self.region.store_u64(word as usize * 8, !word).unwrap();
                let asked = out.operate(OUT, Operation::write(here, there).tag(tag));
                if asked.is_ok() && !out.send(OUT, packet) {
                    panic!("there is room to send");
                }
                asked
            }
            "bad-key" => out.operate(OUT, Operation::read(here, Remote { rkey: key.rkey ^ 0x55, ..there }).tag(tag)),
            "beyond" => out.operate(OUT, Operation::read(here, key.offset(1 << 30)).tag(tag)),
            job => panic!("no job {job}"),
        };
        if let Err(declined) = &asked {
            assert!(matches!(declined.reason, DeclineReason::Full | DeclineReason::PortDown), "{declined}");
            self.declined.add(1);
        }
        self.asked += u64::from(asked.is_ok());
        asked.is_ok()
    }

    fn check(&mut self, done: &Done) {
        let word = done.tag % 64;
        match self.params.job.as_str() {
            "read-range" | "now-and-then" => assert_eq!(self.region.load_u64(word as usize * 8).unwrap(), 1000 + word),
            "read-packet" => {
                let data = done.packet().expect("it comes back").data();
                assert_eq!(data, (1000 + word).to_ne_bytes());
            }
            _ => {}
        }
    }
}

impl Stage for Client {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            self.key = Some(Remote::from_bytes(packet.data().try_into().expect("a key")));
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let Some(key) = self.key else { return Next::Idle };
        if self.params.job == "now-and-then" && self.back < self.params.count {
            // One at a time, on an lcore that sleeps in between.
            let now_ns = out.fresh_ns();
            if self.due_ns <= now_ns && self.back == self.asked {
                assert!(self.ask(key, out));
                self.due_ns = now_ns + 1_000_000;
            }
            return Next::At(self.due_ns);
        }
        while self.asked < self.params.count && self.ask(key, out) {}
        if self.back == self.params.count { Next::Done } else { Next::Idle }
    }

    fn operations(&mut self, done: &mut Completed<'_>, _: &mut Outputs<'_>) {
        assert!(!done.is_empty());
        while let Some(done) = done.pop() {
            assert_eq!(done.tag, self.back, "in order");
            self.back += 1;
            match done.result {
                Ok(()) => {
                    self.check(&done);
                    self.done.add(1);
                }
                Err(error) => {
                    let first = self.failed.value() == 0;
                    let expected = match first {
                        true => OperationError::Status(Status::REM_ACCESS_ERR),
                        // Operations posted behind it are flushed; later ones were not posted any
                        // more.
                        false if error != OperationError::PortDown => OperationError::Status(Status::WR_FLUSH_ERR),
                        false => error,
                    };
                    assert_eq!(error, expected);
                    self.failed.add(1);
                }
            }
        }
    }
}

fn stages() -> Registry {
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], summary: "owns a region", ..StageSpec::default() };
    registry.stage("owner", spec, |context| {
        Ok(Box::new(Owner { region: context.region("table")?, seen: context.counter("seen") }))
    });
    let spec = StageSpec {
        outputs: &["out"],
        operations: OPERATES,
        source: true,
        summary: "asks for operations",
        ..StageSpec::default()
    };
    registry.stage("client", spec, |context| Ok(Box::new(Client::new(context)?)));
    registry
}

fn text(job: &str, count: u64) -> String {
    let rest = format!(
        r#"
        [port.near]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "rc"
        peer = "port.far"
        rx_depth_wr = 64
        tx_depth_wr = 64
        ops_depth_wr = 16
        next = "stage.client"
        [port.far]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "rc"
        peer = "port.near"
        rx_depth_wr = 64
        tx_depth_wr = 16
        next = "stage.owner"
        [stage.owner]
        use = "owner"
        lcore = "only"
        pool = "p"
        regions = ["table"]
        out = {{ out = "port.far" }}
        [stage.client]
        use = "client"
        lcore = "only"
        pool = "p"
        regions = ["mine"]
        out = {{ out = "port.near" }}
        params = {{ job = "{job}", count = {count} }}
        "#
    );
    one_lcore_with(
        "poll",
        [4096, 4096],
        &(region("table", 65536, &["local-write", "remote-read", "remote-write", "remote-atomic"])
            + &region("mine", 65536, &["local-write"])
            + &rest),
    )
}

fn counter(report: &Report, stage: &str, name: &str) -> u64 {
    report.stage(stage).unwrap().counter(name).unwrap()
}

#[test]
fn reads_come_back_once_each_in_order_into_ranges_and_packets() {
    for job in ["read-range", "read-packet"] {
        let report = run(&stages(), &text(job, 1000)).unwrap();
        assert_clean(&report);
        assert_eq!((counter(&report, "client", "done"), counter(&report, "client", "failed")), (1000, 0), "{job}");
        assert!(counter(&report, "client", "declined") > 0, "16 are under way at once");
        let operations = report.port("near").unwrap().operations.as_ref().unwrap();
        let reads = operations.kind("read").unwrap();
        assert_eq!((reads.posted, reads.completed, reads.failed, reads.bytes), (1000, 1000, 0, 8000));
        assert_eq!((operations.under_way, operations.declined), (0, counter(&report, "client", "declined")));
        assert_eq!(report.port("far").unwrap().operations, None);
        let client = report.stage("client").unwrap();
        assert_eq!((client.packets_out, client.operations, client.operations_done), (0, 1000, 1000), "none is sent");
    }
}

/// A single operation, with no packet arriving or sent beside it, is posted at the end of its turn.
#[test]
fn an_operation_is_posted_by_an_lcore_that_was_quiet() {
    let text = text("now-and-then", 20).replace("idle = \"poll\"", "idle = \"event\"");
    let report = run(&stages(), &text).unwrap();
    assert_clean(&report);
    assert_eq!(counter(&report, "client", "done"), 20);
}

#[test]
fn a_write_arrives_before_what_is_sent_behind_it() {
    let report = run(&stages(), &text("write-then-send", 1000)).unwrap();
    assert_clean(&report);
    assert_eq!(counter(&report, "client", "done"), 1000);
    assert_eq!(counter(&report, "owner", "seen"), 1000);
    assert_eq!(report.port("near").unwrap().tx_packets, 1000);
}

#[test]
fn what_the_peer_does_not_grant_comes_back_with_its_status_and_takes_the_port_down() {
    for job in ["bad-key", "beyond"] {
        let Err(EngineError::Failed { message, report, .. }) = run(&stages(), &text(job, 40)) else { panic!("{job}") };
        assert!(message.contains("is down for good"), "{message}");
        assert_eq!((counter(&report, "client", "done"), counter(&report, "client", "failed")), (0, 16), "{job}");
        let near = report.port("near").unwrap();
        assert!(near.down);
        let errors: Vec<_> = near.errors.iter().map(|error| (error.status.as_str(), error.count)).collect();
        assert!(errors.contains(&("REM_ACCESS_ERR", 1)), "{errors:?}");
        let operations = near.operations.as_ref().unwrap();
        let reads = operations.kind("read").unwrap();
        assert_eq!((reads.completed, reads.failed, operations.under_way), (0, 16, 0), "{operations:?}");
        assert!(operations.declined > 0, "nothing is accepted once it is down");
        let client = report.stage("client").unwrap();
        assert_eq!((client.operations, client.operations_done), (16, 16), "what failed came back as well");
        assert_eq!((report.packets.held, report.packets.taken), (0, report.packets.returned));
    }
}
