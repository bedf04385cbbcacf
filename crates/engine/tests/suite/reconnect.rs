//! Connections by address that are lost, and reconnected or not. On the software RNIC; with
//! `ENGINE_TEST_PROVIDER=kernel` on the kernel's rxe0 and rxe1, as tests/guest/run makes them.
//!
//! Each test has port numbers of its own: the software RNICs share one set of listeners.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, device, lacks_cpus, plan, provider, registry, until};
use verbline_engine::{
    ConnectionReport, ConnectionState, Counter, Ended, OutId, Outputs, PortChange, PortEvent, Registry, Report,
    Running, Runtime, Stage, StageSpec,
};
use verbline_mem::Batch;
use verbline_verbs::connection::{ConnectOptions, Connection, ConnectionError, Listener, resolve};
use verbline_verbs::{CompletionQueue, Device, Provider, QpSpec, QueuePair, Transport, expert::fault};

/// One end: a port with this name and these keys on an lcore of its own, and a stage behind it.
struct End<'a> {
    device: u8,
    /// The index of its CPU among those that this process may use.
    cpu: u32,
    idle: &'a str,
    keys: String,
    stage: &'a str,
}

const PINGER: &str = "use = \"pinger\"\npool = \"p\"\nout = { out = \"port.end\" }\nparams = { count = 100 }";
const ECHO: &str = "use = \"forward\"\nout = { out = \"port.end\" }";
const SINK: &str = "use = \"sink\"\nparams = { any_order = true }";
/// One packet every 20 us, until the run ends.
const STEADY: &str =
    "use = \"generator\"\npool = \"p\"\nout = { out = \"port.end\" }\nparams = { count = 100000000, gap_us = 20 }";
/// As many packets as the queues take.
const HASTY: &str =
    "use = \"generator\"\npool = \"p\"\nout = { out = \"port.end\" }\nparams = { count = 3000, polite = true }";

const WITNESS: &str = "use = \"witness\"\npool = \"p\"\nout = { out = \"port.end\" }";

/// A stage that counts its port's events, and sends a packet as soon as the port is up again.
fn witness(registry: &mut Registry) {
    struct Witness {
        down: Counter,
        up: Counter,
    }

    impl Stage for Witness {
        fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
            input.clear();
        }

        fn port_event(&mut self, event: PortEvent, out: &mut Outputs<'_>) {
            match event.change {
                PortChange::Down => self.down.add(1),
                PortChange::Up => {
                    self.up.add(1);
                    let mut packet = out.alloc().expect("a packet is free");
                    assert!(packet.set_len(8) && out.send(OutId(0), packet));
                }
                PortChange::LinkDown | PortChange::LinkUp => {}
            }
        }
    }

    let spec = StageSpec { outputs: &["out"], summary: "is told of its port", ..StageSpec::default() };
    registry.stage("witness", spec, |context| {
        Ok(Box::new(Witness { down: context.counter("down"), up: context.counter("up") }))
    });
}

impl End<'_> {
    fn listens<'a>(port: u16, stage: &'a str) -> End<'a> {
        End { device: 1, cpu: 1, idle: "event", keys: format!("listen = \"10.9.9.2:{port}\""), stage }
    }

    fn connects<'a>(port: u16, stage: &'a str) -> End<'a> {
        End { device: 0, cpu: 0, idle: "adaptive", keys: format!("connect = \"10.9.9.2:{port}\""), stage }
    }

    fn build(&self) -> Runtime {
        let End { device, cpu, idle, keys, stage } = self;
        let next = if stage.contains("generator") { "drop" } else { "stage.end" };
        let tx_depth_wr = if stage.contains("out =") { 64 } else { 0 };
        let (provider, device) = (provider(), crate::common::device(*device));
        let text = format!(
            r#"
            [device.nic0]
            provider = "{provider}"
            name = "{device}"
            [pool.p]
            device = "nic0"
            packets = 2048
            data_bytes = 1024
            pages = "4KiB"
            [lcore.end]
            cpu = "allowed:{cpu}"
            idle = "{idle}"
            [port.end]
            lcore = "end"
            device = "nic0"
            pool = "p"
            transport = "rc"
            {keys}
            rx_depth_wr = 64
            tx_depth_wr = {tx_depth_wr}
            next = "{next}"
            [stage.end]
            lcore = "end"
            {stage}
            "#
        );
        let mut registry = registry();
        witness(&mut registry);
        Runtime::build(&plan(&registry, &text), &registry).unwrap()
    }

    fn start(&self) -> Running {
        self.build().start().unwrap()
    }
}

