//! Namespaces added and removed while a host is connected, up to the greatest number of them.

use std::time::{Duration, Instant};

use crate::common::{CONNECT, Host, changed, end, plan, start_app};
use nvme_target::NvmeTarget;
use verbline::cli::App;
use verbline::plan::Plan;
use verbline_nvme::connect::CNTLID_ANY;
use verbline_nvme::identify::cns;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::log::{CHANGED_TOO_MANY, LogRequest, event};
use verbline_nvme::property::{self, Property};
use verbline_nvme::{Command, DISCOVERY_NQN, Response, Sgl, Status, feature, opcode};

/// The plan of the run, with more namespaces.
fn plan_with(port: u16, more: &str) -> Plan {
    changed(&plan(port, more))
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

/// The namespace numbers beyond `after` in Identify's list, one page.
fn listed(host: &mut Host, admin: usize, after: u32) -> Vec<u32> {
    let identify = Command::new(opcode::admin::IDENTIFY, 0, host.keyed(0, 4096));
    let asked = Command { nsid: after, ..identify.with([cns::ACTIVE_NAMESPACES.into(), 0, 0, 0, 0, 0]) };
    assert!(host.ask(admin, &asked).status.is_success());
    numbers(host)
}

/// The namespace numbers at the front of the host's memory, up to the first 0. It does not use the
/// target's code, which writes them.
fn numbers(host: &Host) -> Vec<u32> {
    let page = host.bytes(0, 4096);
    let words = page.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes")));
    words.take_while(|nsid| *nsid != 0).collect()
}

/// The command that reads the log of changed namespaces.
fn log(host: &Host, retain_event: bool, offset: u64) -> Command {
    let asked = LogRequest { id: 0x04, retain_event, offset, len: 4096 };
    Command::new(opcode::admin::GET_LOG_PAGE, 0, host.keyed(0, 4096)).with(asked.dwords())
}

/// Waits for the event, and checks that the log names the namespace.
#[track_caller]
fn hear_of(host: &mut Host, admin: usize, nsid: u32) {
    let told = host.response(admin);
    assert_eq!((told.status.is_success(), told.result), (true, event::NAMESPACE_CHANGED.into()), "{told:?}");
    // Regression: a read from beyond the end was refused, but emptied the log.
    let (beyond, whole) = (log(host, false, 8192), log(host, false, 0));
    assert!(host.ask(admin, &beyond).status.is(Status::INVALID_FIELD));
    assert!(host.ask(admin, &whole).status.is_success());
    assert_eq!(numbers(host), [nsid]);
    wait_for_event(host, admin);
}

/// Asks the target for events about changed namespaces.
#[track_caller]
fn want_events(host: &mut Host, admin: usize) {
    assert!(ask_events(host, admin, event::NAMESPACE_CHANGED_BIT).is_success());
}

/// Asks the target for these events.
#[track_caller]
fn ask_events(host: &mut Host, admin: usize, events: u32) -> Status {
    let wanted = Command::new(opcode::admin::SET_FEATURES, 0, Sgl::NONE);
    host.ask(admin, &wanted.with([feature::ASYNC_EVENTS.into(), events, 0, 0, 0, 0])).status
}

/// Sends the next event request. Returns its identifier.
fn wait_for_event(host: &mut Host, admin: usize) -> u16 {
    let cid = host.cid();
    let request = Command { cid, ..Command::new(opcode::admin::ASYNC_EVENT_REQUEST, 0, Sgl::NONE) };
    host.send(admin, &request.to_bytes());
    cid
}

#[test]
fn namespaces_come_and_go_and_hosts_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let file = format!("[nvme.namespace.7]\nfile = {path:?}\ncreate_bytes = 65_536\npage_cache = true\n");
    let app = NvmeTarget::default();
    let running = start_app(&plan(7880, ""), &app);
    let mut host = Host::new(7880);
    let (admin, io) = host.queues();
    want_events(&mut host, admin);
    wait_for_event(&mut host, admin);
    assert_eq!(listed(&mut host, admin, 0), [1, 2]);

    // Adds one that stores nothing, and then one in a file.
    let done = app.reload(&plan_with(7880, &null(5, 1 << 20))).expect("taken");
    assert_eq!(done, "namespaces added: [5]; removed: []");
    // The same plan changes nothing.
    assert_eq!(app.reload(&plan_with(7880, &null(5, 1 << 20))).as_deref(), Ok(""));
    let command = read(&host, 5);
    ask_until(&mut host, io, command, |answer| answer.status.is_success());
    hear_of(&mut host, admin, 5);
    assert_eq!(listed(&mut host, admin, 0), [1, 2, 5]);
    app.reload(&plan_with(7880, &(null(5, 1 << 20) + &file))).expect("taken");
    let command = read(&host, 7);
    ask_until(&mut host, io, command, |answer| answer.status.is_success());
    hear_of(&mut host, admin, 7);
    let data = vec![0xA7; 4096];
    let in_capsule = Sgl::InCapsule { offset: 0, len: 4096 };
    let range = ReadWrite { slba: 3, blocks: 1 }.dwords();
    let write = Command { nsid: 7, ..Command::new(opcode::io::WRITE, 0, in_capsule).with(range) };
    assert!(host.ask_with(io, &write, &data).status.is_success());

    // Removed: its blocks stay in the file, and the other namespaces stay.
    app.reload(&plan_with(7880, &null(5, 1 << 20))).expect("taken");
    let command = read(&host, 7);
    ask_until(&mut host, io, command, |answer| answer.status.is(Status::INVALID_NAMESPACE));
    hear_of(&mut host, admin, 7);
    assert_eq!(listed(&mut host, admin, 0), [1, 2, 5]);
    assert_eq!(std::fs::read(&path).expect("the file")[3 * 4096..4 * 4096], data);
    host.assert_served(io);

    // Added again, with its blocks, in the free place.
    app.reload(&plan_with(7880, &(null(5, 1 << 20) + &file))).expect("taken");
    let again = Command { nsid: 7, ..host.read(3, 1) };
    ask_until(&mut host, io, again, |answer| answer.status.is_success());
    assert_eq!(host.bytes(0, 4096), data);
    hear_of(&mut host, admin, 7);

    // A region moves to another namespace.
    let text = plan(7880, &null(5, 1 << 20)).replace("[nvme.namespace.1]", "[nvme.namespace.9]");
    app.reload(&changed(&text)).expect("taken");
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

/// A plan that fails changes nothing.
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
    assert_eq!(listed(&mut host, admin, 0), [1, 2, 5]);
    end(running);
}

