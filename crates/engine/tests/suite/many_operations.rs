//! Operations over the connections of a port with many: a storage target READs from and WRITEs to
//! its client, over the command's connection.
//!
//! Each test has a port number of its own: the software RNICs share one set of listeners.

use std::collections::HashMap;

use crate::common::operates::OPERATES;
use crate::common::{OUT, assert_clean, one_lcore_with, region, registry, run};
use serde::Deserialize;
use verbline_engine::{
    Completed, ConnectionChange, ConnectionEvent, ConnectionId, Counter, DeclineReason, KeptWindow, Next, Operation,
    Outputs, Region, Registry, Remote, Report, Rights, Stage, StageSpec, invalidated_key,
};
use verbline_mem::{Batch, Packet};

/// The bytes of a command's block.
const BLOCK: usize = 64;

/// Reads the block of each command from its sender, reverses it, writes it back and invalidates the
/// key, in one list.
struct Target {
    next_tag: u64,
    /// Operations under way: the reads, and the writes with their sends.
    reads: HashMap<u64, (ConnectionId, Remote)>,
    rest: HashMap<u64, ConnectionId>,
    served: Counter,
    failed: Counter,
    declined: Counter,
}

impl Target {
    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    fn decline(&self, reason: DeclineReason) {
        assert!(matches!(reason, DeclineReason::NoConnection | DeclineReason::Full), "{reason}");
        self.declined.add(1);
    }

    fn write_back(&mut self, mut block: Packet, over: ConnectionId, key: Remote, out: &mut Outputs<'_>) {
        block.data_mut().iter_mut().for_each(|byte| *byte = !*byte);
        let Some(mut answer) = out.alloc() else { return };
        assert!(answer.fill(b"answer"));
        let tags = [self.tag(), self.tag()];
        let write = Operation::write(block, key).over(over).tag(tags[0]);
        let send = Operation::send_with_invalidate(answer, key.rkey).over(over).tag(tags[1]);
        match out.operate_all(OUT, [write, send]) {
            Ok(()) => tags.into_iter().for_each(|tag| assert!(self.rest.insert(tag, over).is_none())),
            Err(declined) => self.decline(declined.reason),
        }
    }
}

