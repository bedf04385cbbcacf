//! Namespaces that come and go while a host is connected.

use std::time::{Duration, Instant};

use crate::common::{Host, end, plan, start_app};
use nvme_target::NvmeTarget;
use verbline::cli::App;
use verbline::engine::Registry;
use verbline::plan::{Loader, Machine, Plan};
use verbline_nvme::identify::cns;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::log::{LogRequest, event};
use verbline_nvme::{Command, Response, Sgl, Status, feature, opcode};

/// The plan of the run, with more namespaces.
fn plan_with(port: u16, more: &str) -> Plan {
    load(&plan(port, more))
}

fn load(text: &str) -> Plan {
    let mut registry = Registry::new("nvme-target");
    NvmeTarget::default().register(&mut registry);
    let loaded = Loader::new(registry.catalog(), Machine::detect()).load_str("target.toml", text);
    loaded.unwrap_or_else(|faults| panic!("{faults}"))
}

fn null(nsid: u32, bytes: u32) -> String {
    format!("[nvme.namespace.{nsid}]\nnull_bytes = {bytes}\n")
}

fn read(host: &Host, nsid: u32) -> Command {
    Command { nsid, ..host.read(0, 1) }
}

/// Asks until the answer is right: the stages look every 100 ms.
#[track_caller]
fn ask_until(host: &mut Host, queue: usize, command: Command, is_right: impl Fn(Response) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = host.ask(queue, &command);
        if is_right(answer) {
            return;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The numbers of the namespaces that Identify lists.
fn listed(host: &mut Host, admin: usize) -> Vec<u32> {
    let identify = Command::new(opcode::admin::IDENTIFY, 0, host.keyed(0, 4096));
    let asked = identify.with([cns::ACTIVE_NAMESPACES.into(), 0, 0, 0, 0, 0]);
    assert!(host.ask(admin, &asked).status.is_success());
    numbers(host)
}

/// The numbers of namespaces at the front of the host's memory, as far as there are some.
fn numbers(host: &Host) -> Vec<u32> {
    let page = host.bytes(0, 4096);
    let words = page.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes")));
    words.take_while(|nsid| *nsid != 0).collect()
}

/// The event comes, and the log says which namespaces changed.
#[track_caller]
fn hear_of(host: &mut Host, admin: usize, nsid: u32) {
    let told = host.response(admin);
    assert_eq!((told.status.is_success(), told.result), (true, event::NAMESPACE_CHANGED.into()), "{told:?}");
    let log = |host: &Host, offset| {
        let asked = LogRequest { id: 0x04, retain_event: false, offset, len: 4096 };
        Command::new(opcode::admin::GET_LOG_PAGE, 0, host.keyed(0, 4096)).with(asked.dwords())
    };
    // Regression: what was refused, since it begins beyond the end, had emptied the log.
    let (beyond, whole) = (log(host, 8192), log(host, 0));
    assert!(host.ask(admin, &beyond).status.is(Status::INVALID_FIELD));
    assert!(host.ask(admin, &whole).status.is_success());
    assert_eq!(numbers(host), [nsid]);
    wait_for_event(host, admin);
}

fn wait_for_event(host: &mut Host, admin: usize) {
    let cid = host.cid();
    let request = Command { cid, ..Command::new(opcode::admin::ASYNC_EVENT_REQUEST, 0, Sgl::NONE) };
    host.send(admin, &request.to_bytes());
}

#[test]
fn namespaces_come_and_go_and_hosts_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let file = format!("[nvme.namespace.7]\nfile = {path:?}\ncreate_bytes = 65_536\npage_cache = true\n");
    let app = NvmeTarget::default();
    let running = start_app(&plan(7880, ""), &app);
    let mut host = Host::new(7880);
    let (admin, cntlid) = host.controller();
    let io = host.io_queue(cntlid, 1);
    let wanted = Command::new(opcode::admin::SET_FEATURES, 0, Sgl::NONE);
    let wanted = wanted.with([feature::ASYNC_EVENTS.into(), event::NAMESPACE_CHANGED_BIT, 0, 0, 0, 0]);
    assert!(host.ask(admin, &wanted).status.is_success());
    wait_for_event(&mut host, admin);
    assert_eq!(listed(&mut host, admin), [1, 2]);

    // One that keeps nothing comes, and then one in a file.
    let done = app.reload(&plan_with(7880, &null(5, 1 << 20))).expect("taken");
    assert_eq!(done, "namespaces added: [5]; removed: []");
    // Nothing else differs any more.
    assert_eq!(app.reload(&plan_with(7880, &null(5, 1 << 20))).as_deref(), Ok(""));
    let command = read(&host, 5);
    ask_until(&mut host, io, command, |answer| answer.status.is_success());
    hear_of(&mut host, admin, 5);
    assert_eq!(listed(&mut host, admin), [1, 2, 5]);
    app.reload(&plan_with(7880, &(null(5, 1 << 20) + &file))).expect("taken");
    let command = read(&host, 7);
    ask_until(&mut host, io, command, |answer| answer.status.is_success());
    hear_of(&mut host, admin, 7);
    let data = vec![0xA7; 4096];
    let in_capsule = Sgl::InCapsule { offset: 0, len: 4096 };
    let range = ReadWrite { slba: 3, blocks: 1 }.dwords();
    let write = Command { nsid: 7, ..Command::new(opcode::io::WRITE, 0, in_capsule).with(range) };
    assert!(host.ask_with(io, &write, &data).status.is_success());

    // It goes, and what was written is in the file; the others stay.
    app.reload(&plan_with(7880, &null(5, 1 << 20))).expect("taken");
    let command = read(&host, 7);
    ask_until(&mut host, io, command, |answer| answer.status.is(Status::INVALID_NAMESPACE));
    hear_of(&mut host, admin, 7);
    assert_eq!(listed(&mut host, admin), [1, 2, 5]);
    assert_eq!(std::fs::read(&path).expect("the file")[3 * 4096..4 * 4096], data);
    host.assert_served(io);

    // It comes again, with its blocks, in the place that is free.
    app.reload(&plan_with(7880, &(null(5, 1 << 20) + &file))).expect("taken");
    let again = Command { nsid: 7, ..host.read(3, 1) };
    ask_until(&mut host, io, again, |answer| answer.status.is_success());
    assert_eq!(host.bytes(0, 4096), data);
    hear_of(&mut host, admin, 7);

    // A region under another namespace than before.
    let text = plan(7880, &null(5, 1 << 20)).replace("[nvme.namespace.1]", "[nvme.namespace.9]");
    app.reload(&load(&text)).expect("taken");
    let ninth = Command { nsid: 9, ..host.of_blocks(opcode::io::WRITE, 2, 1, in_capsule) };
    let deadline = Instant::now() + Duration::from_secs(20);
    while !host.ask_with(io, &ninth, &data).status.is_success() {
        assert!(Instant::now() < deadline, "it comes");
    }
    let again = Command { nsid: 9, ..host.read(2, 1) };
    assert!(host.ask(io, &again).status.is_success());
    assert_eq!(host.bytes(0, 4096), data);
    let first = read(&host, 1);
    assert!(!host.ask(io, &first).status.is_success(), "the first is gone");
    host.vanish();
    end(running);
}

/// What can't be taken changes nothing.
#[test]
fn a_plan_that_can_not_be_taken_is_refused_as_a_whole() {
    let app = NvmeTarget::default();
    let running = start_app(&plan(7881, &null(5, 1 << 20)), &app);
    let mut host = Host::new(7881);
    let (admin, _) = host.controller();
    let refusals = [
        (null(5, 1 << 21), "another now"),
        (null(5, 1 << 20) + "[nvme.namespace.8]\nmemory = \"disk\"\n", "region"),
        (null(5, 1 << 20) + "[nvme.namespace.8]\nfile = \"/nowhere/at/all\"\n", "namespace 8"),
    ];
    for (more, word) in refusals {
        let why = app.reload(&plan_with(7881, &more)).expect_err("refused");
        assert!(why.contains(word), "{why}");
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(listed(&mut host, admin), [1, 2, 5]);
    end(running);
}
