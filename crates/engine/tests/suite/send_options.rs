//! Options of a plain send: immediate data, a fence, a solicited event, and the packet back once
//! its send is done or refused.

use std::sync::{Arc, Mutex};

use crate::common::{OUT, assert_clean, lacks_cpus, one_lcore_with, registry, run};
use verbline_engine::{
    Counter, DropReason, EngineError, Next, OutputSends, Outputs, Registry, Report, SendFailure, SendOption, SendWith,
    Stage, StageSpec, Status, immediate, send_result,
};
use verbline_mem::{Batch, Packet};

/// A packet that came back: its number, and its send's result.
type Back = (u32, Result<(), SendFailure>);

/// The received packets: number and immediate data.
type Heard = Arc<Mutex<Vec<(u32, Option<u32>)>>>;

/// The packets for one run: the length and the options of each.
type Script = Vec<(usize, SendWith)>;

const SENDS: &[OutputSends] = &[OutputSends { output: "out", options: &[SendOption::Returned] }];

/// Sends a script, a packet a poll, and records the packets that come back. It has finished once
/// the expected number came back.
struct Asker {
    script: Script,
    sent: usize,
    wanted: usize,
    back: Arc<Mutex<Vec<Back>>>,
    accepted: Counter,
}

impl Stage for Asker {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            let result = send_result(&packet).expect("nothing else leads here");
            self.back.lock().unwrap().push((number(&packet), result));
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if let Some((len, options)) = self.script.get(self.sent) {
            let Some(mut packet) = out.alloc() else { return Next::Busy };
            assert!(packet.set_len(*len));
            packet.data_mut()[..4].copy_from_slice(&(self.sent as u32).to_le_bytes());
            self.accepted.add(out.send_with(OUT, packet, *options).into());
            self.sent += 1;
            return Next::Busy;
        }
        if self.back.lock().unwrap().len() < self.wanted { Next::Idle } else { Next::Done }
    }
}

fn number(packet: &Packet) -> u32 {
    u32::from_le_bytes(packet.data()[..4].try_into().expect("four bytes"))
}

/// Records the number and the immediate data of its packets.
struct Ear {
    heard: Heard,
}

impl Stage for Ear {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        let mut heard = self.heard.lock().unwrap();
        heard.extend(input.drain_front(input.len()).map(|packet| (number(&packet), immediate(&packet))));
    }
}

#[derive(Default)]
struct Told {
    back: Arc<Mutex<Vec<Back>>>,
    heard: Heard,
}

impl Told {
    /// Returns stages for this script, of which `wanted` packets are to come back.
    fn stages(&self, script: Script, wanted: usize) -> Registry {
        let mut registry = registry();
        let (back, heard) = (Arc::clone(&self.back), Arc::clone(&self.heard));
        let spec = StageSpec {
            outputs: &["out"],
            source: true,
            sends: SENDS,
            summary: "sends with options",
            ..StageSpec::default()
        };
        registry.stage("asker", spec, move |context| {
            let (script, back) = (script.clone(), Arc::clone(&back));
            Ok(Box::new(Asker { script, sent: 0, wanted, back, accepted: context.counter("accepted") }))
        });
        let spec = StageSpec { summary: "listens", ..StageSpec::default() };
        registry.stage("ear", spec, move |_| Ok(Box::new(Ear { heard: Arc::clone(&heard) })));
        registry
    }

    fn back(&self) -> Vec<Back> {
        self.back.lock().unwrap().clone()
    }

    fn heard(&self) -> Vec<(u32, Option<u32>)> {
        self.heard.lock().unwrap().clone()
    }
}

/// A port of this transport that sends to another; `keys` are for the sending one.
fn text(transport: &str, keys: &str) -> String {
    let rest = format!(
        r#"
        [port.near]
        lcore = "only"
        device = "nic0"
        transport = "{transport}"
        peer = "port.far"
        tx_depth_wr = 16
        send_options = true
        sent = "stage.asker"
        {keys}
        [port.far]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "{transport}"
        {}
        rx_depth_wr = 64
        immediates = true
        next = "stage.ear"
        [stage.asker]
        use = "asker"
        lcore = "only"
        pool = "p"
        out = {{ out = "port.near" }}
        [stage.ear]
        use = "ear"
        lcore = "only"
        "#,
        if transport == "ud" { "" } else { "peer = \"port.near\"" },
    );
    one_lcore_with("poll", [2048, 8192], &rest)
}

