//! Whole runs over queue pairs of the software RNIC: connected, datagram, multicast.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{OUT, PATIENCE, assert_clean, lacks_cpus, one_lcore_with, plan, registry, run, with_pool};
use verbline_engine::{Ended, EngineError, Next, Outputs, Runtime, Stage, StageSpec};
use verbline_mem::Batch;
use verbline_verbs::expert::fault;

/// Two ports that are each other's peers, with a pinger at one and an echo at the other.
fn echo(transport: &str, near: &str, far: &str, idle: &str, count: u64, size_bytes: usize) -> String {
    let lcore = |name: &str, place: u8| format!("[lcore.{name}]\ncpu = \"allowed:{place}\"\nidle = \"{idle}\"\n");
    let lcores = lcore(near, 0) + &if near == far { String::new() } else { lcore(far, 1) };
    let rest = format!(
        r#"
        [port.near]
        lcore = "{near}"
        device = "nic0"
        pool = "p"
        transport = "{transport}"
        peer = "port.far"
        rx_depth_wr = 64
        tx_depth_wr = 64
        next = "stage.ping"
        [port.far]
        lcore = "{far}"
        device = "nic0"
        pool = "p"
        transport = "{transport}"
        peer = "port.near"
        rx_depth_wr = 64
        tx_depth_wr = 64
        next = "stage.echo"
        [stage.ping]
        use = "pinger"
        lcore = "{near}"
        pool = "p"
        out = {{ out = "port.near" }}
        params = {{ count = {count}, size_bytes = {size_bytes} }}
        [stage.echo]
        use = "forward"
        lcore = "{far}"
        out = {{ out = "port.far" }}
        "#
    );
    with_pool(&lcores, [2048, 1024], &rest)
}

fn check_echo(text: &str, count: u64, size_bytes: u64) {
    let report = run(&registry(), text).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("ping").unwrap().counter("trips"), Some(count), "{report:#?}");
    assert!(report.drops.is_empty(), "{:?}", report.drops);
    for port in ["near", "far"] {
        let port = report.port(port).unwrap();
        assert_eq!((port.rx_packets, port.tx_packets), (count, count));
        assert_eq!((port.rx_bytes, port.tx_bytes), (count * size_bytes, count * size_bytes));
    }
}

#[test]
fn one_lcore_echoes_to_itself_on_every_transport() {
    for transport in ["rc", "uc", "ud"] {
        for size_bytes in [8, 600] {
            check_echo(&echo(transport, "only", "only", "poll", 500, size_bytes), 500, size_bytes as u64);
        }
    }
}

#[test]
fn what_a_port_receives_is_stamped_unless_the_plan_says_no() {
    let stamped = echo("rc", "only", "only", "poll", 500, 8);
    let plain = stamped.replace("next = \"stage.echo\"", "timestamps = false\nnext = \"stage.echo\"");
    for (text, expected) in [(stamped, 500), (plain, 0)] {
        let report = run(&registry(), &text).unwrap();
        assert_clean(&report);
        assert_eq!(report.stage("echo").unwrap().counter("stamped"), Some(expected), "{text}");
    }
}

#[test]
fn two_lcores_echo_over_rc_polling() {
    if lacks_cpus(2) {
        return;
    }
    check_echo(&echo("rc", "a", "b", "poll", 2000, 8), 2000, 8);
}

#[test]
fn two_lcores_echo_over_rc_beyond_inline() {
    if lacks_cpus(2) {
        return;
    }
    check_echo(&echo("rc", "a", "b", "adaptive", 1000, 1000), 1000, 1000);
}

#[test]
fn two_lcores_echo_asleep_between_packets() {
    if lacks_cpus(2) {
        return;
    }
    let report = run(&registry(), &echo("rc", "a", "b", "event", 200, 8)).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("ping").unwrap().counter("trips"), Some(200));
    for lcore in ["a", "b"] {
        let lcore = report.lcore(lcore).unwrap();
        assert!(lcore.sleeps > 0 && lcore.woken_by("completion") > 0, "{lcore:?}");
    }
}

