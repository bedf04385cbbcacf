//! Every kind of operation besides READ and WRITE: atomics, immediate data, invalidation, windows.

use std::sync::{Arc, Mutex};

use crate::common::operates::OPERATES;
use crate::common::{OUT, assert_clean, one_lcore_with, region, registry, run};
use verbline_engine::{
    Completed, Counter, Done, EngineError, Next, Operation, Outputs, Region, Registry, Remote, Report, Stage,
    StageSpec, immediate,
};
use verbline_mem::{Batch, Packet};

/// The behaviour of a side: at the beginning, for each packet, and for each completed operation.
pub(crate) trait Side: Send {
    fn begin(&mut self, region: &Region, out: &mut Outputs<'_>);
    /// Handles a packet. Returns true once the side has finished.
    fn took(&mut self, packet: Packet, region: &Region, out: &mut Outputs<'_>) -> bool;
    fn done(&mut self, done: Done, region: &Region, out: &mut Outputs<'_>) -> bool;
}

struct Played<S> {
    side: S,
    region: Region,
    begun: bool,
    finished: bool,
    ended: Counter,
}

impl<S: Side> Stage for Played<S> {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            self.finished |= self.side.took(packet, &self.region, out);
        }
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            self.finished |= self.side.done(done, &self.region, out);
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if !std::mem::replace(&mut self.begun, true) {
            self.side.begin(&self.region, out);
        }
        if self.finished {
            self.ended.set(1);
            return Next::Done;
        }
        Next::Idle
    }
}

pub(crate) fn play<N: Side + 'static, F: Side + 'static>(near: N, far: F) -> Result<Report, EngineError> {
    play_on(&text(), near, far)
}

/// Runs both sides of a plan, each a source, until both have finished.
pub(crate) fn play_on<N: Side + 'static, F: Side + 'static>(
    text: &str,
    near: N,
    far: F,
) -> Result<Report, EngineError> {
    let mut registry = registry();
    let (near, far) = (Arc::new(Mutex::new(Some(near))), Arc::new(Mutex::new(Some(far))));
    side(&mut registry, "near", "mine", near);
    side(&mut registry, "far", "table", far);
    run(&registry, text)
}

fn side<S: Side + 'static>(
    registry: &mut Registry,
    kind: &'static str,
    region: &'static str,
    side: Arc<Mutex<Option<S>>>,
) {
    let spec =
        StageSpec { outputs: &["out"], operations: OPERATES, source: true, summary: "a side", ..StageSpec::default() };
    registry.stage(kind, spec, move |context| {
        let side = side.lock().unwrap().take().expect("made once");
        let ended = context.counter("ended");
        Ok(Box::new(Played { side, region: context.region(region)?, begun: false, finished: false, ended }))
    });
}

pub(crate) fn text() -> String {
    one_lcore_with(
        "poll",
        [2048, 256],
        &(region("mine", 4096, &["local-write"])
            + &region("table", 4096, &["local-write", "remote-read", "remote-write", "remote-atomic", "bind"])
            + REST),
    )
}

pub(crate) const REST: &str = r#"
[port.near]
lcore = "only"
device = "nic0"
pool = "p"
transport = "rc"
peer = "port.far"
rx_depth_wr = 16
tx_depth_wr = 16
ops_depth_wr = 16
immediates = true
next = "stage.near"
[port.far]
lcore = "only"
device = "nic0"
pool = "p"
transport = "rc"
peer = "port.near"
rx_depth_wr = 16
tx_depth_wr = 16
ops_depth_wr = 16
windows = 2
immediates = true
next = "stage.far"
[stage.near]
use = "near"
lcore = "only"
pool = "p"
regions = ["mine"]
out = { out = "port.near" }
[stage.far]
use = "far"
lcore = "only"
pool = "p"
regions = ["table"]
out = { out = "port.far" }
"#;

pub(crate) fn packet(out: &mut Outputs<'_>, bytes: &[u8]) -> Packet {
    let mut packet = out.alloc().expect("a packet");
    assert!(packet.fill(bytes));
    packet
}

pub(crate) fn key_in(packet: &Packet) -> Remote {
    Remote::from_bytes(packet.data().try_into().expect("a key"))
}

/// Announces its region, and has finished once the peer says so.
struct Tells;

impl Side for Tells {
    fn begin(&mut self, region: &Region, out: &mut Outputs<'_>) {
        let key = packet(out, &region.remote(0).unwrap().to_bytes());
        assert!(out.send(OUT, key));
    }

    fn took(&mut self, _: Packet, region: &Region, _: &mut Outputs<'_>) -> bool {
        assert_eq!(region.load_u64(8).unwrap(), 77, "what the atomics made of it");
        true
    }

