//! Stages called by a test (`testing::StageTest`), as a run would call them.

mod probe;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use verbline_engine::testing::{StageTest, asked, set_immediate};
use verbline_engine::{
    ConnectionChange, ConnectionPeer, DropReason, FdInterest, FdNext, FdReady, Next, OperationError, OutputOperations,
    OutputSends, Outputs, PortChange, Registry, Remote, SendFailure, SendOption, SendWith, Stage, StageSpec, Status,
    Tick, immediate,
};
use verbline_mem::Packet;

use self::probe::{Told, fed, pair, probes, served, take};
use crate::common::plan;

fn open(registry: &Registry, text: &str) -> StageTest {
    StageTest::open(&plan(registry, text), registry, "probe").unwrap_or_else(|error| panic!("{error}"))
}

fn bytes(packets: &[Packet]) -> Vec<&[u8]> {
    packets.iter().map(Packet::data).collect()
}

#[test]
fn packets_go_where_the_plan_leads_them_in_order_and_carry_what_they_came_with() {
    let (registry, _) = probes(&[], &[]);
    let mut test = open(&registry, &fed());
    test.advance(Duration::from_micros(3));
    let numbers: [u8; 10] = std::array::from_fn(|number| number as u8);
    let mut packets: Vec<_> = numbers.iter().map(|number| test.packet("port.feed", &[*number, 9])).collect();
    packets.iter_mut().zip(0..).for_each(|(packet, mark)| packet.set_mark(mark));
    packets.push(test.packet("injector.hand", b""));
    test.process(packets);

    let sent = test.sent("out");
    assert_eq!(bytes(&sent), [[2, 9], [4, 9], [6, 9], [8, 9], [10, 9]]);
    let carried = sent.iter().map(|packet| (packet.port(), packet.timestamp(), packet.mark())).collect::<Vec<_>>();
    assert_eq!(carried, [1, 3, 5, 7, 9].map(|mark| (0, 1_000_003_000, mark)));
    let report = test.report();
    let stage = report.stage("probe").unwrap();
    // Eleven packets, in bursts of four.
    assert_eq!((stage.packets_in, stage.packets_out, stage.calls, stage.batch_max), (11, 10, 3, 4));
    assert_eq!((report.dropped("empty"), stage.counter("made")), (1, Some(1)));
    assert_eq!((report.packets.held, test.sent("out").len()), (10, 0));

    // By key, like the spread.
    let by_place = ["stage.first", "stage.second"].map(|place| test.sent_to(place));
    for (place, packets) in by_place.iter().enumerate() {
        assert!(packets.iter().all(|packet| verbline_engine::place_of_key(packet.mark(), 2) == place));
    }
    assert_eq!(by_place.iter().map(Vec::len).sum::<usize>(), 5);
    drop((sent, by_place));
    let report = test.finish();
    assert_eq!((report.packets.taken, report.packets.held, report.failures.len()), (11, 0, 0));
}

#[test]
fn a_factory_that_refuses_is_heard_as_in_a_run() {
    let (registry, _) = probes(&[], &[]);
    let text = fed().replace("params.add = 1", "params.add = \"one\"");
    let plan = plan(&registry, &text);
    let refused = StageTest::open(&plan, &registry, "probe").unwrap_err().to_string();
    assert_eq!(refused, verbline_engine::Runtime::build(&plan, &registry).unwrap_err().to_string());
    assert!(refused.contains("test.toml:10:22: expected u8"), "{refused}");
}

#[test]
fn timers_come_at_their_ticks_in_bursts_and_polls_when_they_are_wanted() {
    let (registry, told) = probes(&[], &[]);
    let mut test = open(&registry, &fed());
    assert!(take(&told).is_empty(), "nothing has called it");
    let packet = test.packet("injector.hand", b"timers");
    test.process([packet]);
    test.advance(Duration::from_nanos(999));
    assert!(take(&told).iter().all(|said| said.starts_with("poll")));
    test.advance(Duration::from_nanos(1));
    let first = take(&told);
    assert!(
        first.contains(&"[0, 2, 4, 6] at 1000".to_owned()) && first.contains(&"[8] at 1000".to_owned()),
        "{first:?}"
    );
    test.advance(Duration::from_secs(1));
    let rest = take(&told).into_iter().filter(|said| said.starts_with('[')).collect::<Vec<_>>();
    // An lcore that is behind takes its next turn a microsecond later.
    assert_eq!(rest, ["[1, 3, 5, 7] at 1001", "[9] at 2001"]);
    assert_eq!(test.report().stage("probe").map(|stage| stage.timers_due), Some(10));
}