#[track_caller]
fn connection(report: &Report) -> &ConnectionReport {
    report.connection("end").unwrap_or_else(|| panic!("{report:#?}"))
}

fn is(state: ConnectionState) -> impl Fn(&Report) -> bool {
    move |report| connection(report).state == state
}

/// Asserts that every packet is back, and that nothing was rescued or stray.
#[track_caller]
fn assert_accounted(report: &Report) {
    assert_eq!(report.packets.held, 0, "{:?}", report.packets);
    assert_eq!(report.packets.taken, report.packets.returned, "{:?}", report.packets);
    assert!(report.pools.iter().all(|pool| pool.free == pool.packets && pool.cached == 0), "{:?}", report.pools);
    assert!(report.drained && report.failures.is_empty(), "{report:#?}");
    assert!(report.lcores.iter().all(|lcore| (lcore.rescues, lcore.strays) == (0, 0)), "{:?}", report.lcores);
    assert!(report.ports.iter().all(|port| port.stale == 0), "{:?}", report.ports);
}

/// Starts two engines; the first may have to wait for the second.
fn start_both(first: &End<'_>, second: &End<'_>) -> (Running, Running) {
    let first = first.build();
    let first = std::thread::spawn(move || first.start().unwrap());
    let second = second.start();
    (first.join().unwrap(), second)
}

#[test]
fn two_lcores_who_listens_takes_the_next_and_the_next() {
    if lacks_cpus(2) {
        return;
    }
    let (listening, connecting) = (End::listens(7101, ECHO), End::connects(7101, PINGER));
    let (mut server, mut client) = (None, None);
    for round in 1..=4 {
        let came = match server.take() {
            None => {
                let (first, second) = start_both(&listening, &connecting);
                server = Some(first);
                second
            }
            Some(running) => {
                server = Some(running);
                connecting.start()
            }
        };
        assert_eq!(came.wait(Some(PATIENCE)), Ended::SourcesDone);
        let report = came.stop().unwrap();
        assert_accounted(&report);
        assert_eq!(report.stage("end").unwrap().counter("trips"), Some(100));
        client = Some(connection(&report).address.clone());
        let report = until(server.as_ref().unwrap(), is(ConnectionState::Reconnecting));
        let end = connection(&report);
        assert_eq!((end.times_connected, end.reason.as_deref()), (round, Some("the peer disconnected")));
        assert!(end.ended_ns.is_some_and(|ended_ns| ended_ns <= report.elapsed_ns), "{end:?}");
    }
    let report = server.unwrap().stop().unwrap();
    assert_accounted(&report);
    let (end, port) = (connection(&report), report.port("end").unwrap());
    assert_eq!((end.address.as_str(), end.attempts), (client.unwrap().as_str(), 4));
    assert_eq!((port.rx_packets, port.tx_packets), (400, 400));
    // Flushed buffers are no messages.
    assert_eq!(report.dropped("recv_error") + report.dropped("send_error"), 0, "{:?}", report.drops);
}

