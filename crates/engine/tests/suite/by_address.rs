//! Connections by address on the software RNIC: both ends in one plan, one end in each of two
//! engines, and none at all.
//!
//! Each test has port numbers of its own: the software RNICs share one set of listeners.

use std::net::SocketAddr;
use std::time::Instant;

use crate::common::{PATIENCE, assert_clean, lacks_cpus, plan, registry, run, until};
use rustix::event::{PollFd, PollFlags, Timespec};
use verbline_engine::{ConnectionState, Ended, EngineError, Report, Runtime};
use verbline_verbs::connection::{ConnectOptions, Listener, resolve};
use verbline_verbs::{CompletionQueue, Context, Device, Provider, QpSpec, QueuePair, Transport};

fn pinger(other_end: &str, cpu: u32, count: u64) -> String {
    format!(
        r#"
        [lcore.near]
        cpu = "allowed:{cpu}"
        [port.near]
        lcore = "near"
        device = "nic0"
        pool = "p"
        transport = "rc"
        {other_end}
        rx_depth_wr = 64
        tx_depth_wr = 64
        next = "stage.ping"
        [stage.ping]
        use = "pinger"
        lcore = "near"
        pool = "p"
        out = {{ out = "port.near" }}
        params = {{ count = {count} }}
        "#
    )
}

fn echo(other_end: &str, cpu: u32) -> String {
    format!(
        r#"
        [lcore.far]
        cpu = "allowed:{cpu}"
        [port.far]
        lcore = "far"
        device = "nic0"
        pool = "p"
        transport = "rc"
        {other_end}
        rx_depth_wr = 64
        tx_depth_wr = 64
        next = "stage.echo"
        [stage.echo]
        use = "forward"
        lcore = "far"
        out = {{ out = "port.far" }}
        "#
    )
}

fn on(device: &str, ports: &[String]) -> String {
    let ports = ports.concat();
    format!(
        r#"
        [device.nic0]
        provider = "soft"
        name = "{device}"
        [pool.p]
        device = "nic0"
        packets = 2048
        data_bytes = 1024
        pages = "4KiB"
        {ports}
        "#
    )
}

fn build(text: &str) -> Runtime {
    let registry = registry();
    Runtime::build(&plan(&registry, text), &registry).unwrap()
}

fn refused(text: &str) -> EngineError {
    let registry = registry();
    let built = Runtime::build(&plan(&registry, text), &registry);
    built.and_then(Runtime::start).map(drop).expect_err("it cannot be connected")
}

#[track_caller]
fn state(report: &Report, port: &str) -> ConnectionState {
    report.connection(port).unwrap_or_else(|| panic!("{report:#?}")).state
}