#[test]
fn connections_open_and_end_as_a_stage_hears_of_them() {
    let (registry, told) = probes(&[], &[]);
    // Tests open no listener: two of one plan do not collide.
    let _other = open(&registry, &served());
    let mut test = open(&registry, &served());
    let address = ([192, 0, 2, 7], 5000).into();
    let peer = ConnectionPeer { address, local: address, private_data: Box::new([1, 2, 3]), tag: 44 };
    let first = test.connect_as("door", peer);
    let second = test.connect("door");
    let heard = |told: &Told| take(told).into_iter().filter(|said| !said.starts_with("poll")).collect::<Vec<_>>();
    let opened = ["0:0.1: Opened, room 8, peer Some((44, 3))", "0:1.1: Opened, room 8, peer Some((0, 0))"];
    assert_eq!(heard(&told), opened);

    let packets = [b"close", b"1aaaa"].map(|data| test.packet_over(first, data));
    test.process(packets);
    let answers = test.sent("out");
    assert_eq!((bytes(&answers), answers[0].connection()), (vec![&b"2aaaa"[..]], Some(first)));
    assert_eq!(heard(&told), ["closes: Some(true)", "0:0.1: Closed { reason: \"closed here\" }, room 0, peer None"]);
    test.end_connection(second, ConnectionChange::Failed { reason: "RETRY_EXC_ERR" });
    assert_eq!(heard(&told), ["0:1.1: Failed { reason: \"RETRY_EXC_ERR\" }, room 0, peer None"]);
    let third = test.connect("door");
    test.end_connection(third, ConnectionChange::Closed { reason: "the peer disconnected" });
    let again = [
        "0:0.2: Opened, room 8, peer Some((0, 0))",
        "0:0.2: Closed { reason: \"the peer disconnected\" }, room 0, peer None",
    ];
    assert_eq!(heard(&told), again);
    drop(answers);
    let report = test.finish();
    let connections = report.port("door").and_then(|port| port.connections.as_ref()).unwrap();
    assert_eq!((connections.opened, connections.closed, connections.failed, report.packets.held), (3, 2, 1, 0));
    assert_eq!(heard(&told), ["stop"]);
}

#[test]
fn operations_end_as_the_test_says_and_a_port_that_is_down_takes_none() {
    let (registry, told) = probes(&[OutputOperations { output: "out", kinds: &[] }], &[]);
    let mut test = open(&registry, &pair("ops_depth_wr = 2"));
    let reads: Vec<_> = (0..3).map(|_| test.packet("port.a", b"read")).collect();
    test.process(reads);
    let mut seen = Vec::new();
    test.complete("out", |asked| {
        seen.push((asked.tag, asked.remote));
        match seen.len() {
            1 => {
                asked.packet.expect("what is read into").data_mut().copy_from_slice(b"word");
                Ok(())
            }
            _ => Err(OperationError::Status(Status::from_raw(10))),
        }
    });
    assert_eq!(seen, [(5, Some(Remote { addr: 64, rkey: 9 })); 2]);
    let heard = |told: &Told| take(told).into_iter().filter(|said| !said.starts_with("poll")).collect::<Vec<_>>();
    let failed = format!("done 5: Err(Status({:?}))", Status::from_raw(10));
    let all = ["asks: None", "asks: None", "asks: Some(Full)", "done 5: Ok(())", &failed];
    assert_eq!(heard(&told), all);
    assert_eq!(bytes(&test.sent("other")), [b"word", b"read"]);

    test.port_event("a", PortChange::Down);
    let read = test.packet("port.a", b"read");
    test.process([read]);
    test.port_event("a", PortChange::Up);
    let read = test.packet("port.a", b"read");
    test.process([read]);
    assert_eq!(heard(&told), ["port 0: Down", "asks: Some(PortDown)", "port 0: Up", "asks: None"]);
    let report = test.finish();
    let operations = report.port("a").and_then(|port| port.operations.as_ref()).unwrap();
    assert_eq!((operations.declined, report.packets.held), (2, 0));
}

#[test]
fn sends_ask_for_options_and_come_back() {
    let (registry, told) = probes(&[], &[OutputSends { output: "out", options: &[SendOption::Returned] }]);
    let mut test = open(&registry, &pair("send_options = true\nsent = \"stage.probe\""));
    let mut packet = test.packet("port.a", b"ask");
    set_immediate(&mut packet, 3);
    assert_eq!(immediate(&packet), Some(3));
    test.process([packet]);
    let sent = test.sent("out").remove(0);
    assert_eq!(asked(&sent), SendWith::new().imm(77).returned());
    test.send_ended(sent, Err(SendFailure::Refused(DropReason::TxFull)));
    assert!(take(&told).contains(&"sent: Err(Refused(TxFull))".to_owned()));
}