#[test]
fn two_lcores_all_that_came_before_the_peer_left_is_handed_on() {
    if lacks_cpus(2) {
        return;
    }
    let (listening, mut connecting) = (End::listens(7102, SINK), End::connects(7102, HASTY));
    // A run that stops does not wait for the last few unsignaled sends.
    connecting.keys += "\nsignal_every_wr = 1";
    let (server, mut client) = start_both(&listening, &connecting);
    for round in 1..=5 {
        assert_eq!(client.wait(Some(PATIENCE)), Ended::SourcesDone);
        assert_accounted(&client.stop().unwrap());
        let report = until(&server, |report| report.stage("end").unwrap().counter("seen") == Some(round * 3000));
        assert_eq!(connection(&report).times_connected, round);
        if round == 5 {
            break;
        }
        client = connecting.start();
    }
    let report = server.stop().unwrap();
    assert_accounted(&report);
    assert_eq!(report.port("end").unwrap().rx_packets, 15_000);
}

#[test]
fn two_lcores_who_connects_finds_each_that_comes_and_every_packet_has_a_fate() {
    if lacks_cpus(2) {
        return;
    }
    let (listening, connecting) = (End::listens(7103, SINK), End::connects(7103, STEADY));
    let (client, mut server) = start_both(&connecting, &listening);
    let mut seen = 0;
    for round in 1..=4 {
        until(&client, |report| is(ConnectionState::Connected)(report) && connection(report).times_connected == round);
        until(&server, |report| report.stage("end").unwrap().counter("seen") > Some(100));
        let report = server.stop().unwrap();
        assert_eq!(report.packets.held, 0);
        seen += report.stage("end").unwrap().counter("seen").unwrap();
        let before = client.snapshot().dropped("port_down");
        let report = until(&client, |report| {
            is(ConnectionState::Reconnecting)(report) && report.dropped("port_down") > before + 100
        });
        assert!(report.port("end").unwrap().down && connection(&report).reason.is_some(), "{report:#?}");
        until(&client, |report| connection(report).last_error.as_deref() == Some("nobody listens at 10.9.9.2:7103"));
        server = listening.start();
    }
    until(&client, |report| connection(report).times_connected == 5);
    let report = until(&client, |report| !report.port("end").unwrap().down);
    assert_eq!(
        (connection(&report).state, connection(&report).last_error.as_deref()),
        (ConnectionState::Connected, None)
    );
    until(&server, |report| report.stage("end").unwrap().counter("seen") > Some(100));
    let report = client.stop().unwrap();
    assert_accounted(&report);
    let last = until(&server, is(ConnectionState::Reconnecting));
    seen += last.stage("end").unwrap().counter("seen").unwrap();
    assert_accounted(&server.stop().unwrap());

    let made = report.stage("end").unwrap().counter("made").unwrap();
    let sent = report.port("end").unwrap().tx_packets;
    let dropped: u64 = report.drops.iter().map(|drop| drop.packets).sum();
    assert_eq!(made, sent + dropped - report.dropped("send_error"), "{:?}", report.drops);
    // Only the packets on their way as a peer left were known to the peer alone.
    assert!(seen <= sent - report.dropped("send_error"), "{seen} of {sent}: {:?}", report.drops);
    assert_eq!(connection(&report).times_connected, 5);
}

#[test]
fn two_lcores_the_peer_never_comes_back_and_the_run_stops_at_once() {
    if lacks_cpus(2) {
        return;
    }
    for (first, second) in [
        (End::connects(7104, STEADY), End::listens(7104, SINK)),
        (End::listens(7104, SINK), End::connects(7104, STEADY)),
    ] {
        let (stays, leaves) = start_both(&first, &second);
        until(&stays, |report| {
            let port = report.port("end").unwrap();
            port.tx_packets + port.rx_packets > 100
        });
        leaves.stop().unwrap();
        until(&stays, is(ConnectionState::Reconnecting));
        if first.stage == STEADY {
            until(&stays, |report| connection(report).attempts > 5);
        }
        let start = Instant::now();
        let report = stays.stop().unwrap();
        assert!(start.elapsed() < PATIENCE / 4);
        assert_accounted(&report);
        let end = connection(&report);
        assert_eq!((end.state, end.times_connected), (ConnectionState::Reconnecting, 1));
        assert_eq!(end.reason.as_deref(), Some("the peer disconnected"));
    }
}