impl Stage for Target {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for mut packet in input.drain_front(input.len()) {
            let over = packet.connection().expect("it came by one");
            let key = Remote::from_bytes(packet.data().try_into().expect("a key"));
            assert!(packet.set_len(BLOCK));
            let tag = self.tag();
            match out.operate(OUT, Operation::read(packet, key).over(over).tag(tag)) {
                Ok(()) => assert!(self.reads.insert(tag, (over, key)).is_none()),
                Err(declined) => self.decline(declined.reason),
            }
        }
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            let read = self.reads.remove(&done.tag);
            let over = read.map(|(over, _)| over).or_else(|| self.rest.remove(&done.tag));
            assert_eq!(done.connection, Some(over.expect("each once")), "credited to its own");
            match (done.result, read) {
                (Ok(()), Some((over, key))) => {
                    self.write_back(done.into_packet().expect("it comes back"), over, key, out)
                }
                (Ok(()), None) => self.served.add(1),
                // Its peer has gone.
                (Err(_), _) => self.failed.add(1),
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostParams {
    /// The number of answers that it waits for.
    count: u64,
    /// Closes a connection behind one command in this many; 0: none.
    #[serde(default)]
    close_every: u64,
}

/// An open connection.
#[derive(Clone, Copy)]
struct Open {
    connection: ConnectionId,
    round: u64,
    key: Option<Remote>,
}

/// Lends the target a key to a block, again and again, over every connection.
struct Host {
    params: HostParams,
    region: Region,
    slots: Vec<Option<Open>>,
    commands: u64,
    answers: Counter,
    back: Counter,
    ended: Counter,
}

fn pattern(slot: usize, round: u64) -> [u8; BLOCK] {
    [(slot as u8).wrapping_mul(31).wrapping_add(round as u8); BLOCK]
}

impl Host {
    fn lend(&mut self, slot: usize, out: &mut Outputs<'_>) {
        let Some(open) = &mut self.slots[slot] else { return };
        open.round += 1;
        self.region.write_from(slot * BLOCK, &pattern(slot, open.round)).unwrap();
        let part = self.region.part(slot * BLOCK, BLOCK).unwrap();
        let rights = Rights::REMOTE_READ | Rights::REMOTE_WRITE;
        let bind = Operation::bind(KeptWindow(0), part, rights).over(open.connection).tag(slot as u64);
        match out.operate(OUT, bind) {
            Ok(()) => {}
            // A stage may close it earlier in the turn; the event is still to come.
            Err(declined) => assert_eq!(declined.reason, DeclineReason::NoConnection),
        }
    }
}

impl Stage for Host {
    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        let (slot, connection) = (event.connection.slot(), event.connection);
        if self.slots.get(slot).is_none() || connection.port() != 0 {
            return;
        }
        match event.change {
            ConnectionChange::Opened => {
                self.slots[slot] = Some(Open { connection, round: 0, key: None });
                self.lend(slot, out);
            }
            _ => {
                assert_eq!(self.slots[slot].take().map(|open| open.connection), Some(connection));
                let part = self.region.part(0, 8).unwrap();
                let late = out.operate(OUT, Operation::send(part).over(connection)).unwrap_err();
                assert_eq!(late.reason, DeclineReason::NoConnection);
                self.ended.add(1);
            }
        }
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            self.back.add(1);
            let slot = done.tag as usize;
            let Some(open) = self.slots[slot].as_mut().filter(|open| Some(open.connection) == done.connection) else {
                continue;
            };
            let Ok(()) = done.result else { continue };
            open.key = done.key;
            let mut command = out.alloc().expect("a packet");
            assert!(command.fill(&done.key.expect("of a bind").to_bytes()));
            command.set_connection(Some(open.connection));
            out.send(OUT, command);
            self.commands += 1;
            if self.params.close_every > 0 && self.commands.is_multiple_of(self.params.close_every) {
                out.close(open.connection);
            }
        }
    }

    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            let slot = packet.connection().expect("it came by one").slot();
            let open = self.slots[slot].as_ref().expect("none of one that is over");
            assert_eq!(invalidated_key(&packet), open.key.map(|key| key.rkey));
            let mut block = [0; BLOCK];
            self.region.read_into(slot * BLOCK, &mut block).unwrap();
            assert_eq!(block, pattern(slot, open.round).map(|byte| !byte), "the WRITE came before the SEND");
            self.answers.add(1);
            // Operations of a finished source come back too, and would go on for ever.
            if self.answers.value() < self.params.count {
                self.lend(slot, out);
            }
        }
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        if self.answers.value() >= self.params.count { Next::Done } else { Next::Idle }
    }
}

fn stages() -> Registry {
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], operations: OPERATES, summary: "serves blocks", ..StageSpec::default() };
    registry.stage("target", spec, |context| {
        Ok(Box::new(Target {
            next_tag: 0,
            reads: HashMap::new(),
            rest: HashMap::new(),
            served: context.counter("served"),
            failed: context.counter("failed"),
            declined: context.counter("declined"),
        }))
    });
    let spec = StageSpec {
        outputs: &["out"],
        operations: OPERATES,
        source: true,
        summary: "asks for them",
        ..StageSpec::default()
    };
    registry.stage("host", spec, |context| {
        Ok(Box::new(Host {
            params: context.params()?,
            region: context.region("blocks")?,
            slots: vec![None; 8],
            commands: 0,
            answers: context.counter("answers"),
            back: context.counter("back"),
            ended: context.counter("ended"),
        }))
    });
    registry
}