#[test]
fn an_output_that_is_stalled_fills_up_and_goes_on() {
    let (registry, told) = probes(&[], &[]);
    let mut test = open(&registry, &fed());
    test.stall("out", true);
    let room = test.report();
    assert_eq!(room.dropped("tx_full"), 0);
    let packets: Vec<_> = (0..20).map(|_| test.packet("port.feed", b"1")).collect();
    test.process(packets);
    let refused = take(&told).iter().filter(|said| *said == "no room").count();
    assert_eq!((test.report().dropped("tx_full"), test.sent("out").len()), (refused as u64, 0));
    assert!((1..20).contains(&refused), "{refused}");
    test.stall("out", false);
    assert_eq!(test.sent("out").len(), 20 - refused);
}

/// Its descriptor is ready, or it panics as it is dropped.
struct Watcher(Told);

impl Stage for Watcher {
    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        Next::At(Tick::MAX)
    }

    fn fd_ready(&mut self, _: FdReady, _: &mut Outputs<'_>) -> FdNext {
        self.0.lock().unwrap().push("ready".into());
        FdNext::Unwatch
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        panic!("as ordered");
    }
}

#[test]
fn a_descriptor_is_told_of_and_a_panic_is_reported_as_in_a_run() {
    let fd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
    let (mut registry, told) = probes(&[], &[]);
    let (watched, own) = (Arc::clone(&fd), Arc::clone(&told));
    let spec = StageSpec { source: true, ..StageSpec::default() };
    registry.opening_stage(
        "watcher",
        spec,
        |_| Ok(()),
        move |(), opening| {
            opening.watch_fd(&*watched, FdInterest::Read, None)?;
            Ok(Box::new(Watcher(Arc::clone(&own))))
        },
    );
    let text = served() + "[stage.watcher]\nuse = \"watcher\"\nlcore = \"only\"\n";
    let mut test = StageTest::open(&plan(&registry, &text), &registry, "watcher").unwrap();
    test.turn();
    assert!(take(&told).is_empty());
    assert_eq!(rustix::io::write(&*fd, &1_u64.to_ne_bytes()), Ok(8));
    test.turn();
    assert_eq!(take(&told), ["ready"]);
    let [failure] = &test.finish().failures[..] else { panic!("it panicked as it was dropped") };
    assert_eq!((failure.stage.as_deref(), failure.panicked), (Some("watcher"), true));
    assert_eq!(failure.message, "as it was dropped: as ordered");

    let test = open(&registry, &fed());
    let failure = test.panics(|test| {
        let packet = test.packet("port.feed", b"panic");
        test.process([packet]);
    });
    let said = (failure.lcore.as_str(), failure.stage.as_deref(), failure.message.as_str());
    assert_eq!(said, ("only", Some("probe"), "told to"));
}

/// Returns the panic message for a mistake of a test.
fn wrong(call: impl FnOnce(&mut StageTest)) -> String {
    let (registry, _) = probes(&[], &[]);
    let mut test = open(&registry, &served());
    let said = catch_unwind(AssertUnwindSafe(|| call(&mut test))).expect_err("it is a mistake");
    *said.downcast::<String>().expect("words")
}

#[test]
fn a_test_that_is_wrong_is_told_what_there_is() {
    let said = [
        wrong(|test| _ = test.sent("put")),
        wrong(|test| _ = test.sent_to("port.dor")),
        wrong(|test| _ = test.packet("port.dor", b"")),
        wrong(|test| _ = test.packet("port.door", &[0; 65])),
        wrong(|test| _ = test.connect("dor")),
        wrong(|test| test.complete("out", |_| Ok(()))),
        wrong(|test| {
            let connection = test.connect("door");
            test.end_connection(connection, ConnectionChange::Failed { reason: "x" });
            test.end_connection(connection, ConnectionChange::Failed { reason: "x" });
        }),
        wrong(|test| {
            let connection = test.connect("door");
            test.end_connection(connection, ConnectionChange::Closed { reason: "x" });
            drop(test.packet_over(connection, b""));
        }),
        wrong(|test| test.port_event("other", PortChange::Down)),
        wrong(|test| (0..3).for_each(|_| _ = test.connect("door"))),
    ];
    let expected = [
        "the plan has no output of the stage `put`; there is `out`, `other`",
        "the plan has no place that an output leads to `port.dor`; there is `port.door`, `stage.first`",
        "the plan has no port, injector or pool with packets `port.dor`; there is `port.door`, `port.other`, `pool.p`",
        "65 bytes; a packet of pool.p has 64",
        "the plan has no port on this lcore `dor`; there is `door`, `other`",
        "the output `out` leads to no port with `ops_depth_wr`",
        "the connection 0:0.1 is not open",
        "the connection 0:0.1 is not open",
        "stage.probe is not told of port.other: neither leads to the other, and `StageContext::port` did not ask",
        "port.door has as many connections as its plan lets it have",
    ];
    assert_eq!(said, expected);
}