/// Short and long packets, with each option and without; every third comes back.
fn mixed(count: usize) -> Script {
    let options = |at: usize| {
        let mut options = SendWith::new();
        for (every, with) in [
            (2, SendWith::imm as fn(SendWith, u32) -> SendWith),
            (3, |options, _| options.returned()),
            (5, |options, _| options.fenced()),
            (7, |options, _| options.solicited()),
        ] {
            options = if at.is_multiple_of(every) { with(options, 7000 + at as u32) } else { options };
        }
        options
    };
    (0..count).map(|at| (if at % 4 == 0 { 600 } else { 8 }, options(at))).collect()
}

#[track_caller]
fn assert_mixed(report: &Report, told: &Told, count: u32) {
    assert_clean(report);
    assert_eq!(report.drops, [], "{report:#?}");
    let heard: Vec<_> = (0..count).map(|at| (at, at.is_multiple_of(2).then_some(7000 + at))).collect();
    assert_eq!(told.heard(), heard);
    let back: Vec<_> = (0..count).step_by(3).map(|at| (at, Ok(()))).collect();
    assert_eq!(told.back(), back);
}

/// On each transport, and in one list with operations: the immediate data arrives, and the packets
/// that asked to come back do so, once each, in order, unchanged.
#[test]
fn each_packet_is_sent_as_it_asks_and_comes_back_if_it_asks_to() {
    const COUNT: usize = 200;
    for (transport, keys) in [
        ("rc", ""),
        ("uc", ""),
        ("ud", ""),
        ("rc", "ops_depth_wr = 4"),
        ("uc", "ops_depth_wr = 4"),
        ("rc", "inline_bytes = 0"),
    ] {
        let told = Told::default();
        let report = run(&told.stages(mixed(COUNT), COUNT.div_ceil(3)), &text(transport, keys)).unwrap();
        assert_mixed(&report, &told, COUNT as u32);
        let operations = report.port("near").unwrap().operations.as_ref();
        assert!(operations.is_none_or(|operations| operations.under_way == 0), "{transport} {keys}");
    }
}

/// A port without the key ignores the options, and nothing comes back.
#[test]
fn a_port_without_the_key_looks_at_nothing() {
    let told = Told::default();
    let mut registry = told.stages(mixed(50), 0);
    registry.stage("shy", StageSpec { outputs: &["out"], summary: "forwards", ..StageSpec::default() }, |_| {
        struct Shy;
        impl Stage for Shy {
            fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
                out.send_batch(OUT, input);
            }
        }
        Ok(Box::new(Shy))
    });
    let text = text("rc", "").replace("send_options = true", "").replace("sent = \"stage.asker\"", "").replace(
        "out = { out = \"port.near\" }",
        "out = { out = \"stage.shy\" }\n[stage.shy]\nuse = \"shy\"\nlcore = \"only\"\nout = { out = \"port.near\" }",
    );
    let report = run(&registry, &text).unwrap();
    assert_clean(&report);
    assert_eq!(told.heard(), (0..50).map(|at| (at, None)).collect::<Vec<_>>());
    assert_eq!(told.back(), []);
}

/// The queue pair refuses a datagram longer than the MTU: it comes back if it asks, and is counted
/// either way; the packets around it go.
#[test]
fn what_is_refused_comes_back_if_it_asks() {
    let told = Told::default();
    let (asks, does_not) = (SendWith::new().returned(), SendWith::new());
    let script = vec![(8, asks), (8000, asks), (8000, does_not), (8, asks), (8, does_not)];
    let report = run(&told.stages(script, 3), &text("ud", "")).unwrap();
    assert_clean(&report);
    assert_eq!(told.back().len(), 3, "{:?}", told.back());
    let mut back = told.back();
    back.sort_by_key(|(number, _)| *number);
    assert_eq!(back, [(0, Ok(())), (1, Err(SendFailure::Refused(DropReason::TooLong))), (3, Ok(()))]);
    assert_eq!(report.dropped("too_long"), 2);
    assert_eq!(told.heard().iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 3, 4]);
}

