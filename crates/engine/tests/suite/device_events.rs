//! Asynchronous events of devices reach the lcore concerned, and the run's report: queue pairs that
//! fail, completion queues that overrun, devices that are pulled out.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, lacks_cpus, plan, registry, run, two_lcores, tx_to_rx, wait_for};
use verbline_engine::{
    Counter, Ended, EngineError, EventReport, OutId, Outputs, PortChange, PortEvent, Registry, Report, Running,
    Runtime, Stage, StageSpec,
};
use verbline_mem::Batch;
use verbline_verbs::expert::fault;

/// The software RNIC's devices belong to the whole process, and these tests take them away.
fn alone() -> MutexGuard<'static, ()> {
    static DEVICES: Mutex<()> = Mutex::new(());
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the events of the port `tx`, and answers each with a packet.
struct Witness {
    port: Option<u16>,
    down: Counter,
    others: Counter,
    answered: Counter,
}

impl Stage for Witness {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }

    fn port_event(&mut self, event: PortEvent, out: &mut Outputs<'_>) {
        match event.change {
            PortChange::Down if Some(event.port) == self.port => {
                self.down.add(1);
                let mut packet = out.alloc().expect("a packet is free");
                assert!(packet.set_len(8));
                packet.data_mut().fill(0);
                self.answered.add(out.send(OutId(0), packet).into());
            }
            _ => self.others.add(1),
        }
    }
}

fn with_witness() -> Registry {
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], summary: "is told of ports", ..StageSpec::default() };
    registry.stage("witness", spec, |context| {
        let [down, others, answered] = ["down", "others", "answered"].map(|name| context.counter(name));
        Ok(Box::new(Witness { port: context.port("tx"), down, others, answered }))
    });
    registry
}

/// A pair of ports over RC on two lcores, `tx` to `rx`; and on lcore a, a witness that answers over
/// the port `other`.
fn text(idle: &str, generator: &str) -> String {
    let ports = tx_to_rx("a", 64, "next = \"stage.witness\"");
    let rest = format!(
        r#"
        {ports}
        [port.other]
        lcore = "a"
        device = "nic0"
        transport = "ud"
        peer = "port.heard"
        tx_depth_wr = 8
        [port.heard]
        lcore = "b"
        device = "nic0"
        pool = "p"
        transport = "ud"
        rx_depth_wr = 8
        next = "stage.answers"
        [stage.gen]
        use = "generator"
        lcore = "a"
        pool = "p"
        out = {{ out = "port.tx" }}
        params = {{ count = 1000000000, {generator} }}
        [stage.witness]
        use = "witness"
        lcore = "a"
        pool = "p"
        out = {{ out = "port.other" }}
        [stage.sink]
        use = "sink"
        lcore = "b"
        [stage.answers]
        use = "sink"
        lcore = "b"
        "#
    );
    let [a, b] = [idle, "event"].map(|idle| format!("idle = \"{idle}\"\ndrain = \"30s\""));
    two_lcores([&a, &b], [4096, 256], &rest)
}

/// Under each policy, an idle lcore and a busy one.
const LCORES: [(&str, &str); 4] = [
    ("poll", "gap_us = 2000"),
    ("event", "gap_us = 60000000"),
    ("adaptive", "gap_us = 60000000"),
    ("adaptive", "polite = false"),
];

fn start(text: &str) -> Running {
    let registry = with_witness();
    Runtime::build(&plan(&registry, text), &registry).unwrap().start().unwrap()
}

fn qpn(running: &Running, port: &str) -> u32 {
    running.snapshot().port(port).unwrap().qpn
}

fn event(report: &Report, name: &str) -> EventReport {
    let event = report.events.iter().find(|event| event.event == name);
    event.unwrap_or_else(|| panic!("{name} is reported: {:?}", report.events)).clone()
}

#[track_caller]
fn failed(running: Running) -> (String, String, Report) {
    assert_eq!(running.wait(Some(PATIENCE)), Ended::Failed);
    let began = Instant::now();
    let error = running.stop().unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(10), "the drain budget of 30 s is not waited for");
    let sentence = error.to_string();
    let EngineError::Failed { lcore, report, .. } = error else { panic!("{sentence}") };
    (lcore, sentence, *report)
}