#[test]
fn two_lcores_what_is_not_to_be_made_again_stays_lost() {
    if lacks_cpus(2) {
        return;
    }
    let mut listening = End::listens(7105, ECHO);
    listening.keys += "\nreconnect = false";
    let (server, client) = start_both(&listening, &End::connects(7105, PINGER));
    client.wait(Some(PATIENCE));
    client.stop().unwrap();
    let report = until(&server, is(ConnectionState::Disconnected));
    assert_eq!(connection(&report).reason.as_deref(), Some("the peer disconnected"));
    assert_eq!(ask(7105, &mut Stranger::on(0)).unwrap_err().to_string(), "nobody listens at 10.9.9.2:7105");
    assert_accounted(&server.stop().unwrap());
}

/// A peer that is no engine.
struct Stranger {
    qp: QueuePair,
    _cq: CompletionQueue,
}

impl Stranger {
    fn on(index: u8) -> Stranger {
        let context = Device::find(provider(), &device(index)).unwrap().open().unwrap();
        let cq = context.create_cq(16, None).unwrap();
        let spec = QpSpec { tx_depth_wr: 4, rx_depth_wr: 4, ..QpSpec::new(Transport::Rc, &cq) };
        Stranger { qp: context.alloc_pd().unwrap().create_qp(&spec).unwrap(), _cq: cq }
    }
}