/// A port that sends to a group, and two that join it, each with its keys.
fn fan_out(tx: &str, rx_a: &str, rx_b: &str) -> String {
    let rest = r#"
        [port.tx]
        lcore = "only"
        device = "nic0"
        transport = "ud"
        send_to = "239.1.1.77"
        tx_depth_wr = 64
        [port.rx_a]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "ud"
        join = ["239.1.1.77"]
        rx_depth_wr = 256
        next = "stage.a"
        [port.rx_b]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "ud"
        join = ["239.1.1.77"]
        rx_depth_wr = 256
        next = "stage.b"
        [stage.gen]
        use = "generator"
        lcore = "only"
        pool = "p"
        out = { out = "port.tx" }
        params = { count = 3000, polite = true, size_bytes = 200 }
        [stage.a]
        use = "sink"
        lcore = "only"
        [stage.b]
        use = "sink"
        lcore = "only"
    "#;
    let mut rest = rest.to_owned();
    for (name, keys) in [("tx", tx), ("rx_a", rx_a), ("rx_b", rx_b)] {
        let head = format!("[port.{name}]\n");
        rest = rest.replace(&head, &format!("{head}{keys}\n"));
    }
    one_lcore_with("poll", [4096, 256], &rest)
}

#[test]
fn a_member_of_a_group_gets_what_is_sent_with_its_own_qkey() {
    let other = r#"
        [port.tx_b]
        lcore = "only"
        device = "nic0"
        transport = "ud"
        send_to = "239.1.1.77"
        tx_depth_wr = 64
        [stage.gen_b]
        use = "generator"
        lcore = "only"
        pool = "p"
        out = { out = "port.tx_b" }
        params = { count = 500, polite = true, size_bytes = 200 }
    "#;
    let report = run(&registry(), &(fan_out("qkey = 77", "qkey = 77", "") + other)).unwrap();
    assert_clean(&report);
    let seen = ["a", "b"].map(|sink| report.stage(sink).unwrap().counter("seen"));
    assert_eq!(seen, [Some(3000), Some(500)]);
}

#[test]
fn one_lcore_fans_out_by_multicast() {
    let report = run(&registry(), &fan_out("", "", "")).unwrap();
    assert_clean(&report);
    assert_eq!(report.port("tx").unwrap().tx_packets, 3000);
    for sink in ["a", "b"] {
        let stage = report.stage(sink).unwrap();
        assert_eq!((stage.counter("seen"), stage.counter("gaps")), (Some(3000), Some(0)), "{report:#?}");
        assert_eq!(stage.counter("bytes"), Some(600_000), "the GRH is no part of a packet");
    }
}

/// A generator on a port, and a sink behind its peer, whose pool has smaller packets.
fn mismatched(transport: &str, size_bytes: usize, count: u64) -> String {
    format!(
        r#"
        [lcore.only]
        cpu = "allowed:0"
        idle = "poll"
        drain = "200ms"
        [device.nic0]
        provider = "soft"
        name = "soft0"
        [pool.big]
        device = "nic0"
        packets = 1024
        data_bytes = 8192
        pages = "4KiB"
        [pool.small]
        device = "nic0"
        packets = 1024
        data_bytes = 64
        pages = "4KiB"
        [port.tx]
        lcore = "only"
        device = "nic0"
        pool = "big"
        transport = "{transport}"
        peer = "port.rx"
        rx_depth_wr = 8
        tx_depth_wr = 16
        next = "drop"
        [port.rx]
        lcore = "only"
        device = "nic0"
        pool = "small"
        transport = "{transport}"
        peer = "port.tx"
        rx_depth_wr = 16
        tx_depth_wr = 0
        next = "stage.sink"
        [stage.gen]
        use = "generator"
        lcore = "only"
        pool = "big"
        out = {{ out = "port.tx" }}
        params = {{ count = {count}, size_bytes = {size_bytes}, polite = true }}
        [stage.sink]
        use = "sink"
        lcore = "only"
        "#
    )
}