#[test]
fn two_lcores_take_a_broken_queue_pair_out_of_service_and_end_in_order() {
    if lacks_cpus(2) {
        return;
    }
    let _alone = alone();
    for (idle, generator) in LCORES {
        let running = start(&text(idle, generator));
        let qpn = qpn(&running, "tx");
        assert!(fault::break_queue_pair(qpn));
        // The witness's answer reached the other lcore: it was told of the event, and its packet
        // was sent.
        wait_for(&running, "the stages are told", |report| report.stage("answers").unwrap().packets_in == 1);
        // The flushed completions may come before the event, which says more.
        let live = wait_for(&running, "what is sent is dropped, and why", |report| {
            let is_dropped = generator == "gap_us = 60000000" || report.dropped("port_down") > 0;
            is_dropped && report.port("tx").unwrap().down_reason.as_deref() == Some("IBV_EVENT_QP_FATAL")
        });
        let port = live.port("tx").unwrap();
        assert!(port.down && !live.port("other").unwrap().down, "{idle}: {port:?}");
        let told = event(&live, "IBV_EVENT_QP_FATAL");
        let expected = EventReport {
            device: "soft0".into(),
            event: "IBV_EVENT_QP_FATAL".into(),
            source: format!("QP {qpn:#x}"),
            ports: vec!["tx".into()],
            lcores: vec!["a".into()],
            count: 1,
        };
        assert_eq!(told, expected, "{idle}");
        // Its other end is in this plan as well, and none of it will come back.
        let (lcore, sentence, report) = failed(running);
        assert_eq!(
            (lcore.as_str(), sentence.as_str()),
            ("a", "lcore.a: port.tx is down for good (IBV_EVENT_QP_FATAL)")
        );
        assert_eq!(live.failures, report.failures[..1], "{idle}: {:?}", report.failures);
        let witness = |counter| report.stage("witness").unwrap().counter(counter);
        assert_eq!((witness("down"), witness("others"), witness("answered")), (Some(1), Some(0), Some(1)), "{idle}");
        let (tx, made) = (report.port("tx").unwrap(), report.stage("gen").unwrap().counter("made"));
        let refused = report.dropped("port_down") + report.dropped("tx_full");
        assert_eq!(made, Some(tx.tx_packets + refused), "{idle}: {report:#?}");
        let lcore = report.lcore("a").unwrap();
        assert_eq!((report.packets.held, lcore.rescues), (0, 0), "{idle}: {:?}", report.packets);
        // By the event's bell, or by the flushed completions, if these came first.
        let woken = lcore.woken_by("control") > 0 || lcore.woken_by("completion") > 1;
        assert!(idle != "event" || woken, "its sleep was ended: {lcore:?}");
    }
}

#[test]
fn two_lcores_fail_when_a_completion_queue_overruns() {
    if lacks_cpus(2) {
        return;
    }
    let _alone = alone();
    for (idle, generator) in LCORES {
        let running = start(&text(idle, generator));
        assert!(fault::overrun_completions(qpn(&running, "tx")));
        let (lcore, sentence, report) = failed(running);
        assert_eq!(lcore, "a", "{idle}: {sentence}");
        assert!(sentence.contains("overrun") && sentence.contains("set `cq_depth_wc` higher"), "{sentence}");
        for port in ["tx", "other"] {
            let reason = report.port(port).unwrap().down_reason.as_deref();
            assert_eq!(reason, Some("its lcore's completion queue overran"), "{idle}: {port}");
        }
        // A polling lcore may find it out, and release the queue, before the event is read.
        if let Some(told) = report.events.iter().find(|event| event.event == "IBV_EVENT_CQ_ERR") {
            assert_eq!((&told.ports[..], &told.lcores[..]), (&["tx".into(), "other".into()][..], &["a".into()][..]));
        }
        assert_eq!((report.packets.held, report.failures.len()), (0, 1), "{idle}: {report:#?}");
    }
}

