//! Packets that reach an lcore after its last turn: no stage has them, the report counts each, and
//! says that the run was not drained.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{OUT, PATIENCE, lacks_cpus, plan, registry, two_lcores, wait_for};
use verbline_engine::{Next, Outputs, Registry, Report, Runtime, Stage, StageSpec};

/// Waits in a call until `over`, and sends a packet then, or before.
struct Waits {
    called: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    /// Whether it sends a packet behind its wait.
    sends: bool,
}

impl Stage for Waits {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        self.called.store(true, Ordering::SeqCst);
        let began = Instant::now();
        while !self.over.load(Ordering::SeqCst) {
            assert!(began.elapsed() < PATIENCE, "the other lcore does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.sends {
            let packet = out.alloc().unwrap();
            assert!(out.send(OUT, packet));
        }
        Next::Done
    }
}

/// Sends a packet once the other stage is in its call, and tells it of its end.
struct Ends {
    called: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    sends: bool,
}

impl Stage for Ends {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if !self.called.load(Ordering::SeqCst) {
            return Next::Busy;
        }
        let packet = self.sends.then(|| out.alloc().unwrap());
        assert!(packet.is_none_or(|packet| out.send(OUT, packet)));
        Next::Done
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// Runs these stages on two lcores without time for a drain, and stops the run. The stage `waits`
/// of the first waits in a call for the end of the stage `ends` of the second. `late`: the packet
/// is sent by the stage that waits, and otherwise to it.
fn run(text: &str, late: bool) -> Report {
    let mut registry: Registry = registry();
    let [called, over] = [(); 2].map(|()| Arc::<AtomicBool>::default());
    let spec = |sends| StageSpec { outputs: if sends { &["out"] } else { &[] }, source: true, ..StageSpec::default() };
    let [waits, ends] = [(); 2].map(|()| Arc::clone(&called));
    let is_over = Arc::clone(&over);
    registry.stage("waits", spec(late), move |_| {
        Ok(Box::new(Waits { called: Arc::clone(&waits), over: Arc::clone(&is_over), sends: late }))
    });
    registry.stage("ends", spec(!late), move |_| {
        Ok(Box::new(Ends { called: Arc::clone(&ends), over: Arc::clone(&over), sends: !late }))
    });
    let plan = plan(&registry, &two_lcores(["drain = \"0s\""; 2], [1024, 64], text));
    let running = Runtime::build(&plan, &registry).unwrap().start().unwrap();
    wait_for(&running, "both are there", |report| {
        called.load(Ordering::SeqCst) && report.stage("ends").unwrap().packets_out == u64::from(!late)
    });
    running.stop().unwrap()
}

/// Regression: the run said that it was drained, and ended with the exit code 0.
#[test]
fn two_lcores_a_packet_that_a_ring_holds_at_the_end_shows() {
    if lacks_cpus(2) {
        return;
    }
    let text = r#"
        [stage.waits]
        use = "waits"
        lcore = "a"
        pool = "p"
        out = { out = "ring.r" }
        [ring.r]
        to = "stage.sink"
        depth = 8
        [stage.ends]
        use = "ends"
        lcore = "b"
        [stage.sink]
        use = "sink"
        lcore = "b"
    "#;
    let report = run(text, true);
    let figures = (report.dropped("left_behind"), report.drained, report.packets.held);
    assert_eq!(figures, (1, false, 0), "{report:#?}");
}

/// Regression: the message was not counted at all, the run said that it was drained, and failed
/// since the port had received nothing.
#[test]
fn two_lcores_a_message_that_a_port_has_received_and_no_stage_takes_shows() {
    if lacks_cpus(2) {
        return;
    }
    let text = r#"
        [stage.ends]
        use = "ends"
        lcore = "b"
        pool = "p"
        out = { out = "port.tx" }
        [port.tx]
        lcore = "b"
        device = "nic0"
        pool = "p"
        transport = "rc"
        peer = "port.rx"
        rx_depth_wr = 8
        tx_depth_wr = 8
        signal_every_wr = 1
        next = "drop"
        [port.rx]
        lcore = "a"
        device = "nic0"
        pool = "p"
        transport = "rc"
        peer = "port.tx"
        rx_depth_wr = 8
        tx_depth_wr = 0
        next = "stage.sink"
        [stage.waits]
        use = "waits"
        lcore = "a"
        [stage.sink]
        use = "sink"
        lcore = "a"
    "#;
    let report = run(text, false);
    let port = report.port("rx").unwrap();
    let figures = (port.rx_packets, report.dropped("stopped"), report.drained, report.packets.held);
    assert_eq!(figures, (1, 1, false, 0), "{report:#?}");
}
