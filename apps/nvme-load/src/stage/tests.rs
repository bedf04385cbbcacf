//! The initiator beside a target that the test plays.

use std::sync::{Arc, Mutex};

use verbline::testing::StageTest;
use verbline_nvme::feature::QueueCount;
use verbline_nvme::identify::{Controller, ControllerType, PAGE_BYTES};
use verbline_nvme::namespace::{Names, Namespace, write_descriptors, write_list};
use verbline_nvme::property::{CSTS_READY, cap};
use verbline_nvme::{Command, Response, Status};
use verbline_tests::root;

use super::*;

/// An initiator, and its region.
fn opened() -> (StageTest, Region) {
    let mut registry = Registry::new("nvme-load");
    let (results, region) = (Results::default(), Arc::<Mutex<Option<Region>>>::default());
    let kept = Arc::clone(&region);
    registry.section_of::<Settings>(SECTION, MEANING).stage(KIND, spec(), move |stage| {
        let initiator = Initiator::new(stage, results.clone())?;
        *kept.lock().expect("no panic") = Some(initiator.region.clone());
        Ok(Box::new(initiator))
    });
    registry.needs(KIND, needs).params_of::<Params>(KIND, "an initiator");
    let sets = [r#"device.nic0={provider="soft"}"#, "lcore.load.cpu=allowed:0", "load.discover=false"];
    let loader = Loader::new(registry.catalog(), Machine::detect()).sets(sets);
    let plan = loader.load_path(root().join("tests/plans/nvme-load.toml")).unwrap_or_else(|faults| panic!("{faults}"));
    let load = StageTest::open(&plan, &registry, "load").unwrap_or_else(|error| panic!("{error}"));
    let region = region.lock().expect("no panic").take().expect("the factory has run");
    (load, region)
}

/// Fills a page.
fn page(fill: impl FnOnce(&mut [u8; PAGE_BYTES])) -> Vec<u8> {
    let mut page = [0; PAGE_BYTES];
    fill(&mut page);
    page.to_vec()
}

/// Connects the admin queue, and answers the commands of its handshake.
fn hand_shake(load: &mut StageTest, region: &Region) {
    let admin = load.connect("admin");
    let controller = Controller {
        serial: String::new(),
        model: String::new(),
        firmware: String::new(),
        mdts: 0,
        cntlid: 1,
        version: 0,
        async_events: 0,
        kind: ControllerType::Io,
        aerl: 0,
        elpe: 0,
        kas: 0,
        max_commands: 128,
        namespaces_max: 1,
        commands: 0,
        has_write_cache: false,
        capsule_bytes: 64 + 4096,
        subsystem: Nqn::new("nqn.2026-01.org.verbline:disk").expect("a name"),
    };
    let space =
        Namespace { blocks: 64, block_shift: 12, is_read_only: false, nguid: None, eui64: None, protection: None };
    let queues = QueueCount { submission_less_one: 3, completion_less_one: 3 };
    let steps = [
        (1, vec![]),
        (cap(128), vec![]),
        (0, vec![]),
        (CSTS_READY.into(), vec![]),
        (0, page(|page| controller.write(page))),
        (queues.to_dword().into(), vec![]),
        (0, page(|page| write_list(page, [1].into_iter(), 0))),
        (0, page(|page| space.write(page))),
        (0, page(|page| write_descriptors(page, &Names { uuid: [7; 16], nguid: None, eui64: None }))),
        (0, vec![]),
    ];
    for (result, page) in steps {
        let asked = load.sent("admin");
        let [asked] = &asked[..] else { panic!("one command at a time: {asked:?}") };
        let cid = Command::read(asked.data()).expect("a command").cid;
        region.write_from(0, &page).expect("room for a page");
        let response = Response { result, sq_head: 0, sq_id: 0, cid, status: Status::SUCCESS };
        let response = load.packet_over(admin, &response.to_bytes());
        load.process([response]);
    }
}

/// A target ends an I/O queue that is not connected to a controller in time, and the controller is
/// there before the next one. Regression: the initiator connected the queue that was gone, and
/// waited for the answer for ever.
#[test]
fn a_queue_that_ends_before_its_controller_is_there_is_not_used() {
    let (mut load, region) = opened();
    let queue = load.connect("io");
    load.connect("admin");
    load.sent("admin");
    load.end_connection(queue, ConnectionChange::Closed { reason: "" });
    hand_shake(&mut load, &region);
    assert!(load.sent("io").is_empty(), "there is no queue");
    load.connect("io");
    assert_eq!(load.sent("io").len(), 1, "the Connect of the next");
}