#[test]
fn two_lcores_fail_when_their_device_is_pulled_out() {
    if lacks_cpus(2) {
        return;
    }
    let _alone = alone();
    for (idle, generator) in LCORES {
        let running = start(&text(idle, generator));
        wait_for(&running, "it is at work", |report| report.stage("sink").unwrap().packets_in > 0);
        assert_eq!(fault::remove_device("soft0"), 1);
        let (_, sentence, report) = failed(running);
        for part in ["device.nic0: soft0", "IBV_EVENT_DEVICE_FATAL", "start the run again"] {
            assert!(sentence.contains(part), "{idle}: {sentence}");
        }
        assert_eq!(report.failures.len(), 2, "both lcores are on it: {:?}", report.failures);
        assert!(report.ports.iter().all(|port| port.down), "{idle}: {:#?}", report.ports);
        assert_eq!(report.port("heard").unwrap().down_reason.as_deref(), Some("its device is gone"), "{idle}");
        let told = event(&report, "IBV_EVENT_DEVICE_FATAL");
        assert_eq!((told.source.as_str(), told.count, told.lcores.len()), ("device", 1, 2), "{idle}");
        assert_eq!(report.packets.held, 0, "{idle}: {:?}", report.packets);
    }
    // The device is there again for the next run.
    let text = text("poll", "polite = true").replace("1000000000", "100");
    assert_eq!(run(&with_witness(), &text).unwrap().stage("sink").unwrap().counter("seen"), Some(100));
}

#[test]
fn two_lcores_fail_with_whichever_port_is_lost() {
    if lacks_cpus(2) {
        return;
    }
    let _alone = alone();
    for (port, lcore) in [("tx", "a"), ("rx", "b"), ("other", "a"), ("heard", "b")] {
        let running = start(&text("event", "gap_us = 60000000"));
        assert!(fault::break_queue_pair(qpn(&running, port)));
        let (failed, sentence, report) = failed(running);
        // The flushed completions may come before the event, which is waited for briefly, as it
        // says more.
        assert_eq!(failed, lcore, "{sentence}");
        assert_eq!(sentence, format!("lcore.{lcore}: port.{port} is down for good (IBV_EVENT_QP_FATAL)"));
        assert_eq!(report.packets.held, 0, "{:?}", report.packets);
    }
}

#[test]
fn two_lcores_tell_their_stages_of_a_port_that_its_completions_took_down() {
    if lacks_cpus(2) {
        return;
    }
    let _alone = alone();
    // Longer than the other end's packets.
    let small = "[pool.small]\ndevice = \"nic0\"\npackets = 4096\ndata_bytes = 64\npages = \"4KiB\"\n[port.rx]\n";
    let text = text("event", "size_bytes = 200, gap_us = 1000").replace("[port.rx]\n", small);
    let (head, tail) = text.split_once("[port.rx]").unwrap();
    let running = start(&format!("{head}[port.rx]{}", tail.replacen("pool = \"p\"", "pool = \"small\"", 1)));
    wait_for(&running, "the stages are told", |report| report.stage("answers").unwrap().packets_in == 1);
    // Regression: this ended well: nothing had arrived, and no failure was reported.
    let (_, sentence, report) = failed(running);
    assert!(sentence.contains(" is down for good (IBV_WC_"), "{sentence}");
    assert_eq!(report.failures.len(), 2, "{:?}", report.failures);
    assert_eq!(report.port("tx").unwrap().down_reason.as_deref(), Some("IBV_WC_REM_INV_REQ_ERR"));
    assert_eq!(report.port("rx").unwrap().down_reason.as_deref(), Some("IBV_WC_LOC_LEN_ERR"));
    assert_eq!(report.packets.held, 0, "{:?}", report.packets);
}

#[test]
fn two_lcores_connect_again_by_address_after_their_queue_pair_broke() {
    if lacks_cpus(2) {
        return;
    }
    let _alone = alone();
    let text = text("adaptive", "gap_us = 200")
        .replacen("peer = \"port.rx\"", "connect = \"10.9.9.1:4711\"", 1)
        .replacen("peer = \"port.tx\"", "listen = \"10.9.9.1:4711\"", 1)
        .replace("use = \"sink\"", "use = \"sink\"\nparams = { any_order = true }");
    let running = start(&text);
    wait_for(&running, "it is at work", |report| report.stage("sink").unwrap().packets_in > 0);
    for round in 0..3 {
        let broken = qpn(&running, "tx");
        assert!(fault::break_queue_pair(broken));
        let live = wait_for(&running, "another queue pair is connected", |report| {
            let port = report.port("tx").unwrap();
            port.qpn != broken && !port.down
        });
        let before = live.stage("sink").unwrap().packets_in;
        wait_for(&running, "it is at work again", |report| report.stage("sink").unwrap().packets_in > before + 10);
        let told = running.snapshot().events.iter().filter(|event| event.event == "IBV_EVENT_QP_FATAL").count();
        assert_eq!(told, round + 1, "one source each");
    }
    let report = running.stop().unwrap();
    assert_eq!((report.packets.held, report.failures.len()), (0, 0), "{:?}", report.packets);
}
