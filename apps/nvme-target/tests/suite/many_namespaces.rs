//! As many namespaces as there may be, added while a host is connected: each is there, and the next
//! one is refused in words.

use std::time::{Duration, Instant};

use crate::common::{Host, end, plan, start_app};
use nvme_target::NvmeTarget;
use verbline::cli::App;
use verbline::engine::Registry;
use verbline::plan::{Loader, Machine, Plan};
use verbline_nvme::identify::cns;
use verbline_nvme::log::{CHANGED_TOO_MANY, LogRequest, event};
use verbline_nvme::namespace::read_list;
use verbline_nvme::{Command, Sgl, Status, feature, opcode};

/// As the target's documentation has it.
const MOST: u32 = 2048;

/// The plan of the run, with namespaces of all numbers up to this one.
fn plan_up_to(port: u16, last: u32) -> Plan {
    let null = |nsid| format!("[nvme.namespace.{nsid}]\nnull_bytes = {}\n", 4096 * (nsid + 1));
    let text = plan(port, &(3..=last).map(null).collect::<String>());
    let mut registry = Registry::new("nvme-target");
    NvmeTarget::default().register(&mut registry);
    let loaded = Loader::new(registry.catalog(), Machine::detect()).load_str("target.toml", &text);
    loaded.unwrap_or_else(|faults| panic!("{faults}"))
}

/// The numbers beyond `after` that Identify lists, a page of them.
fn listed(host: &mut Host, admin: usize, after: u32) -> Vec<u32> {
    let identify = Command::new(opcode::admin::IDENTIFY, 0, host.keyed(0, 4096));
    let asked = Command { nsid: after, ..identify.with([cns::ACTIVE_NAMESPACES.into(), 0, 0, 0, 0, 0]) };
    assert!(host.ask(admin, &asked).status.is_success());
    read_list(&host.bytes(0, 4096)).collect()
}

#[test]
fn as_many_namespaces_as_there_may_be_come_at_run_time() {
    let app = NvmeTarget::default();
    let running = start_app(&plan(7935, "commands_max = 64"), &app);
    let mut host = Host::new(7935);
    let (admin, cntlid) = host.controller();
    let io = host.io_queue(cntlid, 1);
    let wanted = Command::new(opcode::admin::SET_FEATURES, 0, Sgl::NONE);
    let wanted = wanted.with([feature::ASYNC_EVENTS.into(), event::NAMESPACE_CHANGED_BIT, 0, 0, 0, 0]);
    assert!(host.ask(admin, &wanted).status.is_success());
    host.send(
        admin,
        &Command { cid: 0x7001, ..Command::new(opcode::admin::ASYNC_EVENT_REQUEST, 0, Sgl::NONE) }.to_bytes(),
    );

    let said = app.reload(&plan_up_to(7935, MOST)).expect("taken");
    assert!(said.starts_with("namespaces added: [3, 4,") && said.contains("2047, 2048]; removed: []"), "{said}");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !host.ask(io, &Command { nsid: MOST, ..host.read(0, 1) }).status.is_success() {
        assert!(Instant::now() < deadline, "the last one comes");
    }
    for nsid in 1..=MOST {
        let last = if nsid <= 2 { 255 } else { u64::from(nsid) };
        let read = Command { nsid, ..host.read(last, 1) };
        assert!(host.ask(io, &read).status.is_success(), "namespace {nsid}");
        let beyond = Command { nsid, ..host.read(last + 1, 1) };
        assert!(host.ask(io, &beyond).status.is(Status::LBA_OUT_OF_RANGE), "namespace {nsid}: it is no other");
    }
    let told = host.response(admin);
    assert_eq!((told.cid, told.result), (0x7001, event::NAMESPACE_CHANGED.into()));
    assert_eq!(listed(&mut host, admin, 0), (1..=1024).collect::<Vec<_>>());
    assert_eq!(listed(&mut host, admin, 1024), (1025..=MOST).collect::<Vec<_>>());
    // More of them are new than the log names: it says so, and nothing else for as long as it is
    // kept. Regression: a number of later stood in front.
    let log = |host: &Host, retain_event| {
        let asked = LogRequest { id: 0x04, retain_event, offset: 0, len: 4096 };
        Command::new(opcode::admin::GET_LOG_PAGE, 0, host.keyed(0, 4096)).with(asked.dwords())
    };
    let (kept, read) = (log(&host, true), log(&host, false));
    assert!(host.ask(admin, &kept).status.is_success());
    assert_eq!(read_list(&host.bytes(0, 4096)).collect::<Vec<_>>(), [CHANGED_TOO_MANY]);
    app.reload(&plan_up_to(7935, MOST - 1)).expect("taken");
    while !host.ask(io, &Command { nsid: MOST, ..host.read(0, 1) }).status.is_final() {
        assert!(Instant::now() < deadline, "the last one goes");
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(host.ask(admin, &read).status.is_success());
    assert_eq!(read_list(&host.bytes(0, 4096)).collect::<Vec<_>>(), [CHANGED_TOO_MANY]);
    app.reload(&plan_up_to(7935, MOST)).expect("taken");

    // One more.
    let why = app.reload(&plan_up_to(7935, MOST + 1)).expect_err("refused");
    assert!(why.contains("`2049` numbers no namespace: write 1 to 2048"), "{why}");
    let read = Command { nsid: MOST + 1, ..host.read(0, 1) };
    assert!(host.ask(io, &read).status.is(Status::INVALID_NAMESPACE));

    // All go, and all come again under the same numbers.
    app.reload(&plan_up_to(7935, 2)).expect("taken");
    app.reload(&plan_up_to(7935, MOST)).expect("taken");
    let deadline = Instant::now() + Duration::from_secs(20);
    for nsid in 3..=MOST {
        while !host.ask(io, &Command { nsid, ..host.read(0, 1) }).status.is_success() {
            assert!(Instant::now() < deadline, "namespace {nsid} comes again");
        }
    }
    host.vanish();
    end(running);
}