#[test]
fn two_lcores_of_one_plan_meet_at_an_address() {
    if lacks_cpus(2) {
        return;
    }
    let near = pinger(r#"connect = "10.9.9.1:7001""#, 0, 200);
    let report = run(&registry(), &on("soft0", &[near, echo(r#"listen = "10.9.9.1:7001""#, 1)])).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("ping").unwrap().counter("trips"), Some(200));
    let [near, far] = &report.connections[..] else { panic!("{report:#?}") };
    assert_eq!((near.port.as_str(), near.role, near.address.as_str()), ("near", "connects", "10.9.9.1:7001"));
    assert_eq!((far.port.as_str(), far.role, far.attempts), ("far", "listens", 1));
    assert_eq!(near.peer_address, "10.9.9.1:7001");
    for end in [near, far] {
        assert_eq!((end.state, &end.reason, end.ended_ns), (ConnectionState::Connected, &None, None));
        assert!(end.attempts >= 1 && end.times_connected == 1 && end.connect_ns > 0, "{end:?}");
    }
}

#[test]
fn two_lcores_meet_over_uc_and_meet_again() {
    if lacks_cpus(2) {
        return;
    }
    let uc = |port: String| port.replace("transport = \"rc\"", "transport = \"uc\"");
    let listening = on("soft1", &[uc(echo(r#"listen = "10.9.9.2:7022""#, 1))]);
    // Packets over UC are lost until the lcore has posted receives to another queue pair.
    let again = |port: String| port.replace("count = 100", "count = 100, again_ms = 20");
    let connecting = on("soft0", &[again(uc(pinger(r#"connect = "10.9.9.2:7022""#, 0, 100)))]);
    let starts = |text: &str| {
        let runtime = build(text);
        std::thread::spawn(move || runtime.start().unwrap())
    };
    let mut first = Some(starts(&connecting));
    let server = build(&listening).start().unwrap();
    for times in 1..=2 {
        let client = first.take().unwrap_or_else(|| starts(&connecting)).join().unwrap();
        assert_eq!(client.wait(Some(PATIENCE)), Ended::SourcesDone);
        let report = client.stop().unwrap();
        assert_clean(&report);
        assert_eq!(report.stage("ping").unwrap().counter("trips"), Some(100));
        let report = until(&server, |report| state(report, "far") == ConnectionState::Reconnecting);
        assert_eq!(report.connection("far").unwrap().times_connected, times);
    }
    // A peer that asks for a reliable connection at that address finds no listener.
    let reliable = on("soft0", &[pinger("connect = \"10.9.9.2:7022\"\nconnect_timeout = \"50ms\"", 0, 1)]);
    let error = refused(&reliable).to_string();
    server.stop().unwrap();
    assert!(error.contains("nobody listens at 10.9.9.2:7022"), "{error}");
}

#[test]
fn two_lcores_of_two_engines_meet_whoever_comes_first_and_the_one_that_stays_is_told() {
    if lacks_cpus(2) {
        return;
    }
    let listening = on("soft1", &[echo(r#"listen = "10.9.9.2:7002""#, 1)]);
    let connecting = on("soft0", &[pinger(r#"connect = "10.9.9.2:7002""#, 0, 100)]);
    // The connecting end is there first, and retries until there is a listener that lets it in.
    let mut other = Listener::bind(Provider::Soft, address("10.9.9.2:7002"), 1).unwrap();
    let first = build(&connecting);
    let client = std::thread::spawn(move || first.start());
    drop(other.next(PATIENCE).unwrap().expect("it asks"));
    drop(other);
    let server = build(&listening).start().unwrap();
    let client = client.join().unwrap().unwrap();
    assert_eq!(client.wait(Some(PATIENCE)), Ended::SourcesDone);
    let report = client.stop().unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("ping").unwrap().counter("trips"), Some(100));
    let near = report.connection("near").unwrap();
    assert_eq!((near.state, near.peer_address.as_str()), (ConnectionState::Connected, "10.9.9.2:7002"));
    assert!(near.attempts > 1, "{near:?}");

    let report = until(&server, |report| state(report, "far") == ConnectionState::Reconnecting);
    let far = report.connection("far").unwrap();
    assert_eq!(far.reason.as_deref(), Some("the peer disconnected"));
    assert!(far.ended_ns.is_some_and(|ended_ns| ended_ns <= report.elapsed_ns), "{far:?}");
    let report = server.stop().unwrap();
    assert_eq!((report.packets.held, state(&report, "far")), (0, ConnectionState::Reconnecting));

    // Nothing of the first two is left: the same addresses serve again.
    let server = build(&listening);
    let client = std::thread::spawn(move || build(&connecting).start());
    let server = server.start().unwrap();
    let client = client.join().unwrap().unwrap();
    assert_eq!(client.wait(Some(PATIENCE)), Ended::SourcesDone);
    assert_clean(&client.stop().unwrap());
    server.stop().unwrap();
}

#[test]
fn two_lcores_of_two_engines_and_the_one_that_sends_is_left_alone() {
    if lacks_cpus(2) {
        return;
    }
    let sink = echo(r#"listen = "10.9.9.2:7012""#, 1)
        .replace("\"forward\"", "\"sink\"")
        .replace("out = { out = \"port.far\" }", "")
        .replace("tx_depth_wr = 64", "");
    let listening = on("soft1", &[sink]);
    let connecting = pinger("connect = \"10.9.9.2:7012\"\nreconnect = false", 0, 1)
        .replace("\"pinger\"", "\"generator\"")
        .replace("count = 1", "count = 1000000, gap_us = 200")
        .replace("next = \"stage.ping\"", "next = \"drop\"");
    let server = build(&listening);
    let client = std::thread::spawn(move || build(&on("soft0", &[connecting])).start());
    let server = server.start().unwrap();
    let client = client.join().unwrap().unwrap();
    until(&server, |report| report.port("far").unwrap().rx_packets > 0);
    assert_eq!(server.stop().unwrap().packets.held, 0);
    let gone =
        |report: &Report| report.port("near").unwrap().down && state(report, "near") != ConnectionState::Connected;
    until(&client, gone);
    let report = until(&client, |report| state(report, "near") == ConnectionState::Disconnected);
    assert!(!report.port("near").unwrap().errors.is_empty(), "{report:#?}");
    // The peer announced its end, but packets sent to it are lost, and nothing more will arrive.
    let error = client.stop().unwrap_err();
    assert_eq!(error.to_string(), "lcore.near: port.near is down for good (IBV_WC_RETRY_EXC_ERR)");
    let EngineError::Failed { report, .. } = error else { panic!("{error}") };
    assert_eq!((report.packets.held, state(&report, "near")), (0, ConnectionState::Disconnected));
    assert!(report.dropped("port_down") > 0, "{:?}", report.drops);
}

#[test]
fn nobody_there_is_said_with_line_address_attempts_and_reason() {
    let error = refused(&on("soft0", &[pinger("connect = \"10.9.9.2:7003\"\nconnect_timeout = \"60ms\"", 0, 1)]));
    let EngineError::NotConnected { attempts, .. } = &error else { panic!("{error:?}") };
    assert!((2..=7).contains(attempts), "the pauses double: {attempts}");
    let shown = error.to_string().replace(&format!("{attempts} attempts"), "N attempts");
    assert_eq!(
        shown.to_string(),
        "test.toml:13:15: port.near connects to 10.9.9.2:7003 and has no connection after 60ms and N attempts: nobody \
         listens at 10.9.9.2:7003; start the other end, in this process or in another: the software RNIC reaches \
         another process only where its device has an `address` (in the plan's [device] table)"
    );

    let error = refused(&on("soft0", &[echo("listen = \"10.9.9.1:7003\"\nconnect_timeout = \"60ms\"", 0)]));
    assert_eq!(
        error.to_string(),
        "test.toml:13:15: port.far listens at 10.9.9.1:7003 and has no connection after 60ms and 0 attempts: nobody \
         came; start the other end, in this process or in another: the software RNIC reaches another process only \
         where its device has an `address` (in the plan's [device] table)"
    );
}

#[test]
fn an_address_that_is_not_ours_or_taken_is_said_before_anything_waits() {
    let error = refused(&on("soft0", &[echo(r#"listen = "10.1.1.1:7004""#, 0)]));
    assert_eq!(
        error.to_string(),
        "test.toml:13:15: port.far: cannot listen at 10.1.1.1:7004: no soft device reaches 10.1.1.1:7004; `rdma link` \
         and `ip addr` show which addresses devices have (soft0 is 10.9.9.1, soft1 10.9.9.2)"
    );
    let _taken = Listener::bind(Provider::Soft, "10.9.9.1:7004".parse().unwrap(), 1).unwrap();
    let error = refused(&on("soft0", &[echo(r#"listen = "10.9.9.1:7004""#, 0)]));
    assert_eq!(
        error.to_string(),
        "test.toml:13:15: port.far: cannot listen at 10.9.9.1:7004: 10.9.9.1:7004 is taken: another listener or \
         connection has the port, on this address or on every one"
    );
}

/// A peer that is no engine.
struct Stranger {
    qp: QueuePair,
    _cq: CompletionQueue,
}

impl Stranger {
    fn on(device: &str) -> Stranger {
        let context: Context = Device::find(Provider::Soft, device).unwrap().open().unwrap();
        let cq = context.create_cq(16, None).unwrap();
        let spec = QpSpec { tx_depth_wr: 4, rx_depth_wr: 4, ..QpSpec::new(Transport::Rc, &cq) };
        Stranger { qp: context.alloc_pd().unwrap().create_qp(&spec).unwrap(), _cq: cq }
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_listener_that_says_why_not_is_believed_at_once() {
    let mut listener = Listener::bind(Provider::Soft, address("10.9.9.2:7005"), 1).unwrap();
    let runtime = build(&on("soft0", &[pinger(r#"connect = "10.9.9.2:7005""#, 0, 1)]));
    let client = std::thread::spawn(move || runtime.start().map(drop));
    // Without a reason the listener may be on its way out: the port asks again.
    drop(listener.next(PATIENCE).unwrap().unwrap());
    listener.next(PATIENCE).unwrap().unwrap().reject(b"the session is over").unwrap();
    assert_eq!(
        client.join().unwrap().unwrap_err().to_string(),
        "test.toml:13:15: port.near: cannot connect to 10.9.9.2:7005: rejected by 10.9.9.2:7005 (reason 28): the \
         session is over"
    );
}

#[test]
fn a_peer_that_goes_away_half_way_is_not_the_last_that_may_come() {
    let mut runtime = build(&on("soft0", &[echo(r#"listen = "10.9.9.1:7006""#, 0)]));
    let engine = std::thread::spawn(move || runtime.connect(|| false).map(|()| runtime));
    let to = address("10.9.9.1:7006");
    let route = || resolve(Provider::Soft, to, Some(address("10.9.9.1:0")), PATIENCE).unwrap();
    let mut stranger = Stranger::on("soft0");
    let asked = route().connect(&mut stranger.qp, &ConnectOptions::default()).unwrap();
    // The peer leaves after the engine has accepted it, and before it has read that.
    let mut answer = [PollFd::new(&asked, PollFlags::IN)];
    let wait = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut answer, Some(&wait)), Ok(1));
    drop(asked);
    let mut stranger = Stranger::on("soft0");
    let asked = route().connect(&mut stranger.qp, &ConnectOptions::default()).unwrap();
    let connection = asked.finish(&mut stranger.qp, PATIENCE).unwrap();
    let running = engine.join().unwrap().unwrap().start().unwrap();
    let report = running.snapshot();
    let far = report.connection("far").unwrap();
    assert_eq!((far.state, far.attempts), (ConnectionState::Connected, 2));
    assert_eq!(report.port("far").unwrap().rx_posted, 128, "the receives of the first attempt were posted again");
    drop(connection);
    until(&running, |report| state(report, "far") == ConnectionState::Reconnecting);
    assert_eq!(running.stop().unwrap().packets.held, 0);
}

#[test]
fn who_comes_by_another_device_is_told_why_not() {
    let mut runtime = build(&on("soft0", &[echo("listen = \"0.0.0.0:7007\"\nconnect_timeout = \"1s\"", 0)]));
    let engine = std::thread::spawn(move || runtime.connect(|| false));
    let mut stranger = Stranger::on("soft1");
    let route = resolve(Provider::Soft, address("10.9.9.2:7007"), None, PATIENCE).unwrap();
    let asked = route.connect(&mut stranger.qp, &ConnectOptions::default()).unwrap();
    let error = asked.finish(&mut stranger.qp, PATIENCE).unwrap_err();
    assert_eq!(error.to_string(), "rejected by 10.9.9.2:7007 (reason 28): port.far is on soft0, this came by soft1");
    assert_eq!(
        engine.join().unwrap().unwrap_err().to_string(),
        "test.toml:13:15: port.far listens at 0.0.0.0:7007 and has no connection after 1s and 1 attempt: the QP is \
         on soft0, the route leads over soft1; make the QP on the route's device; start the other end, in this \
         process or in another: the software RNIC reaches another process only where its device has an `address` (in \
         the plan's [device] table)"
    );
}

#[test]
fn a_wish_to_stop_ends_connecting_at_once() {
    let text = on(
        "soft0",
        &[
            pinger("connect = \"10.9.9.2:7008\"\nconnect_timeout = \"1h\"", 0, 1),
            echo("listen = \"10.9.9.1:7009\"\nconnect_timeout = \"1h\"", 0)
                .replace("[lcore.far]\n        cpu = \"allowed:0\"\n", "")
                .replace("\"far\"", "\"near\""),
        ],
    );
    let start = Instant::now();
    let mut asked = 0;
    let mut runtime = build(&text);
    let error = runtime.connect(|| {
        asked += 1;
        asked > 3
    });
    assert!(matches!(error, Err(EngineError::Interrupted)), "{error:?}");
    // Regression: it started, with ports that nobody connected any more.
    let error = runtime.start().map(drop);
    assert!(matches!(error, Err(EngineError::Interrupted)), "{error:?}");
    let runtime = build(&text);
    let interrupter = runtime.interrupter();
    let client = std::thread::spawn(move || runtime.start().map(drop));
    interrupter.interrupt();
    let error = client.join().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "stopped before all ports were connected");
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn the_first_port_that_gives_up_ends_the_others() {
    let text = on(
        "soft0",
        &[
            pinger("connect = \"10.9.9.2:7010\"\nconnect_timeout = \"50ms\"", 0, 1),
            echo("listen = \"10.9.9.1:7011\"\nconnect_timeout = \"1h\"", 0)
                .replace("[lcore.far]\n        cpu = \"allowed:0\"\n", "")
                .replace("\"far\"", "\"near\""),
        ],
    );
    let error = refused(&text);
    assert!(matches!(&error, EngineError::NotConnected { port, .. } if port == "near"), "{error}");
}