    fn done(&mut self, done: Done, _: &Region, _: &mut Outputs<'_>) -> bool {
        panic!("it asked for nothing: {done:?}")
    }
}

struct Atomics;

impl Side for Atomics {
    fn begin(&mut self, _: &Region, _: &mut Outputs<'_>) {}

    fn took(&mut self, came: Packet, region: &Region, out: &mut Outputs<'_>) -> bool {
        let there = key_in(&came).offset(8);
        let eight = packet(out, &[0; 8]);
        let here = region.part(16, 8).unwrap();
        let asked = [
            Operation::fetch_add(eight, there, 40).tag(1),
            Operation::compare_swap(here, there, 40, 70).tag(2),
            Operation::compare_swap(region.part(24, 8).unwrap(), there, 40, 0).tag(3),
            Operation::fetch_add(region.part(32, 8).unwrap(), there, 7).tag(4),
        ];
        out.operate_all(OUT, asked).unwrap();
        false
    }

    fn done(&mut self, done: Done, region: &Region, out: &mut Outputs<'_>) -> bool {
        assert_eq!((done.result, done.bytes), (Ok(()), 8));
        let found = match done.tag {
            1 => done.value(),
            tag => Some(region.load_u64(8 * tag as usize).unwrap()),
        };
        assert_eq!(found, Some([0, 40, 70, 70][done.tag as usize - 1]), "{done:?}");
        if done.tag == 4 {
            let told = packet(out, b"done");
            assert!(out.send(OUT, told));
        }
        done.tag == 4
    }
}

#[test]
fn atomics_bring_back_what_was_there() {
    let report = play(Atomics, Tells).unwrap();
    assert_clean(&report);
    let operations = report.port("near").unwrap().operations.as_ref().unwrap();
    let counts: Vec<_> = operations.kinds.iter().map(|kind| (kind.kind, kind.completed)).collect();
    assert_eq!(counts, [("compare_swap", 2), ("fetch_add", 2)]);
}

/// Sends and writes with immediate data, and relies on the order.
struct Immediates;

impl Side for Immediates {
    fn begin(&mut self, _: &Region, _: &mut Outputs<'_>) {}

    fn took(&mut self, came: Packet, region: &Region, out: &mut Outputs<'_>) -> bool {
        let there = key_in(&came);
        region.write_from(0, b"written!").unwrap();
        let (plain, kept) = (packet(out, b"plain"), packet(out, b"kept"));
        assert!(out.send(OUT, plain));
        let write = Operation::write(region.part(0, 8).unwrap(), there).imm(0xffff_fffe).tag(1);
        out.operate_all(OUT, [write, Operation::send(kept).imm(0).tag(2)]).unwrap();
        let last = packet(out, b"last");
        assert!(out.send(OUT, last));
        false
    }

    fn done(&mut self, done: Done, _: &Region, _: &mut Outputs<'_>) -> bool {
        assert_eq!(done.result, Ok(()));
        assert_eq!(done.packet().is_some(), done.tag == 2, "what was sent comes back");
        done.tag == 2
    }
}

#[derive(Default)]
struct TakesImmediates(Vec<(Vec<u8>, Option<u32>)>);

impl Side for TakesImmediates {
    fn begin(&mut self, region: &Region, out: &mut Outputs<'_>) {
        Tells.begin(region, out);
    }

    fn took(&mut self, packet: Packet, region: &Region, _: &mut Outputs<'_>) -> bool {
        if self.0.len() == 1 {
            let mut bytes = [0; 8];
            region.read_into(0, &mut bytes).unwrap();
            assert_eq!(&bytes, b"written!");
        }
        self.0.push((packet.data().to_vec(), immediate(&packet)));
        let expected: [(&[u8], Option<u32>); 4] =
            [(b"plain", None), (b"", Some(0xffff_fffe)), (b"kept", Some(0)), (b"last", None)];
        for ((data, imm), (expected, expected_imm)) in self.0.iter().zip(expected) {
            assert_eq!((&data[..], *imm), (expected, expected_imm));
        }
        self.0.len() == 4
    }

    fn done(&mut self, done: Done, _: &Region, _: &mut Outputs<'_>) -> bool {
        panic!("it asked for nothing: {done:?}")
    }
}

#[test]
fn sends_and_operations_arrive_in_the_order_in_which_they_were_given_with_their_immediates() {
    let report = play(Immediates, TakesImmediates::default()).unwrap();
    assert_clean(&report);
    assert_eq!(report.port("near").unwrap().tx_packets, 2, "of which no more than the data came back");
    assert_eq!(report.port("far").unwrap().rx_packets, 4);
}