/// The peer has no room for the long packet: its send fails, and the packets behind it, posted or
/// not, come back as failed too.
#[test]
fn a_failed_send_comes_back_with_its_status() {
    for keys in ["", "ops_depth_wr = 4"] {
        let told = Told::default();
        let asks = SendWith::new().returned();
        let script = vec![(8, asks), (4096, asks), (8, asks)];
        let text = text("rc", keys)
            .replace(
                "[port.far]",
                "[pool.small]\ndevice = \"nic0\"\npackets = 512\ndata_bytes = 64\npages = \"4KiB\"\n[port.far]",
            )
            .replace(
                "pool = \"p\"\n        transport = \"rc\"\n        peer = \"port.near\"",
                "pool = \"small\"\n        transport = \"rc\"\n        peer = \"port.near\"",
            );
        assert!(text.contains("pool = \"small\""));
        // The run ends with the port, which is lost for good.
        let Err(EngineError::Failed { report, .. }) = run(&told.stages(script, 3), &text) else { panic!("it fails") };
        assert!(report.port("near").unwrap().down);
        let back = told.back();
        assert_eq!(back[0], (0, Ok(())), "{back:?}");
        assert_eq!(back[1], (1, Err(SendFailure::Status(Status::REM_INV_REQ_ERR))), "{back:?}");
        for (_, result) in &back[2..] {
            let flushed = SendFailure::Status(Status::WR_FLUSH_ERR);
            assert!([flushed, SendFailure::Refused(DropReason::PortDown)].map(Err).contains(result), "{back:?}");
        }
        assert_eq!(report.packets.held, 0, "{:?}", report.packets);
    }
}

/// A packet keeps its options over a ring, and comes back over another.
#[test]
fn two_lcores_packets_ask_over_a_ring_and_come_back_over_another() {
    if lacks_cpus(2) {
        return;
    }
    const COUNT: usize = 200;
    let told = Told::default();
    let text = text("rc", "")
        .replace("[port.near]\n        lcore = \"only\"", "[port.near]\n        lcore = \"other\"")
        .replace("sent = \"stage.asker\"", "sent = \"ring.back\"")
        .replace("out = { out = \"port.near\" }", "out = { out = \"ring.there\" }")
        + r#"
        [lcore.other]
        cpu = "allowed:1"
        idle = "event"
        [ring.there]
        to = "port.near"
        depth = 256
        [ring.back]
        to = "stage.asker"
        depth = 256
        "#;
    let report = run(&told.stages(mixed(COUNT), COUNT.div_ceil(3)), &text).unwrap();
    assert_mixed(&report, &told, COUNT as u32);
}

/// Over the connections of a port with many, with operations and without.
#[test]
fn packets_come_back_from_a_port_with_many_connections() {
    const COUNT: usize = 300;
    for (port, keys) in [(7161, ""), (7162, "ops_depth_wr = 4")] {
        let told = Told::default();
        let text = text("rc", keys)
            .replace(
                "peer = \"port.far\"",
                &format!(
                    "connect = \"10.9.9.1:{port}\"\nconnections = 3\nrx_depth_wr = 4\npool = \"p\"\nnext = \"drop\""
                ),
            )
            .replace("peer = \"port.near\"", &format!("listen = \"10.9.9.1:{port}\"\nconnections_max = 4"));
        // Before the first connection is open, packets are refused; these come back too.
        let report = run(&told.stages(mixed(COUNT), COUNT.div_ceil(3)), &text).unwrap();
        assert_eq!((report.packets.held, report.packets.taken), (0, report.packets.returned), "{:?}", report.packets);
        let mut back = told.back();
        back.sort_by_key(|(number, _)| *number);
        let numbers: Vec<_> = back.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..COUNT as u32).step_by(3).collect::<Vec<_>>());
        let refused: Vec<_> = back.iter().filter_map(|(number, result)| result.is_err().then_some(*number)).collect();
        let heard: Vec<u32> = told.heard().iter().map(|(number, _)| *number).collect();
        for (number, result) in &back {
            assert_eq!(heard.contains(number), result.is_ok(), "{number}: {result:?}");
        }
        assert!(report.dropped("no_connection") + report.dropped("tx_full") >= refused.len() as u64);
    }
}
