//! The tested stage, and plans with it.

use std::sync::{Arc, Mutex};

use serde::Deserialize;
use verbline_engine::{
    Completed, ConnectionEvent, DropReason, DueTimer, Next, Operation, OutId, OutputOperations, OutputSends, Outputs,
    PortEvent, Registry, Remote, SendWith, Stage, StageSpec, Tick, send_result,
};
use verbline_mem::Batch;

use crate::common::OUT;

const OTHER: OutId = OutId(1);

/// The news of a stage, in its own words.
pub(crate) type Told = Arc<Mutex<Vec<String>>>;

#[derive(Deserialize)]
struct Params {
    add: u8,
}

/// Obeys the word in a packet, and records all its news. Other packets go on with their first byte
/// raised: even ones by one output, odd ones by the other.
struct Probe {
    add: u8,
    told: Told,
}

impl Probe {
    fn say(&self, what: impl Into<String>) {
        self.told.lock().unwrap().push(what.into());
    }
}

impl Stage for Probe {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for mut packet in input.drain_front(input.len()) {
            if let Some(result) = send_result(&packet) {
                self.say(format!("sent: {result:?}"));
                continue;
            }
            match packet.data() {
                [] => out.drop(packet, DropReason::Stage(0)),
                b"close" => self.say(format!("closes: {:?}", packet.connection().map(|one| out.close(one)))),
                b"panic" => panic!("told to"),
                b"timers" => {
                    (0..10).for_each(|tag| _ = out.arm_timer(out.now_ns() + 1_000 + tag % 2, tag));
                }
                b"read" => {
                    let read = Operation::read(packet, Remote { addr: 64, rkey: 9 }).tag(5);
                    let declined = out.operate(OUT, read).err().map(|declined| declined.reason);
                    self.say(format!("asks: {declined:?}"));
                }
                b"ask" => {
                    assert!(out.send_with(OUT, packet, SendWith::new().imm(77).returned()));
                }
                _ => {
                    packet.data_mut()[0] += self.add;
                    let output = if packet.data()[0] % 2 == 0 { OUT } else { OTHER };
                    if !out.send(output, packet) {
                        self.say("no room");
                    }
                }
            }
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        self.say(format!("poll at {}", out.now_ns() - 1_000_000_000));
        Next::At(Tick::MAX)
    }

    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        let tags: Vec<_> = due.iter().map(|due| due.tag).collect();
        self.say(format!("{tags:?} at {}", out.now_ns() - 1_000_000_000));
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            self.say(format!("done {}: {:?}", done.tag, done.result));
            done.into_packet().into_iter().for_each(|packet| _ = out.send(OTHER, packet));
        }
    }

    fn port_event(&mut self, event: PortEvent, _: &mut Outputs<'_>) {
        self.say(format!("port {}: {:?}", event.port, event.change));
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        let (id, room) = (event.connection, out.room_to(event.connection));
        let tag = out.peer(id).map(|peer| (peer.tag, peer.private_data.len()));
        self.say(format!("{id}: {:?}, room {room}, peer {tag:?}", event.change));
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.say("stop");
    }
}

/// The probe, and kinds around it. `operates`: its output's operations.
pub(crate) fn probes(operations: &'static [OutputOperations], sends: &'static [OutputSends]) -> (Registry, Told) {
    let told = Told::default();
    let mut registry = Registry::new("test");
    let outputs = &["out", "other"];
    let spec = StageSpec { outputs, operations, sends, drops: &["empty"], timers: 10, ..StageSpec::default() };
    let own = Arc::clone(&told);
    registry.stage("probe", spec, move |stage| {
        let Params { add } = stage.params()?;
        stage.counter("made").add(1);
        Ok(Box::new(Probe { add, told: Arc::clone(&own) }))
    });
    registry.opening_stage("neighbour", StageSpec::default(), |_| Ok(()), |(), _| panic!("it is opened"));
    (registry, told)
}

pub(crate) fn take(told: &Told) -> Vec<String> {
    std::mem::take(&mut told.lock().unwrap())
}

/// A plan with the probe, whose outputs lead to these places; `rest` is the rest of the plan.
pub(crate) fn text([out, other]: [&str; 2], rest: &str) -> String {
    format!(
        r#"
        device.nic = {{ provider = "soft" }}
        pool.p = {{ device = "nic", packets = 4_096, data_bytes = 64, pages = "4KiB" }}
        lcore.only = {{ cpu = "allowed:0", burst = 4 }}
        stage.first = {{ use = "neighbour", lcore = "only" }}
        [stage.probe]
        use = "probe"
        lcore = "only"
        timers_max = 10
        params.add = 1
        out = {{ out = "{out}", other = "{other}" }}
        {rest}
        "#
    )
}

/// The probe between a port of datagrams and two stages.
pub(crate) fn fed() -> String {
    text(
        ["port.feed", "spread.two"],
        r#"
        [injector]
        hand = { to = "stage.probe", pool = "p", depth = 4 }
        [stage.second]
        use = "neighbour"
        lcore = "only"
        [spread]
        two = { by = "key", to = ["stage.first", "stage.second"] }
        [port.feed]
        lcore = "only"
        device = "nic"
        pool = "p"
        transport = "ud"
        join = ["239.1.1.1"]
        send_to = "239.1.1.1"
        rx_depth_wr = 16
        tx_depth_wr = 16
        next = "stage.probe"
        "#,
    )
}

/// The probe as the server of a port with two connections.
pub(crate) fn served() -> String {
    text(
        ["port.door", "stage.first"],
        r#"
    [port.door]
    lcore = "only"
    device = "nic"
    pool = "p"
    transport = "rc"
    listen = "10.9.9.1:7123"
    connections_max = 2
    rx_shared_wr = 16
    tx_depth_wr = 8
    tx_shared_wr = 16
    next = "stage.probe"
    [port.other]
    lcore = "only"
    device = "nic"
    pool = "p"
    transport = "ud"
    join = ["239.1.1.2"]
    rx_depth_wr = 16
    next = "drop"
    "#,
    )
}

/// The probe at a port of one connection, with these keys.
pub(crate) fn pair(keys: &str) -> String {
    text(
        ["port.a", "stage.first"],
        &format!(
            r#"
        [port.a]
        lcore = "only"
        device = "nic"
        pool = "p"
        transport = "rc"
        peer = "port.b"
        rx_depth_wr = 8
        tx_depth_wr = 8
        next = "stage.probe"
        {keys}
        [port.b]
        lcore = "only"
        device = "nic"
        pool = "p"
        transport = "rc"
        peer = "port.a"
        rx_depth_wr = 8
        next = "drop"
        "#
        ),
    )
}