/// The limit in the target's documentation.
const MOST: u32 = 2048;

/// A plan with namespaces of all numbers up to `last`, each a block longer than the one before.
fn up_to(last: u32) -> Plan {
    plan_with(7935, &(3..=last).map(|nsid| null(nsid, 4096 * (nsid + 1))).collect::<String>())
}

#[test]
fn as_many_namespaces_as_there_may_be_come_at_run_time() {
    let app = NvmeTarget::default();
    let running = start_app(&plan(7935, "commands_max = 64"), &app);
    let mut host = Host::new(7935);
    let (admin, io) = host.queues();
    want_events(&mut host, admin);
    let cid = wait_for_event(&mut host, admin);

    let said = app.reload(&up_to(MOST)).expect("taken");
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
    assert_eq!((told.cid, told.result), (cid, event::NAMESPACE_CHANGED.into()));
    assert_eq!(listed(&mut host, admin, 0), (1..=1024).collect::<Vec<_>>());
    assert_eq!(listed(&mut host, admin, 1024), (1025..=MOST).collect::<Vec<_>>());
    // More namespaces are new than the log names: it has the entry for "too many" alone, as long as
    // it is retained. Regression: a later number stood in front.
    let (kept, read) = (log(&host, true, 0), log(&host, false, 0));
    assert!(host.ask(admin, &kept).status.is_success());
    assert_eq!(numbers(&host), [CHANGED_TOO_MANY]);
    app.reload(&up_to(MOST - 1)).expect("taken");
    while !host.ask(io, &Command { nsid: MOST, ..host.read(0, 1) }).status.is_final() {
        assert!(Instant::now() < deadline, "the last one goes");
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(host.ask(admin, &read).status.is_success());
    assert_eq!(numbers(&host), [CHANGED_TOO_MANY]);
    app.reload(&up_to(MOST)).expect("taken");

    // One more.
    let why = app.reload(&up_to(MOST + 1)).expect_err("refused");
    assert!(why.contains("`2049` numbers no namespace: write 1 to 2048"), "{why}");
    let read = Command { nsid: MOST + 1, ..host.read(0, 1) };
    assert!(host.ask(io, &read).status.is(Status::INVALID_NAMESPACE));

    // All are removed, and then all added again under the same numbers.
    app.reload(&up_to(2)).expect("taken");
    app.reload(&up_to(MOST)).expect("taken");
    let deadline = Instant::now() + Duration::from_secs(20);
    for nsid in 3..=MOST {
        while !host.ask(io, &Command { nsid, ..host.read(0, 1) }).status.is_success() {
            assert!(Instant::now() < deadline, "namespace {nsid} comes again");
        }
    }
    host.vanish();
    end(running);
}

/// Regression: a host was promised events that the controller does not have.
#[test]
fn only_events_that_a_controller_has_can_be_asked_for() {
    let running = start_app(&plan(7992, ""), &NvmeTarget::default());
    let mut host = Host::new(7992);
    let (admin, _) = host.controller();
    let kept = |host: &mut Host| {
        let get = Command::new(opcode::admin::GET_FEATURES, 0, Sgl::NONE);
        host.ask(admin, &get.with([feature::ASYNC_EVENTS.into(), 0, 0, 0, 0, 0])).result
    };
    // Critical warnings are of every controller with a health log, which this one never has.
    let all = event::NAMESPACE_CHANGED_BIT | 0xFF;
    assert!(ask_events(&mut host, admin, all).is_success());
    for bit in 9..32 {
        let status = ask_events(&mut host, admin, event::NAMESPACE_CHANGED_BIT | 1 << bit);
        assert!(status.is(Status::INVALID_FIELD) && status.is_final(), "bit {bit}: {status}");
        assert_eq!(kept(&mut host), u64::from(all), "bit {bit}");
    }
    end(running);
}

/// Regression: a host was told again of changes before it had read the log of the first.
#[test]
fn an_event_is_told_once_until_its_log_is_read() {
    let app = NvmeTarget::default();
    let running = start_app(&plan(7993, ""), &app);
    let mut host = Host::new(7993);
    let (admin, io) = host.queues();
    want_events(&mut host, admin);
    let first = wait_for_event(&mut host, admin);
    wait_for_event(&mut host, admin);
    app.reload(&plan_with(7993, &null(5, 1 << 20))).expect("taken");
    let told = host.response(admin);
    assert_eq!(told.result, u64::from(event::NAMESPACE_CHANGED), "{told:?}");
    // A log that is read with the event retained does not end it.
    let kept = log(&host, true, 0);
    app.reload(&plan_with(7993, &(null(5, 1 << 20) + &null(6, 1 << 20)))).expect("taken");
    let sixth = read(&host, 6);
    ask_until(&mut host, io, sixth, |answer| answer.status.is_success());
    assert!(host.ask(admin, &kept).status.is_success());
    assert_eq!(host.response_within(admin, Duration::from_millis(400)), None);
    let whole = log(&host, false, 0);
    assert!(host.ask(admin, &whole).status.is_success());
    assert_eq!(numbers(&host), [5, 6], "of both");
    assert_eq!(host.response_within(admin, Duration::from_millis(400)), None, "both are read about");
    app.reload(&plan_with(7993, &null(5, 1 << 20))).expect("taken");
    let again = host.response(admin);
    assert_eq!(again.result, u64::from(event::NAMESPACE_CHANGED), "{again:?}");
    assert_ne!(again.cid, told.cid, "{first}: each request is answered once");
    end(running);
}

/// Regression: the event was sent to discovery controllers too, which have no namespaces.
#[test]
fn a_discovery_controller_hears_of_no_namespace() {
    let app = NvmeTarget::default();
    let running = start_app(&plan(7991, ""), &app);
    let (mut host, mut finder) = (Host::new(7991), Host::new(7991));
    let (admin, _) = host.queues();
    let discovery = finder.dial_queue(0);
    let data = finder.data(CNTLID_ANY, DISCOVERY_NQN);
    assert!(finder.connect(discovery, CONNECT, &data).status.is_success());
    let cc = Property { offset: property::CC, is_wide: false };
    assert!(finder.ask(discovery, &cc.set(0, property::CC_USUAL.into())).status.is_success());
    want_events(&mut host, admin);
    assert!(ask_events(&mut finder, discovery, event::NAMESPACE_CHANGED_BIT).is(Status::INVALID_FIELD));
    assert!(ask_events(&mut finder, discovery, event::DISCOVERY_CHANGED_BIT).is_success());
    wait_for_event(&mut host, admin);
    wait_for_event(&mut finder, discovery);
    app.reload(&plan_with(7991, &null(5, 1 << 20))).expect("taken");
    hear_of(&mut host, admin, 5);
    assert_eq!(finder.response_within(discovery, Duration::from_millis(300)), None);
    end(running);
}
