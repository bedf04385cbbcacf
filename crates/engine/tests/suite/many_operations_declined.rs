//! Operations that name no connection of their port, or one that takes no more.

use crate::common::operates::OPERATES;
use crate::common::{OUT, one_lcore_with, region, registry, run};
use verbline_engine::{
    Completed, ConnectionChange, ConnectionEvent, ConnectionId, Counter, DeclineReason, Next, Operation,
    OperationError, Outputs, Region, Remote, Stage, StageSpec, Status,
};
use verbline_mem::Batch;

fn text() -> String {
    one_lcore_with("adaptive", [1024, 64], &(region("blocks", 4096, &["local-write", "remote-write"]) + REST))
}

const REST: &str = r#"
[port.asks]
lcore = "only"
device = "nic0"
pool = "p"
transport = "rc"
connect = "10.9.9.1:7155"
connections = 1
reconnect = false
rx_depth_wr = 4
tx_depth_wr = 4
ops_depth_wr = 4
next = "stage.wrong"
[stage.wrong]
use = "wrong"
lcore = "only"
pool = "p"
regions = ["blocks"]
out = { out = "port.asks" }
[port.server]
lcore = "only"
device = "nic0"
pool = "p"
transport = "rc"
listen = "10.9.9.1:7155"
connections_max = 4
rx_shared_wr = 64
next = "stage.sink"
[stage.sink]
use = "sink"
lcore = "only"
"#;

/// Posts operations on missing things, once a connection is open.
struct Wrong {
    region: Region,
    expected: Vec<(u64, Result<(), OperationError>)>,
    done: Counter,
    finished: bool,
}

impl Stage for Wrong {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        let ConnectionEvent { connection, change: ConnectionChange::Opened, .. } = event else { return };
        if connection.port() != 0 {
            return;
        }
        let range = self.region.part(0, 8).unwrap();
        let mut send = |over: Option<ConnectionId>| {
            let operation = Operation::send(range);
            let operation = over.into_iter().fold(operation, Operation::over);
            out.operate(OUT, operation).map_err(|declined| declined.reason)
        };
        let (port, slot, generation) = (connection.port(), connection.slot() as u16, connection.generation());
        for nobody in [
            None,
            ConnectionId::new(port, slot, generation + 1),
            ConnectionId::new(port, slot + 1, 1),
            ConnectionId::new(port, 999, 1),
            ConnectionId::new(port + 1, slot, generation),
        ] {
            assert_eq!(send(nobody), Err(DeclineReason::NoConnection), "{nobody:?}");
        }
        let five = [(); 5].map(|()| Operation::send(range).over(connection));
        assert_eq!(out.operate_all(OUT, five).unwrap_err().reason, DeclineReason::Full);
        assert_eq!(out.operations_room(OUT), 4);
        // A key that nobody gave: the connection fails, and the operations behind it are flushed.
        let nowhere = Remote { addr: 1 << 40, rkey: 0x1234_5678 };
        let lost = [1, 2].map(|tag| Operation::write(range, nowhere).over(connection).tag(tag));
        out.operate_all(OUT, lost).unwrap();
        assert_eq!(out.operations_room(OUT), 2);
        let statuses = [Status::REM_ACCESS_ERR, Status::WR_FLUSH_ERR];
        self.expected = (1..).zip(statuses.map(|status| Err(OperationError::Status(status)))).collect();
    }

    fn operations(&mut self, done: &mut Completed<'_>, _: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            assert_eq!((done.tag, done.result), self.expected.remove(0));
            self.done.add(1);
            self.finished = self.expected.is_empty();
        }
    }

    fn poll(&mut self, _: &mut Outputs<'_>) -> Next {
        if self.finished { Next::Done } else { Next::Idle }
    }
}

#[test]
fn an_operation_that_names_no_open_connection_is_declined_and_counted() {
    let mut registry = registry();
    let spec = StageSpec {
        outputs: &["out"],
        operations: OPERATES,
        source: true,
        summary: "asks wrongly",
        ..StageSpec::default()
    };
    registry.stage("wrong", spec, |context| {
        let (region, done) = (context.region("blocks")?, context.counter("done"));
        Ok(Box::new(Wrong { region, expected: Vec::new(), done, finished: false }))
    });
    let report = run(&registry, &text()).unwrap();
    let operations = report.port("asks").unwrap().operations.as_ref().unwrap();
    assert_eq!(report.stage("wrong").unwrap().counter("done"), Some(2));
    assert_eq!((operations.no_connection, operations.declined, operations.under_way), (5, 10, 0));
    assert_eq!((report.packets.held, report.packets.taken), (0, report.packets.returned));
    let connections = report.port("asks").unwrap().connections.as_ref().unwrap();
    assert_eq!((connections.opened, connections.failed), (1, 1));
    // The first error stands for the flushed ones behind it.
    let errors = report.port("asks").unwrap().errors.iter().map(|error| (error.status.as_str(), error.count));
    assert_eq!(errors.collect::<Vec<_>>(), [("REM_ACCESS_ERR", 1)]);
}