/// A host with eight connections, and a target; `keys` are for the target's port.
fn text(port: u16, keys: &str, params: &str) -> String {
    let rest = format!(
        r#"
        [port.a_host]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "rc"
        connect = "10.9.9.1:{port}"
        connections = 8
        rx_depth_wr = 4
        tx_depth_wr = 4
        ops_depth_wr = 4
        windows = 1
        immediates = true
        next = "stage.host"
        [stage.host]
        use = "host"
        lcore = "only"
        pool = "p"
        regions = ["blocks"]
        out = {{ out = "port.a_host" }}
        params = {{ {params} }}
        [port.target]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "rc"
        listen = "10.9.9.1:{port}"
        connections_max = 32
        tx_depth_wr = 1
        ops_depth_wr = 4
        {keys}
        next = "stage.target"
        [stage.target]
        use = "target"
        lcore = "only"
        pool = "p"
        out = {{ out = "port.target" }}
        "#
    );
    one_lcore_with(
        "event",
        [4096, 256],
        &(region("blocks", 4096, &["local-write", "remote-read", "remote-write", "bind"]) + &rest),
    )
}

fn counter(report: &Report, stage: &str, name: &str) -> u64 {
    report.stage(stage).unwrap().counter(name).unwrap()
}

fn kind(report: &Report, port: &str, kind: &str) -> [u64; 3] {
    let operations = report.port(port).unwrap().operations.as_ref().unwrap();
    let kind = operations.kind(kind).unwrap();
    [kind.posted, kind.completed, kind.failed]
}

#[test]
fn a_target_reads_and_writes_over_the_connection_that_asked() {
    for (port, keys) in [(7151, "rx_shared_wr = 64\nops_shared_wr = 16"), (7152, "rx_depth_wr = 4")] {
        let report = run(&stages(), &text(port, keys, "count = 2000")).unwrap();
        assert_clean(&report);
        assert!(counter(&report, "host", "answers") >= 2000);
        assert_eq!((counter(&report, "target", "failed"), counter(&report, "target", "declined")), (0, 0));
        let reads = kind(&report, "target", "read");
        assert_eq!(reads, [reads[0], reads[0], 0]);
        assert_eq!((kind(&report, "target", "write"), kind(&report, "target", "send")), (reads, reads));
        assert_eq!(counter(&report, "target", "served"), 2 * reads[0]);
        for name in ["a_host", "target"] {
            let operations = report.port(name).unwrap().operations.as_ref().unwrap();
            assert_eq!((operations.under_way, operations.declined, operations.no_connection), (0, 0, 0), "{name}");
        }
        assert_eq!(report.port("target").unwrap().connections.as_ref().unwrap().open_max, 8);
        assert_eq!(report.drops, []);
    }
}

/// Connections end with commands, READs and WRITEs under way; each comes back once, for its own
/// connection.
#[test]
fn what_is_under_way_over_a_connection_that_ends_comes_back_and_goes_to_no_later_one() {
    let text = text(7153, "rx_shared_wr = 64", "count = 3000, close_every = 7");
    let report = run(&stages(), &text).unwrap();
    assert_eq!((report.packets.held, report.packets.taken), (0, report.packets.returned));
    let host = report.port("a_host").unwrap().connections.as_ref().unwrap();
    assert!(host.opened > 300 && counter(&report, "host", "ended") > 300, "{host:?}");
    let mut failed = 0;
    for name in ["a_host", "target"] {
        let port = report.port(name).unwrap();
        let operations = port.operations.as_ref().unwrap();
        assert_eq!((port.stale, operations.under_way), (0, 0), "{name}");
        for kind in &operations.kinds {
            failed += kind.failed;
            assert!(kind.completed + kind.failed >= kind.posted, "{name}: {kind:?}");
        }
        assert!(name == "target" || operations.no_connection >= counter(&report, "host", "ended"));
    }
    assert!(failed > 0, "some were under way");
    let back: u64 =
        ["read", "write", "send"].map(|name| kind(&report, "target", name)[1..].iter().sum::<u64>()).iter().sum();
    let reads = kind(&report, "target", "read");
    let target = counter(&report, "target", "served") + counter(&report, "target", "failed") + reads[1];
    assert_eq!(target, back, "each came back once");
}