#[test]
fn one_lcore_takes_a_failed_port_down_and_counts_every_packet() {
    // Regression: this ended well, with nothing received.
    let EngineError::Failed { report, .. } = run(&registry(), &mismatched("rc", 300, 100)).unwrap_err() else {
        panic!("it is the port that fails")
    };
    let failures: Vec<_> = report.failures.iter().map(|failure| failure.message.as_str()).collect();
    let both = ["port.rx is down for good (IBV_WC_LOC_LEN_ERR)", "port.tx is down for good (IBV_WC_REM_INV_REQ_ERR)"];
    assert_eq!(failures, both);
    let (tx, rx) = (report.port("tx").unwrap(), report.port("rx").unwrap());
    assert!(tx.down && rx.down, "{report:#?}");
    let statuses =
        |port: &verbline_engine::PortReport| port.errors.iter().map(|e| e.status.clone()).collect::<Vec<_>>();
    assert!(statuses(rx).contains(&"LOC_LEN_ERR".to_owned()), "{rx:?}");
    assert!(statuses(tx).contains(&"REM_INV_REQ_ERR".to_owned()), "{tx:?}");
    assert!(report.dropped("port_down") > 0, "what comes after is refused: {:?}", report.drops);
    let refused = report.dropped("port_down");
    assert_eq!(report.stage("gen").unwrap().counter("made"), Some(tx.tx_packets + refused), "{report:#?}");
    assert_eq!((report.packets.held, rx.rx_packets), (0, 0), "{:?}", report.packets);
}

#[test]
fn one_lcore_drops_what_is_too_long_for_a_datagram_and_stays_up() {
    let report = run(&registry(), &mismatched("ud", 5000, 50)).unwrap();
    assert_clean(&report);
    assert_eq!(report.dropped("too_long"), 50, "{:?}", report.drops);
    assert_eq!(report.drops[0].place, "port.tx");
}

/// Sends ten packets once the test opens the gate.
struct Gated {
    open: Arc<AtomicBool>,
}

impl Stage for Gated {
    fn process(&mut self, _: &mut Batch, _: &mut Outputs<'_>) {}

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        // Relaxed: the device orders all earlier work.
        if !self.open.load(Ordering::Relaxed) {
            return Next::Idle;
        }
        for number in 0..10u64 {
            let mut packet = out.alloc().expect("a packet is free");
            assert!(packet.fill(&number.to_le_bytes()) && out.send(OUT, packet));
        }
        Next::Done
    }
}

#[test]
fn one_lcore_with_a_port_that_received_nothing_of_what_was_sent_to_it_has_failed() {
    let text = mismatched("ud", 8, 10).replace("\"generator\"", "\"gated\"");
    let text = text.replace("params = { count = 10, size_bytes = 8, polite = true }", "");
    for is_lost in [false, true] {
        let open = Arc::new(AtomicBool::new(false));
        let mut registry = registry();
        let spec = StageSpec { outputs: &["out"], source: true, summary: "waits to be let", ..StageSpec::default() };
        let gate = Arc::clone(&open);
        registry.stage("gated", spec, move |_| Ok(Box::new(Gated { open: Arc::clone(&gate) })));
        let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
        if is_lost {
            assert!(fault::change_qkey(running.snapshot().port("rx").unwrap().qpn, 0x2222));
        }
        open.store(true, Ordering::Relaxed);
        assert_eq!(running.wait(Some(PATIENCE)), Ended::SourcesDone);
        assert!(running.snapshot().failures.is_empty(), "they may come yet");
        let ended = running.stop();
        if !is_lost {
            assert_eq!(ended.unwrap().port("rx").unwrap().rx_packets, 10);
            continue;
        }
        let error = ended.unwrap_err();
        let says = "lcore.only: port.rx received none of the 10 packets that port.tx sent to it; \
                    see the errors and the drops of both ends";
        assert_eq!(error.to_string(), says);
        let EngineError::Failed { report, .. } = error else { panic!("{error}") };
        assert_clean(&report);
        assert_eq!((report.port("tx").unwrap().tx_packets, report.failures.len()), (10, 1), "{report:#?}");
    }
}