/// Connects to the listener at this port of the second device, from the first.
fn ask(port: u16, stranger: &mut Stranger) -> Result<Connection, ConnectionError> {
    let (to, from) = (format!("10.9.9.2:{port}"), address("10.9.9.1:0"));
    let route = resolve(provider(), address(&to), Some(from), PATIENCE)?;
    route.connect(&mut stranger.qp, &ConnectOptions::default())?.finish(&mut stranger.qp, PATIENCE)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_listener_that_refuses_a_port_that_it_knew_is_asked_again() {
    let mut listener = Listener::bind(provider(), address("10.9.9.2:7106"), 2).unwrap();
    let connecting = End::connects(7106, STEADY).build();
    let client = std::thread::spawn(move || connecting.start().unwrap());
    let accept = |listener: &mut Listener| {
        let mut stranger = Stranger::on(1);
        let request = listener.next(PATIENCE).unwrap().unwrap();
        let mut connection = request.accept(&mut stranger.qp, &ConnectOptions::default()).unwrap();
        connection.wait_established(PATIENCE).unwrap();
        (stranger, connection)
    };
    let (_stranger, first) = accept(&mut listener);
    let client = client.join().unwrap();
    // The connection ends though the queue pair at its other end lives on.
    drop(first);
    listener.next(PATIENCE).unwrap().unwrap().reject(b"closed until eight").unwrap();
    let report = until(&client, |report| connection(report).last_error.is_some());
    assert_eq!(
        connection(&report).last_error.as_deref(),
        Some("rejected by 10.9.9.2:7106 (reason 28): closed until eight")
    );
    let (_other, _second) = accept(&mut listener);
    let report = until(&client, is(ConnectionState::Connected));
    assert!(connection(&report).times_connected == 2 && connection(&report).attempts >= 3, "{report:#?}");
    // It sends again once the peer listens. Neither peer posts receives: the send queue fills up.
    until(&client, |report| report.dropped("tx_full") > 0);
    assert_eq!(client.stop().unwrap().packets.held, 0);
}

#[test]
fn two_lcores_who_comes_second_is_refused_and_may_come_when_the_first_has_left() {
    if lacks_cpus(2) {
        return;
    }
    let (listening, connecting) = (End::listens(7107, ECHO), End::connects(7107, PINGER));
    let (server, client) = start_both(&listening, &connecting);
    assert_eq!(ask(7107, &mut Stranger::on(0)).unwrap_err().to_string(), "nobody listens at 10.9.9.2:7107");
    assert_eq!(client.wait(Some(PATIENCE)), Ended::SourcesDone);
    client.stop().unwrap();
    until(&server, is(ConnectionState::Reconnecting));
    // It may be accepted now.
    let start = Instant::now();
    let connection = loop {
        let mut stranger = Stranger::on(0);
        match ask(7107, &mut stranger) {
            Ok(connection) => break (connection, stranger),
            Err(_) => assert!(start.elapsed() < PATIENCE),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    until(&server, is(ConnectionState::Connected));
    until(&server, |report| report.port("end").unwrap().rx_posted >= 64 + 64 + 64);
    drop(connection);
    until(&server, is(ConnectionState::Reconnecting));
    assert_accounted(&server.stop().unwrap());
}

#[test]
fn two_lcores_stages_are_told_and_the_port_is_of_use_at_once() {
    if lacks_cpus(2) {
        return;
    }
    let (listening, connecting) = (End::listens(7108, SINK), End::connects(7108, WITNESS));
    let (client, mut server) = start_both(&connecting, &listening);
    for round in 1..=3 {
        server.stop().unwrap();
        let told = |what: &str, report: &Report| report.stage("end").unwrap().counter(what);
        until(&client, |report| told("down", report) == Some(round));
        assert_eq!(told("up", &client.snapshot()), Some(round - 1));
        server = listening.start();
        until(&client, |report| told("up", report) == Some(round));
        until(&server, |report| told("seen", report) == Some(1));
    }
    assert_accounted(&client.stop().unwrap());
    assert_accounted(&server.stop().unwrap());
}

#[test]
fn a_peer_that_hangs_up_at_once_is_met_again_and_again() {
    let mut listener = Listener::bind(provider(), address("10.9.9.2:7109"), 2).unwrap();
    let connecting = End::connects(7109, STEADY).build();
    let client = std::thread::spawn(move || connecting.start().unwrap());
    let meet = |listener: &mut Listener| {
        let mut stranger = Stranger::on(1);
        let request = listener.next(PATIENCE).unwrap().unwrap();
        let mut connection = request.accept(&mut stranger.qp, &ConnectOptions::default()).unwrap();
        connection.wait_established(PATIENCE).unwrap();
    };
    meet(&mut listener);
    let client = client.join().unwrap();
    for _ in 0..5 {
        meet(&mut listener);
    }
    until(&client, |report| connection(report).times_connected == 6 && is(ConnectionState::Reconnecting)(report));
    drop(listener);
    until(&client, |report| connection(report).last_error.as_deref() == Some("nobody listens at 10.9.9.2:7109"));
    assert_accounted(&client.stop().unwrap());
}

#[test]
fn two_lcores_a_queue_pair_that_breaks_is_replaced_whoever_has_it() {
    if lacks_cpus(2) {
        return;
    }
    if provider() != Provider::Soft {
        eprintln!("skipped: on kernel devices: a queue pair is broken to order on the software RNIC only");
        return;
    }
    let (listening, connecting) = (End::listens(7110, SINK), End::connects(7110, STEADY));
    let (server, client) = start_both(&listening, &connecting);
    for (round, broken) in [&client, &server, &server, &client].into_iter().enumerate() {
        let qpn = broken.snapshot().port("end").unwrap().qpn;
        assert!(fault::break_queue_pair(qpn));
        for end in [&client, &server] {
            until(end, |report| {
                connection(report).times_connected == round as u64 + 2 && !report.port("end").unwrap().down
            });
        }
        assert_ne!(broken.snapshot().port("end").unwrap().qpn, qpn);
        let seen = |report: &Report| report.stage("end").unwrap().counter("seen").unwrap();
        let before = seen(&server.snapshot());
        until(&server, |report| seen(report) > before + 100);
    }
    assert_accounted(&client.stop().unwrap());
    assert_accounted(&server.stop().unwrap());
}
