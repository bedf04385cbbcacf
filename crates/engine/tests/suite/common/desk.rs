//! A server with one lcore, whose port `door` takes many peers, and whose stage answers them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use verbline_engine::{
    ConnectionChange, ConnectionEvent, ConnectionId, ConnectionsReport, Counter, Outputs, Region, Registry, Report,
    Running, Runtime, Stage, StageContext, StageSpec,
};
use verbline_mem::Batch;

use super::{OUT, PATIENCE, device, plan, provider, registry};

/// Keeps a connection's data at its slot, and checks it with every packet. It sends each message
/// back, except for some that ask for something else.
struct Desk {
    port: u16,
    slots: Vec<Option<(ConnectionId, u64)>>,
    /// The connection that ended last: a message `late` is answered to it.
    gone: Option<ConnectionId>,
    board: Option<Region>,
    gate: Gate,
    opened: Counter,
    ended: Counter,
    served: Counter,
}

/// While the gate is shut, a desk that reads `nap` waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<AtomicBool>);

impl Gate {
    /// Relaxed: nothing else is ordered by it.
    pub(crate) fn open(&self, is_open: bool) {
        self.0.store(is_open, Ordering::Relaxed);
    }

    /// The wait is bounded: the test may have failed.
    fn wait(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.0.load(Ordering::Relaxed) && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

impl Desk {
    fn new(context: &StageContext<'_>, gate: Gate) -> Desk {
        Desk {
            port: context.port("door").expect("every plan here has one"),
            slots: vec![None; 1024],
            gone: None,
            board: context.region("board").ok(),
            gate,
            opened: context.counter("opened"),
            ended: context.counter("ended"),
            served: context.counter("served"),
        }
    }
}

impl Stage for Desk {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for mut packet in input.drain_front(input.len()) {
            let connection = packet.connection().expect("it came by a connection");
            let known = self.slots[connection.slot()].as_mut().expect("opened before its first packet");
            assert_eq!(known.0, connection, "no packet of one that is over");
            known.1 += 1;
            self.served.add(1);
            match packet.data() {
                b"late" => packet.set_connection(self.gone),
                b"nobody" => packet.set_connection(None),
                b"bye" => assert!(out.close(connection)),
                b"nap" => self.gate.wait(),
                b"panic" => panic!("as told"),
                b"fail" => out.fail("as told"),
                b"key" => {
                    let board = self.board.as_ref().expect("the plan gives it a region");
                    assert!(packet.fill(&board.remote(0).unwrap().to_bytes()));
                }
                b"read" => {
                    let (mut bytes, board) = ([0; 64], self.board.as_ref().expect("the plan gives it a region"));
                    board.read_into(board.len_bytes() - 64, &mut bytes).unwrap();
                    assert!(packet.fill(&bytes));
                }
                b"quiet" => continue,
                _ => {}
            }
            out.send(OUT, packet);
        }
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        if event.port != self.port {
            return;
        }
        let known = &mut self.slots[event.connection.slot()];
        if event.change == ConnectionChange::Opened {
            assert_eq!(known.replace((event.connection, 0)), None, "the one before was over");
            self.opened.add(1);
        } else {
            assert_eq!(known.take().map(|known| known.0), Some(event.connection));
            assert_eq!(out.room_to(event.connection), 0);
            self.gone = Some(event.connection);
            self.ended.add(1);
        }
    }
}

pub(crate) fn desk() -> Registry {
    gated(&Gate::default())
}

pub(crate) fn gated(gate: &Gate) -> Registry {
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], summary: "answers, and knows its peers", ..StageSpec::default() };
    let gate = gate.clone();
    registry.stage("desk", spec, move |context| Ok(Box::new(Desk::new(context, gate.clone()))));
    registry
}

/// A server with these keys for its port.
pub(crate) fn server(port: u16, keys: &str) -> String {
    let (provider, device) = (provider(), device(0));
    format!(
        r#"
        [device.nic0]
        provider = "{provider}"
        name = "{device}"
        [pool.p]
        device = "nic0"
        packets = 8192
        data_bytes = 128
        pages = "4KiB"
        [lcore.only]
        cpu = "allowed:0"
        [port.door]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "rc"
        listen = "10.9.9.1:{port}"
        {keys}
        next = "stage.desk"
        [stage.desk]
        use = "desk"
        lcore = "only"
        out = {{ out = "port.door" }}
        "#
    )
}

/// The other half of such a plan, on an lcore and a device of its own: a connecting port with these
/// keys.
pub(crate) fn caller(port: u16, keys: &str) -> String {
    format!(
        r#"
        [device.nic1]
        provider = "soft"
        name = "soft1"
        [pool.c]
        device = "nic1"
        packets = 2048
        data_bytes = 128
        pages = "4KiB"
        [lcore.other]
        cpu = "allowed:1"
        [port.caller]
        lcore = "other"
        device = "nic1"
        pool = "c"
        transport = "rc"
        connect = "10.9.9.1:{port}"
        rx_shared_wr = 64
        tx_depth_wr = 16
        {keys}
        "#
    )
}

pub(crate) fn start(text: &str) -> Running {
    let registry = desk();
    Runtime::build(&plan(&registry, text), &registry).unwrap().start().unwrap()
}

#[track_caller]
pub(crate) fn counts(report: &Report) -> &ConnectionsReport {
    report.port("door").unwrap().connections.as_ref().unwrap()
}
